"""Implicit steps as long as their error allows, alone and through whole runs; auto takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support.body_samples import build, heat_model, settings, start
from tests.unit.test_solve_contents import body, held
from tests.unit.test_solve_steady import grid
from tetris_sim.apps.domain import greatest_interval
from tetris_sim.config import Config, make_config
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.comm.communicator import Alone
from tetris_sim.scheduler.tuning.measure import SolvingRate
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.preparation import Proposal, _faster, prepare
from tetris_sim.simulation.report import Report
from tetris_sim.solvers.balance import balance
from tetris_sim.solvers.implicit import AdaptiveSteps, expected_steps
from tetris_sim.solvers.solver import Kept, OneDevice, Solver, settle

INSULATED = {"*": {"type": "neumann"}}
TWO: dict[str, Any] = {
    "grid": grid(10),
    "model": heat_model(
        {"material": "steel"},
        {"material": "copper", "box": {"x": [0.06, 0.1]}},
        sources=[{"density": 2e6}],
    ),
    "boundaries": {
        "x-": held(50),
        "x+": {"type": "radiation", "emissivity": 0.9, "ambient": 300},
        **INSULATED,
    },
    "initial": {"type": "constant", "value": 20},
}


@pytest.fixture(scope="module")
def device() -> Iterator[Solver]:
    team = ThreadTeam(1)
    yield OneDevice(CpuArithmetic(team))
    team.close()


def go(
    problem: Problem, device: Solver, tolerance: float, end: float
) -> tuple[np.ndarray[Any, Any], AdaptiveSteps]:
    steps = AdaptiveSteps(problem, device, tolerance)
    return steps.advance(start(problem)[0].astype(np.float64), 0.0, end), steps


def test_errors_follow_the_tolerance(device: Solver) -> None:
    problem = build(**TWO, time={"dt": "auto", "t_end": 40.0})
    exact, _ = go(problem, device, 1e-5, 40.0)
    errors, made = [], []
    for tolerance in (1e-2, 1e-3, 1e-4):
        u, steps = go(problem, device, tolerance, 40.0)
        errors.append(float(abs(u - exact).max() / np.ptp(exact)))
        made.append(steps.counted.made)
        assert errors[-1] < 10 * tolerance
        assert steps.counted.longest > 3 * steps.counted.shortest
    assert errors[2] < errors[1] < errors[0]
    # Third order: ten times the accuracy for 2.15 times the steps.
    assert 1.6 < made[2] / made[1] < 2.8
    expected = expected_steps(40.0, problem.dt_limit, 1e-4, 1)
    assert expected / 2 < made[2] < 2 * expected


def test_what_melts_is_stepped_by_its_error(device: Solver) -> None:
    problem = build(
        grid=grid(10),
        model=body({"material": "melting"}),
        boundaries={"x-": held(100), **INSULATED},
        initial={"type": "constant", "value": 20},
        time={"dt": "auto", "t_end": 1e-3},
    )
    exact = reference.advance(start(problem), problem, problem.steps)[0]
    u, steps = go(problem, device, 1e-3, 1e-3)
    assert abs(u - exact).max() < 0.02 * np.ptp(exact)
    assert steps.counted.made > 5


@pytest.mark.parametrize(("longer", "again"), [(1.5, False), (5.0, True)])
def test_what_was_made_for_other_steps_serves_as_long_as_storages_are_near(
    longer: float, again: bool, device: Solver
) -> None:
    problem, kept = build(**TWO), Kept(loose=True)
    state = start(problem)[0].astype(np.float64)
    made = balance(problem, 0.0, state)
    storage, cycles = made.capacity / 1e3, []
    assert made.whole.min() > 10 * storage.max()  # in the diagonal no difference would be seen
    for it in (storage, storage / longer):
        how: dict[str, Any] = {
            "tolerance": 1e-8,
            "scale": float(np.linalg.norm(made.heat)),
            "limit": 100,
        }
        settle(made, state, device, storage=it, kept=kept, **how)
        cycles.append(kept.cycle)
    assert (cycles[0] is not cycles[1]) == again


def test_an_error_that_stays_ends_in_a_sentence(
    device: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdaptiveSteps, "_try", lambda self, first, u, span: (u, 2.0))
    with pytest.raises(NumericsError, match=r"is still too long for an error of 0\.001"):
        go(build(**TWO), device, 1e-3, 60.0)


def run_of(directory: Path, end: float, **more: Any) -> Config:
    every = {"every": "10 s"}
    sections = {
        **TWO,
        "time": {"scheme": "implicit", "t_end": end, "tolerance": 1e-3},
        "output": {"directory": str(directory), "fields": every, "pictures": False},
        "checkpoint": {"every": "20 s"},
        "compute": {"threads": 1},
        **more,
    }
    return make_config(settings(**sections))


def fields_of(directory: Path) -> tuple[Any, Any]:
    with h5py.File(directory / "fields.h5") as file:
        return np.asarray(file["time"]), np.asarray(file["temperature"])


def test_a_run_writes_at_its_times_and_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole = launch(run_of(tmp_path / "whole", 40.0))
    assert whole.steps == 4
    assert whole.notes[0].startswith("Implicit steps: ")
    launch(run_of(tmp_path / "parts", 20.0))
    report: Report = launch(run_of(tmp_path / "parts", 40.0), resume="auto")
    assert report.first_step == 2
    (times, one), (_, other) = fields_of(tmp_path / "whole"), fields_of(tmp_path / "parts")
    np.testing.assert_allclose(times, [0, 10, 20, 30, 40])
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("end", "times", "interval"),
    [(3600.0, [60.0, 90.0], 30.0), (1.0, [], 1.0), (1.0, [0.1, 0.25, 7.0], 0.05)],
)
def test_all_times_are_whole_steps(end: float, times: list[float], interval: float) -> None:
    assert greatest_interval(end, times) == pytest.approx(interval)


def test_times_that_have_nothing_in_common_are_no_reason_for_millions_of_steps() -> None:
    assert greatest_interval(1.0, [0.1, 0.123456789]) == 0.1


@pytest.mark.parametrize(
    "time", [{"steps": 3}, {"t_end": 1.0, "cfl": 0.2}, {"dt": "auto", "steps": 3}]
)
def test_without_an_end_there_are_no_adaptive_steps(time: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="as long as the tolerance allows; give t_end"):
        make_config(settings(**{**TWO, "time": {"scheme": "implicit", **time}}))


@pytest.fixture
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solutions are as fast as on two idle cores, however busy this machine is."""
    rate = SolvingRate(before=1e-6, iteration=1e-7)
    monkeypatch.setattr("tetris_sim.scheduler.plan.solving.measure_solving", lambda *_: rate)


