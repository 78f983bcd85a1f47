"""gpu.stream for bodies of a few materials in 3D: tiles of `kernel_3d.py`, ids as words beside them
(`palette_3d.cu`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, Stream
from tetris_sim.gpu_kernels.stream.palette import PaletteKind
from tetris_sim.gpu_kernels.stream.words import WordsKernel

_ITEM = 8  # bytes of a number: float64
_COLUMNS = 2  # of a thread: a word of 16 bytes
_WIDTH = 32 * _COLUMNS
_SECTOR = 4  # numbers of the smallest piece of memory that moves
_MOST_SHARED = 227 * 1024
_MOST_ROWS, _MOST_STEPS = 6, 3


@dataclass(frozen=True)
class PaletteTile3D:
    """A tile of one block of threads; the parameters of the kernel.

    Attributes:
        steps_per_block: steps of a launch.
        rows: of a thread.
        warps: of a block, below each other.
        blocks: that share a multiprocessor.
        ahead: planes on their way from memory.
        copies: of tables of conductances, 16 so that lookups have no bank conflicts; or 1.
    """

    steps_per_block: int
    rows: int
    warps: int
    blocks: int
    ahead: int
    copies: int

    @property
    def margin(self) -> tuple[int, int]:
        """Points of a tile before those that it writes, along y and x."""
        return self.steps_per_block, -(-self.steps_per_block // _COLUMNS) * _COLUMNS

    @property
    def written(self) -> tuple[int, int]:
        """Points that a tile writes along y and x, along x whole sectors."""
        x = (_WIDTH - self.margin[1] - self.steps_per_block) // _SECTOR * _SECTOR
        return self.warps * self.rows - 2 * self.steps_per_block, x

    def shared_bytes(self, kind: PaletteKind) -> int:
        """`struct Shared` of the kernel."""
        steps = self.steps_per_block
        state = (self.ahead + 2) * self.warps * self.rows * _WIDTH * _ITEM
        ends = max(1, 2 * (steps - 1)) * self.warps * 2 * _WIDTH * _ITEM
        words = (2 * steps + self.ahead) * 32 * self.warps * 16
        tables = (2 * max(1, self.copies // 2) + 2 * self.copies) * kind.pairs + (
            8 + (steps if kind.sources else 1)
        ) * kind.n_ids
        return state + ends + words + -(-tables // 2) * 2 * _ITEM

    def fits(self, kind: PaletteKind) -> bool:
        """Whether the kernel can be compiled with it, and a block finds room."""
        return (
            1 <= self.rows <= _MOST_ROWS
            and 1 <= self.steps_per_block <= _MOST_STEPS
            and min(self.written) > 0
            and self.shared_bytes(kind) <= _MOST_SHARED
        )


# On an H200 (1024 x 1024 x 1024, 8 materials, 2026-11-22, kernels alone) the first made 448, 386,
# 335, 153 GStencil/s with one id, 60 boxes, 200 Voronoi cells, a random id per point, the second
# 412, 377, 321, 254.
_TILES = (
    (3, 5, 8, 1, 3, 1),
    (3, 5, 8, 1, 3, 16),
    (2, 5, 8, 1, 3, 1),
    (2, 3, 8, 1, 2, 1),
)


def palette_3d_parameters(kind: PaletteKind, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first (the keys are those of `PaletteTile3D`)."""
    if np.dtype(dtype) != np.float64:
        return ()
    tiles = (PaletteTile3D(*numbers) for numbers in _TILES)
    return tuple(asdict(tile) for tile in tiles if tile.fits(kind))


def palette_3d_kernel(
    kind: PaletteKind, numbers: npt.NDArray[Any], parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel for a palette, `palette_numbers`, with certain parameters (`PaletteTile3D`).

    Raises:
        ValueError: the tile does not fit.
    """
    tile = PaletteTile3D(**parameters)
    if not tile.fits(kind):
        msg = f"{kind} does not fit into {tile}"
        raise ValueError(msg)

    steps = tile.steps_per_block
    return FusedKernel(
        source="palette_3d.cu",
        entry="palette_3d",
        defines={
            **kind.defines(),
            "TS_REAL": "double",
            "TS_STEPS": steps,
            "TS_ROWS": tile.rows,
            "TS_WARPS": tile.warps,
            "TS_AHEAD": tile.ahead,
            "TS_BLOCKS": tile.blocks,
            "TS_COPIES": tile.copies,
        },
        depth=steps,
        tile=(1, *tile.written),
        threads=32 * tile.warps,
        shared_bytes=tile.shared_bytes(kind),
        weights=numbers,
        stream=Stream(axis=0, repeated=3 * steps - 1, unit=1),
        by_pointer=True,
        line=_SECTOR * _ITEM,
        spare=1,
    )


def palette_3d_words(parameters: Mapping[str, int]) -> WordsKernel:
    """How the words of such a kernel are made."""
    tile = PaletteTile3D(**parameters)
    return WordsKernel(
        ndim=3,
        depth=tile.steps_per_block,
        rows=tile.rows,
        columns=_COLUMNS,
        warps=tile.warps,
        written=tile.written,
        margin=tile.margin,
        run=0,
    )
