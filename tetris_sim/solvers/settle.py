"""Solve a linear balance on a device, from arrays of the host to arrays of the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.solvers.balance import Balance
from tetris_sim.solvers.gradients import Cycle, Heard, Solved, nobody
from tetris_sim.solvers.solver import Aim, Solver

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
    made: Balance,
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
