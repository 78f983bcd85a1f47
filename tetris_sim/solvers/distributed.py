"""Distributed linear systems: domain decomposition into slabs, one per rank.

A rank holds the planes of its slab across the first axis, and two ghost planes on either side,
those of its neighbours. The slabs form a ring for every grid: where no heat flows from the last
plane to the first, the conductances between them are 0. Two Jacobi steps need two ghosts, so a
smoother exchanges halos once (docs/decisions/0041).

The planes kept for a coarser level do not depend on where slabs begin. The coarser level follows
from the slab and, on either side, the planes up to the next kept one; ghosts of the coarser
operator then come from neighbours. Once slabs are thin, or few points are left, every rank gathers
the planes of all ranks and continues alone, all with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tetris_sim.solvers.krylov import (
    Arithmetic,
    Cycle,
    LevelWork,
    Weights,
    cycle_of,
    in_single,
    largest_of,
)
from tetris_sim.solvers.multigrid import (
    GridLevel,
    Operator,
    Places,
    Rings,
    Shares,
    Values,
    Widths,
    carry_out,
    felt_by,
    find_ways,
    sums_of,
    weighed,
)

T = TypeVar("T")
GHOSTS = 2
LEAST = 4  # planes of a slab: those of the next level are neighbours' ghosts
TOGETHER = 1 << 15  # points that every rank solves for alone
_INNER = slice(GHOSTS, -GHOSTS)
_DOWN, _UP = 20, 21  # tags of planes that go to the rank below, and above


class PendingMessage(Protocol):
    """A message in transit."""

    def wait(self) -> None:
        """Return when it has arrived."""


class Ranks(Protocol):
    """The communicator of the ranks that solve together; see `scheduler/comm/communicator.py`."""

    rank: int
    size: int

    def tell(self, value: T) -> T:
        """Broadcast the value of rank 0 to every rank."""

    def collect(self, value: T) -> list[T]:
        """Gather the values of all ranks on every rank."""

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """Return the largest of each number over all ranks."""

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> PendingMessage:
        """Send an array."""

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> PendingMessage:
        """Receive into an array."""


class PartArithmetic:
    """The `Arithmetic` of a rank's slab; arrays include its ghost planes.

    Args:
        own: the device of this rank.
        ranks: the communicator, in the order of the slabs.
        starts: the first plane of each slab, and the total number of planes.

    Attributes:
        own, ranks, starts: as given.
        xp: the module of the arrays.
    """

    def __init__(self, own: Arithmetic, ranks: Ranks, starts: Sequence[int]) -> None:
        self.own, self.ranks, self.starts = own, ranks, np.asarray(starts)
        self.xp = own.xp

    def use(self) -> AbstractContextManager[Any]:
        """Make the device of this rank the current one."""
        return self.own.use()

    def release(self) -> None:
        """Release unused memory."""
        self.own.release()

    def share(self, n: int, work: Callable[[int], None]) -> None:
        """Call work(0) to work(n - 1), on this rank."""
        self.own.share(n, work)

    def coarsen(
        self, operator: Operator, axis: int, xp: Any, places: Places | None = None
    ) -> tuple[Operator, Shares]:
        """Coarsen an operator whose planes are all present; see `Arithmetic.coarsen`."""
        return self.own.coarsen(operator, axis, xp, places)

    def level(self, level: GridLevel) -> LevelWork:
        """Return a level that this rank holds completely."""
        return self.own.level(level)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return the work unchanged: messages cannot be recorded in a graph."""
        return work

    def norm(self, r: Values) -> float:
        """Return the root of the sum of r^2."""
        return math.sqrt(self._total(self.own.norm(r[_INNER]) ** 2)[0])

    def residual(self, operator: Operator, f: Values, u: Values, out: Values) -> None:
        """Out = f - A u."""
        self.fill(u)
        self.own.residual(operator, f, u, out)

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Out = A u; return the sum of u out."""
        self.fill(u)
        self.own.apply(operator, u, out)  # whose sum has the ghosts in it
        return self.product(u, out)

    def product(self, u: Values, v: Values) -> float:
        """Return the sum of u v."""
        return self._total(self.own.product(u[_INNER], v[_INNER]))[0]

    def descend(self, length: float, q: Values, r: Values, small: Values) -> float:
        """R -= length q, small = r in single precision; return the sum of r^2."""
        # Ghosts of r and q are never read: `small` becomes the right-hand side of the cycle, whose
        # smoother fills them.
        return self._total(self.own.descend(length, q[_INNER], r[_INNER], small[_INNER]))[0]

    def project(self, z: Values, q: Values, r: Values) -> tuple[float, float]:
        """Return the sums of z q and of z r."""
        first, second = self._total(*self.own.project(z[_INNER], q[_INNER], r[_INNER]))
        return first, second

    def turn(self, z: Values, share: float, length: float, p: Values, u: Values) -> None:
        """U += length p, then p = z + share p."""
        self.own.turn(z[_INNER], share, length, p[_INNER], u[_INNER])

    def cycle(self, operator: Operator, widths: Widths = ()) -> Cycle:
        """Make the multigrid cycle of an operator; collective over all ranks.

        Args:
            operator: the slab's, in double precision, with correct ghosts.
            widths: of all cells, where an axis is graded.
        """
        # One scale for all ranks, or their single-precision operators would not fit together.
        (largest,) = self.ranks.largest((largest_of(operator),))
        small, starts, reached = in_single(operator, largest), self.starts, slice(None)
        shape = (int(starts[-1]), *small[-1].shape[1:])
        if not isinstance(widths, Rings) and widths:
            widths = felt_by(self._weighed(small, widths), widths)

        levels: list[LevelWork] = []
        # All ranks take the same branches: sums and shapes are global.
        while is_shared(shape, starts):
            own = sums_of([it[_INNER] for it in small[:-1]], widths)
            totals = np.array(self._total(*np.concatenate(own).tolist()))
            sums = np.split(totals, np.cumsum([len(it) for it in own])[:-1])
            ways, widths = find_ways(shape, sums, widths)
            kept = ways.get(0, np.arange(shape[0]))
            through, places = self._window(kept, starts)
            near = {axis: places if axis == 0 else it for axis, it in ways.items()}
            moves, coarse = self._coarser(tuple(it[through] for it in small), near)
            level = GridLevel(small, moves, tuple(near.values()), through, reached)
            levels.append(_PartLevel(self.own.level(level), self, math.prod(shape)))

            # Slab boundaries on the coarse level: the number of kept planes below each boundary.
            # `reached` skips the outer ghost, which no finer level fills.
            starts, reached = np.searchsorted(kept, starts), slice(1, -1)
            shape = tuple(len(ways[axis]) if axis in ways else n for axis, n in enumerate(shape))
            small = tuple(self._with_ghosts(it) for it in coarse)

        # Few points remain: every rank solves the gathered problem by itself.
        whole = tuple(self._gathered(it) for it in small)
        within = cycle_of(whole, self.own, widths, levels[-1].points if levels else 0)
        # Return the memory of temporary copies to the device.
        del small, whole
        self.release()
        levels.append(_Gathered(within, self, starts, shape, reached))
        return Cycle(levels, self, within=within)

    def fill(self, values: Values) -> None:
        """Fill the ghost planes from the neighbours (halo exchange)."""
        rank, size = self.ranks.rank, self.ranks.size
        low, high = (rank - 1) % size, (rank + 1) % size
        below, above = (self._room(it) for it in (values[:GHOSTS], values[-GHOSTS:]))

        # Receives are posted before sends, so the order of ranks cannot cause a deadlock.
        messages = [
            self.ranks.receive(below, low, _UP),
            self.ranks.receive(above, high, _DOWN),
            self.ranks.send(self.on_host(values[GHOSTS : 2 * GHOSTS]), low, _DOWN),
            self.ranks.send(self.on_host(values[-2 * GHOSTS : -GHOSTS]), high, _UP),
        ]
        for message in messages:
            message.wait()
        if self.xp is not np:
            values[:GHOSTS], values[-GHOSTS:] = self.xp.asarray(below), self.xp.asarray(above)

    def on_host(self, values: Values) -> npt.NDArray[Any]:
        """Return an array in host memory."""
        return values if self.xp is np else np.asarray(self.xp.asnumpy(values))

    def around(
        self, starts: npt.NDArray[np.int64], rank: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Return the planes of a rank (by default this one) with its ghosts, as indices in the
        ring, for slabs that begin at `starts`.
        """
        rank = self.ranks.rank if rank is None else rank
        first, last = starts[rank : rank + 2]
        return np.asarray(np.arange(first - GHOSTS, last + GHOSTS) % starts[-1])

    def gathered(self, values: Values) -> npt.NDArray[Any]:
        """Return the planes of all ranks, without ghosts, on the host."""
        return np.concatenate(self.ranks.collect(self.on_host(values[_INNER])))

    def _gathered(self, values: Values) -> Values:
        return self.xp.asarray(self.gathered(values))

    def _room(self, values: Values) -> npt.NDArray[Any]:
        return values if self.xp is np else np.empty(values.shape, values.dtype)

    def _total(self, *numbers: float) -> tuple[float, ...]:
        """Sum numbers over all ranks, bitwise identical on each."""
        return tuple(math.fsum(it) for it in zip(*self.ranks.collect(numbers), strict=True))

    def _weighed(
        self, operator: Operator, widths: tuple[npt.NDArray[Any], ...]
    ) -> tuple[float, ...]:
        own = slice(*self.starts[self.ranks.rank : self.ranks.rank + 2])
        near = (widths[0][own], *widths[1:])
        sums = (weighed(k[_INNER], axis, near, self.xp) for axis, k in enumerate(operator[:-1]))
        return self._total(*sums)

    def _window(self, kept: Places, starts: npt.NDArray[np.int64]) -> tuple[slice, Places]:
        """Return (slab planes with the ghosts from which the next level follows, indices of the
        kept ones among these): from the last kept plane before the slab to the first one behind it.
        """
        # Of any two neighbouring planes at least one is kept, so one or two ghosts suffice.
        is_kept = np.isin(self.around(starts), kept)
        first = GHOSTS - 1 if is_kept[GHOSTS - 1] else GHOSTS - 2
        last = len(is_kept) - (GHOSTS - 1 if is_kept[-GHOSTS] else GHOSTS - 2)
        return slice(first, last), np.flatnonzero(is_kept[first:last])

    def _coarser(
        self, operator: Operator, ways: dict[int, Places]
    ) -> tuple[tuple[tuple[int, Shares], ...], Operator]:
        """Coarsen as `carry_out` does, completing the neighbours' planes between the first axis and
        the others.
        """
        along = {0: ways[0]} if 0 in ways else {}
        first, operator = carry_out(operator, along, self.xp, self.own.coarsen)
        # The outermost planes of the window lack contributions from beyond it; the neighbours have
        # these planes complete.
        if along:
            operator = tuple(self._with_ghosts(it)[1:-1] for it in operator)
        across = {axis: it for axis, it in ways.items() if axis != 0}
        others, operator = carry_out(operator, across, self.xp, self.own.coarsen)
        return (*first, *others), operator

    def _with_ghosts(self, values: Values) -> Values:
        """Extend an array with one ghost on each side to one with two, and fill them."""
        found = self.xp.zeros((len(values) + 2, *values.shape[1:]), values.dtype)
        found[1:-1] = values
        self.fill(found)
        return found


