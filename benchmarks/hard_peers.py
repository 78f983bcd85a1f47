"""Steady bodies of good and poor conductors, solved here and by pyamg: `python -m
benchmarks.hard_peers`, with pyamg installed. Prints the table of docs/benchmarks/hard.md; with
the word `gpu`, what a GPU makes of them, without pyamg.

The bodies are those of `tests/unit/test_solve_hard.py` on more cells: smaller ones than 20,000 are
factorised here, without iterations. pyamg gets the matrix of the first
linearisation, assembled before its clock starts, and iterates by conjugate gradients to the same
residual. Ours counts everything from the problem on: assembly, levels and all linearisations.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.body_samples import build, start
from tests.unit.test_solve_hard import (
    CASES,
    COLD,
    combs,
    contact,
    metal,
    scattered,
    spiral,
    squares,
    stripes,
    wires,
)
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.solve.arithmetic import GpuArithmetic
from tetris_sim.model.problem import Problem
from tetris_sim.solvers import krylov, solver
from tetris_sim.solvers.solver import OneDevice
from tetris_sim.solvers.steady import solve_steady

TOLERANCE = 1e-8
MOST_ITERATIONS = 200
LARGE = {
    "squares of one cell": lambda: squares(192, 1),
    "squares of five cells, 1e3": lambda: squares(200, 5),
    "squares of five cells, 1e6": lambda: squares(200, 5),
    "cubes of five cells": lambda: squares(35, 5, 3),
    "half of all cells": lambda: scattered((192, 192), 0.5),
    "a tenth of all cells": lambda: scattered((192, 192), 0.1),
    "cells in 3D": lambda: scattered((32, 32, 32), 0.3),
    "combs": lambda: combs(192),
    "a spiral": lambda: spiral(192),
    "wires in insulation": lambda: wires(32),
    "inclined wires": lambda: stripes(192),
    "hardly cooled": lambda: spiral(192),
}
DISC = "hypot(x - 12e-3, y - 12e-3) < 10e-3"


def problems(folder: Path) -> Iterator[tuple[str, Problem]]:
    """The bodies by name."""
    for resistance in (0.01, 0.1, 1.0):
        yield f"curved contact, {resistance:g} m2 K/W", build(**contact(192, DISC, resistance))
    for name, make in LARGE.items():
        _, contrast, faces = CASES[name]
        labels = make()
        file = folder / "labels.npy"
        np.save(file, labels.astype(np.uint8))
        regions = [{"labels": str(file), "materials": {"0": "poor", "1": "good"}}]
        model = _model(contrast, regions)
        size = {"shape": list(labels.shape[::-1]), "size": [0.1] * labels.ndim}
        told = name if "1e" in name else f"{name}, {contrast:.0e}".replace("e+0", "e")
        yield told, build(grid=size, model=model, boundaries=faces)

    edges = np.append(0, np.cumsum(1.15 ** np.arange(40)))
    ends = (edges / edges[-1] * 0.1).tolist()
    good = [
        {"material": "good", "box": {"y": [a, b]}}
        for a, b in zip(ends[:-1:2], ends[1::2], strict=True)
    ]
    graded = {"shape": [640, 40], "size": [1.0, 0.1], "graded": {"y": {"edges": ends}}}
    model = _model(1e6, [{"material": "poor"}, *good])
    yield "graded layers, 1e6", build(grid=graded, model=model, boundaries=COLD)


def _model(contrast: float, regions: list[Any]) -> dict[str, Any]:
    return {
        "type": "heat",
        "materials": {"poor": metal(1), "good": metal(contrast)},
        "regions": regions,
        "sources": [{"density": 1e4}],
    }


def ours(problem: Problem, device: OneDevice) -> tuple[int, float, Any, Any]:
    """(most iterations of a solution, seconds, the first operator, its right-hand side)."""
    seen: list[tuple[Any, Any, int]] = []
    iterate = krylov.conjugate_gradients

    def watched(operator: Any, f: Any, u: Any, *rest: Any, **given: Any) -> krylov.Solved:
        solved = iterate(operator, f, u, *rest, **given)
        seen.append((operator, f.copy(), solved.iterations))
        return solved

    initial = start(problem)[0]
    solver.conjugate_gradients = watched
    begin = time.perf_counter()
    try:
        solve_steady(problem, initial, device, tolerance=TOLERANCE)
    finally:
        solver.conjugate_gradients = iterate
    seconds = time.perf_counter() - begin
    operator, f, _ = seen[0]
    return max(it for *_, it in seen), seconds, operator, f.reshape(-1)


def peer(make: Any, matrix: Any, f: Any) -> tuple[str, float]:
    """(iterations, seconds) of pyamg with its levels made by `make`."""
    residuals: list[float] = []
    begin = time.perf_counter()
    try:
        levels = make(matrix)
        levels.solve(f, tol=TOLERANCE, maxiter=MOST_ITERATIONS, accel="cg", residuals=residuals)
    except (ValueError, np.linalg.LinAlgError, RuntimeError) as error:
        return type(error).__name__, time.perf_counter() - begin
    reached = residuals[-1] <= TOLERANCE * max(residuals[0], np.linalg.norm(f)) * 1.001
    count = str(len(residuals) - 1)
    return count if reached else f"> {count}", time.perf_counter() - begin


def main(words: list[str]) -> None:
    """Print the table."""
    team = ThreadTeam(min(2, os.cpu_count() or 1))
    on_gpu = words == ["gpu"]
    device = OneDevice(GpuArithmetic(GpuDevice()) if on_gpu else CpuArithmetic(team))
    makers, heads = [], []
    if not on_gpu:
        import pyamg

        makers = [pyamg.smoothed_aggregation_solver, pyamg.ruge_stuben_solver]
        heads = ["Smoothed aggregation", "s", "Ruge-Stueben", "s"]

    with tempfile.TemporaryDirectory() as folder, device.use():
        for name, problem in problems(Path(folder)):  # kernels are compiled before clocks start
            if "contact" in name or "five" in name or "3D" in name:
                ours(problem, device)
        print("| " + " | ".join(["Body", "Cells", "Here", "s", *heads]) + " |")
        print("|---" * (4 + len(heads)) + "|")
        for name, problem in problems(Path(folder)):
            iterations, seconds, operator, f = ours(problem, device)
            cells = int(np.prod(problem.grid.shape))
            row = [name, cells, iterations, f"{seconds:.2f}"]
            for make in makers:
                count, took = peer(make, krylov._matrix_of(operator).tocsr(), f)
                row += [count, f"{took:.2f}"]
            print("| " + " | ".join(map(str, row)) + " |", flush=True)
    team.close()


if __name__ == "__main__":
    main(sys.argv[1:])
