"""Slabs whose halos come late, and what then comes, for tests of blocks in two parts."""

from __future__ import annotations

import numpy as np

from tetris_sim.model.boundary import SIDES
from tetris_sim.model.method import Stepper
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab


def middle(problem: Problem, axis: int, sides: tuple[bool, bool], steps: int) -> Slab:
    """A slab with halos along an axis, as many planes as so many steps need."""
    width = steps * problem.stencil.radii[axis]
    low, high = (width * side for side in sides)
    start, stop = [0] * problem.grid.ndim, list(problem.grid.shape)
    halo = [(0, 0)] * problem.grid.ndim
    start[axis], stop[axis], halo[axis] = low, stop[axis] - high, (low, high)
    return Slab(tuple(start), tuple(stop), tuple(halo))


def set_halos(stepper: Stepper, state: Field, axis: int) -> None:
    """What the owner has, or NaN."""
    slab = stepper.slab
    for number, side in enumerate(SIDES):
        if slab.halo[axis][number]:
            box = slab.globally(slab.halo_ranges(axis, number))
            there = state[(slice(None), *(slice(*span) for span in box))]
            stepper.set_halo(axis, side, np.ascontiguousarray(there))
