"""Whole runs on ranks: the files of one process, restarts on other numbers of ranks, and one end
for all.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.launched_runs import PICTURES, THIN, assert_same, config_of, contents, launch_on
from tests.support.thread_ranks import AbortedError, run_ranks
from tetris_sim.config import Config
from tetris_sim.errors import (
    ConfigError,
    ElsewhereError,
    ExitCode,
    NumericsError,
    UnsupportedError,
)
from tetris_sim.model.method import Stepper
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.workers.queued import WorkerError
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.loop import Simulation
from tetris_sim.support.stopping import Stopping, StopReason


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of one process."""
    directory = tmp_path_factory.mktemp("alone") / "out"
    launch_on(1, directory, PICTURES)
    return directory


@pytest.mark.parametrize("size", [2, 3, 4])
def test_any_number_of_ranks_writes_the_files_of_one(
    size: int, tmp_path: Path, alone: Path
) -> None:
    report = launch_on(size, tmp_path / "out", *([PICTURES] if size == 3 else []))
    assert_same(tmp_path / "out", alone, pictures=size == 3)
    assert list(report.methods) == [f"{rank}/cpu:0" for rank in range(size)]
    assert len(report.ranks) == size
    assert all(rank["messages"] > 0 and rank["bytes"] > 0 for rank in report.ranks)
    assert f"{size} ranks: computing" in (tmp_path / "out" / "report.txt").read_text()


def test_a_grid_that_is_cut_along_both_axes_writes_the_files_of_one(tmp_path: Path) -> None:
    launch_on(1, tmp_path / "one", *THIN)
    report = launch_on(4, tmp_path / "four", *THIN)
    assert [reason for reason in report.plan if reason.startswith("Process grid")] == [
        "Process grid 4 along x, even: slabs would be too thin for their halos."
    ]
    assert_same(tmp_path / "four", tmp_path / "one")


@pytest.mark.parametrize("per_rank", ["false", "true"])
def test_a_run_goes_on_with_ever_fewer_ranks(per_rank: str, tmp_path: Path, alone: Path) -> None:
    directory = tmp_path / "out"
    for size, steps in ((3, 20), (2, 40), (1, 60)):
        divided = f"checkpoint.per_rank={per_rank}"
        launch_on(size, directory, f"time.steps={steps}", divided, resume="auto")
    _without_early_ends(directory, alone)
    parts = sorted(path.name for path in (directory / "checkpoints").glob("parts_*"))
    assert parts == (["parts_000000000040"] if per_rank == "true" else [])


def _without_early_ends(directory: Path, expected: Path) -> None:
    """Compare all but what a run that ends early writes at its end: records of the last step."""
    ours, theirs = contents(directory), contents(expected)
    for name in ("statistics.csv", "probes/one.csv"):
        assert ours[name] == theirs[name]
    for name in theirs:
        if name.startswith(("checkpoints/checkpoint_000000000060", "fields/fields_000000000060")):
            assert ours[name] == theirs[name], name


def outcomes(size: int, config: Config, **options: Any) -> list[tuple[str, int]]:
    """(error or nothing, exit code) of each rank."""

    def work(ranks: Communicator) -> tuple[str, int]:
        try:
            return "", launch(config, ranks=ranks, **options).exit_code
        except (ConfigError, UnsupportedError, NumericsError, ElsewhereError) as error:
            assert ranks.ending
            return type(error).__name__, int(error.exit_code)

    return run_ranks(size, work)


def test_results_that_are_there_are_refused_once_for_all(tmp_path: Path) -> None:
    launch_on(2, tmp_path / "out", "time.steps=4")
    found = outcomes(3, config_of(tmp_path / "out"))
    assert found == [("ConfigError", 2), ("ElsewhereError", 2), ("ElsewhereError", 2)]


def test_a_full_disk_is_refused_once_for_all_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.outputs.results.free_bytes", lambda directory: 1000)
    found = outcomes(2, config_of(tmp_path / "out"))
    assert found == [("UnsupportedError", 3), ("ElsewhereError", 3)]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]


def test_ranks_that_read_different_files_are_refused(tmp_path: Path) -> None:
    def work(ranks: Communicator) -> str:
        material = "copper" if ranks.rank < 2 else "aluminium"
        with pytest.raises((UnsupportedError, ElsewhereError)) as caught:
            launch(config_of(tmp_path / "out", f"model.material={material}"), ranks=ranks)
        return str(caught.value)

    assert "rank 2 builds another problem" in run_ranks(3, work)[0]


