"""Steady bodies whose parts are joined badly, by links that do not follow the axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse.linalg import spsolve

from tests.support.body_samples import build, start
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.model.problem import Problem
from tetris_sim.solvers import krylov, solver
from tetris_sim.solvers.solver import OneDevice, Solver
from tetris_sim.solvers.steady import solve_steady

Labels = npt.NDArray[np.int64]
COLD = {"*": {"type": "dirichlet", "value": 0}}
MOST_ITERATIONS = 60


@pytest.fixture(scope="module")
def device() -> Iterator[Solver]:
    team = ThreadTeam(2)
    yield OneDevice(CpuArithmetic(team))
    team.close()


def metal(k: float) -> dict[str, float]:
    return {"conductivity": k, "density": 1000, "specific_heat": 1000}


def contact(n: int, where: str, resistance: float) -> dict[str, Any]:
    """Good conductors with a poor contact between them, the inner one heated."""
    return {
        "grid": {"shape": [n, n], "size": [24e-3, 24e-3]},
        "model": {
            "type": "heat",
            "materials": {"inner": metal(400), "outer": metal(400)},
            "regions": [{"material": "outer"}, {"material": "inner", "where": where}],
            "sources": [{"material": "inner", "power": 100}],
            "contacts": [{"between": ["inner", "outer"], "resistance": resistance}],
        },
        "boundaries": COLD,
    }


def squares(n: int, width: int, ndim: int = 2) -> Labels:
    return np.asarray((np.indices((n,) * ndim) // width).sum(axis=0) % 2)


def scattered(shape: tuple[int, ...], share: float) -> Labels:
    return np.asarray(np.random.default_rng(3).random(shape) < share, np.int64)


def combs(n: int) -> Labels:
    found = np.zeros((n, n), np.int64)
    found[:, :8], found[::6] = 1, 1
    found[3::6, 20:], found[:, -8:] = 1, 1
    found[:, 9:19] *= found[:, 9:19] * (np.arange(n) % 6 == 0)[:, None]
    return found


def spiral(n: int) -> Labels:
    y, x = np.indices((n, n)) - n / 2 + 0.5
    return np.asarray((np.hypot(x, y) - np.arctan2(y, x) * 4 / math.pi) % 8 < 4, np.int64)


def wires(n: int) -> Labels:
    rng, found = np.random.default_rng(5), np.zeros((n, n, n), np.int64)
    for number in range(20):
        a, b = rng.integers(0, n, 2)
        np.moveaxis(found, number % 3, 0)[:, a, b] = 1
    return found


def stripes(n: int) -> Labels:
    y, x = np.indices((n, n))
    return np.asarray(abs((3 * y - 2 * x) % 60) < 4, np.int64)


CASES: dict[str, tuple[Callable[[], Labels], float, dict[str, Any]]] = {
    "squares of one cell": (lambda: squares(120, 1), 1e6, COLD),
    "squares of five cells, 1e3": (lambda: squares(150, 5), 1e3, COLD),
    "squares of five cells, 1e6": (lambda: squares(150, 5), 1e6, COLD),
    "cubes of five cells": (lambda: squares(30, 5, 3), 1e6, COLD),
    "half of all cells": (lambda: scattered((128, 128), 0.5), 1e4, COLD),
    "a tenth of all cells": (lambda: scattered((128, 128), 0.1), 1e4, COLD),
    "cells in 3D": (lambda: scattered((32, 32, 32), 0.3), 1e4, COLD),
    "combs": (lambda: combs(128), 1e5, COLD),
    "a spiral": (lambda: spiral(128), 1e5, COLD),
    "wires in insulation": (lambda: wires(32), 1e4, COLD),
    "inclined wires": (lambda: stripes(128), 1e5, COLD),
    "hardly cooled": (
        lambda: spiral(128), 400, {"*": {"type": "robin", "h": 1e-6, "ambient": 0}},
    ),
}  # fmt: skip


def check(problem: Problem, device: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each solution takes few iterations, and the first one is that of a direct solver."""
    seen: list[tuple[Any, Any, Any, krylov.Solved]] = []
    iterate = krylov.conjugate_gradients

    def watched(operator: Any, f: Any, u: Any, *rest: Any, **given: Any) -> krylov.Solved:
        solved = iterate(operator, f, u, *rest, **given)
        seen.append((operator, f.copy(), u.copy(), solved))
        return solved

    monkeypatch.setattr(solver, "conjugate_gradients", watched)
    solve_steady(problem, start(problem)[0], device, tolerance=1e-8)
    assert max(solved.iterations for *_, solved in seen) <= MOST_ITERATIONS
    operator, f, u, _ = seen[0]
    matrix = krylov.matrix_of(operator).tocsc()
    exact = spsolve(matrix, f.reshape(-1))

    # Where nearly nothing cools, a rounding of the matrix itself moves the direct solution, by as
    # much as the largest eigenvalue is above the smallest, for which the solution stands.
    smallest = (exact @ f.reshape(-1)) / (exact @ exact)
    rounding = np.finfo(np.float64).eps * 2 * matrix.diagonal().max() / smallest
    off = u.reshape(-1) - exact
    assert abs(off).max() <= (1e-4 + rounding) * abs(exact).max()
    # It moves all points alike; what is between them stays.
    assert abs(off - off.mean()).max() <= 1e-4 * abs(exact).max()


