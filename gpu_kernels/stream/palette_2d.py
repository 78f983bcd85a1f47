"""gpu.stream for bodies of a few materials in 2D: tiles of `kernel_2d.py`, ids as words beside them
(`palette_2d.cu`, `palette_2d_registers.cu`).

Two kernels. One looks at every level whether all that a warp reads is of one material, and takes
constant weights if it is: best where materials come in large pieces. The other keeps the
coefficients of its patch in registers: its rate depends on no geometry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.terms import REAL
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, Stream
from tetris_sim.gpu_kernels.stream.palette import PaletteKind
from tetris_sim.gpu_kernels.stream.tiles_2d import Tile
from tetris_sim.gpu_kernels.stream.words import WordsKernel

MOST_SHARED = 227 * 1024  # bytes that a block can have on sm_90
OF_SM = 228 * 1024  # that its blocks share, and 1 KB of each is the system's
_MOST_COLUMNS = 6  # of eight nibbles, two are those beside
_LANES = 32
_SECTOR_BYTES = 32  # the smallest piece of memory that moves
_WORD = 16


class Scheme(IntEnum):
    """Where the coefficients of a face come from."""

    BRANCH = 0
    REGISTERS = 1


@dataclass(frozen=True)
class PaletteTile:
    """A tile of one block of threads; the parameters of the kernels.

    Attributes:
        steps_per_block: levels that a tile is advanced.
        rows: rows of a warp's patch.
        columns: columns of a lane's patch.
        warps: warps of a block, above each other.
        blocks: blocks that share a multiprocessor.
        edges: copies of the rows that warps hand on, 1 or 2.
        scheme: of `Scheme`.
        copies: of tables of conductances, one for each lane of a half warp, so that lookups have no
            bank conflicts; or 1.
        longest: rows that a block streams at most, 0 for any number: shorter chunks share work
            better that differs from place to place.
    """

    steps_per_block: int
    rows: int
    columns: int
    warps: int
    blocks: int
    edges: int
    scheme: int
    copies: int
    longest: int

    @property
    def tile(self) -> Tile:
        """What it has in common with tiles of one material."""
        return Tile(
            self.steps_per_block,
            self.rows,
            self.columns,
            self.warps,
            self.blocks,
            self.edges,
            interleaved=0,
        )

    def stream(self) -> Stream:
        """As a tile of one material; the first patches begin at whole multiples of their rows."""
        repeated = 2 * self.steps_per_block + self.rows - 1
        return Stream(axis=1, repeated=repeated, unit=self.tile.height(), longest=self.longest)

    def shared_bytes(self, kind: PaletteKind, item: int) -> int:
        """`struct Shared` of the kernels."""
        state = self.tile.shared_bytes(1, item)
        levels = self.steps_per_block if kind.sources else 1
        if self.scheme == Scheme.BRANCH:
            ring = 2 * self.tile.height() + self.steps_per_block + 2
            across = 2 * max(1, self.copies // 2)
            tables = (across + self.copies) * kind.pairs + (4 + levels) * kind.n_ids
            tables += kind.potentials
            # entries of two numbers stand in front of those of one
            return _up(state + ring * _LANES * 4, 2 * item) + _up(tables * item, 2 * item)
        words = 2 * self.warps * (self.steps_per_block + self.rows + 2) * _LANES * 4
        return _up(state + words + (2 * kind.pairs * self.copies + kind.n_ids) * item, _WORD)

    def fits(self, kind: PaletteKind, item: int) -> bool:
        """Whether the kernel can be compiled with it, and as many blocks as it wants find room."""
        shared = self.shared_bytes(kind, item)
        return (
            self.rows >= 2
            and 1 <= self.columns <= _MOST_COLUMNS
            and 1 <= self.steps_per_block <= _LANES
            and self.tile.written(1, item) > 0
            and shared <= MOST_SHARED
            and self.blocks * (shared + 1024) <= OF_SM
            and (
                self.scheme == Scheme.BRANCH
                or (self.steps_per_block % self.rows == 0 and not kind.sources and not kind.pieces)
            )
        )


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


# On an H200 (10240 x 10240, float64, 8 materials, 2026-11-22, kernels alone) the first made 1150,
# 1000, 820 GStencil/s with 60 rectangles, 200 Voronoi cells, 2000 discs; the fourth 780 with a
# random material per point, and with all others.
_TILES = (
    (12, 8, 6, 4, 2, 1, Scheme.BRANCH, 1, 330),
    (10, 8, 6, 4, 2, 1, Scheme.BRANCH, 1, 330),
    (12, 8, 6, 4, 2, 1, Scheme.BRANCH, 1, 0),
    (12, 6, 4, 4, 2, 1, Scheme.REGISTERS, 16, 820),
    (12, 6, 4, 4, 2, 1, Scheme.REGISTERS, 1, 820),
    (8, 6, 6, 4, 1, 1, Scheme.BRANCH, 1, 330),
)

# For heat contents: the first two for bodies of one material and of several, the last two for
# curves of many pieces.
_HEAT_TILES = (
    (12, 8, 6, 4, 2, 1, Scheme.BRANCH, 1, 660),
    (12, 8, 6, 4, 2, 1, Scheme.BRANCH, 1, 330),
    (12, 7, 6, 4, 2, 1, Scheme.BRANCH, 1, 330),
    (8, 6, 6, 4, 2, 1, Scheme.BRANCH, 1, 330),
    (8, 6, 6, 4, 1, 1, Scheme.BRANCH, 1, 330),
)


def palette_2d_parameters(kind: PaletteKind, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first (the keys are those of `PaletteTile`)."""
    item = np.dtype(dtype).itemsize
    tiles = (PaletteTile(*numbers) for numbers in (_HEAT_TILES if kind.pieces else _TILES))
    return tuple(
        {name: int(value) for name, value in asdict(tile).items()}
        for tile in tiles
        if tile.fits(kind, item)
    )


