"""The planner: which worker computes which part of the grid, in one process or on many ranks.

Candidates are collected (`plan/find.py`: a device with its tuned method), the grid is divided
between them (`plan/search.py`, by the times that `plan/cost.py` predicts), and the plan explains
the result (`plan/plan.py`; for many ranks `plan/ranks.py`). Functions that measure on devices are
passed in from here, so that `plan/` does not depend on `workers/` (docs/decisions/0017).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from tetris_sim.config.sections.schema import SPLIT, ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.comm.communicator import Communicator, everywhere, measure_link, on_root
from tetris_sim.scheduler.facts.domain import FREE, Domain, Link
from tetris_sim.scheduler.facts.shares import Draft, GpuMessages, Plan, Reason, about
from tetris_sim.scheduler.machine.devices import Device, choose_devices
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.placement import own_part
from tetris_sim.scheduler.plan.block import responsive_block
from tetris_sim.scheduler.plan.find import find_offers
from tetris_sim.scheduler.plan.offer import GUESSES, Measures, WorkerCandidate, refuse_shortages
from tetris_sim.scheduler.plan.plan import draft_plan
from tetris_sim.scheduler.plan.ranks import combine, even_part, offers_of
from tetris_sim.scheduler.plan.solving import (
    PER_THREAD,
    SPECTRAL_ON_GPU,
    open_alone,
    share_of_all,
    solving_devices,
)
from tetris_sim.scheduler.plan.words import describe_gpu, describe_messages, describe_unopened
from tetris_sim.scheduler.tuning.candidates import TuningRequest, usable_bytes
from tetris_sim.scheduler.workers.direct import OPENING_SECONDS, between_gpus, possible_ways
from tetris_sim.scheduler.workers.measuring import (
    LONG_BYTES,
    measure_copies,
    measure_exchange,
    measure_messages,
)
from tetris_sim.support.wording import gib


def make_plan(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection | None = None,
    *,
    begun_with: TuningRequest | None = None,
    use_cache: bool = True,
) -> Plan:
    """Decide how to advance `problem` on `machine`; measures for a few seconds unless an earlier
    run has done so.

    Args:
        problem: problem to advance.
        machine: available hardware.
        compute: settings of the run; everything automatic if not given.
        begun_with: method and parameters of the run that is continued, which are kept unless the
            configuration requests others.
        use_cache: whether tuning results of earlier runs are used and new ones stored.

    Raises:
        UnsupportedError: the state does not fit into the available memory, or no method can be
            used.
        ConfigError: a requested method does not exist or cannot be used, or there are more workers
            than the grid has planes for.
    """
    compute = compute or ComputeSection()
    return draft(problem, machine, compute, begun_with=begun_with, use_cache=use_cache).finished()


def plan_together(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    ranks: Communicator,
    *,
    begun_with: TuningRequest | None = None,
    use_cache: bool = True,
) -> Plan:
    """One plan for all ranks, identical on each of them; `make_plan` if there is only one rank.

    Args:
        problem: problem to advance.
        machine: the computer as this rank sees it.
        compute: settings of the run.
        ranks: all ranks of the run; each of them calls this.
        begun_with: as for `make_plan`.
        use_cache: as for `make_plan`.

    Raises:
        UnsupportedError: a rank has no memory or no method for its part, or two ranks would use one
            GPU.
        ConfigError: there are more workers than the grid can be cut into.
    """
    if ranks.size == 1:
        return make_plan(problem, machine, compute, begun_with=begun_with, use_cache=use_cache)

    # Each rank tunes on an even part of the grid. The real parts are cut afterwards, by the
    # measured speeds.
    machine = own_part(machine, compute, ranks)
    part = everywhere(ranks, lambda: even_part(problem, ranks.size))
    own = everywhere(
        ranks, lambda: draft(part, machine, compute, begun_with=begun_with, use_cache=use_cache)
    )
    by_rank = ranks.collect(offers_of(own, machine, ranks.rank))
    offers = list(itertools.chain.from_iterable(by_rank))
    way, link, why = _choose_messages(problem, by_rank, compute, ranks)

    # Rank 0 decides and the others receive its plan, so that all plans are the same.
    def decide() -> Plan:
        plan = combine(problem, offers, link, compute, (*own.reasons, *why), gpu_messages=way)
        refuse_shortages(Domain.of(problem).plane_bytes, offers, plan.shares)
        return plan

    return on_root(ranks, decide)


def draft(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    *,
    begun_with: TuningRequest | None,
    use_cache: bool,
) -> Draft:
    """The plan of one process, before its sentences are composed; see `make_plan`."""
    devices, why = choose_devices(machine, compute)
    # Messages are worth measuring only if a step needs any.
    measures = GUESSES
    if compute.tuning_seconds > 0 and problem.stencil.radii[0] > 0:
        messages = functools.partial(measure_messages, problem)
        measures = Measures(messages, measure_copies)

    def on(devices: Sequence[Device]) -> Draft:
        offers, why_these = find_offers(
            problem, machine, compute, devices, begun_with=begun_with, use_cache=use_cache
        )
        return draft_plan(problem, compute, offers, measures, why_these)

    # A GPU that turns out unusable must not stop a run that CPU threads can do: devices that the
    # configuration did not name are given up, except the last one, the CPU.
    try:
        plan = on(devices)
    except UnsupportedError as error:
        if compute.devices != "auto" or len(devices) == 1:
            raise
        why = (f"The GPU is not used: {error}",)
        plan = on(devices[-1:])
    return Draft(plan.plan, (*about("device", why), *plan.reasons))


def _choose_messages(
    problem: Problem,
    by_rank: Sequence[Sequence[WorkerCandidate]],
    compute: ComputeSection,
    ranks: Communicator,
) -> tuple[GpuMessages, Link, tuple[Reason, ...]]:
    """(transport of planes between GPUs of different ranks, cost of messages, reasons).

    Raises:
        UnsupportedError: the requested transport is not available.
    """
    offers = list(itertools.chain.from_iterable(by_rank))
    shares, first = [offer.share for offer in offers], [own[0].share for own in by_rank]
    # Streamed slabs are not timed: `combine` refuses them between ranks.
    timed = compute.tuning_seconds > 0 and all(share.streamed is None for share in first)

    def link_of(way: GpuMessages) -> Link:
        if timed:
            return measure_exchange(problem, first, ranks, gpu_messages=way)
        return measure_link(ranks)

    asked, why = compute.gpu_messages, tuple[Reason, ...]()
    links = {way: link_of(way) for way in possible_ways(asked, shares, ranks, direct=False)}
    # NCCL takes seconds to initialize: it is tried only if free messages would save more than that.
    if asked == "auto" and between_gpus(shares) and "nccl" not in links:
        quickest = min(links.values(), key=lambda link: link.seconds(LONG_BYTES))
        saved = on_root(ranks, lambda: _saved_at_most(problem, offers, quickest, compute))
        if saved < OPENING_SECONDS:
            why = describe_unopened(saved, OPENING_SECONDS)
        elif "nccl" in possible_ways(asked, shares, ranks):
            links["nccl"] = link_of("nccl")

    # Without timings, `possible_ways` orders them so that the last is the likely fastest.
    if not timed:
        return list(links)[-1], list(links.values())[-1], why
    way = min(links, key=lambda way: links[way].seconds(LONG_BYTES))
    return way, links[way], (*describe_messages(way, links, LONG_BYTES), *why)


def _saved_at_most(
    problem: Problem, offers: Sequence[WorkerCandidate], link: Link, compute: ComputeSection
) -> float:
    """Time that the whole run would save if messages were free [s]."""
    as_it_is, without = (
        combine(problem, offers, each, compute).seconds_per_step for each in (link, FREE)
    )
    return problem.steps * (as_it_is - without)


# Right-hand sides that are integrated in time, on one device.

_TRANSFORMS = 9  # of a state in a substep of a split scheme, there and back
_PER_NEWTON = 2e5  # unknowns that a step of Newton's method solves for [1/s]


def plan_rates(problem: Problem, machine: Machine, compute: ComputeSection) -> Plan:
    """Plan a run of a problem by right-hand sides.

    Raises:
        UnsupportedError: faces do not allow it, or no device holds the grid.
    """
    rates = problem.rates
    assert rates is not None
    split = rates.scheme in SPLIT
    device = solving_devices(machine, compute, rates.scheme)[0 if split else -1]
    gpu, place, why_threads = open_alone(machine, compute, device)
    method, whole = place.integrating(rates.scheme), Slab.whole(problem.grid)
    why_not = method.refusal(problem)
    needed, usable = method.memory(problem, whole, {}), usable_bytes(machine, compute, device, gpu)
    if why_not is None and needed > usable:
        why_not = f"the whole grid takes {gib(needed)}, and {gib(usable)} can be had on {device}"
    if why_not is not None:
        msg = f"time.scheme is {rates.scheme}, but {why_not}"
        raise UnsupportedError(msg)

    n_values = problem.n_fields * problem.grid.n_points
    seconds = n_values / _PER_NEWTON
    if split:
        speed = PER_THREAD if gpu is None else SPECTRAL_ON_GPU
        numbers = n_values * _TRANSFORMS * problem.grid.ndim
        seconds = numbers / (speed.transformed * place.threads)
    often = (
        f"; substeps have errors of {rates.tolerance:g} at most, how many is known afterwards, and "
        "the times here are those of one"
    )
    return Plan(
        shares=(share_of_all(problem, device, place, method, 1 / seconds, needed, gpu),),
        time_block=1 if rates.adaptive else responsive_block(n_values, n_values / seconds),
        seconds_per_step=seconds,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(
            why_threads if gpu is None else describe_gpu(gpu, usable),
            f"{method.name}: {method.how}{often if rates.adaptive else ''}.",
        ),
        scheme=rates.scheme,
    )
