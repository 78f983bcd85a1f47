"""Ghosts: the points beyond faces, filled before a step or before a block of steps that needs them
(`ghosts.cu`, for rules `ruled_ghosts.cu`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tetris_sim.gpu_kernels.common.body import body_defines
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.given import equations_of
from tetris_sim.gpu_kernels.common.layout import Box3, boxes_argument, to_device
from tetris_sim.gpu_kernels.common.terms import STORED
from tetris_sim.gpu_kernels.faces.boxes import (
    frame_of,
    grown_by,
    owned_and,
    tiles_of,
    with_ghosts,
)
from tetris_sim.gpu_kernels.faces.domain import domain_argument, domain_of_name, reach_of_names
from tetris_sim.gpu_kernels.faces.extents import Extent
from tetris_sim.mirrors import Sides, free_sides
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

_THREADS = 256
_TILE_POINTS = 2048  # of one block of threads


class Ghosts:
    """Ghosts beyond some sides of a slab, for so many steps at once."""

    def __init__(
        self, problem: Problem, slab: Slab, device: GpuDevice, sides: Sides, depth: int
    ) -> None:
        self._tiles = _tiles_of_steps(problem, slab, device, sides, depth)
        self._function = device.function("ghosts.cu", "ghosts", ghosts_defines(problem, depth))
        self._domain = to_device(device, domain_argument(problem, slab, depth))

    def fill(self, fields: list[Any], memory: Any, extent: Extent) -> None:
        """Write them around the points of an extent, in every field."""
        tiles, count = self.prepare(extent)
        if count:
            for field in fields:
                self._function(
                    (count, 1, 1), (_THREADS, 1, 1), (field, memory, tiles, self._domain)
                )

    def prepare(self, extent: Extent) -> tuple[Any, int]:
        """(the boxes that blocks of threads write, on the GPU; how many there are)."""
        return self._tiles.around(extent)


class NameGhosts:
    """Ghosts of one name of the equations, which a step reads beside its points."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, name: str) -> None:
        equations = equations_of(problem)
        needs, widths, radii = equations.needs(name), equations.ghosts[name], equations.radii

        def boxes(extent: Extent) -> tuple[Box3, Box3]:
            later = extent.later
            around = [more + later * radius for more, radius in zip(needs, radii, strict=True)]
            inside = owned_and(slab, around)
            return inside, grown_by(inside, free_sides(slab), widths)

        self._tiles = _GhostTiles(device, boxes)
        self._function = device.function("ghosts.cu", "ghosts", name_ghosts_defines(problem))
        self._domain = to_device(device, domain_of_name(problem, slab, name))

    def fill(self, field: Any, memory: Any, later: int) -> None:
        """Write them around the points that are needed when `later` steps follow this one."""
        tiles, count = self.prepare(later)
        if count:
            arguments = (field, memory, tiles, self._domain)
            self._function((count, 1, 1), (_THREADS, 1, 1), arguments)

    def prepare(self, later: int) -> tuple[Any, int]:
        """As of `Ghosts`."""
        return self._tiles.around(Extent(later))


class RuledGhosts:
    """Ghosts that one step of conduction reads (`ruled_ghosts.cu`)."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice) -> None:
        self._tiles = _tiles_of_steps(problem, slab, device, free_sides(slab), 1)
        self._function = device.function("ruled_ghosts.cu", "ruled_ghosts", body_defines(problem))

    def fill(self, field: Any, memory: Any, extent: Extent, numbers: tuple[Any, ...]) -> None:
        """Write them around the points of an extent.

        Args:
            field: begins with its first owned point.
            memory: where its points lie.
            extent: what the step reads.
            numbers: `struct Body`, and the row of the step.
        """
        tiles, count = self.prepare(extent)
        if count:
            arguments = (field, memory, tiles, *numbers)
            self._function((count, 1, 1), (_THREADS, 1, 1), arguments)

    def prepare(self, extent: Extent) -> tuple[Any, int]:
        """As of `Ghosts`."""
        return self._tiles.around(extent)


class _GhostTiles:
    """The boxes that blocks of threads write."""

    def __init__(self, device: GpuDevice, boxes: Callable[[Extent], tuple[Box3, Box3]]) -> None:
        """Know what (without, with) ghosts an extent is."""
        self._device, self._boxes = device, boxes
        self._tiles: dict[tuple[Box3, Box3], tuple[Any, int]] = {}

    def around(self, extent: Extent) -> tuple[Any, int]:
        """(boxes around the points of an extent, on the GPU; how many there are)."""
        inside, outside = between = self._boxes(extent)
        if between not in self._tiles:
            boxes = tiles_between(inside, outside)
            self._tiles[between] = to_device(self._device, boxes_argument(boxes)), len(boxes)
        return self._tiles[between]


def _tiles_of_steps(
    problem: Problem, slab: Slab, device: GpuDevice, sides: Sides, depth: int
) -> _GhostTiles:
    """Of the ghosts of `depth` steps beyond some sides."""
    return _GhostTiles(device, lambda extent: _around(problem, slab, sides, depth, extent))


def _around(
    problem: Problem, slab: Slab, sides: Sides, depth: int, extent: Extent
) -> tuple[Box3, Box3]:
    inside = extent.of(problem, slab)
    return inside, with_ghosts(problem, inside, extent.touched(sides), depth)


def ghosts_defines(problem: Problem, depth: int) -> dict[str, str | int]:
    """Parameters of ghosts.cu."""
    return {
        "TS_REAL": STORED[np.dtype(problem.dtype).name],
        "TS_REACH": max(1, depth * problem.stencil.radius),
    }


def name_ghosts_defines(problem: Problem) -> dict[str, str | int]:
    """The same for names of equations."""
    return {"TS_REAL": STORED[np.dtype(problem.dtype).name], "TS_REACH": reach_of_names(problem)}


def ghost_tiles(
    problem: Problem, slab: Slab, sides: Sides, depth: int, extent: Extent
) -> list[Box3]:
    """Boxes without overlap that make up the ghosts of `depth` steps beyond some sides."""
    return tiles_between(*_around(problem, slab, sides, depth, extent))


def tiles_between(inside: Box3, outside: Box3) -> list[Box3]:
    """Boxes without overlap, small enough for a block of threads, that one box has and the other
    has not.
    """
    tiles: list[Box3] = []
    for box in frame_of(outside, inside):
        x = min(box[2][1] - box[2][0], _THREADS)
        y = min(box[1][1] - box[1][0], max(1, _TILE_POINTS // x))
        tiles += tiles_of(box, (max(1, _TILE_POINTS // (x * y)), y, x))
    return tiles
