"""One plan for many ranks: each says what its devices are and how fast, rank 0 decides who computes
what.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.grid import Grid
from tetris_sim.problem import Problem
from tetris_sim.scheduler.comm.agreement import everywhere, on_root
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.link import Link, measure_link
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.seats import own_part
from tetris_sim.scheduler.plan.block import divide_block
from tetris_sim.scheduler.plan.fastest_cut import Crew, Cut, describe_choice, fastest_cut
from tetris_sim.scheduler.plan.plan import make_plan
from tetris_sim.scheduler.plan.process_grid import (
    cut,
    describe_parts,
    halo_points,
    is_slabs,
    likely_parts,
    possible_parts,
    redundant_points,
)
from tetris_sim.scheduler.plan.rank_link import measure_exchange
from tetris_sim.scheduler.tuning.candidates import RESERVE, Asked
from tetris_sim.scheduler.tuning.measure import steps_per_block
from tetris_sim.schema import ComputeSection
from tetris_sim.slab import Slab
from tetris_sim.wording import gib

K = TypeVar("K", bound=Hashable)

_ALIKE = 1.3  # equal devices whose measured speeds differ by less are taken to be equally fast
_LISTED = 16  # ranks that are named one by one
_LOCAL = (
    "Time block",
    "Shares ",
    "Checkpoints ",
    "Workers compute with",
)  # what a rank's own plan says and all together decide anew


@dataclass(frozen=True)
class Offer:
    """What one rank has.

    Attributes:
        rank: which one.
        machine: its part of the computer.
        plan: how it would advance an even part of the grid alone.
    """

    rank: int
    machine: Machine
    plan: Plan


def plan_together(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    ranks: Communicator,
    *,
    begun_with: Asked | None = None,
    use_cache: bool = True,
) -> Plan:
    """The plan of all ranks, the same on each of them; `make_plan` for one alone.

    Args:
        problem: what to advance.
        machine: the computer as this rank sees it.
        compute: what was asked for.
        ranks: all of them call this.
        begun_with: as for `make_plan`.
        use_cache: as for `make_plan`.

    Raises:
        UnsupportedError: some rank has no memory or no method for its part, or two would use one
            GPU.
        ConfigError: there are more workers than the grid can be cut into.
    """
    if ranks.size == 1:
        return make_plan(problem, machine, compute, begun_with=begun_with, use_cache=use_cache)
    machine = own_part(machine, compute, ranks)
    part = everywhere(ranks, lambda: even_part(problem, ranks.size))
    own = everywhere(
        ranks, lambda: make_plan(part, machine, compute, begun_with=begun_with, use_cache=use_cache)
    )
    offers = ranks.collect(Offer(ranks.rank, machine, own))
    link = _measure_link(problem, offers, compute, ranks)
    plan = on_root(ranks, lambda: combine(problem, offers, link, compute))
    everywhere(ranks, lambda: _refuse_what_does_not_fit(plan, machine, ranks.rank))
    return plan


def _measure_link(
    problem: Problem, offers: Sequence[Offer], compute: ComputeSection, ranks: Communicator
) -> Link:
    first = [offer.plan.shares[0] for offer in offers]
    if compute.tuning_seconds == 0 or any(share.streamed is not None for share in first):
        return measure_link(ranks)
    return measure_exchange(problem, first, ranks, gpu_messages=compute.cuda_aware_mpi)


def even_part(problem: Problem, ranks: int) -> Problem:
    """The problem on as many points as each rank gets if all are alike, to be planned for."""
    _refuse_too_many(problem, ranks)
    parts, grid = likely_parts(problem, ranks), problem.grid
    shape = tuple(
        max(-(-n // pieces), radius, 1)
        for n, pieces, radius in zip(grid.shape, parts, problem.stencil.radii, strict=True)
    )
    return dataclasses.replace(
        problem, grid=Grid(shape=shape, spacing=grid.spacing, origin=grid.origin)
    )


def combine(problem: Problem, offers: Sequence[Offer], link: Link, compute: ComputeSection) -> Plan:
    """Cut the grid between the workers of all ranks, each as large as it is fast.

    Args:
        problem: what to advance.
        offers: of all ranks, in order.
        link: what messages cost.
        compute: what was asked for.
    """
    _refuse_streams(offers)
    workers = _workers(offers)
    _refuse_too_many(problem, len(workers))
    found, shares, why_cut = _choose_cut(problem, offers, workers, link, compute)
    time_block = found.time_block
    redundant = sum(
        redundant_points(share.slab, problem.stencil.radii, time_block) for share in shares
    )
    first = offers[0].plan
    reasons = (
        *_describe_ranks(offers),
        *(reason for reason in first.reasons if not reason.startswith(_LOCAL)),
        why_cut,
        _describe_block(found, shares, link, compute),
        "Checkpoints stop the computation while they are written: rank 0 asks the others for the "
        "state, slab by slab, or each writes its own (checkpoint.per_rank).",
    )
    notes = tuple(dict.fromkeys(note for offer in offers for note in offer.plan.notes))
    return dataclasses.replace(
        first,
        shares=shares,
        time_block=time_block,
        seconds_per_step=found.seconds,
        redundant=redundant / (redundant + problem.grid.n_points),
        copy_for_checkpoints=False,
        reasons=reasons,
        notes=notes,
        # of the first rank alone: planes are not moved, and devices not replaced, between ranks
        profile=None,
        copy_for_recovery=False,
        gpu_messages=compute.cuda_aware_mpi,
    )


def names_of(plan: Plan) -> list[str]:
    """What each worker is called: "cpu:0", or with its rank in front, "3/cpu:0", where there are
    several.
    """
    if len({share.rank for share in plan.shares}) == 1:
        return [share.worker for share in plan.shares]
    return [f"{share.rank}/{share.worker}" for share in plan.shares]


def _workers(offers: Sequence[Offer]) -> list[Share]:
    """The workers of all ranks. Equal ranks get the same methods, and the same speed if theirs
    differ by noise only.

    On one computer they do, since they were in each other's way while they measured. Each worker is
    as fast as its share of the part of its rank says.
    """
    rates = [sum(share.points_per_second for share in offer.plan.shares) for offer in offers]
    alike = _grouped(offers, _kind)
    here = {
        key: statistics.median(rates[offer.rank] for offer in group)
        for key, group in _grouped(offers, lambda offer: (offer.machine.host, _kind(offer))).items()
    }
    everywhere_there = {
        kind: [here[each.machine.host, kind] for each in group] for kind, group in alike.items()
    }
    common = {
        kind: statistics.median(there) if max(there) <= _ALIKE * min(there) else None
        for kind, there in everywhere_there.items()
    }
    found = []
    for offer in offers:
        kind = _kind(offer)
        group, rate = alike[kind], common[kind] or here[offer.machine.host, kind]
        points = sum(share.slab.n_points for share in offer.plan.shares)
        for share, like in zip(offer.plan.shares, group[0].plan.shares, strict=True):
            worker = dataclasses.replace(
                share, rank=offer.rank, method=like.method, parameters=like.parameters
            )
            found.append(
                dataclasses.replace(worker, points_per_second=rate * share.slab.n_points / points)
            )
    return found


def _kind(offer: Offer) -> tuple[tuple[str, int, str], ...]:
    """What the workers of a rank are."""
    return tuple(
        (share.product or offer.machine.cpu, share.threads, share.method.device)
        for share in offer.plan.shares
    )


def _grouped(offers: Sequence[Offer], key: Callable[[Offer], K]) -> dict[K, list[Offer]]:
    groups: dict[K, list[Offer]] = {}
    for offer in offers:
        groups.setdefault(key(offer), []).append(offer)
    return groups


def _describe_block(
    found: Cut, shares: Sequence[Share], link: Link, compute: ComputeSection
) -> str:
    block = found.time_block
    if compute.time_block != "auto":
        return (
            f"Time block of {block} steps, as "
            f"asked{', cut to what fits' * (block < compute.time_block)}."
        )
    messages = max(halo_points(share.slab)[0] for share in shares)
    speed = f", {1e-9 / link.seconds_per_byte:.3g} GB/s" if link.seconds_per_byte > 0 else ""
    return (
        f"Time block of {block} steps: an exchange is up to {messages} messages of "
        f"{link.latency * 1e6:.3g} us{speed}, as measured."
    )


def _choose_cut(
    problem: Problem,
    offers: Sequence[Offer],
    workers: Sequence[Share],
    link: Link,
    compute: ComputeSection,
) -> tuple[Cut, tuple[Share, ...], str]:
    """(how the grid is cut, what each worker gets, why in a sentence)."""
    hosts = {host: number for number, host in enumerate({offer.machine.host for offer in offers})}
    crew = Crew(
        speeds=[share.points_per_second for share in workers],
        link=link,
        computers=[hosts[offers[share.rank].machine.host] for share in workers],
        steps=[steps_per_block(share.parameters) for share in workers],
        fixed=[share.method.device == "gpu" for share in workers],
    )
    # Pieces of other cuts are equal, whatever was asked for.
    found, other = fastest_cut(
        problem, crew, compute.time_block, slabs_only=compute.shares != "auto"
    )
    shares = _give(problem, workers, found)
    if other is not None and is_slabs(other.parts) and not _fits(offers, shares):
        # Halos along two axes can take memory that slabs leave free.
        slabs = _give(problem, workers, other)
        if _fits(offers, slabs):
            why = f"{describe_parts(found.parts)} would be faster, but does not fit into memory"
            return other, slabs, _describe_cut(problem, other, slabs, why)
    return found, shares, _describe_cut(problem, found, shares, describe_choice(found, other))


def _give(problem: Problem, workers: Sequence[Share], found: Cut) -> tuple[Share, ...]:
    """The workers with their slabs and the memory that these take."""
    slabs = cut(
        problem, found.parts, [share.points_per_second for share in workers], found.time_block
    )
    return tuple(
        _give_one(problem, *pair, found.time_block) for pair in zip(workers, slabs, strict=True)
    )


def _give_one(problem: Problem, share: Share, slab: Slab, time_block: int) -> Share:
    parameters = share.parameters
    if share.method.device == "cpu":
        parameters = divide_block(parameters, time_block)
    memory = share.method.memory(problem, slab, parameters)
    return dataclasses.replace(share, slab=slab, parameters=parameters, memory=memory)


def _refuse_too_many(problem: Problem, workers: int) -> None:
    if possible_parts(problem, workers):
        return
    planes = " x ".join(str(n) for n in reversed(problem.grid.shape))
    msg = (
        f"{workers} workers cannot share a grid of {planes} points: each needs at least "
        f"{problem.stencil.radius} planes along each axis that is cut. Start fewer ranks."
    )
    raise ConfigError(msg)


def _refuse_streams(offers: Sequence[Offer]) -> None:
    for offer in offers:
        for share in offer.plan.shares:
            if share.streamed is not None:
                msg = (
                    f"the part of rank {offer.rank} does not fit into the memory of {share.worker} "
                    f"on {offer.machine.host} and would have to be streamed through it, which "
                    "works in one process only. Start more ranks, each with a GPU, or set "
                    "compute.devices: cpu."
                )
                raise UnsupportedError(msg)


def _refuse_what_does_not_fit(plan: Plan, machine: Machine, rank: int) -> None:
    """Raise if this rank's slabs with their halos do not fit into the memory that they are to lie
    in.
    """
    for place, needed, free in _short_of(
        [share for share in plan.shares if share.rank == rank], machine
    ):
        msg = (
            f"the part of rank {rank} on {machine.host} needs {gib(needed)} of {place} and "
            f"{gib(RESERVE)} beside it, but {gib(free)} can be had. Start more ranks on other "
            "computers, or use compute.precision: float32."
        )
        raise UnsupportedError(msg)


def _fits(offers: Sequence[Offer], shares: Sequence[Share]) -> bool:
    """Whether every rank has the memory that is asked of it."""
    own: dict[int, list[Share]] = {}
    for share in shares:
        own.setdefault(share.rank, []).append(share)
    return not any(_short_of(own[offer.rank], offer.machine) for offer in offers)


def _short_of(shares: Sequence[Share], machine: Machine) -> list[tuple[str, int, int]]:
    """(place, bytes wanted there, bytes that can be had) wherever the shares of one rank do not
    fit.
    """
    places = {"memory": (machine.memory, [share for share in shares if not share.product])}
    for gpu in machine.gpus:
        places[f"GPU {gpu.number}"] = (
            gpu.memory,
            [share for share in shares if share.worker == f"gpu:{gpu.number}"],
        )
    wanted = [
        (place, sum(share.memory for share in there), free)
        for place, (free, there) in places.items()
        if there
    ]
    return [(place, needed, free) for place, needed, free in wanted if needed + RESERVE > free]


def _describe_ranks(offers: Sequence[Offer]) -> list[str]:
    hosts = list(dict.fromkeys(offer.machine.host for offer in offers))
    many = f"{len(offers)} ranks on {len(hosts)} computer{'s' * (len(hosts) > 1)}"
    if len(offers) > _LISTED:
        return [f"{many}, {-(-len(offers) // len(hosts))} on each at most."]
    rows = [
        f"rank {offer.rank} on {offer.machine.host}: "
        f"{', '.join(f'{share.worker} ({share.described})' for share in offer.plan.shares)}"
        for offer in offers
    ]
    return [f"{many}: {'; '.join(rows)}."]


def _describe_cut(problem: Problem, found: Cut, shares: Sequence[Share], why: str) -> str:
    if not is_slabs(found.parts):
        return f"Process grid {describe_parts(found.parts)}, even: {why}."
    portions = [100 * share.slab.n_points / problem.grid.n_points for share in shares]
    sizes = f"{min(portions):.3g}% to {max(portions):.3g}% of the grid each, by speed"
    return f"Process grid {describe_parts(found.parts)}: {sizes}{f'; {why}' * bool(why)}."
