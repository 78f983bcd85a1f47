"""Simulation: the run loop. Advance, exchange, write, save; nothing else happens between two time
blocks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.clock import PhaseClock
from tetris_sim.errors import ExitCode, NumericsError
from tetris_sim.method import Box
from tetris_sim.outputs.output import Output, Snapshot
from tetris_sim.problem import Field, InitialField, Problem
from tetris_sim.progress import Progress, format_time
from tetris_sim.scheduler.comm.agreement import everywhere
from tetris_sim.scheduler.comm.communicator import Alone, Communicator
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.run.exchange import Exchange
from tetris_sim.scheduler.run.queued import WorkerError
from tetris_sim.scheduler.run.rank_exchange import make_exchange
from tetris_sim.scheduler.run.rebalance import Rebalancer, move, restore
from tetris_sim.scheduler.run.recovery import KeptState, Recovery
from tetris_sim.scheduler.run.worker import Worker, open_worker
from tetris_sim.snapshot import Saving, StateSnapshot
from tetris_sim.stopping import Stopping, StopReason

log = logging.getLogger("tetris_sim")

_CHECK_SECONDS = 5.0  # a NaN is found at the latest after this much wall time
# times the time of loading the initial state: to read a slab, to open and to load another one
_MOVING = 3.0


@dataclass(frozen=True)
class Agreed:
    """What all ranks do between two blocks.

    Attributes:
        due: the next step at which somebody wants the state.
        check: whether it is time to look for NaN.
        save: whether a checkpoint is wanted now.
        reason: why to stop; None to go on.
    """

    due: int
    check: bool
    save: bool
    reason: StopReason | None


class Simulation:
    """A problem on its workers, somewhere between its first and its last step.

    Every rank has one, with the workers of its own; the outputs, the checkpoints and the progress
    are those of rank 0. Every method is called by all ranks alike.
    """

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
        ranks: Communicator | None = None,
        recovery: Recovery | None = None,
    ) -> None:
        self.problem = problem
        self.plan = plan
        self.step = step
        self.clock = clock or PhaseClock()
        self.busy_s: dict[str, float] = {}
        self._workers = workers
        self._ranks = ranks or Alone()
        self.exchange: Exchange = make_exchange(
            problem, plan.shares, self._ranks, gpu_messages=plan.gpu_messages
        )
        self._outputs = outputs
        self._saving = saving
        self._stopping = stopping or Stopping()
        self._progress = progress
        self._rebalancer, self._recovery, self._first_step = Rebalancer(plan), recovery, step
        self._ending: StopReason | None = None
        self._has_checkpoint = step > 0  # which this run began with, or has saved
        self._finite_step, self._finite_clock, self._checked = step, time.perf_counter(), False
        # Only rank 0 knows these, and all must take the same branches.
        self._writes, self._saves = self._ranks.tell((bool(outputs), saving is not None))
        self.exchange.swap(self._workers)  # the first block needs halos too

    def run(self) -> StopReason | None:
        """Advance to the last step, in time blocks that never step over an output.

        Returns:
            None when the last step was reached, or why the run stopped before it.

        Raises:
            NumericsError: if the state holds a NaN or an infinity.
            ElsewhereError: rank 0 could not write something, or found a NaN, and says so.
            WorkerError: a device failed, and the run cannot go on without it.
        """
        while True:
            try:
                return self._run_on()
            except WorkerError as failure:
                self._go_on_without(failure)

    def _run_on(self) -> StopReason | None:
        self._start_outputs()
        self._show_progress()
        agreed = Agreed(
            self._ranks.tell(self._next_due()), check=False, save=False, reason=self._ending
        )
        while self.step < self.problem.steps and agreed.reason is None:
            self.advance(min(self.plan.time_block, agreed.due - self.step))
            if self.step == agreed.due:
                self._write_outputs()
            self._show_progress()
            agreed = self._agree()
            if agreed.check:
                self._check_finite()
            if agreed.save:
                self._check_finite()
                self._lead_saving()
            self._keep_for_recovery()
            self._rebalance()
        if self._saves:
            self._check_finite()
            self._lead("checkpoint", self._finish)
        return agreed.reason if self.step < self.problem.steps else None

    def advance(self, steps: int) -> None:
        """One time block, at most `plan.time_block` steps: all workers alone, then one exchange of
        halos.
        """
        with self.clock.phase("compute"):
            for worker in self._workers:
                worker.stepper.advance(steps)
            for worker in self._workers:
                worker.stepper.wait()
                self.busy_s[worker.name] = worker.busy_s
        with self.clock.phase("exchange"):
            self.exchange.swap(self._workers)
        self.step += steps

    def close(self) -> None:
        """Close the workers that the run has come to."""
        for worker in self._workers:
            worker.close()

    def snapshot(self) -> Snapshot:
        """The state as it is now, for rank 0; must be read before the next `advance`, where all
        ranks take part.
        """
        return self._snapshot()

    def field(self) -> Field:
        """The whole state as it is now, (n_fields, n0, ...), on rank 0; no field on the others, (0,
        n0, ...).
        """
        found = [np.empty((0, *self.problem.grid.shape), dtype=self.problem.dtype)]
        self.exchange.lead(self._workers, lambda: found.append(self._snapshot().field()))
        return found[-1]

    def _snapshot(self) -> StateSnapshot:
        return StateSnapshot(
            self.problem,
            self.step,
            lambda box: self.exchange.gather(self._workers, box),
            lambda work: self.exchange.each_slab(self._workers, work),
        )

    def _lead(self, phase: str, work: Callable[[], None]) -> None:
        """Let rank 0 write something, while the others hand it what it asks for."""
        with self.clock.phase(phase):
            self.exchange.lead(self._workers, work)

    def _start_outputs(self) -> None:
        self._lead("output", self._start)
        if self.step == 0 and self._writes:
            self._check_finite()
            self._lead("output", self._write)

    def _start(self) -> None:
        for output in self._outputs:
            output.start(self.step)

    def _agree(self) -> Agreed:
        """What rank 0 has planned, and what signals and clocks of all ranks ask for."""
        reason = self._stopping.reason(self.plan.time_block * self.plan.seconds_per_step)
        check = time.perf_counter() - self._finite_clock > _CHECK_SECONDS
        save = self._stopping.save_requested() or (
            self._saving is not None and self._saving.due_by_clock()
        )
        wishes = (self._next_due(), check, save, 0 if reason is None else reason.exit_code)
        due, check_now, save_now, code = self._ranks.largest(wishes)
        if code:
            reason = next(
                each for each in self._ranks.collect(reason) if each and each.exit_code == code
            )
        # A run without checkpoints has nothing to save.
        return Agreed(int(due), bool(check_now), bool(save_now) and self._saves, reason)

    def _next_due(self) -> int:
        """The next step at which rank 0 wants the state; 0 on others, which rank 0's outnumbers."""
        if self._ranks.rank != 0:
            return 0
        wanted = [output.next_step(self.step) for output in self._outputs]
        if self._saving is not None:
            wanted.append(self._saving.next_step(self.step))
        return min([self.problem.steps, *(step for step in wanted if step is not None)])

    def _write_outputs(self) -> None:
        """Hand the state to every output, and to the checkpoint, that wanted it at this step."""
        self._check_finite()
        self._lead("output", self._write)
        due = self._saving is not None and self._saving.next_step(self.step - 1) == self.step
        if self._saves and self._ranks.tell(due):
            self._lead_saving()

    def _lead_saving(self) -> None:
        self._lead("checkpoint", self._save)
        self._has_checkpoint = True

    def _write(self) -> None:
        snapshot = self._snapshot()
        for output in self._outputs:
            if self.step == 0 or output.next_step(self.step - 1) == self.step:
                output.write(snapshot)

    def _show_progress(self) -> None:
        if self._progress is not None:
            self._progress.update(self.step)

    def _save(self) -> None:
        assert self._saving is not None
        self._flush()  # a checkpoint must not know more than the outputs it will be resumed beside
        self._saving.save(self._snapshot())

    def _finish(self) -> None:
        assert self._saving is not None
        self._flush()
        self._saving.finish(self._snapshot(), early=self.step < self.problem.steps)

    def _flush(self) -> None:
        for output in self._outputs:
            output.flush()

    def _rebalance(self) -> None:
        """Move planes if the workers have turned out to be faster or slower than was planned
        for.
        """
        left, loading = self.problem.steps - self.step, _MOVING * self.clock.seconds["initial"]
        plan = self._rebalancer.better_plan(
            self.problem, self.plan, self._workers, steps_left=left, move_seconds=loading
        )
        if plan is None:
            return
        with self.clock.phase("exchange"):
            self._workers = move(self.problem, self._workers, plan)
            self._take_up(
                plan, f"Planes moved at step {self.step}, since the workers' speeds have changed"
            )

    def _keep_for_recovery(self) -> None:
        """Keep the state in memory now and then, if a device may fail."""
        if self._recovery is None or self._ranks.size > 1 or not self._recovery.due(self.plan):
            return
        self._check_finite()
        with self.clock.phase("checkpoint"):
            self._recovery.keep(self.step, lambda: self._snapshot().field())

    def _go_on_without(self, failure: WorkerError) -> None:
        """Take the newest state there is, and let others go on from it; or let the run end
        there.
        """
        if self._ranks.size > 1 and self._has_checkpoint:
            failure.exit_code = (
                ExitCode.REQUEUE
            )  # the others have to end, but all can go on from there
        if self._recovery is None or self._ranks.size > 1:
            raise failure
        failed_at, (self.step, state) = (
            self.step,
            self._recovery.state(self.problem, self._first_step),
        )
        self._checked = False
        what = f"{failure} (in the block after step {failed_at})"
        if self._recovery.stops:
            self.close()
            self._workers, self.exchange = [], KeptState(self.problem, state)
            self._ending = StopReason(
                ExitCode.REQUEUE, f"{what}; the state of step {self.step} is kept"
            )
            return
        with self.clock.phase("prepare"):
            plan = self._replace(failure, state)
        told = f"{what}; the run went on from step {self.step} without it"
        log.warning("%s.", told)
        self._take_up(dataclasses.replace(plan, notes=(*plan.notes, f"{told}.")), told)

    def _replace(self, failure: WorkerError, state: InitialField) -> Plan:
        """The plan to go on with, its workers opened; others may fail at this moment too."""
        assert self._recovery is not None
        failed: set[str] = set()
        while failure.worker not in failed:
            failed.add(failure.worker)
            plan = self._recovery.plan_without(self.problem, self.plan, failed)
            try:
                self._workers = restore(self.problem, self._workers, failed, plan, state)
            except WorkerError as another:
                failure = another
            else:
                return plan
        raise failure

    def _take_up(self, plan: Plan, why: str) -> None:
        """Go on with a plan whose workers are there."""
        sizes = ", ".join(
            f"{share.worker} {share.slab.n_points / self.problem.grid.n_points:.1%}"
            for share in plan.shares
        )
        self.plan = dataclasses.replace(plan, reasons=(*plan.reasons, f"{why}: {sizes}."))
        self._rebalancer = Rebalancer(plan)
        self.exchange = make_exchange(
            self.problem, plan.shares, self._ranks, gpu_messages=plan.gpu_messages
        )
        self.exchange.swap(self._workers)

    def _check_finite(self) -> None:
        if self._finite_step == self.step and self._checked:
            return
        with self.clock.phase("check"):
            boxes = [worker.stepper.find_nonfinite() for worker in self._workers]
            bad = min((box for box in boxes if box is not None), default=None)
            bad = min((box for box in self._ranks.collect(bad) if box is not None), default=None)
        if bad is None:
            self._finite_step, self._checked = self.step, True
            self._finite_clock = time.perf_counter()
            return
        place = _describe(bad, self.problem)
        self.exchange.lead(self._workers, lambda: self._refuse_nonfinite(place))

    def _refuse_nonfinite(self, place: str) -> None:
        saving = self._saving
        dump = "There is no checkpoint." if saving is None else saving.dump(self._snapshot())
        msg = (
            f"the field is not finite any more: NaN or infinity at {place}, found at step "
            f"{self.step} (t = {format_time(self.problem.time(self.step))}), all finite at step "
            f"{self._finite_step}. {dump}"
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
    ranks: Communicator | None = None,
    recovery: Recovery | None = None,
) -> Iterator[Simulation]:
    """Give the workers their memory and the initial state; everything is closed at the end of the
    block.

    Args:
        problem: what to advance; `problem.initial` is the state at `step`.
        plan: by whom and how.
        outputs: what is written down.
        saving: checkpoints, if there are to be any.
        stopping: reasons to stop early.
        progress: where to show how far it is.
        clock: adds up the time of each phase.
        step: the step to begin at, 0 unless a run is resumed.
        ranks: all of them call this, each with the same plan; one alone if not given.
        recovery: what to go on from if a device fails; if not given, the run ends then.
    """
    clock, ranks = clock or PhaseClock(), ranks or Alone()
    with contextlib.ExitStack() as stack:
        for output in outputs:
            stack.callback(output.close)
        workers: list[Worker] = []

        def prepare() -> None:
            for share in plan.shares:
                if share.rank == ranks.rank:
                    workers.append(open_worker(problem, share))
                    stack.callback(workers[-1].close)

        def load() -> None:
            for worker in workers:
                worker.stepper.load(problem.initial)

        with clock.phase("prepare"):
            everywhere(ranks, prepare)
        with clock.phase("initial"):
            everywhere(ranks, load)
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
            ranks=ranks,
            recovery=recovery,
        )
        stack.callback(simulation.close)
        yield simulation
