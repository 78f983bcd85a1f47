"""The run loop: never over an output, checkpoints after outputs, NaN before anything is written."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cases import make_problem
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.errors import ConfigError, ExitCode, NumericsError, UnsupportedError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.problem import Field, Problem, StateVariable, Total, View
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.outputs.checkpoint.file import CheckpointPart
from tetris_sim.outputs.output import Snapshot
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.simulation.background import AsyncWriter
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.support.stopping import Stopping, StopReason

Log = list[tuple[str, str, int]]  # (who, what, step)


class Recorder:
    """An output that wants every `period`-th step and notes what happens to it, in a common log."""

    reads_all = True

    def __init__(self, name: str, period: int, log: Log) -> None:
        self.name, self.period, self.log = name, period, log
        self.fields: dict[int, Field] = {}

    def next_step(self, step: int) -> int | None:
        due = (step // self.period + 1) * self.period
        return due if due <= 20 else None

    def start(self, step: int) -> None:
        self.log.append((self.name, "start", step))

    def write(self, snapshot: Snapshot) -> None:
        self.log.append((self.name, "write", snapshot.step))
        self.fields[snapshot.step] = snapshot.field().copy()

    def flush(self) -> None:
        self.log.append((self.name, "flush", -1))

    def close(self) -> None:
        self.log.append((self.name, "close", -1))


class Saver(Recorder):
    """Checkpoints that are only noted."""

    clock, divided = False, False

    def wants_last(self, step: int, *, early: bool) -> bool:
        raise AssertionError

    def tidy(self) -> None:
        raise AssertionError

    def begin(self, problem: Problem, step: int) -> Path:
        raise AssertionError

    def remember(self, step: int, change: float) -> None:
        pass

    def count(
        self, step: int, moved: Mapping[str, float], decided: Mapping[str, Any] | None = None
    ) -> None:
        pass

    def publish(self, problem: Problem, step: int, parts: list[CheckpointPart] | str) -> None:
        raise AssertionError

    def forget(self) -> None:
        raise AssertionError

    def restart_clock(self) -> None:
        pass

    def due_by_clock(self) -> bool:
        return self.clock

    def save(self, snapshot: Snapshot) -> None:
        self.log.append((self.name, "save", snapshot.step))

    def finish(self, snapshot: Snapshot, *, early: bool, **_: Any) -> None:
        self.log.append((self.name, "early" if early else "finish", snapshot.step))

    def dump(self, snapshot: Snapshot) -> str:
        self.log.append((self.name, "dump", snapshot.step))
        return "The last good checkpoint is CHECKPOINT."


def make_plan(problem: Problem, time_block: int) -> Plan:
    share = Share("cpu:0", Slab.whole(problem.grid), CpuPlainMethod(), {}, 2, 1e9, 0)
    return Plan((share,), time_block, 1e-6, 0.0, copy_for_checkpoints=True, reasons=())


def heat(steps: int = 20) -> Problem:
    stencil = named_stencil("heat-2d").stencil
    return make_problem(stencil, Boundary.everywhere(Neumann(), 2), steps=steps)[0]


@pytest.mark.parametrize("time_block", [1, 3, 1000])
def test_every_output_sees_exactly_the_steps_it_wants(time_block: int) -> None:
    problem = heat()
    log: Log = []
    outputs = [Recorder("fours", 4, log), Recorder("sevens", 7, log)]
    with open_simulation(problem, make_plan(problem, time_block), outputs=outputs) as simulation:
        simulation.run()
    assert [step for name, what, step in log if (name, what) == ("fours", "write")] == [
        0,
        4,
        8,
        12,
        16,
        20,
    ]
    assert [step for name, what, step in log if (name, what) == ("sevens", "write")] == [0, 7, 14]
    state = problem.initial(Slab.whole(problem.grid))
    for step, field in outputs[1].fields.items():
        np.testing.assert_allclose(
            field, reference.advance(state, problem, step), rtol=0, atol=1e-13
        )


def test_outputs_see_what_people_see_and_checkpoints_the_state() -> None:
    shown = StateVariable("u", "1", "u", Total("sum", "1", 1.0))
    squares = View((shown, shown), lambda box, state: np.concatenate([state, state**2]))
    problem = dataclasses.replace(heat(), view=squares)
    log: Log = []
    saved: list[Field] = []

    class Keeper(Saver):
        def finish(self, snapshot: Snapshot, *, early: bool, **_: Any) -> None:
            saved.append(snapshot.field())

    output, keeper = Recorder("output", 10, log), Keeper("saver", 1000, log)
    plan = make_plan(problem, 7)
    with open_simulation(problem, plan, outputs=[output], saving=keeper) as simulation:
        simulation.run()

    assert saved[-1].shape == problem.state_shape
    assert output.fields[20].shape == problem.seen.state_shape == (2, *problem.grid.shape)
    np.testing.assert_array_equal(output.fields[20], np.concatenate([saved[-1], saved[-1] ** 2]))
    first = problem.seen.initial(Slab.whole(problem.grid))
    np.testing.assert_array_equal(output.fields[0], first)


@pytest.mark.parametrize("reads_all", [True, False])
def test_what_is_written_beside_the_run_is_what_it_would_write_itself(reads_all: bool) -> None:
    problem = heat()
    found: list[tuple[Log, dict[int, Field]]] = []
    for beside in (None, AsyncWriter()):
        log: Log = []
        few, many = Recorder("few", 4, log), Recorder("many", 5, log)
        few.reads_all = reads_all
        saver = Saver("saver", 10, log)
        with open_simulation(
            problem, make_plan(problem, 3), outputs=[few, many], saving=saver, beside=beside
        ) as simulation:
            simulation.run()
        assert log[-2:] == [("many", "close", -1), ("few", "close", -1)]
        found += [
            ([it for it, _ in itertools.groupby(it for it in log if it[0] == name)], one.fields)
            for name, one in (("few", few), ("many", many))
        ]
        at = log.index(("saver", "save", 10))
        assert {("few", "flush", -1), ("many", "flush", -1)} <= set(log[:at])
        assert log.index(("many", "write", 10)) < log.index(("many", "flush", -1)) < at

    for (log, fields), (log_beside, fields_beside) in zip(found[:2], found[2:], strict=True):
        assert log_beside == log
        assert fields_beside.keys() == fields.keys()
        for step, field in fields.items():
            np.testing.assert_array_equal(fields_beside[step], field)


@pytest.mark.parametrize("due", [10, 1000])
def test_the_last_checkpoint_is_written_beside_outputs_and_known_after_them(due: int) -> None:
    problem = heat()
    log: Log = []
    written = threading.Event()

    class Slow(Recorder):
        def write(self, snapshot: Snapshot) -> None:
            assert snapshot.step < 20 or written.wait(20), "the checkpoint waits for the output"
            super().write(snapshot)

    class Keeper(Saver):
        def finish(self, snapshot: Snapshot, *, early: bool, **more: Any) -> None:
            assert (more["owed"], early) == (due == 10, False)
            snapshot.field()
            written.set()
            more["ready"]()
            log.append((self.name, "known", snapshot.step))

    slow, keeper = Slow("slow", 20, log), Keeper("saver", due, log)
    plan = make_plan(problem, 7)
    with open_simulation(
        problem, plan, outputs=[slow], saving=keeper, beside=AsyncWriter()
    ) as simulation:
        simulation.run()
    known = log.index(("saver", "known", 20))
    assert log.index(("slow", "write", 20)) < known
    assert log[known - 1] == ("slow", "flush", -1)
    assert ("saver", "save", 20) not in log


def test_the_run_goes_on_while_an_output_writes() -> None:
    problem = heat()
    log: Log = []
    gone_on = threading.Event()

    class Slow(Recorder):
        def write(self, snapshot: Snapshot) -> None:
            assert snapshot.step > 0 or gone_on.wait(20), "the run waits for its output"
            super().write(snapshot)

    class Quick(Recorder):
        reads_all = False

        def write(self, snapshot: Snapshot) -> None:
            super().write(snapshot)
            if snapshot.step == 6:
                gone_on.set()

    slow, quick = Slow("slow", 15, log), Quick("quick", 3, log)
    plan = make_plan(problem, 7)
    with open_simulation(problem, plan, outputs=[slow, quick], beside=AsyncWriter()) as simulation:
        simulation.run()
    assert log.index(("quick", "write", 6)) < log.index(("slow", "write", 0))
    np.testing.assert_array_equal(slow.fields[0], quick.fields[0])
    np.testing.assert_array_equal(slow.fields[15], quick.fields[15])


def test_what_an_output_cannot_write_beside_the_run_ends_it() -> None:
    problem = heat()
    log: Log = []

    class Full(Recorder):
        def write(self, snapshot: Snapshot) -> None:
            if snapshot.step == 5:
                msg = "the disk is full"
                raise UnsupportedError(msg)
            super().write(snapshot)

    full, other = Full("full", 5, log), Recorder("other", 5, log)
    with (
        pytest.raises(UnsupportedError, match="the disk is full"),
        open_simulation(
            problem, make_plan(problem, 2), outputs=[full, other], beside=AsyncWriter()
        ) as simulation,
    ):
        simulation.run()
    assert max(full.fields) == 0
    assert max(other.fields) == 5  # which does not stand in its way
    assert log[-1][1] == "close"


def test_what_a_run_takes_along_may_be_none() -> None:
    problem = heat()
    plan = make_plan(problem, 4)
    with open_simulation(problem, plan, ranks=None, clock=None, stopping=None) as simulation:
        assert simulation.run() is None
    assert simulation.step == problem.steps


def test_a_checkpoint_is_saved_after_the_outputs_of_its_step_were_flushed() -> None:
    problem = heat()
    log: Log = []
    output, saver = Recorder("out", 5, log), Saver("saver", 10, log)
    with open_simulation(
        problem, make_plan(problem, 1000), outputs=[output], saving=saver
    ) as simulation:
        simulation.run()
    at = log.index(("saver", "save", 10))
    assert log[at - 2 : at] == [("out", "write", 10), ("out", "flush", -1)]
    assert ("saver", "finish", 20) in log
    assert log[-1] == ("out", "close", -1)


def test_a_checkpoint_by_the_clock_is_taken_at_the_end_of_a_block() -> None:
    problem = heat()
    log: Log = []
    saver = Saver("saver", 1000, log)
    saver.clock = True
    with open_simulation(problem, make_plan(problem, 7), saving=saver) as simulation:
        simulation.run()
    assert [step for _, what, step in log if what == "save"] == [7, 14, 20]


def resuming_at(step: int) -> Callable[[Problem], Problem]:
    def resume(problem: Problem) -> Problem:
        state = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, step)
        return dataclasses.replace(problem, initial=lambda slab: state[_box(slab)])

    return resume


def _box(slab: Slab) -> tuple[slice, ...]:
    return (slice(None), *(slice(a, b) for a, b in zip(slab.start, slab.stop, strict=True)))


def test_a_resumed_run_starts_at_its_step_and_writes_nothing_twice() -> None:
    problem = heat()
    log: Log = []
    outputs = [Recorder("fours", 4, log)]
    resumed = resuming_at(8)(problem)
    with open_simulation(resumed, make_plan(problem, 1000), outputs=outputs, step=8) as simulation:
        simulation.run()
    assert log[0] == ("fours", "start", 8)
    assert [step for _, what, step in log if what == "write"] == [12, 16, 20]


class StopAfter(Stopping):
    """Asks to stop after some blocks."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = blocks

    def reason(self, block_seconds: float = 0.0) -> StopReason | None:
        self.blocks -= 1
        return StopReason(ExitCode.REQUEUE, "enough") if self.blocks <= 0 else None


