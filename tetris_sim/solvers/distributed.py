"""A linear system in slabs, one for each rank.

A rank has the planes of its slab across the first axis, and beyond them on each side two ghosts,
those of its neighbours. The slabs are a ring whatever the grid is: where nothing flows from the
last plane to the first, the conductances between them are 0. Two ghosts are what two Jacobi steps
need, so a smoother asks its neighbours once.

Planes that are kept for a coarser level are so wherever slabs begin. The coarser level follows from
the slab and, on each side, the planes as far as the next one that is kept; then ghosts of the
coarser operator come from neighbours. Once slabs are thin, or few points are left, every rank
gathers what the others have and goes on alone, all with the same answer.
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
    Shares,
    Values,
    Widths,
    carry_out,
    felt_by,
    find_ways,
    weighed,
)

T = TypeVar("T")
GHOSTS = 2
LEAST = 4  # planes of a slab: those of the next level are neighbours' ghosts
TOGETHER = 1 << 15  # points that every rank solves for alone
_INNER = slice(GHOSTS, -GHOSTS)
_DOWN, _UP = 20, 21  # tags of planes that go to the rank below, and above


class PendingMessage(Protocol):
    """A message on its way."""

    def wait(self) -> None:
        """Return when it has arrived."""


class Ranks(Protocol):
    """Who solves together; see `scheduler/comm/communicator.py`."""

    rank: int
    size: int

    def tell(self, value: T) -> T:
        """What rank 0 gives, on every rank."""

    def collect(self, value: T) -> list[T]:
        """What every rank gives, on every rank."""

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """The largest of each number."""

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> PendingMessage:
        """Send an array."""

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> PendingMessage:
        """Fill an array."""


class PartArithmetic:
    """What `gradients.py` asks of a device, for the slab of a rank; arrays have its ghosts too.

    Args:
        own: the device of this rank.
        ranks: who solves together, in the order of their slabs.
        starts: the first plane of each slab, and the number of planes of all.

    Attributes:
        own, ranks, starts: as given.
        xp: the module of the arrays.
    """

    def __init__(self, own: Arithmetic, ranks: Ranks, starts: Sequence[int]) -> None:
        self.own, self.ranks, self.starts = own, ranks, np.asarray(starts)
        self.xp = own.xp

    def use(self) -> AbstractContextManager[Any]:
        """Make the device of this rank the one that is meant."""
        return self.own.use()

    def release(self) -> None:
        """Give memory back that nobody uses."""
        self.own.release()

    def share(self, n: int, work: Callable[[int], None]) -> None:
        """Call work(0) to work(n - 1), on this rank."""
        self.own.share(n, work)

    def coarsen(
        self, operator: Operator, axis: int, xp: Any, places: Places | None = None
    ) -> tuple[Operator, Shares]:
        """Of planes that are all there."""
        return self.own.coarsen(operator, axis, xp, places)

    def level(self, level: GridLevel) -> LevelWork:
        """One that this rank has whole."""
        return self.own.level(level)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """The same work: messages cannot be recorded."""
        return work

    def norm(self, r: Values) -> float:
        """The root of the sum of r^2."""
        return math.sqrt(self._total(self.own.norm(r[_INNER]) ** 2)[0])

    def residual(self, operator: Operator, f: Values, u: Values, out: Values) -> None:
        """Out = f - A u."""
        self.fill(u)
        self.own.residual(operator, f, u, out)

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Out = A u; the sum of u out."""
        self.fill(u)
        self.own.apply(operator, u, out)  # whose sum has the ghosts in it
        return self.product(u, out)

    def product(self, u: Values, v: Values) -> float:
        """The sum of u v."""
        return self._total(self.own.product(u[_INNER], v[_INNER]))[0]

    def descend(self, length: float, q: Values, r: Values, small: Values) -> float:
        """R -= length q, small = r in single precision; the sum of r^2."""
        return self._total(self.own.descend(length, q[_INNER], r[_INNER], small[_INNER]))[0]

    def project(self, z: Values, q: Values, r: Values) -> tuple[float, float]:
        """The sums of z q and of z r."""
        first, second = self._total(*self.own.project(z[_INNER], q[_INNER], r[_INNER]))
        return first, second

    def turn(self, z: Values, share: float, length: float, p: Values, u: Values) -> None:
        """U += length p, then p = z + share p."""
        self.own.turn(z[_INNER], share, length, p[_INNER], u[_INNER])

    def cycle(self, operator: Operator, widths: Widths = ()) -> Cycle:
        """That of an operator; all ranks call this alike.

        Args:
            operator: the slab's, in double precision, with right ghosts.
            widths: of all cells, where an axis is graded.
        """
        (largest,) = self.ranks.largest((largest_of(operator),))
        small, starts, reached = in_single(operator, largest), self.starts, slice(None)
        shape = (int(starts[-1]), *small[-1].shape[1:])
        if widths:
            widths = felt_by(self._weighed(small, widths), widths)

        levels: list[LevelWork] = []
        while is_shared(shape, starts):
            sums = self._total(*(float(it[_INNER].sum()) for it in small[:-1]))
            ways, widths = find_ways(shape, sums, widths)
            kept = ways.get(0, np.arange(shape[0]))
            through, places = self._window(kept, starts)
            near = {axis: places if axis == 0 else it for axis, it in ways.items()}
            moves, coarse = self._coarser(tuple(it[through] for it in small), near)
            level = GridLevel(small, moves, tuple(near.values()), through, reached)
            levels.append(_PartLevel(self.own.level(level), self, math.prod(shape)))

            starts, reached = np.searchsorted(kept, starts), slice(1, -1)
            shape = tuple(len(ways[axis]) if axis in ways else n for axis, n in enumerate(shape))
            small = tuple(self._with_ghosts(it) for it in coarse)

        whole = tuple(self._gathered(it) for it in small)
        within = cycle_of(whole, self.own, widths, levels[-1].points if levels else 0)
        del small, whole
        self.release()
        levels.append(_Gathered(within, self, starts, shape, reached))
        return Cycle(levels, self, within=within)

    def fill(self, values: Values) -> None:
        """Take the ghosts from the neighbours."""
        rank, size = self.ranks.rank, self.ranks.size
        low, high = (rank - 1) % size, (rank + 1) % size
        below, above = (self._room(it) for it in (values[:GHOSTS], values[-GHOSTS:]))
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
        """An array in the memory of the host."""
        return values if self.xp is np else np.asarray(self.xp.asnumpy(values))

    def around(
        self, starts: npt.NDArray[np.int64], rank: int | None = None
    ) -> npt.NDArray[np.int64]:
        """The planes of a rank, of this one if it is not said which, with its ghosts in the ring,
        where slabs begin so.
        """
        rank = self.ranks.rank if rank is None else rank
        first, last = starts[rank : rank + 2]
        return np.asarray(np.arange(first - GHOSTS, last + GHOSTS) % starts[-1])

    def gathered(self, values: Values) -> npt.NDArray[Any]:
        """The planes of all ranks, without ghosts, on the host."""
        return np.concatenate(self.ranks.collect(self.on_host(values[_INNER])))

    def _gathered(self, values: Values) -> Values:
        return self.xp.asarray(self.gathered(values))

    def _room(self, values: Values) -> npt.NDArray[Any]:
        return values if self.xp is np else np.empty(values.shape, values.dtype)

    def _total(self, *numbers: float) -> tuple[float, ...]:
        """Sums over all ranks, the same bits on each."""
        return tuple(math.fsum(it) for it in zip(*self.ranks.collect(numbers), strict=True))

    def _weighed(self, operator: Operator, widths: Widths) -> tuple[float, ...]:
        own = slice(*self.starts[self.ranks.rank : self.ranks.rank + 2])
        near = (widths[0][own], *widths[1:])
        sums = (weighed(k[_INNER], axis, near, self.xp) for axis, k in enumerate(operator[:-1]))
        return self._total(*sums)

    def _window(self, kept: Places, starts: npt.NDArray[np.int64]) -> tuple[slice, Places]:
        """(Planes with their ghosts from which the next level follows, which of these are kept):
        from the last one that is kept before the slab to the first one behind it.
        """
        is_kept = np.isin(self.around(starts), kept)
        first = GHOSTS - 1 if is_kept[GHOSTS - 1] else GHOSTS - 2
        last = len(is_kept) - (GHOSTS - 1 if is_kept[-GHOSTS] else GHOSTS - 2)
        return slice(first, last), np.flatnonzero(is_kept[first:last])

    def _coarser(
        self, operator: Operator, ways: dict[int, Places]
    ) -> tuple[tuple[tuple[int, Shares], ...], Operator]:
        """`carry_out`, with the planes of neighbours complete before they are coarsened across."""
        along = {0: ways[0]} if 0 in ways else {}
        first, operator = carry_out(operator, along, self.xp, self.own.coarsen)
        if along:
            operator = tuple(self._with_ghosts(it)[1:-1] for it in operator)
        across = {axis: it for axis, it in ways.items() if axis != 0}
        others, operator = carry_out(operator, across, self.xp, self.own.coarsen)
        return (*first, *others), operator

    def _with_ghosts(self, values: Values) -> Values:
        """An array that has one on each side, with two."""
        found = self.xp.zeros((len(values) + 2, *values.shape[1:]), values.dtype)
        found[1:-1] = values
        self.fill(found)
        return found


