"""Configurations of bodies, and runs of them by the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config import make_config
from tetris_sim.model import reference
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

# k, rho, c that make numbers round
PLAIN = {"conductivity": 1.0, "density": 1.0, "specific_heat": 1.0}


def settings(**sections: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [12], "size": [1.2]},
        "model": {"type": "heat", **PLAIN},
        "initial": {"type": "constant", "value": 0},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"dt": "auto", "steps": 10},
        **sections,
    }


def build(**sections: Any) -> Problem:
    config = make_config(settings(**sections))
    return config.build()


def heat_model(*regions: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"type": "heat", "regions": list(regions), **keys}


def start(problem: Problem) -> Field:
    return problem.initial(Slab.whole(problem.grid))


def finish(problem: Problem) -> npt.NDArray[Any]:
    """The temperatures at the end of the run."""
    return np.asarray(reference.advance(start(problem), problem, problem.steps)[0])


def settle(problem: Problem, steps: int = 400) -> npt.NDArray[Any]:
    """The steady state: that of the linear step, found by solving, checked by stepping."""
    shape = problem.grid.shape
    n = problem.grid.n_points
    zero = reference.advance(np.zeros((1, *shape)), problem, 1).reshape(-1)
    matrix = np.empty((n, n))
    for i in range(n):
        unit = np.zeros(n)
        unit[i] = 1.0
        matrix[:, i] = reference.advance(unit.reshape(1, *shape), problem, 1).reshape(-1) - zero
    free = ~np.isclose(np.diag(matrix), 1.0) | (np.abs(matrix - np.eye(n)).sum(axis=1) > 0)
    held = ~free
    u = start(problem).reshape(-1).astype(np.float64)
    a = np.eye(n) - matrix
    right = zero[free] - a[np.ix_(free, held)] @ u[held]
    u[free] = np.linalg.solve(a[np.ix_(free, free)], right)
    after = reference.advance(u.reshape(1, *shape), problem, steps)
    np.testing.assert_allclose(after.reshape(-1), u, rtol=1e-9, atol=1e-9)
    return u.reshape(shape)


def heat_in(problem: Problem, u: npt.NDArray[Any]) -> float:
    """Heat of a state [J]; held points have none."""
    assert problem.conduction is not None
    medium = problem.conduction.medium
    ids = medium.ids(tuple((0, n) for n in problem.grid.shape))
    capacity = np.where(np.isfinite(medium.capacity), medium.capacity, 0.0)
    return float((capacity[ids] * u).sum() * problem.grid.cell_volume)
