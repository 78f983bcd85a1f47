"""Who solves linear systems for a run: one device alone, or those of all ranks together.

Balances and steps are made where the whole grid is, by rank 0. It tells the others what comes next,
an operator, a cycle for it, a solution, and they have their slabs of these only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.solvers.balance import LinearSystem
from tetris_sim.solvers.distributed import GHOSTS, PartArithmetic
from tetris_sim.solvers.krylov import (
    Arithmetic,
    Cycle,
    Heard,
    LeftOffError,
    Solved,
    conjugate_gradients,
    nobody,
)
from tetris_sim.solvers.multigrid import Operator, Values, Widths

_INNER = slice(GHOSTS, -GHOSTS)
_PLANES, _ANSWER = 22, 23  # tags: planes from rank 0, and to it
_LISTENING: tuple[str, Any] = ("", None)  # what a rank says that is told what to do


@dataclass(frozen=True)
class Aim:
    """When a solution is good; see `conjugate_gradients`."""

    tolerance: float
    scale: float
    limit: int


class Solver(Protocol):
    """Solves A u = f of a whole grid on three axes, from arrays of the host to arrays of the
    host.
    """

    @property
    def near(self) -> Arithmetic | None:
        """The device that has whole grids, if there is one: balances are best made there."""

    def use(self) -> AbstractContextManager[Any]:
        """Make its device the one that is meant."""

    def release(self) -> None:
        """Give memory back that nobody uses."""

    def lay(self, operator: Operator) -> Operator:
        """An operator where it is needed."""

    def cycle(self, operator: Operator, widths: Widths) -> Cycle:
        """The preconditioner of the operator that was laid last."""

    def solve(
        self, operator: Operator, f: Numbers, u: Numbers, cycle: Cycle, aim: Aim, heard: Heard
    ) -> tuple[Numbers, Solved]:
        """The solution with the operator that was laid last and the cycle that was made last, from
        a guess that may be overwritten; an array of the host or of the near device, as the guess.

        Raises:
            LeftOffError: this was heard.
            NumericsError: the tolerance was not reached.
        """


class OneDevice:
    """One device; see `Solver`.

    Args:
        arithmetic: of it.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic

    @property
    def near(self) -> Arithmetic:
        """It."""
        return self._arithmetic

    def use(self) -> AbstractContextManager[Any]:
        """Make it the one that is meant."""
        return self._arithmetic.use()

    def release(self) -> None:
        """Give its memory back."""
        self._arithmetic.release()

    def lay(self, operator: Operator) -> Operator:
        """Bring it to the device."""
        return tuple(self._arithmetic.xp.asarray(it) for it in operator)

    def cycle(self, operator: Operator, widths: Widths) -> Cycle:
        """Its cycle."""
        return self._arithmetic.cycle(operator, widths)

    def solve(
        self, operator: Operator, f: Numbers, u: Numbers, cycle: Cycle, aim: Aim, heard: Heard
    ) -> tuple[Numbers, Solved]:
        """Iterate on the device."""
        xp = self._arithmetic.xp
        right, unknown = xp.asarray(f), xp.asarray(u)
        solved = _iterate(self._arithmetic, operator, (right, unknown), cycle, aim, heard)
        there = isinstance(unknown, np.ndarray) or not isinstance(u, np.ndarray)
        return unknown if there else unknown.get(), solved


