"""Planes: grids of two axes as the planes of one of three, along whose first axis nothing is read.

Methods advance them together, every point by the same chain as alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil


def stacked(stencil: Stencil) -> Stencil:
    """The same at every plane of one more axis.

    >>> stacked(Stencil(((-1,), (1,)), (0.25, 0.75)))
    Stencil(offsets=((0, -1), (0, 1)), weights=(0.25, 0.75))
    """
    return Stencil(tuple((0, *offset) for offset in stencil.offsets), stencil.weights)


def in_planes(stencil: Stencil) -> Stencil:
    """The same within one plane.

    >>> in_planes(Stencil(((0, -1), (0, 1)), (0.25, 0.75)))
    Stencil(offsets=((-1,), (1,)), weights=(0.25, 0.75))

    Raises:
        ValueError: it reads other planes.
    """
    if stencil.radii[0] != 0:
        msg = f"the stencil reads {stencil.radii[0]} planes far"
        raise ValueError(msg)
    return Stencil(tuple(offset[1:] for offset in stencil.offsets), stencil.weights)


def why_not_planes(problems: Sequence[Problem]) -> str | None:
    """Why problems cannot be the planes of one, as a sentence; None if they can.

    They differ in their initial field only, and a step is one stencil on a grid of two axes.
    """
    first = problems[0]
    if (why_not := first.why_not_one_stencil) is not None:
        return why_not
    if first.grid.ndim != 2:
        return f"the grids have {first.grid.ndim} axes, and planes have two"
    if first.grid.edges:
        return "cells along an axis differ in width"
    if first.view is not None:
        return "what is written down is not the state itself"

    for name in ("grid", "stencil", "boundary", "dt", "steps", "dtype", "variables", "start"):
        if any(getattr(problem, name) != getattr(first, name) for problem in problems[1:]):
            return f"they differ in more than their initial fields: {name}"
    return None


def together(problems: Sequence[Problem]) -> Problem:
    """One problem whose plane k is the whole grid of problem k.

    Raises:
        ValueError: as of `why_not_planes`.
    """
    if (why_not := why_not_planes(problems)) is not None:
        raise ValueError(why_not)
    first = problems[0]
    grid = first.grid

    def initial(slab: Slab) -> Field:
        part = Slab.box(slab.spans[1:])
        members = problems[slab.start[0] : slab.stop[0]]
        return np.stack([problem.initial(part) for problem in members], axis=1)

    return replace(
        first,
        grid=Grid((len(problems), *grid.shape), (1.0, *grid.spacing), (0.0, *grid.origin)),
        stencil=stacked(first.stencil),
        # No stencil reads beyond the first and the last plane.
        boundary=Boundary(((Neumann(), Neumann()), *first.boundary.faces)),
        initial=initial,
    )
