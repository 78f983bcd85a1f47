"""Plan: who of those that offer themselves gets what, how many steps per block, and why.

What comes out may be that the best set of workers is not all of them; then the plan says with
numbers why somebody gets nothing.
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
from tetris_sim.scheduler.facts.domain import FREE, Division, Domain, Link, Profile, WorkEstimate
from tetris_sim.scheduler.facts.shares import Draft, Plan, Reason, Share, about
from tetris_sim.scheduler.plan.block import (
    asked_block,
    block_alone,
    block_of_teams,
    responsive_block,
    scheme_of,
    why_adaptive,
)
from tetris_sim.scheduler.plan.offer import (
    Measures,
    WorkerCandidate,
    begins_early,
    give,
    host_bytes,
    refuse_shortages,
)
from tetris_sim.scheduler.plan.partition import cut_along_axis_0
from tetris_sim.scheduler.plan.search import divide, of_members
from tetris_sim.scheduler.plan.streaming import Lane, choose_streaming
from tetris_sim.scheduler.plan.words import (
    about_rounding,
    describe_copy,
    describe_division,
    describe_streaming,
    describe_teams,
)
from tetris_sim.support.wording import gib, listed

_NOT_ALIKE = (
    "pieces are advanced by one stepper after the other, and that knows the materials, sources and "
    "faces of a single place and time"
)
_STREAMED_SECONDS = 2.0  # a run that is streamed looks at the clock and at signals this often
# Rims by themselves take a GPU as long again: launches of few points.
_SPLITTING = 1.0
_BESIDE = "Halos travel while points that need none are computed."
_AHEAD = (
    "A GPU hears of each block while it computes the one before: CPU threads are done with theirs "
    "earlier."
)
_PIECE_SECONDS = 1e-3  # of Python for the copies and launches of a piece: an upper bound


@dataclass(frozen=True)
class PlanRequest:
    """What was asked of the division.

    Attributes:
        block: steps per block; None if it is open.
        shares: relative planes of each worker; None if they are open.
        steps: of the run.
    """

    block: int | None
    shares: tuple[float, ...] | None
    steps: int


@dataclass(frozen=True)
class Option:
    """One way to use the workers.

    Attributes:
        offers: of all of them, with those that are streamed as they are then.
        division: between them.
        block: steps between two exchanges.
        why_block: why, if it is not the division's.
    """

    offers: tuple[WorkerCandidate, ...]
    division: Division
    block: int
    why_block: tuple[Reason, ...] = ()

    @property
    def members(self) -> tuple[WorkerCandidate, ...]:
        """Those that take part."""
        pairs = zip(self.offers, self.division.planes, strict=True)
        return tuple(offer for offer, planes in pairs if planes)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """(first plane, one past the last) of each of these."""
        ends = list(itertools.accumulate(n for n in self.division.planes if n))
        return list(zip([0, *ends[:-1]], ends, strict=True))


def draft_plan(
    problem: Problem,
    compute: ComputeSection,
    offers: Sequence[WorkerCandidate],
    measures: Measures,
    why_these: Sequence[Reason] = (),
) -> Draft:
    """Divide the grid between workers of this process.

    Args:
        problem: what to advance.
        compute: what was asked for.
        offers: of the workers, in the order in which their slabs lie.
        measures: what a message costs, and so on.
        why_these: why others were not looked at.

    Raises:
        UnsupportedError: all workers together have too little memory.
        ConfigError: what was asked for does not fit together.
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

    halo = best.block * work.radius
    slabs = cut_along_axis_0(problem.grid, problem.boundary, best.ranges, halo=halo)
    shares = give(problem, best.members, slabs, best.block)
    refuse_shortages(domain.plane_bytes, best.members, shares)

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
    reasons = (
        *(offer.reasons[0] for offer in offers),
        *(reason for offer in offers for reason in offer.reasons[1:]),
        *why_these,
        *_why_divided_so(work, options, best, shares, asked),
        *(about("block", (_BESIDE,)) if plan.overlapped else ()),
        *(about("block", (_AHEAD,)) if plan.ahead else ()),
        *why_adaptive(problem),
        describe_copy(copy=plan.copy_for_checkpoints),
    )
    return Draft(plan, reasons)


def _begin_inside(problem: Problem, option: Option, shares: Sequence[Share]) -> bool:
    """Whether halos travel while somebody computes what needs none."""
    alike = len(shares) > 1 and not any(share.through_host for share in shares)
    return alike and any(
        offer.capacity.overlapped and begins_early(problem, share, 0, option.block)
        for offer, share in zip(option.members, shares, strict=True)
    )


