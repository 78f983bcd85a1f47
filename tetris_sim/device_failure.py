"""A device fails in the middle of a run: others go on from the newest state, or the run ends."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from tetris_sim.errors import ExitCode
from tetris_sim.fleet import Fleet
from tetris_sim.model.problem import InitialField
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.run.queued import WorkerError
from tetris_sim.scheduler.run.rebalance import restore
from tetris_sim.scheduler.run.recovery import KeptState, Recovery
from tetris_sim.scheduler.run.worker import Worker
from tetris_sim.support.stopping import StopReason

log = logging.getLogger("tetris_sim")


def go_on_without(
    fleet: Fleet, failure: WorkerError, recovery: Recovery, *, first_step: int
) -> StopReason | None:
    """Set a fleet back to the newest state there is, without the worker that failed.

    Args:
        fleet: whose worker failed; other workers are as they were.
        failure: what failed, and why.
        recovery: what there is to go on from, and whether that is wanted.
        first_step: where the run began.

    Returns:
        None if the run goes on, or why it is to end.

    Raises:
        WorkerError: nobody is left who could go on.
        UnsupportedError: nobody who is left has room for the grid.
    """
    what = f"{failure} (in the block after step {fleet.step})"
    fleet.step, state = recovery.state(fleet.problem, first_step)
    if recovery.stops:
        fleet.dissolve(KeptState(fleet.problem, state))
        return StopReason(ExitCode.REQUEUE, f"{what}; the state of step {fleet.step} is kept")

    with fleet.clock.phase("prepare"):
        plan, workers = _replace(fleet, failure, recovery, state)
    told = f"{what}; the run went on from step {fleet.step} without it"
    log.warning("%s.", told)
    fleet.take_up(dataclasses.replace(plan, notes=(*plan.notes, f"{told}.")), workers, told)
    return None


def _replace(
    fleet: Fleet, failure: WorkerError, recovery: Recovery, state: InitialField
) -> tuple[Plan, Sequence[Worker]]:
    """The plan to go on with and its workers, opened; others may fail at this moment too."""
    failed: set[str] = set()
    while failure.worker not in failed:
        failed.add(failure.worker)
        plan = recovery.plan_without(fleet.problem, fleet.plan, failed)
        try:
            return plan, restore(fleet.problem, fleet.workers, failed, plan, state, fleet.step)
        except WorkerError as another:
            failure = another
    raise failure
