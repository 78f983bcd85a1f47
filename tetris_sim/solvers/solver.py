"""Solvers of linear systems for a run: one device alone, or the devices of all ranks together.

Rank 0 assembles systems and makes steps, since it has the whole grid. It broadcasts each operation,
a new operator, a cycle for it, a solution, and the other ranks take part with their slabs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.solvers.balance import LinearSystem
from tetris_sim.solvers.distributed import GHOSTS, PartArithmetic
from tetris_sim.solvers.krylov import (
    SMALL,
    AggregationCycle,
    Arithmetic,
    Cycle,
    Heard,
    LeftOffError,
    Preconditioner,
    Solved,
    conjugate_gradients,
    nobody,
)
from tetris_sim.solvers.multigrid import Operator, Values, Widths

_INNER = slice(GHOSTS, -GHOSTS)
_PLANES, _ANSWER = 22, 23  # tags: planes from rank 0, and to it
_LISTENING: tuple[str, Any] = ("", None)  # contributed to a broadcast by all ranks but rank 0


@dataclass(frozen=True)
class Aim:
    """Termination criteria of a solution; see `conjugate_gradients`."""

    tolerance: float
    scale: float
    limit: int


class Solver(Protocol):
    """Solves A u = f of a whole grid on three axes, from host arrays to host arrays."""

    @property
    def near(self) -> Arithmetic | None:
        """The device that holds whole grids, if there is one: systems are best assembled there."""

    def use(self) -> AbstractContextManager[Any]:
        """Make its device the current one."""

    def release(self) -> None:
        """Release unused memory."""

    def lay(self, operator: Operator) -> Operator:
        """Bring an operator to where it is needed."""

    def cycle(self, operator: Operator, widths: Widths) -> Preconditioner:
        """Make the preconditioner of the operator that was laid last."""

    def solve(
        self,
        operator: Operator,
        f: Numbers,
        u: Numbers,
        cycle: Preconditioner,
        aim: Aim,
        heard: Heard,
    ) -> tuple[Numbers, Solved]:
        """Solve with the operator that was laid last and the cycle that was made last.

        Args:
            operator: as returned by `lay`.
            f: right-hand side.
            u: initial guess, which may be overwritten.
            cycle: preconditioner.
            aim: termination criteria.
            heard: interruption request.

        Returns:
            The solution, on the host or on the near device, as the guess; and its statistics.

        Raises:
            LeftOffError: the solution was interrupted.
            NumericsError: the tolerance was not reached.
        """


class OneDevice:
    """A solver on one device; see `Solver`.

    Args:
        arithmetic: of the device.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic

    @property
    def near(self) -> Arithmetic:
        """The device itself."""
        return self._arithmetic

    def use(self) -> AbstractContextManager[Any]:
        """Make the device the current one."""
        return self._arithmetic.use()

    def release(self) -> None:
        """Release unused memory of the device."""
        self._arithmetic.release()

    def lay(self, operator: Operator) -> Operator:
        """Copy the operator to the device."""
        return tuple(self._arithmetic.xp.asarray(it) for it in operator)

    def cycle(self, operator: Operator, widths: Widths) -> Preconditioner:
        """Make the device's cycle; a small system is factorised."""
        if operator[-1].size <= SMALL:
            return AggregationCycle(operator, self._arithmetic)
        return self._arithmetic.cycle(operator, widths)

    def solve(
        self,
        operator: Operator,
        f: Numbers,
        u: Numbers,
        cycle: Preconditioner,
        aim: Aim,
        heard: Heard,
    ) -> tuple[Numbers, Solved]:
        """Iterate on the device."""
        xp = self._arithmetic.xp
        # No copy if the arrays are on the device already, so the guess is overwritten.
        right, unknown = xp.asarray(f), xp.asarray(u)
        solved = _iterate(
            self._arithmetic,
            operator,
            (right, unknown),
            cycle,
            aim,
            heard,
            lambda: AggregationCycle(operator, self._arithmetic),
        )

        # The result returns to the host only if the guess came from there.
        there = isinstance(unknown, np.ndarray) or not isinstance(u, np.ndarray)
        return unknown if there else unknown.get(), solved


