"""Streams in closed loops past lumps, flows that change, and films that follow from flows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import solve_ivp

import tetris_sim as ts
from tests.physics.test_lumps import table
from tests.physics.test_streams import PLATE, QUIET, WATER
from tests.physics.test_streams import config as plate
from tetris_sim.apps.heat.streams import downstream
from tetris_sim.config.loading import make_config
from tetris_sim.errors import ConfigError, ConfigMistakesError
from tetris_sim.model.equations import Moving
from tetris_sim.verification.bodies import stream_cases
from tetris_sim.verification.standards import Standard

Numbers = npt.NDArray[np.float64]
CARRIES = 0.01 * 4181
BODY, TANK = 2000.0, 3000.0  # [J/K]
KA = 60.0  # of the body to the stream [W/K]


def config(water: dict[str, Any], lumps: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """One cell of 2 kJ/K, past which a stream flows."""
    metal = {"conductivity": 100, "density": 1000, "specific_heat": 1000}
    stream = {"flow": 0.01, "fluid": "water", "h": 1000, "perimeter": KA / 1000 / 0.002}
    model = {
        "type": "heat",
        "materials": {"metal": metal},
        "regions": [{"material": "metal"}],
        "streams": {"water": stream | {"path": [[0], [0.002]], **water}},
        "lumps": lumps,
    }
    return {
        "grid": {"shape": [1], "size": [0.002]},
        "model": model | sections.pop("model", {}),
        "initial": {"type": "constant", "value": 80},
        "boundaries": {"*": {"type": "neumann", "flux": 0}},
        "time": {"t_end": 200},
        "output": {"statistics": {"every": "1 step"}, "pictures": False},
        "compute": QUIET,
    } | sections


def run(directory: Path, *given: Any, **sections: Any) -> dict[str, Numbers]:
    ts.run(config(*given, **sections), directory, progress=False)
    return table(directory)


OWN = {"inlet": {"stream": "water"}}
RADIATOR = {
    "capacity": 50,
    "initial": 30,
    "exchanges": [{"ambient": 20, "resistance": 0.02}],
}


def loop(flow: float, cooled: float) -> tuple[float, float]:
    """Of a loop between a body and a lump, [W/K] per degree of their difference, and what share of
    it a ring gives: eps and eps' are the effectivenesses of both passages.
    """
    carries = flow * 4181
    ends = [1 - math.exp(-it / carries) for it in (KA, cooled)]
    return carries * ends[0] * ends[1] / (1 - (1 - ends[0]) * (1 - ends[1])), ends[0]


@pytest.mark.parametrize("scheme", ["explicit", "implicit", "steady"])
def test_a_loop_carries_from_a_heater_to_a_cooler(tmp_path: Path, scheme: str) -> None:
    """What lasts: the radiator, and above it what two exchangers in a ring need for the power."""
    water = OWN | {"through": [{"lump": "radiator", "resistance": 0.025}]}
    time: dict[str, Any] = {"scheme": scheme}
    if scheme != "steady":
        time |= {"t_end": 2000, "dt": 20 if scheme == "explicit" else 100}
    heated = {"sources": [{"power": 300}]}
    found = run(tmp_path, water, {"radiator": RADIATOR}, time=time, model=heated)
    between, _ = loop(0.01, 40)
    exact = 20 + 300 * 0.02 + 300 / between
    assert found["temperature mean"][-1] == pytest.approx(exact, abs=1e-5)
    assert found["radiator"][-1] == pytest.approx(26, abs=1e-5)
    if scheme != "steady":
        assert abs(found["heat residual"]).max() < 1e-9 * np.ptp(found["heat by sources"])


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
@pytest.mark.parametrize("mixes", [False, True])
def test_a_loop_evens_out_with_its_time_constant(
    tmp_path: Path, scheme: str, *, mixes: bool
) -> None:
    passed = {"lump": "tank"} | ({} if mixes else {"resistance": 0.025})
    tank = {"capacity": TANK, "initial": 20}
    time: dict[str, Any] = {"t_end": 60, "scheme": scheme, "dt": 1}
    if scheme == "implicit":
        time["dt"] = 2
    found = run(tmp_path, OWN | {"through": [passed]}, {"tank": tank}, time=time)
    between, _ = loop(0.01, math.inf if mixes else 40)
    rate = between * (1 / BODY + 1 / TANK)
    last = (80 * BODY + 20 * TANK) / (BODY + TANK)
    exact = last + (80 - last) * np.exp(-rate * found["time"])
    limit = 5e-3 if scheme == "explicit" else 5e-5
    np.testing.assert_allclose(found["temperature mean"], exact, atol=60 * limit)
    # Whatever the error in time is, nothing is lost.
    heat = found["temperature mean"] * BODY + found["tank"] * TANK
    np.testing.assert_allclose(heat, heat[0], rtol=1e-11)


@pytest.mark.parametrize("case", [*stream_cases()], ids=lambda it: it.name)
def test_cases_of_streams_have_their_answers(case: Standard) -> None:
    assert [row for row in case.rows() if not row.passed] == []


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_a_flow_is_switched_off_and_on(tmp_path: Path, scheme: str) -> None:
    flow = {"table": [[0, 0.01], [30, 0], [70, 0.01]], "hold": True}
    time: dict[str, Any] = {"t_end": 120, "scheme": scheme, "dt": 1}
    if scheme == "implicit":
        time["dt"] = 2
    water = OWN | {"through": [{"lump": "tank", "resistance": 0.025}], "flow": flow}
    lumps = {"tank": {"capacity": TANK, "initial": 20, "power": 100}}
    found = run(tmp_path, water, lumps, time=time)

    between = loop(0.01, 40)[0]
    state = np.array([80.0, 20.0])
    for begin, end in ((0, 30), (30, 70), (70, 120)):
        passes = between if begin != 30 else 0.0

        def rates(_: float, y: Numbers, passes: float = passes) -> list[float]:
            heat = passes * (y[1] - y[0])
            return [heat / BODY, (100 - heat) / TANK]

        state = solve_ivp(rates, (begin, end), state, rtol=1e-11, atol=1e-11).y[:, -1]
    limit = 5e-3 if scheme == "explicit" else 5e-5
    assert found["temperature mean"][-1] == pytest.approx(state[0], abs=60 * limit)
    assert found["tank"][-1] == pytest.approx(state[1], abs=60 * limit)
    heat = found["temperature mean"] * BODY + found["tank"] * TANK - 100 * found["time"]
    np.testing.assert_allclose(heat, heat[0], rtol=1e-10 if scheme == "explicit" else 1e-8)
    still = (found["time"] > 29.9) & (found["time"] < 70.1)
    assert np.ptp(found["temperature mean"][still]) < 1e-9


def test_a_flow_over_time_leaves_a_wall_by_its_transfer_units(tmp_path: Path) -> None:
    """The walls of the table's rows and the audit, with a flow that is 0 at first."""
    water = WATER | {"path": PLATE, "flow": "0.02*sin(pi*t/0.1)"}
    ts.run(plate({"water": water}, time={"t_end": 0.04, "dt": 0.01}), tmp_path, progress=False)
    found = table(tmp_path)
    now = 0.02 * np.sin(np.pi * found["time"] / 0.1) * 4181
    units = 800 * 0.02 * 0.2 / np.where(now > 0, now, 1.0)
    exact = np.where(now > 0, 80 - 60 * np.exp(-units), 80)
    np.testing.assert_allclose(found["water outlet"], exact, atol=2e-3)
    assert abs(found["heat residual"]).max() < 1e-9 * np.ptp(found["heat"])


