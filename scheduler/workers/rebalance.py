"""Load balancing during a run: planes move to other workers when measured rates differ from those
of the plan.

Rates measured before the run do not hold for days: other processes take cores, GPUs get hot. The
last blocks give the current rate of each worker. Planes move if the time saved until the end of the
run repays the move several times.

When a device fails, the run continues from the last state that is whole, with the plan without that
device.
"""

from __future__ import annotations

import dataclasses
import logging
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import (
    FREE,
    Capacity,
    Division,
    Plan,
    Profile,
    Share,
    WorkEstimate,
)
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.cost import WorkerTable, divide_block
from tetris_sim.scheduler.plan.find import plan_on_cpu
from tetris_sim.scheduler.plan.partition import cut_along_axis_0
from tetris_sim.scheduler.plan.search import divide, of_members, predict
from tetris_sim.scheduler.tuning.candidates import find_method
from tetris_sim.scheduler.workers.exchange import Traffic, box_of, join, overlap
from tetris_sim.scheduler.workers.queued import QueuedStepper
from tetris_sim.scheduler.workers.worker import Worker, open_worker

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
        # Until a state was kept, its cost is guessed from bytes and bandwidth.
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
        # By age: initial field, memory, disk. The newest one loses the fewest steps.
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
        # First choice: the same methods with larger slabs, so that results keep their bits where
        # methods are exact.
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


_REPAID = 3.0  # least ratio of saved time to the cost of the move: both are estimates
_GAIN = 0.05  # of the time of a step; less is noise
_FEWEST_BLOCKS = 8  # between two checks, and with known times

Part = tuple[Box, Field]  # global indices, and the points inside


def better_division(
    profile: Profile, now: Sequence[Capacity], *, steps_left: int, move_seconds: float
) -> Division | None:
    """The division that is worth moving planes for; None to keep the old one.

    Args:
        profile: profile of the old division.
        now: current capacities of the workers, in the same order.
        steps_left: steps until the end of the run.
        move_seconds: cost of a move in which every plane changes its worker [s].
    """
    # Both divisions are predicted with the current rates and the same block, so only the planes
    # differ.
    old = predict(profile.work, now, profile.division.planes, profile.division.time_block)
    new = divide(profile.work, now, most=old.time_block, time_block=old.time_block)
    saved = old.seconds_per_step - new.seconds_per_step
    if saved < _GAIN * old.seconds_per_step or saved * steps_left < _REPAID * move_seconds:
        return None
    return new


def measured_rate(
    work: WorkEstimate,
    planes: int,
    cuts: int,
    blocks: Sequence[tuple[int, float]],
    capacity: Capacity,
) -> float | None:
    """Rate of a worker in long blocks [points/s], from the median of its last blocks; None if there
    were too few.

    Args:
        work: grid that is divided.
        planes: planes that the worker owns.
        cuts: number of its neighbours.
        blocks: (steps, time [s]) of each block.
        capacity: its start time, the slowdown in short blocks, and the copies contained in the
            times, of which at most half of a block's time is subtracted.
    """
    if len(blocks) < _FEWEST_BLOCKS:
        return None
    crew, rates = WorkerTable.of([capacity]), []
    for steps, seconds in blocks:
        # Halos shrink by a radius per step: (steps - 1) / 2 radii per neighbour are computed on
        # average.
        # Points that were updated per step, redundant ones included.
        points = work.plane_points * (planes + cuts * work.radius * (steps - 1) / 2)
        copies = 2 * cuts * capacity.copying.seconds(steps * work.radius * work.plane_bytes)
        rate = points * steps / max(seconds - capacity.start - copies, seconds / 2, 1e-9)

        # The cost model starts from the rate in long blocks and slows down short ones, so the
        # slowdown is taken out here.
        rates.append(rate * float(crew.slowness(steps)[0]) * capacity.points_per_second)
    return statistics.median(rates)