class Together:
    """A solver on all ranks, each with a slab. Rank 0 uses the interface of `Solver`, the others
    `serve`.

    Args:
        part: the slab of this rank.
    """

    def __init__(self, part: PartArithmetic) -> None:
        self._part, self._ranks = part, part.ranks
        # Of the ranks that serve: rank 0 may go on with them in a later call.
        self._operator: Operator = ()
        self._cycle: Cycle | None = None

    @property
    def near(self) -> Arithmetic | None:
        """The threads of this rank; a GPU has memory for its slab only, and is None here."""
        return self._part.own if self._part.xp is np else None

    def use(self) -> AbstractContextManager[Any]:
        """Make the device of this rank the current one."""
        return self._part.use()

    def release(self) -> None:
        """Release unused memory of the device."""
        self._part.release()

    def lay(self, operator: Operator) -> Operator:
        """Send every rank its slab of the operator."""
        self._ranks.tell(("lay", operator[-1].shape))
        return tuple(self._spread(it) for it in operator)

    def cycle(self, operator: Operator, widths: Widths) -> Cycle:
        """Make the cycle on all ranks."""
        self._ranks.tell(("cycle", widths))
        return self._part.cycle(operator, widths)

    def solve(
        self,
        operator: Operator,
        f: Numbers,
        u: Numbers,
        cycle: Preconditioner,
        aim: Aim,
        heard: Heard,
    ) -> tuple[Numbers, Solved]:
        """Iterate on all ranks."""
        # Every rank enters the same loop; its reductions keep the iterations in step.
        # Shapes travel first, then planes, so that ranks can allocate before they receive.
        self._ranks.tell(("solve", (f.shape, astuple(aim))))
        fields = self._spread(f), self._spread(u)
        solved = _iterate(self._part, operator, fields, cycle, aim, self._heard_by_any(heard))
        found = np.empty_like(u)
        self.take(fields[1][_INNER], found)
        return found, solved

    def end(self, *, well: bool) -> None:
        """Dismiss the other ranks; `well` tells them whether the solution succeeded."""
        self._ranks.tell(("end", well))

    def serve(self, heard: Heard) -> bool:
        """Execute the operations of rank 0 until it ends; return whether it succeeded."""
        while True:
            what, told = self._ranks.tell(_LISTENING)
            if what == "end":
                return bool(told)
            if what == "lay":
                # k0, k1, k2 and d.
                self._operator = tuple(self._slab(told) for _ in range(4))
            elif what == "cycle":
                self._cycle = self._part.cycle(self._operator, told)
            else:
                assert self._cycle is not None
                shape, aim = told
                self._serve_solution(self._operator, self._cycle, shape, Aim(*aim), heard)

    def give(self, whole: Values) -> Values:
        """Send every rank its planes of an array; return those of rank 0."""
        starts = self._part.starts
        for rank in range(1, self._ranks.size):
            # Blocking sends in rank order: rank 0 holds the whole array anyhow, and messages are
            # few.
            planes = np.ascontiguousarray(whole[starts[rank] : starts[rank + 1]])
            self._ranks.send(planes, rank, _PLANES).wait()
        return whole[: starts[1]]

    def be_given(self, own: Values) -> None:
        """Receive the planes of this rank from rank 0."""
        self._ranks.receive(own, 0, _PLANES).wait()

    def take(self, own: Values, whole: Values) -> None:
        """Gather the planes of all ranks into an array on rank 0."""
        starts = self._part.starts
        whole[: starts[1]] = self._part.on_host(own)
        for rank in range(1, self._ranks.size):
            self._ranks.receive(whole[starts[rank] : starts[rank + 1]], rank, _ANSWER).wait()

    def hand_in(self, own: Values) -> None:
        """Send the planes of this rank to rank 0."""
        self._ranks.send(np.ascontiguousarray(self._part.on_host(own)), 0, _ANSWER).wait()

    def _serve_solution(
        self,
        operator: Operator,
        cycle: Preconditioner,
        shape: tuple[int, ...],
        aim: Aim,
        heard: Heard,
    ) -> None:
        fields = self._slab(shape), self._slab(shape)
        try:
            _iterate(self._part, operator, fields, cycle, aim, self._heard_by_any(heard))
        except (LeftOffError, NumericsError):
            return  # which rank 0 knows as well, and says
        self.hand_in(fields[1][_INNER])

    def _spread(self, whole: Numbers) -> Values:
        """Send every rank its slab of an array, with ghosts; return that of rank 0."""
        for rank in range(1, self._ranks.size):
            planes = _taken(whole, self._part.around(self._part.starts, rank))
            self._ranks.send(planes, rank, _PLANES).wait()
        own = _taken(whole, self._part.around(self._part.starts))
        # A copy on the host too, since the guess is overwritten.
        return self._part.xp.array(own) if self._part.xp is np else self._part.xp.asarray(own)

    def _slab(self, shape: tuple[int, ...]) -> Values:
        """Receive the slab that rank 0 sends."""
        planes = len(self._part.around(self._part.starts))
        found = np.empty((planes, *shape[1:]))
        self._ranks.receive(found, 0, _PLANES).wait()
        return self._part.xp.asarray(found)

    def _heard_by_any(self, heard: Heard) -> Heard:
        # A collective decision: if any rank is interrupted, all stop before the same iteration.
        return lambda: bool(self._ranks.largest((float(heard()),))[0])


