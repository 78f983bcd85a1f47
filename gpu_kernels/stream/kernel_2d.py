"""gpu.stream in 2D: tiles that stay in registers are streamed down the rows, several steps per
launch (`stream_2d.cu`).

The first part has the tiles, the second chooses how the kernel sums (`StreamScheme`) and makes its
weights. Levels are carried divided by the level-th power of one of the weights, so that the first
term of a point's sum needs no multiplication; stored values are multiplied by that power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.layout import REAL, stored_numbers, stored_weights
from tetris_sim.gpu_kernels.fused.kernel import MOST_SHARED, FusedKernel, StreamedAxis
from tetris_sim.gpu_kernels.stream.kernel_1d import scale_back
from tetris_sim.model.problem import PAIR
from tetris_sim.model.stencil import Stencil

# Tiles: what a block of threads keeps in registers, and which tiles are worth trying for a stencil.

# Bytes that memory moves together: the columns that a block writes begin and end with a whole
# sector.
SECTOR = 32


@dataclass(frozen=True)
class StreamTile:
    """The tile of one block of threads, which the kernel's parameters describe.

    Attributes:
        steps_per_block: levels by which a tile is advanced.
        rows: rows of a warp's patch, held in registers.
        columns: columns of a lane's patch.
        warps: warps of a block, above each other.
        blocks: blocks that share a multiprocessor; bounds the registers of a thread.
        edges: buffers for the rows that warps hand on: 2 need one barrier per level, 1 needs two
            and less memory.
        interleaved: when rows are stored and fetched: 0 between two tiles; 1 among the arithmetic
            of the first level, which takes registers; 2 by bulk copies during the levels; 3 like 2,
            and exchanged among the arithmetic of the last level. 2 and 3 mean 0 where there are no
            bulk copies.
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
        """Columns that a tile writes, in whole sectors."""
        sector = SECTOR // item
        return (
            (self.width() - self.margin(reach, item) - self.steps_per_block * reach)
            // sector
            * sector
        )

    def stream(self, reach: int, anchored: bool = False) -> StreamedAxis:
        """The division of the rows among blocks. Rows that only the first levels of a block's first
        tile need are repeated, and those before an anchored patch.
        """
        before = self.rows - 1 if anchored else 0
        return StreamedAxis(
            axis=1, repeated=2 * self.steps_per_block * reach + before, unit=self.height()
        )

    def shared_bytes(self, reach: int, item: int) -> int:
        """Shared memory for the stages and for the rows that pass between warps and between tiles
        [bytes].
        """
        # The history between tiles is a ring of steps + 2 levels, see stream_2d.cu.
        handed_on = (self.warps - 1) * self.edges + self.steps_per_block + 2
        arrivals = 8 * self.warps  # of bulk copies
        return (self.height() + handed_on * 2 * reach) * self.width() * item + arrivals

    def fits(self, radii: tuple[int, ...], item: int) -> bool:
        """Whether the kernel compiles with the tile and the tile has points to write."""
        # A patch must contain all rows and columns that the adjacent patch reads.
        reach_y, reach_x = radii
        return (
            self.rows >= 2 * reach_y
            and self.columns >= reach_x
            and self.written(reach_x, item) > 0
            and self.shared_bytes(reach_y, item) <= MOST_SHARED
        )


# Tiles by the radius of the stencil for 8-byte numbers: steps, rows, columns, warps, blocks, edges,
# interleaved. Those for radius 1 to 3 were the fastest on an H200 (November 2026); then follow some
# that need less than 163 and 100 KB of shared memory. Stencils with few points profit from more
# steps, since memory limits them before arithmetic does.
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
# Mirrored boxes: warps that hand on sums hold those of two patches, which takes registers.
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
# Pairs of floats: their arithmetic takes eight times as many instructions and leaves memory idle.
# heat-2d at 8192^2 made 651, 643, 625, 630 GStencil/s with these tiles and 569 with the best one
# for doubles (H200, 2026-11-24); the second is for GPUs with less bandwidth.
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
# Many small planes, radius 1: two such tiles write 256 columns. 1,024 planes of 256^2 points make
# 1,439 G point-steps a second with it, 1,257 with the best tile above (heat-2d, float64, H200,
# 2026-11-23).
_PLANES = StreamTile(16, 12, 5, 8, 1, 1, 0)
_FEW = 8  # points per unit of radius; stars have half as many


def farthest() -> int:
    """The largest radius of a stencil for which there are tiles."""
    return max(_FEW_POINTS)


