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


ROUND = {
    "brick": {"conductivity": 0.7, "density": 2.0, "specific_heat": 3.0},
    "board": {"conductivity": 0.2, "density": 1.0, "specific_heat": 2.0},
}


# Faces through which heat flows by several ways at once, each of the face's own temperature.
SEVERAL_WAYS: dict[str, Any] = {
    "x-": {
        "type": "radiation",
        "emissivity": "0.5 + 1e-4*T",
        "ambient": 10,
        "h": "10 + 0.02*T",
        "flux": "400 - T",
    },
    "x+": {
        "type": "radiation",
        "flux": "300 + 1e4*y*t",
        "radiation": [
            {"emissivity": 0.6, "ambient": -40},
            {"emissivity": "0.3 + 0.01*t", "ambient": "50 + t"},
        ],
    },
    "y-": [
        {
            "type": "convection",
            "natural": {"correlation": "vertical plate", "length": 0.1},
            "ambient": 20,
            "flux": 500,
            "radiation": [{"emissivity": 0.9, "ambient": -10}],
            "where": "x < 0.05",
        },
        {"type": "convection", "ambient": 0, "h": "0.001*T**2 if T > 0 else 0"},
    ],
    "y+": {"type": "insulated"},
}


def several_ways(shape: tuple[int, int], **time: Any) -> Problem:
    """A hot plate of two materials with the faces of `SEVERAL_WAYS`; x comes last in its shape."""
    return build(
        grid={"shape": [*shape[::-1]], "size": [0.1, 0.08]},
        model=heat_model(
            {"material": "brick"},
            {"material": "board", "where": "x + y > 0.09"},
            materials={
                "brick": {"conductivity": 0.7, "density": 20.0, "specific_heat": 30.0},
                "board": {"conductivity": 0.2, "density": 30.0, "specific_heat": 40.0},
            },
            sources=[{"density": "1e5*x", "material": "brick"}],
        ),
        initial={"type": "expression", "expression": "200 + 900*x - 500*y"},
        boundaries=SEVERAL_WAYS,
        time=time or {"dt": "auto", "steps": 10},
    )


def revolved(axes: str, shape: tuple[int, ...]) -> Problem:
    """A body around an axis: two materials, a contact, a source, and fluxes by place."""
    names, around = axes.split(), "spherical" if axes == "r theta" else "cylindrical"
    spans = {"r": "0.7 m", "theta": "1.5 rad", "z": "0.9 m"}
    faces: dict[str, Any] = {
        "r+": {"type": "robin", "h": 3, "ambient": "cos(t) + r" if len(names) == 1 else "cos(4*t)"},
        "z-": {"type": "dirichlet", "value": "1 + r"},
        "z+": {"type": "radiation", "emissivity": 0.8, "ambient": 40},
        "theta+": {"type": "neumann", "flux": "r + t"},
        "theta-": {"type": "dirichlet", "value": 2},
    }
    if around == "spherical":
        del faces["theta-"]
    return build(
        grid={
            "coordinates": around,
            "axes": names,
            "shape": list(shape),
            "size": [spans[name] for name in names],
        },
        model=heat_model(
            {"material": "brick"},
            {"material": "board", "box": {"r": [0.3, 0.5]}},
            materials=ROUND,
            contacts=[{"between": ["brick", "board"], "resistance": 0.2}],
            sources=[{"density": "5*r + t", "material": "brick"}],
        ),
        initial={"type": "expression", "expression": "5*sin(9*r)"},
        boundaries={name: face for name, face in faces.items() if name[:-1] in names},
        time={"dt": "auto", "steps": 10},
    )


def wheel(*shape: int) -> Problem:
    """A whole disc or rod in r, theta (and z): a sector of another material lies over the place
    where theta begins, behind a contact, is heated, and is cooled on one side.
    """
    names = ["r", "theta", "z"][: len(shape)]
    sector = {"r": [0.3, 0.6], "theta": ["-50 deg", "80 deg"]}
    faces: dict[str, Any] = {"r+": {"type": "robin", "h": "2 + cos(theta)", "ambient": "sin(t)"}}
    if "z" in names:
        faces["z"] = {"type": "neumann", "flux": "r*sin(theta)"}
    return build(
        grid={
            "coordinates": "cylindrical",
            "axes": names,
            "shape": list(shape),
            "size": ["0.8 m", "360 deg", "0.5 m"][: len(shape)],
        },
        model=heat_model(
            {"material": "brick"},
            {"material": "board", "box": sector},
            materials=ROUND,
            contacts=[{"between": ["brick", "board"], "resistance": 0.2}],
            sources=[{"density": "5*r + t", "box": sector}],
        ),
        initial={"type": "expression", "expression": "5*sin(9*r)*cos(theta)"},
        boundaries=faces,
        time={"dt": "auto", "steps": 10},
    )
