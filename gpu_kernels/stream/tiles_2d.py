"""Tiles of gpu.stream in 2D: what a block of threads keeps in registers, and which of them are
worth trying for a stencil.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import Stream
from tetris_sim.model.problem import PAIR
from tetris_sim.model.stencil import Stencil

# bytes of memory that are moved together: the columns that a block writes begin and end with one
SECTOR = 32
_MOST_SHARED = 227 * 1024  # bytes that a block can have on sm_90


@dataclass(frozen=True)
class Tile:
    """A tile of one block of threads; the parameters of the kernel.

    Attributes:
        steps_per_block: levels that a tile is advanced.
        rows: rows of a warp's patch, held in registers.
        columns: columns of a lane's patch.
        warps: warps of a block, above each other.
        blocks: blocks that share a multiprocessor; bounds the registers of a thread.
        edges: copies of the rows that warps hand on: 2 need one barrier a level, 1 needs two and
            less memory.
        interleaved: when rows are stored and fetched: 0 between two tiles; 1 among the arithmetic
            of the first level, which takes registers; 2 by bulk copies during the levels; 3 so, and
            exchanged among the arithmetic of the last level. 2 and 3 are 0 where there are no bulk
            copies.
    """

    steps_per_block: int
    rows: int
    columns: int
    warps: int
    blocks: int
    edges: int
    interleaved: int

    def height(self) -> int:
        """Rows of a tile."""
        return self.warps * self.rows

    def width(self) -> int:
        """Columns of a tile."""
        return 32 * self.columns

    def margin(self, reach: int, item: int) -> int:
        """Columns of a tile before those that it writes: whole sectors, so that stores begin with
        one.
        """
        sector = SECTOR // item
        return math.ceil(self.steps_per_block * reach / sector) * sector

    def written(self, reach: int, item: int) -> int:
        """Columns that a tile writes, whole sectors."""
        sector = SECTOR // item
        return (
            (self.width() - self.margin(reach, item) - self.steps_per_block * reach)
            // sector
            * sector
        )

    def stream(self, reach: int, anchored: bool = False) -> Stream:
        """How blocks share the rows: those that only the first levels of a block's first tile need
        are repeated, and where patches are anchored those before them.
        """
        before = self.rows - 1 if anchored else 0
        return Stream(
            axis=1, repeated=2 * self.steps_per_block * reach + before, unit=self.height()
        )

    def shared_bytes(self, reach: int, item: int) -> int:
        """What the stages, the rows between warps and the rows between tiles take."""
        handed_on = (self.warps - 1) * self.edges + self.steps_per_block + 2
        arrivals = 8 * self.warps  # of bulk copies
        return (self.height() + handed_on * 2 * reach) * self.width() * item + arrivals

    def fits(self, radii: tuple[int, ...], item: int) -> bool:
        """Whether the kernel can be compiled with it and has something to write."""
        reach_y, reach_x = radii
        return (
            self.rows >= 2 * reach_y
            and self.columns >= reach_x
            and self.written(reach_x, item) > 0
            and self.shared_bytes(reach_y, item) <= _MOST_SHARED
        )


# Tiles by the radius of the stencil for 8-byte numbers: steps, rows, columns, warps, blocks, edges,
# interleaved. Those of radius 1 to 3 were the best on an H200 (November 2026); then come some that
# take less than 163 and 100 KB of shared memory. Stencils with few points want more steps, because
# memory bounds them sooner than arithmetic does.
_FEW_POINTS: Mapping[int, tuple[tuple[int, ...], ...]] = {
    1: (
        (16, 12, 6, 8, 1, 1, 3),
        (16, 12, 6, 8, 1, 1, 0),
        (16, 10, 6, 8, 1, 2, 0),
        (12, 8, 6, 8, 1, 1, 0),
        (8, 6, 6, 4, 1, 1, 0),
    ),
    2: (
        (8, 10, 6, 8, 1, 1, 3),
        (8, 10, 6, 8, 1, 1, 0),
        (6, 8, 5, 8, 1, 2, 0),
        (6, 6, 5, 4, 2, 2, 1),
        (4, 6, 5, 4, 1, 1, 0),
    ),
    3: (
        (5, 8, 6, 8, 1, 1, 2),
        (5, 8, 6, 8, 1, 1, 1),
        (4, 8, 6, 8, 1, 1, 0),
        (4, 6, 5, 4, 2, 1, 0),
        (2, 6, 5, 4, 1, 1, 0),
    ),
    4: ((2, 8, 5, 6, 1, 1, 0), (2, 8, 5, 4, 1, 1, 0), (1, 8, 4, 4, 1, 1, 0)),
    5: ((2, 10, 5, 4, 1, 1, 0), (1, 10, 5, 3, 1, 1, 0)),
    6: ((1, 12, 6, 4, 1, 1, 0), (1, 12, 6, 2, 1, 1, 0)),
}
_MANY_POINTS: Mapping[int, tuple[tuple[int, ...], ...]] = {
    **_FEW_POINTS,
    1: (
        (16, 10, 6, 8, 1, 2, 3),
        (16, 10, 6, 8, 1, 2, 0),
        (16, 12, 6, 8, 1, 1, 0),
        (12, 8, 6, 4, 2, 2, 0),
        (8, 6, 6, 4, 1, 1, 0),
    ),
    2: (
        (8, 8, 6, 8, 1, 1, 3),
        (8, 8, 6, 8, 1, 1, 0),
        (6, 7, 7, 8, 1, 1, 3),
        (6, 8, 5, 8, 1, 2, 1),
        (4, 6, 5, 4, 1, 1, 0),
    ),
    3: (
        (4, 6, 7, 8, 1, 1, 2),
        (4, 6, 7, 8, 1, 1, 0),
        (4, 8, 6, 8, 1, 1, 0),
        (3, 7, 5, 8, 1, 1, 1),
        (2, 6, 5, 4, 1, 1, 0),
    ),
}
# Boxes that mirror: warps that hand on sums hold those of two patches, which takes registers.
_MIRRORED: Mapping[int, tuple[tuple[int, ...], ...]] = {
    **_MANY_POINTS,
    1: (
        (16, 10, 6, 8, 1, 2, 0),
        (12, 8, 6, 8, 1, 1, 0),
        (12, 8, 6, 4, 2, 2, 0),
        (8, 6, 6, 4, 1, 1, 0),
    ),
    2: (
        (8, 10, 6, 8, 1, 1, 0),
        (8, 8, 6, 8, 1, 1, 0),
        (6, 6, 6, 8, 1, 1, 0),
        (4, 6, 5, 4, 1, 1, 0),
    ),
    3: ((4, 8, 6, 8, 1, 1, 3), (4, 7, 6, 8, 1, 1, 3), (4, 6, 7, 8, 1, 1, 2), (2, 6, 5, 4, 1, 1, 0)),
}
# Of pairs of floats, whose arithmetic takes eight times as many instructions and leaves memory
# idle. heat-2d at 8192^2 made 651, 643, 625, 630 GStencil/s with these and 569 with the best one of
# doubles (an H200, 2026-11-24); the second is for GPUs with less bandwidth.
_PAIRS: Mapping[int, tuple[tuple[int, ...], ...]] = {
    **{
        reach: tuple((*tile[:-1], int(tile[-1] == 1)) for tile in tiles)
        for reach, tiles in _FEW_POINTS.items()
    },
    1: (
        (8, 4, 6, 4, 3, 1, 0),
        (12, 6, 6, 4, 1, 1, 0),
        (8, 6, 4, 4, 3, 1, 0),
        (8, 6, 6, 4, 2, 2, 0),
    ),
}
# Of planes with few points a radius: two such tiles write 256 columns. 1,024 planes of 256^2 points
# make 1,439 G point-steps a second with it, 1,257 with the best one above (heat-2d, float64, an
# H200, 2026-11-23).
_PLANES = Tile(16, 12, 5, 8, 1, 1, 0)
_FEW = 8  # points per unit of radius; stars have half as many


def farthest() -> int:
    """How far a stencil may reach."""
    return max(_FEW_POINTS)


def stream_2d_parameters(stencil: Stencil, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first (the keys are those of `Tile`)."""
    item = np.dtype(dtype).itemsize
    tiles_of = _FEW_POINTS if stencil.n_points <= _FEW * stencil.radius else _MANY_POINTS
    if is_mirrored(stencil):
        tiles_of = _MIRRORED
    if np.dtype(dtype) == PAIR:
        tiles_of = _PAIRS
    tiles = [
        Tile(steps, rows, columns * 8 // item, *others)
        for steps, rows, columns, *others in tiles_of.get(max(1, stencil.radius), ())
    ]
    return tuple(asdict(tile) for tile in tiles if tile.fits(stencil.radii, item))


def stream_planes_parameters(
    stencil: Stencil, dtype: npt.DTypeLike
) -> tuple[Mapping[str, int], ...]:
    """The same for many small grids, each a plane."""
    proposals = stream_2d_parameters(stencil, dtype)
    small = stencil.radius == 1 and stencil.n_points <= _FEW and np.dtype(dtype) == np.float64
    return (asdict(_PLANES), *proposals) if small else proposals


def is_mirrored(stencil: Stencil) -> bool:
    """Whether the stencil is a full box whose weights do not change when it is mirrored left-right
    and up-down.
    """
    full = min(stencil.radii) > 0 and stencil.n_points == stencil.dense().size
    return full and stencil.is_mirrored(0) and stencil.is_mirrored(1)
