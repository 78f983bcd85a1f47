"""FusedKernel: a compiled way to make several steps at once on points that no face concerns.

What is nearer to a face than `depth` steps reach is advanced step by step (`frame.py`), so a fused kernel knows no
faces. It writes a box of points, and reads that box and `depth * radius` points around it along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from tetris_sim.gpu_kernels.layout import Box3


@dataclass(frozen=True)
class Stream:
    """How an axis is cut into chunks, one per block of threads, which streams through it.

    A chunk costs its points and some before them that only the first levels need, so few chunks repeat little; but the
    blocks should also fill the GPU a whole number of times. The kernel finds its chunk from the number of blocks along
    the axis: the points divided by it, rounded up so that with what is repeated a chunk is whole units.

    Attributes:
        axis: 0 for z, 1 for y.
        repeated: points that a block passes before its chunk counts.
        unit: points that it passes at a time.
    """

    axis: int
    repeated: int
    unit: int

    def chunk(self, n: int, count: int) -> int:
        """Points that one of `count` blocks along the axis writes, out of n."""
        return math.ceil((math.ceil(n / count) + self.repeated) / self.unit) * self.unit - self.repeated

    def count(self, n: int, others: int, slots: int) -> int:
        """Blocks along an axis of n points that take the shortest time.

        >>> Stream(axis=1, repeated=32, unit=80).count(10240, others=64, slots=132)
        2

        Args:
            n: points along the axis.
            others: blocks along the other axes, for each of these.
            slots: blocks that the GPU holds at a time; the next ones begin when those have ended.
        """
        best, found = math.inf, 1
        for count in range(1, math.ceil(n / self.unit) + 1):
            chunk = self.chunk(n, count)
            rounds = math.ceil(others * math.ceil(n / chunk) / slots)
            cost = rounds * (chunk + self.repeated)
            if cost < best:
                best, found = cost, math.ceil(n / chunk)
        return found


@dataclass(frozen=True)
class FusedKernel:
    """How to compile and launch it.

    The entry point takes `(const real* src, real* dst, Memory memory, Box box, Weights weights)` (`common.cuh`): it
    reads the state `src` and writes the one `depth` steps later to `dst`, in all of `box` and nowhere else. The box
    begins at a multiple of 128 bytes along x.

    Attributes:
        source: name of the file.
        entry: name of the `extern "C"` function.
        defines: parameters of the source.
        depth: steps per launch.
        tile: points that one block of threads writes along each of the three axes; along the one that it streams, any.
        threads: per block.
        shared_bytes: dynamic shared memory per block.
        weights: numbers that the kernel gets by value, as `struct Weights { real w[n]; }`.
        stream: how blocks share the axis along which they stream; None if each writes one tile.
    """

    source: str
    entry: str
    defines: Mapping[str, str | int]
    depth: int
    tile: tuple[int, int, int]
    threads: int
    shared_bytes: int
    weights: npt.NDArray[Any] = field(repr=False)
    stream: Stream | None = None

    def grid(self, box: Box3, slots: int) -> tuple[int, int, int]:
        """Blocks along x, y, z for a box, on a GPU that holds `slots` of them at a time."""
        counts = [math.ceil((high - low) / tile) for (low, high), tile in zip(box, self.tile, strict=True)]
        if self.stream is not None:
            axis = self.stream.axis
            counts[axis] = 1
            counts[axis] = self.stream.count(box[axis][1] - box[axis][0], math.prod(counts), slots)
        return counts[2], counts[1], counts[0]
