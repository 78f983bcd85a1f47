"""How far a method may be from the plain NumPy answer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris_sim import reference
from tetris_sim.problem import Field, Problem


def allowed_error(
    u: Field, expected: Field, problem: Problem, steps: int, first: int = 0
) -> npt.NDArray[np.float64]:
    """How far another correct implementation may be from `reference.advance` after some steps, for
    each field, (n_fields,).

    By equations errors may grow, so it is measured: another order of the operations may be as far
    from the truth as this one, 16 times as far as this one is from the same in the next wider type,
    and by some units in the last place of the largest values.

    Args:
        u: the state at step `first`.
        expected: what `reference.advance` makes of it.
        problem: what was advanced.
        steps: how many.
        first: step.
    """
    if problem.equations is None:
        largest = max(
            reference.largest_magnitude(u, problem), reference.largest_magnitude(expected, problem)
        )
        return np.full(problem.n_fields, reference.tolerance(problem, steps, largest))

    wide: Field = np.asarray(u, np.float64 if problem.dtype == np.float32 else np.longdouble)
    for number in range(first, first + steps):
        wide = reference.evolve(wide, problem, number)
    space = tuple(range(1, u.ndim))
    # Where the wider type finds no number, as for a remainder by noise that is 0 in one of the two,
    # nothing is known of the error, and only rounding is allowed.
    error = np.abs(wide - expected)
    error = np.where(np.isfinite(error), error, 0).max(axis=space)
    largest_values = np.maximum(np.abs(u).max(axis=space), np.abs(expected).max(axis=space))
    rounding = problem.equations.n_operations * steps * np.finfo(problem.dtype).eps
    return np.asarray(16 * error + rounding * largest_values, np.float64)
