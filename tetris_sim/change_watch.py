"""ChangeWatch: ends a run whose state hardly changes any more."""

from __future__ import annotations

import math

import numpy as np

from tetris_sim.config.sections.quantities import Every
from tetris_sim.config.sections.schema import Until
from tetris_sim.errors import ExitCode
from tetris_sim.fleet import Fleet
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.output import StepSchedule
from tetris_sim.scheduler.run.exchange import box_of
from tetris_sim.support.stopping import StopReason

_LOOKS = 100  # in a run that goes on to its last step, if nobody says how many


class ChangeWatch:
    """Compares the states of two neighbouring steps now and then.

    The largest change of any point and any variable, as people see them, is the same number for
    any partition; steps are looked at by their number alone, and both states come after a
    checkpoint or one of them is in it. So a run ends at the same step however it was divided or
    interrupted.

    Args:
        problem: what is advanced.
        until: how little change ends it; without it the watch never looks.

    Attributes:
        reason: why the run has to end; None to go on.
    """

    def __init__(self, problem: Problem, until: Until | None) -> None:
        self._schedule: StepSchedule | None = None
        if until is not None:
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
        return looked if looked == step + 1 else looked - 1

    def forget(self) -> None:
        """What it has is not of this run any more: the run goes on from an earlier step."""
        self._before = {}

    def look(self, fleet: Fleet) -> None:
        """Keep or compare, if this step is one of a pair; all ranks call this alike."""
        if self._schedule is None:
            return
        step, last = fleet.step, fleet.problem.steps
        if self.holds and self._schedule.is_due(step):
            change = self._change(fleet)
            self.forget()
            if change < self._largest and step < last:
                self.reason = StopReason(ExitCode.OK, self._sentence(change))
        if self.reason is None and step < last and self._schedule.is_due(step + 1):
            with fleet.clock.phase("check"):
                self._before = _seen(fleet)

    def _change(self, fleet: Fleet) -> float:
        """The largest of all points, per second."""
        largest = 0.0
        with fleet.clock.phase("check"):
            for box, now in _seen(fleet).items():
                difference = np.abs(now.astype(np.float64, copy=False) - self._before[box])
                largest = float(np.maximum(largest, difference.max()))  # unlike max(), passes NaN
        return fleet.ranks.largest((largest,))[0] / fleet.problem.dt

    def _sentence(self, change: float) -> str:
        return f"no point changes by more than {change:.3g} per second (time.until.change)"


def _seen(fleet: Fleet) -> dict[Box, Field]:
    """Of each worker of this rank, what people see of its points."""
    view, boxes = fleet.problem.view, {}
    for worker in fleet.workers:
        box, state = box_of(worker), worker.stepper.interior()
        boxes[box] = state if view is None else view.look(box, state)
    return boxes
