"""Tables of a body of a few materials for the kernels of `gpu.stream` (`palette.cuh`).

Material properties are arguments, so another dt or other values do not recompile a kernel. Compiled
in are the size of the tables, whether each material conducts equally along all axes, whether there
are sources, and for the enthalpy method the number of pieces of the curves. The first part makes
the curves (`palette_curves.cuh`), the second packs material ids into words, the third the tables.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.layout import Box3, memory_argument
from tetris_sim.model.conduction import Curve, Enthalpy

# Curves of the enthalpy method (`palette_curves.cuh`), with as few pieces as they need.

Array = npt.NDArray[Any]

FEW, MOST_PIECES = 3, 256
_CURVE_SIZES = (FEW, 16, 64, MOST_PIECES)  # of tables: two comparisons, bins, or a binary search
_BIN_COUNTS = (16, 64, 256, 1024)
_MOST_BINS = 2048  # of all ids, 64 KB of shared memory; some tile still fits beside them
# Numbers of the bins of float32 stay exact, and so does what finds them.
_FARTHEST_BIN = 1 << 20
BETWEEN_MATERIALS = -1.0  # marks faces whose flow does not follow from a conductance
_STRAIGHT = 1e-11  # relative to the largest: lines that differ by less are the same


def table_pieces(enthalpy: Enthalpy) -> int:
    """Pieces of the tables that kernels are compiled for."""
    return next(size for size in _CURVE_SIZES if size >= merged(enthalpy).n_pieces)


def table_bins(enthalpy: Enthalpy, n_ids: int) -> int:
    """Bins of equal width of each id in which at most one knot lies, so that one addition finds the
    line of a heat content; 0 where the pieces are few, or no number of bins does it.

    Args:
        enthalpy: the enthalpy curves of all ids.
        n_ids: ids of the tables.
    """
    if table_pieces(enthalpy) == FEW:
        return 0
    knots = [row[np.isfinite(row)][1:] for row in merged(enthalpy).knots]
    fitting = (
        n
        for n in _BIN_COUNTS
        if n * n_ids <= _MOST_BINS and all(_bins_of(own, n) is not None for own in knots)
    )
    return next(fitting, 0)


def _bins_of(knots: Array, n: int) -> tuple[float, Array] | None:
    """Bins per unit of heat content, and the number of the bin of each knot, counted from heat
    content 0; None if two knots share one.
    """
    # Kernels find bins by rounding to the nearest integer, in the precision of the state.
    if not len(knots):
        return 0.0, knots
    span = float(knots[-1] - knots[0]) or float(abs(knots[0])) or 1.0
    scale = float(np.float32((n - 1.5) / span))
    bins = np.rint(knots * scale)
    apart = bool((np.diff(bins) >= 1).all()) and bins[-1] - bins[0] < n
    return (scale, bins) if apart and np.abs(bins).max() < _FARTHEST_BIN else None


@functools.lru_cache(maxsize=16)
def merged(enthalpy: Enthalpy) -> Enthalpy:
    """The enthalpy curves without knots at which nothing bends, for example at the ends of a table
    of properties.

    Values change by rounding only: each line takes the slope of its widest piece.
    """
    curves = (enthalpy.temperature, enthalpy.potential, enthalpy.conductivity)
    pieces = [_merged_pieces(enthalpy.knots[own], [_of(curve, own) for curve in curves])
              for own in range(len(enthalpy.knots))]  # fmt: skip

    # Ids with fewer pieces are padded with infinite knots, which no enthalpy reaches.
    most = max(map(len, pieces))
    knots, *numbers = (
        np.array([[*(row[part] for row in its), *[fill] * (most - len(its))] for its in pieces])
        for part, fill in enumerate((np.inf, *[0.0] * 6))
    )
    temperature, potential, conductivity = (Curve(*numbers[k : k + 2]) for k in (0, 2, 4))
    return replace(
        enthalpy,
        knots=knots,
        temperature=temperature,
        potential=potential,
        conductivity=conductivity,
    )


def _of(curve: Curve, own: int) -> Array:
    return np.array([curve.begins[own], curve.slopes[own]])


def _merged_pieces(knots: Array, curves: list[Array]) -> list[list[float]]:
    """Rows of (knot, begin and slope of each curve) for one id."""
    n = int(np.isfinite(knots).sum())
    lines = np.concatenate(curves)[:, :n].T  # (piece, begin and slope of each curve)
    scale = np.maximum(np.abs(lines).max(axis=0), np.finfo(np.float64).tiny)
    widths = np.diff(knots[:n], append=knots[n - 1])

    # Extend the line of the widest piece so far as long as the next piece lies on it.
    found: list[list[float]] = []
    first = widest = 0
    for piece in range(1, n + 1):
        if piece < n:
            # Even columns are values at the begin of a piece, odd ones slopes.
            there = lines[widest].copy()
            there[::2] += there[1::2] * (knots[piece] - knots[widest])
            if bool(np.all(np.abs(there - lines[piece]) <= _STRAIGHT * scale)):
                widest = max(widest, piece, key=lambda k: widths[k])
                continue
        # The same line, evaluated at the first knot that it covers.
        row = lines[widest].copy()
        row[::2] += row[1::2] * (knots[first] - knots[widest])
        found.append([knots[first], *row])
        first = widest = piece
    return found


def constant_conductivity(enthalpy: Enthalpy) -> Array | None:
    """The conductivity k of each id, (n_ids,) [W/(m K)]; None if that of any id varies with
    temperature.

    For constant k the potential is k T plus a constant, and heat flow follows from temperatures
    between all materials.
    """
    it = merged(enthalpy)
    k, pieces = it.conductivity, np.isfinite(it.knots)
    # One value over all pieces, and a potential that rises k times as fast as temperature.
    constant = np.all((k.slopes == 0) & (k.begins == k.begins[:, :1]) | ~pieces)
    follows = it.potential.slopes - k.begins[:, :1] * it.temperature.slopes
    steepest = np.abs(it.potential.slopes).max(axis=1, keepdims=True)
    if not constant or (np.abs(follows) > _STRAIGHT * steepest).any():
        return None
    return np.asarray(k.begins[:, 0])


def flowing_conductance(enthalpy: Enthalpy, conductance: Array) -> Array:
    """The factor of the difference between two points that gives the heat flow, (ndim, n_ids,
    n_ids); negative between materials where the flow does not follow from one.

    Args:
        enthalpy: the enthalpy curves of all ids.
        conductance: factor of potential differences within a material, (ndim, n_ids, n_ids)
            [1/m^2].
    """
    # Ids of the same kind are one material and have the same curves.
    alike = np.equal.outer(enthalpy.kinds, enthalpy.kinds)
    k = constant_conductivity(enthalpy)
    if k is None:
        return np.where(alike, conductance, BETWEEN_MATERIALS)
    # Between materials: two half cells and the contact resistance in series.
    half = enthalpy.half / k
    resistance = half[:, :, np.newaxis] + half[:, np.newaxis] + enthalpy.contact
    return np.where(alike, conductance * k, 1 / resistance)


def curve_numbers(enthalpy: Enthalpy, n_ids: int) -> Array:
    """`struct Curves`, flat, for tables of `n_ids` ids; followed by `struct Bins`, if there are."""
    it, pieces = merged(enthalpy), table_pieces(enthalpy)
    n, given = it.knots.shape
    knots = np.full((n_ids, pieces), np.inf)
    knots[:, 0] = 0.0
    knots[:n, :given] = it.knots

    # The last real piece of each id fills the rest of its table.
    last = np.isfinite(knots[:n]).sum(axis=1) - 1

    def lines(slopes: Array, values: Array) -> Array:
        whole = np.zeros((n_ids, pieces, 2))
        for own in range(n):
            whole[own, :given] = np.stack([slopes[own], values[own]], axis=-1)
            whole[own, last[own] + 1 :] = whole[own, last[own]]
        return whole

    # With constant conductivities heat flows by temperature, otherwise by potential.
    varies = constant_conductivity(enthalpy) is None
    flowing = it.potential if varies else it.temperature
    finite = np.where(np.isfinite(it.knots), it.knots, 0.0)
    intercepts = flowing.begins - flowing.slopes * finite
    lines_of_flow = np.stack([flowing.slopes, intercepts], axis=-1)
    parts = (
        knots,
        lines(flowing.slopes, intercepts),
        lines(it.temperature.slopes, it.temperature.begins),
        lines(it.conductivity.slopes, it.conductivity.begins),
        np.pad(it.half, ((0, 0), (0, n_ids - n))),
        np.pad(it.contact, ((0, 0), *[(0, n_ids - n)] * 2)),
        *_bin_numbers(it.knots, lines_of_flow, n_ids, table_bins(enthalpy, n_ids)),
    )
    return np.concatenate([part.ravel() for part in parts])


def _bin_numbers(knots: Array, lines: Array, n_ids: int, n_bins: int) -> tuple[Array, ...]:
    """`struct Bins`: the scale and the first bin of each id, (n_ids, 2); of each bin the line below
    its knot, what the slope grows by there, and the knot, (n_ids, n_bins, 4). Then `struct
    PiecesOfBins`: the piece on which it begins, and the knot or infinity, (n_ids, n_bins, 2).

    Args:
        knots: of all ids, infinite where they have fewer pieces, (ids, pieces).
        lines: slopes and intercepts at heat content 0, (ids, pieces, 2).
        n_ids: ids of the tables.
        n_bins: result of `table_bins`.
    """
    places, numbers = np.zeros((n_ids, 2)), np.zeros((n_ids, n_bins, 4))
    pieces = np.full((n_ids, n_bins, 2), [0.0, np.inf])
    for own in range(len(knots) if n_bins else 0):
        inner = knots[own][np.isfinite(knots[own])][1:]
        found = _bins_of(inner, n_bins)
        assert found is not None
        scale, bins = found
        first = bins[0] if len(bins) else 0.0
        places[own] = scale, first

        # The line of a bin is that on which it begins.
        piece = np.searchsorted(bins, first + np.arange(n_bins), side="left")
        numbers[own, :, :2] = lines[own, piece]
        holders = (bins - first).astype(int)
        numbers[own, holders, 2] = np.diff(lines[own, : len(inner) + 1, 0])
        numbers[own, holders, 3] = inner
        pieces[own, :, 0] = piece
        pieces[own, holders, 1] = inner
    return places, numbers, pieces


# Material ids packed into words in the order in which palette kernels read them
# (`palette_words.cu`); written on the GPU, once per run.

_LANES = 32


@dataclass(frozen=True)
class PaletteWords:
    """The packed ids of a slab, as arrays on the device.

    Attributes:
        words: ids of each lane, (strip, row, lane, words) or (tile, plane, pieces of 4, thread, 4).
        uniform: the single id of each (strip, row) or (tile, plane, warp), or 255 for several.
        runs: 2D: like `uniform`, for the rows that a patch reads from there on; 3D: `uniform`.
    """

    words: Any
    uniform: Any
    runs: Any


def word_pieces(columns: int, bits: int) -> int:
    """Pieces of 16 bytes of the words of a thread and plane in 3D: own columns and the one to the
    right.
    """
    return -(-(columns + 1) * (bits // 4) // 4)


@dataclass(frozen=True)
class WordsLaunch:
    """A launch of a kernel of `palette_words.cu`."""

    entry: str
    grid: tuple[int, int, int]
    threads: int
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class WordsKernel:
    """The packing of ids for one kernel that streams.

    Attributes:
        ndim: 2 for strips streamed along y, 3 for tiles streamed along z.
        depth: steps of a launch.
        rows: rows of a warp's patch.
        columns: columns of a lane's patch.
        warps: warps of a block.
        written: points that a block writes along y (3D) and x.
        margin: points of a tile before these.
        run: rows that a patch reads (2D).
        only: whether the whole body is of one id, and the kernel reads no words.
        bits: of an id: 4 or 8.
    """

    ndim: int
    depth: int
    rows: int
    columns: int
    warps: int
    written: tuple[int, int]
    margin: tuple[int, int]
    run: int
    only: bool = False
    bits: int = 4

    source = "palette_words.cu"

    @property
    def defines(self) -> dict[str, str | int]:
        """Macros of palette_words.cu; the type of numbers has no effect."""
        return {
            "TS_REAL": "double",
            "TS_COLUMNS": self.columns,
            "TS_ROWS": self.rows,
            "TS_WARPS": self.warps,
            "TS_BITS": self.bits,
        }

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return _LANES * self.warps

    def needed(self, box: Box3) -> Box3:
        """The box of ids that makes words independent of where the grid is divided, for a box that
        is written; patches reach farther than a step does.
        """
        by = (self.depth + 2 if self.ndim == 3 else 0, self.depth + self.rows + 2, self.depth + 1)
        z, y, x = ((low - n, high + n) for (low, high), n in zip(box, by, strict=True))
        return z, y, x

    def span(self, box: Box3) -> tuple[int, int]:
        """The first row (2D) or plane (3D) that has words, and their number."""
        low, high = self.needed(box)[3 - self.ndim]
        return low, high - low

    def strips(self, box: Box3) -> int:
        """The number of strips (2D) or tiles (3D) of a box."""
        # The streamed axis is not divided: words cover all of its rows or planes.
        across = (1, 2) if self.ndim == 3 else (2,)
        n = 1
        for axis in across:
            low, high = box[axis]
            n *= -(-(high - low) // self.written[axis - 1])
        return n

    def arrays(self, box: Box3, zeros: Callable[[int, Any], Any]) -> PaletteWords:
        """Allocate the words of a box by calls of `zeros(n, dtype)`."""
        if self.only:
            none = zeros(1, np.uint8)
            return PaletteWords(none, none, none)
        n = self.strips(box) * self.span(box)[1]
        if self.ndim == 3:
            uniform = zeros(n * self.warps, np.uint8)
            words = 4 * word_pieces(self.columns, self.bits)
            return PaletteWords(zeros(n * self.threads * words, np.uint32), uniform, uniform)
        words = zeros(n * _LANES * self.bits // 4, np.uint32)
        return PaletteWords(words, zeros(n, np.uint8), zeros(n, np.uint8))

    def launches(
        self, ids: Any, around: Box3, to: PaletteWords, box: Box3
    ) -> Iterator[WordsLaunch]:
        """The launches that pack the words, to be run one after the other.

        Args:
            ids: one byte per point of a box, contiguous; beyond it the nearest point counts.
            around: that box: `needed`, or the part of it that exists.
            to: result of `arrays`.
            box: the largest box that launches of the kernel will write; in 3D it begins along y
                where a tile does.
        """
        shape = [high - low for low, high in around]
        memory = memory_argument(
            shape[1] * shape[2], shape[2], ((0, shape[0]), (0, shape[1]), (0, shape[2]))
        )
        # Coordinates for the kernel are counted from the first point of `ids`.
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
        """Bytes of the arrays for a box."""
        return sum(
            np.dtype(dtype).itemsize * n
            for n, dtype in _sizes(self.arrays(box, lambda n, dtype: (n, dtype)))
        )


def _sizes(made: PaletteWords) -> set[tuple[int, Any]]:
    # The distinct arrays: in 3D `uniform` and `runs` are the same.
    return {made.words, made.uniform, made.runs}


MOST_IDS, MOST_NIBBLES = 256, 16
_SIZES = (2, 4, 8, 16, 32, 64, 128, 256)  # of tables


@dataclass(frozen=True)
class PaletteKind:
    """The properties of a palette that are compiled into a kernel.

    Attributes:
        n_ids: ids that tables hold, one of a few sizes.
        isotropic: whether each material conducts equally along all axes.
        sources: whether materials have heat sources.
        pieces: pieces of the enthalpy curves in tables; 0 where the state is temperature.
        bins: bins of equal width in which pieces are found; 0 where they are searched for.
        varies: whether any conductivity depends on temperature (enthalpy method only).
        only: whether the whole body is of one id.
        held: whether the state of some materials never changes.
        series: whether every conductance is that of the half cells on both sides; tables of more
            than 16 ids need it, those of pairs do not.
        sums: whether the kernel adds the sum of a static source (`FusedKernel.sums`).
    """

    n_ids: int
    isotropic: bool
    sources: bool
    pieces: int = 0
    bins: int = 0
    varies: bool = False
    only: bool = False
    held: bool = False
    series: bool = True
    sums: bool = False

    def defines(self) -> dict[str, str | int]:
        """Macros of palette.cuh."""
        return {
            "TS_IDS": self.n_ids,
            "TS_ISOTROPIC": int(self.isotropic),
            "TS_SOURCES": int(self.sources),
            "TS_PIECES": self.pieces,
            "TS_BINS": self.bins,
            "TS_VARIES": int(self.varies),
            "TS_ONE": int(self.only),
            "TS_HELD": int(self.held),
            "TS_SERIES": int(self.series),
            **({"TS_SUM": 1} if self.sums else {}),
        }

    @property
    def begins_with_heat(self) -> bool:
        """Whether fluxes into a point begin with its heat content (`palette_3d_faces.cuh`)."""
        return self.pieces > 0 and (self.only or not self.varies) and not self.held

    @property
    def bits(self) -> int:
        """Bits of an id in words."""
        return 4 if self.n_ids <= MOST_NIBBLES else 8

    @property
    def pairs(self) -> int:
        """Entries of a table that is indexed by a pair of ids in two nibbles."""
        return 17 * (self.n_ids - 1) + 1

    @property
    def potentials(self) -> int:
        """Numbers of the curves in shared memory (`Flowing`)."""
        if self.bins:
            return self.n_ids * (2 + 4 * self.bins)
        return self.n_ids * (16 if self.pieces == FEW else 3 * self.pieces)


def palette_kind(
    conductance: Array,
    *,
    sources: bool,
    sums: bool = False,
    held: bool = False,
    enthalpy: Enthalpy | None = None,
) -> PaletteKind:
    """The kind of palette that a kernel is compiled for.

    >>> palette_kind(np.ones((2, 3, 3)), sources=False)  # doctest: +NORMALIZE_WHITESPACE
    PaletteKind(n_ids=4, isotropic=True, sources=False, pieces=0, bins=0, varies=False,
                only=False, held=False, series=True, sums=False)

    Args:
        conductance: K of the faces between points of two ids, (ndim, ids, ids).
        sources: whether materials have heat sources.
        sums: whether the kernel adds the sum of a static source.
        held: whether the state of some materials never changes, or cells of heat contents differ in
            what they hold.
        enthalpy: the enthalpy curves, if the state is enthalpy.
    """
    # Faces between points of the same id.
    own = np.diagonal(conductance, axis1=1, axis2=2)
    n_ids = next(size for size in _SIZES if size >= conductance.shape[1])
    isotropic = bool(np.all(own == own[0]))
    only = conductance.shape[1] == 1

    flowing, pieces, bins, varies = conductance, 0, 0, False
    if enthalpy is not None:
        flowing = flowing_conductance(enthalpy, conductance)
        pieces, bins = table_pieces(enthalpy), table_bins(enthalpy, n_ids)
        varies = constant_conductivity(enthalpy) is None
    series = n_ids <= MOST_NIBBLES or _is_in_series(flowing)
    return PaletteKind(n_ids, isotropic, sources, pieces, bins, varies, only, held, series, sums)


def _is_in_series(conductance: Array) -> bool:
    """Whether each conductance is that of two half cells, which conductances of ids with themselves
    say.
    """
    own = np.diagonal(conductance, axis1=1, axis2=2)
    with np.errstate(divide="ignore"):
        half = 1 / (2 * own)
    wanted = 1 / (half[:, :, np.newaxis] + half[:, np.newaxis])
    return bool((np.abs(wanted - conductance) <= 1e-14 * wanted).all())


def palette_numbers(
    conductance: Array,
    rate: Array,
    kind: PaletteKind,
    dtype: npt.DTypeLike,
    enthalpy: Enthalpy | None = None,
) -> Array:
    """`struct Palette`, flat: conductances, rates, and the weights of points within a material; for
    the enthalpy method followed by `struct Curves`.

    Weights are rounded so that those of the neighbours and the centre add up to exactly 1: a
    uniform field stays uniform, for any number of steps.

    Args:
        conductance: (ndim, ids, ids) [W/(m^3 K)]; with enthalpy [1/m^2].
        rate: dt / (rho c) of each id, 0 where points are held [m^3 K/W]; with enthalpy dt over
            the share of a cell that is filled [s].
        kind: result of `palette_kind`.
        dtype: type of the arithmetic.
        enthalpy: the enthalpy curves, if the state is enthalpy.
    """
    real = np.dtype(dtype)
    ndim, n = conductance.shape[:2]
    k, r = np.zeros((ndim, kind.n_ids, kind.n_ids)), np.zeros(kind.n_ids)
    k[:, :n, :n], r[:n] = conductance, rate
    own = r * np.diagonal(k, axis1=1, axis2=2)
    if enthalpy is not None:
        k[:, :n, :n] = flowing_conductance(enthalpy, conductance)
        own = r * np.diagonal(k, axis1=1, axis2=2)
        parts = [k, r, own, 0 * r, curve_numbers(enthalpy, kind.n_ids)]
        return np.concatenate([part.ravel() for part in parts]).astype(real)

    # Multiples of eps / 4 below 1/2 are exact, and so is the centre, a multiple of eps / 2.
    quantum = float(np.finfo(real).eps) / 4
    weight = np.round(own / quantum) * quantum
    centre = 1 - 2 * weight.sum(axis=0)
    return np.concatenate([part.ravel() for part in (k, r, weight, centre)]).astype(real)
