"""Faces: what lies beyond the sides of a slab, and the ghosts of names as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.ghosts import COPY
from tetris_sim.cpu_kernels.equations.given import ghost_widths
from tetris_sim.cpu_kernels.equations.sides import MIRRORED, NOTHING, WRAP
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.equations import Equations
from tetris_sim.model.grid import OUTER
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Array = npt.NDArray[Any]


def beyond_sides(problem: Problem, slab: Slab) -> npt.NDArray[np.int64]:
    """What lies beyond each side, (3, 2) by padded axis and side; see `sides.py`."""
    beyond = np.full((3, 2), NOTHING, np.int64)
    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        for side, halo in enumerate(slab.halo[axis]):
            if not halo:
                beyond[padded, side] = WRAP if problem.boundary.periodic(axis) else MIRRORED
    return beyond


def field_of(equations: Equations, name: str) -> str:
    """The field whose new value a name is, or else the name itself."""
    return next((field for field, new in equations.results.items() if new == name), name)


def width_of(equations: Equations, name: str, ndim: int) -> tuple[int, int, int]:
    """Ghosts of a name per padded axis; a new value has those of its field too."""
    both = [ghost_widths(equations, it, ndim) for it in (name, field_of(equations, name))]
    return max(both[0][0], both[1][0]), max(both[0][1], both[1][1]), max(both[0][2], both[1][2])


def reflections(problem: Problem, equations: Equations, name: str) -> Array:
    """(a, b) of the ghosts of a name, (3, 2, most ghosts, 2) by padded axis, side and number."""
    widths = width_of(equations, name, problem.grid.ndim)
    every = [width_of(equations, it, problem.grid.ndim) for it in equations.ghosts]
    faces = np.zeros(
        (3, 2, max(1, *(max(it) for it in every or [(0, 0, 0)])), 2), problem.arithmetic
    )
    field = field_of(equations, name)
    boundary = equations.boundaries.get(field if field in equations.ghosts else name)

    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        if boundary is None or not widths[padded]:
            continue
        for side, where in enumerate(SIDES):
            pairs: Any = [COPY] * widths[padded]
            if not boundary.periodic(axis):
                pairs = boundary.reflections(
                    axis, where, spacing=problem.grid.spacing[axis], width=widths[padded]
                )
            faces[padded, side, : widths[padded]] = pairs
    return faces
