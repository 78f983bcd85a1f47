"""Conjugate gradients, preconditioned by one multigrid cycle in single precision.

The cycle is a fixed linear operation but for its rounding errors, which the flexible choice of
directions tolerates (Y. Notay, SIAM J. Sci. Comput. 22 (2000) 1444). A smoother of Jacobi steps is
a polynomial of the operator, so using the same one before and after the coarser levels makes the
cycle symmetric.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

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
Numbers = npt.NDArray[np.float64]
Heard = Callable[[], bool]  # whether to interrupt a solution
_RISE = 10.0  # times the least residual since directions began: they have gone wrong


# Where the residual has fallen so slowly over the last iterations that more than these in all are
# to be expected, levels follow the links of cells.
_EXPECTED, _LOOKED_BACK = 60, 4
_SOLVED = 2000  # unknowns of the coarsest such level of a larger system
_JOINED = 0.8  # of the unknowns of a level, at most, on the next one
_SHIFT = 1e-12  # of a diagonal, since balances may be singular
SMALL = 20_000  # unknowns of a system that is factorised
_ENOUGH = 0.25  # of a residual: one step leaves less
_STRONG = 0.5  # of the strongest link of a cell: one that may join it to another
_ALONE = 5.0  # times the links of a cell: a diagonal of one that needs no coarser level
_NOISE, _ROUNDS = 1e-4, 8  # in choosing pairs


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


class Preconditioner(Protocol):
    """Approximately the inverse of an operator, up to a factor.

    Attributes:
        f: right-hand side, in the precision of the preconditioner.
        goes_twice: whether it may fail to be positive, unless told to go once.
    """

    f: Values
    goes_twice: bool

    def run(self) -> Values:
        """Return u with A u = f, approximately."""

    def go_once(self) -> None:
        """Be positive from now on."""


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


class AggregationCycle:
    """A cycle over levels of cells that strong links join, for systems that geometric levels do not
    suit: these mix cells on both sides of a curved contact, of an insulation, of a checkerboard.

    Pairs of cells are joined by their strongest link, and pairs of pairs, until few are left, which
    are factorised, as a small system is at once; every level is solved by up to two steps of
    conjugate gradients whose preconditioner is the next one (K-cycle: Y. Notay, Electron. Trans.
    Numer. Anal. 37 (2010) 123). It runs on the host.

    Args:
        operator: K by axis, and d.
        arithmetic: of the device that holds whole arrays.

    Attributes:
        f: right-hand side.
        goes_twice: whether coarse levels may be visited twice; see `Cycle`.
    """

    goes_twice = False

    def __init__(self, operator: Operator, arithmetic: Arithmetic) -> None:
        from scipy.sparse.csgraph import connected_components
        from scipy.sparse.linalg import splu

        host = [it if isinstance(it, np.ndarray) else it.get() for it in operator]
        self._xp = arithmetic.xp
        # The passes of CPUs take double precision as well, those of GPUs are made for single.
        self._dtype = np.float64 if self._xp is np else np.float32
        self.f = self._xp.zeros(host[-1].shape, self._dtype)
        self._levels: list[_Aggregated] = []
        matrix = matrix_of(host)
        # A part that exchanges nothing keeps its mean: its balance does not determine it.
        _, self._parts = connected_components(matrix, directed=False)
        self._sizes = np.bincount(self._parts)
        self._floats = np.bincount(self._parts, host[-1].reshape(-1)) == 0
        while matrix.shape[0] > (SMALL if matrix.shape[0] == host[-1].size else _SOLVED):
            level = _Aggregated(matrix)
            if level.matrix_below.shape[0] > _JOINED * matrix.shape[0]:
                break
            self._levels.append(level)
            matrix = level.matrix_below
        matrix.setdiag(matrix.diagonal() * (1 + _SHIFT) + (matrix.diagonal() == 0))
        options = {"SymmetricMode": True}
        self._solve = splu(matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", options=options).solve

    def run(self) -> Values:
        """Return u with A u = f, approximately."""
        f = self.f if isinstance(self.f, np.ndarray) else self.f.get()
        u = self._visit(0, f.reshape(-1).astype(np.float64))
        if self._floats.any():
            means = np.bincount(self._parts, u) / self._sizes
            u -= np.where(self._floats, means, 0.0)[self._parts]
        return self._xp.asarray(u.reshape(f.shape).astype(self._dtype))

    def go_once(self) -> None:
        """Nothing changes: see `Cycle.go_once`."""

    def _visit(self, number: int, f: Numbers) -> Numbers:
        if number == len(self._levels):
            return np.asarray(self._solve(f))
        level = self._levels[number]
        u = level.smooth(np.zeros_like(f), f)
        coarse = self._below(number, level.restrict(f - level.matrix @ u))
        return level.smooth(u + level.prolong(coarse), f)

    def _below(self, number: int, f: Numbers) -> Numbers:
        """Solve the next coarser level by one or two steps of conjugate gradients."""
        first = self._visit(number + 1, f)
        if number + 1 == len(self._levels):
            return first
        matrix = self._levels[number].matrix_below
        v = matrix @ first
        energy, gain = float(first @ v), float(first @ f)
        if not _is_positive(energy):
            return first
        length = gain / energy
        left = f - length * v
        if np.linalg.norm(left) <= _ENOUGH * np.linalg.norm(f):
            return np.asarray(length * first)

        second = self._visit(number + 1, left)
        w = matrix @ second
        mixed, more = float(second @ v), float(second @ left)
        rest = float(second @ w) - mixed * mixed / energy
        if not _is_positive(rest):
            return np.asarray(length * first)
        step = more / rest
        return np.asarray((length - mixed * step / energy) * first + step * second)


class _Aggregated:
    """A level of `AggregationCycle`.

    Args:
        matrix: sparse, of the level.

    Attributes:
        matrix: of the level.
        matrix_below: of the next coarser one.
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        diagonal = matrix.diagonal()
        self._inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
        below, joined = matrix, np.arange(matrix.shape[0])
        for _ in range(2):
            pairs, n = _pair_up(below)
            below = _joined(below, pairs, n)
            joined = np.append(pairs, n)[joined]
        self._joined, self._n, self.matrix_below = joined, n, below

    def smooth(self, u: Numbers, f: Numbers) -> Numbers:
        """Make two Jacobi steps."""
        for weight in _WEIGHTS:
            u = u + weight * self._inverse * (f - self.matrix @ u)
        return u

    def restrict(self, r: Numbers) -> Numbers:
        """Add up what cells of a coarser cell lack."""
        return np.asarray(np.bincount(self._joined, r, self._n + 1)[: self._n], np.float64)

    def prolong(self, u: Numbers) -> Numbers:
        """Give cells the value of their coarser cell."""
        return np.append(u, 0.0)[self._joined]


