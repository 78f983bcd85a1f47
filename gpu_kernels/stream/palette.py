"""What kernels of `gpu.stream` are told of a body of a few materials (`palette.cuh`).

Numbers of materials are arguments: a new dt, or other numbers, compile nothing anew. What is
compiled is how many ids there are at most, whether each material conducts the same along all axes,
whether there are sources, and where states are heat contents how many pieces curves have at most.
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

# What kernels of `gpu.stream` are told of heat contents (`palette_curves.cuh`): curves with as few
# pieces as they need.

Array = npt.NDArray[Any]

FEW, MOST_PIECES = 3, 256
_CURVE_SIZES = (FEW, 16, 64, MOST_PIECES)  # of tables: two comparisons, or a search by halves
BETWEEN_MATERIALS = -1.0  # where what flows does not follow from a conductance
_STRAIGHT = 1e-11  # of the steepest: slopes that differ by less are those of one line


def table_pieces(enthalpy: Enthalpy | None) -> int:
    """Pieces of the tables that kernels are compiled for; 0 where states are temperatures."""
    if enthalpy is None:
        return 0
    return next(size for size in _CURVE_SIZES if size >= merged(enthalpy).n_pieces)


@functools.lru_cache(maxsize=16)
def merged(enthalpy: Enthalpy) -> Enthalpy:
    """The same without knots at which nothing bends, such as where a table of properties ends.

    The difference is that of rounding: of each line the widest piece tells the slope.
    """
    curves = (enthalpy.temperature, enthalpy.potential, enthalpy.conductivity)
    pieces = [_merged_pieces(enthalpy.knots[own], [_of(curve, own) for curve in curves])
              for own in range(len(enthalpy.knots))]  # fmt: skip
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
    """Rows of (knot, begin and slope of each curve) of one id."""
    n = int(np.isfinite(knots).sum())
    lines = np.concatenate(curves)[:, :n].T  # (piece, begin and slope of each curve)
    scale = np.maximum(np.abs(lines).max(axis=0), np.finfo(np.float64).tiny)
    widths = np.diff(knots[:n], append=knots[n - 1])
    found: list[list[float]] = []
    first = widest = 0
    for piece in range(1, n + 1):
        if piece < n:
            there = lines[widest].copy()
            there[::2] += there[1::2] * (knots[piece] - knots[widest])
            if bool(np.all(np.abs(there - lines[piece]) <= _STRAIGHT * scale)):
                widest = max(widest, piece, key=lambda k: widths[k])
                continue
        row = lines[widest].copy()
        row[::2] += row[1::2] * (knots[first] - knots[widest])
        found.append([knots[first], *row])
        first = widest = piece
    return found


def constant_conductivity(enthalpy: Enthalpy) -> Array | None:
    """The k of each id, (n_ids,) [W/(m K)]; None if that of any varies with temperature.

    Then the potential is k T and a constant, and heat flows by temperatures between all materials.
    """
    it = merged(enthalpy)
    k, pieces = it.conductivity, np.isfinite(it.knots)
    constant = np.all((k.slopes == 0) & (k.begins == k.begins[:, :1]) | ~pieces)
    follows = it.potential.slopes - k.begins[:, :1] * it.temperature.slopes
    steepest = np.abs(it.potential.slopes).max(axis=1, keepdims=True)
    if not constant or (np.abs(follows) > _STRAIGHT * steepest).any():
        return None
    return np.asarray(k.begins[:, 0])


def flowing_conductance(enthalpy: Enthalpy, conductance: Array) -> Array:
    """By what differs between two points times this, heat flows: (ndim, n_ids, n_ids); negative
    between materials where that is not so.

    Args:
        enthalpy: what heat contents mean.
        conductance: by potential, of ids of one material (ndim, n_ids, n_ids) [1/m^2].
    """
    alike = np.equal.outer(enthalpy.kinds, enthalpy.kinds)
    k = constant_conductivity(enthalpy)
    if k is None:
        return np.where(alike, conductance, BETWEEN_MATERIALS)
    half = enthalpy.half / k
    resistance = half[:, :, np.newaxis] + half[:, np.newaxis] + enthalpy.contact
    return np.where(alike, conductance * k, 1 / resistance)


def curve_numbers(enthalpy: Enthalpy, n_ids: int) -> Array:
    """`struct Curves`, flat, for tables of so many ids."""
    it, pieces = merged(enthalpy), table_pieces(enthalpy)
    n, given = it.knots.shape
    knots = np.full((n_ids, pieces), np.inf)
    knots[:, 0] = 0.0
    knots[:n, :given] = it.knots
    last = np.isfinite(knots[:n]).sum(axis=1) - 1

    def lines(slopes: Array, values: Array) -> Array:
        whole = np.zeros((n_ids, pieces, 2))
        for own in range(n):
            whole[own, :given] = np.stack([slopes[own], values[own]], axis=-1)
            whole[own, last[own] + 1 :] = whole[own, last[own]]
        return whole

    varies = constant_conductivity(enthalpy) is None
    flowing = it.potential if varies else it.temperature
    finite = np.where(np.isfinite(it.knots), it.knots, 0.0)
    parts = (
        knots,
        lines(flowing.slopes, flowing.begins - flowing.slopes * finite),
        lines(it.temperature.slopes, it.temperature.begins),
        lines(it.conductivity.slopes, it.conductivity.begins),
        np.pad(it.half, ((0, 0), (0, n_ids - n))),
        np.pad(it.contact, ((0, 0), *[(0, n_ids - n)] * 2)),
    )
    return np.concatenate([part.ravel() for part in parts])


# Ids of materials as words in the order in which kernels of palettes read them
# (`palette_words.cu`): written on the GPU, once per run.

_LANES = 32


@dataclass(frozen=True)
class PaletteWords:
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

    def arrays(self, box: Box3, zeros: Callable[[int, Any], Any]) -> PaletteWords:
        """Memory for them, by `zeros(n, dtype)`."""
        n = self.strips(box) * self.span(box)[1]
        if self.ndim == 3:
            uniform = zeros(n * self.warps, np.uint8)
            return PaletteWords(zeros(n * self.threads * 4, np.uint32), uniform, uniform)
        return PaletteWords(zeros(n * _LANES, np.uint32), zeros(n, np.uint8), zeros(n, np.uint8))

    def launches(
        self, ids: Any, around: Box3, to: PaletteWords, box: Box3
    ) -> Iterator[WordsLaunch]:
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


def _sizes(made: PaletteWords) -> set[tuple[int, Any]]:
    return {made.words, made.uniform, made.runs}


MOST_IDS = 16  # nibbles
_SIZES = (2, 4, 8, 16)  # of tables


@dataclass(frozen=True)
class PaletteKind:
    """What of a palette is compiled.

    Attributes:
        n_ids: that tables hold, one of a few numbers.
        isotropic: whether faces between points of one id conduct the same along all axes.
        sources: whether ids have sources.
        pieces: of curves of heat content that tables hold; 0 where states are temperatures.
        varies: whether any conductivity depends on temperature, where states are heat contents.
    """

    n_ids: int
    isotropic: bool
    sources: bool
    pieces: int = 0
    varies: bool = False

    def defines(self) -> dict[str, str | int]:
        """The macros that palette.cuh wants."""
        return {
            "TS_IDS": self.n_ids,
            "TS_ISOTROPIC": int(self.isotropic),
            "TS_SOURCES": int(self.sources),
            "TS_PIECES": self.pieces,
            "TS_VARIES": int(self.varies),
        }

    @property
    def pairs(self) -> int:
        """Entries of a table of pairs, as two nibbles index it."""
        return 17 * (self.n_ids - 1) + 1

    @property
    def potentials(self) -> int:
        """Numbers of `Flowing` in shared memory."""
        return self.n_ids * (16 if self.pieces == FEW else 3 * self.pieces)


def palette_kind(
    conductance: Array, *, sources: bool, enthalpy: Enthalpy | None = None
) -> PaletteKind:
    """What kernels are compiled for.

    >>> palette_kind(np.ones((2, 3, 3)), sources=False)
    PaletteKind(n_ids=4, isotropic=True, sources=False, pieces=0, varies=False)

    Args:
        conductance: K of the faces between points of two ids, (ndim, ids, ids).
        sources: whether ids have any.
        enthalpy: what heat contents mean, if these are states.
    """
    own = np.diagonal(conductance, axis1=1, axis2=2)
    n_ids = next(size for size in _SIZES if size >= conductance.shape[1])
    isotropic = bool(np.all(own == own[0]))
    varies = enthalpy is not None and constant_conductivity(enthalpy) is None
    return PaletteKind(n_ids, isotropic, sources, table_pieces(enthalpy), varies)


def palette_numbers(
    conductance: Array,
    rate: Array,
    kind: PaletteKind,
    dtype: npt.DTypeLike,
    enthalpy: Enthalpy | None = None,
) -> Array:
    """`struct Palette`, flat: conductances, rates, and the weights of points among their like; of
    heat contents then `struct Curves`.

    Weights are rounded so far that the neighbours' and the centre's add up to 1 exactly: what is
    even stays even, for any number of steps.

    Args:
        conductance: (ndim, ids, ids) [W/(m^3 K)]; where states are heat contents [1/m^2].
        rate: dt / (rho c) of each id, 0 where points are held [m^3 K/W]; of heat contents dt [s].
        kind: `palette_kind` of them.
        dtype: of the arithmetic.
        enthalpy: what heat contents mean, if these are states.
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

    quantum = float(np.finfo(real).eps) / 4
    weight = np.round(own / quantum) * quantum
    centre = 1 - 2 * weight.sum(axis=0)
    return np.concatenate([part.ravel() for part in (k, r, weight, centre)]).astype(real)
