"""Ghost filling: the points beyond faces, written before the step or block that needs them.

`ghosts.cu` serves stencils and equations, `ruled_ghosts.cu` the ruled faces of bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.boundary.domain import (
    FEW,
    THREADS,
    course_terms,
    domain_argument,
    domain_of_name,
    ghost_tiles,
    reach_of_names,
)
from tetris_sim.gpu_kernels.boundary.extents import (
    Extent,
    frame_of,
    grown_by,
    owned_and,
    tiles_of,
    with_ghosts,
)
from tetris_sim.gpu_kernels.common.body import body_defines
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.given import equations_of
from tetris_sim.gpu_kernels.common.layout import STORED, Box3, boxes_argument, ends_of, to_device
from tetris_sim.model.deep_ghosts import Sides, free_sides, is_image, nearly_mirrors
from tetris_sim.model.grid import LAST
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_RULED_POINTS = 1024  # per block of threads of ruled_ghosts.cu
ALL_AXES = -1  # are written by one launch

Boxes = Callable[[Extent], tuple[Box3, Box3]]  # an extent without and with ghosts
Tables = Callable[[Box3, Box3], npt.NDArray[np.int32]]  # of what blocks write between the two


class GhostFill:
    """Ghosts beyond the given sides of a slab, for `depth` steps at once.

    Attributes:
        deep: whether some ghosts are sums over the points between the face and their mirror point,
            which takes as long as several steps.
    """

    def __init__(
        self, problem: Problem, slab: Slab, device: GpuDevice, sides: Sides, depth: int
    ) -> None:
        # Launches that depend on each other; one unless two deep faces meet.
        self._stages = [
            _GhostTiles(device, boxes, told_tiles(problem, slab, only))
            for only, boxes in ghost_stages(problem, slab, sides, depth)
        ]
        self.deep = depth > 1 and any(deep_axes(problem, sides))
        self._function = device.function("ghosts.cu", "ghosts", ghosts_defines(problem, depth))
        self._domain = to_device(device, domain_argument(problem, slab, depth))

    def fill(
        self, fields: list[Any], memory: Any, extent: Extent, courses: tuple[Any, ...] = ()
    ) -> None:
        """Write the ghosts around the points of an extent, in every field. `courses` are the
        arguments of `BoundaryExpansions.argument` where faces depend on time.
        """
        for stage in self._stages:
            tiles, count = stage.around(extent)
            for field in fields if count else ():
                arguments = (field, memory, tiles, self._domain, *courses)
                self._function((count, 1, 1), (THREADS, 1, 1), arguments)

    def prepare(self, extent: Extent) -> None:
        """Bring the tiles of an extent to the GPU ahead of the launch."""
        for stage in self._stages:
            stage.around(extent)


class NameGhosts:
    """Ghosts of one name of the equations, which a step reads around its points."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, name: str) -> None:
        equations = equations_of(problem)
        needs, widths, radii = equations.needs(name), equations.ghosts[name], equations.radii

        def boxes(extent: Extent) -> tuple[Box3, Box3]:
            # Steps that follow need the stencil's radius more each.
            later = extent.later
            around = [more + later * radius for more, radius in zip(needs, radii, strict=True)]
            inside = owned_and(slab, around)
            return inside, grown_by(inside, free_sides(slab), widths)

        self._tiles = _GhostTiles(device, boxes, told_tiles(problem, slab, ALL_AXES))
        self._function = device.function("ghosts.cu", "ghosts", name_ghosts_defines(problem))
        self._domain = to_device(device, domain_of_name(problem, slab, name))

    def fill(self, field: Any, memory: Any, later: int) -> None:
        """Write the ghosts around the points that are needed when `later` steps follow this one."""
        tiles, count = self.prepare(later)
        if count:
            arguments = (field, memory, tiles, self._domain)
            self._function((count, 1, 1), (THREADS, 1, 1), arguments)

    def prepare(self, later: int) -> tuple[Any, int]:
        """Bring the tiles to the GPU: (tiles, their number)."""
        return self._tiles.around(Extent(later))