def matrix_of(operator: Sequence[Numbers]) -> Any:
    """The sparse matrix of an operator, (n, n) in CSR form."""
    from scipy.sparse import coo_matrix

    *links, d = operator
    cells = np.arange(d.size).reshape(d.shape)
    diagonal, entries = d.copy(), []
    for axis, k in enumerate(links):
        # The link of the last cell of a ring leads to the first; elsewhere it is 0.
        diagonal += k + np.roll(k, 1, axis)
        joined = k > 0
        one, other, between = cells[joined], np.roll(cells, -1, axis)[joined], -k[joined]
        entries += [(one, other, between), (other, one, between)]
    entries.append((cells.reshape(-1), cells.reshape(-1), diagonal.reshape(-1)))
    rows, columns, values = (np.concatenate(it) for it in zip(*entries, strict=True))
    return coo_matrix((values, (rows, columns)), shape=(d.size, d.size)).tocsr()


def _pair_up(matrix: Any) -> tuple[Places, int]:
    """Join cells in pairs by their strongest links: the number of each cell's pair, and how many
    there are, which is the number of cells of no pair: those that exchange much more with what is
    given than with others.

    A link is as strong as it is beside the smaller diagonal of its two cells.
    """
    it, diagonal, n = matrix.tocoo(), matrix.diagonal(), matrix.shape[0]
    off = (it.row != it.col) & (it.data < 0)
    rows, columns, links = it.row[off].astype(np.int64), it.col[off].astype(np.int64), -it.data[off]
    alone = diagonal >= _ALONE * np.bincount(rows, links, n)
    strength = links / np.minimum(diagonal[rows], diagonal[columns])
    # Ties would let every cell choose its lower neighbour, and hardly any the same as it is chosen
    # by: a little noise, the same from both sides, breaks them.
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    strength *= 1 + _NOISE * ((low * 7919 + high * 104729) % 1009)
    best = _largest(rows, strength, n)
    strong = strength >= _STRONG * np.minimum(best[rows], best[columns])
    strong &= ~(alone[rows] | alone[columns])

    mate = np.full(n, -1)
    for _ in range(_ROUNDS):
        rows, columns, strength = rows[strong], columns[strong], strength[strong]
        chosen = np.full(n, -1)
        first = strength == _largest(rows, strength, n)[rows]
        chosen[rows[first]] = columns[first]
        mutual = (chosen >= 0) & (chosen[chosen] == np.arange(n))
        mate[mutual] = chosen[mutual]
        strong = (mate[rows] < 0) & (mate[columns] < 0)

    # The lower cell of a pair numbers it.
    leads = ~alone & ((mate < 0) | (mate > np.arange(n)))
    number = np.cumsum(leads) - 1
    count = int(leads.sum())
    pairs = np.where(leads, number, number[mate])
    return np.where(alone, count, pairs), count