def test_loops_go_on_and_may_be_divided(tmp_path: Path) -> None:
    """Restarted and divided runs have the same bits, with the tank and the flow where they were."""
    flow = {"table": [[0, 0.01], [0.03, 0.002], [0.05, 0.02]]}
    film = {"correlation": "tube", "diameter": 0.006, "at": 40}
    water = WATER | {"path": PLATE, "h": film, "flow": flow, **OWN, "through": [{"lump": "tank"}]}
    model = {"lumps": {"tank": {"capacity": 500, "initial": 20}}}
    sections: dict[str, Any] = {"time": {"t_end": 0.08, "dt": 0.01}, "model": model}
    ts.run(plate({"water": water}, **sections), tmp_path / "whole")
    cut = sections | {"time": {"t_end": 0.04, "dt": 0.01}}
    ts.run(plate({"water": water}, **cut), tmp_path / "cut")
    ts.run(plate({"water": water}, **sections), tmp_path / "cut", resume="auto")
    two = QUIET | {"threads": 2, "devices": ["cpu"] * 2}
    ts.run(plate({"water": water}, **sections, compute=two), tmp_path / "parts")
    whole, again, parts = (table(tmp_path / it) for it in ("whole", "cut", "parts"))
    for name in ("temperature mean", "water outlet", "heat", "tank"):
        np.testing.assert_array_equal(again[name], whole[name])
        np.testing.assert_array_equal(parts[name], whole[name])
    assert np.ptp(whole["tank"]) > 0
    assert abs(whole["heat residual"]).max() < 1e-9 * np.ptp(whole["heat"])


