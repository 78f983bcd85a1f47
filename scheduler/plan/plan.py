"""The plan for one process: which of the candidates get which planes, how many steps per block, and
why.

The best set of workers need not include all of them; the plan then says with numbers why a worker
gets nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, TetrisError, UnsupportedError
from tetris_sim.model.method import ReducedPrecision, roundings
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import tolerance
from tetris_sim.scheduler.facts.shares import (
    FREE,
    Division,
    Domain,
    Draft,
    Link,
    Plan,
    Profile,
    Reason,
    Share,
    WorkEstimate,
    about,
)
from tetris_sim.scheduler.plan.cost import (
    asked_block,
    block_alone,
    block_of_substeps,
    block_of_teams,
    responsive_block,
    scheme_of,
    why_adaptive,
)
from tetris_sim.scheduler.plan.offer import (
    Measures,
    WorkerCandidate,
    about_rounding,
    begins_early,
    describe_copy,
    describe_division,
    describe_streaming,
    describe_teams,
    give,
    host_bytes,
    refuse_shortages,
)
from tetris_sim.scheduler.plan.partition import Lane, choose_streaming, cut_along_axis_0
from tetris_sim.scheduler.plan.search import divide, of_members
from tetris_sim.support.wording import gib, listed

_NOT_ALIKE = (
    "pieces are advanced by one stepper after the other, and that knows the materials, sources and "
    "faces of a single place and time"
)
_STREAMED_SECONDS = 2.0  # between two checks of clock and signals in a streamed run
# Extra time of the halo-dependent region on a GPU when it is computed separately, relative to its
# time as part of the whole: launches of few points.
_SPLITTING = 1.0
_BESIDE = "Halos travel while points that need none are computed."
_AHEAD = (
    "A GPU hears of each block while it computes the one before: CPU threads are done with theirs "
    "earlier."
)
_PIECE_SECONDS = 1e-3  # of Python for the copies and launches of a chunk: an upper bound


@dataclass(frozen=True)
class PlanRequest:
    """Settings that constrain the division.

    Attributes:
        block: requested steps per block; None if open.
        shares: requested relative number of planes of each worker; None if open.
        steps: steps of the run.
    """

    block: int | None
    shares: tuple[float, ...] | None
    steps: int


@dataclass(frozen=True)
class Option:
    """One way to use the workers: resident in their memories, or streamed.

    Attributes:
        offers: all workers, with those that are streamed as they are then.
        division: planes of each worker.
        block: steps between two exchanges.
        why_block: reason for the block, if the division does not explain it.
    """

    offers: tuple[WorkerCandidate, ...]
    division: Division
    block: int
    why_block: tuple[Reason, ...] = ()

    @property
    def members(self) -> tuple[WorkerCandidate, ...]:
        """The workers that take part."""
        pairs = zip(self.offers, self.division.planes, strict=True)
        return tuple(offer for offer, planes in pairs if planes)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """(first plane, one past the last) of each worker that takes part."""
        ends = list(itertools.accumulate(n for n in self.division.planes if n))
        return list(zip([0, *ends[:-1]], ends, strict=True))


def draft_plan(
    problem: Problem,
    compute: ComputeSection,
    offers: Sequence[WorkerCandidate],
    measures: Measures,
    why_these: Sequence[Reason] = (),
) -> Draft:
    """Divide the grid between the workers of this process.

    Args:
        problem: problem to advance.
        compute: settings of the run.
        offers: candidates in the order of their slabs.
        measures: functions that measure message and copy costs.
        why_these: reasons why other devices were not tried.

    Raises:
        UnsupportedError: all workers together have too little memory.
        ConfigError: the settings contradict each other.
    """
    domain, work = Domain.of(problem), WorkEstimate.of(problem)
    asked = PlanRequest(
        asked_block(problem, compute),
        None if compute.shares == "auto" else compute.shares,
        problem.steps,
    )
    if all(offer.kind == "cpu" for offer in offers):
        options = [_between_teams(domain, work, offers, asked)]
    else:
        options = _options(domain, work, _with_links(domain, offers, measures), asked, measures)
    best = min(options, key=lambda option: option.division.seconds_per_step)

    # Halos hold all planes that a block of steps reaches, so that a block needs only one exchange.
    halo = best.block * work.radius
    slabs = cut_along_axis_0(problem.grid, problem.boundary, best.ranges, halo=halo)
    shares = give(problem, best.members, slabs, best.block)
    refuse_shortages(domain.plane_bytes, best.members, shares)

    # Notes for the reader of the results: a continued run that changes its method, and the rounding
    # of mixed methods.
    notes = dict.fromkeys(note for offer in offers for note in offer.notes)
    allowed = tolerance(problem, problem.steps, 1.0)
    allowed *= max(roundings(share.method, problem.dtype) for share in shares)
    rounding = about_rounding(shares, problem.steps, allowed)
    plan = _plan_of(domain, work, best, shares, asked, (*notes, *rounding))
    plan = dataclasses.replace(
        plan,
        scheme=scheme_of(problem),
        overlapped=_begin_inside(problem, best, shares),
        ahead=_beside_host(shares),
    )
    if len(shares) == 1 and plan.scheme == "adaptive":
        block = block_of_substeps(problem, plan.seconds_per_step)
        plan = dataclasses.replace(plan, time_block=block)
    # Devices first, then what was chosen for each of them, then the division.
    reasons = (
        *(offer.reasons[0] for offer in offers),
        *(reason for offer in offers for reason in offer.reasons[1:]),
        *why_these,
        *_why_divided_so(work, options, best, shares, asked),
        *(about("block", (_BESIDE,)) if plan.overlapped else ()),
        *(about("block", (_AHEAD,)) if plan.ahead else ()),
        *why_adaptive(problem, plan.time_block),
        describe_copy(copy=plan.copy_for_checkpoints),
    )
    return Draft(plan, reasons)


def _begin_inside(problem: Problem, option: Option, shares: Sequence[Share]) -> bool:
    """Whether the halo exchange overlaps the computation of points that need no halo."""
    # Halos that pass host memory are taken in another way; see `_beside_host`.
    alike = len(shares) > 1 and not any(share.through_host for share in shares)
    return alike and any(
        offer.capacity.overlapped and begins_early(problem, share, 0, option.block)
        for offer, share in zip(option.members, shares, strict=True)
    )


def _beside_host(shares: Sequence[Share]) -> bool:
    """Whether a GPU that holds its slab has neighbours whose slabs lie in host memory."""
    return any(share.product and share.streamed is None and share.through_host for share in shares)


def _between_teams(
    domain: Domain, work: WorkEstimate, offers: Sequence[WorkerCandidate], asked: PlanRequest
) -> Option:
    """Slabs of teams of CPU threads, in proportion to speed or as requested.

    All teams take part. Their messages are copies within one memory and are not measured.
    """
    capacities, shares = [offer.capacity for offer in offers], None
    if len(offers) == 1:
        block, why = block_alone(domain.n_values, capacities[0], offers[0].steps, asked.block)
    else:
        block, why = block_of_teams(domain, capacities[0], len(offers), asked.block)
        speeds = tuple(capacity.points_per_second for capacity in capacities)
        shares = asked.shares or speeds
    division = divide(work, capacities, most=block, time_block=block, shares=shares)
    return Option(tuple(offers), division, block, (Reason("block", why),))


def _with_links(
    domain: Domain, offers: Sequence[WorkerCandidate], measures: Measures
) -> tuple[WorkerCandidate, ...]:
    """The candidates with their message costs."""
    if len(offers) == 1:
        return tuple(offers)
    # Messages between GPUs bypass host memory if all workers are GPUs.
    through_host = any(offer.kind != "gpu" for offer in offers)
    links = [measures.messages(offer.share, through_host) for offer in offers]
    of_gpus = [link for link, offer in zip(links, offers, strict=True) if offer.kind == "gpu"]

    linked = []
    for offer, own in zip(offers, links, strict=True):
        link, beside, splitting = own, _hides_messages(domain, offer), _SPLITTING
        if through_host:
            # A GPU with blocks enqueued early takes halos in asynchronously, as one part. Its
            # neighbours on the CPU wait for the copies of the GPU as well as their own.
            beside, splitting = offer.kind == "gpu", 0.0
            link = own if beside else _one_after_the_other((own, *of_gpus))
        capacity = dataclasses.replace(
            offer.capacity,
            link=link,
            overlapped=1.0 if beside else 0.0,
            copying=own if through_host and not beside else FREE,
            splitting=splitting if beside else 0.0,
        )
        linked.append(dataclasses.replace(offer, capacity=capacity))
    return tuple(linked)


def _one_after_the_other(links: Sequence[Link]) -> Link:
    """A message over the first link and then the slowest of the others."""
    first, *others = links
    return Link(
        first.latency + max((link.latency for link in others), default=0.0),
        first.seconds_per_byte + max((link.seconds_per_byte for link in others), default=0.0),
    )


def _hides_messages(domain: Domain, offer: WorkerCandidate) -> bool:
    """Whether a worker can start a block without halos; which part of a slab can do so is known
    when it is cut.
    """
    return offer.kind == "gpu" and domain.alike and len(domain.shape) > 1


def _options(
    domain: Domain,
    work: WorkEstimate,
    offers: tuple[WorkerCandidate, ...],
    asked: PlanRequest,
    measures: Measures,
) -> list[Option]:
    """The division with all slabs resident in their devices, and the one that streams slabs too
    large for theirs.

    Raises:
        UnsupportedError: neither is possible.
    """
    options: list[Option] = []
    failure: TetrisError | None = None
    # One of the two may fail, for lack of memory or of planes; the last failure is reported if both
    # do.
    for way in _ways(domain, work, offers, asked, measures):
        try:
            options.append(_divided(domain, work, way, asked))
        except (ConfigError, UnsupportedError) as error:
            failure = error
    if options:
        return options

    if isinstance(failure, ConfigError):
        raise failure
    rooms = ", ".join(
        f"{offer.name} ({gib(offer.usable)}, {offer.capacity.room} planes with their margins)"
        for offer in offers
    )
    msg = (
        f"the {work.n_planes} planes of the grid ({gib(2 * domain.state_bytes)} without margins) "
        f"do not fit into the memory of {rooms}, nor can they be streamed: "
        f"{failure if domain.alike else _NOT_ALIKE}"
    )
    raise UnsupportedError(msg)


def _ways(
    domain: Domain,
    work: WorkEstimate,
    offers: tuple[WorkerCandidate, ...],
    asked: PlanRequest,
    measures: Measures,
) -> Iterator[tuple[WorkerCandidate, ...]]:
    """The workers as they are; then with streaming for those whose memory is too small for the
    grid, if there are any and all of them can stream.
    """
    yield offers
    # Streaming needs homogeneous problems: one stepper advances every chunk.
    if not domain.alike:
        return
    small = {offer.name for offer in offers if offer.remote and offer.capacity.room < work.n_planes}
    streamed = [
        _streamed(domain, work, offer, asked, measures) if offer.name in small else offer
        for offer in offers
    ]
    possible = tuple(offer for offer in streamed if offer is not None)
    if small and len(possible) == len(offers):
        yield possible


def _streamed(
    domain: Domain,
    work: WorkEstimate,
    offer: WorkerCandidate,
    asked: PlanRequest,
    measures: Measures,
) -> WorkerCandidate | None:
    """A worker whose slab lies in host memory; None if that is impossible."""
    if isinstance(offer.share.method, ReducedPrecision):
        return None  # chunks are copied as they are in memory
    made_up, capacity = offer.share.simulated, offer.capacity
    if made_up is None:
        copies = measures.copies(offer.share)
    else:
        copies = (1 / made_up.bandwidth, 1 / made_up.bandwidth)

    # The lane's depth is 1 if the method makes any number of steps: the search over steps per pass
    # is free then.
    rate, depth = capacity.points_per_second, capacity.depth if capacity.fixed else 1
    lane = Lane(rate, depth, *copies, offer.piece_room, _PIECE_SECONDS)
    block = _streamed_block(domain, rate, asked)
    streaming = choose_streaming(work, lane, most_steps=block, block_steps=block)
    if streaming is None:
        return None
    # Room in host memory: one copy of each plane.
    return offer.streamed(lane, streaming, max(0, offer.host_memory) // (domain.plane_bytes + 1))


def _streamed_block(domain: Domain, points_per_second: float, asked: PlanRequest) -> int:
    """Steps of a block of streamed chunks; in short blocks the device would often wait for its
    first chunk.
    """
    wanted = responsive_block(domain.n_values, points_per_second, _STREAMED_SECONDS)
    return max(1, min(wanted, asked.block or wanted, asked.steps))


def _divided(
    domain: Domain, work: WorkEstimate, offers: tuple[WorkerCandidate, ...], asked: PlanRequest
) -> Option:
    """The best division between these workers.

    Raises:
        ConfigError: the requested shares do not fit.
        UnsupportedError: all memory together does not hold the planes.
    """
    if asked.shares is not None and len(asked.shares) != len(offers):
        names = listed([offer.name for offer in offers], "and")
        msg = f"compute.shares lists {len(asked.shares)}, but the devices are {names}"
        raise ConfigError(msg)

    capacities = [offer.capacity for offer in offers]
    total = sum(capacity.points_per_second for capacity in capacities)
    most = responsive_block(domain.n_values, total)
    if any(offer.share.streamed is not None for offer in offers):
        most = _streamed_block(domain, total, asked)
    division = divide(work, capacities, most=most, time_block=asked.block, shares=asked.shares)

    option = Option(offers, division, division.time_block)

    # One resident worker needs no exchange, so its block follows from responsiveness alone.
    first, *others = option.members
    if others or first.share.streamed is not None:
        return option
    block, why = block_alone(domain.n_values, first.capacity, first.steps, asked.block)
    return Option(offers, division, block, (Reason("block", why),))


def _plan_of(
    domain: Domain,
    work: WorkEstimate,
    option: Option,
    shares: tuple[Share, ...],
    asked: PlanRequest,
    notes: tuple[str, ...],
) -> Plan:
    """The plan with these shares, still without its reasons."""
    division, members = option.division, option.members
    streamed = [share.streamed for share in shares if share.streamed is not None]
    replicated, points = division.replicated, domain.n_values * division.time_block
    # Redundant work: halos computed by two workers, and trapezoids of streamed chunks.
    twice = [replicated / (replicated + points), *(streaming.redundant for streaming in streamed)]

    # Workers with their own threads hold copies of edges that others take, and may be rebalanced or
    # replaced during the run.
    queued, profile = shares[0].queued, None
    if queued:
        capacities = tuple(offer.capacity for offer in members)
        in_flight = max((streaming.in_flight for streaming in streamed), default=1)
        profile = Profile(work, capacities, of_members(division), in_flight)
    # Margins: a copy of the state for files, one more where workers hold copies, and more for
    # recovery.
    free = members[0].host_memory - host_bytes(domain.plane_bytes, shares)
    return Plan(
        shares=shares,
        time_block=option.block,
        seconds_per_step=division.seconds_per_step,
        redundant=max(twice),
        copy_for_checkpoints=free > (2 if queued else 1) * domain.state_bytes,
        reasons=(),
        notes=notes,
        profile=profile,
        copy_for_recovery=queued and free > 4 * domain.state_bytes,
        shares_asked=asked.shares is not None,
    )


def _why_divided_so(
    work: WorkEstimate,
    options: Sequence[Option],
    best: Option,
    shares: Sequence[Share],
    asked: PlanRequest,
) -> list[Reason]:
    """Reasons for the shares and the number of steps per block."""
    were_asked = asked.shares is not None
    if not shares[0].queued:
        return [*best.why_block, *describe_teams(shares, asked=were_asked)]
    capacities = [offer.capacity for offer in best.offers]
    divisions = [option.division for option in options]
    return [
        *describe_division(work, capacities, best.division, asked=were_asked),
        *describe_streaming(shares, divisions, best.division),
        *best.why_block,
    ]