class Together:
    """All ranks, each with a slab. What `Solver` has is for rank 0, the others `serve`.

    Args:
        part: the slab of this rank.
    """

    def __init__(self, part: PartArithmetic) -> None:
        self._part, self._ranks = part, part.ranks

    @property
    def near(self) -> Arithmetic | None:
        """The threads of this rank; a GPU has room for its slab."""
        return self._part.own if self._part.xp is np else None

    def use(self) -> AbstractContextManager[Any]:
        """Make the device of this rank the one that is meant."""
        return self._part.use()

    def release(self) -> None:
        """Give its memory back."""
        self._part.release()

    def lay(self, operator: Operator) -> Operator:
        """Send every rank its slab."""
        self._ranks.tell(("lay", operator[-1].shape))
        return tuple(self._spread(it) for it in operator)

    def cycle(self, operator: Operator, widths: Widths) -> Cycle:
        """All make it."""
        self._ranks.tell(("cycle", widths))
        return self._part.cycle(operator, widths)

    def solve(
        self, operator: Operator, f: Numbers, u: Numbers, cycle: Cycle, aim: Aim, heard: Heard
    ) -> tuple[Numbers, Solved]:
        """All iterate."""
        self._ranks.tell(("solve", (f.shape, astuple(aim))))
        fields = self._spread(f), self._spread(u)
        solved = _iterate(self._part, operator, fields, cycle, aim, self._heard_by_any(heard))
        found = np.empty_like(u)
        self.take(fields[1][_INNER], found)
        return found, solved

    def end(self, *, well: bool) -> None:
        """Let the others go, who hear whether all is well."""
        self._ranks.tell(("end", well))

    def serve(self, heard: Heard) -> bool:
        """Do what rank 0 says until it ends; whether all is well."""
        operator: Operator = ()
        cycle: Cycle | None = None
        while True:
            what, told = self._ranks.tell(_LISTENING)
            if what == "end":
                return bool(told)
            if what == "lay":
                operator = tuple(self._slab(told) for _ in range(4))
            elif what == "cycle":
                cycle = self._part.cycle(operator, told)
            else:
                assert cycle is not None
                shape, aim = told
                self._serve_solution(operator, cycle, shape, Aim(*aim), heard)

    def give(self, whole: Values) -> Values:
        """Send every rank its planes of an array; those of rank 0."""
        starts = self._part.starts
        for rank in range(1, self._ranks.size):
            planes = np.ascontiguousarray(whole[starts[rank] : starts[rank + 1]])
            self._ranks.send(planes, rank, _PLANES).wait()
        return whole[: starts[1]]

    def be_given(self, own: Values) -> None:
        """Fill an array with what rank 0 gives."""
        self._ranks.receive(own, 0, _PLANES).wait()

    def take(self, own: Values, whole: Values) -> None:
        """Fill an array with the planes that all ranks hand in."""
        starts = self._part.starts
        whole[: starts[1]] = self._part.on_host(own)
        for rank in range(1, self._ranks.size):
            self._ranks.receive(whole[starts[rank] : starts[rank + 1]], rank, _ANSWER).wait()

    def hand_in(self, own: Values) -> None:
        """Send rank 0 the planes of this one."""
        self._ranks.send(np.ascontiguousarray(self._part.on_host(own)), 0, _ANSWER).wait()

    def _serve_solution(
        self,
        operator: Operator,
        cycle: Cycle,
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
        """Send every rank its slab of an array, with ghosts; that of rank 0."""
        for rank in range(1, self._ranks.size):
            planes = _taken(whole, self._part.around(self._part.starts, rank))
            self._ranks.send(planes, rank, _PLANES).wait()
        own = _taken(whole, self._part.around(self._part.starts))
        return self._part.xp.array(own) if self._part.xp is np else self._part.xp.asarray(own)

    def _slab(self, shape: tuple[int, ...]) -> Values:
        """What rank 0 spreads."""
        planes = len(self._part.around(self._part.starts))
        found = np.empty((planes, *shape[1:]))
        self._ranks.receive(found, 0, _PLANES).wait()
        return self._part.xp.asarray(found)

    def _heard_by_any(self, heard: Heard) -> Heard:
        return lambda: bool(self._ranks.largest((float(heard()),))[0])


def _taken(whole: Numbers, planes: Any) -> Numbers:
    """Some planes in a row, round the end if need be."""
    first, last = int(planes[0]), int(planes[-1])
    found: Numbers = (
        whole[first : last + 1] if last - first + 1 == len(planes) else np.take(whole, planes, 0)
    )
    return found


def _iterate(
    arithmetic: Arithmetic,
    operator: Operator,
    fields: tuple[Values, Values],
    cycle: Cycle,
    aim: Aim,
    heard: Heard,
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
    )


# Solve a linear balance on a device, from arrays of the host to arrays of the host.

_NEARLY = 2.0  # by which factor parts of an operator may differ


@dataclass
class Kept:
    """What was made for an operator, as long as this stays the same, or where conductances change
    with the state, nearly the same.

    Attributes:
        parts: what tells operators of a body apart: what cells store and give away per degree, and
            where conductances change, the sums of these. The energies of two operators differ by no
            more than their parts do; in a diagonal, a storage would be lost beside conductances.
        cycle: the preconditioner.
        loose: whether it does for storages that differ, too.
    """

    parts: tuple[Numbers, ...] = ()
    cycle: Cycle | None = None
    loose: bool = False

    def fits(self, parts: tuple[Numbers, ...], *, nearly: bool) -> bool:
        """Whether the preconditioner does for the operator with these parts."""
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
    """The state where as much flows into every cell as out of it and as it stores.

    Args:
        made: the balance.
        u: a guess, and what held cells have, (n0, ...).
        solver: who solves linear systems.
        tolerance: of what is left, relative to `scale`.
        scale: see `conjugate_gradients`, as `limit`.
        limit: of iterations.
        storage: what a cell stores per degree, of the shape of u, if it counts.
        heat: what flows in at 0 degrees; that of the balance if not given.
        kept: of earlier solutions with the same conductances.
        heard: see `conjugate_gradients`.

    Returns:
        The state, where the arrays of the balance are, and how it was found.

    Raises:
        LeftOffError: this was heard.
        NumericsError: the tolerance was not reached.
    """
    held, whole = made.held, made.operator(storage)
    shape, operator = whole[-1].shape, solver.lay(whole)
    right = made.heat if heat is None else heat
    right = (np.where(held, 0.0, right) if made.any_held else right).reshape(shape)
    parts: tuple[Numbers, ...] = ()
    changes = made.contents is not None or (kept is not None and kept.loose)
    if kept is not None:
        own = made.exchange if storage is None else made.exchange + storage
        parts = (own,) if made.contents is None else (own, made.whole)
    kept = kept or Kept()

    def solve(cycle: Cycle) -> tuple[Numbers, Solved]:
        guess = np.where(held, 0.0, u) if made.any_held else u.copy()
        aim = Aim(tolerance, scale, limit)
        return solver.solve(operator, right, guess.reshape(shape), cycle, aim, heard)

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
    return np.where(held, u, found) if made.any_held else found, solved
