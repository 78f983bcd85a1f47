"""Boundary strips: the points near faces that a fused kernel leaves out, advanced by as many steps
in shared memory.

`frame.cu` does it for stencils, `frame_conduction.cu` for bodies, `frame_equations.cu` for
equations and `frame_line.cu` for a homogeneous 1D body. See decision 0011.
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