@pytest.mark.usefixtures("_known_rates")
def test_auto_makes_implicit_steps_where_steps_take_hours(tmp_path: Path) -> None:
    time = {"scheme": "auto", "t_end": 1e7}
    stepping = {"tuning_budget": 0, "threads": 1}
    config = run_of(tmp_path, 1e7, time=time, compute=stepping, output={}, checkpoint={})
    prepared = prepare(config, Alone(), compare=True)
    assert prepared.plan.scheme == "implicit"
    said = prepared.plan.reasons[0]
    assert "implicit steps whose error is at most 0.0001 of the range of the state about" in said
    assert "Not spectral: a jump is not possible" in said
    seconds = {it.scheme: it.seconds for it in prepared.proposals}
    assert 3 * seconds["implicit"] < seconds["explicit"]
    # One stretch to the end, of which every part is as long as it may be.
    assert prepared.plan.time_block == prepared.problem.steps


@pytest.mark.usefixtures("_known_rates")
def test_a_run_that_would_take_long_hears_of_implicit_steps(tmp_path: Path) -> None:
    config = run_of(
        tmp_path,
        1e10,
        time={"t_end": 1e10},
        compute={"tuning_budget": 0, "threads": 1},
        output={},
        checkpoint={},
    )
    prepared = prepare(config, Alone())
    assert prepared.plan.scheme == "explicit"
    assert "time.scheme: auto takes the implicit steps." in prepared.plan.reasons[0]


def test_implicit_steps_must_be_surely_faster(tmp_path: Path) -> None:
    config = run_of(tmp_path, 20.0)
    plan = prepare(config, Alone()).plan
    explicit = Proposal("explicit", plan, 10.0)
    for seconds, scheme in ((4.0, "explicit"), (3.0, "implicit")):
        reasons = _faster("auto", explicit, [Proposal("implicit", plan, seconds)], 1e-4)[0].reasons
        assert ("about 4 s" in reasons[0]) == (scheme == "explicit")
