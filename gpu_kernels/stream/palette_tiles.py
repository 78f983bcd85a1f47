"""gpu.stream for heterogeneous bodies in 2D and 3D: the tiles of its kernels, and which of them are
worth trying.

The first part is for a few materials in 2D, with packed ids beside the tiles of `kernel_2d.py`. It
has two kernels. `palette_2d.cu` looks at every level whether all that a warp reads is of one
material and then takes constant weights, which is best where materials form large regions.
`palette_2d_registers.cu` keeps the coefficients of its patch in registers; its rate does not depend
on the geometry. The second part is for conductances per face in 2D, the third for a few materials
in 3D.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.layout import REAL, Box3, to_device
from tetris_sim.gpu_kernels.fused.kernel import MOST_SHARED, OF_SM, FusedKernel, StreamedAxis
from tetris_sim.gpu_kernels.stream.kernel_2d import StreamTile
from tetris_sim.gpu_kernels.stream.palette import (
    MOST_NIBBLES,
    PaletteKind,
    WordsKernel,
    word_pieces,
)
from tetris_sim.model.lowering import padded_weights

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import DeviceState

_MOST_COLUMNS = 6  # eight ids in one or two words, two of them for the neighbours on either side
_LANES = 32
_SECTOR_BYTES = 32  # the smallest unit of a memory transfer
_WORD = 16


class PaletteScheme(IntEnum):
    """The source of a face's coefficients: looked up unless a warp sees one material only, or kept
    in registers.
    """

    BRANCH = 0
    REGISTERS = 1


@dataclass(frozen=True)
class PaletteTile:
    """The tile of one block of threads, which the kernels' parameters describe.

    Attributes:
        steps_per_block: levels that a tile is advanced.
        rows: rows of a warp's patch.
        columns: columns of a lane's patch.
        warps: warps of a block, above each other.
        blocks: blocks that share a multiprocessor.
        edges: copies of the rows that warps hand on, 1 or 2.
        scheme: one of `PaletteScheme`.
        copies: copies of the conductance tables: one per lane of a half warp, so that lookups have
            no bank conflicts, or 1.
        longest: upper bound of the rows that a block streams, 0 for none: shorter chunks balance
            the load where the work varies over the grid.
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
    def tile(self) -> StreamTile:
        """The parameters that it shares with tiles of one material."""
        return StreamTile(
            self.steps_per_block,
            self.rows,
            self.columns,
            self.warps,
            self.blocks,
            self.edges,
            interleaved=0,
        )

    def stream(self) -> StreamedAxis:
        """The division of the rows among blocks, as for one material; the first patches begin at
        multiples of their rows in the whole grid.
        """
        repeated = 2 * self.steps_per_block + self.rows - 1
        return StreamedAxis(
            axis=1, repeated=repeated, unit=self.tile.height(), longest=self.longest
        )

    def shared_bytes(self, kind: PaletteKind, item: int) -> int:
        """Bytes of `struct Shared` of the kernels."""
        state, row = self.tile.shared_bytes(1, item), _LANES * kind.bits
        levels = self.steps_per_block if kind.sources else 1
        # Of ids in bytes, what half cells conduct along y with the rate, and along x.
        halves = self.copies * (2 * kind.n_ids + (1 if kind.isotropic else kind.n_ids))
        if self.scheme == PaletteScheme.BRANCH:
            # Ids of two tiles and of the rows in which the levels lag behind.
            ring = 2 * self.tile.height() + self.steps_per_block + 2
            # Tables of face pairs across rows with two numbers, along rows with one; then those by
            # id.
            pairs = (2 * max(1, self.copies // 2) + self.copies) * kind.pairs
            faces = halves if kind.n_ids > MOST_NIBBLES else pairs
            tables = faces + (4 + levels) * kind.n_ids + kind.potentials
            # Entries of two numbers come first, for their alignment.
            return _up(state + ring * row, _WORD) + _up(tables * item, _WORD)
        words = 2 * self.warps * (self.steps_per_block + self.rows + 2) * row
        if kind.n_ids > MOST_NIBBLES:
            return _up(state + words + halves * item, _WORD)
        return _up(state + words + (2 * kind.pairs * self.copies + kind.n_ids) * item, _WORD)

    def fits(self, kind: PaletteKind, item: int) -> bool:
        """Whether the kernel compiles with the tile, and a multiprocessor holds `blocks` of its
        blocks.
        """
        shared = self.shared_bytes(kind, item)
        return (
            self.rows >= 2
            and 1 <= self.columns <= _MOST_COLUMNS
            and 1 <= self.steps_per_block <= _LANES
            and self.tile.written(1, item) > 0
            and shared <= MOST_SHARED
            and self.blocks * (shared + 1024) <= OF_SM
            and (
                self.scheme == PaletteScheme.BRANCH
                or (self.steps_per_block % self.rows == 0 and not kind.sources and not kind.pieces)
            )
        )


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


# On an H200 (10240 x 10240, float64, 8 materials, 2026-11-22, kernels alone) the first made 1150,
# 1000, 820 GStencil/s with 60 rectangles, 200 Voronoi cells, 2000 discs; the fourth 780 with a
# random material per point, and as much in all other cases.
_PALETTE_TILES = (
    (12, 8, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 330),
    (10, 8, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 330),
    (12, 8, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 0),
    (12, 6, 4, 4, 2, 1, PaletteScheme.REGISTERS, 16, 820),
    (12, 6, 4, 4, 2, 1, PaletteScheme.REGISTERS, 1, 820),
    (8, 6, 6, 4, 1, 1, PaletteScheme.BRANCH, 1, 330),
)

# More than 16 ids. On an H100 (10240 x 10240, 256 materials, 2026-11-27, whole steps) the second,
# fourth and fifth made 723, 857, 626 GStencil/s with 60 rectangles and 516, 294, 578 with a random
# material per point; in float32, where three blocks fit, the first and third 1233, 1430 and 922,
# 518.
_TILES_OF_MANY = (
    (12, 6, 4, 4, 3, 1, PaletteScheme.REGISTERS, 1, 820),
    (10, 5, 4, 4, 2, 1, PaletteScheme.REGISTERS, 1, 820),
    (12, 8, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 330),
    (10, 6, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 330),
    (10, 5, 4, 8, 1, 1, PaletteScheme.REGISTERS, 8, 820),
    (12, 7, 6, 8, 1, 1, PaletteScheme.BRANCH, 1, 330),
    (8, 6, 6, 4, 1, 1, PaletteScheme.BRANCH, 1, 330),
)

# For the enthalpy method: the first two for bodies of one and of several materials, the last two
# for curves of many pieces.
_HEAT_TILES = (
    (12, 8, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 660),
    (12, 8, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 330),
    (12, 7, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 330),
    (8, 6, 6, 4, 2, 1, PaletteScheme.BRANCH, 1, 330),
    (8, 6, 6, 4, 1, 1, PaletteScheme.BRANCH, 1, 330),
)


def palette_2d_parameters(kind: PaletteKind, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first; the keys are those of `PaletteTile`."""
    item = np.dtype(dtype).itemsize
    worth = _TILES_OF_MANY if kind.n_ids > MOST_NIBBLES else _PALETTE_TILES
    tiles = (PaletteTile(*numbers) for numbers in (_HEAT_TILES if kind.pieces else worth))
    return tuple(
        {name: int(value) for name, value in asdict(tile).items()}
        for tile in tiles
        if tile.fits(kind, item)
    )


def palette_2d_kernel(
    kind: PaletteKind, numbers: npt.NDArray[Any], parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel for the numbers of a palette (`palette_numbers`) and the parameters of a
    `PaletteTile`.

    Raises:
        ValueError: the tile does not fit.
    """
    tile, item = PaletteTile(**parameters), numbers.dtype.itemsize
    if not tile.fits(kind, item):
        msg = f"{kind} does not fit into {tile}"
        raise ValueError(msg)

    # Two kernels: one branches where a warp sees a single material, one keeps ids in registers.
    entry = "palette_2d" if tile.scheme == PaletteScheme.BRANCH else "palette_2d_registers"
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
        sums=kind.sums,
        stream=tile.stream(),
        by_pointer=True,
        line=_SECTOR_BYTES,
    )


def palette_2d_words(kind: PaletteKind, parameters: Mapping[str, int], item: int) -> WordsKernel:
    """The packing of ids for the kernel with these parameters, for numbers of `item` bytes."""
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
        bits=kind.bits,
    )


# Coefficients in 2D: tiles of `kernel_2d.py`, with arrays of the conductances of faces beside them
# (`coefficients_2d.cu`), or with weights that depend on the place along their axis only
# (`graded_2d.cu`).

_PIECE = 16  # bytes that a lane reads at once
_SECTOR = 32  # bytes of the smallest unit of a memory transfer


@dataclass(frozen=True)
class CoefficientTile:
    """The tile of one block of threads, which the kernels' parameters describe.

    Attributes:
        steps_per_block: levels that a tile is advanced; for arrays a multiple of its rows.
        rows: rows of a warp's patch.
        columns: columns of a lane's patch.
        warps: warps of a block, above each other.
        blocks: blocks that share a multiprocessor.
        edges: copies of the rows that warps hand on, 1 or 2.
        longest: upper bound of the rows that a block streams, 0 for none.
    """

    steps_per_block: int
    rows: int
    columns: int
    warps: int
    blocks: int
    edges: int
    longest: int

    @property
    def tile(self) -> StreamTile:
        """The parameters that it shares with tiles of one material."""
        return StreamTile(
            self.steps_per_block,
            self.rows,
            self.columns,
            self.warps,
            self.blocks,
            self.edges,
            interleaved=0,
        )

    def shared_bytes(self, item: int, *, graded: bool) -> int:
        """Bytes of `struct Shared` of the kernel."""
        handed_on = (self.warps - 1) * self.edges + self.steps_per_block + 2
        if graded:
            faces = 2 * self.warps * (self.steps_per_block + self.rows - 1) * _PIECE
            return (self.warps * self.rows + 2 * handed_on) * self.tile.width() * item + faces
        # Rows of the state and of the coefficients are handed on together.
        return (self.warps * self.rows + 5 * handed_on) * self.tile.width() * item

    def fits(self, item: int, *, graded: bool) -> bool:
        """Whether the kernel compiles with the tile, and a multiprocessor holds `blocks` of its
        blocks.
        """
        shared = self.shared_bytes(item, graded=graded)
        in_slots = (
            self.steps_per_block % self.rows == 0
            and self.columns * item % _PIECE == 0
            and self.tile.margin(1, item) % self.columns == 0
        )
        return (
            self.rows >= 3
            and (graded or in_slots)
            and self.tile.written(1, item) > 0
            and shared <= MOST_SHARED
            and self.blocks * (shared + 1024) <= OF_SM
        )


# For 8-byte numbers; the fields are those of `CoefficientTile`.
_COEFFICIENT_TILES = (
    (10, 5, 4, 4, 2, 1, 820),
    (12, 4, 4, 4, 2, 1, 820),
    (12, 6, 4, 4, 2, 1, 820),
    (5, 5, 4, 4, 1, 1, 0),
)
# On an H100 (10240 x 10240, 2026-11-27, whole steps) the second to fourth made 1127, 1104, 1090
# GStencil/s; the first, of which only float32 fits, 1849.
_GRADED_TILES = (
    (16, 14, 6, 8, 1, 1, 0),
    (16, 9, 6, 8, 1, 2, 0),
    (16, 9, 6, 8, 1, 1, 0),
    (12, 9, 6, 4, 2, 1, 0),
    (8, 6, 6, 4, 1, 1, 0),
)


def coefficients_2d_parameters(
    dtype: npt.DTypeLike, *, graded: bool
) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first; the keys are those of `CoefficientTile`.

    Args:
        dtype: of the state.
        graded: whether weights depend on the place along their axis only.
    """
    item = np.dtype(dtype).itemsize
    # Numbers of half the size allow twice as many columns, or as many as keep pieces whole.
    wide = {4: 8, 6: 8} if item < _PIECE // 2 else {4: 4, 6: 6}
    tiles = (
        CoefficientTile(steps, rows, wide[columns], *others)
        for steps, rows, columns, *others in (_GRADED_TILES if graded else _COEFFICIENT_TILES)
    )
    return tuple(asdict(tile) for tile in tiles if tile.fits(item, graded=graded))


def coefficients_2d_kernel(
    dtype: npt.DTypeLike,
    parameters: Mapping[str, int],
    weights: tuple[npt.NDArray[Any], ...] | None = None,
) -> FusedKernel:
    """The kernel with the parameters of a `CoefficientTile`.

    Args:
        dtype: of the state.
        parameters: of the tile.
        weights: result of `axis_weights`; None if faces have conductances of their own.

    Raises:
        ValueError: the tile does not fit.
    """
    tile, kind = CoefficientTile(**parameters), np.dtype(dtype)
    if not tile.fits(kind.itemsize, graded=weights is not None):
        msg = f"numbers of {kind.itemsize} bytes do not fit into {tile}"
        raise ValueError(msg)

    entry = "coefficients_2d" if weights is None else "graded_2d"
    return FusedKernel(
        source=f"{entry}.cu",
        entry=entry,
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
        shared_bytes=tile.shared_bytes(kind.itemsize, graded=weights is not None),
        weights=np.zeros(1, kind),
        stream=StreamedAxis(
            axis=1,
            repeated=2 * tile.steps_per_block,
            unit=tile.tile.height(),
            longest=tile.longest,
        ),
        line=_SECTOR,
        beside=_arrays if weights is None else functools.partial(_tables, weights),
    )


def _arrays(state: DeviceState, box: Box3) -> tuple[Any, ...]:
    """The conductances along x and y and the rates, from the first owned point on."""
    assert state.body is not None
    arrays, first = state.body.coefficients, state.layout.origin
    return tuple(arrays[name][first:] for name in ("upper_x", "upper_y", "rate"))


def _tables(
    weights: tuple[npt.NDArray[Any], ...], state: DeviceState, box: Box3
) -> tuple[Any, ...]:
    """The weights along x, then y, of the points that are allocated, in pieces of 16 bytes; the
    first point of each and their number.
    """
    problem, slab, parts = state.problem, state.slab, []
    places: list[int] = []
    for axis in (1, 0):
        (low, high), start = state.layout.within[axis + 1], slab.start[axis]
        # Images reach as far beyond the grid as it is long.
        n = problem.grid.shape[axis]
        low, high = max(low, -n - start), min(high, 2 * n - start)
        span = (low + start, high + start)
        parts.append(padded_weights(problem, weights[axis], axis, span))
        places += [low, high - low]
    pieces = np.zeros((len(parts[0]) + len(parts[1]), _PIECE // problem.dtype.itemsize))
    pieces[:, :2] = np.concatenate(parts)
    return (to_device(state.device, pieces.astype(problem.dtype)), *map(np.int32, places))


# A few materials in 3D: tiles as in `method.py`, with packed ids beside them (`palette_3d.cu`).

_WORD_3D = 16  # bytes of a thread's columns
_MOST_ROWS, _MOST_STEPS = 6, 3


def written_in_3d(steps: int, rows: int, item: int) -> tuple[int, int]:
    """Points that a tile of so many rows writes along y and x, along x in whole sectors."""
    sector, halo = _SECTOR_BYTES // item, _up(steps, _WORD_3D // item)
    return rows - 2 * steps, (_LANES * _WORD_3D // item - halo - steps) // sector * sector


@dataclass(frozen=True)
class PaletteTile3D:
    """The tile of one block of threads, which the kernel's parameters describe.

    Attributes:
        steps_per_block: steps of a launch.
        rows: rows per thread.
        warps: warps of a block, below each other.
        blocks: blocks per multiprocessor.
        ahead: prefetched planes.
        copies: copies of the conductance tables: 16, so that lookups have no bank conflicts, or 1.
    """

    steps_per_block: int
    rows: int
    warps: int
    blocks: int
    ahead: int
    copies: int

    def margin(self, item: int) -> tuple[int, int]:
        """Points of a tile before those that it writes, along y and x."""
        columns = _WORD_3D // item
        return self.steps_per_block, _up(self.steps_per_block, columns)

    def written(self, item: int) -> tuple[int, int]:
        """Points that a tile writes along y and x, along x in whole sectors."""
        return written_in_3d(self.steps_per_block, self.warps * self.rows, item)

    def shared_bytes(self, kind: PaletteKind, item: int) -> int:
        """Bytes of `struct Shared` of the kernel, for numbers of `item` bytes."""
        steps, row = self.steps_per_block, _LANES * _WORD_3D
        # The state's planes, the rows that warps exchange at each level, packed ids, and the
        # tables.
        planes_of_sum = self.ahead + 1 if kind.sums else 0
        planes = self.ahead + 1 + (not kind.begins_with_heat) + planes_of_sum
        state = planes * self.warps * self.rows * row
        ends = max(1, 2 * (steps - 1)) * self.warps * 2 * row
        pieces = word_pieces(_WORD_3D // item, kind.bits)
        planes = 1 if kind.only else 2 * steps + self.ahead
        words = planes * pieces * _LANES * self.warps * _WORD
        tables = (8 + (steps if kind.sources else 1)) * kind.n_ids
        if kind.n_ids <= MOST_NIBBLES:
            tables += (2 * max(1, self.copies // 2) + 2 * self.copies) * kind.pairs
        else:
            tables += 2 * kind.n_ids + 2 * (1 if kind.isotropic else kind.n_ids)
        return state + ends + words + _up((tables + kind.potentials) * item, _WORD)

    def fits(self, kind: PaletteKind, item: int) -> bool:
        """Whether the kernel compiles with the tile, and a block fits into shared memory."""
        return (
            1 <= self.rows <= _MOST_ROWS
            and 1 <= self.steps_per_block <= _MOST_STEPS
            and min(self.written(item)) > 0
            and (self.copies == 1 or kind.n_ids <= MOST_NIBBLES)
            and self.shared_bytes(kind, item) <= MOST_SHARED
        )


# On an H200 (1024 x 1024 x 1024, 8 materials, 2026-11-22, kernels alone) the first made 448, 386,
# 335, 153 GStencil/s with one material, 60 boxes, 200 Voronoi cells, a random material per point,
# the second 412, 377, 321, 254. Where three planes ahead do not fit, two may.
_PALETTE_TILES_3D = (
    (3, 5, 8, 1, 3, 1),
    (3, 5, 8, 1, 2, 1),
    (3, 5, 8, 1, 3, 16),
    (3, 5, 8, 1, 2, 16),
    (2, 5, 8, 1, 3, 1),
    (2, 3, 8, 1, 2, 1),
)
# With the planes of a sum beside those of the state.
_SUM_TILES_3D = ((3, 5, 8, 1, 2, 1), (3, 4, 8, 1, 2, 1), (3, 4, 8, 1, 2, 16), (2, 3, 8, 1, 2, 1))


def palette_3d_parameters(kind: PaletteKind, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first; the keys are those of `PaletteTile3D`."""
    item = np.dtype(dtype).itemsize
    found: dict[PaletteTile3D, PaletteTile3D] = {}
    tiles = _SUM_TILES_3D if kind.sums else _PALETTE_TILES_3D
    for tile in (PaletteTile3D(*numbers) for numbers in tiles):
        if tile.fits(kind, item) and not (kind.only and tile.copies > 1):
            found.setdefault(replace(tile, ahead=0), tile)
    return tuple(asdict(tile) for tile in found.values())


def palette_3d_kernel(
    kind: PaletteKind, numbers: npt.NDArray[Any], parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel for the numbers of a palette (`palette_numbers`) and the parameters of a
    `PaletteTile3D`.

    Raises:
        ValueError: the tile does not fit.
    """
    tile, item = PaletteTile3D(**parameters), numbers.dtype.itemsize
    if not tile.fits(kind, item):
        msg = f"{kind} does not fit into {tile}"
        raise ValueError(msg)

    steps = tile.steps_per_block
    return FusedKernel(
        source="palette_3d.cu",
        entry="palette_3d",
        defines={
            **kind.defines(),
            "TS_REAL": REAL[numbers.dtype.name],
            "TS_STEPS": steps,
            "TS_COLUMNS": _WORD_3D // item,
            "TS_ROWS": tile.rows,
            "TS_WARPS": tile.warps,
            "TS_AHEAD": tile.ahead,
            "TS_BLOCKS": tile.blocks,
            "TS_COPIES": tile.copies,
            "TS_UNROLLED": 1,
        },
        depth=steps,
        tile=(1, *tile.written(item)),
        threads=_LANES * tile.warps,
        shared_bytes=tile.shared_bytes(kind, item),
        weights=numbers,
        sums=kind.sums,
        stream=StreamedAxis(axis=0, repeated=3 * steps - 1, unit=1),
        by_pointer=True,
        line=_SECTOR_BYTES,
        # Tiles are anchored to the whole grid along y, so a box may touch one more than fit into
        # it.
        spare=1,
    )


def palette_3d_words(kind: PaletteKind, parameters: Mapping[str, int], item: int) -> WordsKernel:
    """The packing of ids for the kernel with these parameters, for numbers of `item` bytes."""
    tile = PaletteTile3D(**parameters)
    return WordsKernel(
        ndim=3,
        depth=tile.steps_per_block,
        rows=tile.rows,
        columns=_WORD_3D // item,
        warps=tile.warps,
        written=tile.written(item),
        margin=tile.margin(item),
        run=0,
        only=kind.only,
        bits=kind.bits,
    )
