"""A level and the coarser ones below it: geometric multigrid for heat balances.

The operator of a level is A u = d u - sum of K (u_j - u), K between neighbours. Along an axis the
even points are kept. A point between two kept ones takes what its balance along the axis gives,
(K_low u_low + K_high u_high) / (K_low + K_high + d), so that jumps of conductivity, contacts and
walls are respected; eliminating it puts its conductances in series, K_low K_high / (K_low + K_high
+ d), and shares what it has across the axis, and d, between its two neighbours. In one dimension
that is exact; in more it keeps seven points and is never too weak (black box multigrid, lumped:
J. E. Dendy, J. Comput. Phys. 48 (1982) 366).

Axes along which points are coupled much less than along others wait until these have caught up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Values = Any  # arrays of NumPy or CuPy
Operator = tuple[Values, ...]  # k0, k1, k2, d, each (n0, n1, n2)
Shares = tuple[Values, Values]  # of the lower and of the upper neighbour, of points between
Coarsen = Callable[[Operator, int, Any], tuple[Operator, Shares]]
_WEAK = 0.25  # of the strongest axis' share in the conductances


@dataclass(frozen=True)
class Level:
    """A level, and how the next coarser one follows from it.

    Attributes:
        operator: K by axis, of a point and the next one, the last one's leading to the first; d.
        moves: (axis, (share of the lower neighbour, of the upper)) in the order of coarsening.
    """

    operator: Operator
    moves: tuple[tuple[int, Shares], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Points per axis."""
        return tuple(self.operator[-1].shape)


def make_hierarchy(operator: Operator, xp: Any, by: Coarsen | None = None) -> list[Level]:
    """All levels, down to one point.

    Args:
        operator: of the finest.
        xp: NumPy or CuPy.
        by: what a device does instead of `coarsen`, to the same result but for roundings.
    """
    levels = []
    while math.prod(operator[-1].shape) > 1:
        moves, coarser = [], operator
        for axis in _axes(operator):
            coarser, shares = (by or coarsen)(coarser, axis, xp)
            moves.append((axis, shares))
        levels.append(Level(operator, tuple(moves)))
        operator = coarser
    levels.append(Level(operator, ()))
    return levels


def _axes(operator: Operator) -> list[int]:
    """The axes to coarsen."""
    shape = operator[-1].shape
    sums = [float(k.mean()) if n > 1 else 0.0 for n, k in zip(shape, operator, strict=False)]
    long = [axis for axis, n in enumerate(shape) if n > 1]
    return [axis for axis in long if sums[axis] >= _WEAK * max(sums)]


def coarsen(operator: Operator, axis: int, xp: Any) -> tuple[Operator, Shares]:
    """The operator of every other plane across an axis, and the shares of those between."""
    *conductances, d = (xp.moveaxis(it, axis, 0) for it in operator)
    kept, between = (len(d) + 1) // 2, len(d) // 2
    along = conductances[axis]
    lower, upper, own = along[0::2][:between], along[1::2], d[1::2]
    whole = lower + upper + own
    joined = lower + upper > 0
    # What touches neither side, a fin as thin as a point, goes with the lower.
    low = xp.where(joined, lower / xp.where(joined, whole, 1), 1)
    high = xp.where(joined, upper / xp.where(joined, whole, 1), 0)

    coarse: list[Values] = []
    for other, k in enumerate(conductances):
        if other == axis:
            series = along[0::2].copy()
            series[:between] = lower * high
            coarse.append(series if kept > 1 else xp.zeros_like(series))
        else:
            place = other + 1 if other < axis else other  # since `axis` is the first
            beside = [(it + xp.roll(it, -1, place)) / 2 for it in (low, high)]
            coarse.append(_gathered(k, *beside))
    coarse.append(_gathered(d, low, high))

    back = [xp.ascontiguousarray(xp.moveaxis(it, 0, axis)) for it in (*coarse, low, high)]
    return tuple(back[:-2]), (back[-2], back[-1])


def _gathered(values: Values, down: Values, up: Values) -> Values:
    """Those of kept planes, and what planes between give to the one below and the one above."""
    found, between = values[0::2].copy(), values[1::2]
    found[: len(between)] += down * between
    above = up * between
    found[1:] += above[: len(found) - 1]
    if len(above) == len(found):
        found[0] += above[-1]  # round the end of a ring; else 0
    return found
