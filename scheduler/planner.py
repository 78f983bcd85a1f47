"""The planner: which worker computes which part of the grid, in one process or on many ranks.

Candidates are collected (`plan/find.py`: a device with its tuned method), the grid is divided
between them (`plan/search.py`, by the times that `plan/cost.py` predicts), and the plan explains
the result (`plan/plan.py`; for many ranks `plan/ranks.py`). Functions that measure on devices are
passed in from here, where messages and copies are timed, so that `plan/` does not depend on
`workers/` (docs/decisions/0017).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import statistics
import time
from collections.abc import Sequence

import numpy as np

from tetris_sim.config.sections.schema import SPLIT, ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.comm.communicator import Communicator, everywhere, measure_link, on_root
from tetris_sim.scheduler.facts.shares import (
    FREE,
    Domain,
    Draft,
    GpuMessages,
    Link,
    Plan,
    Reason,
    Share,
    WorkEstimate,
    about,
    shortened,
)
from tetris_sim.scheduler.machine.machine import Device, Machine, choose_devices
from tetris_sim.scheduler.machine.placement import ComputeResource, own_part
from tetris_sim.scheduler.plan.cost import responsive_block
from tetris_sim.scheduler.plan.find import find_offers
from tetris_sim.scheduler.plan.offer import (
    GUESSES,
    Measures,
    WorkerCandidate,
    describe_gpu,
    describe_messages,
    describe_unopened,
    refuse_shortages,
)
from tetris_sim.scheduler.plan.partition import cut_along_axis_0, halo_points
from tetris_sim.scheduler.plan.plan import draft_plan
from tetris_sim.scheduler.plan.ranks import combine, even_part, offers_of
from tetris_sim.scheduler.plan.solving import (
    PER_THREAD,
    SPECTRAL_ON_GPU,
    open_alone,
    share_of_all,
    solving_devices,
)
from tetris_sim.scheduler.tuning.candidates import TuningRequest, usable_bytes
from tetris_sim.scheduler.tuning.measure import make_trial_problem
from tetris_sim.scheduler.workers.exchange import OPENING_SECONDS, between_gpus, possible_ways
from tetris_sim.scheduler.workers.rank_exchange import make_exchange
from tetris_sim.scheduler.workers.worker import open_worker
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


_MESSAGE_BYTES = 4 << 20  # of the longer one of two messages that are timed
_MESSAGE_REACHES = 64  # most steps of which such a message is the halo
_REPEATS = 5
# Size of a long message between ranks [bytes]: a tenth of a millisecond on the fastest link.
LONG_BYTES = 32 << 20
_TIMES = 7


def measure_messages(problem: Problem, share: Share, through_host: bool = True) -> Link:
    """Time the part of a worker in an exchange, short and long: taking an edge and setting a halo.

    Args:
        problem: problem of the run, of which a piece is opened.
        share: share that the worker would have alone.
        through_host: whether messages pass host memory, which those between GPUs need not.
    """
    radius, plane = problem.stencil.radii[0], WorkEstimate.of(problem).plane_bytes
    # Long messages are halos of many steps, limited in bytes and to a part of the grid.
    wide = min(_MESSAGE_BYTES // (plane * radius), problem.grid.shape[0] // (4 * radius))
    reaches = max(2, min(wide, _MESSAGE_REACHES))

    (short, few), (long, many) = (
        _time_messages(problem, share, n * radius, through_host) for n in (1, reaches)
    )
    if many <= few:
        return Link(short, 0.0)
    # A line through the two timings: slope and intercept.
    per_byte = max(0.0, (long - short) / (many - few))
    return Link(max(0.0, short - few * per_byte), per_byte)


def measure_copies(share: Share) -> tuple[float, float]:
    """Inverse bandwidth to the memory of a share's device and back, both directions at once
    [s/byte].
    """
    from tetris_sim.gpu_kernels.steppers import streamed

    with ComputeResource(share.threads, share.method.device, share.number).opened() as device:
        return streamed.measure_copies(device)


def measure_exchange(
    problem: Problem,
    shares: Sequence[Share],
    ranks: Communicator,
    *,
    gpu_messages: GpuMessages = "host",
) -> Link:
    """Time exchanges with halos for one step and for many; the slowest rank counts.

    Planes between GPUs of one computer take another path than messages, and the work of GPU, Python
    and operating system around a message often takes longer than the message, so whole exchanges
    are timed.

    Args:
        problem: problem of the run, of which a few planes are cut along axis 0, one slab per rank.
        shares: one worker per rank, in rank order; their slabs are ignored.
        ranks: all ranks; each of them calls this.
        gpu_messages: as for `make_exchange`.
    """
    radius = max(problem.stencil.radii[0], 1)
    reaches = max(
        2, min(LONG_BYTES // (WorkEstimate.of(problem).plane_bytes * radius), _MESSAGE_REACHES)
    )
    (short, messages, few), (long, _, many) = (
        _time_exchange(problem, shares, ranks, n * radius, gpu_messages) for n in (1, reaches)
    )
    per_byte = max(0.0, (long - short) / (many - few))
    return Link(max(0.0, short - few * per_byte) / messages, per_byte)


def _time_messages(
    problem: Problem, share: Share, width: int, through_host: bool
) -> tuple[float, int]:
    """(time to send or receive a message [s], its size [bytes])."""
    planes = 4 * width + 2
    points = WorkEstimate.of(problem).plane_bytes * planes
    piece = make_trial_problem(shortened(problem, planes), max(points, 1))
    halo = ((width, width), *((0, 0),) * (piece.grid.ndim - 1))
    slab = Slab(
        (width, *(0,) * (piece.grid.ndim - 1)),
        (piece.grid.shape[0] - width, *piece.grid.shape[1:]),
        halo,
    )
    share = dataclasses.replace(share, slab=slab, memory=0, queued=False, through_host=through_host)

    with contextlib.closing(open_worker(piece, share)) as worker:
        worker.stepper.load(piece.initial)
        # The first round is a warm-up. An edge and a halo are two messages, hence the half.
        seconds = []
        for _ in range(_REPEATS + 1):
            begin = time.perf_counter()
            edge = worker.stepper.edge(0, "low")
            edge = np.asarray(edge) if through_host else edge
            worker.stepper.set_halo(0, "low", edge)
            worker.stepper.wait()
            seconds.append((time.perf_counter() - begin) / 2)
    return statistics.median(seconds[1:]), edge.nbytes


def _time_exchange(
    problem: Problem,
    shares: Sequence[Share],
    ranks: Communicator,
    width: int,
    gpu_messages: GpuMessages,
) -> tuple[float, int, int]:
    """(time of an exchange [s], number of messages that a rank receives in it, their size
    [bytes]).
    """
    n = ranks.size
    whole = shortened(problem, n * width)
    piece = make_trial_problem(whole, whole.state_bytes)
    slabs = cut_along_axis_0(
        piece.grid, piece.boundary, [(width * k, width * (k + 1)) for k in range(n)], halo=width
    )
    placed = [
        dataclasses.replace(share, slab=slab, rank=rank, memory=0)
        for rank, (share, slab) in enumerate(zip(shares, slabs, strict=True))
    ]
    messages, points = max(halo_points(slab) for slab in slabs)

    worker = everywhere(ranks, lambda: open_worker(piece, placed[ranks.rank]))
    with contextlib.closing(worker):
        worker.stepper.load(piece.initial)
        exchange = make_exchange(piece, placed, ranks, gpu_messages=gpu_messages)
        seconds = []
        for _ in range(_TIMES + 1):
            begin = time.perf_counter()
            exchange.swap([worker])
            worker.stepper.wait()
            seconds.append(ranks.largest([time.perf_counter() - begin])[0])

    # The first exchange negotiates the transport, so it does not count.
    return (
        statistics.median(seconds[1:]),
        messages,
        points * problem.n_fields * problem.dtype.itemsize,
    )