class _PartLevel:
    """A distributed level: it fills ghosts from the neighbours before they are read; see
    `LevelWork`.
    """

    def __init__(self, own: LevelWork, part: PartArithmetic, points: int) -> None:
        self._own, self._part, self.points = own, part, points
        self.f, self.u = own.f, own.u
        self.reached_f, self.reached_u = own.reached_f, own.reached_u

    def begin(self, weights: Weights) -> None:
        """Make two Jacobi steps from u = 0."""
        self._part.fill(self.f)
        self._own.begin(weights)

    def smooth(self, weights: Weights) -> None:
        """Make two Jacobi steps."""
        self._part.fill(self.u)
        self._own.smooth(weights)

    def restrict(self, coarse: LevelWork) -> None:
        """Restrict the residual to the right-hand side of the next coarser level."""
        self._part.fill(self.u)
        self._own.restrict(coarse)

    def correct(self, coarse: LevelWork) -> None:
        """Add the interpolated correction of the next coarser level."""
        self._part.fill(coarse.u)
        self._own.correct(coarse)

    def solve(self) -> None:
        """Solve a level of a single point."""
        self._own.solve()


class _Gathered:
    """The level that every rank solves for alone; see `LevelWork`."""

    def __init__(
        self,
        within: Cycle,
        part: PartArithmetic,
        starts: npt.NDArray[np.int64],
        shape: tuple[int, ...],
        reached: slice,
    ) -> None:
        self._within, self._part, self.points = within, part, math.prod(shape)
        self._planes = part.around(starts)
        there = (len(self._planes), *shape[1:])
        self.f, self.u = (part.xp.zeros(there, np.float32) for _ in range(2))
        self.reached_f, self.reached_u = self.f[reached], self.u[reached]

    def begin(self, weights: Weights) -> None:
        """Solve the level."""
        self.solve()

    def smooth(self, weights: Weights) -> None:
        """Do nothing: the level is already solved."""

    def restrict(self, coarse: LevelWork) -> None:
        """Do nothing: the residual is zero."""

    def correct(self, coarse: LevelWork) -> None:
        """Do nothing: no coarser level exists."""

    def solve(self) -> None:
        """Gather the right-hand side, run the inner cycle, and keep the own planes of its
        solution.
        """
        xp = self._part.xp
        self._within.f[...] = xp.asarray(self._part.gathered(self.f))
        self.u[...] = self._within.run()[xp.asarray(self._planes)]


def is_shared(shape: Sequence[int], starts: npt.NDArray[np.int64]) -> bool:
    """Whether a level is large enough to be distributed over the ranks."""
    return int(np.diff(starts).min()) >= LEAST and math.prod(shape) > TOGETHER
