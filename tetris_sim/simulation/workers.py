"""WorkerGroup: the state of a problem at one step, on the workers that advance it together."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArrays
from tetris_sim.errors import NumericsError, TetrisError
from tetris_sim.model.method import Divider, InnerFirst, RunsAhead, Substepper
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.reference import first_failure
from tetris_sim.model.step_control import Controller, Counted, largest_error
from tetris_sim.outputs.checkpoint.file import CheckpointPart
from tetris_sim.outputs.meter import Meter
from tetris_sim.outputs.output import Snapshot, StateSnapshot
from tetris_sim.scheduler.comm.communicator import Communicator, on_root
from tetris_sim.scheduler.facts.shares import Plan, Scheme
from tetris_sim.scheduler.workers.exchange import Exchange, UnderWay, keep
from tetris_sim.scheduler.workers.rank_exchange import make_exchange
from tetris_sim.scheduler.workers.rebalance import Rebalancer, move
from tetris_sim.scheduler.workers.worker import Worker, reduced, solve_constraints
from tetris_sim.solvers.krylov import LeftOffError
from tetris_sim.solvers.spectral.stepper import IntegratingStepper
from tetris_sim.solvers.spectral.stepper import first_failure as first_failure_of_rates
from tetris_sim.solvers.stepper import SolvingStepper
from tetris_sim.support.wording import PhaseClock, format_time


class Saving(Protocol):
    """Interface of checkpoints to the run loop (see outputs/checkpoint).

    Attributes:
        divided: whether each slab is written where it lies.
    """

    divided: bool

    def next_step(self, step: int) -> int | None:
        """Smallest step greater than `step` at which a checkpoint is wanted, if there is one."""

    def due_by_clock(self) -> bool:
        """Whether the wall clock asks for a checkpoint now."""

    def restart_clock(self) -> None:
        """A checkpoint is made now, as far as the wall clock is concerned."""

    def remember(self, step: int, change: float) -> None:
        """Keep the largest change since the step before for the checkpoint of this step [1/s]."""

    def count(
        self, step: int, moved: Mapping[str, float], decided: Mapping[str, Any] | None = None
    ) -> None:
        """Keep for the same what was moved until then, see `WorkerGroup.moved`, and decided."""

    def save(self, snapshot: Snapshot) -> None:
        """Save the state."""

    def forget(self) -> None:
        """The state of the step that was saved last is another one now."""

    def tidy(self) -> None:
        """Remove older checkpoints that a killed run had no time to remove."""

    def finish(
        self,
        snapshot: Snapshot,
        *,
        early: bool,
        owed: bool = False,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Save the last state, unless it is there or not wanted, and wait for the disk; `ready` is
        called before it may be known.
        """

    def wants_last(self, step: int, *, early: bool) -> bool:
        """Whether the last state is still to be saved."""

    def begin(self, problem: Problem, step: int) -> Path:
        """Where a checkpoint in parts is to lie; `UnsupportedError` if there is no room."""

    def publish(self, problem: Problem, step: int, parts: list[CheckpointPart] | str) -> None:
        """Write what shows the parts as one, or say why there is none, as `UnsupportedError`."""

    def dump(self, snapshot: Snapshot) -> str:
        """Keep a state that is not finite where no restart finds it, and say where, and which
        checkpoint is good.
        """


# times the time of loading the initial state: to read a slab, to open and to load another one
_MOVING = 3.0

# seconds within which a worker that has nothing to do says so
_AT_ONCE = 1e-4

# Brings the workers' states so many steps on, or raises LeftOffError.
Advance = Callable[["WorkerGroup", int], None]


def advance_each(fleet: WorkerGroup, steps: int) -> None:
    """Exchange halos, then let every worker's stepper advance alone."""
    with fleet.clock.phase(_phase_of_exchange(fleet)):
        under_way = fleet.exchange.begin(fleet.workers)
    if under_way is not None:
        _end_exchange(fleet, steps, under_way)

    with fleet.clock.phase("compute"):
        for worker in fleet.workers:
            worker.stepper.advance(steps)
        for worker in fleet.workers:
            _settle(fleet, worker)
            fleet.busy_s[worker.name] = worker.busy_s


def _phase_of_exchange(fleet: WorkerGroup) -> str:
    """GPUs that are told of an exchange have a block to compute until it is there."""
    hidden = fleet.plan.overlapped and not fleet.exchange.waits
    return "compute" if hidden else "exchange"


