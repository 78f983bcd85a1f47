"""Surfaces that radiate to fluids and across gaps: formulas, budgets, refusals, the suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError
from tetris_sim.model.radiation import KELVIN, STEFAN_BOLTZMANN, radiated
from tetris_sim.verification.engineering import engineering_cases
from tetris_sim.verification.standards import Answer, Standard

SOLID = {"conductivity": 2.0, "density": 2000.0, "specific_heat": 500.0}
INSULATED = {"type": "neumann"}


def test_newtons_method_reaches_rounding_errors_between_1_and_3000_kelvin() -> None:
    rng = np.random.default_rng(1)
    n, e = 100_000, STEFAN_BOLTZMANN
    here, there = 10 ** rng.uniform(0, np.log10(3000), (2, n)) - KELVIN
    most = 4 * e * np.maximum(here + KELVIN, there + KELVIN) ** 3
    own, other = 10 ** rng.uniform(-6, 1, (2, n)) / most
    contact = np.where(rng.random(n) > 0.5, np.inf, 10 ** rng.uniform(-4, 4, n))
    with np.errstate(divide="ignore", under="ignore"):
        found = radiated(here, there, own, other, contact, np.full(n, e))
        back = radiated(there, here, other, own, contact, np.full(n, e))

    t, u = here + KELVIN + own * found.flow, there + KELVIN - other * found.flow
    off = (u - t) / contact + e * (u**4 - t**4) - found.flow
    steep = 1 + own * (1 / contact + 4 * e * t**3) + other * (1 / contact + 4 * e * u**3)
    scale = np.maximum(abs(found.flow), 1e-12 * e * np.maximum(t, u) ** 4)
    assert (abs(off / steep) / scale).max() < 2e-12
    assert (back.flow == -found.flow).all()  # what leaves one cell enters the other
    assert ((t > 0) & (u > 0)).all()


@pytest.mark.parametrize("case", engineering_cases(), ids=lambda it: it.name)
def test_cases_of_the_suite_meet_their_formulas(case: Standard) -> None:
    rows = case.rows()
    assert rows
    assert [row for row in rows if not row.passed] == []


def _gap(**contact: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [10], "size": [0.1]},
        "initial": {"type": "expression", "expression": "where(x < 0.05, 800, 20)"},
        "model": {
            "type": "heat",
            "materials": {"a": SOLID, "b": SOLID},
            "regions": [{"material": "a"}, {"material": "b", "box": {"x": [0.05, 1]}}],
            "contacts": [{"between": ["a", "b"], **contact}],
        },
        "boundaries": {"*": INSULATED},
    }


def test_an_insulated_pair_of_plates_keeps_its_heat_over_implicit_steps() -> None:
    time = {"scheme": "implicit", "dt": 500.0, "t_end": 10000.0, "tolerance": 1e-10}
    found: list[np.ndarray[Any, Any]] = []

    def look(answer: Answer) -> Any:
        found.append(answer.field())
        yield from ()

    Standard("", "", _gap(emissivity=[0.9, 0.9]) | {"time": time}, look, (500.0, 10000.0)).rows()
    early, late = found
    assert early[:5].min() > early[5:].max() + 150
    np.testing.assert_allclose(late, 410.0, atol=0.5)  # the mean of 800 and 20
    np.testing.assert_allclose(early.mean(), 410.0, rtol=1e-8)


@pytest.mark.parametrize(
    ("contact", "said"),
    [
        ({}, "give the resistance of the contact, the emissivity of both sides, or both"),
        ({"emissivity": [0.8, 1.2]}, "1.2"),
        ({"emissivity": [0.8, 0.5], "resistance": 0}, "no resistance between them"),
    ],
)
def test_contacts_that_mean_nothing_are_refused(contact: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_config(_gap(**contact) | {"time": {"scheme": "steady"}})


def test_a_fluid_needs_a_film_or_an_emissivity() -> None:
    sections = _gap(resistance=0.1) | {"time": {"scheme": "steady"}}
    sections["model"]["regions"].append({"fluid": {"ambient": 20}, "box": {"x": [0.09, 1]}})
    with pytest.raises(ConfigError, match="h, emissivity, or both"):
        make_config(sections)


def test_the_largest_step_does_not_depend_on_how_hot_surfaces_are() -> None:
    problem = make_config(_gap(emissivity=[1, 1]) | {"time": {"cfl": 0.1, "steps": 1}}).build()
    # Half a cell on either side of the gap, as if both surfaces had one temperature.
    diffusivity = 2.0 / (2000 * 500)
    assert problem.dt_limit == pytest.approx(0.01**2 / diffusivity / 2)


def test_a_fluid_that_does_not_radiate_keeps_temperatures_as_its_state() -> None:
    sections = _gap(resistance=0.1) | {"time": {"cfl": 0.1, "steps": 1}}
    fluid = {"fluid": {"ambient": 20, "h": 10}, "box": {"x": [0.09, 1]}}
    sections["model"]["regions"].append(fluid)
    assert make_config(sections).build().body.enthalpy is None
    fluid["fluid"] = {"ambient": 20, "h": 10, "emissivity": 0.5}
    enthalpy = make_config(sections).build().body.enthalpy
    assert enthalpy is not None
    assert enthalpy.radiates
