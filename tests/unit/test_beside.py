"""What is written from a copy while the run goes on: in order, one copy at a time, no error lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoint_samples import awkward_field, bits, make_problem, make_state, whole
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field
from tetris_sim.outputs.checkpoint import (
    find_checkpoint,
    good_checkpoints,
    open_checkpoint,
    write_checkpoint,
)
from tetris_sim.outputs.output import StateSnapshot
from tetris_sim.outputs.regions import slices
from tetris_sim.simulation.background import AsyncWriter

PROBLEM = make_problem()
LONG = 30.0  # seconds; never waited for unless the test fails


class Gate:
    """Work that ends once the gate is open."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.open.wait(LONG)


def snapshot_of(state: Field, step: int) -> StateSnapshot:
    return StateSnapshot(PROBLEM, step, lambda box: state[(slice(None), *slices(box))].copy())


@pytest.fixture
def beside() -> Iterator[AsyncWriter]:
    made = AsyncWriter()
    yield made
    made.abandon()


def test_the_caller_goes_on_while_the_state_is_written(beside: AsyncWriter, tmp_path: Path) -> None:
    u, gate = awkward_field(PROBLEM), Gate()
    copy = beside.copy(snapshot_of(u, 5))

    def save() -> None:
        write_checkpoint(tmp_path, make_state(PROBLEM, 5), PROBLEM, copy.box, keep=2)

    beside.submit(gate)
    beside.submit(save)
    assert gate.entered.wait(LONG)  # it is being written, and we are here
    before = u.copy()
    u[:] = 0
    gate.open.set()
    beside.wait()
    with open_checkpoint(tmp_path / "checkpoint_000000000005.h5") as checkpoint:
        assert np.array_equal(bits(checkpoint.read(whole(PROBLEM))), bits(before))


def test_order_is_kept_and_the_copy_of_a_step_is_made_once(beside: AsyncWriter) -> None:
    u, gate, done = awkward_field(PROBLEM), Gate(), list[int]()
    copy = beside.copy(snapshot_of(u, 5))
    beside.submit(gate)
    for number in range(50):
        beside.submit(partial(done.append, number))
    assert beside.copy(snapshot_of(u, 5)) is copy
    assert done == []
    gate.open.set()
    beside.wait()
    assert done == list(range(50))
    assert beside.copy(snapshot_of(u, 5)) is not copy  # all is written: its memory is free


def test_another_copy_waits_for_all_that_reads_the_first(beside: AsyncWriter) -> None:
    u, gate, copies = awkward_field(PROBLEM), Gate(), list[StateSnapshot]()
    beside.copy(snapshot_of(u, 5))
    beside.submit(gate)
    caller = threading.Thread(target=lambda: copies.append(beside.copy(snapshot_of(u, 6))))
    caller.start()
    caller.join(0.2)
    assert copies == []
    gate.open.set()
    caller.join(LONG)
    assert [it.step for it in copies] == [6]


def test_an_error_is_raised_once_by_the_next_call_that_waits(beside: AsyncWriter) -> None:
    u, done = awkward_field(PROBLEM), list[str]()

    def fail() -> None:
        msg = "the disk is full"
        raise UnsupportedError(msg)

    for call in (beside.wait, lambda: beside.copy(snapshot_of(u, 7))):
        beside.submit(fail)
        beside.submit(lambda: done.append("after it"))
        beside.settle()  # keeps it
        with pytest.raises(UnsupportedError, match="the disk is full"):
            call()
        assert done == []
    beside.wait()
    beside.submit(lambda: done.append("later"))
    beside.wait()
    assert done == ["later"]


def test_abandoned_work_leaves_the_earlier_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.outputs.checkpoint.file._BLOCK", 400)
    u, gate, beside = awkward_field(PROBLEM), Gate(), AsyncWriter()
    write_checkpoint(tmp_path, make_state(PROBLEM, 5), PROBLEM, snapshot_of(u, 5).box, keep=1)
    copy, read = beside.copy(snapshot_of(u, 6)), list[Box]()

    def read_some(box: Box) -> Field:
        found = copy.box(box)
        if not read:
            gate()
        read.append(box)
        return found

    def save() -> None:
        write_checkpoint(tmp_path, make_state(PROBLEM, 6), PROBLEM, read_some, keep=1)

    beside.submit(save)
    assert gate.entered.wait(LONG)
    threading.Timer(0.2, gate.open.set).start()
    beside.abandon()
    assert len(read) == 1
    assert [path.name for path in good_checkpoints(tmp_path)] == ["checkpoint_000000000005.h5"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_000000000005.h5"]
    found, sentences = find_checkpoint(tmp_path)
    assert found is not None
    assert (found.state.step, sentences) == (5, ())
    found.close()
