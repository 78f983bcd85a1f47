from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoint_samples import awkward_field, bits, make_problem, make_state, reader, whole

from tetris_sim.checkpoint import find_checkpoint, good_checkpoints, open_checkpoint
from tetris_sim.checkpoint.writer import CheckpointWriter
from tetris_sim.errors import UnsupportedError
from tetris_sim.method import Box
from tetris_sim.problem import Field

PROBLEM = make_problem()
LONG = 30.0  # seconds; never waited for unless the test fails


class _Gate:
    """A state that can be read once the gate is open."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.u = awkward_field(PROBLEM)

    def read(self, box: Box) -> Field:
        self.entered.set()
        assert self.open.wait(LONG)
        return reader(self.u)(box)


def test_the_caller_goes_on_while_the_state_is_written(tmp_path: Path) -> None:
    gate = _Gate()
    writer = CheckpointWriter()
    writer.submit(tmp_path, make_state(PROBLEM, 5), PROBLEM, gate.read, keep=2)
    assert gate.entered.wait(LONG)  # it is being written, and we are here
    assert good_checkpoints(tmp_path) == []
    gate.open.set()
    writer.wait()
    path = tmp_path / "checkpoint_000000000005.h5"
    assert good_checkpoints(tmp_path) == [path]
    with open_checkpoint(path) as checkpoint:
        assert np.array_equal(bits(checkpoint.read(whole(PROBLEM))), bits(gate.u))


def test_a_second_one_waits_for_the_first_and_order_is_kept(tmp_path: Path) -> None:
    gate = _Gate()
    order: list[int] = []

    def read_second(box: Box) -> Field:
        order.append(6)
        return reader(gate.u)(box)

    writer = CheckpointWriter()
    writer.submit(tmp_path, make_state(PROBLEM, 5), PROBLEM, gate.read, keep=1)

    def second() -> None:
        writer.submit(tmp_path, make_state(PROBLEM, 6), PROBLEM, read_second, keep=1)

    caller = threading.Thread(target=second)
    caller.start()
    caller.join(0.2)
    assert caller.is_alive()
    assert order == []
    gate.open.set()
    caller.join(LONG)
    writer.wait()
    assert order == [6]
    assert [path.name for path in good_checkpoints(tmp_path)] == ["checkpoint_000000000006.h5"]


def test_a_state_that_changes_after_the_copy_is_saved_as_it_was(tmp_path: Path) -> None:
    u = awkward_field(PROBLEM)
    writer = CheckpointWriter()
    for step in range(1, 30):
        writer.wait()
        copy = u.copy()
        writer.submit(tmp_path, make_state(PROBLEM, step), PROBLEM, reader(copy), keep=30)
        u[:] = step  # the computation goes on
    writer.wait()
    for path in good_checkpoints(tmp_path):
        with open_checkpoint(path) as checkpoint:
            step = checkpoint.state.step
            values = checkpoint.read(whole(PROBLEM))
        assert (
            np.array_equal(bits(values), bits(awkward_field(PROBLEM)))
            if step == 1
            else (values == step - 1).all()
        )
    assert len(good_checkpoints(tmp_path)) == 29


def _full(*args: object, **options: object) -> Path:
    msg = "the disk is full"
    raise UnsupportedError(msg)


@pytest.mark.parametrize("call", ["wait", "submit"])
def test_an_error_is_raised_once_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    writer = CheckpointWriter()

    def submit(step: int) -> None:
        writer.submit(
            tmp_path, make_state(PROBLEM, step), PROBLEM, reader(awkward_field(PROBLEM)), keep=2
        )

    next_call: dict[str, Callable[[], object]] = {
        "wait": writer.wait,
        "submit": functools.partial(submit, 6),
    }
    with monkeypatch.context() as patch:
        patch.setattr("tetris_sim.checkpoint.writer.write_checkpoint", _full)
        submit(5)
        with pytest.raises(UnsupportedError, match="the disk is full"):
            next_call[call]()
    writer.wait()
    assert good_checkpoints(tmp_path) == []
    submit(7)
    writer.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_000000000007.h5"]


def test_a_bug_in_reading_the_state_comes_out_as_it_is(tmp_path: Path) -> None:
    def read(box: Box) -> Field:
        msg = "no such slab"
        raise LookupError(msg)

    writer = CheckpointWriter()
    writer.submit(tmp_path, make_state(PROBLEM, 5), PROBLEM, read, keep=2)
    with pytest.raises(LookupError, match="no such slab"):
        writer.wait()
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_write_leaves_the_earlier_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.checkpoint.file._BLOCK", 400)
    gate = _Gate()

    writer = CheckpointWriter()
    writer.submit(tmp_path, make_state(PROBLEM, 5), PROBLEM, reader(gate.u), keep=1)
    writer.wait()
    writer.submit(tmp_path, make_state(PROBLEM, 6), PROBLEM, gate.read, keep=1)
    assert gate.entered.wait(LONG)
    threading.Timer(0.2, gate.open.set).start()
    writer.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_000000000005.h5"]
    found, sentences = find_checkpoint(tmp_path)
    assert found is not None
    assert (found.state.step, sentences) == (5, ())
    found.close()
