"""One plan for many ranks: each rank reports its workers and their speeds, and rank 0 divides the
grid.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import (
    Capacity,
    Domain,
    Draft,
    GpuMessages,
    Link,
    Plan,
    Reason,
    Share,
    Topic,
    about,
    sentences_of,
)
from tetris_sim.scheduler.machine.machine import Kind, Machine
from tetris_sim.scheduler.plan.cost import WorkerTable, asked_block, scheme_of, why_adaptive
from tetris_sim.scheduler.plan.offer import (
    WorkerCandidate,
    begins_early,
    describe_choice,
    describe_exchange,
    describe_grid,
    describe_parts,
    give,
    host_bytes,
    shortages,
)
from tetris_sim.scheduler.plan.partition import (
    cut,
    is_slabs,
    likely_parts,
    possible_parts,
    redundant_points,
)
from tetris_sim.scheduler.plan.search import ProcessGrid, fastest_grid, with_best_block
from tetris_sim.scheduler.tuning.candidates import RESERVE
from tetris_sim.scheduler.tuning.measure import steps_per_block

K = TypeVar("K", bound=Hashable)
Thing = TypeVar("Thing")

_ALIKE = 1.3  # equal devices whose measured speeds differ by less are taken to be equally fast
_LISTED = 16  # ranks that are named one by one
# Predicted time with overlap over that without, below which overlap is chosen; predictions are not
# more accurate than that.
_CLEARLY = 0.95
# Extra time of the halo-dependent region when it is computed separately, relative to its time as
# part of the whole. Blocks of a five-point star (2048 x 2048, 16 steps) in two parts took 1.037 and
# 1.044 times as long as in one, those of a seven-point star (256^3, 6 steps) 1.016 times; this
# value predicts 1.016 and 1.047 (two ranks on the two cores of a busy AMD EPYC, float64,
# 2026-11-23).
_SPLITTING = 1.0
_START_SECONDS = 2e-5  # of starting and ending a block of steps on a team of threads
# Topics of a rank's own plan that all ranks together decide anew.
_DECIDED_ANEW: tuple[Topic, ...] = ("block", "shares", "checkpoints")
_CHECKPOINTS = (
    "Checkpoints: rank 0 asks the others for the state, slab by slab, while they wait, or each "
    "writes its own from a copy (checkpoint.per_rank)."
)


def even_part(problem: Problem, ranks: int) -> Problem:
    """The problem on as many points as each rank gets if all ranks are equal, for which each rank
    plans.
    """
    domain = Domain.of(problem)
    _refuse_too_many(domain, ranks)
    parts = likely_parts(domain, ranks)
    shape = tuple(
        max(-(-n // pieces), radius, 1)
        for n, pieces, radius in zip(domain.shape, parts, domain.radii, strict=True)
    )
    return problem.on_shape(shape)


def offers_of(draft: Draft, machine: Machine, rank: int) -> list[WorkerCandidate]:
    """The workers of a rank as candidates; together they have the predicted rate of the rank's own
    plan, divided by their shares.

    Args:
        draft: the rank's plan for an even part of the grid.
        machine: the rank's part of the computer.
        rank: number of the rank.
    """
    shares = draft.plan.shares
    rate = sum(share.points_per_second for share in shares)
    points = sum(share.slab.n_points for share in shares)
    memory = {gpu.number: gpu.memory - RESERVE for gpu in machine.gpus}

    offers = []
    for share in shares:
        # The usable memory depends on the device: the emulated limit, the free memory of the GPU,
        # or host memory.
        kind: Kind = "simulated" if share.simulated is not None else share.method.device
        usable = machine.memory - RESERVE
        if share.simulated is not None:
            usable = int(share.simulated.memory)
        elif share.product:
            usable = memory.get(share.number, usable)
        capacity = Capacity(
            name=share.worker,
            points_per_second=rate * share.slab.n_points / points,
            start=_START_SECONDS,
            depth=steps_per_block(share.parameters),
            fixed=share.method.device == "gpu",
            one_way=True,
        )
        offers.append(
            WorkerCandidate(
                share=dataclasses.replace(share, rank=rank),
                capacity=capacity,
                usable=usable,
                kind=kind,
                host=machine.host,
                host_memory=machine.memory - RESERVE,
                memory_reason=machine.memory_reason,
                product=share.product or machine.cpu,
                notes=draft.plan.notes,
            )
        )
    return offers


def combine(
    problem: Problem,
    offers: Sequence[WorkerCandidate],
    link: Link,
    compute: ComputeSection,
    reasons: Iterable[Reason] = (),
    *,
    gpu_messages: GpuMessages = "host",
) -> Plan:
    """Cut the grid between the workers of all ranks, in proportion to their speeds.

    Args:
        problem: problem to advance.
        offers: candidates of all ranks, in rank order.
        link: cost of a message.
        compute: settings of the run.
        reasons: reasons of the first rank's own plan.
        gpu_messages: transport between GPUs with which the link was measured.
    """
    _refuse_streams(offers)
    domain = Domain.of(problem)
    _refuse_too_many(domain, len(offers))
    alike = _as_alike(offers, link)
    asked = asked_block(problem, compute)
    grid, shares, why_cut = _choose_grid(
        problem, domain, alike, asked, slabs_only=compute.shares != "auto"
    )

    # The cut is chosen without overlap; overlap may then change the block, but not the cut.
    why_beside: tuple[Reason, ...] = ()
    beside = _beside(problem, domain, alike, grid, asked, direct=gpu_messages == "nccl")
    if beside is not None:
        grid, shares, sentence = beside
        why_beside = about("block", (sentence,))
    twice = sum(redundant_points(share.slab, domain.radii, grid.time_block) for share in shares)
    said = (
        Reason("device", _describe_ranks(offers)),
        *(reason for reason in reasons if reason.topic not in _DECIDED_ANEW),
        why_cut,
        describe_exchange(grid.time_block, asked, shares, link),
        *why_beside,
        *why_adaptive(problem),
        Reason("checkpoints", _CHECKPOINTS),
    )
    # There is no profile: between ranks, planes are not rebalanced and devices not replaced.
    return Plan(
        shares=shares,
        time_block=grid.time_block,
        seconds_per_step=grid.seconds,
        redundant=twice / (twice + problem.grid.n_points),
        copy_for_checkpoints=_have_room_for_copies(domain, alike, shares),
        reasons=sentences_of(said),
        notes=tuple(dict.fromkeys(note for offer in offers for note in offer.notes)),
        shares_asked=compute.shares != "auto",
        gpu_messages=gpu_messages,
        scheme=scheme_of(problem),
        overlapped=beside is not None,
    )


def _beside(
    problem: Problem,
    domain: Domain,
    offers: Sequence[WorkerCandidate],
    grid: ProcessGrid,
    asked: int | None,
    *,
    direct: bool,
) -> tuple[ProcessGrid, tuple[Share, ...], str] | None:
    """Overlap the halo exchange with computation in the same cut, if that should be faster: (grid
    with suitable steps between exchanges, shares, reason).

    Direct messages between GPUs keep no rank waiting, so blocks may be shorter. For others a rank
    waits, and its GPU may run out of work meanwhile: with 16 steps instead of 192 (32768 x 32768)
    the rate was 0.77 times as high, with 3 instead of 18 (1024^3) 0.85 times (two H200s, two ranks,
    float64, 2026-11-23).
    """
    crew = WorkerTable.of(
        [
            dataclasses.replace(offer.capacity, overlapped=1.0, splitting=_SPLITTING)
            for offer in offers
        ]
    )
    beside = with_best_block(domain, crew, grid.parts, asked if direct else grid.time_block)
    if beside.seconds > (1.0 if direct else _CLEARLY) * grid.seconds:
        return None

    slabs = cut(domain, grid.parts, crew.rates.tolist(), beside.time_block)
    shares = give(problem, offers, slabs, beside.time_block)
    # Only messages along the last axis that is cut are hidden (`Exchange.begin`), so only its halos
    # may be missing when a block starts.
    axis = max((k for k, pieces in enumerate(grid.parts) if pieces > 1), default=0)
    if not all(begins_early(problem, share, axis, beside.time_block) for share in shares):
        return None
    sentence = (
        "Halos travel while points that need none are computed, which saves "
        f"{1 - beside.seconds / grid.seconds:.0%} of a step."
    )
    return beside, shares, sentence


def _have_room_for_copies(
    domain: Domain, offers: Sequence[WorkerCandidate], shares: Sequence[Share]
) -> bool:
    """Whether every rank has host memory for a copy of its part."""
    there = _grouped(zip(offers, shares, strict=True), lambda pair: pair[1].rank)
    for together in there.values():
        own = [share for _, share in together]
        value_bytes = domain.state_bytes / math.prod(domain.shape)
        copy = value_bytes * sum(share.slab.n_points for share in own)
        if host_bytes(domain.plane_bytes, own) + copy > together[0][0].host_memory:
            return False
    return True


def _as_alike(offers: Sequence[WorkerCandidate], link: Link) -> list[WorkerCandidate]:
    """The candidates of all ranks: equal ranks get the same methods, and the same speed if theirs
    differ by noise only.

    On one computer all differences count as noise, since the ranks disturbed each other while they
    measured.
    """
    ranks = list(_grouped(offers, lambda offer: offer.share.rank).values())
    rates = {id(rank): sum(offer.capacity.points_per_second for offer in rank) for rank in ranks}
    alike = _grouped(ranks, _kinds)
    # Median rate of equal ranks on one computer; between computers, the medians are merged if they
    # are close.
    here = {
        key: statistics.median(rates[id(rank)] for rank in group)
        for key, group in _grouped(ranks, lambda rank: (rank[0].host, _kinds(rank))).items()
    }

    common: dict[tuple[Hashable, ...], float | None] = {}
    for kinds, group in alike.items():
        there = [here[rank[0].host, kinds] for rank in group]
        close = max(there) <= _ALIKE * min(there)
        common[kinds] = statistics.median(there) if close else None

    evened = []
    for rank in ranks:
        kinds = _kinds(rank)
        faster = (common[kinds] or here[rank[0].host, kinds]) / rates[id(rank)]
        # Method and parameters come from the first rank of the kind, the speed from the median.
        for offer, like in zip(rank, alike[kinds][0], strict=True):
            share = dataclasses.replace(
                offer.share, method=like.share.method, parameters=like.share.parameters
            )
            capacity = dataclasses.replace(
                offer.capacity,
                points_per_second=offer.capacity.points_per_second * faster,
                depth=like.capacity.depth,
                link=link,
            )
            rate = capacity.points_per_second
            share = dataclasses.replace(share, points_per_second=rate)
            evened.append(dataclasses.replace(offer, share=share, capacity=capacity))
    return evened


def _kinds(rank: Sequence[WorkerCandidate]) -> tuple[Hashable, ...]:
    """The kinds of workers of a rank; ranks with equal kinds count as equal."""
    return tuple((offer.product, offer.share.threads, offer.share.method.device) for offer in rank)


def _grouped(things: Iterable[Thing], key: Callable[[Thing], K]) -> dict[K, list[Thing]]:
    groups: dict[K, list[Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def _choose_grid(
    problem: Problem,
    domain: Domain,
    offers: Sequence[WorkerCandidate],
    asked: int | None,
    *,
    slabs_only: bool,
) -> tuple[ProcessGrid, tuple[Share, ...], Reason]:
    """(the process grid, the share of each worker, the reason)."""
    hosts = {host: n for n, host in enumerate(dict.fromkeys(offer.host for offer in offers))}
    crew = WorkerTable.of([offer.capacity for offer in offers])
    computers = [hosts[offer.host] for offer in offers]

    def shares_of(grid: ProcessGrid) -> tuple[Share, ...]:
        slabs = cut(domain, grid.parts, crew.rates.tolist(), grid.time_block)
        return give(problem, offers, slabs, grid.time_block)

    def fits(shares: Sequence[Share]) -> bool:
        return next(shortages(domain.plane_bytes, offers, shares), None) is None

    # Requested shares can only be followed by slabs, since the pieces of other cuts are equal.
    grid, other = fastest_grid(domain, crew, asked, slabs_only=slabs_only, computers=computers)
    shares, why = shares_of(grid), describe_choice(grid, other)
    if other is not None and is_slabs(other.parts) and not fits(shares):
        # Halos along two axes may need memory that slabs leave free.
        slabs = shares_of(other)
        if fits(slabs):
            why = f"{describe_parts(grid.parts)} would be faster, but does not fit into memory"
            grid, shares = other, slabs
    return grid, shares, describe_grid(grid, shares, why)


def _refuse_too_many(domain: Domain, workers: int) -> None:
    if possible_parts(domain, workers):
        return
    points = " x ".join(str(n) for n in reversed(domain.shape))
    msg = (
        f"{workers} workers cannot share a grid of {points} points: each needs at least "
        f"{max(domain.radii)} planes along each axis that is cut. Start fewer ranks."
    )
    raise ConfigError(msg)


def _refuse_streams(offers: Sequence[WorkerCandidate]) -> None:
    for offer in offers:
        if offer.share.streamed is not None:
            msg = (
                f"the part of rank {offer.share.rank} does not fit into the memory of {offer.name} "
                f"on {offer.host} and would have to be streamed through it, which works in one "
                "process only. Start more ranks, each with a GPU, or set compute.devices: cpu."
            )
            raise UnsupportedError(msg)


def _describe_ranks(offers: Sequence[WorkerCandidate]) -> str:
    ranks = _grouped(offers, lambda offer: offer.share.rank)
    hosts = list(dict.fromkeys(offer.host for offer in offers))
    many = f"{len(ranks)} ranks on {len(hosts)} computer{'s' * (len(hosts) > 1)}"
    if len(ranks) > _LISTED:
        return f"{many}, {-(-len(ranks) // len(hosts))} on each at most."
    rows = [
        f"rank {rank} on {own[0].host}: "
        f"{', '.join(f'{offer.name} ({offer.share.described})' for offer in own)}"
        for rank, own in ranks.items()
    ]
    return f"{many}: {'; '.join(rows)}."
