"""Conjugate gradients, preconditioned by one cycle of multigrid in single precision.

The cycle is a fixed linear operation but for its roundings, which the flexible choice of directions
forgives (Y. Notay, SIAM J. Sci. Comput. 22 (2000) 1444). A smoother of Jacobi steps is a polynomial
of the operator, so the same before and after the coarser levels makes the cycle symmetric.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.solvers.multigrid import (
    GridLevel,
    Operator,
    Places,
    Shares,
    Values,
    Widths,
    make_hierarchy,
)

# Of the Jacobi steps of a smoother: Chebyshev's for eigenvalues of D^-1 A from 0.5 to 2.
Weights = tuple[float, float]
_WEIGHTS: Weights = (0.562, 1.389)
_MANY = 4096  # points of levels that are gone through twice
_LESS = 0.6  # of the points of the finer one, at most; else going twice takes too long
# Going twice is taken to do no good after so many iterations, or sooner where the residual is still
# so large, relative to the first one.
_PATIENCE, _SOONER, _SLOWLY = 40, 10, 1e-2
_DROP = 1e-6  # of z r from one iteration to the next: what roundings left along p counts then
Heard = Callable[[], bool]  # whether somebody wants a solution to be left off
_RISE = 10.0  # times the least residual since directions began: they have gone wrong


class LeftOffError(Exception):
    """A solution was left off, because somebody asked for it."""


def nobody() -> bool:
    """Whether somebody asked to leave off."""
    return False


class Arithmetic(Protocol):
    """What a device does to whole arrays, (n0, n1, n2); A u = d u - sum of K (u_j - u)."""

    @property
    def xp(self) -> Any:
        """NumPy, or a module like it, of the arrays."""

    def use(self) -> AbstractContextManager[Any]:
        """Make this device the one that is meant."""

    def release(self) -> None:
        """Give memory back that nobody uses."""

    def share(self, n: int, work: Callable[[int], None]) -> None:
        """Call work(0) to work(n - 1), by the threads of a team if there is one."""

    def coarsen(
        self, operator: Operator, axis: int, xp: Any, places: Places | None = None
    ) -> tuple[Operator, Shares]:
        """See `hierarchy.coarsen`, in single precision."""

    def level(self, level: GridLevel) -> LevelWork:
        """A level where it is worked on."""

    def cycle(self, operator: Operator, widths: Widths = ()) -> Cycle:
        """That of an operator; see `cycle_of`."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """The same work, always on the same arrays, to be called again and again."""

    def norm(self, r: Values) -> float:
        """The root of the sum of r^2."""

    def residual(self, operator: Operator, f: Values, u: Values, out: Values) -> None:
        """Out = f - A u."""

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Out = A u; the sum of u out."""

    def descend(self, length: float, q: Values, r: Values, small: Values) -> float:
        """R -= length q, small = r in single precision; the sum of r^2."""

    def product(self, u: Values, v: Values) -> float:
        """The sum of u v."""

    def project(self, z: Values, q: Values, r: Values) -> tuple[float, float]:
        """The sums of z q and of z r; z and r in single precision."""

    def turn(self, z: Values, share: float, length: float, p: Values, u: Values) -> None:
        """U += length p, then p = z + share p; z in single precision."""


class LevelWork(Protocol):
    """A level on a device: its operator and arrays in single precision.

    Attributes:
        points: how many it has.
        f: right-hand side.
        u: what solves it, about.
        reached_f: the part of f that a finer level gives.
        reached_u: the part of u that a finer level takes.
    """

    points: int
    f: Values
    u: Values
    reached_f: Values
    reached_u: Values

    def begin(self, weights: Weights) -> None:
        """Two Jacobi steps from u = 0."""

    def smooth(self, weights: Weights) -> None:
        """Two Jacobi steps."""

    def restrict(self, coarse: Any) -> None:
        """Make what is left of f the right-hand side of the next coarser level."""

    def correct(self, coarse: Any) -> None:
        """Add what the next coarser level found."""

    def solve(self) -> None:
        """U = f / d, of a single point; 0 without a d."""


@dataclass(frozen=True)
class Solved:
    """How a linear system was solved.

    Attributes:
        iterations: of conjugate gradients.
        residual: norm of f - A u, by the scale of the problem.
    """

    iterations: int
    residual: float