@pytest.mark.parametrize(("writes", "apart"), [("write_record", "false"), ("begin_record", "auto")])
def test_a_disk_that_refuses_ends_all_with_one_exit_code(
    writes: str, apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        msg = "disk full"
        raise UnsupportedError(msg)

    monkeypatch.setattr(f"tetris_sim.outputs.fields.{writes}", refuse)
    found = outcomes(3, config_of(tmp_path / "out", f"checkpoint.per_rank={apart}"))
    assert found == [("UnsupportedError", 3), ("ElsewhereError", 3), ("ElsewhereError", 3)]


def test_a_part_that_cannot_be_written_costs_that_checkpoint_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = itertools.count()
    original = open_checkpoint.__globals__["check_parts"].__globals__["append_seal"]

    def refuse_the_first(*arguments: Any, **options: Any) -> None:
        if next(calls) == 0:
            msg = "disk full"
            raise UnsupportedError(msg)
        original(*arguments, **options)

    monkeypatch.setattr("tetris_sim.outputs.checkpoint.file.append_seal", refuse_the_first)
    launch_on(3, tmp_path / "out", "checkpoint.per_rank=true", "checkpoint.keep=9")
    assert "disk full" in caplog.text
    assert "The run goes on without this checkpoint" in caplog.text
    steps = sorted(path.name for path in (tmp_path / "out" / "checkpoints").iterdir())
    assert steps == [
        f"{kind}_0000000000{step}{end}"
        for kind, end in (("checkpoint", ".h5"), ("parts", ""))
        for step in (40, 60)
    ]


@pytest.mark.parametrize("rank_of_nan", [0, 2])
def test_a_nan_on_any_rank_ends_all_and_is_kept_for_a_look(
    rank_of_nan: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Simulation.advance

    def spoil(self: Simulation, steps: int) -> None:
        original(self, steps)
        if self.step >= 24 and self.ranks.rank == rank_of_nan:
            stepper: Stepper = self.workers[0].stepper
            stepper._current[...] = np.nan  # type: ignore[attr-defined]

    monkeypatch.setattr(Simulation, "advance", spoil)
    found = outcomes(3, config_of(tmp_path / "out"))
    assert found == [("NumericsError", 5), ("ElsewhereError", 5), ("ElsewhereError", 5)]
    names = sorted(path.name for path in (tmp_path / "out" / "checkpoints").iterdir())
    assert names == ["checkpoint_000000000020.h5", "crash_000000000028.h5", "parts_000000000020"]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_signal_to_any_rank_stops_all_with_one_checkpoint(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: Path
) -> None:
    original = Simulation.advance

    def send(self: Simulation, steps: int) -> None:
        original(self, steps)
        if self.step >= 24 and self.ranks.rank == rank and self.problem.steps == 60:
            self._attached.stopping._reason = StopReason(ExitCode.REQUEUE, "SIGTERM arrived")

    with monkeypatch.context() as patched:
        patched.setattr(Simulation, "advance", send)
        report = launch_on(3, tmp_path / "out")
    assert (report.exit_code, report.step) == (75, 25)
    assert report.ended == "Stopped early: SIGTERM arrived"
    assert (tmp_path / "out" / "checkpoints" / "checkpoint_000000000025.h5").exists()
    assert launch_on(2, tmp_path / "out", resume="auto").exit_code == 0
    assert_same(tmp_path / "out", alone)


def test_a_wish_for_a_checkpoint_on_any_rank_is_granted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def save_requested(self: Stopping) -> bool:
        asked.append(1)
        return len(asked) == 5

    monkeypatch.setattr(Stopping, "save_requested", save_requested)
    launch_on(3, tmp_path / "out", "checkpoint.every=60 steps", "checkpoint.keep=9")
    assert len(list((tmp_path / "out" / "checkpoints").glob("*.h5"))) == 2


def test_a_rank_that_fails_in_the_middle_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Simulation.advance

    def fail(self: Simulation, steps: int) -> None:
        original(self, steps)
        if self.step >= 44 and self.ranks.rank == 1:  # the checkpoint before the last is whole
            msg = "a device has failed"
            raise RuntimeError(msg)

    monkeypatch.setattr(Simulation, "advance", fail)
    config = config_of(tmp_path / "out")
    ended: list[int] = []

    def work(ranks: Communicator) -> None:
        try:
            launch(config, ranks=ranks)
        except AbortedError:
            ended.append(ranks.rank)
            raise

    with pytest.raises(RuntimeError, match="a device has failed"):
        run_ranks(3, work)
    assert sorted(ended) == [0, 2]
    monkeypatch.undo()
    assert launch_on(2, tmp_path / "out", resume="auto").first_step in (20, 40)


@pytest.mark.parametrize(
    ("steps_until", "code"), [(24, ExitCode.REQUEUE), (12, ExitCode.RESOURCES)]
)
def test_a_device_that_fails_ends_all_with_the_code_that_says_whether_they_can_go_on(
    steps_until: int, code: ExitCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Simulation.advance

    def fail(self: Simulation, steps: int) -> None:
        original(self, steps)
        if self.step >= steps_until and self.ranks.rank == 1:
            raise WorkerError("cpu:0", "it has burnt down")

    monkeypatch.setattr(Simulation, "advance", fail)
    config = config_of(tmp_path / "out")
    with pytest.raises(WorkerError, match="cpu:0 failed: it has burnt down") as caught:
        run_ranks(3, lambda ranks: launch(config, ranks=ranks))
    assert caught.value.exit_code == code
