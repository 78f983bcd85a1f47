"""Geometry: what a compiled time loop must know of a slab, as arrays of numbers.

`axes` has a row per padded axis with the columns of `columns.py`. `links` names ghosts: along axes
0 and 1 the padded index of a ghost plane and of the plane it mirrors, along axis 2 the elements of
a row; `faces` has (a, b) for each, and the ghost takes a + b * source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common import columns
from tetris_sim.cpu_kernels.common.ghosts import Links, face_links
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab


@dataclass(frozen=True)
class Geometry:
    """The arrays `axes`, `links` and `faces` of `sweep.py` and `tile_sweep.py`."""

    axes: npt.NDArray[np.int64]
    links: npt.NDArray[np.int64]
    faces: npt.NDArray[Any]


class Padded(Protocol):
    """What layouts have in common: three padded axes."""

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
    axes = np.zeros((3, columns.N_COLUMNS), dtype=np.int64)
    axes[:, columns.FIRST], axes[:, columns.COUNT] = layout.first, layout.count
    axes[:, columns.PITCH] = layout.pitch

    links_of: list[Links] = [[], [], row_links]  # per padded axis
    for axis, padded in enumerate(layout.axis_of):
        radius = problem.stencil.radii[axis]
        axes[padded, columns.REACH] = radius
        axes[padded, columns.SEAM] = problem.boundary.periodic(axis) and slab.halo[axis] == (0, 0)

        first, last = layout.first[padded], layout.first[padded] + layout.count[padded] - 1
        for side in (0, 1):
            if slab.halo[axis][side]:
                axes[padded, columns.SHRINK + side] = radius
                continue
            links = face_links(problem, axis, side, (first, last), layout.margin[padded][side])
            axes[padded, columns.GHOSTS + side] = len(links)
            if padded < 2:
                links_of[padded] += links

    most = max(1, *map(len, links_of))
    links_array = np.zeros((3, most, 2), dtype=np.int64)
    faces = np.zeros((3, most, 2), dtype=problem.arithmetic)
    for padded, planes in enumerate(links_of):
        axes[padded, columns.LINKS] = len(planes)
        for k, (link, reflection) in enumerate(planes):
            links_array[padded, k], faces[padded, k] = link, reflection
    return Geometry(axes, links_array, faces)
