"""Fields of which each rank writes its own slab, from a copy while the run goes on."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support.launched_runs import assert_same, config_of, launch_on
from tests.support.thread_ranks import run_ranks
from tetris_sim.errors import ElsewhereError, UnsupportedError
from tetris_sim.outputs.field_file import Unfinished
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.workers.rank_exchange import RankExchange
from tetris_sim.simulation.background import AsyncWriter
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.loop import Simulation

CUBE = (
    "grid.shape=[12, 14, 16]",
    "grid.size=[24 mm, 28 mm, 32 mm]",
    "initial.expression=100*x + 10*y*z",
    "boundaries={'*': {type: neumann, flux: 100}}",
    "output.probes=[{at: [1 mm, 20 mm, 3 mm], every: 7 steps, name: seam}]",
)
MELTING = (
    "model={type: heat, materials: {wax: {conductivity: 100, density: 1000, specific_heat: 1000, "
    "solidus: 20, liquidus: 40, latent_heat: 100}}, regions: [{material: wax}]}",
    "boundaries={'*': {type: neumann, flux: 100}}",
)


def _fields(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "fields").iterdir())


def _name(step: int) -> str:
    return f"fields_{step:012d}.h5"


def _is_first(box: Any) -> bool:
    return all(low == 0 for low, _ in box)


def _refuse_gathering(*_: object, **__: object) -> None:
    msg = "rank 0 asked for the values"
    raise AssertionError(msg)


@pytest.mark.parametrize("overrides", [(), CUBE, ("compute.precision=float16",)])
def test_the_files_are_those_of_one_process_and_nobody_gathers(
    overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch_on(1, tmp_path / "alone", *overrides)
    monkeypatch.setattr("tetris_sim.outputs.fields.write_record", _refuse_gathering)
    for size in (2, 4):
        launch_on(size, tmp_path / str(size), *overrides)
        assert_same(tmp_path / str(size), tmp_path / "alone")
        assert _fields(tmp_path / str(size)) == [_name(step) for step in (0, 15, 30, 45, 60)]


def test_what_people_see_of_the_state_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch_on(1, tmp_path / "alone", *MELTING)
    monkeypatch.setattr("tetris_sim.outputs.fields.write_record", _refuse_gathering)
    launch_on(3, tmp_path / "ours", *MELTING)
    assert_same(tmp_path / "ours", tmp_path / "alone")
    with h5py.File(tmp_path / "ours" / "fields" / _name(0)) as file:
        assert "temperature" in file


def test_ranks_go_on_while_a_slab_is_written_and_then_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen = threading.Event(), []
    write, advance = Unfinished.write, Simulation.advance

    def slow(self: Unfinished, box: Any, read: Any) -> None:
        if self.step == 30 and not _is_first(box):
            assert gate.wait(30)
        write(self, box, read)

    def watched(self: Simulation, steps: int) -> None:
        if self.step > 34 and not gate.is_set():
            seen.extend(_fields(tmp_path / "out"))
            gate.set()
        advance(self, steps)

    monkeypatch.setattr(Unfinished, "write", slow)
    monkeypatch.setattr(Simulation, "advance", watched)
    launch_on(3, tmp_path / "out")
    assert _name(15) in seen
    assert _name(30) not in seen
    assert any(name.startswith(_name(30)) and name.endswith(".part") for name in seen)
    assert _fields(tmp_path / "out") == [_name(step) for step in (0, 15, 30, 45, 60)]


def test_a_field_and_a_checkpoint_of_a_step_are_written_from_one_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[int] = []
    original = AsyncWriter.reader

    def counted(self: AsyncWriter, state: Any, place: Any) -> Any:
        copies.append(1)
        return original(self, state, place)

    monkeypatch.setattr(AsyncWriter, "reader", counted)
    launch_on(2, tmp_path / "out", "output.fields.every=20 steps", "checkpoint.every=20 steps")
    # At 0, 20, 40 and 60 on each of two ranks; the checkpoint of the end needs no copy.
    assert len(copies) <= 8
    launch_on(1, tmp_path / "alone", "output.fields.every=20 steps", "checkpoint.every=20 steps")
    assert_same(tmp_path / "out", tmp_path / "alone")


def test_a_rank_that_does_not_see_the_file_leaves_all_to_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_here = Unfinished.is_here
    asked: list[int] = []

    def elsewhere(self: Unfinished) -> bool:
        asked.append(self.step)
        return is_here(self) and threading.current_thread().name != "rank-1"

    monkeypatch.setattr(Unfinished, "is_here", elsewhere)
    with caplog.at_level(logging.INFO, "tetris_sim"):
        launch_on(3, tmp_path / "out")
    launch_on(1, tmp_path / "alone")
    assert_same(tmp_path / "out", tmp_path / "alone")
    assert _fields(tmp_path / "out") == [_name(step) for step in (0, 15, 30, 45, 60)]
    assert "Rank 1 does not see files of rank 0" in caplog.text
    assert set(asked) == {0}  # and nobody asks again


def test_ranks_of_several_computers_hand_fields_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = Unfinished.write

    def noted(self: Unfinished, box: Any, read: Any) -> None:
        written.append(self.step)
        write(self, box, read)

    monkeypatch.setattr(Unfinished, "write", noted)
    config = config_of(tmp_path / "out")
    run_ranks(2, lambda ranks: launch(config, ranks=ranks), computers=(0, 1))
    assert not written
    config = config_of(tmp_path / "asked", "checkpoint.per_rank=true")
    run_ranks(2, lambda ranks: launch(config, ranks=ranks), computers=(0, 1))
    assert len(written) == 2 * 5


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("copies", [True, False])
def test_a_slab_that_cannot_be_written_ends_all_ranks_alike(
    failing: int, copies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Unfinished.write

    def refused(self: Unfinished, box: Any, read: Any) -> None:
        if self.step == 30 and _is_first(box) != bool(failing):
            msg = "the disk of one rank is full."
            raise UnsupportedError(msg)
        write(self, box, read)

    monkeypatch.setattr(Unfinished, "write", refused)
    if not copies:
        monkeypatch.setattr("tetris_sim.simulation.launch.AsyncWriter", lambda: None)
    config = config_of(tmp_path / "out", "checkpoint.keep=9")

    def work(ranks: Communicator) -> tuple[str, int]:
        with pytest.raises((UnsupportedError, ElsewhereError)) as caught:
            launch(config, ranks=ranks)
        return str(caught.value), int(caught.value.exit_code)

    outcomes = run_ranks(2, work)
    assert outcomes[failing] == ("the disk of one rank is full.", 3)
    assert outcomes[1 - failing][1] == 3
    assert _fields(tmp_path / "out") == [_name(0), _name(15)]
    with h5py.File(tmp_path / "out" / "fields.h5") as index:
        assert index["step"][:].tolist() == [0, 15]


def test_ranks_without_memory_for_copies_write_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    write = Unfinished.write

    def noted(self: Unfinished, box: Any, read: Any) -> None:
        threads.add(threading.current_thread().name)
        write(self, box, read)

    monkeypatch.setattr(Unfinished, "write", noted)
    launch_on(1, tmp_path / "alone")
    monkeypatch.setattr("tetris_sim.simulation.launch.AsyncWriter", lambda: None)
    launch_on(2, tmp_path / "out")
    assert threads == {"rank-0", "rank-1"}
    assert_same(tmp_path / "out", tmp_path / "alone")


def test_times_between_two_steps_are_gathered_among_slabs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = "output.fields={every: 6 steps, at: [11 ms, 23.4 ms]}"
    gathered: list[int] = []
    gather = RankExchange.gather

    def noted(self: RankExchange, workers: Any, box: Any) -> Any:
        gathered.append(np.prod([high - low for low, high in box]))
        return gather(self, workers, box)

    monkeypatch.setattr(RankExchange, "gather", noted)
    for size in (1, 3):
        launch_on(size, tmp_path / str(size), at, "output.statistics.every=60 steps")
    assert_same(tmp_path / "3", tmp_path / "1")
    # Of 60 steps, few are gathered as a whole: those around a time, and those of the statistics
    # with the audit of their heat. The rest are points of probes and layers at faces.
    whole = gathered.count(max(gathered))
    assert 0 < whole < 15
    assert len(gathered) < 45
