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
        tile: points that one block of threads writes along each of the three axes.
        threads: per block.
        shared_bytes: dynamic shared memory per block.
        weights: numbers that the kernel gets by value, as `struct Weights { real w[n]; }`.
    """

    source: str
    entry: str
    defines: Mapping[str, str | int]
    depth: int
    tile: tuple[int, int, int]
    threads: int
    shared_bytes: int
    weights: npt.NDArray[Any] = field(repr=False)

    def grid(self, box: Box3) -> tuple[int, int, int]:
        """Blocks along x, y, z for a box."""
        z, y, x = (math.ceil((high - low) / tile) for (low, high), tile in zip(box, self.tile, strict=True))
        return x, y, z
