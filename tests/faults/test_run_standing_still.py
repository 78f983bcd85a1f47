"""A job whose limit is shorter than its planning does not requeue for ever: what planning found is
kept, and the second run in a row that makes no step ends with another exit code.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.fault_runs import checkpoint_steps, tetris_here, write_plate
from tests.support.thread_ranks import run_ranks
from tetris_sim.config import load_config
from tetris_sim.errors import ExitCode, StopRequested
from tetris_sim.outputs.results import LOCK
from tetris_sim.scheduler.tuning.measure import Trial
from tetris_sim.simulation import launch
from tetris_sim.simulation.loop import Simulation
from tetris_sim.support.stopping import Stopping, StopReason

PLANNING = "tetris_sim.simulation.preparation.plan_together"


@pytest.fixture
def plate(tmp_path: Path) -> Path:
    return write_plate(tmp_path, steps=60, often=20, checkpoint=20)


def stopped_in(place: str, monkeypatch: pytest.MonkeyPatch, config: Path, *words: str) -> Any:
    """A run that gets SIGTERM at a call."""
    module, name = place.rsplit(".", 1)
    original = getattr(__import__(module, fromlist=[name]), name)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(place, interrupted)
        return tetris_here("run", config, "--resume", "auto", *words)


@pytest.mark.parametrize("place", [PLANNING, "tetris_sim.simulation.driving.open_worker"])
def test_the_second_run_that_computes_nothing_is_not_to_be_repeated(
    place: str, plate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stopped_in(place, monkeypatch, plate)
    assert first.returncode == ExitCode.REQUEUE, first.stderr
    assert "in a row" not in first.stderr
    for number in (2, 3):
        again = stopped_in(place, monkeypatch, plate)
        assert again.returncode == ExitCode.RESOURCES, again.stderr
        assert f"run {number} in a row that was stopped at step 0" in again.stderr
        assert "Give it more time" in again.stderr
    # With enough time it is made, and later stops count anew.
    done = tetris_here("run", plate, "--resume", "auto")
    assert done.returncode == 0, done.stderr
    assert (plate.parent / "out" / LOCK).read_text() == ""
    later = stopped_in(place, monkeypatch, plate, "--set", "time.steps=120")
    assert later.returncode == ExitCode.REQUEUE


def test_steps_between_two_stops_are_progress(plate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stopped_in(PLANNING, monkeypatch, plate).returncode == ExitCode.REQUEUE
    moved = tetris_here("run", plate, "--resume", "auto", "--set", "time.steps=20")
    assert moved.returncode == 0
    more = ("--set", "time.steps=90")
    assert stopped_in(PLANNING, monkeypatch, plate, *more).returncode == ExitCode.REQUEUE


def test_a_run_that_begins_but_makes_no_step_counts_too(
    plate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the limit of wall time is near when the first step could be made."""
    assert tetris_here("run", plate, "--set", "time.steps=20").returncode == 0
    near = StopReason(ExitCode.REQUEUE, "the wall-time limit is near (0 s left)")
    monkeypatch.setattr(Simulation, "run", lambda self: near)
    codes = [tetris_here("run", plate, "--resume", "auto") for _ in range(2)]
    assert [it.returncode for it in codes] == [ExitCode.REQUEUE, ExitCode.RESOURCES]
    assert "run 2 in a row that was stopped at step 20" in codes[1].stdout
    assert checkpoint_steps(plate.parent / "out") == [20]


def test_runs_that_are_not_repeated_by_themselves_do_not_count(
    plate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(PLANNING, interrupted)
    codes = [tetris_here("run", plate, "--overwrite").returncode for _ in range(3)]
    assert codes == [ExitCode.REQUEUE] * 3


def test_ranks_end_alike_when_they_stand_still(
    plate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled = StopReason(ExitCode.REQUEUE, "SIGTERM arrived")
    monkeypatch.setattr(Stopping, "signalled", property(lambda self: signalled))

    def work(ranks: Any) -> int:
        with pytest.raises(StopRequested) as stopped:
            launch.launch(load_config(plate), resume="auto", ranks=ranks)
        return int(stopped.value.exit_code)

    assert run_ranks(2, work) == [ExitCode.REQUEUE] * 2
    assert run_ranks(2, work) == [ExitCode.RESOURCES] * 2


def test_what_was_timed_before_a_signal_is_taken_by_the_next_run(
    plate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TETRIS_SIM_CACHE_DIR", str(tmp_path / "cache"))
    plate.write_text(plate.read_text().replace("method: cpu.plain, ", "tuning_budget: 20 s, "))
    long = ("--set", "time.steps=40000000", "--set", "output={directory: %s}" % (tmp_path / "out"))
    timed: list[str] = []
    original = Trial.time

    def interrupted(self: Trial, seconds: float) -> Any:
        found = original(self, seconds)
        timed.append("x")
        if len(timed) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return found

    monkeypatch.setattr(Trial, "time", interrupted)
    first = tetris_here("run", plate, "--resume", "auto", *long)
    assert first.returncode == ExitCode.REQUEUE, first.stderr
    assert len(timed) == 2

    planned = tetris_here("plan", plate, *long)
    assert planned.returncode == 0, planned.stderr
    assert "the fastest until a signal ended the tuning" in planned.stdout
    assert len(timed) == 2