def _taken(whole: Numbers, planes: Any) -> Numbers:
    """Return consecutive planes of a ring, as a view unless they wrap around its end."""
    first, last = int(planes[0]), int(planes[-1])
    found: Numbers = (
        whole[first : last + 1] if last - first + 1 == len(planes) else np.take(whole, planes, 0)
    )
    return found


def _iterate(
    arithmetic: Arithmetic,
    operator: Operator,
    fields: tuple[Values, Values],
    cycle: Preconditioner,
    aim: Aim,
    heard: Heard,
    other: Callable[[], Preconditioner] | None = None,
) -> Solved:
    return conjugate_gradients(
        operator,
        *fields,
        arithmetic,
        cycle,
        tolerance=aim.tolerance,
        scale=aim.scale,
        limit=aim.limit,
        heard=heard,
        other=other,
    )


# Solve a linear balance on a device, from host arrays to host arrays.

_NEARLY = 2.0  # by which factor parts of an operator may differ


@dataclass
class Kept:
    """A preconditioner kept for later solutions with the same operator, or where conductances
    change with the state, with nearly the same one.

    Attributes:
        parts: identify an operator of a body: heat stored and exchanged by cells per degree, and
            where conductances change, their sums. The energies of two operators differ by no more
            than their parts do; in a diagonal, a storage would be lost among conductances.
        cycle: the preconditioner.
        loose: whether it may serve for different storages, too.
    """

    parts: tuple[Numbers, ...] = ()
    cycle: Preconditioner | None = None
    loose: bool = False

    def fits(self, parts: tuple[Numbers, ...], *, nearly: bool) -> bool:
        """Whether the preconditioner serves for the operator with these parts."""
        # Parts within a factor of two bound the condition number of the preconditioned system.
        most = _NEARLY if nearly else 1.0
        return bool(self.parts) and all(
            bool((np.maximum(mine, other) <= most * np.minimum(mine, other)).all())
            for mine, other in zip(self.parts, parts, strict=True)
        )


def settle(
    made: LinearSystem,
    u: Numbers,
    solver: Solver,
    *,
    tolerance: float,
    scale: float,
    limit: int,
    storage: Numbers | None = None,
    heat: Numbers | None = None,
    kept: Kept | None = None,
    heard: Heard = nobody,
) -> tuple[Numbers, Solved]:
    """Solve for the state in which as much heat flows into every cell as it releases and stores.

    Args:
        made: the linear system.
        u: initial guess, and the state of held cells, (n0, ...).
        solver: solves the linear system.
        tolerance: of the remaining imbalance, relative to `scale`.
        scale: see `conjugate_gradients`, as `limit`.
        limit: of iterations.
        storage: heat stored by a cell per degree, of the shape of u; None for a steady balance.
        heat: heat flow in at 0 degrees; that of the system if not given.
        kept: of earlier solutions with the same conductances.
        heard: see `conjugate_gradients`.

    Returns:
        The state, on the device of the system, and the statistics of its solution.

    Raises:
        LeftOffError: the solution was interrupted.
        NumericsError: the tolerance was not reached.
    """
    # Held cells are isolated in the operator: right-hand side and guess 0 keep them out of norms.
    held, whole = made.held, made.operator(storage)
    shape, operator = whole[-1].shape, solver.lay(whole)
    right = made.heat if heat is None else heat
    right = (np.where(held, 0.0, right) if made.any_held else right).reshape(shape)

    parts: tuple[Numbers, ...] = ()
    changes = made.contents is not None or (kept is not None and kept.loose)
    if kept is not None:
        own = made.exchange if storage is None else made.exchange + storage
        # What decides whether a kept preconditioner serves: storage and exchange, and where
        # conductances follow the state, their sums.
        parts = (own,) if made.contents is None else (own, made.whole)
    kept = kept or Kept()

    def solve(cycle: Preconditioner) -> tuple[Numbers, Solved]:
        # A fresh copy for each try, since iterating overwrites it.
        guess = np.where(held, 0.0, u) if made.any_held else u.copy()
        aim = Aim(tolerance, scale, limit)
        return solver.solve(operator, right, guess.reshape(shape), cycle, aim, heard)

    # Try the kept preconditioner; if it only nearly fits and fails, make a new one and try again.
    answer = None
    if kept.cycle is not None and kept.fits(parts, nearly=changes):
        try:
            answer = solve(kept.cycle)
        except NumericsError:
            if kept.fits(parts, nearly=False):
                raise
    if answer is None:  # nothing is kept, or what is does not do
        kept.cycle, kept.parts = solver.cycle(operator, made.wide), parts
        answer = solve(kept.cycle)
    found, solved = answer
    found = found.reshape(u.shape)
    # Held cells keep their state.
    return np.where(held, u, found) if made.any_held else found, solved
