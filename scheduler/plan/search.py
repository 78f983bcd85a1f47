"""Search: who gets what, and how many steps go between two exchanges? Of all cuts, blocks and sets
of workers that are worth a try, those with the shortest predicted step (`cost.py`).

Within a process the planes are divided so that all are done at the same time, and a worker that
would make a step longer gets nothing. Between ranks: `process_grid.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.scheduler.facts.domain import Capacity, Division, Domain, Parts, WorkEstimate
from tetris_sim.scheduler.plan.block import responsive_block
from tetris_sim.scheduler.plan.cost import (
    Decomposition,
    Numbers,
    WorkerTable,
    forecast,
    seconds_per_step,
)
from tetris_sim.scheduler.plan.partition import (
    axis_pieces,
    has_whole_rows,
    is_slabs,
    longest_block,
    possible_parts,
    split_by_speed,
)

# Process grids: how is a grid cut between ranks, and how many steps go between two exchanges?
#
# All ranks take part. Every way to cut the first two axes is tried, and of those along three the
# ones with the least surface. Slabs are as long as their workers are fast, other pieces are equal.

# Share of a step below which predictions cannot tell cuts apart: what was measured on two GPUs is
# up to 2.3 % off (docs/scaling.md), and planes of later axes, which do not lie together in memory,
# cost 3 % (4096 x 4096) and 7 % (256^3) more on two ranks with a core each (AMD EPYC, cpu.stream,
# stars of radius 1, medians of 7, 2026-11-22). Slabs have the fewest messages, and they alone
# follow the speeds of their workers.
_SURE = 0.05


@dataclass(frozen=True)
class ProcessGrid:
    """How a grid is cut between ranks, and what is expected of it.

    Attributes:
        parts: into how many pieces each axis is cut.
        time_block: steps between two exchanges.
        seconds: predicted, of a step.
    """

    parts: Parts
    time_block: int
    seconds: float


def fastest_grid(
    domain: Domain,
    crew: WorkerTable,
    time_block: int | None = None,
    *,
    slabs_only: bool = False,
    computers: Sequence[int] = (),
) -> tuple[ProcessGrid, ProcessGrid | None]:
    """(what to do, what else was thought of): slabs, unless something else is clearly faster; and
    whole rows, unless pieces of rows are clearly faster than that. Edges along rows are many short
    runs in memory, which takes longer to copy than is predicted.

    Of other cuts between which predictions cannot tell, that is taken which sends the least from
    computer to computer: all messages are predicted to be as slow as the slowest. What else was
    thought of is slabs, if they are not taken, or else the best of the others; None if there is
    none.

    Args:
        domain: what is cut; `possible_parts` must find something.
        crew: who computes.
        time_block: steps between two exchanges if they are asked for: the cuts that come closest to
            it are tried.
        slabs_only: take slabs if they are possible at all.
        computers: a number for the computer of each worker; none if all are in one.
    """
    grids = [
        with_best_block(domain, crew, parts, time_block)
        for parts in possible_parts(domain, crew.size)
    ]
    if time_block is not None:
        longest = max(grid.time_block for grid in grids)
        grids = [grid for grid in grids if grid.time_block == longest]

    whole = [grid for grid in grids if has_whole_rows(grid.parts)]
    chosen, other = (None, None)
    if whole:
        chosen, other = _of_whole_rows(domain, crew, whole, computers, slabs_only=slabs_only)
    rows = [grid for grid in grids if grid not in whole]
    if not rows or (slabs_only and chosen is not None and is_slabs(chosen.parts)):
        assert chosen is not None
        return chosen, other

    best = _nearest(domain, crew, rows, computers)
    if chosen is None:
        return best, None
    if best.seconds < (1 - _SURE) * chosen.seconds:
        return best, next((grid for grid in whole if is_slabs(grid.parts)), chosen)
    return chosen, other or best


def _of_whole_rows(
    domain: Domain,
    crew: WorkerTable,
    grids: Sequence[ProcessGrid],
    computers: Sequence[int],
    *,
    slabs_only: bool,
) -> tuple[ProcessGrid, ProcessGrid | None]:
    """See `fastest_grid`, of those whose pieces have whole rows, or are of two dimensions."""
    slabs = next((grid for grid in grids if is_slabs(grid.parts)), None)
    others = [grid for grid in grids if grid is not slabs]
    if slabs is not None and (slabs_only or not others):
        return slabs, None

    best = _nearest(domain, crew, others, computers)
    if slabs is None:
        return best, None
    least = min(grid.seconds for grid in others)
    return (best, slabs) if least < (1 - _SURE) * slabs.seconds else (slabs, best)


def _nearest(
    domain: Domain, crew: WorkerTable, grids: Sequence[ProcessGrid], computers: Sequence[int]
) -> ProcessGrid:
    """Of those that are about as fast as the fastest the one that sends the least far."""
    least = min(grid.seconds for grid in grids)
    alike = [grid for grid in grids if (1 - _SURE) * grid.seconds <= least]
    return min(alike, key=lambda grid: (_crossing(domain, crew, grid, computers), grid.seconds))


def with_best_block(
    domain: Domain, crew: WorkerTable, parts: Parts, time_block: int | None = None
) -> ProcessGrid:
    """A process grid with the steps between two exchanges that were asked for, or those with the
    shortest step.
    """
    room = longest_block(domain, parts)
    if time_block is not None:
        blocks = [min(time_block, room)]
    else:
        longest = min(room, responsive_block(domain.n_values, float(crew.rates.sum())))
        blocks = _round_numbers(longest, {1, *map(int, np.unique(crew.depths))})

    def seconds(block: int) -> float:
        return seconds_per_step(cut_into(domain, crew, parts, block), crew, block)

    timed = [(seconds(block), block) for block in blocks]
    fastest, block = min(timed)
    return ProcessGrid(parts, block, fastest)


def cut_into(domain: Domain, crew: WorkerTable, parts: Parts, block: int) -> Decomposition:
    """A process grid with halos for so many steps."""
    pieces = axis_pieces(domain, parts, crew.rates.tolist(), block)
    return Decomposition.into(domain, [[stop - start for start, stop in along] for along in pieces])


def _crossing(
    domain: Domain, crew: WorkerTable, grid: ProcessGrid, computers: Sequence[int]
) -> float:
    """Bytes per step of the worker that receives the most from other computers."""
    if not computers:
        return 0.0
    hosts = np.asarray(computers).reshape(grid.parts)
    cut = cut_into(domain, crew, grid.parts, grid.time_block)

    away = []
    for axis, joined in enumerate(cut.sides):
        # As if every axis were periodic: the first and the last piece are no dearer than those
        # between them.
        strangers = sum(
            (np.roll(hosts, shift, axis) != hosts).astype(np.float64) for shift in (1, -1)
        )
        away.append(np.minimum(strangers, joined))
    return float(cut.received(grid.time_block, away)[1].max()) / grid.time_block


def _round_numbers(longest: int, units: set[int]) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ..., so many times what methods like to make at a time, and the
    longest.
    """
    blocks = {1, longest}
    for power in range(longest.bit_length()):
        for times in (1 << power, 3 << power):
            blocks |= {times * unit for unit in units if times * unit <= longest}
    return sorted(blocks)


