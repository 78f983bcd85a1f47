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


BUMP = "initial={type: gaussian, amplitude: %s, sigma: 4 mm, background: %s}"


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("model.material=copper", "model.material=aluminium", "model.material is aluminium, and"),
        (BUMP % (100, 0), BUMP % (50, 0), "initial.amplitude is 50"),
        (BUMP % (100, 0), BUMP % (100, 5), "initial.background is 5"),
        ("initial={type: random, seed: 1}", "initial={type: random, seed: 2}", "initial.seed is 2"),
        ("initial={type: constant, value: 1}", BUMP % (1, 0), "initial.type is gaussian"),
        ("time.steps=60", "time.steps=61", "time.steps is 61, and 60 there"),
        ("time.until.change=1 K/s", "time.until.change=2 K/s", "time.until.change is 2"),
        ("checkpoint.per_rank=true", "checkpoint.per_rank=false", "checkpoint.per_rank is False"),
        ("checkpoint.every=20 steps", "checkpoint.every=10 steps", "checkpoint.every is 10 steps"),
        ("output.fields.every=9 steps", "output.fields=null", "output.fields.every is not given"),
        ("boundaries.x-.value=50", "boundaries.x-.value=50 + 0*t", "boundaries.x-.value is"),
        ("compute.precision=float64", "compute.precision=float32", "compute.precision is float32"),
    ],
)
def test_ranks_that_are_asked_for_different_things_are_refused(
    one: str, other: str, words: str, tmp_path: Path
) -> None:
    def work(ranks: Communicator) -> tuple[str, int]:
        with pytest.raises((ConfigError, ElsewhereError)) as caught:
            launch(config_of(tmp_path / "out", one if ranks.rank < 2 else other), ranks=ranks)
        return str(caught.value), int(caught.value.exit_code)

    found = run_ranks(3, work)
    assert {code for _, code in found} == {2}
    assert "rank 2 was asked for something else than rank 0: " in found[0][0]
    assert words in found[0][0]
    assert not list(tmp_path.rglob("*.h5"))


def initial_from(path: Path) -> str:
    return f"initial={{type: file, path: {path}}}"


def test_ranks_that_read_different_initial_fields_are_refused(tmp_path: Path) -> None:
    """Two places with the same content are the same field, as on computers with disks of theirs."""
    state = np.arange(31.0 * 23).reshape(23, 31)
    for name, values in (("one", state), ("same", state), ("other", state + 1)):
        np.save(tmp_path / f"{name}.npy", values)

    def work(ranks: Communicator) -> str:
        name = "one" if ranks.rank == 0 else second
        config = config_of(
            tmp_path / second, initial_from(tmp_path / f"{name}.npy"), "time.steps=4"
        )
        try:
            return launch(config, ranks=ranks).ended
        except (ConfigError, ElsewhereError) as error:
            return str(error)

    second = "same"
    assert run_ranks(2, work) == ["Done", "Done"]
    second = "other"
    assert "initial.path is a file with digest" in run_ranks(2, work)[0]


def test_ranks_whose_schedules_differ_late_are_refused(tmp_path: Path) -> None:
    """Tables of numbers that change with time, which the first steps do not show."""
    for name, last in (("one", 5.0), ("other", 7.0)):
        (tmp_path / f"{name}.csv").write_text(f"0, 1\n1000, 1\n2000, {last}\n")

    def work(ranks: Communicator) -> str:
        table = tmp_path / ("one.csv" if ranks.rank == 0 else "other.csv")
        source = f"model.sources=[{{power: 3 W, over_time: {table}, box: {{x: [0, 1 mm]}}}}]"
        with pytest.raises((ConfigError, ElsewhereError)) as caught:
            launch(config_of(tmp_path / "out", source), ranks=ranks)
        return str(caught.value)

    assert "model.sources[0].over_time.table is a file with digest" in run_ranks(2, work)[0]


def test_ranks_that_go_on_from_different_results_are_refused(tmp_path: Path) -> None:
    for name, value in (("one", 50), ("other", 40)):
        launch_on(1, tmp_path / name, f"boundaries.x-.value={value}", "time.steps=8")

    def work(ranks: Communicator) -> str:
        earlier = tmp_path / ("one" if ranks.rank == 0 else "other")
        initial = f"initial={{type: run, from: {earlier}}}"
        with pytest.raises((ConfigError, ElsewhereError)) as caught:
            launch(config_of(tmp_path / "next", initial), ranks=ranks)
        return str(caught.value)

    assert "initial.from is a folder with digest" in run_ranks(2, work)[0]


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