class Rebalancer:
    """Periodic check whether planes should move.

    It acts only within one process, not while slabs are streamed, and not if the configuration sets
    their sizes.

    Args:
        plan: plan of the run.
    """

    def __init__(self, plan: Plan) -> None:
        alone = len(plan.shares) == 1 or len({share.rank for share in plan.shares}) > 1
        fixed = alone or plan.shares_asked or any(share.streamed for share in plan.shares)
        self._looks = plan.profile is not None and not fixed
        self._blocks = 0

    def better_plan(
        self,
        problem: Problem,
        plan: Plan,
        workers: Sequence[Worker],
        *,
        steps_left: int,
        move_seconds: float,
    ) -> Plan | None:
        """The plan to continue with; None to keep the current one. Called after each block.

        Args:
            problem: problem that is advanced.
            plan: current plan.
            workers: workers of its shares, in order.
            steps_left: steps until the end of the run.
            move_seconds: cost of a move in which every plane changes its worker [s].
        """
        self._blocks += 1
        if not self._looks or self._blocks < _FEWEST_BLOCKS:
            return None
        self._blocks = 0
        assert plan.profile is not None
        now = _as_measured(plan.profile, workers)
        if now is None:
            return None
        division = better_division(
            plan.profile, now, steps_left=steps_left, move_seconds=move_seconds
        )
        return None if division is None else with_division(problem, plan, now, division)


def with_division(
    problem: Problem, plan: Plan, capacities: Sequence[Capacity], division: Division
) -> Plan:
    """The plan with another division between the same workers or some of them.

    Args:
        problem: problem that is advanced.
        plan: old plan.
        capacities: capacities of its workers, with the rates that the division was made from.
        division: new division; workers with 0 planes lose their share.
    """
    assert plan.profile is not None
    # Slabs lie one after the other in the order of the workers that keep planes.
    kept = [k for k, planes in enumerate(division.planes) if planes]
    ends = [sum(division.planes[: k + 1]) for k in kept]
    pieces = list(zip([0, *ends[:-1]], ends, strict=True))
    # A step reaches a radius further; a block of n steps needs n radii of halo.
    halo = division.time_block * plan.profile.work.radius
    slabs = cut_along_axis_0(problem.grid, problem.boundary, pieces, halo=halo)

    shares = []
    for k, slab in zip(kept, slabs, strict=True):
        share = plan.shares[k]
        parameters = share.parameters
        if share.method.device == "cpu" and len(kept) > 1:
            parameters = divide_block(parameters, division.time_block)
        # A streamed worker needs memory for its chunks, whatever its slab.
        memory = share.memory if share.streamed else share.method.memory(problem, slab, parameters)
        rate = capacities[k].points_per_second
        changes = dataclasses.replace(
            share, slab=slab, parameters=parameters, memory=memory, points_per_second=rate
        )
        shares.append(changes)

    profile = dataclasses.replace(
        plan.profile, capacities=tuple(capacities[k] for k in kept), division=of_members(division)
    )
    points = profile.work.n_planes * profile.work.plane_points * division.time_block
    return dataclasses.replace(
        plan,
        shares=tuple(shares),
        time_block=division.time_block,
        seconds_per_step=division.seconds_per_step,
        redundant=division.replicated / (division.replicated + points),
        profile=profile,
    )


def able(problem: Problem, plan: Plan) -> Plan:
    """The plan for another problem on the same grid: workers whose method refuses it take that
    which refuses nothing.

    Raises:
        UnsupportedError: its system cannot be solved.
    """
    shares = []
    for share in plan.shares:
        refusal = share.method.refusal(problem)
        if refusal is not None and plan.scheme != "explicit":
            raise UnsupportedError(refusal)
        if refusal is not None:
            method = find_method(f"{share.method.device}.plain", by="what comes and goes")
            if share.method.name != method.name:
                log.warning("From now on %s, since %s.", method.name, refusal)
            changed = {"method": method, "parameters": method.parameters(problem)[0]}
            share = dataclasses.replace(share, **changed)  # type: ignore[arg-type]
        shares.append(share)
    return dataclasses.replace(plan, shares=tuple(shares))