@pytest.mark.parametrize(
    ("flow", "which", "nusselt"),
    [(0.005, "tube", 3.66), (0.05, "tube", None), (0.1, "dittus-boelter", None)],
)
def test_a_film_follows_from_the_flow(
    tmp_path: Path, flow: float, which: str, nusselt: float | None
) -> None:
    """At 300 K water has k = 0.613, Pr = 5.83 (Incropera, table A.6)."""
    film = {"correlation": which, "diameter": 0.008}
    water = WATER | {"path": PLATE, "flow": flow, "inlet": 26.85, "h": film, "perimeter": 0.025}
    ts.run(plate({"water": water}), tmp_path, progress=False)
    found = table(tmp_path)

    re = 4 * flow / 0.025 / (5.83 * 0.613 / 4181)
    f = (0.79 * math.log(re) - 1.64) ** -2
    turbulent = f / 8 * (re - 1000) * 5.83 / (1 + 12.7 * math.sqrt(f / 8) * (5.83 ** (2 / 3) - 1))
    if which != "tube":
        turbulent = 0.023 * re**0.8 * 5.83**0.4
    h = (nusselt or turbulent) * 0.613 / 0.008
    assert (re < 2300) == bool(nusselt)
    exact = 80 - (80 - 26.85) * math.exp(-h * 0.025 * 0.2 / flow / 4181)
    assert found["water outlet"][0] == pytest.approx(exact, rel=2e-3)


def test_films_say_where_they_are_known() -> None:
    film = {"correlation": "tube", "diameter": 0.008}
    flow = {"table": [[0, 0.005], [0.05, 0.02]]}
    water = WATER | {"path": PLATE, "flow": flow, "h": film, "perimeter": 0.025}
    moving = make_config(plate({"water": water})).build().moving
    assert isinstance(moving, Moving)
    assert moving.around.streams is not None
    told = " ".join(moving.around.streams.notes)
    assert "h of 276 to" in told
    assert "neither laminar nor turbulent" in told