def _beside_host(shares: Sequence[Share]) -> bool:
    """Whether a GPU that holds its slab has neighbours in the memory of the host."""
    return any(share.product and share.streamed is None and share.through_host for share in shares)


def _between_teams(
    domain: Domain, work: WorkEstimate, offers: Sequence[WorkerCandidate], asked: PlanRequest
) -> Option:
    """Slabs of teams of threads, as long as they are fast, or as asked.

    Nobody is left out, and nobody measures messages that are copies in one memory.
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
    """The offers with what their messages cost."""
    if len(offers) == 1:
        return tuple(offers)
    # Between GPUs messages need not pass the memory of the host.
    through_host = any(offer.kind != "gpu" for offer in offers)
    links = [measures.messages(offer.share, through_host) for offer in offers]
    of_gpus = [link for link, offer in zip(links, offers, strict=True) if offer.kind == "gpu"]

    linked = []
    for offer, own in zip(offers, links, strict=True):
        link, beside, splitting = own, _hides_messages(domain, offer), _SPLITTING
        if through_host:
            # A GPU that is told ahead takes halos in at once, in one part; whoever is beside it
            # waits for what it copies.
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
    """A message that takes the first way and the slowest of the others."""
    first, *others = links
    return Link(
        first.latency + max((link.latency for link in others), default=0.0),
        first.seconds_per_byte + max((link.seconds_per_byte for link in others), default=0.0),
    )


def _hides_messages(domain: Domain, offer: WorkerCandidate) -> bool:
    """Whether a worker begins a block without halos; what of a slab can do so is seen when it is
    cut.
    """
    return offer.kind == "gpu" and domain.alike and len(domain.shape) > 1


def _options(
    domain: Domain,
    work: WorkEstimate,
    offers: tuple[WorkerCandidate, ...],
    asked: PlanRequest,
    measures: Measures,
) -> list[Option]:
    """The division with every slab in its device's memory, and the one that streams what does not
    fit.

    Raises:
        UnsupportedError: neither is possible.
    """
    options: list[Option] = []
    failure: TetrisError | None = None
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
    """The workers as they are, and with those streamed whose own memory is too small for the grid,
    if there are such and all of them can be.
    """
    yield offers
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
    """A worker whose slab lies in host memory; None if that cannot be."""
    if isinstance(offer.share.method, ReducedPrecision):
        return None  # pieces move as they are in memory
    made_up, capacity = offer.share.simulated, offer.capacity
    if made_up is None:
        copies = measures.copies(offer.share)
    else:
        copies = (1 / made_up.bandwidth, 1 / made_up.bandwidth)

    rate, depth = capacity.points_per_second, capacity.depth if capacity.fixed else 1
    lane = Lane(rate, depth, *copies, offer.piece_room, _PIECE_SECONDS)
    block = _streamed_block(domain, rate, asked)
    streaming = choose_streaming(work, lane, most_steps=block, block_steps=block)
    if streaming is None:
        return None
    return offer.streamed(lane, streaming, max(0, offer.host_memory) // (domain.plane_bytes + 1))


def _streamed_block(domain: Domain, points_per_second: float, asked: PlanRequest) -> int:
    """Steps of a block through which pieces are streamed: with short ones, the device would often
    wait for the first.
    """
    wanted = responsive_block(domain.n_values, points_per_second, _STREAMED_SECONDS)
    return max(1, min(wanted, asked.block or wanted, asked.steps))


def _divided(
    domain: Domain, work: WorkEstimate, offers: tuple[WorkerCandidate, ...], asked: PlanRequest
) -> Option:
    """The best division between these workers.

    Raises:
        ConfigError: the shares that were asked for do not fit.
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
    """The plan with these shares, but for its reasons."""
    division, members = option.division, option.members
    streamed = [share.streamed for share in shares if share.streamed is not None]
    replicated, points = division.replicated, domain.n_values * division.time_block
    twice = [replicated / (replicated + points), *(streaming.redundant for streaming in streamed)]

    # Workers with threads of their own hold a copy of what others take, and may be replaced.
    queued, profile = shares[0].queued, None
    if queued:
        capacities = tuple(offer.capacity for offer in members)
        in_flight = max((streaming.in_flight for streaming in streamed), default=1)
        profile = Profile(work, capacities, of_members(division), in_flight)
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
    """Who gets what, and how many steps per block, in words."""
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
