"""Frame: the points near faces that a fused kernel leaves, advanced by as many steps at once
(`frame.cu`, of a body `frame_conduction.cu`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.gpu_kernels.common.body import body_defines
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import Box3, boxes_argument, to_device
from tetris_sim.gpu_kernels.common.terms import term_defines
from tetris_sim.gpu_kernels.faces.boxes import (
    SHARED_BYTES,
    frame_of,
    point_bytes,
    three_radii,
    tile_of_frame,
    tiles_of,
)
from tetris_sim.gpu_kernels.faces.domain import domain_argument
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

_THREADS = 256


@dataclass(frozen=True)
class Tiles:
    """What one launch computes.

    Attributes:
        boxes: what blocks of threads write, on the GPU; None if there is nothing.
        count: number of boxes.
        capacity: points of a level in shared memory.
    """

    boxes: Any
    count: int
    capacity: int


def frame_defines(problem: Problem, depth: int) -> dict[str, str | int]:
    """Parameters of frame.cu, or of frame_conduction.cu."""
    if problem.conduction is not None:
        return {**body_defines(problem), "TS_DEPTH": depth}
    radii = three_radii(problem)
    return {
        **term_defines(problem),
        "TS_RADII": ",".join(map(str, radii)),
        "TS_REACH": max(1, *radii),
        "TS_DEPTH": depth,
    }


class Frame:
    """The compiled kernel and the faces it knows."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, depth: int) -> None:
        self._problem, self._slab, self._device, self._depth = problem, slab, device, depth
        name = "frame" if problem.conduction is None else "frame_conduction"
        self._function = device.function(
            f"{name}.cu", name, frame_defines(problem, depth), SHARED_BYTES
        )
        self._domain = (
            to_device(device, domain_argument(problem, slab))
            if problem.conduction is None
            else None  # the body knows it
        )

    def tiles(self, outer: Box3, inner: Box3) -> Tiles:
        """The tiles that make up what `outer` has and `inner` has not."""
        boxes: list[Box3] = []
        capacity = 0
        for box in frame_of(outer, inner):
            tile, level = tile_of_frame(self._problem, self._slab, box, self._depth)
            boxes += tiles_of(box, tile)
            capacity = max(capacity, level)
        if not boxes:
            return Tiles(None, 0, 0)
        return Tiles(to_device(self._device, boxes_argument(boxes)), len(boxes), capacity)

    def launch(
        self, now: Any, then: Any, memory: Any, tiles: Tiles, numbers: tuple[Any, ...]
    ) -> None:
        """Advance one field.

        Args:
            now: begins with its first owned point.
            then: takes the new state.
            memory: where points lie.
            tiles: what is written.
            numbers: the weights; of a body `struct Body` and the row of the first step.
        """
        capacity = np.int32(tiles.capacity)
        arguments: tuple[Any, ...]
        if self._problem.conduction is None:
            arguments = (now, then, memory, *numbers, tiles.boxes, self._domain, capacity)
        else:
            arguments = (now, then, memory, tiles.boxes, *numbers, capacity)
        shared = tiles.capacity * point_bytes(self._problem)
        self._function((tiles.count, 1, 1), (_THREADS, 1, 1), arguments, shared_mem=shared)