def stream_2d_parameters(stencil: Stencil, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first; the keys are those of `StreamTile`."""
    item = np.dtype(dtype).itemsize
    tiles_of = _FEW_POINTS if stencil.n_points <= _FEW * stencil.radius else _MANY_POINTS
    if is_mirrored(stencil):
        tiles_of = _MIRRORED
    if np.dtype(dtype) == PAIR:
        tiles_of = _PAIRS
    tiles = [
        StreamTile(steps, rows, columns * 8 // item, *others)
        for steps, rows, columns, *others in tiles_of.get(max(1, stencil.radius), ())
    ]
    return tuple(asdict(tile) for tile in tiles if tile.fits(stencil.radii, item))


def stream_planes_parameters(
    stencil: Stencil, dtype: npt.DTypeLike
) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying for many small grids, each of which is a plane."""
    proposals = stream_2d_parameters(stencil, dtype)
    small = stencil.radius == 1 and stencil.n_points <= _FEW and np.dtype(dtype) == np.float64
    return (asdict(_PLANES), *proposals) if small else proposals


# With a sum to add, rows are stored by 16 bytes a thread, best among the arithmetic of a level: the
# first makes 1600 GStencil/s, the second 1050 (10240^2, float64, H100, 2026-11-27).
_SUMS = ((16, 8, 6, 4, 2, 1, 1), (16, 8, 6, 4, 2, 1, 0), (12, 8, 6, 4, 2, 1, 1))


def stream_2d_sums_parameters(
    stencil: Stencil, dtype: npt.DTypeLike
) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying where the sum of a source is added, of stencils of radius 1."""
    item = np.dtype(dtype).itemsize
    tiles = [
        StreamTile(steps, rows, columns * 8 // item, *others)
        for steps, rows, columns, *others in _SUMS
    ]
    return tuple(asdict(tile) for tile in tiles if tile.fits(stencil.radii, item))


def stream_2d_sums(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel that adds the sum of a source."""
    return stream_2d_kernel(stencil, dtype, parameters).summing()


def is_mirrored(stencil: Stencil) -> bool:
    """Whether the stencil is a full box whose weights are symmetric left-right and up-down."""
    full = min(stencil.radii) > 0 and stencil.n_points == stencil.dense().size
    return full and stencil.is_mirrored(0) and stencil.is_mirrored(1)


# Bound of the power of the weight by which levels are divided, and of its inverse.
_SAFE_POWER = {"float64": 1e100, "float32": 1e20, PAIR.name: 1e15}


class StreamScheme(IntEnum):
    """The order in which a point's sum is computed (`stream_2d_rows.cuh`)."""

    TAPS = 0
    MIRRORED = 1
    DIAMOND = 2


@dataclass(frozen=True)
class Arrangement:
    """The weights in the form that the kernel reads.

    Attributes:
        scheme: order of the sum.
        unit: whether levels are carried divided by the weight of the chain's first term, whose
            factor then is 1.
        weights: factors of the scheme; the last one multiplies stored values.
        counts: points of the stencil that share each of the others.
    """

    scheme: StreamScheme
    unit: bool
    weights: tuple[float, ...]
    counts: tuple[int, ...]

    def stored(self, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """The factors as numbers of the kernel's type."""
        if self.unit:
            return stored_numbers(self.weights, kind)
        weights = stored_weights(self.weights[:-1], kind, self.counts)
        return np.append(weights, stored_numbers(self.weights[-1:], kind))


_FAR_FOR_SUMS = 3  # largest radius for which warps hand on sums


def stream_2d_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernel refuses a stencil, as a sentence for the user; None if it does not."""
    if stencil.ndim != 2:
        return f"the stencil has {stencil.ndim} axes, and this kernel streams tiles of two"
    if np.dtype(dtype).name not in REAL:
        return f"the type is {np.dtype(dtype).name}, and only {' and '.join(REAL)} are compiled"
    if not stream_2d_parameters(stencil, dtype):
        return (
            f"the stencil reads {stencil.radius} points far, and patches in registers reach at "
            f"most {farthest()}"
        )
    return None


def stream_2d_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel for a stencil with the parameters of a `StreamTile`.

    Raises:
        ValueError: the stencil does not fit into such a tile, or the tile not into shared memory.
    """
    kind = np.dtype(dtype)
    tile = StreamTile(**parameters)
    if not tile.fits(stencil.radii, kind.itemsize):
        msg = (
            f"stencils of radii {stencil.radii} do not fit into {tile}: take more rows and "
            "columns, or fewer steps"
        )
        raise ValueError(msg)

    arrangement = arrange(stencil, tile.steps_per_block, kind.name)
    reach_y, reach_x = stencil.radii
    return FusedKernel(
        source="stream_2d.cu",
        entry="stream_2d",
        defines=_defines(stencil, kind, tile, arrangement),
        depth=tile.steps_per_block,
        tile=(1, tile.height(), tile.written(reach_x, kind.itemsize)),
        threads=32 * tile.warps,
        shared_bytes=tile.shared_bytes(reach_y, kind.itemsize),
        weights=arrangement.stored(kind),
        stream=tile.stream(reach_y, _hands_on_sums(stencil, arrangement, kind)),
        line=SECTOR,
        anchored=True,
    )


def _defines(
    stencil: Stencil, kind: np.dtype[Any], tile: StreamTile, arrangement: Arrangement
) -> dict[str, str | int]:
    # One macro per compile-time constant of stream_2d.cu, which checks that all are there.
    reach_y, reach_x = stencil.radii

    return {
        "TS_REAL": REAL[kind.name],
        "TS_DEPTH": tile.steps_per_block,
        "TS_COLUMNS": tile.columns,
        "TS_ROWS": tile.rows,
        "TS_WARPS": tile.warps,
        "TS_BLOCKS": tile.blocks,
        "TS_EDGES": tile.edges,
        "TS_INTERLEAVED": tile.interleaved,
        "TS_WRITTEN": tile.written(reach_x, kind.itemsize),
        "TS_MARGIN": tile.margin(reach_x, kind.itemsize),
        "TS_REACH_X": reach_x,
        "TS_REACH_Y": reach_y,
        "TS_ROW_TAPS": ",".join(f"{mask}u" for mask in _row_taps(stencil)),
        "TS_SCHEME": int(arrangement.scheme),
        "TS_UNIT": int(arrangement.unit),
        "TS_N_WEIGHTS": len(arrangement.weights),
        "TS_SUMS_OF_ROWS": int(_hands_on_sums(stencil, arrangement, kind)),
    }


def _hands_on_sums(stencil: Stencil, arrangement: Arrangement, kind: np.dtype[Any]) -> bool:
    """Whether warps hand on sums of rows instead of rows from which the next warp computes the same
    sums again (`stream_2d_sums.cuh`). For larger radii the sums of two patches do not fit into
    registers; sums of pairs are not normalized between two warps.
    """
    fits = stencil.radius <= _FAR_FOR_SUMS and kind != PAIR
    return arrangement.scheme == StreamScheme.MIRRORED and fits


def _row_taps(stencil: Stencil) -> list[int]:
    """The taps of the rows dy = -reach .. reach as bit masks, with bit dx + reach for each tap."""
    reach_y, reach_x = stencil.radii
    masks = [0] * (2 * reach_y + 1)
    for dy, dx in stencil.offsets:
        masks[dy + reach_y] |= 1 << (dx + reach_x)
    return masks


def arrange(stencil: Stencil, steps: int, dtype: str) -> Arrangement:
    """Choose the cheapest scheme that the weights allow, and divide by the weight of the chain's
    first term.
    """
    terms = stencil.terms
    reach_y, reach_x = stencil.radii

    # Equal neighbours are added first: one multiplication for all four.
    if _is_diamond(stencil) and _is_safe(terms[0, 1], steps, dtype):
        neighbour = terms[0, 1]
        back = _back((terms[0, 0], neighbour), neighbour, (1, 4), steps=steps, dtype=dtype)
        return Arrangement(
            StreamScheme.DIAMOND, unit=True, weights=(terms[0, 0] / neighbour, back), counts=(1,)
        )

    if is_mirrored(stencil):
        first = terms[reach_y, reach_x]
        chain = [terms[dy, dx] for dy in range(reach_y + 1) for dx in range(reach_x + 1)]
        counts = [
            2 ** (bool(dy) + bool(dx)) for dy in range(reach_y + 1) for dx in range(reach_x + 1)
        ]
        return _divided(StreamScheme.MIRRORED, chain, counts, first, steps=steps, dtype=dtype)

    # The first term of the chain lies in the row with the largest dy, at its smallest dx. The
    # kernel takes weights for the whole window, zero where the stencil has no point.
    first = terms[min(terms, key=lambda offset: (-offset[0], offset[1]))]
    window = [
        (dy, dx) for dy in range(-reach_y, reach_y + 1) for dx in range(-reach_x, reach_x + 1)
    ]
    chain = [terms.get(offset, 0.0) for offset in window]
    return _divided(StreamScheme.TAPS, chain, [1] * len(chain), first, steps=steps, dtype=dtype)


def _divided(
    scheme: StreamScheme,
    chain: list[float],
    counts: list[int],
    first: float,
    *,
    steps: int,
    dtype: str,
) -> Arrangement:
    if not _is_safe(first, steps, dtype):
        return Arrangement(scheme, unit=False, weights=(*chain, 1.0), counts=tuple(counts))
    back = _back(chain, first, counts, steps=steps, dtype=dtype)
    weights = (*(weight / first for weight in chain), back)
    return Arrangement(scheme, unit=True, weights=weights, counts=tuple(counts))


def _back(
    weights: Sequence[float], first: float, counts: Sequence[int], *, steps: int, dtype: str
) -> float:
    """The factor that rescales the last level. For pairs, whose quotients are rounded earlier, it
    also preserves the mean of the field.
    """
    if dtype != PAIR.name:
        return float(first**steps)
    quotients = stored_numbers([weight / first for weight in weights], dtype)
    return scale_back(weights, quotients, first, steps=steps, counts=counts)


def _is_safe(weight: float, steps: int, dtype: str) -> bool:
    """Whether levels divided by powers of the weight neither overflow nor lose digits to
    underflow.
    """
    return weight != 0 and abs(math.log(abs(weight))) * steps < math.log(_SAFE_POWER[dtype])


def _is_diamond(stencil: Stencil) -> bool:
    """Whether the stencil is the 5-point star with four equal neighbours."""
    weights = {weight for offset, weight in stencil.terms.items() if offset != (0, 0)}
    return set(stencil.offsets) == {(-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)} and len(weights) == 1
