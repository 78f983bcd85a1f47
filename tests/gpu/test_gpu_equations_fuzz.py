"""Formulas that nobody would write, streamed by emulated GPUs: the bits of single steps.

`python tests/gpu/test_gpu_equations_fuzz.py 1000` tries many.
"""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent)]

from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.apps.pde.arrays import equations_problem
from tetris_sim.errors import TetrisError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Neumann, Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

SHAPES = {1: (331,), 2: (35, 61), 3: (13, 15, 37)}
LEAVES = ["u", "v", "k", "D", "x", "t", "1", "0.5", "2", "3e-3"]
OF_ONE = ["-{}", "sqrt(abs({}))", "abs({})", "({})**2", "laplace({})", "dx({})", "dxx({})"]
OF_ONE += ["grad_squared({})", "biharmonic({})"]
OF_TWO = ["{} + {}", "{} - {}", "({})*({})", "({})/(1 + ({})**2)", "min({}, {})", "{} < {}"]
OF_TWO += ["div_grad({}, {})"]
PAIRS: list[tuple[Face, Face]] = [(Dirichlet(0.5), Neumann()), (Neumann(0.1), Neumann())]


def formula(rng: random.Random, depth: int) -> str:
    """Of at most so many operations within each other."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(LEAVES)
    if rng.random() < 0.5:
        return rng.choice(OF_ONE).format(formula(rng, depth - 1))
    if rng.random() < 0.1:
        names = [formula(rng, depth - 1) for _ in range(3)]
        return "where({} < {}, {}, u)".format(*names)
    return rng.choice(OF_TWO).format(formula(rng, depth - 1), formula(rng, depth - 1))


def build(rng: random.Random, ndim: int) -> Problem | None:
    """A problem that can be computed, if chance makes one."""
    shape = SHAPES[ndim]
    state = np.random.default_rng(rng.randrange(1 << 30)).uniform(0.1, 1.0, (2, *shape))
    ring = (Periodic(), Periodic())
    rings = [rng.random() < 0.5 for _ in shape]
    sides = [[ring if it else rng.choice(PAIRS) for it in rings] for _ in "uv"]
    formulas = [formula(rng, 3) for _ in "uv"]
    with contextlib.suppress(TetrisError):
        return equations_problem(
            state,
            ["u", "v"],
            dict(zip("uv", formulas, strict=True)),
            constants={"k": 0.5, "D": "0.1 + x*k"},
            grid=Grid(shape, (0.5, 0.25, 0.5)[:ndim], (0.25, 0.125, 0.25)[:ndim]),
            boundaries={name: Boundary(tuple(it)) for name, it in zip("uv", sides, strict=True)},
            dt=1e-4,
            steps=5,
            scheme=rng.choice(["euler", "euler", "rk2", "rk4"]),
            accuracy=rng.choice([2, 2, 4]),
            advection="upwind",
        )
    return None


def advanced(method: Method, problem: Problem, parameters: Parameters, steps: int) -> Field:
    gpu = HostGpu()
    stepper: Any = method.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    stepper.load(problem.initial)
    stepper.advance(steps)
    found: Field = stepper.interior()
    stepper.close()
    if method is METHOD and steps > 1:
        assert f"equations_{problem.grid.ndim}d" in gpu.launches
    return found


def small_tile(problem: Problem) -> Parameters | None:
    """A tile with few steps for a small grid; None if a step reaches too far."""
    ndim, (*_, radius) = problem.grid.ndim, problem.stencil.radii
    if max(problem.stencil.radii) > 4:
        return None
    if ndim == 1:
        return {"steps_per_block": 2, "columns": max(4, 2 * radius), "blocks": 2}
    if ndim == 2:
        rows = max(2, 2 * problem.stencil.radii[0])
        tile = {"steps_per_block": 1, "rows": rows, "columns": max(4, radius)}
        return {**tile, "warps": 2, "blocks": 1, "edges": 2}
    tile = {"steps_per_block": 1, "rows": 3, "across": 1, "warps": 5}
    return {**tile, "ahead": 1, "blocks": 1, "held": 1}


def check(seed: int, ndim: int) -> bool:
    """Whether a seed makes a problem that the kernel takes; it has the bits then."""
    rng = random.Random(seed)
    problem = build(rng, ndim)
    if problem is None or METHOD.refusal(problem) is not None:
        return False
    tile = small_tile(problem)
    with contextlib.suppress(ValueError):
        if tile is None or len(METHOD.passes(problem, Slab.whole(problem.grid), tile)) == 1:
            return False
        steps = 2 * tile["steps_per_block"] + 1
        found = advanced(METHOD, problem, tile, steps)
        expected = advanced(GpuPlainMethod(), problem, {}, steps)
        np.testing.assert_array_equal(found, expected, f"seed {seed} in {ndim}D")
        return True
    return False


@pytest.mark.parametrize(("ndim", "seeds"), [(1, range(8)), (2, range(8)), (3, range(8))])
def test_streamed_formulas_have_the_bits_of_single_steps(ndim: int, seeds: range) -> None:
    assert any(check(seed, ndim) for seed in seeds)


def main(n: int, first: int = 0) -> None:
    """Try many; each compiles two kernels."""
    counts = dict.fromkeys(SHAPES, 0)
    for seed in range(first, first + n):
        ndim = 1 + seed % 3
        counts[ndim] += check(seed, ndim)
        if seed % 50 == 49:
            sys.stdout.write(f"{seed + 1 - first} tried, computed {counts}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