def palette_2d_kernel(
    kind: PaletteKind, numbers: npt.NDArray[Any], parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel for a palette, `palette_numbers`, with certain parameters (`PaletteTile`).

    Raises:
        ValueError: the tile does not fit.
    """
    tile, item = PaletteTile(**parameters), numbers.dtype.itemsize
    if not tile.fits(kind, item):
        msg = f"{kind} does not fit into {tile}"
        raise ValueError(msg)

    entry = "palette_2d" if tile.scheme == Scheme.BRANCH else "palette_2d_registers"
    return FusedKernel(
        source=f"{entry}.cu",
        entry=entry,
        defines={
            **kind.defines(),
            "TS_REAL": REAL[numbers.dtype.name],
            "TS_DEPTH": tile.steps_per_block,
            "TS_COLUMNS": tile.columns,
            "TS_ROWS": tile.rows,
            "TS_WARPS": tile.warps,
            "TS_BLOCKS": tile.blocks,
            "TS_EDGES": tile.edges,
            "TS_COPIES": tile.copies,
            "TS_WRITTEN": tile.tile.written(1, item),
            "TS_MARGIN": tile.tile.margin(1, item),
        },
        depth=tile.steps_per_block,
        tile=(1, tile.tile.height(), tile.tile.written(1, item)),
        threads=_LANES * tile.warps,
        shared_bytes=tile.shared_bytes(kind, item),
        weights=numbers,
        stream=tile.stream(),
        by_pointer=True,
        line=_SECTOR_BYTES,
    )


def palette_2d_words(parameters: Mapping[str, int], item: int) -> WordsKernel:
    """How the words of such a kernel are made, for numbers of so many bytes."""
    tile = PaletteTile(**parameters)
    return WordsKernel(
        ndim=2,
        depth=tile.steps_per_block,
        rows=tile.rows,
        columns=tile.columns,
        warps=tile.warps,
        written=(1, tile.tile.written(1, item)),
        margin=(0, tile.tile.margin(1, item)),
        run=tile.rows + 2,
    )