def _settle(fleet: WorkerGroup, worker: Worker) -> None:
    """Wait for a worker, if it cannot be told of the next block before it is done with this one.

    Who is ahead is not far ahead: of its neighbours, one that is waited for needs its edges.
    """
    ahead = fleet.plan.overlapped or fleet.plan.ahead
    if ahead and isinstance(worker.stepper, RunsAhead):
        worker.stepper.settle()
    else:
        worker.stepper.wait()


def _end_exchange(fleet: WorkerGroup, steps: int, under_way: UnderWay) -> None:
    """Take halos in, beside what can be computed without them if the plan says so.

    Where that takes longer, no worker has waited for halos. Otherwise all of the time counts as
    that of the exchange, which is more than was waited.
    """
    begin = perf_counter()
    if fleet.plan.overlapped:
        for worker in fleet.workers:
            if isinstance(worker.stepper, InnerFirst):
                worker.stepper.advance_inner(steps, under_way.axis)
    under_way.end()

    # If workers still compute now, halos came in time, and the time counts as computing.
    there = perf_counter()
    for worker in fleet.workers:
        if fleet.plan.overlapped and not isinstance(worker.stepper, RunsAhead):
            worker.stepper.wait()
    end = perf_counter()
    phase = "compute" if end - there > _AT_ONCE else _phase_of_exchange(fleet)
    fleet.clock.seconds[phase] += end - begin


def advance_solving(fleet: WorkerGroup, steps: int) -> None:
    """The same, and say in the plan how it was solved.

    Raises:
        LeftOffError: somebody wants to end; the state is what it was before.
        TetrisError: it cannot be solved, as all ranks know.
    """
    before, left, failure = _said(fleet), False, None
    for worker in fleet.workers:
        if isinstance(worker.stepper, SolvingStepper | IntegratingStepper):
            worker.stepper.heard = fleet.asked_to_end
        if isinstance(worker.stepper, SolvingStepper):
            worker.stepper.join(fleet.ranks, [it.slab.start[0] for it in fleet.plan.shares])
    try:
        advance_each(fleet, steps)
    except LeftOffError:
        left = True
    except TetrisError as error:
        if fleet.ranks.rank != 0:
            raise
        failure = error

    # Rank 0 may have failed alone: everybody hears of it before anybody goes on.
    on_root(fleet.ranks, functools.partial(_fail, failure))
    if fleet.ranks.largest((left,))[0]:
        raise LeftOffError
    kept = (note for note in fleet.plan.notes if note not in before)
    fleet.plan = dataclasses.replace(fleet.plan, notes=(*kept, *_said(fleet)))


def _fail(failure: TetrisError | None) -> None:
    if failure is not None:
        raise failure


def _said(fleet: WorkerGroup) -> list[str]:
    return [note for it in fleet.workers for note in getattr(it.stepper, "notes", ())]


def advance_adaptive(fleet: WorkerGroup, steps: int) -> None:
    """Steps of as many substeps as their errors ask for, with halos exchanged before each; of one
    where nothing is asked of errors.

    Raises:
        NumericsError: no substep is short enough.
    """
    equations, begin = fleet.problem.system, fleet.problem.time
    assert equations.substeps is not None
    substeps, said = equations.substeps, str(fleet.counted)
    if not substeps.adaptive:
        _advance_in_parts(fleet, steps)
        return

    # One stepper with all points sees its own errors, and needs no look from here between substeps.
    only = fleet.workers[0].stepper if len(fleet.workers) == fleet.ranks.size == 1 else None
    alone = only if isinstance(only, Divider) and only.divides else None
    controllers = [
        Controller(low, high, substeps.first, substeps.order, fleet.counted)
        for step in range(fleet.step, fleet.step + steps)
        for low, high in equations.stretches(begin(step), begin(step + 1))
    ]
    # One worker makes the substeps of all steps without a look from here.
    while alone is not None and controllers:
        if controllers[0].stuck:
            on_root(fleet.ranks, functools.partial(_refuse_stuck, controllers[0], fleet))
        with fleet.clock.phase("compute"):
            alone.divide(controllers, substeps.tolerance)
        fleet.counted = controllers[0].counted
        controllers = [it for it in controllers if not it.ended]

    for controller in controllers:
        controller.counted = fleet.counted
        # Errors are relative to the largest magnitude of each field, as it was before the substep.
        before = _peaks(fleet)[0]
        stale = True  # halos, which a substep leaves as they are
        while not controller.ended:
            if controller.stuck:
                on_root(fleet.ranks, functools.partial(_refuse_stuck, controller, fleet))
            if stale:
                with fleet.clock.phase("exchange"):
                    fleet.exchange.swap(fleet.workers)
            with fleet.clock.phase("compute"):
                _substep(fleet, controller.time, controller.length)
                after = _peaks(fleet)
            stale = controller.accept(largest_error(before, after, substeps.tolerance))
            if stale:
                before = after[0]
                continue
            for worker in fleet.workers:
                _substepper(worker).undo()
        fleet.counted = controller.counted
    for worker in fleet.workers:
        fleet.busy_s[worker.name] = worker.busy_s

    kept = tuple(note for note in fleet.plan.notes if note != said)
    fleet.plan = dataclasses.replace(fleet.plan, notes=(*kept, str(fleet.counted)))


