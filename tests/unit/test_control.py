"""Events, thermostats, PID controllers and schedules: when they act, and that nothing else
decides it.
"""

from __future__ import annotations

import copy
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import tetris_sim as ts
from tetris_sim.errors import ConfigError, ConfigMistakesError

CAPACITY = 800 * 400 * 0.02 * 0.02  # J/(m K)
LOSS = 50 * 0.02  # W/(m K)
POWER, AROUND = 200.0, 10.0
TAU = CAPACITY / LOSS


def lumped(**control: Any) -> dict[str, Any]:
    """A block so conductive that its temperature is the same everywhere."""
    return {
        "grid": {"shape": [2, 2], "size": ["20 mm", "20 mm"]},
        "model": {
            "type": "heat",
            "conductivity": 1000,
            "density": 800,
            "specific_heat": 400,
            "sources": [{"name": "coil", "power": POWER}],
        },
        "initial": {"type": "constant", "value": 15},
        "boundaries": {
            "*": {"type": "insulated"},
            "x+": {"type": "robin", "h": 50, "ambient": AROUND},
        },
        "time": {"t_end": 100, "dt": "4 ms"},
        "compute": {"devices": "cpu", "tuning_budget": 0, "threads": 1},
        "control": control,
        "output": {
            "probes": [{"name": "core", "at": ["10 mm", "10 mm"], "every": "50 s"}],
            "statistics": {"every": "50 s"},
        },
    }


HEATER = {"sensor": {"probe": "core"}, "band": [19, 21], "switches": "coil"}


def decisions(config: dict[str, Any], until: float) -> np.ndarray[Any, Any]:
    with ts.simulate(config) as simulation:
        simulation.run(until=until)
        (signal,) = simulation.problem.signals.values()
        return np.array(signal.decisions)


def exact_period(power: float = POWER) -> float:
    top = AROUND + power / LOSS
    return TAU * (math.log((top - 19) / (top - 21)) + math.log((21 - AROUND) / (19 - AROUND)))


def test_period_of_a_switched_body() -> None:
    found = decisions(lumped(heater=HEATER), 100)
    ons = found[found[:, 1] == 1, 0]
    assert len(ons) >= 3
    # A step too long under heating is cooled away at a nineteenth of the speed.
    assert np.allclose(np.diff(ons[1:]), exact_period(), atol=20 * 0.004)


def test_implicit_steps_switch_at_the_first_step_beyond_the_band() -> None:
    config, dt = lumped(heater=HEATER), 0.1
    config["time"] |= {"scheme": "implicit", "dt": dt}
    trace = [15.0]
    with ts.simulate(config) as simulation:
        simulation.run(
            until=60, every="1 step", call=lambda it: trace.append(float(it.field().mean()))
        )
        (signal,) = simulation.problem.signals.values()
        found = signal.decisions

    # The same thermostat, of the trace.
    on, switched = False, []
    for step, value in enumerate(trace):
        now = value < 19 or (on and value <= 21)
        if now != on:
            switched.append((step * dt, float(now)))
        on = now
    assert np.allclose(found, switched, atol=1e-9)

    # And from one switching to the next by the logarithms, within a step.
    for (begin, heats), (end, _) in itertools.pairwise(switched):
        first, limit = trace[round(begin / dt)], 21 if heats else 19
        rest = AROUND + heats * POWER / LOSS
        exact = TAU * math.log((rest - first) / (rest - limit))
        assert exact - 0.01 * exact < end - begin < 1.01 * exact + dt


def test_cooling_is_the_reverse() -> None:
    config = lumped(fan={**HEATER, "switches": "x+.h", "action": "cool", "band": [19, 21]})
    config["initial"]["value"] = 22
    config["model"]["sources"] = [{"power": 20.0}]
    config["boundaries"]["x+"]["h"] = 400
    found = decisions(config, 25)
    assert found[:3, 1].tolist() == [1, 0, 1]
    loss = 400 * 0.02
    rest = AROUND + 20 / loss
    down = CAPACITY / loss * math.log((22 - rest) / (19 - rest))
    up = 2 * CAPACITY / 20.0
    assert found[1, 0] == pytest.approx(down, rel=0.01)
    assert found[2, 0] - found[1, 0] == pytest.approx(up, rel=0.01)


