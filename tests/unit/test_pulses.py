"""No step misses a pulse of a formula, however short it is and whatever the state is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.apps.time_functions import switches
from tetris_sim.model.formula import compile_expression

AREAL = 7800 * 500 * 0.1  # heat capacity of the rod [J/(m^2 K)]
STILL = {"type": "neumann"}
ROD: dict[str, Any] = {
    "grid": {"shape": [4], "size": ["0.1 m"]},
    "model": {
        "type": "heat",
        "regions": [{"material": "m"}],
        "materials": {"m": {"conductivity": 50, "density": 7800, "specific_heat": 500}},
    },
    "initial": {"type": "constant", "value": 20},
    "boundaries": {"*": STILL},
    "time": {"t_end": "1000 s", "scheme": "implicit", "tolerance": 1e-6},
    "compute": {"threads": 1},
}


def rise(**changes: Any) -> float:
    """The heat that a rod of 20 degC has taken up at the end [J/m^2]."""
    return float((ts.run({**ROD, **changes}, progress=False).field().mean() - 20) * AREAL)


def heated(power: str) -> dict[str, Any]:
    return {**ROD["model"], "sources": [{"power": power}]}


@pytest.mark.parametrize(
    ("power", "heat"),
    [
        ("1e4 if 300.3<t<307.9 else 0", 7.6e4),
        ("1e6 if 300.3 < t < 300.35 else 0", 5e4),
        ("1e4*(300.3 < t)*(t < 307.9) + (1e6 if 700 < t < 700.01 else 0)", 8.6e4),
        ("1e6 if t % 500 > 7 and t % 500 < 7.02 else 0", 4e4),
        ("1e6*max(0, 1 - abs(t - 500)/0.02)", 2e4),
        ("1e6*clip((t - 990)/0.01, 0, 1)*(990.5 > t)", 4.95e5),
    ],
)
def test_a_source_gives_what_its_formula_says(power: str, heat: float) -> None:
    assert rise(model=heated(power)) == pytest.approx(heat, rel=1e-8)


def test_so_do_faces_places_fluids_and_fixed_steps() -> None:
    flux = {"type": "neumann", "flux": "1e5 if 300.3 < t < 300.5 else 0"}
    assert rise(boundaries={"x-": flux, "x+": STILL}) == pytest.approx(2e4, rel=1e-5)

    density = "(1e7 if 300.3 < t < 300.32 else 0)*(x >= 0)"
    model = {**ROD["model"], "sources": [{"density": density}]}
    assert rise(model=model) == pytest.approx(2e4, rel=1e-8)

    # Nothing else than 20 degC but for a fifth of a second.
    hot = {"type": "robin", "h": 100, "ambient": "20 + (1e4 if 300.3 < t < 300.5 else 0)"}
    time = {**ROD["time"], "t_end": "301 s"}  # before it flows off again
    through = 1 / (1 / 100 + 0.0125 / 50)  # the film and half a cell
    gained = rise(boundaries={"x-": hot, "x+": STILL}, time=time)
    assert gained == pytest.approx(0.2 * through * 1e4, rel=1e-3)
    for time in ({"dt": "50 s", "scheme": "implicit"}, {"scheme": "explicit"}):
        model = heated("1e6 if 300.3 < t < 300.32 else 0")
        assert rise(model=model, time={"t_end": "1000 s", **time}) == pytest.approx(2e4, rel=1e-8)


def test_times_at_which_formulas_bend_are_read_off_them() -> None:
    for text, times in (
        ("2*t > 5 or 3 - t/2 <= t", [2.0, 2.5]),
        ("sin(t) > 0.5", []),
        ("min(t, 4, 2*t - 1)", [1.0, 2.5, 4.0]),
        ("x > t", []),
        ("heaviside(t - 3)*exp(-t) + sign(-t)", [0.0, 3.0]),
    ):
        found = switches(compile_expression(text, ["t", "x"]).tree)
        np.testing.assert_allclose(found, times)