class RuledGhosts:
    """Ghosts that one step of conduction with ruled faces reads (`ruled_ghosts.cu`)."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice) -> None:
        # A step reads ghosts beyond every face of the slab.
        sides = free_sides(slab)
        self._tiles = _GhostTiles(
            device,
            lambda extent: _around(problem, slab, sides, 1, extent),
            lambda *between: boxes_argument(tiles_between(*between)),
        )
        self._function = device.function("ruled_ghosts.cu", "ruled_ghosts", body_defines(problem))

    def fill(self, field: Any, memory: Any, extent: Extent, numbers: tuple[Any, ...]) -> None:
        """Write the ghosts around the points of an extent.

        Args:
            field: the field, from its first owned point on.
            memory: `struct Memory`, where its points lie.
            extent: the points that the step reads.
            numbers: `struct Body`, and the row of the step.
        """
        tiles, count = self.prepare(extent)
        if count:
            arguments = (field, memory, tiles, *numbers)
            self._function((count, 1, 1), (THREADS, 1, 1), arguments)

    def prepare(self, extent: Extent) -> tuple[Any, int]:
        """Bring the tiles of an extent to the GPU: (tiles, their number)."""
        return self._tiles.around(extent)


class _GhostTiles:
    """The tiles that blocks of threads write, cached by box."""

    def __init__(self, device: GpuDevice, boxes: Boxes, tables: Tables) -> None:
        """Take `boxes`, which gives an extent without and with ghosts, and `tables`, which gives
        the kernel's argument for the points between the two.
        """
        self._device, self._boxes, self._tables = device, boxes, tables
        self._tiles: dict[tuple[Box3, Box3], tuple[Any, int]] = {}

    def around(self, extent: Extent) -> tuple[Any, int]:
        """The tiles around the points of an extent: (tiles on the GPU, their number)."""
        between = self._boxes(extent)
        if between not in self._tiles:
            # Few distinct boxes occur in a run, so each is worked out and uploaded once.
            tiles = self._tables(*between)
            self._tiles[between] = to_device(self._device, tiles), len(tiles)
        return self._tiles[between]


def told_tiles(problem: Problem, slab: Slab, only: int) -> Tables:
    """A function that makes the tiles of ghosts.cu between two boxes, for ghosts along one axis or
    all.
    """
    ends, itemsize = ends_of(problem, slab), np.dtype(problem.dtype).itemsize
    return lambda inside, outside: ghost_tiles(inside, outside, ends, only, itemsize)


def ghost_stages(
    problem: Problem, slab: Slab, sides: Sides, depth: int
) -> Iterator[tuple[int, Boxes]]:
    """The launches that write the ghosts of `depth` steps beyond `sides`, in order: (axis of three
    that they are ghosts along, or -1 for all; the boxes).

    There is one, unless faces that only nearly mirror meet: a ghost beyond both is a sum of sums,
    which needs the ghosts beyond the first face.
    """
    ndim = problem.grid.ndim
    # Ghosts of a single step are images of owned points and do not depend on each other.
    if depth == 1 or sum(deep_axes(problem, sides)) < 2:
        yield ALL_AXES, lambda extent: _around(problem, slab, sides, depth, extent)
        return

    def of_axis(axis: int) -> Boxes:
        # Each axis covers the ghosts of the axes before it as well.
        nothing = ((False, False),) * ndim
        before, upto = (sides[:n] + nothing[n:] for n in (axis, axis + 1))

        def boxes(extent: Extent) -> tuple[Box3, Box3]:
            (_, inside), (_, outside) = (
                _around(problem, slab, it, depth, extent) for it in (before, upto)
            )
            return inside, outside

        return boxes

    for axis in range(ndim):
        yield LAST[ndim][axis], of_axis(axis)


def deep_axes(problem: Problem, sides: Sides) -> list[bool]:
    """Whether ghosts of several steps along each axis are sums: those beyond faces that only nearly
    mirror.
    """
    return [
        any(
            lasts and nearly_mirrors(problem, axis, side) and not is_image(problem, axis, side)
            for side, lasts in enumerate(both)
        )
        for axis, both in enumerate(sides)
    ]


def _around(
    problem: Problem, slab: Slab, sides: Sides, depth: int, extent: Extent
) -> tuple[Box3, Box3]:
    # The points of an extent, without and with their ghosts.
    inside = extent.of(problem, slab)
    return inside, with_ghosts(problem, inside, extent.touched(sides), depth)


def ghosts_defines(problem: Problem, depth: int) -> dict[str, str | int]:
    """Macros of ghosts.cu."""
    return {
        "TS_REAL": STORED[np.dtype(problem.dtype).name],
        "TS_REACH": max(1, depth * problem.stencil.radius),
        "TS_COURSE": course_terms(problem, depth),
        "TS_FEW": FEW,
    }


def name_ghosts_defines(problem: Problem) -> dict[str, str | int]:
    """Macros of ghosts.cu for the names of equations."""
    real = STORED[np.dtype(problem.dtype).name]
    return {"TS_REAL": real, "TS_REACH": reach_of_names(problem), "TS_COURSE": 0, "TS_FEW": FEW}


def tiles_between(inside: Box3, outside: Box3) -> list[Box3]:
    """Disjoint boxes of the points of `outside` that `inside` lacks, small enough for a block of
    threads of ruled_ghosts.cu.
    """
    tiles: list[Box3] = []
    for box in frame_of(outside, inside):
        # Long along x for coalesced access, then along y, then z.
        x = min(box[2][1] - box[2][0], THREADS)
        y = min(box[1][1] - box[1][0], max(1, _RULED_POINTS // x))
        tiles += tiles_of(box, (max(1, _RULED_POINTS // (x * y)), y, x))
    return tiles
