"""Plan: who of those that offer themselves gets what, how many steps per block, and why.

What comes out may be that the best set of workers is not all of them; then the plan says with
numbers why somebody gets nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tetris_sim.errors import ConfigError, TetrisError, UnsupportedError
from tetris_sim.problem import Problem
from tetris_sim.reference import tolerance
from tetris_sim.scheduler.facts.division import Division, Profile
from tetris_sim.scheduler.facts.domain import Domain, Work
from tetris_sim.scheduler.facts.link import Link
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.devices import Device
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.block import block_alone, block_of_teams, responsive_block
from tetris_sim.scheduler.plan.give import give, host_bytes, refuse_shortages
from tetris_sim.scheduler.plan.offer import (
    Measures,
    Offer,
    find_offers,
    only_teams,
    planes_in,
)
from tetris_sim.scheduler.plan.partition import cut_along_axis_0
from tetris_sim.scheduler.plan.search import divide, of_members
from tetris_sim.scheduler.plan.streaming import Lane, choose_streaming
from tetris_sim.scheduler.plan.words import (
    Reason,
    about_rounding,
    describe_copy,
    describe_division,
    describe_streaming,
    describe_teams,
    sentences_of,
)
from tetris_sim.scheduler.tuning.candidates import Asked
from tetris_sim.schema import ComputeSection
from tetris_sim.wording import gib, listed

# budgets of tuning: only for a run that takes longer is it worth to try the CPU beside GPUs
_PATIENCE = 10.0
_STREAMED_SECONDS = 2.0  # a run that is streamed looks at the clock and at signals this often
_GUESSED_LINK = Link(3e-5, 1 / 5e9)  # where nothing may be measured
_GUESSED_COPY = 1 / 25e9  # seconds per byte of PCIe 4 x16, where nothing may be measured
_GPU_ARRAYS = 4  # of a conveyor
_PIECE_SECONDS = 1e-3  # of Python for the copies and launches of a piece: an upper bound


@dataclass(frozen=True)
class Draft:
    """A plan and why it is so, as long as somebody may decide parts of it anew.

    Attributes:
        plan: without sentences.
        reasons: what would be said of it.
    """

    plan: Plan
    reasons: tuple[Reason, ...]

    def finished(self, *before: str) -> Plan:
        """The plan with its sentences."""
        return dataclasses.replace(self.plan, reasons=(*before, *sentences_of(self.reasons)))


@dataclass(frozen=True)
class Option:
    """One way to use the workers.

    Attributes:
        offers: of all of them, with those that are streamed as they are then.
        division: between them.
    """

    offers: tuple[Offer, ...]
    division: Division

    @property
    def members(self) -> tuple[Offer, ...]:
        """Those that take part."""
        pairs = zip(self.offers, self.division.planes, strict=True)
        return tuple(offer for offer, planes in pairs if planes)


def draft_plan(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    devices: Sequence[Device],
    measures: Measures,
    *,
    begun_with: Asked | None,
    use_cache: bool,
) -> Draft:
    """Divide the grid between devices of this process.

    Args:
        problem: what to advance.
        machine: what there is.
        compute: what was asked for.
        devices: in the order in which their slabs lie.
        measures: what a message costs, and so on.
        begun_with: as for `make_plan`.
        use_cache: as for `make_plan`.

    Raises:
        UnsupportedError: a device cannot be used, or all together have too little memory.
        ConfigError: what was asked for does not fit together.
    """
    every = find_offers(
        problem, machine, compute, devices, begun_with=begun_with, use_cache=use_cache
    )
    offers, why_alone = _worth_trying(problem, compute, devices, every)

    domain, work = Domain.of(problem), Work.of(problem)
    block, why_block = 0, list[Reason]()
    if only_teams(devices):
        block, why_block, best = _between_teams(domain, work, offers, compute)
        options = [best]
    else:
        offers = _with_links(problem, compute, offers, measures)
        options = _options(problem, work, compute, offers, measures)
        best = min(options, key=lambda option: option.division.seconds_per_step)
        block = best.division.time_block
        if len(best.members) == 1 and best.members[0].share.streamed is None:
            block, why_block = _alone(domain, best.members[0], compute)

    ends = list(itertools.accumulate(n for n in best.division.planes if n))
    slabs = cut_along_axis_0(
        problem.grid,
        problem.boundary,
        list(zip([0, *ends[:-1]], ends, strict=True)),
        halo=block * work.radius,
    )
    shares = give(problem, best.members, slabs, block)
    refuse_shortages(problem, best.members, shares)

    plan = _fill_in(problem, work, compute, best, shares, block)
    asked = compute.shares != "auto"
    if only_teams(devices):
        said = [*why_block, *describe_teams(shares, asked=asked)]
    else:
        divisions = [option.division for option in options]
        capacities = [offer.capacity for offer in best.offers]
        said = [
            *describe_division(work, capacities, best.division, asked=asked),
            *describe_streaming(shares, divisions, best.division),
            *why_block,
        ]
    reasons = (
        *(offer.reasons[0] for offer in offers),
        *(reason for offer in offers for reason in offer.reasons[1:]),
        *why_alone,
        *said,
        describe_copy(copy=plan.copy_for_checkpoints),
    )
    notes = tuple(dict.fromkeys(note for offer in offers for note in offer.notes))
    allowed = tolerance(problem, problem.steps, 1.0)
    notes = (*notes, *about_rounding(shares, problem.steps, allowed))
    return Draft(dataclasses.replace(plan, notes=notes), reasons)


def _worth_trying(
    problem: Problem,
    compute: ComputeSection,
    devices: Sequence[Device],
    every: Iterator[Offer],
) -> tuple[list[Offer], tuple[Reason, ...]]:
    """(offers of those that are worth a share, why others were not looked at): short runs do not
    wait for the CPU's tuning.
    """
    n_gpus = sum(device.kind == "gpu" for device in devices)
    offers: list[Offer] = []
    for offer in every:
        offers.append(offer)
        if compute.devices != "auto" or only_teams(devices) or len(offers) < n_gpus:
            continue

        rate = sum(offer.capacity.points_per_second for offer in offers)
        seconds = problem.steps * problem.grid.n_points * problem.n_fields / rate
        room = sum(offer.capacity.room for offer in offers)
        if room >= problem.grid.shape[0] and seconds < _PATIENCE * compute.tuning_seconds:
            sentence = f"The CPU is not tried beside it: the run takes about {seconds:.2g} s."
            return offers, (Reason("device", sentence),)
    return offers, ()


def _with_links(
    problem: Problem, compute: ComputeSection, offers: Sequence[Offer], measures: Measures
) -> list[Offer]:
    """The offers with what their messages cost."""
    if len(offers) == 1:
        return list(offers)
    measurable = compute.tuning_seconds > 0 and problem.stencil.radii[0] > 0
    # Between GPUs messages need not pass the memory of the host.
    through_host = any(offer.kind != "gpu" for offer in offers)

    linked = []
    for offer in offers:
        link = _GUESSED_LINK
        if measurable:
            link = measures.messages(problem, offer.share, through_host)
        capacity = dataclasses.replace(offer.capacity, link=link)
        linked.append(dataclasses.replace(offer, capacity=capacity))
    return linked


def _between_teams(
    domain: Domain, work: Work, offers: Sequence[Offer], compute: ComputeSection
) -> tuple[int, list[Reason], Option]:
    """(steps per block, why, the slabs of teams of threads): as long as they are fast, or as asked.

    Nobody is left out, and nobody measures messages that are copies in one memory.
    """
    capacities = [offer.capacity for offer in offers]
    if len(offers) == 1:
        block, why = _alone(domain, offers[0], compute)
        shares = None
    else:
        asked = _asked_block(compute)
        block, sentence = block_of_teams(domain, capacities[0], len(offers), asked)
        why = [Reason("block", sentence)]
        speeds = tuple(capacity.points_per_second for capacity in capacities)
        shares = speeds if compute.shares == "auto" else compute.shares

    division = divide(work, capacities, most=block, time_block=block, shares=shares)
    return block, why, Option(tuple(offers), division)


def _alone(domain: Domain, offer: Offer, compute: ComputeSection) -> tuple[int, list[Reason]]:
    block, sentence = block_alone(
        domain.n_values, offer.capacity, offer.steps, _asked_block(compute)
    )
    return block, [Reason("block", sentence)]


def _asked_block(compute: ComputeSection) -> int | None:
    return None if compute.time_block == "auto" else compute.time_block


def _options(
    problem: Problem,
    work: Work,
    compute: ComputeSection,
    offers: Sequence[Offer],
    measures: Measures,
) -> list[Option]:
    """The division with every slab in its device's memory, and the one that streams what does not
    fit.

    Raises:
        UnsupportedError: neither is possible.
    """
    ways = [tuple(offers)]
    if any(_is_small(offer, work) for offer in offers):
        streamed = _streamed(problem, work, compute, offers, measures)
        ways += [] if streamed is None else [streamed]

    options: list[Option] = []
    failure: TetrisError | None = None
    for way in ways:
        try:
            options.append(Option(way, _divide(problem, work, compute, way)))
        except (ConfigError, UnsupportedError) as error:
            failure = error
    if isinstance(failure, ConfigError) and not options:
        raise failure
    if not options:
        needs = ", ".join(f"{gib(offer.usable)} of {offer.name}" for offer in offers)
        msg = (
            f"the grid of {gib(2 * problem.state_bytes)} does not fit into {needs}, nor can it be "
            f"streamed: {failure}"
        )
        raise UnsupportedError(msg)
    return options


def _is_small(offer: Offer, work: Work) -> bool:
    """Whether the grid does not fit into the device's own memory."""
    return offer.remote and offer.capacity.room < work.n_planes