class Cycle:
    """One cycle through all levels: about the inverse of an operator, up to a factor.

    Coarse levels are gone through twice: what is lost where points are lumped is lost again on each
    level, and the second time makes good for it. Both times are the same, so the cycle stays
    symmetric. It stays positive as long as no coarse level answers more than twice as much as it
    should; where one does, z r < 0 now and then, and the step along p is the best all the same. A
    solution that hardly gets on goes through them once.

    Args:
        levels: the finest first; the last one is solved.
        arithmetic: of the device where they are.
        finer: points of a level that is finer still and leads here, if there is one.
        within: what the last level is solved by, if it is another cycle.

    Attributes:
        f: what it is applied to, of the finest level.
        goes_twice: whether coarse levels are gone through twice.
    """

    goes_twice: bool

    def __init__(
        self,
        levels: list[LevelWork],
        arithmetic: Arithmetic,
        *,
        finer: int = 0,
        within: Cycle | None = None,
    ) -> None:
        sizes = [finer, *(it.points for it in levels)]
        self._twice = [n >= _MANY and n <= _LESS * finer for finer, n in itertools.pairwise(sizes)]
        self._levels, self._arithmetic, self._within = levels, arithmetic, within
        self.goes_twice = any(self._twice) or (within is not None and within.goes_twice)
        self._run = arithmetic.record(self._visit)
        self.f = levels[0].f

    def run(self) -> Values:
        """U with about A u = f."""
        self._run()
        return self._levels[0].u

    def go_once(self) -> None:
        """Go through all levels once from now on."""
        self.goes_twice, self._twice = False, [False] * len(self._levels)
        if self._within is not None:
            self._within.go_once()
        self._run = self._arithmetic.record(self._visit)

    def _visit(self, number: int = 0) -> None:
        level = self._levels[number]
        if number + 1 == len(self._levels):
            level.solve()
            return
        coarser = self._levels[number + 1]
        level.begin(_WEIGHTS)
        for _ in range(2 if self._twice[number] else 1):
            level.restrict(coarser)
            self._visit(number + 1)
            level.correct(coarser)
            level.smooth(_WEIGHTS)


def cycle_of(
    operator: Operator, arithmetic: Arithmetic, widths: Widths = (), finer: int = 0
) -> Cycle:
    """The cycle of an operator in single precision, on one device.

    Args:
        operator: of the finest level.
        arithmetic: of the device.
        widths: of cells, where an axis is graded.
        finer: see `Cycle`.
    """
    levels = make_hierarchy(operator, arithmetic.xp, arithmetic.coarsen, widths)
    return Cycle([arithmetic.level(it) for it in levels], arithmetic, finer=finer)


def in_single(operator: Operator, largest: float) -> Operator:
    """An operator by its largest entry: the answers of a cycle are known up to a factor."""
    return tuple((it / (largest or 1.0)).astype(np.float32) for it in operator)


def largest_of(operator: Operator) -> float:
    """Its largest entry."""
    return max(float(it.max()) for it in operator)


def conjugate_gradients(
    operator: Operator,
    f: Values,
    u: Values,
    arithmetic: Arithmetic,
    cycle: Cycle,
    *,
    tolerance: float,
    scale: float,
    limit: int,
    heard: Heard = nobody,
) -> Solved:
    """Solve A u = f.

    Args:
        operator: K by axis, and d; see `hierarchy.py`.
        f: right-hand side.
        u: a guess; it becomes the solution.
        arithmetic: of the device where the arrays are.
        cycle: of the operator.
        tolerance: of the norm of f - A u, relative to the scale.
        scale: of this norm.
        limit: of iterations.
        heard: asked before each of them.

    Raises:
        LeftOffError: this was heard.
        NumericsError: the tolerance was not reached.
    """
    xp = arithmetic.xp
    r = xp.zeros_like(f)
    arithmetic.residual(operator, f, u, r)
    size = arithmetic.norm(r)
    if size <= tolerance * scale:
        return Solved(0, size / scale if scale else 0.0)

    # In single precision, numbers are those of a residual of norm 1.
    begun = size
    r /= begun
    u /= begun
    q, p, small = xp.zeros_like(f), xp.zeros_like(f), cycle.f
    small[:] = r
    done, energy, length, wanted = 0, 1.0, 0.0, tolerance * scale / begun
    size = least = 1.0
    gained = 0.0
    while size > wanted and done < limit:
        if heard():
            raise LeftOffError
        z = cycle.run()
        turned, gain = arithmetic.project(z, q, small)
        slow = done == _SOONER and size > _SLOWLY
        if cycle.goes_twice and (slow or done == _PATIENCE):
            cycle.go_once()
            z, turned = cycle.run(), 0.0
            _, gain = arithmetic.project(z, q, small)
        if not _is_positive(abs(gain) if cycle.goes_twice else gain):
            break
        # The length is that of z only if p r is 0 for the last p. It is a rounding of the last z r;
        # where z r falls by orders, as beside points that store 1e6 times as much, this is no less
        # than the new one, so directions begin again.
        if abs(gain) < _DROP * gained or size > _RISE * least:
            turned, least = 0.0, size
        arithmetic.turn(z, -turned / energy, length, p, u)
        energy, length = arithmetic.apply(operator, p, q), 0.0
        if not _is_positive(energy):
            break
        gained, length = abs(gain), gain / energy
        size = math.sqrt(arithmetic.descend(length, q, r, small))
        least = min(least, size)
        done += 1
    arithmetic.turn(small, 0.0, length, p, u)
    u *= begun

    residual = size * begun / scale
    if not size <= wanted:
        msg = (
            f"after {done} iterations the heat balance is off by {residual:.3g} of what it was, "
            f"and {tolerance:.3g} was wanted; take a larger tolerance, or a grid whose cells and "
            "conductivities differ less"
        )
        raise NumericsError(msg)
    return Solved(done, residual)


def _is_positive(number: float) -> bool:
    return 0 < number < math.inf
