"""Ids of materials as words in the order in which kernels of palettes read them
(`palette_words.cu`): written on the GPU, once per run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.gpu_kernels.common.layout import Box3, memory_argument

_LANES = 32


@dataclass(frozen=True)
class Prepared:
    """Arrays on the device.

    Attributes:
        words: ids of each lane, (strip, row, lane) or (tile, plane, thread, 4).
        uniform: of each (strip, row) or (tile, plane, warp), its one id or 255.
        runs: 2D: the same for the rows that a patch reads from there on; 3D: `uniform`.
    """

    words: Any
    uniform: Any
    runs: Any


@dataclass(frozen=True)
class WordsLaunch:
    """A launch of a kernel of `palette_words.cu`."""

    entry: str
    grid: tuple[int, int, int]
    threads: int
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class WordsKernel:
    """How words are made for a kernel that streams.

    Attributes:
        ndim: 2 for strips streamed along y, 3 for tiles streamed along z.
        depth: steps of a launch.
        rows: of a warp's patch.
        columns: of a lane's.
        warps: of a block.
        written: points that a block writes along y (3D) and x.
        margin: points of a tile before these.
        run: rows that a patch reads (2D).
    """

    ndim: int
    depth: int
    rows: int
    columns: int
    warps: int
    written: tuple[int, int]
    margin: tuple[int, int]
    run: int

    source = "palette_words.cu"

    @property
    def defines(self) -> dict[str, str | int]:
        """Its parameters; the type of numbers means nothing."""
        return {
            "TS_REAL": "double",
            "TS_COLUMNS": self.columns,
            "TS_ROWS": self.rows,
            "TS_WARPS": self.warps,
        }

    @property
    def threads(self) -> int:
        """Of a block."""
        return _LANES * self.warps

    def needed(self, box: Box3) -> Box3:
        """The ids with which no word depends on where the grid is cut, for a box that is written:
        patches reach beyond what a step does.
        """
        by = (self.depth + 2 if self.ndim == 3 else 0, self.depth + self.rows + 2, self.depth + 1)
        z, y, x = ((low - n, high + n) for (low, high), n in zip(box, by, strict=True))
        return z, y, x

    def span(self, box: Box3) -> tuple[int, int]:
        """(first row or plane that has words, number of them)."""
        low, high = self.needed(box)[3 - self.ndim]
        return low, high - low

    def strips(self, box: Box3) -> int:
        """Strips of a box, or tiles."""
        across = (1, 2) if self.ndim == 3 else (2,)
        n = 1
        for axis in across:
            low, high = box[axis]
            n *= -(-(high - low) // self.written[axis - 1])
        return n

    def arrays(self, box: Box3, zeros: Callable[[int, Any], Any]) -> Prepared:
        """Memory for them, by `zeros(n, dtype)`."""
        n = self.strips(box) * self.span(box)[1]
        if self.ndim == 3:
            uniform = zeros(n * self.warps, np.uint8)
            return Prepared(zeros(n * self.threads * 4, np.uint32), uniform, uniform)
        return Prepared(zeros(n * _LANES, np.uint32), zeros(n, np.uint8), zeros(n, np.uint8))

    def launches(self, ids: Any, around: Box3, to: Prepared, box: Box3) -> Iterator[WordsLaunch]:
        """What fills them, one after the other.

        Args:
            ids: one byte per point of a box, contiguous; beyond it the nearest is taken.
            around: that box, `needed` or what there is of it.
            to: `arrays`.
            box: what launches of the kernel will write, at most; in 3D it begins along y where a
                tile does.
        """
        shape = [high - low for low, high in around]
        memory = memory_argument(
            shape[1] * shape[2], shape[2], ((0, shape[0]), (0, shape[1]), (0, shape[2]))
        )
        first, count = self.span(box)
        low = first - around[3 - self.ndim][0]
        y, x = (box[axis][0] - self.margin[axis - 1] - around[axis][0] for axis in (1, 2))
        if self.ndim == 3:
            tiles_x = -(-(box[2][1] - box[2][0]) // self.written[1])
            tiles = (y, x, *self.written, tiles_x, low, count)
            yield WordsLaunch(
                "words_3d",
                (self.strips(box), count, 1),
                self.threads,
                (ids, memory, to.words, to.uniform, *map(np.int32, tiles)),
            )
            return

        strips = self.strips(box)
        numbers = (x, self.written[1], low, count)
        yield WordsLaunch(
            "words_2d",
            (-(-count // self.warps), strips, 1),
            self.threads,
            (ids, memory, to.words, to.uniform, *map(np.int32, numbers)),
        )
        yield WordsLaunch(
            "runs_2d",
            (-(-count // self.threads), strips, 1),
            self.threads,
            (to.uniform, to.runs, np.int32(self.run), np.int32(count)),
        )

    def n_bytes(self, box: Box3) -> int:
        """What the arrays take."""
        return sum(
            np.dtype(dtype).itemsize * n
            for n, dtype in _sizes(self.arrays(box, lambda n, dtype: (n, dtype)))
        )


def _sizes(made: Prepared) -> set[tuple[int, Any]]:
    return {made.words, made.uniform, made.runs}
