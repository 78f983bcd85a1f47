"""Checkpoints of ranks that are written from copies while the run goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.launched_runs import assert_same, config_of, launch_on
from tests.support.thread_ranks import run_ranks
from tetris_sim.errors import ElsewhereError, UnsupportedError
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.outputs.checkpoint.directory import good_checkpoints
from tetris_sim.outputs.checkpoint.file import write_part
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.simulation.background import AsyncWriter
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.loop import Simulation


def _checkpoints(directory: Path) -> list[int]:
    return sorted(int(path.stem[-12:]) for path in good_checkpoints(directory / "checkpoints"))


def test_ranks_go_on_while_a_part_is_written_and_then_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen = threading.Event(), []
    write, advance = write_part, Simulation.advance

    def slow(number: int, *rest: Any, **more: Any) -> Any:
        if number == 1:
            assert gate.wait(30)
        return write(number, *rest, **more)

    def watched(self: Simulation, steps: int) -> None:
        if self.step > 24:
            seen.append(_checkpoints(tmp_path / "out"))
            gate.set()
        advance(self, steps)

    monkeypatch.setattr("tetris_sim.simulation.background.write_part", slow)
    monkeypatch.setattr(Simulation, "advance", watched)
    launch_on(3, tmp_path / "out", "checkpoint.keep=9")
    assert seen[0] == []  # two blocks after step 20, nothing was lost and nothing waits
    assert 20 in seen[-1]  # the next one began when it was whole; that one may be under way
    assert _checkpoints(tmp_path / "out") == [20, 40, 60]


def test_the_state_is_that_of_its_step_and_the_same_for_any_division(tmp_path: Path) -> None:
    for size in (1, 2, 4):
        launch_on(size, tmp_path / str(size), "checkpoint.keep=9")
    for size in (2, 4):
        assert_same(tmp_path / str(size), tmp_path / "1")
        for step in (20, 40):
            name = f"checkpoints/checkpoint_{step:012d}.h5"
            parts = (tmp_path / str(size) / "checkpoints" / f"parts_{step:012d}").iterdir()
            assert len(list(parts)) == size
            with (
                open_checkpoint(tmp_path / str(size) / name) as ours,
                open_checkpoint(tmp_path / "1" / name) as alone,
            ):
                box = tuple((0, n) for n in alone.grid.shape)
                np.testing.assert_array_equal(ours.read(box), alone.read(box))


def test_a_part_that_cannot_be_written_costs_that_checkpoint_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = write_part

    def refused(number: int, *rest: Any, step: int, **more: Any) -> Any:
        if (number, step) == (1, 20):
            msg = "the disk of one rank is full."
            raise UnsupportedError(msg)
        return write(number, *rest, step=step, **more)

    monkeypatch.setattr("tetris_sim.simulation.background.write_part", refused)
    launch_on(2, tmp_path / "out", "checkpoint.keep=9")
    assert _checkpoints(tmp_path / "out") == [40, 60]
    assert not (tmp_path / "out" / "checkpoints" / "parts_000000000020").exists()
    assert "the disk of one rank is full. The run goes on without this checkpoint." in caplog.text


def test_ranks_of_several_computers_leave_files_to_the_first(tmp_path: Path) -> None:
    config = config_of(tmp_path / "out")
    run_ranks(2, lambda ranks: launch(config, ranks=ranks), computers=(0, 1))
    assert not list((tmp_path / "out" / "checkpoints").glob("parts_*"))
    config = config_of(tmp_path / "asked", "checkpoint.per_rank=true")
    run_ranks(2, lambda ranks: launch(config, ranks=ranks), computers=(0, 1))
    assert len(list((tmp_path / "asked" / "checkpoints").glob("parts_*"))) == 2


def test_a_last_part_that_cannot_be_written_ends_all_ranks_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = write_part

    def refused(number: int, *rest: Any, step: int, **more: Any) -> Any:
        if (number, step) == (1, 60):
            msg = "the disk of one rank is full."
            raise UnsupportedError(msg)
        return write(number, *rest, step=step, **more)

    monkeypatch.setattr("tetris_sim.simulation.background.write_part", refused)
    config = config_of(tmp_path / "out")

    def work(ranks: Communicator) -> tuple[str, int]:
        with pytest.raises((UnsupportedError, ElsewhereError)) as caught:
            launch(config, ranks=ranks)
        return str(caught.value), int(caught.value.exit_code)

    (said, code), *others = run_ranks(2, work)
    assert said == "the disk of one rank is full."
    assert [code, *(code for _, code in others)] == [3, 3]
    assert _checkpoints(tmp_path / "out") == [20, 40]
    assert not (tmp_path / "out" / "checkpoints" / "parts_000000000060").exists()


@pytest.mark.parametrize("ranks_without", [(1,), (0, 1)])
def test_ranks_without_memory_for_copies_write_their_parts_at_once(
    ranks_without: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    write = write_part

    def noted(*rest: Any, **more: Any) -> Any:
        threads.append(threading.current_thread().name)
        return write(*rest, **more)

    def beside() -> AsyncWriter | None:
        with_memory = threading.current_thread().name not in [f"rank-{k}" for k in ranks_without]
        return AsyncWriter() if with_memory else None

    monkeypatch.setattr("tetris_sim.simulation.background.write_part", noted)
    monkeypatch.setattr("tetris_sim.simulation.launch.AsyncWriter", beside)
    launch_on(2, tmp_path / "out", "checkpoint.keep=9")
    assert _checkpoints(tmp_path / "out") == [20, 40, 60]
    assert len(threads) == 6
    assert "beside" not in threads
    launch_on(1, tmp_path / "alone", "checkpoint.keep=9")
    assert_same(tmp_path / "out", tmp_path / "alone")
