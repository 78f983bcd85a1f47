"""Geometry: numeric description of a slab for the compiled time loops.

`axes` has a row per padded axis with the columns defined below. `links` names ghosts: along axes 0
and 1 the padded index of a ghost plane and of the plane it mirrors, along axis 2 the elements of a
row; `faces` has (a, b) for each, and the ghost takes a + b * source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import SIDES, Reflection
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Links = list[
    tuple[tuple[int, int], Reflection]
]  # ((ghost, source), (a, b)): the ghost takes a + b * source
COPY: Reflection = (-0.0, 1.0)  # adding -0.0 leaves every bit as it is
RULED: Reflection = (math.nan, math.nan)  # no two numbers, but what a program computes


def face_links(problem: Problem, axis: int, side: int, owned: tuple[int, int], width: int) -> Links:
    """The ghost planes beyond one side that has no neighbour.

    Args:
        problem: gives the face.
        axis: of the problem.
        side: 0 for low, 1 for high.
        owned: padded index of the first and of the last plane.
        width: how many ghosts a ring gets; a reflecting face gets as many as the radius.
    """
    first, last = owned
    n = last - first + 1

    # Around a ring narrower than the halo the source index wraps more than once, hence the modulus.
    if problem.boundary.periodic(axis):
        if side == 0:
            return [((first - 1 - j, last - j % n), COPY) for j in range(width)]
        return [((last + 1 + j, first + j % n), COPY) for j in range(width)]

    # Ghost j mirrors the j-th owned plane from the face; with conduction its value follows from the
    # program of a rule, for which `RULED` stands.
    radius = problem.stencil.radii[axis]
    pairs = (RULED,) * radius
    if problem.conduction is None:
        pairs = problem.boundary.reflections(
            axis, SIDES[side], spacing=problem.grid.spacing[axis], width=radius
        )
    if side == 0:
        return [((first - 1 - j, first + j), pair) for j, pair in enumerate(pairs)]
    return [((last + 1 + j, last - j), pair) for j, pair in enumerate(pairs)]


# Columns of the arrays that describe the memory layout of a slab to a compiled time loop.
#
# The host side reads them without compiling anything. `sweep.py` uses the first eight columns of
# `axes`, `tile_sweep.py` all of them.
#
# Of `axes`. FIRST, COUNT, PITCH: padded index of the first computed unit, their number, elements
# from one to the next. LINKS: number of rows of `links` that belong to the axis. SHRINK and GHOSTS:
# + side, planes of halo used up per step, planes of ghosts. REACH: radius of the stencil along the
# axis. SEAM: 1 if the axis is a ring, so that its two ends may be computed as one tile. RIM: units
# at either end that only that tile computes.
#
# Of `sides`, which has a row per side of a slab that has ghosts (`medium.py`). AXIS: padded axis.
# GHOST, MIRROR: padded index of the ghost plane and of the plane it follows from. KIND: number of
# its program, 0 for a copy. RULE: its row of `places`. CODES: where the code of padded index (0, 0,
# 0) would be in `codes`. CODE_PITCH: + axis, from code to code.

FIRST, COUNT, PITCH, LINKS, SHRINK, GHOSTS = 0, 1, 2, 3, 4, 6  # SHRINK and GHOSTS: + side
REACH, SEAM, RIM = 8, 9, 10
N_COLUMNS = 11
AXIS, GHOST, MIRROR, KIND, RULE, CODES, CODE_PITCH = 0, 1, 2, 3, 4, 5, 6  # CODE_PITCH: + axis
N_SIDE_COLUMNS = 9
RUN = 32  # points that lie one after the other and share an element of `alike`


@dataclass(frozen=True)
class Geometry:
    """The arrays `axes`, `links` and `faces` of `sweep.py` and `tile_sweep.py`."""

    axes: npt.NDArray[np.int64]
    links: npt.NDArray[np.int64]
    faces: npt.NDArray[Any]


class Padded(Protocol):
    """Common interface of layouts: three padded axes."""

    @property
    def axis_of(self) -> tuple[int, ...]:
        """For each axis of the problem, its number among the three."""

    @property
    def first(self) -> tuple[int, int, int]:
        """Padded index of the first computed unit, per padded axis."""

    @property
    def count(self) -> tuple[int, int, int]:
        """Computed units, per padded axis."""

    @property
    def margin(self) -> tuple[tuple[int, int], ...]:
        """Units around them, (low, high) per padded axis."""

    @property
    def pitch(self) -> tuple[int, int, int]:
        """Elements between neighbours, per padded axis."""


def geometry_of(layout: Padded, problem: Problem, slab: Slab, row_links: Links) -> Geometry:
    """The geometry of a layout whose ghosts within a row are known.

    Args:
        layout: the padded axes.
        problem: gives faces and radii.
        slab: tells which sides have a halo.
        row_links: of the last axis, in elements from the start of a row.
    """
    axes = np.zeros((3, N_COLUMNS), dtype=np.int64)
    # A ring is a whole periodic axis of this slab; an axis cut by the domain decomposition has
    # halos instead.
    axes[:, FIRST], axes[:, COUNT] = layout.first, layout.count
    axes[:, PITCH] = layout.pitch

    links_of: list[Links] = [[], [], row_links]  # per padded axis
    for axis, padded in enumerate(layout.axis_of):
        radius = problem.stencil.radii[axis]
        axes[padded, REACH] = radius
        axes[padded, SEAM] = problem.boundary.periodic(axis) and slab.halo[axis] == (0, 0)

        first, last = layout.first[padded], layout.first[padded] + layout.count[padded] - 1
        for side in (0, 1):
            # A halo shrinks by the radius with every step, because its outermost points lack
            # neighbours.
            if slab.halo[axis][side]:
                axes[padded, SHRINK + side] = radius
                continue
            links = face_links(problem, axis, side, (first, last), layout.margin[padded][side])
            axes[padded, GHOSTS + side] = len(links)
            # Links within a row depend on the layout and come from the caller.
            if padded < 2:
                links_of[padded] += links

    # All axes share one rectangular array; LINKS says how many rows of it are in use.
    most = max(1, *map(len, links_of))
    links_array = np.zeros((3, most, 2), dtype=np.int64)
    faces = np.zeros((3, most, 2), dtype=problem.arithmetic)
    for padded, planes in enumerate(links_of):
        axes[padded, LINKS] = len(planes)
        for k, (link, reflection) in enumerate(planes):
            links_array[padded, k], faces[padded, k] = link, reflection
    return Geometry(axes, links_array, faces)
