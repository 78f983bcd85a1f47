"""BoundaryStrip: the points near faces that a fused kernel leaves, advanced by as many steps at
once (`frame.cu`, of a body `frame_conduction.cu`, by equations `frame_equations.cu`; of a line of
one material `frame_line.cu`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.gpu_kernels.boundary.domain import domain_argument, domain_of_name, reach_of_names
from tetris_sim.gpu_kernels.boundary.extents import (
    SHARED_BYTES,
    corners_of,
    frame_of,
    point_bytes,
    three_radii,
    tile_of_frame,
    tiles_of,
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
    Box3,
    boxes_argument,
    ends_of,
    term_defines,
    to_device,
)
from tetris_sim.model.grid import on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_THREADS = 256
_WARP = 32
_STATIC_BYTES = 4096  # of shared memory that kernels declare themselves, at most
# Points of a line in the registers of a lane, at most: each takes two.
_MOST_POINTS = 48


@dataclass(frozen=True)
class Tiles:
    """What one launch computes.

    Attributes:
        boxes: what blocks of threads write, on the GPU; None if there is nothing.
        count: number of boxes.
        capacity: points of a level in shared memory.
        in_registers: whether these are those of `frame_line.cu`.
    """

    boxes: Any
    count: int
    capacity: int
    in_registers: bool = False


def frame_defines(problem: Problem, depth: int) -> dict[str, str | int]:
    """Parameters of frame.cu, of frame_conduction.cu or of frame_equations.cu."""
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
    """Parameters of frame_line.cu; None where it cannot be used."""
    conduction, real = problem.conduction, np.dtype(problem.dtype)
    if conduction is None or problem.grid.ndim > 1 or not is_alike(conduction):
        return None
    # The face's side of a tile, a line of memory that is not cut, and what both depend on.
    points = -(-(2 * depth + LINE // real.itemsize) // _WARP)
    shuffled = real.name in ("float64", "float32")
    if conduction.source is not None or not shuffled or points > _MOST_POINTS:
        return None
    return {**body_defines(problem), "TS_DEPTH": depth, "TS_POINTS": points}


def _stages_defines(problem: Problem) -> dict[str, str | int]:
    equations = equations_of(problem)
    n_fields, results = len(equations.fields), [equations.results[it] for it in equations.fields]
    arrays = {name: 2 * n_fields + place for name, place in equations.work.items()}
    arrays |= {name: n_fields + k for k, name in enumerate(results)}
    arrays |= {name: k for k, name in enumerate(equations.fields)}

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
    """What an initialiser in C has between its braces."""
    text = ",".join("{" + _listed(it) + "}" if isinstance(it, tuple) else str(it) for it in values)
    return text or "{}"


class BoundaryStrip:
    """The compiled kernel and the faces it knows."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, depth: int) -> None:
        self._problem, self._slab, self._device, self._depth = problem, slab, device, depth
        name = "frame" if problem.conduction is None else "frame_conduction"
        name = name if problem.equations is None else "frame_equations"
        # The tiles of a line have multiprocessors of their own, which they get by asking for all
        # of the shared memory: beside blocks of a fused kernel they made no headway, since those
        # keep the unit for float64 busy (123 us instead of 31 for star-1d5p, H200, 2026-11-24).
        self._alone = problem.grid.ndim == 1
        self._most = device.shared_bytes - _STATIC_BYTES if self._alone else SHARED_BYTES
        most = self._most
        self._function = device.function(f"{name}.cu", name, frame_defines(problem, depth), most)
        self._line, self._points = None, 0
        if (defines := line_frame_defines(problem, depth)) is not None:
            self._line = device.function("frame_line.cu", "frame_line", defines, most)
            self._points = _WARP * int(defines["TS_POINTS"])
        self._domain = None
        if problem.equations is not None:
            names = [name for name, _ in first_readers(problem.equations)]
            domains = [domain_of_name(problem, slab, name) for name in names]
            self._domain = to_device(device, np.concatenate(domains))
        elif problem.conduction is None:  # else the body knows it
            self._domain = to_device(device, domain_argument(problem, slab))

    def tiles(self, outer: Box3, inner: Box3) -> Tiles:
        """The tiles that make up what `outer` has and `inner` has not."""
        return self._tiles(frame_of(outer, inner))

    def corners(self, inner: Box3, *, open_axis: int | None = None) -> Tiles:
        """Those at which faces contradict each other, of the points that a fused kernel writes."""
        boxes = corners_of(*(self._problem, self._slab, inner, self._depth), open_axis=open_axis)
        return self._tiles(boxes)

    def _tiles(self, parts: list[Box3]) -> Tiles:
        if parts and self._line is not None and all(map(self._fits_registers, parts)):
            return Tiles(to_device(self._device, boxes_argument(parts)), len(parts), 0, True)
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
        """Whether what a part of a line depends on does, and has one end of the line at most."""
        low, high = box[2][0] - self._depth, box[2][1] + self._depth
        first, last = map(int, ends_of(self._problem, self._slab)[:2, 2])
        both = low <= first and high >= last
        return not both and min(high, last) - max(low, first) <= self._points

    def launch(
        self, now: Any, then: Any, memory: Any, tiles: Tiles, numbers: tuple[Any, ...]
    ) -> None:
        """Advance one field.

        Args:
            now: begins with its first owned point.
            then: takes the new state.
            memory: where points lie.
            tiles: what is written.
            numbers: as of `State`.
        """
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