def _largest(rows: Places, values: Numbers, n: int) -> Numbers:
    """The largest value of each row, 0 of empty ones; rows ascend."""
    found = np.zeros(n)
    if len(rows):
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        found[rows[starts]] = np.maximum.reduceat(values, starts)
    return found


def _joined(matrix: Any, pairs: Places, n: int) -> Any:
    """The matrix of groups of cells: sums over the cells of each; `n` marks cells of none."""
    from scipy.sparse import coo_matrix

    it = matrix.tocoo()
    rows, columns = pairs[it.row], pairs[it.col]
    inner = (rows < n) & (columns < n)
    entries = (it.data[inner], (rows[inner], columns[inner]))
    return coo_matrix(entries, shape=(n, n)).tocsr()


def conjugate_gradients(
    operator: Operator,
    f: Values,
    u: Values,
    arithmetic: Arithmetic,
    cycle: Preconditioner,
    *,
    tolerance: float,
    scale: float,
    limit: int,
    heard: Heard = nobody,
    other: Callable[[], Preconditioner] | None = None,
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
        other: makes another cycle of the operator, for systems that converge slowly.

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
    sizes = [size]
    while size > wanted and done < limit:
        if heard():
            raise LeftOffError
        if other is not None and _is_slow(sizes, wanted):
            # The directions so far are not conjugate to what comes: begin anew, from u as it is.
            arithmetic.turn(small, 0.0, length, p, u)
            cycle, other, energy, length, q[:] = other(), None, 1.0, 0.0, 0.0
            small = cycle.f
            small[:] = r
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
        sizes.append(size)

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


def _is_slow(sizes: Sequence[float], wanted: float) -> bool:
    """Whether the norms of residuals so far, from the first, promise too many iterations."""
    done = len(sizes) - 1
    if done < 2 * _LOOKED_BACK:
        return False
    rate = math.log(max(sizes[-1] / sizes[-1 - _LOOKED_BACK], 1e-300)) / _LOOKED_BACK
    return rate >= 0 or done + math.log(wanted / sizes[-1]) / rate > _EXPECTED


def _is_positive(number: float) -> bool:
    return 0 < number < math.inf
