"""Tables of k(T), c(T) and latent heat as curves over heat content, and what they do in a step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import erf, erfc

from tests.support.conduction_cases import VARIABLE, affine, insulated
from tetris_sim.apps.heat.materials import MaterialCurves, Melting, make_enthalpy
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import Conduction, Enthalpy, Medium, Numbers, RuledFace
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencil import star_mean

ICE = MaterialCurves(((0.0, 2.0),), ((0.0, 1.5),), 1.0, Melting(4.0, 0.0, 0.0))
STEEL = MaterialCurves(
    ((20.0, 50.0), (600.0, 30.0), (1500.0, 28.0)),
    ((20.0, 3.6e6), (700.0, 6.0e6), (750.0, 4.5e6)),
    7800.0,
    Melting(2.7e5, 1450.0, 1500.0),
)
UNIT = MaterialCurves(((0.0, 1.0), (10.0, 6.0)), ((0.0, 1.0), (10.0, 6.0)), 1.0)  # k = c = 1 + T/2


def problem_of(
    materials: list[MaterialCurves],
    ids: Numbers,
    h: float,
    faces: tuple[RuledFace, RuledFace],
    dt: float,
    resistance: Any = 0.0,
) -> Problem:
    """A rod whose state is heat content."""
    names = tuple(f"material {k}" for k in range(len(materials)))
    codes = np.asarray(ids, np.uint8)
    n = len(materials)
    medium = Medium(
        ids=lambda box: codes[slice(*box[0])],
        conductance=np.broadcast_to(np.eye(n) / h**2, (1, n, n)).copy(),
        capacity=np.ones(n),
        names=names,
    )
    enthalpy = make_enthalpy(materials, range(n), (h,), resistance=resistance)
    return Problem(
        grid=Grid((len(ids),), (h,), (h / 2,)),
        stencil=star_mean(1),
        boundary=Boundary((faces,)),
        initial=lambda slab: np.zeros((1, *slab.shape)),
        dt=dt,
        steps=1,
        dtype=np.dtype(np.float64),
        variables=(VARIABLE,),
        conduction=Conduction(medium, enthalpy=enthalpy),
    )


def enthalpy_of(problem: Problem) -> Enthalpy:
    assert problem.conduction is not None
    assert problem.conduction.enthalpy is not None
    return problem.conduction.enthalpy


def temperature(problem: Problem, heat: Numbers) -> Numbers:
    assert problem.conduction is not None
    ids = problem.conduction.medium.ids(((0, problem.grid.shape[0]),))
    it = enthalpy_of(problem)
    return it.of(it.temperature, heat, ids)


def potential_at(problem: Problem, value: float, kind: int = 0) -> float:
    it, ids = enthalpy_of(problem), np.array([kind])
    return float(it.of(it.potential, it.from_temperature(np.array([value]), ids), ids)[0])


@pytest.mark.parametrize("material", [ICE, STEEL, UNIT])
def test_curves_are_the_integrals_of_the_tables(material: MaterialCurves) -> None:
    it = make_enthalpy([material], [0], (1.0,))
    where = np.linspace(-30.0, 1700.0, 997)
    ids = np.zeros(where.shape, np.int64)
    heat = it.from_temperature(where, ids)
    assert (np.diff(heat) > 0).all()
    np.testing.assert_allclose(it.of(it.temperature, heat, ids), where, atol=1e-9)

    fine = np.linspace(0.0, 1700.0, 400_001)
    c, k = (
        np.interp(fine, *np.array(table).T)
        for table in (material.heat_capacity, material.conductivity)
    )
    sums = [np.append(0, np.cumsum((y[1:] + y[:-1]) / 2 * np.diff(fine))) for y in (c, k)]
    warm = where > 1510
    latent = material.melting.latent_heat * material.density if material.melting else 0.0
    np.testing.assert_allclose(
        heat[warm], np.interp(where[warm], fine, sums[0]) + latent, rtol=3e-5
    )
    phi = it.of(it.potential, heat, ids)
    np.testing.assert_allclose(phi[warm], np.interp(where[warm], fine, sums[1]), rtol=3e-5)


def test_melting_takes_up_the_latent_heat() -> None:
    it = make_enthalpy([ICE], [0], (1.0,))
    heat, ids = np.array([-3.0, -0.1, 0.0, 1.0, 3.9, 4.0, 7.0]), np.zeros(7, np.int64)
    np.testing.assert_allclose(
        it.of(it.temperature, heat, ids), [-2.0, -0.1 / 1.5, 0, 0, 0, 0, 2.0], atol=1e-12
    )
    assert it.from_temperature(np.zeros(1), np.zeros(1, np.int64))[0] == pytest.approx(0.0)


def stefan_number(value: float) -> float:
    """lambda exp(lambda^2) erf(lambda) = Ste / sqrt(pi)."""
    return float(
        brentq(lambda x: x * math.exp(x * x) * erf(x) - value / math.sqrt(math.pi), 1e-6, 5)
    )


@pytest.mark.parametrize(("ste", "wanted"), [(0.1, 0.220016), (0.5, 0.464786), (1.0, 0.620063)])
def test_front_of_one_phase_moves_as_stefan_says(ste: float, wanted: float) -> None:
    assert stefan_number(ste) == pytest.approx(wanted, abs=1e-6)
    # A unit rod at its melting point, k = rho c = 1, latent heat 1 / Ste, 1 degC on the left.
    material = MaterialCurves(((0.0, 1.0),), ((0.0, 1.0),), 1.0, Melting(1 / ste, 0.0, 0.0))
    n, h = 30, 1 / 30
    end = (0.7 / (2 * wanted)) ** 2  # the front is at 0.7
    steps = math.ceil(end / (0.45 * h * h))
    problem = problem_of(
        [material], np.zeros(n), h, (affine(np.array([2.0]), -np.ones(1)), insulated()), end / steps
    )
    heat = reference.advance(np.zeros((1, n)), problem, steps)[0]
    # What the melt holds says where the front is, to a fraction of a cell.
    x = np.clip((heat / (1 / ste)), 0, 1).sum() * h
    assert x == pytest.approx(0.7, abs=0.6 * h)
    centres = (np.arange(n) + 0.5) * h
    exact = 1 - erf(centres / (2 * math.sqrt(end))) / erf(wanted)
    there = centres < 0.6
    assert np.abs(temperature(problem, heat) - exact)[there].max() < 0.02


def test_front_between_two_phases_moves_as_neumann_says() -> None:
    solid, liquid, latent, cold, hot = 2.0, 0.6, 3.0, -1.0, 1.5
    material = MaterialCurves(
        ((-1e-9, solid), (1e-9, liquid)), ((0.0, 1.0),), 1.0, Melting(latent, 0.0, 0.0)
    )

    def balance(x: float) -> float:
        """Frozen from the left: k_s dT_s/dx - k_l dT_l/dx = L ds/dt (Carslaw, Jaeger, 11.2)."""
        freezing = (
            solid
            * -cold
            * math.exp(-x * x / solid)
            / erf(x / math.sqrt(solid))
            / math.sqrt(math.pi * solid)
        )
        heating = (
            liquid
            * hot
            * math.exp(-x * x / liquid)
            / erfc(x / math.sqrt(liquid))
            / math.sqrt(math.pi * liquid)
        )
        return float(freezing - heating - latent * x)

    root = brentq(balance, 1e-6, 2.0)  # s = 2 root sqrt(t)
    n, length = 120, 3.0
    h = length / n
    end = (0.5 / (2 * root)) ** 2
    steps = math.ceil(end / (0.45 * h * h / solid))
    problem = problem_of([material], np.zeros(n), h, (insulated(), insulated()), end / steps)
    phi = potential_at(problem, cold)
    problem = replace(
        problem, boundary=Boundary(((affine(np.array([2 * phi]), -np.ones(1)), insulated()),))
    )
    heat = reference.advance(np.full((1, n), latent + hot), problem, steps)[0]
    solid_part = np.clip(1 - heat / latent, 0, 1).sum() * h
    assert solid_part == pytest.approx(0.5, abs=0.7 * h)


def test_k_and_c_that_grow_alike_follow_their_transform() -> None:
    """k = c = 1 + T/2: the heat content w = T + T^2/4 obeys dw/dt = d2w/dx2."""
    n, steps = 40, 400
    h = 1 / n
    problem = problem_of([UNIT], np.zeros(n), h, (insulated(), insulated()), 0.4 * h * h)
    phi = potential_at(problem, 3.0)
    assert phi == pytest.approx(3 + 9 / 4, rel=1e-4)
    problem = replace(
        problem, boundary=Boundary(((affine(np.array([2 * phi]), -np.ones(1)), insulated()),))
    )
    heat = reference.advance(np.zeros((1, n)), problem, steps)[0]
    x, t = (np.arange(n) + 0.5) * h, steps * problem.dt
    modes = [(2 * m + 1) * math.pi / 2 for m in range(60)]
    w = phi * (1 - sum(2 / q * np.sin(q * x) * math.exp(-q * q * t) for q in modes))
    np.testing.assert_allclose(heat, w, atol=2e-3 * phi)
    np.testing.assert_allclose(temperature(problem, heat), 2 * (np.sqrt(1 + w) - 1), atol=1e-2)


def test_steady_flow_through_two_nonlinear_materials_is_one_number() -> None:
    n = 6
    h = 1 / n
    second = MaterialCurves(((0.0, 5.0), (100.0, 1.0)), ((0.0, 1.0),), 1.0)
    ids = np.repeat([0.0, 1.0], n // 2)
    resistance = np.array([[0.0, 0.3], [0.3, 0.0]])
    problem = problem_of(
        [UNIT, second], ids, h, (insulated(), insulated()), 0.08 * h * h, resistance=resistance
    )
    ends = [potential_at(problem, 8.0, 0), potential_at(problem, 1.0, 1)]
    faces = tuple(affine(np.array([2 * phi]), -np.ones(1)) for phi in ends)
    problem = replace(problem, boundary=Boundary(((faces[0], faces[1]),)))
    heat = reference.advance(np.full((1, n), 2.0), problem, 5_000)
    after = reference.advance(heat, problem, 1)
    assert np.abs(after - heat).max() < 1e-7
    it = enthalpy_of(problem)
    phi = it.of(it.potential, heat[0], np.asarray(ids, np.int64))
    flows = -np.diff(phi) / h
    inside = np.delete(flows, n // 2 - 1)
    np.testing.assert_allclose(inside, inside.mean(), rtol=1e-5)
    t, i = temperature(problem, heat[0]), n // 2
    k = it.of(it.conductivity, heat[0], np.asarray(ids, np.int64))
    through = (t[i - 1] - t[i]) / (h / (2 * k[i - 1]) + 0.3 + h / (2 * k[i]))
    assert through == pytest.approx(inside.mean(), rel=1e-3)
