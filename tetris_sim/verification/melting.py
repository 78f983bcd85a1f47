"""Bodies whose state is heat content: fronts of melting and freezing, and k and c that grow with
temperature, each against its similarity solution or transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tetris_sim.apps.heat.materials import MaterialCurves, Melting, in_potentials, make_enthalpy
from tetris_sim.model.conduction import Curve, Enthalpy, Numbers, RuledFace
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.verification.bodies import Solid, held, insulated, make_medium, pose
from tetris_sim.verification.case import Advance, Outcome, VerificationCase

_DOUBLE = ("float64",)
_FRONT = 0.6  # of a cell: what the last cell that melts may be off, its neighbour's share included


def melting_cases() -> Iterator[VerificationCase]:
    """Stefan's problem of one phase and of two, and k = c = 1 + T/2."""
    for stefan in (0.1, 0.5, 1.0):
        name = f"Stefan, one phase, Ste = {stefan:g}"
        yield VerificationCase(name, 1, partial(_check_one_phase, stefan), _DOUBLE)
    yield VerificationCase("Stefan, two phases", 1, _check_two_phases, _DOUBLE)
    yield VerificationCase("k = c = 1 + T/2, transform", 1, _check_transform, _DOUBLE)


def _rod(material: MaterialCurves, n: int, length: float) -> tuple[Grid, Enthalpy]:
    grid = Grid.box((n,), (length,))
    return grid, make_enthalpy([material], [0], grid.spacing)


def _pose(
    grid: Grid,
    enthalpy: Enthalpy,
    left: float,
    *,
    initial: float,
    duration: float,
    refined: int = 1,
) -> Problem:
    """A rod with a temperature on its left, insulated on its right.

    Args:
        grid: its points.
        enthalpy: what it is made of.
        left: temperature of its left end [degC].
        initial: heat content everywhere [J/m^3].
        duration: [s].
        refined: largest slope of phi(H), rounded up.
    """
    ids = np.zeros(grid.shape, np.uint8)
    medium = in_potentials(make_medium(ids, [Solid(1.0, 1.0)], grid.spacing), enthalpy)
    faces: list[tuple[RuledFace, RuledFace]] = [(held(potential(enthalpy, left)), insulated())]
    return pose(
        grid,
        medium,
        faces,
        initial=initial,
        duration=duration,
        refined=refined,
        enthalpy=enthalpy,
    )


def potential(enthalpy: Enthalpy, temperature: float) -> float:
    """The integral of k dT up to a temperature [W/m]."""
    ids = np.zeros(1, np.int64)
    heat = enthalpy.from_temperature(np.array([temperature]), ids)
    return float(enthalpy.of(enthalpy.potential, heat, ids)[0])


def _temperature(enthalpy: Enthalpy, heat: Numbers) -> Numbers:
    curve: Curve = enthalpy.temperature
    return np.asarray(enthalpy.of(curve, heat, np.zeros(heat.shape, np.int64)))


def _root(balance: Callable[[float], float]) -> float:
    """Where the heat that arrives at a front is what it takes."""
    from scipy.optimize import brentq

    return float(brentq(balance, 1e-6, 5.0))


def stefan_root(stefan: float) -> float:
    """The root of lambda exp(lambda^2) erf(lambda) = Ste / sqrt(pi)."""
    return _root(lambda x: x * math.exp(x * x) * math.erf(x) - stefan / math.sqrt(math.pi))


def _check_one_phase(stefan: float, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A unit rod at its melting point, 1 degC on its left: the front is at 2 lambda sqrt(t), the
    melt at 1 - erf(x / (2 sqrt(t))) / erf(lambda).

    H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed. (Oxford, 1959), section 11.2.
    """
    n, front, latent, root = 30, 0.7, 1 / stefan, stefan_root(stefan)
    material = MaterialCurves(((0.0, 1.0),), ((0.0, 1.0),), 1.0, Melting(latent, 0.0, 0.0))
    grid, enthalpy = _rod(material, n, 1.0)
    end = (front / (2 * root)) ** 2
    heat = advance(_pose(grid, enthalpy, 1.0, initial=0.0, duration=end))[0]

    x = grid.coordinates(0)
    exact = 1 - np.array([math.erf(it) for it in x / (2 * math.sqrt(end))]) / math.erf(root)
    off = np.abs(_temperature(enthalpy, heat) - exact)[x < front - 0.1]
    if not off.max() <= 0.02:  # NaN neither
        return Outcome(math.inf, 0.0)
    # What the melt holds says where the front is, to a fraction of a cell.
    molten = float(np.clip(heat / latent, 0.0, 1.0).sum()) * grid.spacing[0]
    return Outcome(abs(molten - front), _FRONT * grid.spacing[0])


def _check_two_phases(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A liquid above its melting point freezes from the left, below it: Neumann's solution, k_s
    dT_s/dx - k_l dT_l/dx = L ds/dt at a front at 2 lambda sqrt(t).

    H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed. (Oxford, 1959), section 11.2.
    """
    n, front, solid, liquid, latent, cold, hot = 120, 0.51, 2.0, 0.6, 3.0, -1.0, 1.5
    conductivity = ((-1e-9, solid), (1e-9, liquid))
    material = MaterialCurves(conductivity, ((0.0, 1.0),), 1.0, Melting(latent, 0.0, 0.0))

    def balance(x: float) -> float:
        flows = []
        for k, share, degrees in ((solid, math.erf, -cold), (liquid, math.erfc, hot)):
            depth = x / math.sqrt(k)
            flows.append(
                k * degrees * math.exp(-(depth**2)) / share(depth) / math.sqrt(math.pi * k)
            )
        return flows[0] - flows[1] - latent * x

    end = (front / (2 * _root(balance))) ** 2
    grid, enthalpy = _rod(material, n, 3.0)
    problem = _pose(grid, enthalpy, cold, initial=latent + hot, duration=end, refined=2)
    heat = advance(problem)[0]
    frozen = float(np.clip(1 - heat / latent, 0.0, 1.0).sum()) * grid.spacing[0]
    return Outcome(abs(frozen - front), 0.7 * grid.spacing[0])


def _check_transform(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """With k = c = 1 + T/2 the heat content w = T + T^2/4 obeys dw/dt = d2w/dx2: a Fourier series.

    G. Kirchhoff's transform: H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed.
    (Oxford, 1959), section 1.6.
    """
    n, hot, t = 40, 3.0, 0.1
    table = ((0.0, 1.0), (10.0, 6.0))
    grid, enthalpy = _rod(MaterialCurves(table, table, 1.0), n, 1.0)
    heat = advance(_pose(grid, enthalpy, hot, initial=0.0, duration=t))[0]

    modes = (np.arange(60) + 0.5) * math.pi
    series = 2 / modes * np.exp(-(modes**2) * t) * np.sin(np.outer(grid.coordinates(0), modes))
    w = (hot + hot**2 / 4) * (1 - series.sum(axis=1))
    if not np.abs(heat - w).max() <= 2e-3 * (hot + hot**2 / 4):
        return Outcome(math.inf, 0.0)
    exact = 2 * (np.sqrt(1 + w) - 1)
    return Outcome(float(np.abs(_temperature(enthalpy, heat) - exact).max()), 1e-2)
