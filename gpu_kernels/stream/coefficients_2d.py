"""gpu.stream for 2D bodies whose faces have conductances of their own: tiles of `kernel_2d.py`,
arrays of coefficients beside them (`coefficients_2d.cu`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.layout import Box3
from tetris_sim.gpu_kernels.common.terms import REAL
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, Stream
from tetris_sim.gpu_kernels.stream.palette_2d import MOST_SHARED, OF_SM
from tetris_sim.gpu_kernels.stream.tiles_2d import Tile

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import State

_LANES = 32
_PIECE = 16  # bytes of memory that a lane reads at once
_SECTOR = 32  # bytes of the smallest piece of memory that moves


@dataclass(frozen=True)
class CoefficientTile:
    """A tile of one block of threads; the parameters of the kernel.

    Attributes:
        steps_per_block: levels that a tile is advanced, a multiple of its rows.
        rows: rows of a warp's patch.
        columns: columns of a lane's patch.
        warps: warps of a block, above each other.
        blocks: blocks that share a multiprocessor.
        edges: copies of the rows that warps hand on, 1 or 2.
        longest: rows that a block streams at most, 0 for any number.
    """

    steps_per_block: int
    rows: int
    columns: int
    warps: int
    blocks: int
    edges: int
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

    def shared_bytes(self, item: int) -> int:
        """`struct Shared` of the kernel."""
        handed_on = (self.warps - 1) * self.edges + self.steps_per_block + 2
        return (self.warps * self.rows + 5 * handed_on) * self.tile.width() * item

    def fits(self, item: int) -> bool:
        """Whether the kernel can be compiled with it, and as many blocks as it wants find room."""
        shared = self.shared_bytes(item)
        return (
            self.rows >= 3
            and self.steps_per_block % self.rows == 0
            and self.columns * item % _PIECE == 0
            and self.tile.margin(1, item) % self.columns == 0
            and self.tile.written(1, item) > 0
            and shared <= MOST_SHARED
            and self.blocks * (shared + 1024) <= OF_SM
        )


# For numbers of 8 bytes.
_TILES = (
    (10, 5, 4, 4, 2, 1, 820),
    (12, 4, 4, 4, 2, 1, 820),
    (12, 6, 4, 4, 2, 1, 820),
    (5, 5, 4, 4, 1, 1, 0),
)


def coefficients_2d_parameters(dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first (the keys are those of `CoefficientTile`)."""
    item = np.dtype(dtype).itemsize
    tiles = (
        CoefficientTile(steps, rows, columns * 8 // item, *others)
        for steps, rows, columns, *others in _TILES
    )
    return tuple(asdict(tile) for tile in tiles if tile.fits(item))


def coefficients_2d_kernel(dtype: npt.DTypeLike, parameters: Mapping[str, int]) -> FusedKernel:
    """The kernel with certain parameters (`CoefficientTile`).

    Raises:
        ValueError: the tile does not fit.
    """
    tile, kind = CoefficientTile(**parameters), np.dtype(dtype)
    if not tile.fits(kind.itemsize):
        msg = f"numbers of {kind.itemsize} bytes do not fit into {tile}"
        raise ValueError(msg)

    return FusedKernel(
        source="coefficients_2d.cu",
        entry="coefficients_2d",
        defines={
            "TS_REAL": REAL[kind.name],
            "TS_DEPTH": tile.steps_per_block,
            "TS_COLUMNS": tile.columns,
            "TS_ROWS": tile.rows,
            "TS_WARPS": tile.warps,
            "TS_BLOCKS": tile.blocks,
            "TS_EDGES": tile.edges,
            "TS_WRITTEN": tile.tile.written(1, kind.itemsize),
            "TS_MARGIN": tile.tile.margin(1, kind.itemsize),
        },
        depth=tile.steps_per_block,
        tile=(1, tile.tile.height(), tile.tile.written(1, kind.itemsize)),
        threads=_LANES * tile.warps,
        shared_bytes=tile.shared_bytes(kind.itemsize),
        weights=np.zeros(1, kind),
        stream=Stream(
            axis=1,
            repeated=2 * tile.steps_per_block,
            unit=tile.tile.height(),
            longest=tile.longest,
        ),
        line=_SECTOR,
        beside=_arrays,
    )


def _arrays(state: State, box: Box3) -> tuple[Any, ...]:
    """Conductances along x and y and rates, from the first owned point on."""
    assert state.body is not None
    arrays, first = state.body.coefficients, state.layout.origin
    return tuple(arrays[name][first:] for name in ("upper_x", "upper_y", "rate"))