# workers; of more, those are tried that are left when one after the other is dropped
_ALL_SUBSETS = 4
_BLOCKS_TRIED = 48

Members = tuple[int, ...]  # numbers of workers


def divide(
    work: WorkEstimate,
    capacities: Sequence[Capacity],
    *,
    most: int,
    time_block: int | None = None,
    shares: Sequence[float] | None = None,
) -> Division:
    """The division with the shortest predicted time per step.

    Args:
        work: what is divided.
        capacities: of each worker, in the order in which their slabs lie.
        most: steps that a block may have, so that the run stays responsive; a method's depth is
            allowed in any case.
        time_block: steps per block if that was asked for.
        shares: relative planes of each worker if those were asked for; then nobody is left out.

    Raises:
        ConfigError: the shares that were asked for do not fit.
        UnsupportedError: all memory together does not hold the planes.
    """
    nameless = [dataclasses.replace(worker, name="") for worker in capacities]

    @functools.cache
    def among_such(chosen: tuple[Capacity, ...]) -> Division | None:
        return _divide_among(work, chosen, most, time_block, shares)

    def among(members: Members) -> Division | None:
        return among_such(tuple(nameless[k] for k in members))

    everyone = tuple(range(len(capacities)))
    sets = [everyone] if shares is not None else _subsets(everyone, among)
    possible = [(members, division) for members in sets if (division := among(members)) is not None]
    if possible:
        members, division = min(possible, key=lambda pair: pair[1].seconds_per_step)
        return _for_everyone(division, members, len(capacities))

    rooms = ", ".join(f"{worker.name} {worker.room}" for worker in capacities)
    if shares is not None:
        msg = (
            f"compute.shares gives a worker fewer than {work.radius} of the {work.n_planes} "
            f"planes, or more than its memory holds ({rooms}). Change the shares, or "
            "leave them out."
        )
        raise ConfigError(msg)
    msg = f"{work.n_planes} planes do not fit into the memory of the workers, which is for {rooms}"
    raise UnsupportedError(msg)


