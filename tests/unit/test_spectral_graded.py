"""Jumps between cells that differ in width: the state after as many steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.jump_cases import KINDS, HostArrays, jumped, stack
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.solvers.spectral.axis import Layered, ModalExpansion, Separable, between_cells
from tetris_sim.solvers.spectral.operator import read_operator

GRADED: dict[str, dict[str, Any]] = {
    "x": {"edges": [0, 0.04, 0.1, 0.25, 0.3, 0.52, 0.6]},
    "y": {"segments": [{"to": 0.2, "n": 4}, {"to": 0.5, "n": 1}]},
    "z": {"edges": [0, 0.1, 0.3, 0.35, 0.4]},
}
PLAIN: Any = [{"material": "b"}]


def stepped(problem: Problem, steps: int) -> np.ndarray[Any, Any]:
    """The same by the matrix of a step, as often as it takes."""
    shape, n = (1, *problem.grid.shape), problem.grid.n_points
    f = reference.advance(np.zeros(shape), problem, 1).reshape(-1)
    units = np.eye(n).reshape(n, *shape)
    matrix = np.stack(
        [reference.advance(unit, problem, 1).reshape(-1) - f for unit in units], axis=1
    )
    u = problem.initial(Slab.whole(problem.grid)).reshape(-1)
    for _ in range(steps):
        u = matrix @ u + f
    return u.reshape(problem.grid.shape)


def assert_same(problem: Problem, steps: int) -> None:
    expected = stepped(problem, steps)
    largest = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(jumped(problem, steps), expected, rtol=0, atol=2e-12 * largest)


def graded(axes: str) -> dict[str, Any]:
    return {axis: GRADED[axis] for axis in axes}


@pytest.mark.parametrize("kinds", ["pp", "dn", "rr", "nr", "nn"])
@pytest.mark.parametrize("axes", ["x", "y", "xy"])
def test_one_material(axes: str, kinds: str) -> None:
    faces = {"x-": KINDS[kinds[0]], "x+": KINDS[kinds[1]], "y-": KINDS["r"], "y+": KINDS["d"]}
    if kinds == "pp":
        faces = {"x": KINDS["p"], "y-": KINDS["n"], "y+": KINDS["r"]}
    problem = stack((6, 5), "x", faces, graded=graded(axes), regions=PLAIN)
    assert isinstance(read_operator(problem), Separable)
    for steps in (1, 7, 10_000):
        assert_same(problem, steps)


@pytest.mark.parametrize("axes", ["x", "y", "z", "xyz"])
@pytest.mark.parametrize("across", ["x", "y", "z"])
def test_layers_with_contacts_and_sources(axes: str, across: str) -> None:
    faces = {it: KINDS["n"] for it in ("x", "y", "z")}
    faces |= {f"{across}-": KINDS["r"], f"{across}+": KINDS["d"]}
    del faces[across]
    problem = stack(
        (6, 5, 4),
        across,
        faces,
        graded=graded(axes),
        contacts=[{"between": ["a", "b"], "resistance": 0.2}],
        sources=[{"density": 40.0, "where": "x < 0.3"}],
    )
    assert isinstance(read_operator(problem), Layered)
    for steps in (1, 300):
        assert_same(problem, steps)


def test_anisotropic_bodies() -> None:
    skew = {"conductivity": {"x": 1.0, "y": 5.0}, "density": 2.0, "specific_heat": 3.0}
    problem = stack(
        (6, 5),
        "x",
        {"x": KINDS["r"], "y": KINDS["d"]},
        graded=graded("xy"),
        materials={"a": skew},
        regions=[{"material": "a"}],
    )
    assert_same(problem, 200)


def test_heat_is_kept_for_a_million_steps() -> None:
    problem = stack((6, 5), "x", {}, graded=graded("xy"), regions=PLAIN)
    volumes = problem.grid.volumes(tuple((0, n) for n in problem.grid.shape))
    first = problem.initial(Slab.whole(problem.grid))[0]
    later = jumped(problem, 1_000_000)
    assert (later * volumes).sum() == pytest.approx((first * volumes).sum(), rel=1e-13)
    np.testing.assert_allclose(later, (first * volumes).sum() / volumes.sum(), rtol=1e-12)


@pytest.mark.parametrize("ends", [None, (1.0, -1.0), (0.3, 1.0)], ids=str)
def test_coefficients_and_back(ends: tuple[float, float] | None, rng: np.random.Generator) -> None:
    axis = between_cells(np.array([0.1, 0.4, 0.2, 0.7, 0.3]), ends)
    u = rng.random((3, 5, 2))
    for modes in (None, np.array([0, 2, 4]), np.arange(5)):
        whole = ModalExpansion(axis, 1, HostArrays(), modes)
        coefficients = whole.expand(u.copy())
        again = whole.expand(whole.sum(coefficients.copy()))
        np.testing.assert_allclose(again, coefficients, atol=1e-14)
    np.testing.assert_allclose(whole.sum(coefficients), u, atol=1e-14)
