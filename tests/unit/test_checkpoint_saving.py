"""When checkpoints are taken, and what the run waits for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import make_problem
from tetris_sim.config.sections.quantities import Every
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.outputs.checkpoint import RunState, problem_digest, write_checkpoint
from tetris_sim.outputs.checkpoint import directory as saving_module
from tetris_sim.outputs.checkpoint.directory import Checkpoints
from tetris_sim.outputs.output import StateSnapshot, StepSchedule


def small_problem() -> tuple[Problem, Field]:
    return make_problem(
        named_stencil("heat-2d").stencil, Boundary.everywhere(Neumann(), 2), steps=100
    )


def checkpoints(directory: Path, problem: Problem, **changes: Any) -> Checkpoints:
    def make_state(step: int) -> RunState:
        return RunState(step, problem.dt, problem.steps, "run", "config", problem_digest(problem))

    schedule = StepSchedule(Every(10, "steps"), problem.dt, problem.steps)
    settings: dict[str, Any] = {
        "schedule": schedule,
        "wall_seconds": None,
        "keep": 2,
        "at_end": True,
    }
    return Checkpoints(directory, make_state, **(settings | changes))


def snapshot_of(problem: Problem, step: int, state: Field) -> StateSnapshot:
    def read(box: tuple[tuple[int, int], ...]) -> Field:
        return state[(slice(None), *(slice(a, b) for a, b in box))].copy()

    return StateSnapshot(problem, step, read)


def test_the_last_state_is_saved_once_and_only_if_wanted(tmp_path: Path) -> None:
    problem, state = small_problem()
    saved: list[int] = []

    def run(finish: Callable[[Checkpoints], None], **changes: Any) -> None:
        saving = checkpoints(tmp_path, problem, **changes)
        finish(saving)
        for path in tmp_path.glob("*.h5"):
            saved.append(int(path.stem.rsplit("_")[-1]))
            path.unlink()

    last = snapshot_of(problem, 100, state)
    run(lambda saving: saving.finish(last, early=False))
    run(lambda saving: saving.finish(last, early=False), at_end=False)
    run(lambda saving: saving.finish(last, early=False), saved_step=100)
    run(lambda saving: saving.finish(snapshot_of(problem, 37, state), early=True), at_end=False)
    assert saved == [100, 37]


def test_a_failed_checkpoint_is_a_warning_and_a_failed_last_one_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problem, state = small_problem()
    saving = checkpoints(tmp_path, problem)
    good = write_checkpoint(
        tmp_path, saving._make_state(5), problem, snapshot_of(problem, 5, state).box, keep=2
    )

    def full(*_: Any, **__: Any) -> Path:
        msg = "the disk is full."
        raise UnsupportedError(msg)

    monkeypatch.setattr(saving_module, "write_checkpoint", full)
    monkeypatch.setattr(logging.getLogger("tetris_sim"), "propagate", True)
    saving.save(snapshot_of(problem, 10, state))
    assert "the disk is full. The run goes on without this checkpoint." in caplog.text
    with pytest.raises(UnsupportedError, match="full"):
        saving.finish(snapshot_of(problem, 100, state), early=False)
    assert good.exists()


def test_the_clock_asks_for_a_checkpoint_and_is_wound_by_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, state = small_problem()
    now = [1000.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    saving = checkpoints(tmp_path, problem, schedule=None, wall_seconds=60.0)
    assert saving.next_step(0) is None
    assert not saving.due_by_clock()
    now[0] += 61
    assert saving.due_by_clock()
    saving.restart_clock()
    assert not saving.due_by_clock()
    saving.finish(snapshot_of(problem, 10, state), early=False)