def move(problem: Problem, workers: Sequence[Worker], plan: Plan, step: int) -> list[Worker]:
    """Let the workers take over the slabs of a plan; workers without a share are closed.

    The points that a worker keeps wait in host memory while its new slab is allocated, one worker
    at a time; apart from those, only planes that change their worker exist twice.

    Args:
        problem: problem that is advanced.
        workers: current workers, which hold the whole state.
        plan: plan to take over.
        step: number of steps that the state has made.

    Returns:
        The workers of the plan, in its order, with all points loaded; halos are not exchanged
        yet.
    """
    # Reading before releasing keeps the state whole whatever fails in between.
    by_name = {worker.name: worker for worker in workers}
    # All planes from other workers are read before any slab is released.
    arriving = {share.worker: _from_others(share, workers) for share in plan.shares}

    for share in plan.shares:
        worker = by_name[share.worker]
        if worker.stepper.slab == share.slab:
            continue
        parts = arriving[share.worker]
        if (kept := overlap(share.slab, box_of(worker))) is not None:
            parts.append((kept, worker.stepper.interior(kept)))
        worker.change(problem, share)
        worker.stepper.load(assembled(problem, parts), step)

    for name, worker in by_name.items():
        if name not in arriving:
            worker.close()
    return [by_name[share.worker] for share in plan.shares]


def restore(
    problem: Problem,
    workers: Sequence[Worker],
    failed: Collection[str],
    plan: Plan,
    state: InitialField,
    step: int,
) -> list[Worker]:
    """Let the workers take over the slabs of a plan, with their points from a saved state; open new
    workers where needed.

    Args:
        problem: problem that is advanced.
        workers: workers before the failure.
        failed: names of the workers that cannot be used; these are closed, and so are workers
            without a share in the plan.
        plan: plan to take over.
        state: saved state, which returns any part of the grid.
        step: number of steps that the state has made.

    Raises:
        WorkerError: another worker fails.
    """
    # Failed workers first: their memory is needed by those that stay.
    named = {share.worker for share in plan.shares}
    for worker in workers:
        if worker.name in failed or worker.name not in named:
            worker.close()
    usable = {worker.name: worker for worker in workers if not worker.closed}

    restored = []
    for share in plan.shares:
        if share.worker in usable:
            usable[share.worker].change(problem, share)
        worker = usable[share.worker] if share.worker in usable else open_worker(problem, share)
        worker.stepper.load(state, step)
        restored.append(worker)
    return restored


def assembled(problem: Problem, parts: Sequence[Part]) -> InitialField:
    """A state composed of parts that do not overlap."""

    def initial(slab: Slab) -> Field:
        box = tuple(zip(slab.start, slab.stop, strict=True))
        inside = []
        for whole, values in parts:
            if (common := overlap(slab, whole)) is not None:
                place = tuple(
                    slice(a - low, b - low) for (a, b), (low, _) in zip(common, whole, strict=True)
                )
                inside.append((common, values[(slice(None), *place)]))
        return join(problem, box, inside)

    return initial


def _from_others(share: Share, workers: Sequence[Worker]) -> list[Part]:
    """The points of a new slab that other workers hold now."""
    parts = []
    for worker in workers:
        common = None if worker.name == share.worker else overlap(share.slab, box_of(worker))
        if common is not None:
            parts.append((common, worker.stepper.interior(common)))
    return parts


def _as_measured(profile: Profile, workers: Sequence[Worker]) -> list[Capacity] | None:
    """Capacities with the rates of the last blocks; None if the rate of a worker is not known
    yet.
    """
    capacities = []
    for place, (worker, capacity) in enumerate(zip(workers, profile.capacities, strict=True)):
        stepper = worker.stepper
        queued = stepper if isinstance(stepper, QueuedStepper) else None
        blocks = [] if queued is None else list(queued.recent)
        # Only steppers that count copies within their blocks need them subtracted.
        contained = queued is not None and queued.copies_in_blocks
        known = capacity if contained else dataclasses.replace(capacity, copying=FREE)
        cuts, planes = profile.work.cuts(place, len(workers)), profile.division.planes[place]
        rate = measured_rate(profile.work, planes, cuts, blocks, known)
        if rate is None:
            return None
        capacities.append(dataclasses.replace(capacity, points_per_second=rate))
    return capacities
