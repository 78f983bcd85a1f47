"""Solve a linear balance on a device, from arrays of the host to arrays of the host."""

from __future__ import annotations

import numpy as np

from tetris_sim.conduction import Numbers
from tetris_sim.solvers.balance import Balance
from tetris_sim.solvers.gradients import Arithmetic, Solved, conjugate_gradients


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

    Raises:
        NumericsError: the tolerance was not reached.
    """
    xp, held = arithmetic.xp, made.held
    operator = tuple(xp.asarray(it) for it in made.operator(storage))
    shape = operator[-1].shape
    right = np.where(held, 0.0, made.heat if heat is None else heat)
    unknown = xp.asarray(np.where(held, 0.0, u).reshape(shape))
    solved = conjugate_gradients(
        operator,
        xp.asarray(right.reshape(shape)),
        unknown,
        arithmetic,
        tolerance=tolerance,
        scale=scale,
        limit=limit,
    )
    found = unknown if isinstance(unknown, np.ndarray) else unknown.get()
    return np.where(held, u, found.reshape(u.shape)), solved
