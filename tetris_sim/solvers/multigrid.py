"""Geometric multigrid for heat balances: a level, and the hierarchy of coarser ones below it.

The operator of a level is A u = d u - sum of K (u_j - u), K between neighbours. Along an axis the
even points are kept. A point between two kept ones takes the value that its balance along the axis
gives, (K_low u_low + K_high u_high) / (K_low + K_high + d), so discontinuous conductivities,
contacts and walls are respected; eliminating it puts its conductances in series, K_low K_high /
(K_low + K_high + d), and distributes its couplings across the axis, and d, to its two neighbours.
In one dimension that is exact; in more it keeps seven points and is never too weak (black box
multigrid, lumped: J. E. Dendy, J. Comput. Phys. 48 (1982) 366).

Axes with much weaker coupling than others wait until these have caught up (semicoarsening). On
graded axes single planes wait (docs/decisions/0039): only those between thin cells are eliminated,
until all cells are about equally thick. Around an axis or a centre rings wait: those in which cells
are so narrow along theta that they are coupled much more strongly around than across.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Values = Any  # arrays of NumPy or CuPy
Operator = tuple[Values, ...]  # k0, k1, k2, d, each (n0, n1, n2)
Shares = tuple[Values, Values]  # of the lower and of the upper neighbour, of points between
Places = npt.NDArray[np.int64]  # of planes that are kept; never are two in a row not
Numbers = npt.NDArray[np.float64]
Coarsen = Callable[[Operator, int, Any, Places], tuple[Operator, Shares]]
_WEAK = 0.25  # of the strongest axis' share in the conductances
_ACROSS = 2  # the axis r among the three, the last one
_THIN = 2.0  # times the thinnest cell: planes that may go


@dataclass(frozen=True)
class Rings:
    """A grid with r and theta, whose cells are narrower around the nearer they are to r = 0.

    Attributes:
        around: the axis theta among the three.
    """

    around: int


Widths = tuple[npt.NDArray[Any], ...] | Rings  # of cells, by axis


def _everything() -> slice:
    return slice(None)


@dataclass(frozen=True)
class GridLevel:
    """A level, and the transfer to the next coarser one.

    Attributes:
        operator: K by axis, of a point and the next one, the last one's leading to the first; d.
        moves: (axis, (share of the lower neighbour, of the upper)) in the order of coarsening.
        kept: planes that are kept, in the same order; () for every other one.
        through: planes across the first axis from which the coarser level follows.
        reached: planes of its own to which a finer level restricts.
    """

    operator: Operator
    moves: tuple[tuple[int, Shares], ...]
    kept: tuple[Places, ...] = ()
    through: slice = field(default_factory=_everything)
    reached: slice = field(default_factory=_everything)

    @property
    def shape(self) -> tuple[int, ...]:
        """Points per axis."""
        return tuple(self.operator[-1].shape)

    @property
    def places(self) -> tuple[Places, ...]:
        """Planes that are kept, in the order of `moves`."""
        return self.kept or tuple(every_other(self.shape[axis]) for axis, _ in self.moves)

    @property
    def between(self) -> list[tuple[int, ...]]:
        """Shapes on the way to the next level: of the planes it follows from, and with one axis
        after the other coarsened.
        """
        shape = [len(range(self.shape[0])[self.through]), *self.shape[1:]]
        found = [tuple(shape)]
        for (axis, _), places in zip(self.moves, self.places, strict=True):
            shape[axis] = len(places)
            found.append(tuple(shape))
        return found


def make_hierarchy(
    operator: Operator, xp: Any, by: Coarsen | None = None, widths: Widths = ()
) -> list[GridLevel]:
    """Make the hierarchy of levels, down to one point.

    Args:
        operator: of the finest level.
        xp: NumPy or CuPy.
        by: a device's replacement of `coarsen`, equal up to rounding.
        widths: of cells, where an axis is graded.
    """
    levels = []
    widths = felt(operator, widths, xp)
    while math.prod(operator[-1].shape) > 1:
        sums = sums_of(operator[:-1], widths)
        ways, widths = find_ways(operator[-1].shape, sums, widths)
        moves, coarser = carry_out(operator, ways, xp, by or coarsen)
        levels.append(GridLevel(operator, moves, tuple(ways.values())))
        operator = coarser
    levels.append(GridLevel(operator, ()))
    return levels


def sums_of(conductances: Sequence[Values], widths: Widths) -> list[Numbers]:
    """The sums of the conductances along each axis that `find_ways` looks at: (1,), or by ring."""
    if not isinstance(widths, Rings):
        return [np.array([float(it.sum())]) for it in conductances]
    planes = [it.sum(axis=(0, 1), dtype=np.float64) for it in conductances]
    return [it if isinstance(it, np.ndarray) else it.get() for it in planes]


def find_ways(
    shape: Sequence[int], sums: Sequence[Numbers], widths: Widths
) -> tuple[dict[int, Places], Widths]:
    """Choose the coarsening: (kept planes by axis, widths of the coarser level).

    Args:
        shape: points per axis.
        sums: of the conductances along each axis (`sums_of`).
        widths: of cells, scaled by conduction (`felt`), where an axis is graded.
    """
    if not isinstance(widths, Rings) and widths:
        return _thin(widths)
    ways = {axis: every_other(shape[axis]) for axis in _axes(shape, [*map(np.sum, sums)])}
    if not isinstance(widths, Rings) or _ACROSS not in ways:
        return ways, widths

    kept = _rings_that_stay(sums[_ACROSS], sums[widths.around])
    if len(kept) < shape[_ACROSS] or len(ways) == 1:
        ways[_ACROSS] = kept if len(kept) < shape[_ACROSS] else every_other(shape[_ACROSS])
    else:
        del ways[_ACROSS]
    return ways, widths


def carry_out(
    operator: Operator, ways: dict[int, Places], xp: Any, by: Coarsen
) -> tuple[tuple[tuple[int, Shares], ...], Operator]:
    """Coarsen along axes in turn: (axes with shares of eliminated planes, coarser operator)."""
    moves = []
    for axis, places in ways.items():
        operator, shares = by(operator, axis, xp, places)
        moves.append((axis, shares))
    return tuple(moves), operator


def every_other(n: int) -> Places:
    """Return the planes that are kept along an even axis."""
    return np.arange(0, n, 2)


def _rings_that_stay(across: Numbers, around: Numbers) -> Places:
    """The rings that are kept, never two in a row not, by the sums of their conductances.

    Point smoothers even out what is strongly coupled, here around a narrow ring; what differs from
    such a ring to the next would be lost with every other one of them.
    """
    beside = np.maximum(across, np.append(0.0, across[:-1]))  # a ring's stronger side
    waits = beside < _WEAK * around
    gone = np.zeros(len(across), np.bool_)
    for ring in range(1, len(across)):
        gone[ring] = not (waits[ring] or waits[ring - 1] or gone[ring - 1])
    return np.flatnonzero(~gone)


def felt(operator: Operator, widths: Widths, xp: Any) -> Widths:
    """Scale widths by conduction: an axis that conducts better has smaller ones."""
    if isinstance(widths, Rings) or not widths:
        return widths
    return felt_by([weighed(k, axis, widths, xp) for axis, k in enumerate(operator[:-1])], widths)


def weighed(k: Values, axis: int, widths: Sequence[npt.NDArray[Any]], xp: Any) -> float:
    """Sum the conductivities along an axis, K width / area, over all cells."""
    # Three weighted contractions, last axis first, instead of an array of weights.
    scales = [it if a == axis else 1 / it for a, it in enumerate(widths)]
    first, second, third = (xp.asarray(it.astype(np.float32)) for it in scales)
    return float(((k @ third) @ second) @ first)


def felt_by(sums: Sequence[float], widths: Sequence[npt.NDArray[Any]]) -> Widths:
    """Scale widths as `felt` does, from the sum of `weighed` for each axis."""
    found = []
    points = math.prod(len(it) for it in widths)
    for whole, width in zip(sums, widths, strict=True):
        # The mean over the n - 1 inner faces of an axis; its root, because coupling goes as k /
        # h^2.
        mean = whole / points * len(width) / max(len(width) - 1, 1)
        found.append(width / math.sqrt(mean) if mean > 0 else width)
    return tuple(found)


def _thin(widths: Sequence[npt.NDArray[Any]]) -> tuple[dict[int, Places], Widths]:
    """Coarsen graded axes where cells are thinnest: (kept planes by axis, widths of the coarser
    level).
    """
    long = [it for it in widths if len(it) > 1]
    # A single cell has no neighbour to merge with.
    most = _THIN * min(float(it.min()) for it in long)

    while True:
        ways, coarse = {}, list(widths)
        for axis, width in enumerate(widths):
            # Never two planes in a row: an eliminated plane lies between two kept ones.
            gone = np.zeros(len(width), bool)
            for place in range(1, len(width)):
                gone[place] = width[place] <= most and not gone[place - 1]
            if gone.any():
                ways[axis] = np.flatnonzero(~gone)
                # A kept cell takes over the width of the eliminated cell after it.
                coarse[axis] = np.add.reduceat(width, ways[axis])
        if ways:
            return ways, tuple(coarse)
        # No cell was thin enough next to its neighbours: relax the bound.
        most *= _THIN


def _axes(shape: Sequence[int], sums: Sequence[float]) -> list[int]:
    """Choose the axes to coarsen: those whose coupling is within a factor 1 / `_WEAK` of the
    strongest.
    """
    long = [axis for axis, n in enumerate(shape) if n > 1]
    most = max(sums[axis] for axis in long)
    return [axis for axis in long if sums[axis] >= _WEAK * most]


def coarsen(
    operator: Operator, axis: int, xp: Any, places: Places | None = None
) -> tuple[Operator, Shares]:
    """Eliminate planes across an axis: return the operator of the kept planes (every other one by
    default), and the shares of the eliminated ones.
    """
    *conductances, d = (xp.moveaxis(it, axis, 0) for it in operator)
    planes = _Planes.of(len(d), places)
    along = conductances[axis]
    # Couplings of each eliminated plane to the kept one below and above, and its exchange d.
    lower, upper, own = along[planes.kept][planes.behind], along[planes.gone], d[planes.gone]
    whole = lower + upper + own
    joined = lower + upper > 0
    # A point without coupling to either side, such as a fin one point thin, joins the lower one.
    low = xp.where(joined, lower / xp.where(joined, whole, 1), 1)
    high = xp.where(joined, upper / xp.where(joined, whole, 1), 0)

    # Along the axis: conductances in series. Across it: the coupling of an eliminated plane is
    # shared between its neighbours, with the mean share of the two cells that it joins.
    coarse: list[Values] = []
    for other, k in enumerate(conductances):
        if other == axis:
            series = along[planes.kept].copy()
            series[planes.behind] = lower * high
            coarse.append(series if len(series) > 1 else xp.zeros_like(series))
        else:
            place = other + 1 if other < axis else other  # since `axis` is the first
            beside = [(it + xp.roll(it, -1, place)) / 2 for it in (low, high)]
            coarse.append(planes.gathered(k, *beside))
    coarse.append(planes.gathered(d, low, high))

    back = [xp.ascontiguousarray(xp.moveaxis(it, 0, axis)) for it in (*coarse, low, high)]
    return tuple(back[:-2]), (back[-2], back[-1])


@dataclass(frozen=True)
class _Planes:
    """Partition of the planes across the first axis.

    Attributes:
        kept: kept planes.
        gone: eliminated planes.
        behind: those of the kept planes, by their order, that are followed by an eliminated one.
    """

    kept: Any
    gone: Any
    behind: Any

    @classmethod
    # Slices for the regular case avoid copies of whole operators.
    def of(cls, n: int, places: Places | None) -> _Planes:
        if places is None or np.array_equal(places, every_other(n)):
            return cls(slice(0, None, 2), slice(1, None, 2), slice(0, n // 2))  # without copies
        # A gap of two to the next kept plane, or to the end, means an eliminated one between.
        behind = np.flatnonzero(np.diff(places, append=n) == 2)
        return cls(places, places[behind] + 1, behind)

    def gathered(self, values: Values, down: Values, up: Values) -> Values:
        """Return the kept planes plus the shares that eliminated planes give to the kept plane
        below and above.
        """
        found, between = values[self.kept].copy(), values[self.gone]
        found[self.behind] += down * between
        above = up * between
        if isinstance(self.behind, slice):
            found[1:] += above[: len(found) - 1]
            if len(above) == len(found):
                found[0] += above[-1]  # round the end of a ring; else 0
        else:
            found[(self.behind + 1) % len(found)] += above
        return found
