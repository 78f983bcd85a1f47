"""Simulations within simulations: one clock, and what lumps, controllers and noise remember."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tests.unit.test_driving import HEATED, plate


@pytest.mark.parametrize("time", [{"t_end": "40 s"}, {"dt": "0.5 s", "steps": 80}])
def test_a_nest_of_simulations_has_one_clock(time: dict[str, Any], tmp_path: Path) -> None:
    config = {**HEATED, "time": time}
    with contextlib.ExitStack() as stack:
        sims = [stack.enter_context(ts.simulate(config))]
        # Faces change to what they are, and back: the end is that of one run.
        for depth, until in enumerate((10.0, 20.0, 30.0)):
            sims[-1].run(until=until)
            assert sims[-1].time == pytest.approx(until)
            faces = {"x+": HEATED["boundaries"]["x"]}
            place = tmp_path / str(depth)
            sims.append(stack.enter_context(sims[-1].with_boundary(faces, place)))
            assert sims[-1].time == sims[-2].time
        sims[-1].run()
        assert sims[-1].time == pytest.approx(40.0)
        found = sims[-1].field()[0]
    np.testing.assert_allclose(found, ts.run(config, progress=False).field(), rtol=1e-12)

    # One that was left at 30 s is continued to the same end, and so is one that made no step.
    for depth in (1, 2):
        saved = ts.open_result(tmp_path / str(depth))
        assert ts.run(saved.config, resume="auto", progress=False).report.time_s == 40.0


STEERED: dict[str, dict[str, Any]] = {
    "lump": {
        "model.lumps": {
            "sink": {"capacity": 1e5, "initial": 0, "exchanges": [{"face": "x+", "h": 1000}]}
        }
    },
    "fluid": {
        "model.regions": [
            {"material": "steel"},
            {
                "name": "tank",
                "fluid": {"capacity": 1e5, "initial": 0, "h": 800},
                "box": {"x": [0.08, 0.1]},
            },
        ]
    },
    "thermostat": {
        "control": {"it": {"sensor": {"probe": "mid"}, "band": [90, 130], "switches": "coil"}}
    },
    "pid": {
        "control": {
            "it": {
                "sensor": {"probe": "mid"},
                "setpoint": 120,
                "pid": {"gain": 0.02, "integral_time": 20},
                "switches": "coil",
            }
        }
    },
}


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
@pytest.mark.parametrize("what", STEERED)
def test_a_nest_goes_on_with_what_lumps_and_controllers_remember(what: str, scheme: str) -> None:
    rod = {
        "grid": {"shape": [10], "size": [0.1]},
        "model": {
            "type": "heat",
            "regions": [{"material": "steel"}],
            "sources": [{"name": "coil", "material": "steel", "power": 2e5}],
        },
        "initial": {"type": "constant", "value": 100},
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "robin", "h": 900, "ambient": 0}},
        "time": {"dt": 1, "t_end": 60, "scheme": scheme},
        "output": {"probes": [{"name": "mid", "at": [0.05], "every": "10 s"}]},
        "compute": {"threads": 1, "tuning_budget": 0},
    }
    whole = ts.run(rod, changes=STEERED[what], progress=False).field()
    with ts.simulate(rod, changes=STEERED[what]) as sim:
        sim.run(until=21)
        with sim.with_changes({"output.statistics": {"every": "5 s"}}) as second:
            second.run(until=33)
            with second.with_boundary({"x+": {"type": "neumann"}}) as third:
                third.run()
                np.testing.assert_allclose(third.field()[0], whole, rtol=1e-9)
        sim.run()
        np.testing.assert_allclose(sim.field()[0], whole, rtol=1e-9)


def test_a_nest_goes_on_with_what_was_set_by_hand() -> None:
    with ts.simulate(
        plate(
            model={
                "type": "heat",
                "regions": [{"material": "copper"}],
                "sources": [{"name": "coil", "material": "copper", "density": 1e9}],
            },
            boundaries={"*": {"type": "neumann"}},
            control={"knob": {"output": 1.0, "switches": "coil"}},
        )
    ) as sim:
        sim.advance(2)
        sim.set_control("knob", 0)
        before = sim.field().mean()
        with sim.with_boundary({"x-": {"type": "neumann"}}) as other:
            other.advance(2)
            assert other.field().mean() == pytest.approx(before, rel=1e-12)
            other.set_control("knob", 1)
            other.advance(2)
            assert other.field().mean() > before + 0.01
        sim.advance(2)
        assert sim.field().mean() == pytest.approx(before, rel=1e-12)


def test_a_nest_does_not_draw_the_random_numbers_of_its_beginning_again() -> None:
    field = {"equation": "noise(1, 7)", "initial": {"type": "constant", "value": 0}}
    walk = {
        "grid": {"shape": [50], "size": [1.0]},
        "model": {"type": "pde", "fields": {"u": field}},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"steps": 10, "dt": 0.1, "scheme": "euler"},
        "compute": {"threads": 1, "tuning_budget": 0},
    }
    moved = []
    with ts.simulate(walk) as sim:
        sim.advance(5)
        moved.append(before := sim.field()[0])
        for _ in range(2):
            with sim.with_changes({"output.statistics": {"every": "5 steps"}}) as other:
                other.advance(5)
                moved.append(other.field()[0] - before)
    first, second, again = moved
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.5
    np.testing.assert_array_equal(second, again)
