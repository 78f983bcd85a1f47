"""ChangeWatch: ends a run whose state hardly changes any more; ConditionWatch: one whose state
meets a condition.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tetris_sim.apps.time_functions import StopCondition
from tetris_sim.config.sections.quantities import Every
from tetris_sim.config.sections.schema import Until
from tetris_sim.errors import ExitCode, NumericsError
from tetris_sim.model.exchange import NOTHING_AROUND
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.output import StateSnapshot, StepSchedule
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.workers.exchange import box_of
from tetris_sim.scheduler.workers.queued import WorkerError
from tetris_sim.scheduler.workers.rebalance import KeptState, Recovery, restore
from tetris_sim.scheduler.workers.worker import Worker
from tetris_sim.simulation.workers import Saving, WorkerGroup, cause_of
from tetris_sim.support.stopping import StopReason
from tetris_sim.support.wording import format_time

# FiniteWatch: looks for NaN and infinity, before anything is written and every few seconds.

_CHECK_SECONDS = 5.0  # a NaN is found at the latest after this much wall time


class FiniteWatch:
    """Knows until when the state of a run was finite.

    Args:
        step: where the run begins.
        saving: where a state that is not finite is kept; rank 0's, if there is any.
        settle: what all ranks do before that, so that the last good state is on the disk.
    """

    def __init__(
        self,
        step: int,
        saving: Saving | None,
        settle: Callable[[WorkerGroup], None] = lambda _: None,
    ) -> None:
        self._saving, self._settle = saving, settle
        self._good_step, self._looked = step, False
        self._begun: int | None = step
        self._last_look = time.perf_counter()

    def due(self) -> bool:
        """Whether the last look is too long ago."""
        return time.perf_counter() - self._last_look > _CHECK_SECONDS

    def forget(self) -> None:
        """Look again even at this step: the state is another one."""
        self._looked, self._begun = False, None

    def check(self, fleet: WorkerGroup) -> None:
        """Look at every point, once per step.

        Raises:
            NumericsError: a point is not finite; the state is kept where no restart finds it.
            ElsewhereError: so it is, and rank 0 says it.
        """
        if self._good_step == fleet.step and self._looked:
            return
        with fleet.clock.phase("check"):
            bad = _first([worker.stepper.find_nonfinite() for worker in fleet.workers])
            bad = _first(fleet.ranks.collect(bad))

        # `collect` gives every rank the same box, so all of them leave here or none does.
        if bad is not None:  # no rank comes back from this
            self._settle(fleet)  # what is being written is the last good one
            fleet.exchange.lead(fleet.workers, partial(self._refuse, fleet, bad))
        self._good_step, self._looked = fleet.step, True
        self._last_look = time.perf_counter()

    def _refuse(self, fleet: WorkerGroup, bad: Box) -> None:
        saving, time_s = self._saving, fleet.problem.time(fleet.step)
        dump = "There is no checkpoint." if saving is None else saving.dump(fleet.snapshot())
        # The run is made again from its begin, unless its state was replaced since.
        cause, begun = "", self._begun
        if begun is not None and fleet.problem.substeps is None:
            state = partial(fleet.problem.initial, Slab.whole(fleet.problem.grid))
            cause = cause_of(fleet.problem, state, fleet.step - begun, begun)

        msg = (
            f"the field is not finite any more: NaN or infinity at {_describe(bad, fleet.problem)},"
            f" found at step {fleet.step} (t = {format_time(time_s)}), all finite at step "
            f"{self._good_step}.{cause} {dump}"
        )
        if fleet.problem.equations is not None:
            msg += (
                " If the equations should not grow without end, take a smaller time.dt, or another "
                "time.scheme."
            )
        raise NumericsError(msg)


def _first(boxes: list[Box | None]) -> Box | None:
    return min((box for box in boxes if box is not None), default=None)


def _describe(box: Box, problem: Problem) -> str:
    # Array order is z, y, x; users count x first.
    names = problem.grid.axis_names
    ranges = [f"{name} = {low}..{high - 1}" for name, (low, high) in zip(names, box, strict=True)]
    return "points " + ", ".join(reversed(ranges))


_LOOKS = 100  # in a run that goes on to its last step, unless `until.every` says otherwise


class ChangeWatch:
    """Compares the states of two neighbouring steps now and then.

    The largest change of any point and any variable, as people see them, is the same number for
    any partition; steps are looked at by their number alone, and both states come after a
    checkpoint, or one of them is in it, or it says what was measured. So a run ends at the same
    step however it was divided or interrupted, and is over when it is continued after that.

    Args:
        problem: what is advanced.
        until: how little change ends it; without it the watch never looks.

    Attributes:
        reason: why the run has to end; None to go on.
    """

    def __init__(self, problem: Problem, until: Until | None) -> None:
        self._schedule: StepSchedule | None = None
        if until is not None and until.change is not None:
            # Counted in steps, not seconds: a step number is the same for any division and restart.
            every = until.every or Every(max(1, math.ceil(problem.steps / _LOOKS)), "steps")
            self._schedule = StepSchedule(every, problem.dt, problem.steps, problem.start)
            self._largest = until.change
        self._before: dict[Box, Field] = {}
        self.reason: StopReason | None = None

    @property
    def holds(self) -> bool:
        """Whether it has the state of a step and waits for the next, every point in its place."""
        return bool(self._before)

    def next_step(self, step: int) -> int | None:
        """Smallest step greater than `step` whose state it needs; None after the last."""
        looked = None if self._schedule is None else self._schedule.next_step(step)
        if looked is None:
            return None
        # A pair of steps is compared: the one before the look has to be kept as well.
        return looked if looked == step + 1 else looked - 1

    def forget(self) -> None:
        """Discard the records, because the run continues from an earlier step."""
        self._before = {}

    def look(self, fleet: WorkerGroup) -> None:
        """Keep or compare, if this step is one of a pair; all ranks call this alike."""
        if self._schedule is None:
            return
        step, last = fleet.step, fleet.problem.steps
        # Second step of a pair: compare. The result goes into checkpoints, so that a run which is
        # continued from exactly this step ends as well.
        if self.holds and self._schedule.is_due(step):
            fleet.change = (step, self._change(fleet))
            self.forget()
        if fleet.change is not None and fleet.change[0] == step < last:
            change = fleet.change[1]
            if change < self._largest:
                self.reason = StopReason(ExitCode.OK, self._sentence(change))

        # First step of the next pair: keep a copy of what people see.
        if self.reason is None and step < last and self._schedule.is_due(step + 1):
            with fleet.clock.phase("check"):
                self._before = _seen(fleet)

    def _change(self, fleet: WorkerGroup) -> float:
        """The largest of all points, per second."""
        largest = 0.0
        with fleet.clock.phase("check"):
            for box, now in _seen(fleet).items():
                before = self._before[box]
                difference = np.abs(now.astype(np.float64, copy=False) - before)
                # Voids are NaN in both; `max` passes a NaN on that is new.
                most = difference.max(initial=0.0, where=~np.isnan(before))
                largest = float(np.maximum(largest, most))
        return fleet.ranks.largest((largest,))[0] / fleet.problem.dt

    def _sentence(self, change: float) -> str:
        return f"no point changes by more than {change:.3g} per second (time.until.change)"


class ConditionWatch:
    """Looks now and then whether a condition holds that ends the run.

    Rank 0 evaluates it for the whole state, so a run ends at the same step however it was divided
    or interrupted, and is over when it is continued after that.

    Args:
        problem: what is advanced.
        every: how often it looks; every step if not given.
        condition: what ends the run.

    Attributes:
        reason: why the run has to end; None to go on.
        holds: False: it keeps no state from one look to the next.
    """

    holds = False

    def __init__(self, problem: Problem, every: Every | None, condition: StopCondition) -> None:
        often = every or Every(1, "steps")
        self._schedule = StepSchedule(often, problem.dt, problem.steps, problem.start)
        self._condition = condition
        self.reason: StopReason | None = None

    def next_step(self, step: int) -> int | None:
        """Smallest step greater than `step` at which it looks; None after the last."""
        return self._schedule.next_step(step)

    def forget(self) -> None:
        """Forget what was found: it is not of this run any more."""
        self.reason = None

    def look(self, fleet: WorkerGroup) -> None:
        """Evaluate, if it is time; all ranks call this alike."""
        step = fleet.step
        begins = step == fleet.problem.start[0]
        # The last step ends the run anyhow; the first is looked at because the condition may hold
        # already.
        if step >= fleet.problem.steps or not (begins or self._schedule.is_due(step)):
            return

        # The state is gathered on rank 0: sums of parts would have other bits in other divisions.
        found: list[bool] = []
        fleet.lead("check", lambda: found.append(self._evaluate(fleet.snapshot())))
        if fleet.ranks.tell(found == [True]):
            told = f"{self._condition.text} holds (time.until.condition)"
            self.reason = StopReason(ExitCode.OK, told)

    def _evaluate(self, snapshot: StateSnapshot) -> bool:
        seen = snapshot.seen()
        names = [variable.name for variable in seen.problem.variables]
        fields = dict(zip(names, seen.field(), strict=True))
        return self._condition.holds(seen.problem.grid, seen.time, fields)


def watch_for(
    problem: Problem, until: Until | None, condition: StopCondition | None
) -> ChangeWatch | ConditionWatch:
    """Who ends a run before its last step.

    Args:
        problem: what is advanced.
        until: the section that says when; without it the run never ends early.
        condition: that of the section, if it has one.
    """
    if condition is None:
        return ChangeWatch(problem, until)
    return ConditionWatch(problem, None if until is None else until.every, condition)


def _seen(fleet: WorkerGroup) -> dict[Box, Field]:
    """Of each worker of this rank, what people see of its points."""
    view, boxes = fleet.problem.view, {}
    for worker in fleet.workers:
        box, state = box_of(worker), worker.stepper.interior()
        boxes[box] = state if view is None else view.look(box, state)
    return boxes


# A device fails in the middle of a run: others go on from the newest state, or the run ends.

log = logging.getLogger("tetris_sim")


def go_on_without(
    fleet: WorkerGroup,
    failure: WorkerError,
    recovery: Recovery,
    *,
    first: tuple[int, Problem],
) -> StopReason | None:
    """Set a fleet back to the newest state there is, without the worker that failed.

    Args:
        fleet: whose worker failed; other workers are as they were.
        failure: what failed, and why.
        recovery: the states to continue from, and whether continuing is wanted.
        first: where the run began, and with which problem.

    Returns:
        None if the run goes on, or why it is to end.

    Raises:
        WorkerError: no worker is left to continue.
        UnsupportedError: the remaining workers have no room for the grid.
    """
    # Blocks advance all workers together, so the others may be ahead of the failed one: all of them
    # return to the newest state that is known for the whole grid.
    what = f"{failure} (in the block after step {fleet.step})"
    step, state = recovery.state(first[1], first[0])
    fleet.set_back(step)
    if recovery.stops:
        fleet.dissolve(KeptState(fleet.problem, state))
        code = ExitCode.RESOURCES if recovery.strict else ExitCode.REQUEUE
        return StopReason(code, f"{what}; the state of step {fleet.step} is kept")

    with fleet.clock.phase("prepare"):
        plan, workers = _replace(fleet, failure, recovery, state)
    told = f"{what}; the run went on from step {fleet.step} without it"
    log.warning("%s.", told)
    fleet.lost = (*fleet.lost, failure.worker)
    fleet.take_up(dataclasses.replace(plan, notes=(*plan.notes, f"{told}.")), workers, told)
    return None


def _replace(
    fleet: WorkerGroup, failure: WorkerError, recovery: Recovery, state: InitialField
) -> tuple[Plan, Sequence[Worker]]:
    """The plan to go on with and its workers, opened; others may fail at this moment too."""
    # Each round excludes one more worker, so the loop ends after as many rounds as there are
    # workers.
    failed: set[str] = set()
    while failure.worker not in failed:
        failed.add(failure.worker)
        plan = recovery.plan_without(fleet.problem, fleet.plan, failed)
        try:
            return plan, restore(fleet.problem, fleet.workers, failed, plan, state, fleet.step)
        except WorkerError as another:
            failure = another
    raise failure


class LumpedParts:
    """Lumps around a body, which advance with every step of its field, and currents through it.

    Before a step they are told what they see of the field, and from that follow their temperatures
    after the step, and the mean over it, which the step of the field takes. Currents decide whether
    to solve for their heat anew. Every rank has one, and all agree.

    Args:
        problem: of the field.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        around = NOTHING_AROUND if problem.moving is None else problem.moving.around
        self._network = around.network
        self._currents = around.currents if around.currents and around.currents.signals else None
        # `_here` belongs to step `_step`, `_after` to the one after it; a step is decided once,
        # however often the field is looked at.
        self._step, self._is_decided = 0, False
        self._here = np.zeros(0) if self._network is None else self._network.initial
        self._after = self._here

    @property
    def is_idle(self) -> bool:
        """Whether there are none."""
        return self._network is None and self._currents is None

    @property
    def names(self) -> frozenset[str]:
        """Signals that follow from temperatures."""
        pairs = () if self._network is None else self._network.signals
        decided = () if self._currents is None else self._currents.signals
        return frozenset(it.name for it in (*itertools.chain.from_iterable(pairs), *decided))

    def look(self, fleet: WorkerGroup) -> None:
        """Decide about the step that begins; all ranks call this alike."""
        network, step = self._network, fleet.step
        if self.is_idle or (step == self._step and self._is_decided):
            return
        if self._currents is not None:
            state = fleet.ranks.tell(fleet.field())[0]
            self._currents.decide(state, self._problem.time(step))
            if network is None:
                self._step, self._is_decided = step, True
        if network is None:
            return
        moving = self._problem.moving
        if moving is not None and (solution := moving.around.solution) is not None:
            # They were found together with the field, where that is.
            here = solution.at(self._problem.time(step)).tolist() if fleet.workers else None
            first = next(it for it in fleet.ranks.collect(here) if it is not None)
            solution.keep(np.array(first), self._problem.time(step))
            self._step, self._is_decided = step, True
            return
        # A step lies behind them, or the state was replaced and all is decided anew.
        if step > self._step:
            self._step, self._here = step, self._after
        found: list[float] = []
        begin, end = span = self._problem.time(step), self._problem.time(step + 1)
        fleet.lead(
            "check", lambda: found.extend(network.seen(fleet.snapshot().box(network.box)[0], span))
        )
        seen = np.array(fleet.ranks.tell(found))

        self._after, means = network.advance(self._here, seen, begin, end)
        self._is_decided = True
        for (over, now), mean, after in zip(network.signals, means, self._after, strict=True):
            over.decide(begin, float(mean))
            now.decide(end, float(after))

    def forget(self) -> None:
        """Decide once more: the field is another one."""
        self._is_decided = False

    def follow(self, time: float) -> None:
        """Begin with the temperatures that signals have at a time [s]."""
        pairs = () if self._network is None else self._network.signals
        self._here = np.array([float(now.at(np.array([time]))[0]) for _, now in pairs])
        self._step, self._is_decided, self._after = 0, False, self._here

    def state(self) -> dict[str, Any]:
        """Return temperatures before and after the step that begins, as plain data."""
        state = {"step": self._step, "decided": self._is_decided}
        state |= {"here": self._here.tolist(), "after": self._after.tolist()}
        return state | ({"currents": self._currents.remembered()} if self._currents else {})

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on as what a checkpoint remembers."""
        if not state or self.is_idle:
            return
        if self._currents is not None:
            self._currents.recall(state.get("currents", ""))
        self._step, self._is_decided = state["step"], state["decided"]
        self._here, self._after = np.array(state["here"]), np.array(state["after"])
