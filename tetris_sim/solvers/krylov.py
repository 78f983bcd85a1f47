"""Conjugate gradients, preconditioned by one multigrid cycle in single precision.

The cycle is a fixed linear operation but for its rounding errors, which the flexible choice of
directions tolerates (Y. Notay, SIAM J. Sci. Comput. 22 (2000) 1444). A smoother of Jacobi steps is
a polynomial of the operator, so using the same one before and after the coarser levels makes the
cycle symmetric.
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

# Weights of a smoother's two Jacobi steps: Chebyshev's for eigenvalues of D^-1 A from 0.5 to 2.
Weights = tuple[float, float]
_WEIGHTS: Weights = (0.562, 1.389)
_MANY = 4096  # points of levels that are gone through twice
_LESS = 0.6  # of the points of the finer one, at most; else going twice takes too long
# Visiting coarse levels twice (a W-cycle) is given up after so many iterations, or sooner if the
# residual is still so large relative to the first one.
_PATIENCE, _SOONER, _SLOWLY = 40, 10, 1e-2
_DROP = 1e-6  # of z r from one iteration to the next: what roundings left along p counts then
Heard = Callable[[], bool]  # whether to interrupt a solution
_RISE = 10.0  # times the least residual since directions began: they have gone wrong


class LeftOffError(Exception):
    """A solution was interrupted on request."""


def nobody() -> bool:
    """Report no interruption: the default for `heard`."""
    return False


class Arithmetic(Protocol):
    """Operations of a device on whole arrays, (n0, n1, n2), with A u = d u - sum of K (u_j - u)."""

    @property
    def xp(self) -> Any:
        """The array module: NumPy, or a module like it."""

    def use(self) -> AbstractContextManager[Any]:
        """Make this device the current one."""

    def release(self) -> None:
        """Release unused memory."""

    def share(self, n: int, work: Callable[[int], None]) -> None:
        """Call work(0) to work(n - 1), by the threads of a team if there is one."""

    def coarsen(
        self, operator: Operator, axis: int, xp: Any, places: Places | None = None
    ) -> tuple[Operator, Shares]:
        """Coarsen an operator in single precision; see `multigrid.coarsen`."""

    def level(self, level: GridLevel) -> LevelWork:
        """Place a level on the device."""

    def cycle(self, operator: Operator, widths: Widths = ()) -> Cycle:
        """Make the cycle of an operator; see `cycle_of`."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work on fixed arrays for repeated replay (on a GPU as a graph)."""

    def norm(self, r: Values) -> float:
        """Return the root of the sum of r^2."""

    def residual(self, operator: Operator, f: Values, u: Values, out: Values) -> None:
        """Out = f - A u."""

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Out = A u; return the sum of u out."""

    def descend(self, length: float, q: Values, r: Values, small: Values) -> float:
        """R -= length q, small = r in single precision; return the sum of r^2."""

    def product(self, u: Values, v: Values) -> float:
        """Return the sum of u v."""

    def project(self, z: Values, q: Values, r: Values) -> tuple[float, float]:
        """Return the sums of z q and of z r; z and r in single precision."""

    def turn(self, z: Values, share: float, length: float, p: Values, u: Values) -> None:
        """U += length p, then p = z + share p; z in single precision."""


class LevelWork(Protocol):
    """A level on a device: its operator and arrays in single precision.

    Attributes:
        points: number of points.
        f: right-hand side.
        u: approximate solution.
        reached_f: the part of f that a finer level sets.
        reached_u: the part of u that a finer level reads.
    """

    points: int
    f: Values
    u: Values
    reached_f: Values
    reached_u: Values

    def begin(self, weights: Weights) -> None:
        """Make two Jacobi steps from u = 0."""

    def smooth(self, weights: Weights) -> None:
        """Make two Jacobi steps."""

    def restrict(self, coarse: Any) -> None:
        """Restrict the residual to the right-hand side of the next coarser level."""

    def correct(self, coarse: Any) -> None:
        """Add the interpolated correction of the next coarser level."""

    def solve(self) -> None:
        """U = f / d, for a single point; 0 if d is 0."""


@dataclass(frozen=True)
class Solved:
    """Statistics of the solution of a linear system.

    Attributes:
        iterations: of conjugate gradients.
        residual: norm of f - A u, relative to the scale of the problem.
    """

    iterations: int
    residual: float


class Cycle:
    """One multigrid cycle: approximately the inverse of an operator, up to a factor.

    Coarse levels are visited twice: lumping weakens the correction on each level, and the second
    visit makes up for it. Both visits are the same, so the cycle stays symmetric. It stays positive
    as long as no coarse level overcorrects by more than a factor of two; where one does, z r < 0
    now and then, and the step along p is still the best one. A solution that converges too slowly
    visits them once.

    Args:
        levels: the finest first; the last one is solved.
        arithmetic: of their device.
        finer: points of a level that is finer still and leads here, if there is one.
        within: solves the last level, if that is another cycle.

    Attributes:
        f: right-hand side of the finest level.
        goes_twice: whether coarse levels are visited twice.
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
        # Twice only where it pays: levels that are not tiny, and much smaller than the next finer
        # one, else two visits cost too much.
        sizes = [finer, *(it.points for it in levels)]
        self._twice = [n >= _MANY and n <= _LESS * finer for finer, n in itertools.pairwise(sizes)]
        self._levels, self._arithmetic, self._within = levels, arithmetic, within
        self.goes_twice = any(self._twice) or (within is not None and within.goes_twice)
        self._run = arithmetic.record(self._visit)
        self.f = levels[0].f

    def run(self) -> Values:
        """Run the cycle: u with A u = f, approximately."""
        self._run()
        return self._levels[0].u

    def go_once(self) -> None:
        """Visit every level once from now on."""
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
        # Pre-smoothing starts from 0, so its first step needs no residual.
        level.begin(_WEIGHTS)
        for _ in range(2 if self._twice[number] else 1):
            level.restrict(coarser)
            self._visit(number + 1)
            level.correct(coarser)
            level.smooth(_WEIGHTS)


