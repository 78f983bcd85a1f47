"""Small bodies with materials, posed as arrays: what the cases about conduction are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import Boundary, Face, Periodic
from tetris_sim.model.conduction import (
    AFFINE,
    MIRROR,
    Conduction,
    Enthalpy,
    Medium,
    Numbers,
    Parameter,
    Rule,
    RuledFace,
    in_series,
    star_mean,
)
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.problem import Problem, Total, Variable
from tetris_sim.model.program import Program
from tetris_sim.verification.case import from_array

Condition = RuledFace | Periodic
_TEMPERATURE = Variable("temperature", "degC", "temperature", Total("heat", "J", 1.0))
_HEAT = Variable("heat_content", "J/m^3", "heat content", Total("heat", "J", 1.0))
_SAFETY = 0.9  # of the largest step that is stable for every arrangement of the materials


@dataclass(frozen=True)
class Solid:
    """One material.

    Attributes:
        conductivity: [W/(m K)].
        heat_capacity: rho c [J/(m^3 K)].
    """

    conductivity: float
    heat_capacity: float


def make_medium(
    ids: npt.NDArray[np.uint8],
    solids: Sequence[Solid],
    spacing: Sequence[float],
    resistance: Numbers | float = 0.0,
) -> Medium:
    """Materials in space.

    Args:
        ids: of all points, in array order.
        solids: by id.
        spacing: between points per axis [m].
        resistance: of contacts, (n_ids, n_ids), symmetric [m^2 K/W].
    """
    k = np.array([solid.conductivity for solid in solids])
    return Medium(
        ids=lambda box: ids[tuple(slice(*span) for span in box)],
        conductance=np.stack([in_series(h, k, resistance) for h in spacing]),
        capacity=np.array([solid.heat_capacity for solid in solids]),
        names=tuple(f"solid {number}" for number in range(len(solids))),
    )


def stable_dt(medium: Medium) -> float:
    """A time step that is stable for every arrangement of the materials [s]."""
    most = 2 * medium.conductance.max(axis=2).sum(axis=0)
    return _SAFETY * float((medium.capacity / most).min())


def pose(
    grid: Grid,
    medium: Medium,
    faces: Sequence[tuple[Condition, Condition]],
    *,
    initial: npt.ArrayLike,
    duration: float | None = None,
    steps: int = 0,
    source: Rule | None = None,
    enthalpy: Enthalpy | None = None,
    dtype: np.dtype[Any] | None = None,
    refined: int = 1,
) -> Problem:
    """A body to be advanced.

    Args:
        grid: its points.
        medium: what it is made of.
        faces: per axis in array order.
        initial: the state at time 0, of the grid's shape or a number.
        duration: simulated time [s]; or
        steps: how many of the usual steps.
        source: what heats it.
        enthalpy: what its state means if that is heat content.
        dtype: float64 if not given.
        refined: by which the usual time step is divided.
    """
    kind = np.dtype(dtype or np.float64)
    state = np.broadcast_to(np.asarray(initial, np.float64), grid.shape)[np.newaxis].astype(kind)
    dt = stable_dt(medium)
    if duration is not None:
        steps = math.ceil(duration / dt) * refined
        dt = duration / steps

    pairs: tuple[tuple[Face, Face], ...] = tuple(faces)
    return Problem(
        grid=grid,
        stencil=star_mean(grid.ndim),
        boundary=Boundary(pairs),
        initial=from_array(state),
        dt=dt,
        steps=steps,
        dtype=kind,
        variables=(_TEMPERATURE if enthalpy is None else _HEAT,),
        conduction=Conduction(medium, source, enthalpy=enthalpy),
    )


def insulated() -> RuledFace:
    """Nothing flows."""
    return _affine(np.zeros(1), np.ones(1), lasting=(0.0, 1.0))


def held(value: float, *, heated: bool = False) -> RuledFace:
    """A temperature on the face; ghosts do not last where sources heat the body beside it."""
    lasting = None if heated else (2 * value, -1.0)
    return _affine(np.array([2 * value]), -np.ones(1), lasting=lasting)


def varying(value: Callable[[Numbers], Numbers]) -> RuledFace:
    """A temperature on the face that is a function of times (n,)."""
    return _affine(lambda t: 2 * value(t)[:, None], -np.ones(1))


def cooled(h: float, ambient: float, conductivity: float, spacing: float) -> RuledFace:
    """Convection, `spacing` being that across the face: see `boundary.Robin`."""
    whole = 2 * conductivity + h * spacing
    a, b = 2 * h * spacing * ambient / whole, (2 * conductivity - h * spacing) / whole
    return _affine(np.array([a]), np.array([b]))


def _affine(a: Any, b: Any, lasting: tuple[float, float] | None = None) -> RuledFace:
    return RuledFace(Rule(AFFINE, (Parameter("a", a), Parameter("b", b))), lasting=lasting)


def by_formula(text: str, **parameters: Any) -> RuledFace:
    """Ghosts from a formula of the mirror point, coordinates and parameters."""
    return RuledFace(formula(text, **parameters))


def formula(text: str, **parameters: Any) -> Rule:
    """A formula of coordinates and parameters: numbers, by id, or functions of times (n,)."""
    program = Program(compile_expression(text, [MIRROR, *AXIS_NAMES, *parameters]).tree)
    return Rule(program, tuple(Parameter(name, _shaped(it)) for name, it in parameters.items()))


def _shaped(values: Any) -> Any:
    if callable(values):
        return lambda t: np.reshape(values(t), (len(t), -1))
    return np.atleast_1d(np.asarray(values, np.float64))


def radiating(
    emissivity: float, ambient: float, conductivity: float, spacing: float, iterations: int = 4
) -> RuledFace:
    """Thermal radiation to surroundings, temperatures in kelvin.

    What arrives at the face through half a cell leaves it, 2 k / dx (mirror - s) = e sigma (s^4 -
    ambient^4); s, the temperature of the face, follows by Newton's method from that of the mirror.
    """
    surface = MIRROR
    for _ in range(iterations):
        above = f"3*a*({surface})**4 + b*{MIRROR} + a*ambient**4"
        surface = f"({above})/(4*a*({surface})**3 + b)"
    stefan_boltzmann = 5.670374419e-8  # W/(m^2 K^4), CODATA 2018
    return by_formula(
        f"2*({surface}) - {MIRROR}",
        a=emissivity * stefan_boltzmann,
        b=2 * conductivity / spacing,
        ambient=ambient,
    )