def without(
    work: WorkEstimate,
    capacities: Sequence[Capacity],
    worker: int,
    division: Division,
    *,
    most: int,
) -> float | None:
    """Predicted seconds per step if everyone who has planes and `worker` too, but nobody else, took
    part.
    """
    members = tuple(k for k, planes in enumerate(division.planes) if planes or k == worker)
    together = _divide_among(work, [capacities[k] for k in members], most, None, None)
    return None if together is None else together.seconds_per_step


def predict(
    work: WorkEstimate, chosen: Sequence[Capacity], planes: Sequence[int], block: int
) -> Division:
    """What certain planes would take, none of which is 0."""
    return _predict(work, WorkerTable.of(chosen), planes, block)


def of_members(division: Division) -> Division:
    """A division without those that were left out."""
    members = [k for k, planes in enumerate(division.planes) if planes]
    return dataclasses.replace(
        division,
        planes=tuple(division.planes[k] for k in members),
        busy=tuple(division.busy[k] for k in members),
    )


def _subsets(everyone: Members, among: Callable[[Members], Division | None]) -> Iterator[Members]:
    """Sets of workers that are worth a try.

    Args:
        everyone: all workers.
        among: the best division among some of them.
    """
    if len(everyone) <= _ALL_SUBSETS:
        for size in range(len(everyone), 0, -1):
            yield from itertools.combinations(everyone, size)
        return

    def seconds(members: Members) -> float:
        division = among(members)
        return math.inf if division is None else division.seconds_per_step

    yield from ((k,) for k in everyone)
    members = everyone
    while len(members) > 1:
        yield members
        members = min((tuple(k for k in members if k != out) for out in members), key=seconds)


def _divide_among(
    work: WorkEstimate,
    chosen: Sequence[Capacity],
    most: int,
    time_block: int | None,
    shares: Sequence[float] | None,
) -> Division | None:
    """The best division among all of these workers, over the lengths of a block; None if there is
    none.
    """
    crew, rooms = WorkerTable.of(chosen), np.array([worker.room for worker in chosen], np.float64)
    best = None
    for block in _blocks(work, chosen, most, time_block):
        bounds = _bounds(work, rooms, block)
        if bounds is None:
            continue
        planes: tuple[int, ...] | None
        if shares is None:
            planes = _balance(work, crew, bounds, block)
        else:
            planes = _as_asked(work, bounds, block, shares)
        if planes is None:
            continue

        division = _predict(work, crew, planes, block)
        if best is None or division.seconds_per_step < best.seconds_per_step:
            best = division
    return best