def cycle_of(
    operator: Operator, arithmetic: Arithmetic, widths: Widths = (), finer: int = 0
) -> Cycle:
    """Make the cycle of an operator in single precision, on one device.

    Args:
        operator: of the finest level.
        arithmetic: of the device.
        widths: of cells, where an axis is graded.
        finer: see `Cycle`.
    """
    levels = make_hierarchy(operator, arithmetic.xp, arithmetic.coarsen, widths)
    return Cycle([arithmetic.level(it) for it in levels], arithmetic, finer=finer)


def in_single(operator: Operator, largest: float) -> Operator:
    """Convert an operator to single precision, scaled by its largest entry; a cycle is determined
    only up to a factor anyway.
    """
    return tuple((it / (largest or 1.0)).astype(np.float32) for it in operator)


def largest_of(operator: Operator) -> float:
    """Return the largest entry of an operator."""
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
        operator: K by axis, and d; see `multigrid.py`.
        f: right-hand side.
        u: initial guess, overwritten by the solution.
        arithmetic: of the device that holds the arrays.
        cycle: of the operator.
        tolerance: of the norm of f - A u, relative to the scale.
        scale: of this norm.
        limit: of iterations.
        heard: interruption request, polled before each iteration.

    Raises:
        LeftOffError: the solution was interrupted.
        NumericsError: the tolerance was not reached.
    """
    xp = arithmetic.xp
    r = xp.zeros_like(f)
    arithmetic.residual(operator, f, u, r)
    size = arithmetic.norm(r)
    if size <= tolerance * scale:
        return Solved(0, size / scale if scale else 0.0)

    # Scaled to a residual of norm 1: its numbers and those of the cycle then fit single precision.
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
        # Two visits have not paid off: go on with single ones, and restart the directions.
        if cycle.goes_twice and (slow or done == _PATIENCE):
            cycle.go_once()
            z, turned = cycle.run(), 0.0
            _, gain = arithmetic.project(z, q, small)
        if not _is_positive(abs(gain) if cycle.goes_twice else gain):
            break
        # The step length is that of z only if p r is 0 for the last p. It is a rounding of the last
        # z r; where z r falls by orders, as beside points that store 1e6 times as much, it is no
        # less than the new one, so the directions are restarted.
        if abs(gain) < _DROP * gained or size > _RISE * least:
            turned, least = 0.0, size
        # Fused: the update of u along the last p, and the new direction p.
        arithmetic.turn(z, -turned / energy, length, p, u)
        energy, length = arithmetic.apply(operator, p, q), 0.0
        if not _is_positive(energy):
            break
        gained, length = abs(gain), gain / energy
        size = math.sqrt(arithmetic.descend(length, q, r, small))
        least = min(least, size)
        done += 1

    # The last update of u is still pending; with share 0, p is overwritten but never used.
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
