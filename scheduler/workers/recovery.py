"""Recovery from a failed device: the state from which a run continues, and the plan without the
device.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.find import plan_on_cpu
from tetris_sim.scheduler.plan.search import divide
from tetris_sim.scheduler.workers.exchange import Traffic
from tetris_sim.scheduler.workers.rebalance import with_division
from tetris_sim.scheduler.workers.worker import Worker

log = logging.getLogger("tetris_sim")

_EVERY = 10.0  # least time between two states that are kept [s]
_COST = 0.01  # largest share of the run's time spent on that
# Assumed rate of collecting the first state [bytes/s]; later ones as measured.
_GATHERED = 2e9

T = TypeVar("T")
Kept = tuple[int, InitialField]  # the step, and any part of the state at that step


class Recovery:
    """The last state from which a run could continue, in memory or on disk.

    Args:
        machine: available hardware.
        compute: settings of the run.
        every: least time between two states kept in memory [s].
        strict: whether a device that fails is an error.

    Attributes:
        stops: whether the run ends when a device fails.
        strict: as above; the run then ends as well, with the exit code of an error.
        latest: function that finds the newest valid checkpoint, called after a failure; it returns
            None if there is none.
    """

    def __init__(
        self,
        machine: Machine,
        compute: ComputeSection,
        *,
        every: float = _EVERY,
        strict: bool = False,
    ) -> None:
        self.stops, self.strict = strict or compute.on_device_failure == "stop", strict
        self.latest: Callable[[], Kept | None] = lambda: None
        self._machine, self._compute, self._every = machine, compute, every
        self._kept: Kept | None = None
        self._last, self._pause = time.perf_counter(), 0.0

    def due(self, plan: Plan) -> bool:
        """Whether to keep a state now: if a device may fail, memory suffices, and the cost stays
        below the share `_COST` of the run's time.
        """
        if not plan.copy_for_recovery or plan.profile is None:
            return False
        guessed = plan.profile.work.n_planes * plan.profile.work.plane_bytes / _GATHERED
        return time.perf_counter() - self._last >= max(
            self._every, (self._pause or guessed) / _COST
        )

    def keep(self, step: int, read: Callable[[], Field]) -> None:
        """Keep a whole state in memory, in place of the one before."""
        begin = time.perf_counter()
        # The old state is replaced only when the new one is complete.
        field = read()
        self._kept = step, lambda slab: field[(slice(None), *map(slice, slab.start, slab.stop))]
        self._last = time.perf_counter()
        self._pause = self._last - begin

    def state(self, problem: Problem, first_step: int) -> Kept:
        """The newest state available; the initial one if there is no other.

        Args:
            problem: problem that is advanced.
            first_step: step of its initial state.
        """
        there = [(first_step, problem.initial), self._kept, self.latest()]
        return max((kept for kept in there if kept is not None), key=lambda kept: kept[0])

    def plan_without(self, problem: Problem, plan: Plan, failed: Collection[str]) -> Plan:
        """The plan after a failure: the remaining workers, or the CPU alone if they cannot do it.

        Args:
            problem: problem that is advanced.
            plan: plan before the failure.
            failed: names of the workers that failed.

        Raises:
            UnsupportedError: the CPU cannot do it either.
        """
        left = [k for k, share in enumerate(plan.shares) if share.worker not in failed]
        rest = _divided_anew(problem, plan, left)
        if rest is not None:
            return rest

        # A method of GPUs cannot be kept on the CPU.
        compute = self._compute
        if not compute.method.startswith("cpu."):
            compute = compute.model_copy(update={"method": "auto", "parameters": {}})
        anew = plan_on_cpu(problem, self._machine, compute)
        return dataclasses.replace(anew, reasons=(*plan.reasons, *anew.reasons), notes=plan.notes)


def _divided_anew(problem: Problem, plan: Plan, left: Sequence[int]) -> Plan | None:
    """The plan with the remaining workers only; None if they cannot hold the grid."""
    if not left or plan.profile is None:
        return None
    capacities = tuple(plan.profile.capacities[k] for k in left)
    rest = dataclasses.replace(plan, shares=tuple(plan.shares[k] for k in left))
    try:
        division = divide(plan.profile.work, capacities, most=plan.time_block)
    except UnsupportedError as error:
        log.info("%s", error)
        return None
    return with_division(problem, rest, capacities, division)


class KeptState:
    """An exchange without workers: after a failure, the last state is the saved one."""

    waits = False

    def __init__(self, problem: Problem, state: InitialField) -> None:
        self._problem, self._state = problem, state
        self.traffic = Traffic()

    def begin(self, workers: Sequence[Worker]) -> None:
        """Do nothing: there are no workers."""

    def swap(self, workers: Sequence[Worker]) -> None:
        """Do nothing: there are no workers."""

    def lead(self, workers: Sequence[Worker], work: Callable[[], None]) -> None:
        """Run `work`; there are no other ranks."""
        work()

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """The values of the saved state inside `box`."""
        return self._state(Slab.box(box))