@pytest.mark.parametrize("name", CASES)
def test_bodies_of_good_and_poor_conductors(
    name: str, device: Solver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make, contrast, faces = CASES[name]
    labels = make()
    np.save(tmp_path / "labels.npy", labels.astype(np.uint8))
    problem = build(
        grid={"shape": list(labels.shape[::-1]), "size": [0.1] * labels.ndim},
        model={
            "type": "heat",
            "materials": {"poor": metal(1), "good": metal(contrast)},
            "regions": [
                {"labels": str(tmp_path / "labels.npy"), "materials": {"0": "poor", "1": "good"}}
            ],
            "sources": [{"density": 1e4}],
        },
        boundaries=faces,
    )
    check(problem, device, monkeypatch)


@pytest.mark.parametrize("resistance", [1e-2, 0.1, 1.0])
@pytest.mark.parametrize(
    "where",
    [
        "hypot(x - 12e-3, y - 12e-3) < 10e-3",
        "abs(x - 12e-3) < 8e-3 and abs(y - 12e-3) < 8e-3",
        "abs(x - 12e-3) + 2*abs(y - 12e-3) < 9e-3",
    ],
)
def test_poor_contacts_of_good_conductors(
    where: str, resistance: float, device: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(build(**contact(96, where, resistance)), device, monkeypatch)


def test_layers_on_a_graded_axis(device: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = np.append(0, np.cumsum(1.15 ** np.arange(40)))
    layers = [
        {"box": {"y": [a, b]}} for a, b in (edges / edges[-1] * 0.1).reshape(-1)[:40].reshape(-1, 2)
    ]
    problem = build(
        grid={
            "shape": [64, 40],
            "size": [0.1, 0.1],
            "graded": {"y": {"edges": (edges / edges[-1] * 0.1).tolist()}},
        },
        model={
            "type": "heat",
            "materials": {"poor": metal(1), "good": metal(1e6)},
            "regions": [{"material": "poor"}, *({"material": "good", **it} for it in layers)],
            "sources": [{"density": 1e4}],
        },
        boundaries=COLD,
    )
    check(problem, device, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "axes", "shape", "size"),
    [
        ("cylindrical", ["r", "theta"], [160, 256], [0.05, "360 deg"]),
        ("cylindrical", ["r", "theta"], [160, 192], [0.05, "90 deg"]),
        ("cylindrical", ["r", "theta", "z"], [32, 64, 16], [0.05, "360 deg", 0.05]),
        ("spherical", ["r", "theta"], [160, 192], [0.05, "180 deg"]),
    ],
    ids=["disc", "sector", "rod", "ball"],
)
def test_narrow_cells_around_r_0(
    kind: str,
    axes: list[str],
    shape: list[int],
    size: list[Any],
    device: Solver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Geometric levels suffice: rings near the axis stay until theta is as coarse as they are."""
    monkeypatch.setattr(solver, "AggregationCycle", None)
    warm = {"box": {"theta": ["0 deg", "60 deg"]}, "power": 10}
    problem = build(
        grid={"coordinates": kind, "axes": axes, "shape": shape, "size": size},
        model={"type": "heat", **metal(15), "sources": [warm]},
        boundaries={"r+": {"type": "robin", "h": 10, "ambient": 20}, "*": {"type": "neumann"}},
        time={"scheme": "steady"},
    )
    found = solve_steady(problem, start(problem)[0], device, tolerance=1e-8)
    assert found.iterations <= 32
    assert found.residual <= 1e-8
