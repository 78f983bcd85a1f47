"""Conjugate gradients, preconditioned by one cycle of multigrid in single precision.

The cycle is a fixed linear operation but for its roundings, which the flexible choice of directions
forgives (Y. Notay, SIAM J. Sci. Comput. 22 (2000) 1444). A smoother of Jacobi steps is a polynomial
of the operator, so the same before and after the coarser levels makes the cycle symmetric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from tetris_sim.errors import NumericsError
from tetris_sim.solvers.hierarchy import Level, Operator, Shares, Values, make_hierarchy

# Of the Jacobi steps of a smoother: Chebyshev's for eigenvalues of D^-1 A from 0.5 to 2.
_WEIGHTS = (0.562, 1.389)
_TINY = 1e-30  # of a diagonal, relative to the largest


class Arithmetic(Protocol):
    """What a device does to whole arrays, (n0, n1, n2); A u = d u - sum of K (u_j - u)."""

    @property
    def xp(self) -> Any:
        """NumPy, or a module like it, of the arrays."""

    def relax(self, operator: Operator, f: Values, u: Values, weight: float, out: Values) -> None:
        """Out = u + weight (f - A u) / diagonal."""

    def begin(self, operator: Operator, f: Values, weight: float, out: Values) -> None:
        """`relax` of u = 0."""

    def residual(self, operator: Operator, f: Values, u: Values, out: Values) -> None:
        """Out = f - A u."""

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Out = A u; the sum of u out."""

    def restrict(self, axis: int, fine: Values, shares: Shares, out: Values) -> None:
        """Out = fine of every other plane across an axis, and shares of the planes between."""

    def prolong(self, axis: int, coarse: Values, shares: Shares, out: Values) -> None:
        """Out += the transpose of `restrict`."""

    def descend(
        self, length: float, p: Values, q: Values, u: Values, r: Values, small: Values
    ) -> float:
        """U += length p, r -= length q, small = r in single precision; the sum of r^2."""

    def project(self, z: Values, r: Values) -> float:
        """The sum of z r, z in single precision."""

    def turn(self, z: Values, share: float, p: Values) -> None:
        """P = z + share p, z in single precision."""


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
    """One V-cycle: about the inverse of an operator, up to a factor.

    Attributes:
        f: what it is applied to, of the finest level.
    """

    def __init__(self, operator: Operator, arithmetic: Arithmetic) -> None:
        xp, self._arithmetic = arithmetic.xp, arithmetic
        largest = max(float(it.max()) for it in operator) or 1.0
        self._levels = make_hierarchy(
            tuple((it / largest).astype(xp.float32) for it in operator), xp
        )
        self._work = [_Work(level, xp) for level in self._levels]
        self.f = self._work[0].f

    def run(self, number: int = 0) -> Values:
        """U with about A u = f, of a level."""
        level, work, device = self._levels[number], self._work[number], self._arithmetic
        if not level.moves:
            d = level.operator[-1]
            whole = float(d.max()) > _TINY
            work.u[:] = work.f / d if whole else 0.0
            return work.u

        device.begin(level.operator, work.f, _WEIGHTS[0], work.u)
        u = self._smooth(number, work.u, _WEIGHTS[1:])
        spare = work.v if u is work.u else work.u
        device.residual(level.operator, work.f, u, spare)

        fields = [spare, *work.between, self._work[number + 1].f]
        for k, (axis, shares) in enumerate(level.moves):
            device.restrict(axis, fields[k], shares, fields[k + 1])
        fields = [u, *work.between, self.run(number + 1)]
        for it in work.between:
            it[:] = 0
        for k, (axis, shares) in reversed(list(enumerate(level.moves))):
            device.prolong(axis, fields[k + 1], shares, fields[k])
        return self._smooth(number, u, _WEIGHTS)

    def _smooth(self, number: int, u: Values, weights: tuple[float, ...]) -> Values:
        level, work = self._levels[number], self._work[number]
        for weight in weights:
            spare = work.v if u is work.u else work.u
            self._arithmetic.relax(level.operator, work.f, u, weight, spare)
            u = spare
        return u


class _Work:
    """The arrays of a level: its right-hand side, two for what solves it, and those on the way to
    the next level.
    """

    def __init__(self, level: Level, xp: Any) -> None:
        self.f, self.u, self.v = (xp.zeros(level.shape, xp.float32) for _ in range(3))
        self.between = []
        shape = list(level.shape)
        for axis, _ in level.moves[:-1]:
            shape[axis] = (shape[axis] + 1) // 2
            self.between.append(xp.zeros(shape, xp.float32))


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

    Raises:
        NumericsError: the tolerance was not reached.
    """
    xp = arithmetic.xp
    r, q, p, small = xp.zeros_like(f), xp.zeros_like(f), xp.zeros_like(f), None
    arithmetic.residual(operator, f, u, r)
    size = float(xp.linalg.norm(r.reshape(-1)))
    if size <= tolerance * scale:
        return Solved(0, size / scale if scale else 0.0)

    # In single precision, numbers are those of a residual of norm 1.
    begun = size
    r /= begun
    u /= begun
    small = cycle.f
    small[:] = r
    done, energy, wanted = 0, 1.0, tolerance * scale / begun
    size = 1.0
    while size > wanted and done < limit and math.isfinite(size):
        z = cycle.run()
        share = -arithmetic.project(z, q) / energy if done else 0.0
        arithmetic.turn(z, share, p)
        energy = arithmetic.apply(operator, p, q)
        if not energy > 0:
            break
        size = math.sqrt(arithmetic.descend(arithmetic.project(p, r) / energy, p, q, u, r, small))
        done += 1
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
