"""Simulation: the run loop. Advance, exchange, write, save; nothing else happens between two time blocks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tetris_sim.clock import PhaseClock
from tetris_sim.errors import NumericsError
from tetris_sim.method import Box
from tetris_sim.outputs.output import Output, Snapshot
from tetris_sim.problem import Field, Problem
from tetris_sim.progress import Progress, format_time
from tetris_sim.scheduler.exchange import Exchange, LocalExchange
from tetris_sim.scheduler.plan import Plan
from tetris_sim.scheduler.worker import Worker, open_worker
from tetris_sim.stopping import Stopping, StopReason

_CHECK_SECONDS = 5.0  # a NaN is found at the latest after this much wall time


class Saving(Protocol):
    """What the run loop needs of checkpoints (see checkpoint/saving.py)."""

    def next_step(self, step: int) -> int | None:
        """Smallest step greater than `step` at which a checkpoint is wanted; None if never again."""

    def due_by_clock(self) -> bool:
        """Whether the wall clock asks for a checkpoint now."""

    def save(self, snapshot: Snapshot) -> None:
        """Save the state; may return before it is on the disk."""

    def finish(self, snapshot: Snapshot, *, early: bool) -> None:
        """Save the last state, unless that was just done or is not wanted, and wait until it is on the disk."""

    def dump(self, snapshot: Snapshot) -> str:
        """Keep a state that is not finite where no restart finds it, and say where, and which checkpoint is good."""


@dataclass
class StateSnapshot:
    """The state between two time blocks; see the Protocol `Snapshot`."""

    problem: Problem
    step: int
    read: Callable[[Box], Field]
    _field: Field | None = field(default=None, repr=False)

    @property
    def time(self) -> float:
        """Simulated time [s]."""
        return self.problem.time(self.step)

    def field(self) -> Field:
        """The whole state, (n_fields, n0, ...)."""
        if self._field is None:
            self._field = self.read(tuple((0, n) for n in self.problem.grid.shape))
        return self._field

    def box(self, box: Box) -> Field:
        """The part of the state inside `box`, (n_fields, ...)."""
        if self._field is not None:
            return self._field[(slice(None), *(slice(low, high) for low, high in box))]
        return self.read(box)


class Simulation:
    """A problem on its workers, somewhere between its first and its last step."""

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        workers: Sequence[Worker],
        *,
        step: int = 0,
        outputs: Sequence[Output] = (),
        saving: Saving | None = None,
        stopping: Stopping | None = None,
        progress: Progress | None = None,
        clock: PhaseClock | None = None,
    ) -> None:
        self.problem = problem
        self.plan = plan
        self.step = step
        self.clock = clock or PhaseClock()
        self._workers = workers
        self._exchange: Exchange = LocalExchange(problem, [share.slab for share in plan.shares])
        self._outputs = outputs
        self._saving = saving
        self._stopping = stopping or Stopping()
        self._progress = progress
        self._finite_step, self._finite_clock, self._checked = step, time.perf_counter(), False
        self._exchange.swap(workers)  # the first block needs halos too

    def run(self) -> StopReason | None:
        """Advance to the last step, in time blocks that never step over an output.

        Returns:
            None when the last step was reached, or why the run stopped before it.

        Raises:
            NumericsError: if the state holds a NaN or an infinity.
        """
        self._start_outputs()
        self._show_progress()
        reason = None
        while self.step < self.problem.steps and reason is None:
            due = self._next_due()
            self.advance(min(self.plan.time_block, due - self.step))
            if self.step == due:
                self._write_outputs()
            self._look_after()
            reason = self._reason_to_stop()
        if self._saving is not None:
            self._check_finite()
            with self.clock.phase("checkpoint"):
                self._flush()
                self._saving.finish(self.snapshot(), early=self.step < self.problem.steps)
        return reason if self.step < self.problem.steps else None

    def advance(self, steps: int) -> None:
        """One time block, at most `plan.time_block` steps: all workers alone, then one exchange of halos."""
        with self.clock.phase("compute"):
            for worker in self._workers:
                worker.stepper.advance(steps)
            for worker in self._workers:
                worker.stepper.wait()
        with self.clock.phase("exchange"):
            self._exchange.swap(self._workers)
        self.step += steps

    def snapshot(self) -> Snapshot:
        """The state as it is now; must be read before the next `advance`."""
        return StateSnapshot(self.problem, self.step, lambda box: self._exchange.gather(self._workers, box))

    def field(self) -> Field:
        """The whole state as it is now, (n_fields, n0, ...)."""
        return self.snapshot().field()

    def _start_outputs(self) -> None:
        with self.clock.phase("output"):
            for output in self._outputs:
                output.start(self.step)
        if self.step == 0 and self._outputs:
            self._check_finite()
            self._write(self.snapshot())

    def _next_due(self) -> int:
        wanted = [output.next_step(self.step) for output in self._outputs]
        if self._saving is not None:
            wanted.append(self._saving.next_step(self.step))
        return min([self.problem.steps, *(step for step in wanted if step is not None)])

    def _write_outputs(self) -> None:
        """Hand the state to every output, and to the checkpoint, that wanted it at this step."""
        self._check_finite()
        snapshot = self.snapshot()
        self._write(snapshot)
        if self._saving is not None and self._saving.next_step(self.step - 1) == self.step:
            self._save(snapshot)

    def _write(self, snapshot: Snapshot) -> None:
        with self.clock.phase("output"):
            for output in self._outputs:
                if self.step == 0 or output.next_step(self.step - 1) == self.step:
                    output.write(snapshot)

    def _look_after(self) -> None:
        """What the wall clock asks for: progress, the search for NaN, a checkpoint."""
        self._show_progress()
        if time.perf_counter() - self._finite_clock > _CHECK_SECONDS:
            self._check_finite()
        if self._saving is not None and (self._stopping.save_requested() or self._saving.due_by_clock()):
            self._check_finite()
            self._save(self.snapshot())

    def _show_progress(self) -> None:
        if self._progress is not None:
            self._progress.update(self.step)

    def _save(self, snapshot: Snapshot) -> None:
        assert self._saving is not None
        with self.clock.phase("checkpoint"):
            self._flush()  # a checkpoint must not know more than the outputs it will be resumed beside
            self._saving.save(snapshot)

    def _flush(self) -> None:
        for output in self._outputs:
            output.flush()

    def _reason_to_stop(self) -> StopReason | None:
        return self._stopping.reason(self.plan.time_block * self.plan.seconds_per_step)

    def _check_finite(self) -> None:
        if self._finite_step == self.step and self._checked:
            return
        with self.clock.phase("check"):
            boxes = [worker.stepper.find_nonfinite() for worker in self._workers]
        bad = min((box for box in boxes if box is not None), default=None)
        if bad is None:
            self._finite_step, self._finite_clock, self._checked = self.step, time.perf_counter(), True
            return
        msg = (
            f"the field is not finite any more: NaN or infinity at {_describe(bad, self.problem)}, found at step "
            f"{self.step} (t = {format_time(self.problem.time(self.step))}), all finite at step {self._finite_step}. "
            f"{self._saving.dump(self.snapshot()) if self._saving is not None else 'There is no checkpoint.'}"
        )
        raise NumericsError(msg)


def _describe(box: Box, problem: Problem) -> str:
    names = problem.grid.axis_names
    ranges = [f"{name} = {low}..{high - 1}" for name, (low, high) in zip(names, box, strict=True)]
    return "points " + ", ".join(reversed(ranges))


@contextlib.contextmanager
def open_simulation(
    problem: Problem,
    plan: Plan,
    *,
    outputs: Sequence[Output] = (),
    saving: Saving | None = None,
    stopping: Stopping | None = None,
    progress: Progress | None = None,
    clock: PhaseClock | None = None,
    step: int = 0,
) -> Iterator[Simulation]:
    """Give the workers their memory and the initial state; everything is closed at the end of the block.

    Args:
        problem: what to advance; `problem.initial` is the state at `step`.
        plan: by whom and how.
        outputs: what is written down.
        saving: checkpoints, if there are to be any.
        stopping: reasons to stop early.
        progress: where to show how far it is.
        clock: adds up the time of each phase.
        step: the step to begin at, 0 unless a run is resumed.
    """
    clock = clock or PhaseClock()
    with contextlib.ExitStack() as stack:
        for output in outputs:
            stack.callback(output.close)
        workers: list[Worker] = []
        with clock.phase("prepare"):
            for share in plan.shares:
                worker = open_worker(problem, share)
                stack.callback(worker.close)
                workers.append(worker)
        with clock.phase("initial"):
            for worker in workers:
                worker.stepper.load(problem.initial)
        simulation = Simulation(
            problem,
            plan,
            workers,
            step=step,
            outputs=outputs,
            saving=saving,
            stopping=stopping,
            progress=progress,
            clock=clock,
        )
        yield simulation