def _advance_in_parts(fleet: WorkerGroup, steps: int) -> None:
    """Steps of a given length whose stages read numbers of the whole grid, or noise."""
    for step in range(fleet.step, fleet.step + steps):
        with fleet.clock.phase("exchange"):
            fleet.exchange.swap(fleet.workers)
        with fleet.clock.phase("compute"):
            _substep(fleet, fleet.problem.time(step), fleet.problem.dt)
    for worker in fleet.workers:
        fleet.busy_s[worker.name] = worker.busy_s


def _substep(fleet: WorkerGroup, time: float, length: float) -> None:
    """Make a substep part by part, with the numbers of the whole grid that later parts read."""
    equations = fleet.problem.system
    found: dict[str, float] = {}
    for number, part in enumerate(equations.parts):
        for worker in fleet.workers:
            _substepper(worker).substep(time, length, number, {**found})
        # Numbers of the whole grid are known when all workers have made the part that they are read
        # from.
        made = [name for stage in equations.stages[slice(*part)] for name in stage.formulas]
        if names := [name for name in made if name in equations.reductions]:
            found |= reduced(fleet.workers, fleet.ranks, equations.reductions, names)
        for elliptic in equations.elliptic:
            if {*elliptic.read} <= {*made}:
                span = time, time + length
                solve_constraints(fleet.workers, fleet.ranks, elliptic, fleet.problem, span)


def _peaks(fleet: WorkerGroup) -> npt.NDArray[np.float64]:
    """Largest magnitudes of fields and of their errors, of all workers and ranks; infinite where
    something is no number.
    """
    # A maximum has the same bits in any order, so the substeps do not depend on the division.
    own = np.max([_substepper(worker).peaks() for worker in fleet.workers], axis=0)
    finite = np.where(np.isnan(own), np.inf, own)
    return np.array(fleet.ranks.largest(tuple(finite.ravel().tolist()))).reshape(own.shape)


def _substepper(worker: Worker) -> Substepper:
    return cast(Substepper, worker.stepper)


def _refuse_stuck(controller: Controller, fleet: WorkerGroup) -> None:
    # The state is that before the substep, of which one worker has all points.
    cause, state, step = "", fleet.workers[0].stepper.interior, fleet.step
    while fleet.problem.time(step + 1) <= controller.time:
        step += 1  # of the block, of which some steps are complete
    if len(fleet.workers) == fleet.ranks.size == 1:
        cause = cause_of(fleet.problem, state, 1, step)
    msg = (
        f"no substep is short enough at t = {controller.time:.10g} s: the last one that was tried "
        f"still has an error above time.tolerance.{cause} Do the fields grow without end there, or "
        "jump? Or take a larger time.tolerance, if it is near rounding."
    )
    raise NumericsError(msg)


_REPEATED = 300_000_000  # operations at points that NumPy makes again in a second or two
_BODY_OPERATIONS = 50  # of a step of a body, about


