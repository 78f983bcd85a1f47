"""Small problems, awkward values and run states for the checkpoint tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import Boundary, Dirichlet, Neumann, Periodic, Robin
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.stencil import Stencil
from tetris_sim.outputs.checkpoint import RunState, problem_digest, write_checkpoint

SHAPES = {1: (37,), 2: (13, 29), 3: (7, 5, 11)}
_FACES = (
    (Robin(4.0, 0.5, 1.5), Dirichlet(1.5)),
    (Periodic(), Periodic()),
    (Neumann(3.0, 2.0), Dirichlet(-2.0)),
)


def make_problem(
    shape: tuple[int, ...] = SHAPES[2],
    *,
    dtype: Any = np.float64,
    n_fields: int = 1,
    steps: int = 1000,
) -> Problem:
    ndim = len(shape)
    offsets = [
        (0,) * ndim,
        *(tuple(s * (k == axis) for k in range(ndim)) for axis in range(ndim) for s in (-1, 1)),
    ]
    return Problem(
        grid=Grid(
            shape,
            tuple(0.1 / (axis + 3) for axis in range(ndim)),
            tuple(0.7 * axis - 0.3 for axis in range(ndim)),
        ),
        stencil=Stencil(tuple(offsets), tuple(1 / (3 + k) for k in range(len(offsets)))),
        boundary=Boundary(_FACES[:ndim]),
        initial=lambda slab: np.zeros((n_fields, *slab.shape), dtype=dtype),
        dt=0.1 / 3,
        steps=steps,
        dtype=np.dtype(dtype),
        variables=tuple(
            StateVariable(f"u{k}", "degC", f"temperature {k}", Total("heat", "J/m", 1.25 + k))
            for k in range(n_fields)
        ),
    )


def make_state(problem: Problem, step: int = 120, **changes: Any) -> RunState:
    values: dict[str, Any] = {
        "step": step,
        "dt": problem.dt,
        "steps": problem.steps,
        "run_id": "8f14e45f-ceea-467f-a0e6-0c1d2f3b4a59",
        "config": "title: Kupferplatte, 15 µm\n",
        "problem_digest": problem_digest(problem),
        "methods": {
            "time_block": 8,
            "workers": {"cpu:0": {"method": "cpu.plain", "parameters": {"tile": 4}}},
        },
        "created": "2026-02-03T04:05:06+0000",
        "versions": {"tetris_sim": "0.1.0", "numpy": "2.0.0"},
        "wall_time_s": 12.5,
        "outputs": {"probes/centre": {"records": 7}},
    }
    return RunState(**(values | changes))


def awkward_field(problem: Problem, seed: int = 0) -> Field:
    """Random values of every magnitude, with a negative zero, subnormal and extreme numbers among
    them.
    """
    rng = np.random.default_rng(seed)
    limits = np.finfo(problem.dtype)
    signs = rng.choice([-1.0, 1.0], problem.state_shape)
    decades = min(30.0, math.log10(limits.max) - 1)
    u = (signs * 10.0 ** rng.uniform(-decades, decades, problem.state_shape)).astype(problem.dtype)
    special = [
        -0.0,
        limits.smallest_subnormal,
        -limits.smallest_subnormal * 3,
        limits.max,
        limits.tiny,
    ]
    u.reshape(-1)[rng.permutation(u.size)[: len(special)]] = special
    return u


def bits(u: Field) -> npt.NDArray[Any]:
    """The values as whole numbers, which differ wherever a bit does."""
    return np.ascontiguousarray(u).view(f"u{u.dtype.itemsize}")


def reader(u: Field) -> Callable[[Box], Field]:
    return lambda box: u[(slice(None), *(slice(low, high) for low, high in box))]


def whole(problem: Problem) -> Box:
    return tuple((0, n) for n in problem.grid.shape)


def save(
    directory: Path, step: int, *, problem: Problem | None = None, keep: int = 100, **changes: Any
) -> Path:
    """A checkpoint whose values depend on the step."""
    problem = problem or make_problem()
    u = awkward_field(problem, seed=step)
    return write_checkpoint(
        directory, make_state(problem, step, **changes), problem, reader(u), keep=keep
    )