class _PartLevel:
    """A level whose ghosts are taken from neighbours before they are needed; see `LevelWork`."""

    def __init__(self, own: LevelWork, part: PartArithmetic, points: int) -> None:
        self._own, self._part, self.points = own, part, points
        self.f, self.u = own.f, own.u
        self.reached_f, self.reached_u = own.reached_f, own.reached_u

    def begin(self, weights: Weights) -> None:
        """Two Jacobi steps from u = 0."""
        self._part.fill(self.f)
        self._own.begin(weights)

    def smooth(self, weights: Weights) -> None:
        """Two Jacobi steps."""
        self._part.fill(self.u)
        self._own.smooth(weights)

    def restrict(self, coarse: LevelWork) -> None:
        """Make what is left of f the right-hand side of the next coarser level."""
        self._part.fill(self.u)
        self._own.restrict(coarse)

    def correct(self, coarse: LevelWork) -> None:
        """Add what the next coarser level found."""
        self._part.fill(coarse.u)
        self._own.correct(coarse)

    def solve(self) -> None:
        """Of a single point."""
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
        """It is solved."""
        self.solve()

    def smooth(self, weights: Weights) -> None:
        """It is solved."""

    def restrict(self, coarse: LevelWork) -> None:
        """Nothing is left."""

    def correct(self, coarse: LevelWork) -> None:
        """Nothing is missing."""

    def solve(self) -> None:
        """Gather, and take what the cycle within says."""
        xp = self._part.xp
        self._within.f[...] = xp.asarray(self._part.gathered(self.f))
        self.u[...] = self._within.run()[xp.asarray(self._planes)]


def is_shared(shape: Sequence[int], starts: npt.NDArray[np.int64]) -> bool:
    """Whether a level is worth to be shared between ranks."""
    return int(np.diff(starts).min()) >= LEAST and math.prod(shape) > TOGETHER