def test_what_changing_streams_exchange_is_the_same_by_slopes_and_by_hand() -> None:
    film = {"correlation": "tube", "diameter": 0.006}
    flow = {"table": [[0, 0.01], [0.05, 0.05]]}
    streams = {
        "a": WATER | {"path": PLATE, "flow": flow, "h": film, "through": [{"lump": "tank"}]},
        "b": WATER | {"path": [[0.2, 0.0], [0.05, 0.04]], "flow": flow, "inlet": {"stream": "a"}},
    }
    lumps = {"tank": {"capacity": 500, "initial": 20}}
    moving = make_config(plate(streams, model={"lumps": lumps})).build().moving
    assert isinstance(moving, Moving)
    made = moving.around.streams
    assert made is not None
    span, rng = (0.02, 0.02), np.random.default_rng(1)
    state, other = rng.random((2, 4, 20)) * 50
    slopes = made.slopes(state, span)
    step = (made.heat(state + other, span) - made.heat(state, span)) * made.rates
    np.testing.assert_allclose(slopes.along(other.reshape(-1)), step.reshape(-1), rtol=1e-9)
    np.testing.assert_allclose(slopes.matrix @ other.reshape(-1), step.reshape(-1), rtol=1e-9)
    # At one temperature nobody exchanges anything.
    known = np.full(2, 30.0)
    alike = made._means(made._flowing(span), np.full(len(made.inlets), 30.0), known)
    np.testing.assert_allclose(alike, 30.0, rtol=1e-14)
    seen = made.sees(span).toarray() @ state.reshape(-1)
    np.testing.assert_allclose(seen, made.seen(state, span), rtol=1e-12)


def test_rings_have_an_order() -> None:
    streams = {
        name: WATER | {"path": PLATE, "inlet": {"stream": other}}
        for name, other in ("ab", "bc", "ca")
    }
    made = make_config(plate(streams | {"d": WATER | {"path": PLATE}})).model
    assert sorted(downstream(made.streams)) == ["a", "b", "c", "d"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "told", "where"),
    [
        ({"flow": 0}, "nothing flows", "water"),
        ({"flow": {"table": [[0, 0.01], [0.05, -0.01]]}}, "0.*or more", "flow"),
        ({"through": [{"lump": "tnk"}]}, "no lump .did you mean", "through.0.lump"),
        ({"h": {"correlation": "tube"}}, "diameter", "h"),
        ({"h": {"correlation": "tub", "diameter": 0.01}}, "tub", "h"),
        (
            {"h": {"correlation": "tube", "diameter": 0.01}, "perimeter": None},
            "give it",
            "perimeter",
        ),
        (OWN | {"h": {"correlation": "tube", "diameter": 0.01}}, "properties are taken", "h.at"),
        ({"inlet": {"stream": "other"}}, "another specific heat", "inlet"),
    ],
)
def test_mistakes_are_told(change: dict[str, Any], told: str, where: str) -> None:
    other = WATER | {"path": PLATE, "specific_heat": 2000}
    streams = {"water": WATER | {"path": PLATE} | change, "other": other}
    model = {"lumps": {"tank": {"capacity": 500, "initial": 20}}}
    if "through" not in change:
        streams["other"]["through"] = [{"lump": "tank"}]
    with pytest.raises(ConfigMistakesError, match=told) as caught:
        make_config(plate(streams, model=model))
    assert "model.streams.water" in str(caught.value)
    assert where in str(caught.value)


def test_flows_over_time_add_up_or_are_told() -> None:
    streams = {
        "main": WATER | {"path": PLATE, "flow": {"table": [[0, 0.01], [0.05, 0.02]]}},
        "branch": WATER | {"path": PLATE, "flow": 0.015, "inlet": {"stream": "main"}},
    }
    with pytest.raises(ConfigError, match=r"branch.flow: at 0 s .*main bring"):
        make_config(plate(streams)).build()
    flows = {"flow": "0.01 + t/100"}
    with pytest.raises(ConfigError, match="nothing stays as it is"):
        make_config(
            plate({"a": WATER | {"path": PLATE} | flows}, time={"scheme": "steady"})
        ).build()
    alone = {"lumps": {"tank": {"capacity": 500, "initial": 20}}}
    with pytest.raises(ConfigMistakesError, match="exchanges heat with nothing"):
        make_config(plate({"a": WATER | {"path": PLATE}}, model=alone))