def test_looks_are_few_and_the_audit_closes(tmp_path: Path) -> None:
    config = lumped(heater=HEATER)
    result = ts.run(config, directory=tmp_path / "run")
    heat = result.report.heat
    assert abs(heat["heat residual [J/m]"]) < 1e-9 * heat["heat by sources [J/m]"]
    assert any(note.startswith("heater on: at 0 s") for note in result.report.notes)
    assert not any("late" in note for note in result.report.notes)


def test_a_continued_run_decides_the_same(tmp_path: Path) -> None:
    # The end of the first part lies between two looks, in the middle of a cycle.
    config = lumped(
        heater=HEATER,
        slow={
            "sensor": {"mean": "block"},
            "setpoint": 20,
            "pid": {"gain": 0.2, "integral_time": 30, "derivative_time": 2},
            "switches": "x+.h",
            "action": "cool",
            "limits": [0.5, 1.5],
            "every": "7 steps",
        },
    )
    config["output"]["statistics"]["over"] = {"block": {"box": {"x": [0, 0.01]}}}
    config["time"]["t_end"] = 24
    whole = ts.run(copy.deepcopy(config), directory=tmp_path / "whole")

    for end in (4001, 5000):  # steps
        place = tmp_path / f"parts_{end}"
        config["output"]["directory"] = str(place)
        with ts.simulate(config) as simulation:
            simulation.advance(end)
        rest = ts.resume(config) if hasattr(ts, "resume") else ts.run(config, resume="auto")
        assert np.array_equal(whole.field(), rest.field())
        assert rest.report.notes[-2:] == whole.report.notes[-2:]


def test_pid_against_an_integrator() -> None:
    gain, integral, derivative = 0.05, 100.0, 3.0
    config = lumped(
        heater={
            "sensor": {"probe": "core"},
            "setpoint": 30,
            "pid": {"gain": gain, "integral_time": integral, "derivative_time": derivative},
            "switches": "coil",
            "limits": [0, 1],
            "every": "5 steps",
        }
    )
    with ts.simulate(config) as simulation:
        seen: list[tuple[float, float]] = []
        simulation.run(
            until=100, every=5, call=lambda it: seen.append((it.time, float(it.field().mean())))
        )

    def output(y: Any) -> float:
        # u depends on dT/dt, which depends on u: solved for u.
        rest = gain * (30 - y[0] + y[1] + derivative * LOSS * (y[0] - AROUND) / CAPACITY)
        return float(rest / (1 + gain * derivative * POWER / CAPACITY))

    def rates(_: float, y: Any) -> list[float]:
        wanted = output(y)
        u = min(max(wanted, 0.0), 1.0)
        grows = (30 - y[0]) / integral
        stands = (wanted > 1 and grows > 0) or (wanted < 0 and grows < 0)
        return [(u * POWER - LOSS * (y[0] - AROUND)) / CAPACITY, 0.0 if stands else grows]

    times = [time for time, _ in seen]
    exact = solve_ivp(rates, (0, 100), [15.0, 0.0], t_eval=times, max_step=0.1, rtol=1e-8)
    apart = np.abs(np.array([value for _, value in seen]) - exact.y[0])
    assert apart.max() < 0.02  # of 15 K
    # Without a stop the integral would grow while the output is at its limit, and overshoot.
    assert max(value for _, value in seen) < 33


@pytest.mark.parametrize("kind", ["any", "all"])
def test_events_end_a_run_at_their_step(tmp_path: Path, kind: str) -> None:
    config = lumped()
    del config["control"]
    config["time"]["until"] = {
        kind: [{"probe": "core", "above": 20}, {"mean": "half", "above": "25 degC"}]
    }
    config["output"]["statistics"]["over"] = {"half": {"box": {"y": [0, 0.01]}}}
    result = ts.run(config, directory=tmp_path / kind)
    top = AROUND + POWER / LOSS
    limit = 20 if kind == "any" else 25
    exact = TAU * math.log((top - 15) / (top - limit))
    report = result.report
    assert report.exit_code == 0
    assert report.time_s == pytest.approx(exact, abs=0.01 + 1e-3 * exact)
    assert "above" in report.ended
    assert any("probe core above 20: at " in note for note in report.notes)

    # To the step: the step before does not meet it.
    with ts.simulate(config) as simulation:
        simulation.run()
        now = float(simulation.field().mean())
        assert simulation.step == report.step
    config["time"].pop("until")
    with ts.simulate(config) as simulation:
        simulation.advance(report.step - 1)
        before = float(simulation.field().mean())
    assert before <= limit < now


