"""Solve a linear balance on a device, from arrays of the host to arrays of the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tetris_sim.conduction import Numbers
from tetris_sim.errors import NumericsError
from tetris_sim.solvers.balance import Balance
from tetris_sim.solvers.gradients import Arithmetic, Cycle, Solved, conjugate_gradients
from tetris_sim.solvers.hierarchy import Values

_NEARLY = 2.0  # by which factor diagonals may differ


@dataclass
class Kept:
    """What was made for an operator, as long as this stays the same, or where conductances change
    with the state, nearly the same.

    Attributes:
        diagonal: what tells operators of a body apart.
        cycle: the preconditioner.
        loose: whether it does for storages that differ, too.
    """

    diagonal: Numbers | None = None
    cycle: Cycle | None = None
    loose: bool = False

    def fits(self, diagonal: Numbers, *, nearly: bool) -> bool:
        """Whether the preconditioner does for the operator with a diagonal."""
        if self.diagonal is None or not nearly:
            return self.diagonal is not None and bool((self.diagonal == diagonal).all())
        most, least = (of(self.diagonal, diagonal) for of in (np.maximum, np.minimum))
        return bool((most <= _NEARLY * least).all())


def settle(
    made: Balance,
    u: Numbers,
    arithmetic: Arithmetic,
    *,
    tolerance: float,
    scale: float,
    limit: int,
    storage: Numbers | float = 0.0,
    heat: Numbers | None = None,
    kept: Kept | None = None,
) -> tuple[Numbers, Solved]:
    """The state where as much flows into every cell as out of it and as it stores.

    Args:
        made: the balance.
        u: a guess, and what held cells have, (n0, ...).
        arithmetic: of the device.
        tolerance: of what is left, relative to `scale`.
        scale: see `conjugate_gradients`, as `limit`.
        limit: of iterations.
        storage: what a cell stores per degree, of the shape of u.
        heat: what flows in at 0 degrees; that of the balance if not given.
        kept: of earlier solutions with the same conductances.

    Raises:
        NumericsError: the tolerance was not reached.
    """
    xp, held = arithmetic.xp, made.held
    operator = tuple(xp.asarray(it) for it in made.operator(storage))
    shape = operator[-1].shape
    right = np.where(held, 0.0, made.heat if heat is None else heat)
    kept = kept or Kept()
    changes = made.contents is not None or kept.loose
    diagonal = (made.whole if changes else made.exchange) + storage

    def solve(cycle: Cycle) -> tuple[Values, Solved]:
        unknown = xp.asarray(np.where(held, 0.0, u).reshape(shape))
        solved = conjugate_gradients(
            operator,
            xp.asarray(right.reshape(shape)),
            unknown,
            arithmetic,
            cycle,
            tolerance=tolerance,
            scale=scale,
            limit=limit,
        )
        return unknown, solved

    answer = None
    if kept.cycle is not None and kept.fits(diagonal, nearly=changes):
        try:
            answer = solve(kept.cycle)
        except NumericsError:
            if kept.fits(diagonal, nearly=False):
                raise
    if answer is None:  # nothing is kept, or what is does not do
        kept.cycle, kept.diagonal = Cycle(operator, arithmetic), diagonal
        answer = solve(kept.cycle)
    unknown, solved = answer
    found = unknown if isinstance(unknown, np.ndarray) else unknown.get()
    return np.where(held, u, found.reshape(u.shape)), solved
