"""Simulation: the run loop. Advance, exchange, write, save; nothing else between two blocks."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Unpack

import numpy.typing as npt

from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.output import StateSnapshot
from tetris_sim.outputs.pictures import small_picture
from tetris_sim.scheduler.comm.communicator import everywhere, on_root
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.workers.queued import WorkerError
from tetris_sim.scheduler.workers.rebalance import able, restore
from tetris_sim.scheduler.workers.worker import Worker
from tetris_sim.simulation.background import Attached, Attachments
from tetris_sim.simulation.control import Control
from tetris_sim.simulation.driving import (
    Agreed,
    Goal,
    Turn,
    find_goal,
    following,
    open_workers,
    snapshot_of,
    state_of,
    succeeding,
    with_faces,
)
from tetris_sim.simulation.monitors import FiniteWatch, go_on_without, watch_for
from tetris_sim.simulation.workers import WorkerGroup
from tetris_sim.simulation.writing import Writing
from tetris_sim.support.stopping import Stopping, StopReason
from tetris_sim.support.wording import format_time, table

log = logging.getLogger("tetris_sim")


class Simulation(WorkerGroup):
    """A problem on its workers, somewhere between its first and its last step.

    Every rank has one, with the workers of its own; the outputs, the checkpoints and the progress
    are those of rank 0. Every method is called by all ranks alike.

    Attributes:
        unsaved: whether the state is another one than that at its begin, or than that which the
            end of a run has written.
    """

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        workers: Sequence[Worker],
        attached: Attached | None = None,
        *,
        step: int = 0,
    ) -> None:
        attached = attached or Attached()
        super().__init__(
            *(problem, plan, workers),
            step=step,
            clock=attached.clock,
            ranks=attached.ranks,
            moved=attached.moved,
            meter=attached.meter,
        )
        self._first_step, self._first, self._attached = step, problem, attached
        self.asked_to_end = lambda: attached.stopping.reason() is not None
        self._ended = self._begun = self.unsaved = False

        self.turn = Turn()
        self._goal = Goal(problem.steps)
        self.heard: Stopping | None = None
        self._writing = Writing(attached.outputs, attached.saving, attached.ranks, attached.beside)
        self._watch = FiniteWatch(step, attached.saving, self._writing.settle)
        self._change = watch_for(problem, attached.until, attached.condition)
        self.change = None if attached.change is None else (step, attached.change)
        self.control = attached.control or Control(problem)

    @property
    def configuration(self) -> Any:
        """The `Config` that it was opened with; None of a bare problem."""
        return getattr(self._attached.vary, "config", None)

    @property
    def time(self) -> float:
        """Simulated time of the state [s]."""
        return self.problem.time(self.step)

    def run(
        self,
        until: str | float | None = None,
        *,
        every: str | float | None = None,
        call: Callable[[Simulation], object] | None = None,
    ) -> StopReason | None:
        """Go on in time blocks that never step over an output.

        Args:
            until: simulated time, "2 s" or in seconds; ends with the first step that is not before
                it. The last step if not given.
            every: how often to make a call: "10 ms", "100 steps", or in seconds.
            call: what is called then with this simulation, and at the end. It may read and replace
                the field; a StopIteration that it raises ends the run.

        Returns:
            None when that step was reached, or why the run stopped before it: with exit code 0 if
            it was to end there.

        Raises:
            ConfigError: there is no such time, or the simulation is closed.
            NumericsError: if the state holds a NaN or an infinity.
            ElsewhereError: rank 0 could not write something, or found a NaN, and says so.
            WorkerError: a device failed, and the run cannot go on without it.
        """
        self._refuse_ended()
        goal = find_goal(self.problem, self.step, until, every, call)
        with self.turn.taken(changes=True, alone="run()"):
            self._goal = goal
            if self.heard is None:
                return self._run_to_goal()
            self.heard.forget()
            with self.heard.listening():
                return self._run_to_goal()

    def _run_to_goal(self) -> StopReason | None:
        ending: StopReason | None = None
        while True:
            try:
                return self._run_on(ending)
            except WorkerError as failure:
                ending = self._go_on_without(failure)
                self._begun = False
            except StopIteration:
                self._writing.wait(self)
                return None

    def advance(self, steps: int) -> None:
        """Go on by some steps, in time blocks; outputs and checkpoints are not asked meanwhile.
        Ends earlier where a run is asked to end during a long solution.

        Raises:
            ConfigError: steps is no whole number of those that are left, or the simulation is
                closed.
        """
        self._refuse_ended()
        left = self.problem.steps - self.step
        if not isinstance(steps, numbers.Integral) or not 0 <= steps <= left:
            msg = (
                f"steps is {steps!r}; a whole number from 0 to {left}, those that are left, is "
                "wanted"
            )
            raise ConfigError(msg)

        with self.turn.taken(changes=True):
            end = self.step + int(steps)
            # Before a step is made, it is decided what holds during it.
            self.control.look(self)
            while (before := self.step) < end:
                self.unsaved = True
                due = self.control.next_step(before) or end
                due = min(due, self.problem.next_change(before) or due)
                super().advance(min(self.plan.time_block, end - before, due - before))
                if self.step == before:
                    return
                if (after := following(self)) is not self.problem:
                    self._begin_phase(after)
                self.control.look(self)

    def _begin_phase(self, after: Problem) -> None:
        """Go on with the problem of the phase that begins: cells have come, and others are gone."""
        self._start_outputs()
        self._writing.end_phase(self)
        before, state = self.problem, self.ranks.tell(self.field())
        initial = succeeding(before, after, state)

        def count() -> dict[str, float]:
            if self._meter is None:
                return {}
            values = initial(Slab.whole(after.grid))
            both = ((before, state), (after, values))
            return self._meter.succeed(*(snapshot_of(*it, self.step, self.moved) for it in both))

        with self.clock.phase("prepare"):
            moved = on_root(self.ranks, count)
            plan = able(after, self.plan)
            shares = tuple(it for it in plan.shares if it.rank == self.ranks.rank)
            mine = dataclasses.replace(plan, shares=shares)
            workers = everywhere(
                self.ranks, lambda: restore(after, self.workers, (), mine, initial, self.step)
            )
        self._enter(after)
        self._take(plan, workers)
        self.moved = self._moved_at[self.step] = moved
        self._writing.begin_phase(self)
        # All that was measured was about another body.
        self._watch.forget()
        self._change.forget()
        self._keep_anew()

    def _enter(self, problem: Problem) -> None:
        """Advance the problem of another phase from now on, and ask steps as that needs it."""
        self.problem = problem
        self._asks = self.ranks.tell(bool(self._meter and self._meter.asks))

    def set_back(self, step: int) -> None:
        """See `WorkerGroup`; that step may be one of an earlier phase."""
        super().set_back(step)
        if (before := self.problem.at(step)) is not self.problem:
            if self._meter is not None:
                self._meter.turn_to(before)
            self._enter(before)

    def _keep_anew(self) -> None:
        """Keep this state for recovery: an earlier one would lead elsewhere."""
        recovery = self._attached.recovery
        if recovery is not None and self.plan.copy_for_recovery and self.ranks.size == 1:
            recovery.keep(self.step, self.field)

    def decided(self) -> Mapping[str, Any]:
        """See `WorkerGroup`."""
        return self.control.state()

    def snapshot(self) -> StateSnapshot:
        """The state as it is now, for rank 0, which must read it where all ranks take part.

        Raises:
            ConfigError: the simulation is closed.
        """
        self._refuse_ended()
        with self.turn.taken():
            found = super().snapshot()
        read = found.read

        def alone(box: Box) -> Field:
            with self.turn.taken():
                return read(box)

        return dataclasses.replace(found, read=alone)

    def field(self) -> Field:
        """As of `WorkerGroup`.

        Raises:
            ConfigError: the simulation is closed.
        """
        self._refuse_ended()
        with self.turn.taken():
            return super().field()

    def set_field(
        self,
        values: npt.ArrayLike,
        name: str | None = None,
        where: npt.ArrayLike | None = None,
    ) -> None:
        """Go on from other values at this step.

        Args:
            values: of the grid's shape; of several fields (n_fields, n0, ...), or with `name`.
            name: the one field that they are of. Of a body whose state is heat content, values are
                temperatures.
            where: the points that get them, boolean of the grid's shape; the others keep what they
                have, to the last bit. All points if not given.

        Raises:
            ConfigError: they have another shape, there is no such field, or the simulation is
                closed.
            NumericsError: a value is not finite.
        """
        self._refuse_ended()
        with self.turn.taken():
            self._writing.wait(self)  # what is written is the state before
            here = lambda: self.ranks.tell(self.field())  # noqa: E731
            initial = state_of(self.problem, values, name, here, where)
            with self.turn.taken(changes=True):
                self._replace(lambda: _load_into(self.workers, initial, self.step))
            self.unsaved = True

            # All that was measured and decided was about another state.
            self._writing.replaced()
            self._watch.forget()
            self._change.forget()
            self.control.forget()
            self.change = self._change.reason = None
            self._keep_anew()

    def set_control(self, name: str, output: float) -> None:
        """Go on with another output of a controller that has no sensor; memory and time do not
        depend on the grid.

        Args:
            name: of `control`, with `output` in place of a sensor.
            output: what multiplies the sources and faces that it switches, from this step on.

        Raises:
            ConfigError: there is no such controller, the number is not finite, or the simulation is
                closed.
        """
        self._refuse_ended()
        free = [key for key in self.problem.signals if key not in self.control.names]
        if name not in free or not math.isfinite(output):
            msg = (
                f"{name!r} = {output!r}: a finite number is wanted for one of the controllers that "
                f"have an output in place of a sensor, {', '.join(free) or 'and there is none'}"
            )
            raise ConfigError(msg)

        with self.turn.taken():
            self._writing.wait(self)  # records of this step say what the last output gave
            self.problem.signals[name].decide(self.time, float(output))
            self.control.hasten(self.step)

    def with_boundary(
        self, boundaries: Any, directory: Any = None
    ) -> AbstractContextManager[Simulation]:
        """A simulation like this one, from its state on, with other faces; for a `with` block.

        Args:
            boundaries: as in a configuration, by face: {"x-": {"type": "dirichlet", "value":
                "0 degC"}}; faces that are not named stay. Of a simulation of a bare problem, a
                `Boundary`.
            directory: where its results go; if not given they are kept as long as the simulation.

        Raises:
            ConfigError: they do not fit, or the simulation is closed.
        """
        self._refuse_ended()
        if self._attached.vary is not None:
            return self._attached.vary(self, {"boundaries": boundaries}, directory)
        return open_simulation(with_faces(self, boundaries), self.plan)

    def with_changes(
        self, changes: Mapping[str, Any], directory: Any = None
    ) -> AbstractContextManager[Simulation]:
        """A simulation like this one, from its state on, with other sources, constants of equations
        or whatever else a configuration says; for a `with` block.

        Args:
            changes: other values by key, as of `simulate`: {"model.sources": [...]}. A time is on
                the clock of this simulation, and a number of steps (`time.steps`) counts from here.
            directory: as of `with_boundary`.

        Raises:
            ConfigError: they do not fit to the state, this is a simulation of a bare problem, or it
                is closed.
        """
        self._refuse_ended()

        if self._attached.vary is None:
            msg = (
                "changes are those of a configuration, and this simulation is of a bare problem: "
                "open it with simulate(config)"
            )
            raise ConfigError(msg)
        return self._attached.vary(self, changes, directory)

    def _repr_html_(self) -> str:
        problem = self.problem
        shape = " x ".join(str(n) for n in reversed(problem.grid.shape))
        rows = [
            ("at", f"{format_time(self.time)}, step {self.step} of {problem.steps}"),
            ("points", f"{shape}, {problem.dtype}"),
            ("fields", ", ".join(variable.name for variable in problem.seen.variables)),
            ("methods", ", ".join(sorted({it.method.name for it in self.plan.shares}))),
        ]
        picture = "" if self._ended else small_picture(self.snapshot().seen())
        return table("Simulation, closed" if self._ended else "Simulation", rows, picture=picture)

    def save(self) -> None:
        """Make a checkpoint of the state as it is now, and wait for the disk; nothing where a run
        keeps none.

        Raises:
            ConfigError: the simulation is closed.
            NumericsError: the state holds a NaN or an infinity.
        """
        self._refuse_ended()
        with self.turn.taken(changes=True):
            self._start_outputs()
            self._watch.check(self)
            if self._writing.saves:
                self._writing.save(self)
            self._writing.wait(self)

    def leave(self) -> None:
        """Write what a run that ends before its last step leaves behind, unless it is closed."""
        if self._ended:
            return
        with self.turn.taken(changes=True):
            self._start_outputs()
            self._finish_writing()

    def leave_failed(self) -> None:
        """Save the state, if it is sound, after an exception that is not of this run: a warning
        says why it cannot be saved.
        """
        # Of several ranks others may not know of it, and saving takes all of them.
        if self.ranks.size > 1 or not self.unsaved:
            return
        if not self.turn.is_here or not self.turn.sound:
            return
        try:
            self.leave()
        except Exception as error:  # noqa: BLE001  the exception of the user is the one to show
            log.warning("The state could not be saved: %s", error)

    def close(self) -> None:
        """Close the workers for good; in a forked child they are left to the process that has them.

        Raises:
            ConfigError: a run is under way, in another thread or around this call.
        """
        if self.turn.is_here:
            with self.turn.taken(changes=True, alone="close()"):
                self._ended = True
                super().close()

    def _refuse_ended(self) -> None:
        if self._ended:
            msg = (
                "the simulation is closed: its block has ended, and memory is given back; take "
                "what you need of it inside `with open_simulation(...)`"
            )
            raise ConfigError(msg)

    def _run_on(self, ending: StopReason | None) -> StopReason | None:
        """From the step where it is to the last one, or to where it has to stop."""
        self._start_outputs()
        self._change.look(self)
        self._show_progress()
        due = self.ranks.tell(self._next_due())
        # The run that is continued may have been over.
        self.control.look(self)
        reason = ending or self._change.reason or self.control.reason
        agreed = Agreed(due, check=False, save=False, reason=reason)

        while self.step < self._goal.last and agreed.reason is None:
            self.advance(min(self.plan.time_block, agreed.due - self.step))
            if self.step == agreed.due:
                self._write_outputs()
                self._goal.call_if_due(self, self.turn)
            self._show_progress()

            agreed = self._agree()
            if agreed.check or agreed.save:
                self._watch.check(self)
            if agreed.save:
                self._writing.save(self)
            self._keep_for_recovery()
            if not self._change.holds:
                self.rebalance()

        at_end = self.step == self.problem.steps
        if agreed.reason is not None and agreed.reason.exit_code == ExitCode.OK:
            self._watch.check(self)
            self._writing.write_last(self)
        if at_end or agreed.reason is not None:
            self._finish_writing()
        self._writing.wait(self)
        return None if at_end else agreed.reason

    def _start_outputs(self) -> None:
        if self._begun:
            return
        self._begun = True
        self.begin_counting()
        self._writing.start(self)
        # Records, which another thread writes, say what flows during the step that begins.
        self.control.look(self)
        # Of a steady state, only the answer is worth writing, not the guess.
        if self.step == 0 and self._writing.writes and self.plan.scheme != "steady":
            self._watch.check(self)
            self._writing.write(self)

    def _write_outputs(self) -> None:
        """Hand the state to every output, and to the checkpoint, that wanted it at this step."""
        self._watch.check(self)
        self._change.look(self)  # a checkpoint of this step says what it found
        self._writing.write(self)
        if self._writing.due_to_save(self.step):
            self._writing.save(self)

    def _finish_writing(self) -> None:
        self.unsaved = False
        if self._writing.saves:
            self._watch.check(self)
            self._writing.finish(self)

    def _show_progress(self) -> None:
        if self._attached.progress is not None:
            self._attached.progress.update(self.step)

    def _next_due(self) -> int:
        looked = (self._change.next_step(self.step), self.control.next_step(self.step))
        last = min([self._goal.next_step(self.step), *(it for it in looked if it is not None)])
        return self._writing.next_step(self.step, last=last)

    def _agree(self) -> Agreed:
        """Return the plan of rank 0, changed by signals and clocks of any rank."""
        stopping = self._attached.stopping
        reason = stopping.reason(self.plan.time_block * self.plan.seconds_per_step)
        save = stopping.save_requested() or self._writing.due_by_clock()
        code = 0 if reason is None else reason.exit_code
        due, check_now, save_now, code_of_all, under_way = self.ranks.largest(
            (self._next_due(), self._watch.due(), save, code, self._writing.under_way())
        )
        if not under_way:
            self._writing.settle(self)

        # The ranks may have several reasons; all of them take the first one with the gravest code.
        if code_of_all:
            reasons = [reason for reason in self.ranks.collect(reason) if reason is not None]
            reason = next(reason for reason in reasons if reason.exit_code == code_of_all)

        else:
            reason = self._change.reason or self.control.reason

        # A run without checkpoints has nothing to save.
        return Agreed(int(due), bool(check_now), bool(save_now) and self._writing.saves, reason)

    def _keep_for_recovery(self) -> None:
        """Keep the state in memory now and then, if a device may fail."""
        recovery = self._attached.recovery
        if recovery is not None and self.ranks.size == 1 and recovery.due(self.plan):
            self._watch.check(self)
            with self.clock.phase("checkpoint"):
                recovery.keep(self.step, self.field)

    def _go_on_without(self, failure: WorkerError) -> StopReason | None:
        """Let others take over from a worker that failed, or the run end with an error."""
        recovery = self._attached.recovery
        several = self.ranks.size > 1 or not self.control.is_idle
        if several and (self._first_step > 0 or self._writing.has_saved):
            # The other ranks have to end, but all can go on from the checkpoint.
            failure.exit_code = ExitCode.REQUEUE
        # What controllers had decided at an earlier step is known by checkpoints alone.
        if recovery is None or self.ranks.size > 1 or not self.control.is_idle:
            raise failure

        self._watch.forget()
        self._change.forget()
        self.change = None
        first = (self._first_step, self._first)
        return go_on_without(self, failure, recovery, first=first)


@contextlib.contextmanager
def open_simulation(
    problem: Problem, plan: Plan, *, step: int = 0, **attachments: Unpack[Attachments]
) -> Iterator[Simulation]:
    """Give the workers memory and the initial state; all is closed at the end of the block.

    Args:
        problem: what to advance; `problem.initial` is the state at `step`.
        plan: by whom and how.
        step: the step to begin at, 0 unless a run is resumed.
        attachments: what the run takes along, as keywords (`ranks=ranks`); see `Attached`.
    """
    given: dict[str, Any] = {name: it for name, it in attachments.items() if it is not None}
    attached = Attached(**given)
    clock, ranks = attached.clock, attached.ranks
    with contextlib.ExitStack() as stack:
        for output in attached.outputs:
            stack.callback(output.close)
        # A run that ended has nothing under way; one that failed must not write on.
        if attached.beside is not None:
            stack.callback(attached.beside.abandon)

        with clock.phase("prepare"):
            mine = [share for share in plan.shares if share.rank == ranks.rank]
            workers = everywhere(ranks, lambda: open_workers(problem, mine, stack))
        with clock.phase("initial"):
            everywhere(ranks, lambda: _load_into(workers, problem.initial, step))

        simulation = Simulation(problem, plan, workers, attached, step=step)
        stack.callback(simulation.close)
        try:
            yield simulation
        finally:
            if not simulation.turn.is_here:
                stack.pop_all()  # files and devices are those of the process that opened them


def _load_into(workers: Sequence[Worker], initial: InitialField, step: int) -> None:
    for worker in workers:
        worker.stepper.load(initial, step)