def _blocks(
    work: WorkEstimate, chosen: Sequence[Capacity], most: int, time_block: int | None
) -> list[int]:
    """Lengths of a block to be tried: whole multiples of the deepest method that can make no other
    number of steps, if the planes allow that.
    """
    limit = most
    if len(chosen) > 1 and work.radius:
        limit = work.n_planes // (len(chosen) * work.radius)
    if limit < 1:
        return []
    if time_block is not None:
        return [min(time_block, limit)] if len(chosen) > 1 else [time_block]

    depth = max((worker.depth for worker in chosen if worker.fixed), default=1)
    if depth > limit:
        return [limit] if len(chosen) > 1 else [depth]
    times = max(1, min(limit, most) // depth)
    steps = sorted({round(times ** (i / (_BLOCKS_TRIED - 1))) for i in range(_BLOCKS_TRIED)})
    return [depth * n for n in (steps if len(chosen) > 1 else [times])]


def _bounds(work: WorkEstimate, rooms: Numbers, block: int) -> tuple[Numbers, Numbers] | None:
    """(fewest, most) planes of each worker; None if they cannot add up."""
    halo, cuts = block * work.radius, _cuts(work, len(rooms))
    low = np.where(cuts > 0, max(1, halo), 1).astype(np.float64)
    high = rooms - cuts * halo
    possible = (low <= high).all() and low.sum() <= work.n_planes <= high.sum()
    return (low, high) if possible else None


def _cuts(work: WorkEstimate, count: int) -> Numbers:
    """Neighbours of each of so many workers."""
    cuts = np.full(count, 2.0 if count > 1 else 0.0)
    if count > 1 and not work.periodic:
        cuts[[0, -1]] = 1.0
    return cuts


def _balance(
    work: WorkEstimate, crew: WorkerTable, bounds: tuple[Numbers, Numbers], block: int
) -> tuple[int, ...]:
    """Planes with which all have computed and given their messages away at the same time, as far as
    their bounds allow.
    """
    cuts = _cuts(work, crew.size)
    twice = cuts * work.radius * (block - 1) / 2
    plane_seconds = crew.slowness(block) * work.plane_points * block
    passing = crew.latencies + block * work.radius * work.plane_bytes * crew.seconds_per_byte
    # A step that reaches nowhere needs no message. Who does not wait for all others takes halos
    # when it wants, beside its computation or not.
    times = ~crew.one_way * 1.0 + (not crew.together)
    waited = (work.radius > 0) * (1 - crew.overlapped) * times
    ready = crew.starts + waited * cuts * passing

    # The planes that all together can own grow with the time, linearly from each moment at which
    # somebody has its fewest or its most to the next such moment.
    low, high = bounds[0], np.minimum(bounds[1], work.n_planes)
    moments = np.sort(np.concatenate([(n + twice) * plane_seconds + ready for n in (low, high)]))

    def ideal(seconds: Numbers) -> Numbers:
        return np.clip((seconds[..., None] - ready) / plane_seconds - twice, low, high)

    seconds = np.interp(work.n_planes, ideal(moments).sum(axis=-1), moments)
    return _whole(ideal(np.asarray(seconds)), bounds, work.n_planes)


def _whole(ideal: Numbers, bounds: tuple[Numbers, Numbers], total: int) -> tuple[int, ...]:
    """Whole numbers near the ideal ones that add up to the total and keep the bounds."""
    lows, highs = bounds
    planes = [max(int(n), int(low)) for n, low in zip(ideal, lows, strict=True)]
    while (missing := total - sum(planes)) != 0:
        sign = 1 if missing > 0 else -1
        free = [k for k, n in enumerate(planes) if lows[k] <= n + sign <= highs[k]]
        # Those who are farthest from their ideal first, one plane each; a sum far off goes to the
        # largest.
        free.sort(key=lambda k: sign * (planes[k] - ideal[k]))
        for k in free[: abs(missing)]:
            planes[k] += sign
    return tuple(planes)


def _as_asked(
    work: WorkEstimate, bounds: tuple[Numbers, Numbers], block: int, shares: Sequence[float]
) -> tuple[int, ...] | None:
    shortest = max(1, block * work.radius if len(shares) > 1 else 1)
    pieces = split_by_speed(work.n_planes, shares, min_planes=shortest)
    planes = np.array([stop - start for start, stop in pieces])
    low, high = bounds
    return tuple(planes.tolist()) if ((low <= planes) & (planes <= high)).all() else None


def _predict(work: WorkEstimate, crew: WorkerTable, planes: Sequence[int], block: int) -> Division:
    count, n_cuts = len(planes), int(_cuts(work, len(planes)).sum())
    cut = Decomposition.into(work.domain, (planes, (work.plane_points,)))
    times = forecast(cut, crew, block)
    return Division(
        planes=tuple(planes),
        time_block=block,
        block_seconds=times.seconds,
        busy=tuple(times.busy.tolist()),
        exchange_seconds=times.seconds - float(times.busy.max()),
        replicated=n_cuts * work.radius * block * (block - 1) // 2 * work.plane_points,
        messages=n_cuts,
        message_bytes=block * work.radius * work.plane_bytes if count > 1 else 0,
    )


def _for_everyone(division: Division, members: Members, count: int) -> Division:
    planes, busy = [0] * count, [0.0] * count
    for k, n, seconds in zip(members, division.planes, division.busy, strict=True):
        planes[k], busy[k] = n, seconds
    return dataclasses.replace(division, planes=tuple(planes), busy=tuple(busy))