def _streamed(
    problem: Problem,
    work: Work,
    compute: ComputeSection,
    offers: Sequence[Offer],
    measures: Measures,
) -> tuple[Offer, ...] | None:
    """The offers if those that are too small for the grid are streamed; None if one of them cannot
    be.
    """
    way = []
    for offer in offers:
        if not _is_small(offer, work):
            way.append(offer)
            continue

        copies = (_GUESSED_COPY, _GUESSED_COPY)
        if compute.tuning_seconds > 0 or offer.kind == "simulated":
            copies = measures.copies(offer.share)
        rate = offer.capacity.points_per_second
        depth = offer.capacity.depth if offer.capacity.fixed else 1
        # Its two arrays become four.
        room = planes_in(problem, offer.share, 2 * offer.usable // _GPU_ARRAYS)
        lane = Lane(rate, depth, *copies, room, _PIECE_SECONDS)
        block = _streamed_block(problem, compute, rate)
        streaming = choose_streaming(work, lane, most_steps=block, block_steps=block)
        if streaming is None:
            return None
        host_room = max(0, offer.host_memory) // (problem.state_bytes // work.n_planes + 1)
        way.append(offer.streamed(lane, streaming, host_room))
    return tuple(way)


def _divide(
    problem: Problem, work: Work, compute: ComputeSection, offers: Sequence[Offer]
) -> Division:
    if compute.shares != "auto" and len(compute.shares) != len(offers):
        names = listed([offer.name for offer in offers], "and")
        msg = f"compute.shares lists {len(compute.shares)}, but the devices are {names}"
        raise ConfigError(msg)
    capacities = [offer.capacity for offer in offers]
    total = sum(capacity.points_per_second for capacity in capacities)
    streams = any(offer.share.streamed is not None for offer in offers)
    most = responsive_block(work.n_planes * work.plane_points, total)
    return divide(
        work,
        capacities,
        most=_streamed_block(problem, compute, total) if streams else most,
        time_block=_asked_block(compute),
        shares=None if compute.shares == "auto" else compute.shares,
    )


def _streamed_block(problem: Problem, compute: ComputeSection, points_per_second: float) -> int:
    """Steps of a block through which pieces are streamed: with short ones, the device would often
    wait for the first.
    """
    n_values = problem.grid.n_points * problem.n_fields
    wanted = responsive_block(n_values, points_per_second, _STREAMED_SECONDS)
    return max(1, min(wanted, _asked_block(compute) or wanted, problem.steps))


def _fill_in(
    problem: Problem,
    work: Work,
    compute: ComputeSection,
    option: Option,
    shares: tuple[Share, ...],
    block: int,
) -> Plan:
    """The plan with these shares, but for its sentences."""
    division, members = option.division, option.members
    points = work.n_planes * work.plane_points * division.time_block
    streamed = [share.streamed for share in shares if share.streamed is not None]
    redundant = division.replicated / (division.replicated + points)
    in_flight = max((streaming.in_flight for streaming in streamed), default=1)

    # Workers with threads of their own hold a copy of what others take, and may be replaced.
    queued = shares[0].queued
    free = members[0].host_memory - host_bytes(problem, shares)
    capacities = tuple(offer.capacity for offer in members)
    return Plan(
        shares=shares,
        time_block=block,
        seconds_per_step=division.seconds_per_step,
        redundant=max(redundant, *(streaming.redundant for streaming in streamed), 0.0),
        copy_for_checkpoints=free > (2 if queued else 1) * problem.state_bytes,
        reasons=(),
        profile=Profile(work, capacities, of_members(division), in_flight) if queued else None,
        copy_for_recovery=queued and free > 4 * problem.state_bytes,
        shares_asked=compute.shares != "auto",
    )
