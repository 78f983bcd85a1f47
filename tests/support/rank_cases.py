"""What tests of plans for ranks begin with: a computer, its link, a problem of any shape."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tests.support.cases import make_problem
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.facts.shares import Link
from tetris_sim.scheduler.machine.machine import Gpu, Machine

MACHINE = Machine(
    "alpha", "cpu", 4, "cores in the affinity mask", 8 << 30, "free memory", cores=(0, 1, 2, 3)
)
LINK = Link(5e-6, 1e-10)


def problem_of(shape: tuple[int, ...]) -> Problem:
    """A problem whose state is zero, and is never made as a whole."""
    ndim = len(shape)
    small, _ = make_problem(
        named_stencil(f"heat-{ndim}d").stencil,
        Boundary.everywhere(Neumann(), ndim),
        shape=(9,) * ndim,
    )
    grid = Grid(shape=shape, spacing=small.grid.spacing, origin=small.grid.origin)

    def initial(slab: Slab) -> Field:
        # A plan takes the range of trial values from some small boxes, whatever the grid.
        if math.prod(slab.shape) > 10_000:
            msg = f"a plan may look at small boxes of the state, not at one of {slab.shape}"
            raise AssertionError(msg)
        return np.zeros((1, *slab.shape))

    return dataclasses.replace(small, grid=grid, initial=initial, steps=1000)


def gpu(number: int) -> Gpu:
    return Gpu(
        number=number, name="H", architecture="sm_90", memory=80 << 30, cache=1 << 26, driver="13.0"
    )