def test_decisions_are_the_same_on_any_division() -> None:
    config = lumped(heater=HEATER)
    config["grid"]["shape"] = [8, 8]
    config["time"] |= {"dt": "0.2 ms", "t_end": 4}
    alone = decisions(config, 4)
    config["compute"] |= {"devices": ["cpu", "cpu"], "threads": 2, "time_block": 5}
    assert np.array_equal(alone, decisions(config, 4))
    assert len(alone) == 2


def test_an_output_by_hand_lasts_over_a_continuation(tmp_path: Path) -> None:
    config = lumped(knob={"output": 0.0, "switches": "coil"})
    config["output"]["directory"] = str(tmp_path / "run")
    config["time"]["t_end"] = 20
    with ts.simulate(config) as simulation:
        simulation.run(until=4)
        simulation.set_control("knob", 0.5)
        with pytest.raises(ConfigError, match="knob"):
            simulation.set_control("knop", 0.5)
        simulation.run(until=8)
    rest = ts.run(config, resume="auto")

    def after(begin: float, power: float, seconds: float) -> float:
        top = AROUND + power / LOSS
        return top + (begin - top) * math.exp(-seconds / TAU)

    exact = after(after(15.0, 0.0, 4), POWER / 2, 16)
    assert float(rest.field().mean()) == pytest.approx(exact, abs=0.02)
    heat = rest.report.heat
    assert heat["heat by sources [J/m]"] == pytest.approx(POWER / 2 * 16, rel=1e-6)


def test_two_simulations_of_one_configuration_decide_apart() -> None:
    config = lumped(heater=HEATER)
    with ts.simulate(config) as one, ts.simulate(config) as other:
        one.run(until=8)
        other.set_field(np.full((2, 2), 30.0))
        other.run(until=8)
        (first,), (second,) = (list(it.problem.signals.values()) for it in (one, other))
        assert first is not second
        assert first.count > 0
        assert second.value == 0


def test_a_pid_controller_goes_on_from_another_state() -> None:
    heater = {"sensor": {"probe": "core"}, "setpoint": 20, "switches": "coil"}
    heater["pid"] = {"gain": 0.2, "integral_time": 20, "derivative_time": 1}
    with ts.simulate(lumped(heater=heater)) as simulation:
        simulation.run(until=1)
        simulation.set_field(np.full((2, 2), 50.0))
        simulation.run(until=1.2)
        assert simulation.problem.signals["heater"].value == 0
        assert 45 < float(simulation.field().mean()) < 50


def test_a_schedule_repeats() -> None:
    config = lumped(
        heater={
            "sensor": {"probe": "core"},
            "setpoint": {"table": [[5, 20], [15, 16]], "hold": True, "period": 25},
            "hysteresis": "1 K",
            "switches": "coil",
        }
    )
    with ts.simulate(config) as simulation:
        seen: list[float] = []
        simulation.run(until=100, every=12.5, call=lambda it: seen.append(float(it.field().mean())))
    # In the middle of each period it is to be 20 degrees; at its end it has cooled for 10 s.
    assert np.allclose(seen[::2], 20, atol=0.6)
    assert all(value < 19.5 for value in seen[1::2])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sensor": {"probe": "cor"}}, "'cor' is no output.probes with a name; core"),
        ({"sensor": {"mean": "core"}}, "'core' is no model.regions"),
        ({"switches": "coal"}, "'coal' is no source with a name"),
        ({"switches": "z+.h"}, "'z+.h' is no source"),
        ({"band": [21, 19]}, "the lower end comes first"),
        ({"band": None}, "setpoint and hysteresis"),
        ({"setpoint": 20}, "give either band, or setpoint and hysteresis"),
        ({"sensor": {"probe": "core", "mean": "core"}}, "give either probe or mean"),
        ({"switches": ()}, "the name of a source"),
    ],
)
def test_mistakes_are_told(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigMistakesError, match=r"control\.heater") as caught:
        ts.run(lumped(heater={k: v for k, v in {**HEATER, **change}.items() if v is not None}))
    assert said in str(caught.value)


def test_steady_states_are_not_controlled() -> None:
    config = lumped(heater=HEATER)
    config["time"] = {"scheme": "steady"}
    with pytest.raises(ConfigMistakesError, match="scheme: steady makes no steps"):
        ts.run(config)
    two = lumped(heater=HEATER, other=HEATER)
    with pytest.raises(ConfigMistakesError, match="switched by heater already"):
        ts.run(two)
