"""Streams through a body: what they leave with, what cells get, and runs on any division."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tetris_sim as ts
from tests.physics.test_lumps import table
from tetris_sim.config.loading import make_config
from tetris_sim.errors import ConfigMistakesError
from tetris_sim.model.equations import Moving

Numbers = npt.NDArray[np.float64]
QUIET = {"tuning_budget": 0, "threads": 1, "devices": ["cpu"]}
WATER = {"flow": 0.01, "inlet": 20, "fluid": "water", "h": 800, "perimeter": 0.02}
CARRIES = 0.01 * 4181
PLATE = [[0, 0.02], [0.2, 0.02]]


def config(streams: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [20, 4], "size": [0.2, 0.04]},
        "model": {"type": "heat", "material": "copper", "streams": streams}
        | sections.pop("model", {}),
        "initial": {"type": "constant", "value": 80},
        "boundaries": {"*": {"type": "neumann", "flux": 0}},
        "time": {"t_end": 0.05},
        "output": {"statistics": {"every": "1 step"}, "pictures": False},
        "compute": QUIET,
    } | sections


def run(directory: Path, streams: dict[str, Any], **sections: Any) -> dict[str, Numbers]:
    ts.run(config(streams, **sections), directory, progress=False)
    return table(directory)


def test_it_leaves_a_wall_of_one_temperature_by_its_transfer_units(tmp_path: Path) -> None:
    found = run(tmp_path, {"water": WATER | {"path": PLATE}})
    units = 800 * 0.02 * 0.2 / CARRIES
    exact = 80 - 60 * np.exp(-units)
    assert found["water outlet"][0] == pytest.approx(exact, rel=1e-12)
    taken = -found["heat flow water"][0]
    assert taken == pytest.approx(CARRIES * (exact - 20), rel=1e-12)

    # What it takes is what the body loses.
    assert abs(found["heat residual"]).max() < 1e-9 * np.ptp(found["heat"])
    assert np.ptp(found["heat"]) > 0


def test_parts_of_a_path_and_two_halves_are_one_stream(tmp_path: Path) -> None:
    whole = {"water": WATER | {"path": PLATE}}
    first = WATER | {"path": [[0, 0.02], [0.03, 0.02], [0.075, 0.02]]}
    second = WATER | {"path": [[0.075, 0.02], [0.2, 0.02]], "inlet": {"stream": "first"}}
    one = run(tmp_path / "one", whole)
    two = run(tmp_path / "two", {"second": second, "first": first})
    assert two["second outlet"] == pytest.approx(one["water outlet"], rel=1e-12)
    assert two["temperature mean"] == pytest.approx(one["temperature mean"], rel=1e-12)
    taken = two["heat flow first"] + two["heat flow second"]
    assert taken == pytest.approx(one["heat flow water"], rel=1e-9)


def test_branches_divide_and_mix(tmp_path: Path) -> None:
    upper = WATER | {"flow": 0.004, "inlet": {"stream": "main"}, "path": [[0.1, 0.03], [0.2, 0.03]]}
    lower = WATER | {"flow": 0.006, "inlet": {"stream": "main"}, "path": [[0.1, 0.01], [0.2, 0.01]]}
    mixed = WATER | {"inlet": {"stream": ["upper", "lower"]}, "path": [[0.2, 0.02], [0.19, 0.02]]}
    main = WATER | {"path": [[0, 0.02], [0.1, 0.02]]}
    streams = {"mixed": mixed, "lower": lower, "upper": upper, "main": main}
    found = run(tmp_path, streams)

    ua = 800 * 0.02
    middle = 80 - 60 * np.exp(-ua * 0.1 / CARRIES)
    ends = [80 - (80 - middle) * np.exp(-ua * 0.1 / (flow * 4181)) for flow in (0.004, 0.006)]
    assert found["upper outlet"][0] == pytest.approx(ends[0], rel=1e-12)
    inlet = 0.4 * ends[0] + 0.6 * ends[1]
    exact = 80 - (80 - inlet) * np.exp(-ua * 0.01 / CARRIES)
    assert found["mixed outlet"][0] == pytest.approx(exact, rel=1e-12)
    # All that the body loses leaves with the last one.
    taken = -sum(found[f"heat flow {name}"][0] for name in streams)
    assert taken == pytest.approx(CARRIES * (exact - 20), rel=1e-12)


@pytest.mark.parametrize("scheme", ["explicit", "implicit", "steady"])
def test_a_heated_plate_gives_its_power_to_the_water(tmp_path: Path, scheme: str) -> None:
    """What lasts is the same by all schemes: the inlet, warmed by the power."""
    sections: dict[str, Any] = {"time": {"scheme": scheme}}
    if scheme != "steady":
        sections["time"]["t_end"] = 3000 if scheme == "implicit" else 60
    sections["initial"] = {"type": "constant", "value": 30}
    sections["model"] = {"sources": [{"power": 500}]}
    sections["grid"] = {"shape": [10, 2], "size": [0.2, 0.04]}
    sections["output"] = {"statistics": {"every": "500 steps"}, "pictures": False}
    water = WATER | {"path": PLATE, "h": 20000}
    metal = {"conductivity": 400, "density": 100, "specific_heat": 100}
    sections["model"] |= {"material": None, "materials": {"metal": metal}}
    sections["model"]["regions"] = [{"material": "metal"}]
    found = run(tmp_path, {"water": water}, **sections)
    assert found["water outlet"][-1] == pytest.approx(20 + 500 / CARRIES, abs=1e-6)
    assert found["heat flow water"][-1] == pytest.approx(-500, rel=1e-6)
    if scheme != "steady":
        limit = 1e-9 if scheme == "explicit" else 1e-6
        assert abs(found["heat residual"]).max() < limit * np.ptp(found["heat by sources"])


def test_a_channel_wets_the_walls_of_its_void(tmp_path: Path) -> None:
    """Walls of a resolved channel get, in the mean, what one of that perimeter gives."""
    channel = {"name": "channel", "void": True, "box": {"y": [0.01, 0.03]}}
    stream = {k: v for k, v in WATER.items() if k != "perimeter"} | {"region": "channel"}
    model = {"material": None, "regions": [{"material": "copper"}, channel]}
    found = run(tmp_path, {"water": stream | {"path": PLATE}}, model=model)
    # Half cells of 5 mm of copper are in series with the film; two walls of 0.2 m.
    film = 1 / (1 / 800 + 0.005 / 398)
    exact = 80 - 60 * np.exp(-2 * film * 0.2 / CARRIES)
    assert found["water outlet"][0] == pytest.approx(exact, rel=1e-4)
    assert abs(found["heat residual"]).max() < 1e-9 * np.ptp(found["heat"])


def test_inlets_may_change_and_runs_go_on(tmp_path: Path) -> None:
    """Restarted and divided runs have the same bits."""
    water = WATER | {"path": PLATE, "inlet": {"table": [[0, 20], [0.04, 60]]}}
    sections: dict[str, Any] = {"time": {"t_end": 0.08, "dt": 0.01}}
    whole = run(tmp_path / "whole", {"water": water}, **sections)
    ts.run(config({"water": water}, time={"t_end": 0.04, "dt": 0.01}), tmp_path / "cut")
    ts.run(config({"water": water}, **sections), tmp_path / "cut", resume="auto")
    again = table(tmp_path / "cut")
    parts = run(
        tmp_path / "parts",
        {"water": water},
        **sections,
        compute=QUIET | {"threads": 2, "devices": ["cpu"] * 2},
    )
    for name in ("temperature mean", "water outlet", "heat", "heat flow water"):
        np.testing.assert_array_equal(again[name], whole[name])
        np.testing.assert_array_equal(parts[name], whole[name])
    assert np.ptp(whole["water outlet"]) > 10
    assert abs(whole["heat residual"]).max() < 1e-9 * np.ptp(whole["heat"])


def test_what_streams_exchange_is_the_same_by_slopes_and_by_hand() -> None:
    streams = {"a": WATER | {"path": PLATE}, "b": WATER | {"path": [[0.2, 0.0], [0.05, 0.04]]}}
    streams["b"]["inlet"] = {"stream": "a"}
    moving = make_config(config(streams)).build().moving
    assert isinstance(moving, Moving)
    made = moving.around.streams
    assert made is not None
    state = np.random.default_rng(1).random((4, 20)) * 50
    span = 0.0, 0.0
    slopes = made.slopes(state, span)
    there = (made.heat(state, span) * made.rates).reshape(-1)
    np.testing.assert_allclose(slopes.along(state.reshape(-1)), there, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(slopes.matrix @ state.reshape(-1), there, rtol=1e-10, atol=1e-14)
    # A body and inlets of one temperature exchange nothing.
    alike = made.heat(np.ones((4, 20)), span) + sum(made.gives(span)) - made.takes
    assert abs(alike).max() < 1e-12 * made.takes.max()


@pytest.mark.parametrize(
    ("change", "told", "where"),
    [
        ({"path": [[0, 0.02]]}, "2 or more entries", "path"),
        ({"path": [[0, 0.02], [0.1, 0.02, 0]]}, "2 coordinates", "path.1"),
        ({"fluid": None}, "give what flows", "water"),
        ({"perimeter": None}, "either the perimeter", "water"),
        ({"perimeter": None, "region": "gap"}, "no region", "region"),
        ({"inlet": {"stream": "watr"}}, "no other stream", "inlet"),
        ({"inlet": {"stream": "other"}, "flow": 0.5}, "bring", "flow"),
        ({"inlet": "20 + x"}, "x", "inlet"),
    ],
)
def test_mistakes_of_streams_are_told(change: dict[str, Any], told: str, where: str) -> None:
    streams = {"water": WATER | {"path": PLATE} | change, "other": WATER | {"path": PLATE}}
    with pytest.raises(ConfigMistakesError, match=told) as caught:
        make_config(config(streams))
    assert "model.streams.water" in str(caught.value)
    assert where in str(caught.value)


def test_streams_outside_are_told() -> None:
    with pytest.raises(ConfigMistakesError, match=r"path.1: .*outside"):
        make_config(config({"water": WATER | {"path": [[0, 0.02], [0.3, 0.02]]}})).build()
