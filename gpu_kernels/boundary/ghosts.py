"""Faces of a slab on a GPU: ghost filling, and boundary strips.

Ghosts are the points beyond faces, written before the step or block that needs them: by `ghosts.cu`
for stencils and equations, by `ruled_ghosts.cu` for the ruled faces of bodies. Boundary strips are
the points near faces that a fused kernel leaves out, advanced by as many steps in shared memory: by
`frame.cu` for stencils, `frame_conduction.cu` for bodies, `frame_equations.cu` for equations and
`frame_line.cu` for a homogeneous 1D body (decision 0011).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
    SHARED_BYTES,
    Extent,
    corners_of,
    frame_of,
    grown_by,
    owned_and,
    point_bytes,
    three_radii,
    tile_of_frame,
    tiles_of,
    with_ghosts,
)
from tetris_sim.gpu_kernels.common.body import body_defines, is_alike
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.given import (
    equations_of,
    first_readers,
    given_defines,
    names_of,
)
from tetris_sim.gpu_kernels.common.layout import (
    LINE,
    STORED,
    Box3,
    boxes_argument,
    ends_of,
    term_defines,
    to_device,
)
from tetris_sim.model.deep_ghosts import Sides, free_sides, is_image, nearly_mirrors
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_THREADS = 256
_WARP = 32
_STATIC_BYTES = 4096  # upper bound of the shared memory that kernels declare statically
# Upper bound of the points of a 1D tile per lane; each point takes two registers.
_MOST_POINTS = 48


@dataclass(frozen=True)
class Tiles:
    """The boxes that one launch computes.

    Attributes:
        boxes: one box per block of threads, on the GPU; None if there are none.
        count: number of boxes.
        capacity: points of a level in shared memory.
        in_registers: whether `frame_line.cu` computes them.
    """

    boxes: Any
    count: int
    capacity: int
    in_registers: bool = False


def frame_defines(problem: Problem, depth: int) -> dict[str, str | int]:
    """Macros of frame.cu, frame_conduction.cu or frame_equations.cu."""
    if problem.conduction is not None:
        return {**body_defines(problem), "TS_DEPTH": depth}
    if problem.equations is not None:
        return {**_stages_defines(problem), "TS_DEPTH": depth}
    radii = three_radii(problem)
    return {
        **term_defines(problem),
        "TS_RADII": ",".join(map(str, radii)),
        "TS_REACH": max(1, *radii),
        "TS_DEPTH": depth,
    }


def line_frame_defines(problem: Problem, depth: int) -> dict[str, str | int] | None:
    """Macros of frame_line.cu; None where it cannot be used."""
    conduction, real = problem.conduction, np.dtype(problem.dtype)
    if conduction is None or problem.grid.ndim > 1 or not is_alike(conduction):
        return None
    # Per lane of a warp: a whole line of memory, which is not cut, and the points on either side
    # that it depends on.
    points = -(-(2 * depth + LINE // real.itemsize) // _WARP)
    shuffled = real.name in ("float64", "float32")
    if conduction.source is not None or not shuffled or points > _MOST_POINTS:
        return None
    return {**body_defines(problem), "TS_DEPTH": depth, "TS_POINTS": points}


def _stages_defines(problem: Problem) -> dict[str, str | int]:
    # Macros of frame_equations.cu: the arrays of each name, and where its ghosts are filled.
    equations = equations_of(problem)
    n_fields, results = len(equations.fields), [equations.results[it] for it in equations.fields]
    # Arrays in shared memory: the fields at the old step, at the new step, then the work arrays.
    arrays = {name: 2 * n_fields + place for name, place in equations.work.items()}
    arrays |= {name: n_fields + k for k, name in enumerate(results)}
    arrays |= {name: k for k, name in enumerate(equations.fields)}

    # Ghosts are filled right before the first stage that reads beyond a point.
    ghosts = []
    for name, stage in first_readers(equations):
        spans = (on_three(it, 0) for it in (equations.needs(name), equations.ghosts[name]))
        ghosts.append((stage, arrays[name], *spans))
    return {
        **given_defines(problem),
        "TS_RADII": _listed(three_radii(problem)),
        "TS_REACH": reach_of_names(problem),
        "TS_FIELDS": n_fields,
        "TS_N_STAGES": len(equations.stages),
        "TS_MARGINS": _listed(on_three(margin, 0) for margin in equations.margins),
        "TS_ARRAYS": _listed(arrays[name] for name in names_of(equations)),
        "TS_N_GHOSTS": len(ghosts),
        "TS_GHOSTS": _listed(ghosts),
    }


def _listed(values: Iterable[Any]) -> str:
    """The contents of a C initializer, without the outer braces."""
    text = ",".join("{" + _listed(it) + "}" if isinstance(it, tuple) else str(it) for it in values)
    return text or "{}"


class BoundaryStrip:
    """The compiled kernel of a boundary strip and the faces that it knows."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, depth: int) -> None:
        self._problem, self._slab, self._device, self._depth = problem, slab, device, depth
        name = "frame" if problem.conduction is None else "frame_conduction"
        name = name if problem.equations is None else "frame_equations"
        # In 1D the tiles claim a multiprocessor each by requesting all of its shared memory. Next
        # to blocks of a fused kernel they made little progress, since those keep the FP64 unit busy
        # (123 us instead of 31 for star-1d5p, H200, 2026-11-24).
        self._alone = problem.grid.ndim == 1
        self._most = device.shared_bytes - _STATIC_BYTES if self._alone else SHARED_BYTES
        most = self._most
        self._function = device.function(f"{name}.cu", name, frame_defines(problem, depth), most)
        self._line, self._points = None, 0
        if (defines := line_frame_defines(problem, depth)) is not None:
            self._line = device.function("frame_line.cu", "frame_line", defines, most)
            self._points = _WARP * int(defines["TS_POINTS"])

        # Ruled faces of a body come with `struct Body` instead.
        self._domain = None
        if problem.equations is not None:
            # Where nothing is read beside its point there are no ghosts, but an argument.
            names = [name for name, _ in first_readers(problem.equations)]
            names = names or [problem.equations.fields[0]]
            domains = [domain_of_name(problem, slab, name) for name in names]
            self._domain = to_device(device, np.concatenate(domains))
        elif problem.conduction is None:  # else the body knows it
            self._domain = to_device(device, domain_argument(problem, slab))

    def tiles(self, outer: Box3, inner: Box3) -> Tiles:
        """The tiles of the points of `outer` that `inner` lacks."""
        return self._tiles(frame_of(outer, inner))

    def corners(self, inner: Box3, *, open_axis: int | None = None) -> Tiles:
        """The tiles of the points at which faces contradict each other, among those that a fused
        kernel writes.
        """
        boxes = corners_of(*(self._problem, self._slab, inner, self._depth), open_axis=open_axis)
        return self._tiles(boxes)

    def _tiles(self, parts: list[Box3]) -> Tiles:
        # Cut boxes into tiles and bring them to the GPU.
        if parts and self._line is not None and all(map(self._fits_registers, parts)):
            return Tiles(to_device(self._device, boxes_argument(parts)), len(parts), 0, True)
        # One launch for all boxes: shared memory is sized for the largest tile.
        boxes: list[Box3] = []
        capacity = 0
        for box in parts:
            tile, level = tile_of_frame(self._problem, self._slab, box, self._depth)
            boxes += tiles_of(box, tile)
            capacity = max(capacity, level)
        if not boxes:
            return Tiles(None, 0, 0)
        return Tiles(to_device(self._device, boxes_argument(boxes)), len(boxes), capacity)

    def _fits_registers(self, box: Box3) -> bool:
        """Whether the points that a part of a 1D slab depends on fit into registers and contain at
        most one end of the domain.
        """
        low, high = box[2][0] - self._depth, box[2][1] + self._depth
        first, last = map(int, ends_of(self._problem, self._slab)[:2, 2])
        both = low <= first and high >= last
        return not both and min(high, last) - max(low, first) <= self._points

    def launch(
        self, now: Any, then: Any, memory: Any, tiles: Tiles, numbers: tuple[Any, ...]
    ) -> None:
        """Advance one field, or with equations all fields.

        Args:
            now: the state, from its first owned point on.
            then: receives the new state.
            memory: `struct Memory`, where points lie.
            tiles: the points that are written.
            numbers: `DeviceState.numbers()`.
        """
        # The order of arguments follows the kernels' signatures.
        capacity = np.int32(tiles.capacity)
        arguments: tuple[Any, ...]
        if self._problem.equations is not None:
            arguments = (now, then, memory, tiles.boxes, *numbers, self._domain, capacity)
        elif self._problem.conduction is None:
            arguments = (now, then, memory, *numbers, tiles.boxes, self._domain, capacity)
        else:
            arguments = (now, then, memory, tiles.boxes, *numbers, capacity)
        function, threads = self._function, _THREADS
        if tiles.in_registers:
            function, threads, arguments = self._line, _WARP, arguments[:-1]
        shared = tiles.capacity * point_bytes(self._problem)
        shared = self._most if self._alone else shared
        function((tiles.count, 1, 1), (threads, 1, 1), arguments, shared_mem=shared)


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