def cause_of(problem: Problem, state: Callable[[], Field], steps: int, first: int) -> str:
    """The operation that first gives no number, as a sentence: found by making steps again on the
    host. Empty if it is not found, or if that takes long.

    Args:
        problem: that was advanced.
        state: gives the state at step `first`.
        steps: after which the state is not finite.
        first: that step.
    """
    rates = problem.rates
    if problem.why_not_one_stencil is None or (rates and rates.adaptive):
        return ""
    # Bounded, since this runs when a user waits for the error message.
    operations = problem.equations.n_operations if problem.equations else _BODY_OPERATIONS
    steps = min(steps, _REPEATED // (problem.grid.n_points * operations))
    if steps <= 0:
        return ""
    if rates is None:
        found = first_failure(state(), problem, steps, first)
    else:  # whose steps are none of the reference
        with contextlib.closing(ThreadTeam(1)) as team:
            found = first_failure_of_rates(problem, state(), steps, first, CpuArrays(team))
    if found is None:
        return ""

    number, point, operation = found
    where, time = problem.grid.point_in_words(point), format_time(problem.time(number))
    return f" It began in step {number + 1} (t = {time}) at point {where} with {operation}."


# How the workers of a plan advance together, by its scheme.
SCHEMES: dict[Scheme, Advance] = {
    "explicit": advance_each,
    "adaptive": advance_adaptive,
    "spectral": advance_each,
    "steady": advance_solving,
    "implicit": advance_solving,
    "etdrk4": advance_solving,
    "imex": advance_solving,
}


class WorkerGroup:
    """All workers of a run, the exchange between them, and the step that they have come to.

    Every rank has one, with the workers of its own. Every method is called by all ranks alike.

    Args:
        problem: what is advanced.
        plan: by whom and how.
        workers: those of this rank, in the order of its shares, with the state of `step`.
        step: where they begin.
        clock: adds up the time of each phase.
        ranks: who takes part.
        moved: as below, before `step`.
        meter: on rank 0, if heat is to be counted.

    Attributes:
        plan: the decisions of now; others when planes have moved.
        workers: those of this rank now, in the order of its shares.
        step: number of steps that the state has behind it.
        exchange: the way of halos, and of the state to rank 0.
        busy_s: time that each worker computed, where they measure that [s].
        counted: the substeps of adaptive steps.
        asked_to_end: whether somebody wants the run to end.
        lost: names of workers that failed and without which the run went on.
        change: the step at which changes were measured last, and the largest of them [1/s].
        moved: by steps since the run began, of rank 0, and what `set_field` brought; see
            `ImplicitSteps.moved` and `Meter` [J].
    """

    plan: Plan
    workers: Sequence[Worker]
    exchange: Exchange

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        workers: Sequence[Worker],
        *,
        step: int,
        clock: PhaseClock,
        ranks: Communicator,
        moved: Mapping[str, float] | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.problem, self.step, self.clock, self.ranks = problem, step, clock, ranks
        self.busy_s: dict[str, float] = {}
        self.counted = Counted()
        self.asked_to_end: Callable[[], bool] = lambda: False
        self.change: tuple[int, float] | None = None
        self.lost: tuple[str, ...] = ()
        self.moved: Mapping[str, float] = dict(moved or {})
        self._meter = meter
        # Only rank 0 has one, and all must take the same branches.
        self._metered, self._asks = ranks.tell((meter is not None, bool(meter and meter.asks)))
        self._moved_at: dict[int, Mapping[str, float]] = {step: self.moved}
        self._take(plan, workers)

    def advance(self, steps: int) -> None:
        """Go up to `plan.time_block` steps on, as the scheme of the plan does; none if somebody
        wants to end before a long solution is there.
        """
        with contextlib.suppress(LeftOffError):
            # Where heat is counted, every step says what it is going to move.
            # Counting begins before the first step, even if the run has no outputs.
            self.begin_counting()
            for block in [1] * steps if self._asks else [steps]:
                powers = self._powers() if self._asks else {}
                SCHEMES[self.plan.scheme](self, block)
                self.step += block
                self._add(powers, self.problem.dt)
                for worker in self.workers if self.plan.scheme == "implicit" else ():
                    self._add(getattr(worker.stepper, "moved", {}), 1.0)

    def _powers(self) -> Mapping[str, float]:
        """Powers of the step that begins, on rank 0 [W]."""
        found: dict[str, float] = {}
        meter = self._meter
        self.lead("output", lambda: found.update(meter.powers(self._stored()) if meter else {}))
        return found

    def decided(self) -> Mapping[str, Any]:
        """Decisions and memory of controllers, as plain data; empty if there are none."""
        return {}

    def begin_counting(self) -> None:
        """Count heat from this step on, where it is counted and that has not begun."""
        meter, found = self._meter, dict[str, float]()
        if self._metered and not self.ranks.tell(bool(self.moved)):
            self.lead("output", lambda: found.update(meter.begin(self._stored()) if meter else {}))
            self._add(found, 1.0)

    def _replace(self, load: Callable[[], None]) -> None:
        """Let workers load another state, and count what it brings."""
        meter, states, found = self._meter, list[StateSnapshot](), dict[str, float]()

        def compare() -> None:
            # Before and after the change; all ranks hand in their parts twice.
            states.append(self._stored())
            if len(states) > 1 and meter is not None:
                found.update(meter.replaced(*states))

        self.begin_counting()
        for change in (load, None):
            if self._metered:
                self.lead("output", compare)
            if change is not None:
                change()
        self._add(found, 1.0)

    def _stored(self) -> StateSnapshot:
        """The state itself, all of it in one piece."""
        whole = WorkerGroup.snapshot(self)
        whole.field()
        return whole

    def _add(self, powers: Mapping[str, float], seconds: float) -> None:
        if powers:
            found = dict(self.moved)
            for name, power in powers.items():
                found[name] = found.get(name, 0.0) + power * seconds
            self.moved = found
        self._moved_at[self.step] = self.moved

    def set_back(self, step: int) -> None:
        """Go on from an earlier step; what was moved until then is remembered, or not known."""
        self.step = step
        unknown = dict.fromkeys(self.moved, math.nan)
        self.moved = self._moved_at.get(step, unknown)

    def lead(self, phase: str, work: Callable[[], None]) -> None:
        """Let rank 0 do some work with the state, while the others hand it what it asks for."""
        with self.clock.phase(phase):
            self.exchange.lead(self.workers, work)

    def snapshot(self) -> StateSnapshot:
        """The state as it is now, for rank 0, which must read it where all ranks take part."""
        return StateSnapshot(
            self.problem,
            self.step,
            lambda box: self.exchange.gather(self.workers, box),
            moved=self.moved,
            keep=lambda: keep(self.problem, self.workers) if self.workers else None,
        )

    def field(self) -> Field:
        """The state as it is now, (n_fields, n0, ...), on rank 0; (0, n0, ...) on others."""
        states = [np.empty((0, *self.problem.grid.shape), dtype=self.problem.dtype)]
        self.exchange.lead(self.workers, lambda: states.append(self.snapshot().field()))
        return states[-1]

    def rebalance(self) -> None:
        """Move planes if the workers have turned out to be faster or slower than planned."""
        plan = self._rebalancer.better_plan(
            self.problem,
            self.plan,
            self.workers,
            steps_left=self.problem.steps - self.step,
            move_seconds=_MOVING * self.clock.seconds["initial"],
        )
        if plan is None:
            return
        with self.clock.phase("exchange"):
            workers = move(self.problem, self.workers, plan, self.step)
            why = f"Planes moved at step {self.step}, since the workers' speeds have changed"
            self.take_up(plan, workers, why)

    def take_up(self, plan: Plan, workers: Sequence[Worker], why: str) -> None:
        """Go on with another plan.

        Args:
            plan: by whom and how from now on.
            workers: those of its shares, every point in its place; halos are not there yet.
            why: what has led to it, without a full stop.
        """
        n_points = self.problem.grid.n_points
        sizes = ", ".join(
            f"{share.worker} {share.slab.n_points / n_points:.1%}" for share in plan.shares
        )
        self._take(dataclasses.replace(plan, reasons=(*plan.reasons, f"{why}: {sizes}.")), workers)

    def dissolve(self, exchange: Exchange) -> None:
        """Close all workers; from now on the state is what an exchange without workers gathers."""
        WorkerGroup.close(self)
        self.workers, self.exchange = [], exchange

    def close(self) -> None:
        """Close the workers that the run has come to."""
        for worker in self.workers:
            worker.close()

    def _take(self, plan: Plan, workers: Sequence[Worker]) -> None:
        self.plan, self.workers, self._rebalancer = plan, workers, Rebalancer(plan)
        self.exchange = make_exchange(
            self.problem, plan.shares, self.ranks, gpu_messages=plan.gpu_messages
        )
