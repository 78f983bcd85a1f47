"""Faces that exchange heat by several ways at once, and correlations of convection."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from tests.support.body_samples import build, finish, heat_model
from tests.unit.test_solve_implicit import device, step
from tests.unit.test_solve_steady import arithmetic, solve
from tetris_sim.apps.boundaries import coefficient, outside, properties
from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.config.loading import make_config
from tetris_sim.config.sections.conditions import ForcedConvection, NaturalConvection
from tetris_sim.errors import ConfigMistakesError
from tetris_sim.model.formula import Node, Variable, evaluate

__all__ = ["arithmetic", "device"]  # fixtures

SIGMA = 5.670374419e-8
CORRELATION: TypeAdapter[Any] = TypeAdapter(NaturalConvection | ForcedConvection)
START = {"type": "constant", "value": 0}
PLATE = {"correlation": "vertical plate", "length": 0.1}


@functools.cache
def tree_of(**given: Any) -> Node:
    return coefficient(CORRELATION.validate_python(given), Variable("T"), Variable("a"))


def h_of(surface: Any, ambient: Any, **given: Any) -> Any:
    return evaluate(
        tree_of(**given), {"T": np.asarray(surface, float), "a": np.asarray(ambient, float)}
    )


@pytest.mark.parametrize("fluid", ["air", "water"])
def test_properties_are_those_of_the_tables(fluid: str) -> None:
    rows = properties(fluid).rows
    found = properties(fluid).at(Variable("T"))
    for column, name in enumerate(("nu", "k", "pr", "beta"), 1):
        values = evaluate(found[name], {"T": rows[:, 0]})
        allowed = 0.004 if rows[:, column].min() > 0 else 0.012
        error = abs(values - rows[:, column])
        assert (error <= allowed * (rows[:, column] if allowed == 0.004 else 750.1e-6)).all()
    # Beyond the table its ends are taken.
    assert evaluate(found["k"], {"T": np.array(9e9)}) == pytest.approx(rows[-1, 2], rel=0.004)


@pytest.mark.parametrize(
    ("h", "surface", "ambient", "given"),
    [
        # Incropera et al., Fundamentals of Heat and Mass Transfer: worked examples 9.2 (a glass
        # door), 9.3 (top and bottom of a duct), 9.4 (a steam pipe) and 7.2 (the first heater).
        (7.0, 232, 23, {"correlation": "vertical plate", "length": 0.71}),
        (5.47, 45, 15, {"correlation": "horizontal plate up", "length": 0.375}),
        (2.07, 45, 15, {"correlation": "horizontal plate down", "length": 0.375}),
        (7.29, 165, 23, {"correlation": "cylinder", "length": 0.1}),
        (134, 230, 25, {"correlation": "plate", "length": 0.05, "speed": 60}),
    ],
)
def test_coefficients_are_as_published(
    h: float, surface: float, ambient: float, given: dict[str, Any]
) -> None:
    assert h_of(surface, ambient, **given) == pytest.approx(h, rel=0.01)


def test_formulas_that_no_worked_example_shows() -> None:
    # Air at 300 K: nu = 15.89e-6, k = 26.3e-3, Pr = 0.707; a sphere of 5 cm, 2 K apart.
    ra = 9.80665 / 300 * 2 * 0.05**3 * 0.707 / 15.89e-6**2
    nusselt = 2 + 0.589 * ra**0.25 / (1 + (0.469 / 0.707) ** (9 / 16)) ** (4 / 9)
    sphere = {"correlation": "sphere", "length": 0.05}
    assert h_of(27.85, 25.85, **sphere) == pytest.approx(nusselt * 26.3e-3 / 0.05, rel=0.005)

    # Water at 300 K at 1 m/s through 2 cm: nu = 0.8576e-6, k = 0.613, Pr = 5.83.
    re = 0.02 / 0.8576e-6
    f = (0.79 * np.log(re) - 1.64) ** -2
    nusselt = f / 8 * (re - 1000) * 5.83 / (1 + 12.7 * np.sqrt(f / 8) * (5.83 ** (2 / 3) - 1))
    tube = {"correlation": "tube", "length": 0.02, "speed": 1, "fluid": "water"}
    assert h_of(80, 26.85, **tube) == pytest.approx(nusselt * 0.613 / 0.02, rel=0.005)
    assert h_of(0, 26.85, **{**tube, "speed": 0.05}) == pytest.approx(3.66 * 0.613 / 0.02, rel=5e-3)

    # A long plate: 0.037 Re^0.8 - 871, continuous with the laminar one at Re = 5e5.
    plate = {"correlation": "plate", "length": 1.0}
    below, above = (h_of(26.85, 26.85, **plate, speed=7.945 * it) for it in (0.998, 1.002))
    assert 1 < above / below < 1.01


def test_a_cold_plate_behaves_as_a_warm_one_that_looks_the_other_way() -> None:
    up, down = ({"correlation": f"horizontal plate {it}", "length": 0.2} for it in ("up", "down"))
    assert h_of(0, 40, **up) == h_of(40, 0, **down) < h_of(40, 0, **up) == h_of(0, 40, **down)


@pytest.mark.parametrize("surface", [20.0, 20.0 + 1e-13, 19.0])
def test_equal_temperatures_have_a_coefficient(surface: float) -> None:
    for correlation in ("vertical plate", "horizontal plate up", "cylinder", "sphere"):
        assert np.isfinite(h_of(surface, 20.0, correlation=correlation, length=0.1))


def test_what_is_outside_of_a_range_is_said() -> None:
    given = CORRELATION.validate_python({"correlation": "vertical plate", "length": 20.0})
    hot = {"surface": np.array([20.0, 900.0]), "ambient": np.array([20.0, 20.0])}
    assert any("Ra is" in it and "up to 1e+12" in it for it in outside(given, hot))
    warm = {"surface": np.array([20.0, 60.0]), "ambient": np.array([20.0, 20.0])}
    assert not outside(given.model_copy(update={"length": 0.1}), warm)
    water = given.model_copy(update={"length": 0.1, "fluid": "water"})
    hot = {"surface": np.array([250.0]), "ambient": np.array([90.0])}
    assert any("the table of water" in it for it in outside(water, hot))


# A face of all ways at once, against one equation.

FACES: dict[str, tuple[dict[str, Any], Any]] = {
    "formulas of temperature": (
        {
            "type": "radiation",
            "emissivity": "0.5 + 1e-4*T",
            "ambient": 10,
            "h": "10 + 0.02*T",
            "flux": "400 - T",
        },
        lambda t, time: (
            400
            - t
            + (10 + 0.02 * t) * (10 - t)
            + (0.5 + 1e-4 * t) * SIGMA * (283.15**4 - (t + 273.15) ** 4)
        ),
    ),
    "two surroundings": (
        {
            "type": "radiation",
            "flux": 300,
            "radiation": [
                {"emissivity": 0.6, "ambient": -40},
                {"emissivity": "0.3 + 0*t", "ambient": "50 + t"},
            ],
        },
        lambda t, time: (
            300
            + 0.6 * SIGMA * (233.15**4 - (t + 273.15) ** 4)
            + 0.3 * SIGMA * ((323.15 + time) ** 4 - (t + 273.15) ** 4)
        ),
    ),
    "a correlation, a flux and the sky": (
        {
            "type": "convection",
            "natural": PLATE,
            "ambient": 20,
            "flux": 500,
            "radiation": [{"emissivity": 0.9, "ambient": -10}],
        },
        lambda t, time: (
            500 + h_of(t, 20, **PLATE) * (20 - t) + 0.9 * SIGMA * (263.15**4 - (t + 273.15) ** 4)
        ),
    ),
    "a steep formula": (
        {"type": "convection", "ambient": 0, "h": "0.001*T**2 if T > 0 else 0"},
        lambda t, time: -0.001 * max(t, 0) ** 3,
    ),
}


def one_cell(face: dict[str, Any], **more: Any) -> Any:
    body = {"conductivity": 0.5, "density": 1000, "specific_heat": 50}
    return build(
        grid={"shape": [1], "size": [4e-3]},
        model={"type": "heat", **body},
        boundaries={"x-": {"type": "insulated"}, "x+": face},
        initial={"type": "constant", "value": 200},
        **more,
    )


def cooled(gain: Any, end: float) -> float:
    def rate(time: float, u: Any) -> Any:
        t = brentq(lambda t: 0.5 / 2e-3 * (u[0] - t) + gain(t, time), -270, 5000, xtol=1e-13)
        return [gain(t, time) / (1000 * 50 * 4e-3)]

    return float(solve_ivp(rate, (0, end), [200.0], rtol=1e-10, atol=1e-10).y[0, -1])


@pytest.mark.parametrize("kind", FACES)
def test_a_lumped_plate_cools_as_scipy_says(kind: str, device: Any) -> None:
    face, gain = FACES[kind]
    expected = cooled(gain, 2.0)

    # Explicit steps are of first order: of two runs one of second order is made.
    coarse, fine = (
        float(finish(one_cell(face, time={"dt": 2.0 / n, "steps": n}))[0]) for n in (100, 200)
    )
    assert 2 * fine - coarse == pytest.approx(expected, rel=1e-6)
    steps = 20 if "surroundings" in kind else 100
    implicit = {"scheme": "implicit", "dt": 2.0 / steps, "steps": steps}
    found = float(step(one_cell(face, time=implicit), device)[0])
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("conductivity", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("kind", FACES)
def test_steady_walls_satisfy_the_balance(kind: str, conductivity: float, arithmetic: Any) -> None:
    face, gain = FACES[kind]
    problem = build(
        grid={"shape": [40], "size": [0.1]},
        model={"type": "heat", "conductivity": conductivity, "density": 1, "specific_heat": 1},
        boundaries={"x-": {"type": "dirichlet", "value": 600}, "x+": face},
        time={"scheme": "steady"},
    )
    state = solve(problem, arithmetic, 1e-11).state

    def balance(t: float) -> float:
        return float(conductivity / 0.1 * (600 - t) + gain(t, 0.0))

    t = brentq(balance, -270, 5000, xtol=1e-12)
    assert state[-1] + (t - 600) / 80 == pytest.approx(t, abs=1e-6)


def test_patches_and_bodies_take_them_too() -> None:
    faces = [face for face, _ in FACES.values()]
    patches = [{**it, "where": f"x < {0.01 * n}"} for n, it in enumerate(faces[1:], 1)]
    problem = build(
        grid={"shape": [5, 4], "size": [0.05, 0.04]},
        model=heat_model({"material": "steel"}, {"material": "copper", "where": "x > 0.02"}),
        boundaries={"y+": [*patches, faces[0]], "*": {"type": "insulated"}},
        initial={"type": "constant", "value": 300},
        time={"dt": "auto", "steps": 50},
    )
    found = finish(problem)
    assert np.isfinite(found).all()
    assert found[-1].max() < 300


@pytest.mark.parametrize(
    ("start", "length", "told"),
    [
        (60.0, 0.1, ["vertical plate of air at 20 degC is known for faces of -166 to"]),
        (1800.0, 0.1, ["at 1800 degC it is not", "the table of air"]),
        (90.0, 30.0, ["at 90 degC it is not", "Ra is"]),
    ],
)
def test_a_plan_says_where_a_correlation_is_known(
    start: float, length: float, told: list[str]
) -> None:
    config = make_config(
        {
            "grid": {"shape": [4], "size": [0.1]},
            "model": {"type": "heat", "material": "steel"},
            "initial": {"type": "constant", "value": start},
            "boundaries": {
                "x-": {"type": "insulated"},
                "x+": {"type": "convection", "ambient": 20, "natural": {**PLATE, "length": length}},
            },
            "time": {"dt": "auto", "steps": 4},
        }
    )
    assert isinstance(config.model, HeatModel)
    (note,) = config.model.notes(config)
    assert note.startswith("boundaries.x+.natural: ")
    assert all(it in note for it in told)
    assert ("it is not" in note) == (len(told) > 1)


@pytest.mark.parametrize(
    ("face", "key", "told"),
    [
        ({"type": "convection", "ambient": 20}, "x+", "needs h, or a correlation"),
        ({"type": "radiation", "flux": 3}, "x+", "needs emissivity and ambient"),
        ({"type": "radiation", "emissivity": 0.5}, "x+", "needs ambient"),
        ({"type": "radiation", "emissivity": 1.5, "ambient": 3}, "x+.emissivity", "of 0 to 1"),
        ({"type": "convection", "ambient": "T", "h": 3}, "x+.ambient", "unknown name 'T'"),
        ({"type": "convection", "ambient": 3, "h": "3*U"}, "x+.h", "unknown name 'U'"),
        (
            {"type": "radiation", "radiation": [{"emissivity": "q", "ambient": 0}]},
            "x+.radiation.0.emissivity",
            "unknown name 'q'",
        ),
        (
            {"type": "convection", "ambient": 3, "natural": {**PLATE, "correlation": "plane"}},
            "x+.natural.correlation",
            "vertical plate",
        ),
        ({"type": "convection", "ambient": 3, "h": "T - 100"}, "x+.h", "must be 0 or more"),
    ],
)
def test_mistakes_are_told_with_their_key(face: dict[str, Any], key: str, told: str) -> None:
    with pytest.raises((ConfigMistakesError, Exception)) as error:
        one_cell(face)
    assert f"boundaries.{key}" in str(error.value)
    assert told in str(error.value)


def test_equations_have_no_such_faces() -> None:
    face = {"type": "robin", "h": 1, "ambient": 3, "natural": PLATE}
    with pytest.raises(ConfigMistakesError, match="natural is for the faces of a body"):
        build(
            model={"type": "pde", "fields": {"u": {"equation": "laplace(u)", "initial": START}}},
            boundaries={"*": face},
            time={"dt": 1e-3, "steps": 2},
        )