def test_a_reason_to_stop_ends_the_run_with_a_checkpoint_and_is_returned() -> None:
    problem = heat()
    log: Log = []
    saver = Saver("saver", 1000, log)
    with open_simulation(
        problem, make_plan(problem, 5), saving=saver, stopping=StopAfter(2)
    ) as simulation:
        reason = simulation.run()
    assert reason == StopReason(ExitCode.REQUEUE, "enough")
    assert log == [("saver", "early", 10)]


def test_a_reason_that_comes_with_the_last_step_does_not_matter() -> None:
    problem = heat()
    with open_simulation(problem, make_plan(problem, 10), stopping=StopAfter(2)) as simulation:
        assert simulation.run() is None
    assert simulation.step == 20


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_field_that_is_not_finite_is_never_written_or_saved(value: float) -> None:
    problem = heat()
    log: Log = []
    state = problem.initial(Slab.whole(problem.grid)).copy()
    state[0, 4, 17] = value
    broken = dataclasses.replace(problem, initial=lambda slab: state[_box(slab)])
    outputs: Sequence[Recorder] = [Recorder("fours", 4, log)]
    saver = Saver("saver", 1000, log)
    said = r"points x = \d+\.\.\d+, y = \d+\.\.\d+.*found at step 10.*at step 8.*CHECKPOINT"
    outputs[0].period = 10
    with (
        open_simulation(
            broken, make_plan(problem, 2), outputs=outputs, saving=saver, step=8
        ) as simulation,
        pytest.raises(NumericsError, match=said),
    ):
        simulation.run()
    assert [what for _, what, _ in log if what in ("write", "save", "finish")] == []
    assert ("saver", "dump", 10) in log


@pytest.mark.parametrize("steps", [-5, 2.5, 21, "3"])
def test_steps_that_are_none_are_refused(steps: int) -> None:
    problem = heat(20)
    with open_simulation(problem, make_plan(problem, 7)) as simulation:
        with pytest.raises(ConfigError, match="a whole number from 0 to 20"):
            simulation.advance(steps)
        assert simulation.step == 0
        simulation.advance(15)
        state = problem.initial(Slab.whole(problem.grid))
        np.testing.assert_allclose(
            simulation.field(), reference.advance(state, problem, 15), rtol=1e-13
        )
        with pytest.raises(ConfigError, match="from 0 to 5"):
            simulation.advance(6)


def test_a_simulation_that_is_closed_says_so() -> None:
    problem = heat(20)
    with open_simulation(problem, make_plan(problem, 7)) as simulation:
        simulation.advance(3)
    for use in (simulation.field, simulation.snapshot, lambda: simulation.advance(1)):
        with pytest.raises(ConfigError, match="the simulation is closed"):
            use()
