"""Search for the decomposition with the shortest predicted time per step (`cost.py`), over cuts,
steps per block and sets of workers.

Within a process, planes are divided so that all workers finish at the same time, and a worker that
would make a step longer gets nothing. Between ranks, process grids are compared.
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
from tetris_sim.scheduler.facts.shares import Capacity, Division, Domain, Parts, WorkEstimate
from tetris_sim.scheduler.plan.cost import (
    Decomposition,
    Numbers,
    WorkerTable,
    forecast,
    responsive_block,
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

# Process grids: the decomposition of a grid between ranks, and the number of steps between two
# exchanges.
#
# All ranks take part. All cuts of the first two axes are tried, and of the cuts of three axes those
# with the least surface. Slabs follow the speeds of their workers; other pieces are equal.

# Relative difference below which predictions cannot distinguish cuts: measurements on two GPUs are
# up to 2.3 % off (docs/scaling.md), and planes of later axes, which are not contiguous in memory,
# cost 3 % (4096 x 4096) and 7 % (256^3) more on two ranks with a core each (AMD EPYC, cpu.stream,
# stars of radius 1, medians of 7, 2026-11-22). Slabs have the fewest messages, and only slabs
# follow the speeds of their workers.
_SURE = 0.05


@dataclass(frozen=True)
class ProcessGrid:
    """A decomposition of a grid between ranks and its predicted time.

    Attributes:
        parts: number of pieces along each axis.
        time_block: steps between two exchanges.
        seconds: predicted time per step [s].
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
    """(the chosen process grid, the best alternative): slabs unless another cut is clearly faster,
    and pieces with whole rows unless cut rows are clearly faster than those. Edges along rows are
    many short runs in memory, which take longer to copy than predicted.

    Among other cuts that predictions cannot distinguish, the one that sends the least between
    computers is taken, since the model charges all messages at the cost of the slowest. The
    alternative is slabs if they are not chosen, otherwise the best of the others; None if there is
    none.

    Args:
        domain: grid to cut; `possible_parts` must find a cut.
        crew: table of the workers.
        time_block: requested steps between two exchanges: only the cuts that come closest to it are
            compared.
        slabs_only: whether slabs are taken if they are possible at all.
        computers: number of the computer of each worker; empty if all are on one.
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

    # Cut rows compete with the best cut that keeps rows whole.
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
    """The choice of `fastest_grid` among pieces with whole rows, or in fewer than three
    dimensions.
    """
    slabs = next((grid for grid in grids if is_slabs(grid.parts)), None)
    others = [grid for grid in grids if grid is not slabs]
    if slabs is not None and (slabs_only or not others):
        return slabs, None

    best = _nearest(domain, crew, others, computers)
    if slabs is None:
        return best, None
    # Slabs must lose clearly to the fastest of the others, even if `best` is slightly slower than
    # that.
    least = min(grid.seconds for grid in others)
    return (best, slabs) if least < (1 - _SURE) * slabs.seconds else (slabs, best)


def _nearest(
    domain: Domain, crew: WorkerTable, grids: Sequence[ProcessGrid], computers: Sequence[int]
) -> ProcessGrid:
    """The grid that sends the least between computers, of those about as fast as the fastest."""
    least = min(grid.seconds for grid in grids)
    alike = [grid for grid in grids if (1 - _SURE) * grid.seconds <= least]
    return min(alike, key=lambda grid: (_crossing(domain, crew, grid, computers), grid.seconds))


def with_best_block(
    domain: Domain, crew: WorkerTable, parts: Parts, time_block: int | None = None
) -> ProcessGrid:
    """A process grid with the requested steps between two exchanges, or with those of the shortest
    predicted step.
    """
    # Halos must fit into the neighbours' pieces, and a block must not make the run unresponsive.
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
    """The decomposition of a process grid with halos for `block` steps."""
    pieces = axis_pieces(domain, parts, crew.rates.tolist(), block)
    return Decomposition.into(domain, [[stop - start for start, stop in along] for along in pieces])


def _crossing(
    domain: Domain, crew: WorkerTable, grid: ProcessGrid, computers: Sequence[int]
) -> float:
    """Bytes per step that the worker with the most traffic receives from other computers."""
    if not computers:
        return 0.0
    hosts = np.asarray(computers).reshape(grid.parts)
    cut = cut_into(domain, crew, grid.parts, grid.time_block)

    away = []
    for axis, joined in enumerate(cut.sides):
        # Counted as if every axis were periodic, and then limited to the sides with a neighbour:
        # end pieces are treated no worse than inner ones.
        strangers = sum(
            (np.roll(hosts, shift, axis) != hosts).astype(np.float64) for shift in (1, -1)
        )
        away.append(np.minimum(strangers, joined))
    return float(cut.received(grid.time_block, away)[1].max()) / grid.time_block


def _round_numbers(longest: int, units: set[int]) -> list[int]:
    """Candidate block lengths: 1, 2, 3, 4, 6, 8, 12, ... times the depths of the methods, and the
    longest.
    """
    blocks = {1, longest}
    for power in range(longest.bit_length()):
        for times in (1 << power, 3 << power):
            blocks |= {times * unit for unit in units if times * unit <= longest}
    return sorted(blocks)


# Up to this many workers, all subsets are tried; with more, the subsets that remain when workers
# are dropped one by one.
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
    """Find the division with the shortest predicted time per step.

    Args:
        work: grid to divide.
        capacities: all workers in the order of their slabs.
        most: largest number of steps per block for a responsive run; a method's depth is allowed in
            any case.
        time_block: requested steps per block.
        shares: requested relative number of planes of each worker; all workers take part then.

    Raises:
        ConfigError: the requested shares do not fit.
        UnsupportedError: all memory together does not hold the planes.
    """
    # Equal workers with different names give equal divisions; without the names, subsets of them
    # are evaluated once.
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

    # No set of workers works: report the rooms that limit them.
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
    """Predicted time per step if `worker` took part in addition to the workers that have planes
    [s]; None if that is impossible.
    """
    members = tuple(k for k, planes in enumerate(division.planes) if planes or k == worker)
    together = _divide_among(work, [capacities[k] for k in members], most, None, None)
    return None if together is None else together.seconds_per_step


def predict(
    work: WorkEstimate, chosen: Sequence[Capacity], planes: Sequence[int], block: int
) -> Division:
    """The division with these planes, none of which is 0, and its predicted times."""
    return _predict(work, WorkerTable.of(chosen), planes, block)


def of_members(division: Division) -> Division:
    """A division without the workers that were left out."""
    members = [k for k, planes in enumerate(division.planes) if planes]
    return dataclasses.replace(
        division,
        planes=tuple(division.planes[k] for k in members),
        busy=tuple(division.busy[k] for k in members),
    )


def _subsets(everyone: Members, among: Callable[[Members], Division | None]) -> Iterator[Members]:
    """Sets of workers to try.

    Args:
        everyone: all workers.
        among: function that returns the best division among some of them.
    """
    if len(everyone) <= _ALL_SUBSETS:
        for size in range(len(everyone), 0, -1):
            yield from itertools.combinations(everyone, size)
        return

    def seconds(members: Members) -> float:
        division = among(members)
        return math.inf if division is None else division.seconds_per_step

    # With many workers: each alone, then greedy elimination of the worker whose removal gives the
    # shortest step.
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
    """The best division in which all of these workers take part, over the lengths of a block; None
    if there is none.
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
    """Block lengths to try: multiples of the largest depth among methods of fixed depth, if the
    planes allow that.
    """
    # A halo must fit into the neighbour's slab, at least in the even division.
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
    # Geometric spacing: relative differences of the lengths matter. A worker alone has no exchange,
    # so its longest block is best.
    steps = sorted({round(times ** (i / (_BLOCKS_TRIED - 1))) for i in range(_BLOCKS_TRIED)})
    return [depth * n for n in (steps if len(chosen) > 1 else [times])]


def _bounds(work: WorkEstimate, rooms: Numbers, block: int) -> tuple[Numbers, Numbers] | None:
    """(fewest, most) planes of each worker; None if no division satisfies them."""
    # A slab holds at least a halo's width, which its neighbour takes; its memory also holds its own
    # halos.
    halo, cuts = block * work.radius, _cuts(work, len(rooms))
    low = np.where(cuts > 0, max(1, halo), 1).astype(np.float64)
    high = rooms - cuts * halo
    possible = (low <= high).all() and low.sum() <= work.n_planes <= high.sum()
    return (low, high) if possible else None


def _cuts(work: WorkEstimate, count: int) -> Numbers:
    """Number of neighbours of each of `count` workers."""
    cuts = np.full(count, 2.0 if count > 1 else 0.0)
    if count > 1 and not work.periodic:
        cuts[[0, -1]] = 1.0
    return cuts


def _balance(
    work: WorkEstimate, crew: WorkerTable, bounds: tuple[Numbers, Numbers], block: int
) -> tuple[int, ...]:
    """Planes with which all workers have computed and sent their messages at the same time, as far
    as the bounds allow.
    """
    cuts = _cuts(work, crew.size)
    # Time of worker i with n planes: (n + twice) * plane_seconds + ready.
    twice = cuts * work.radius * (block - 1) / 2
    plane_seconds = crew.slowness(block) * work.plane_points * block
    passing = crew.latencies + block * work.radius * work.plane_bytes * crew.seconds_per_byte
    # A stencil of radius 0 needs no messages. A worker that does not wait for all others receives
    # halos when it needs them, whether hidden or not.
    times = ~crew.one_way * 1.0 + (not crew.together)
    waited = (work.radius > 0) * (1 - crew.overlapped) * times
    ready = crew.starts + waited * cuts * passing

    # The number of planes that all workers finish within a time grows linearly from each event at
    # which a worker reaches its fewest or most planes to the next such event.
    low, high = bounds[0], np.minimum(bounds[1], work.n_planes)
    moments = np.sort(np.concatenate([(n + twice) * plane_seconds + ready for n in (low, high)]))

    def ideal(seconds: Numbers) -> Numbers:
        return np.clip((seconds[..., None] - ready) / plane_seconds - twice, low, high)

    # Invert that piecewise linear function at the number of planes of the grid.
    seconds = np.interp(work.n_planes, ideal(moments).sum(axis=-1), moments)
    return _whole(ideal(np.asarray(seconds)), bounds, work.n_planes)


def _whole(ideal: Numbers, bounds: tuple[Numbers, Numbers], total: int) -> tuple[int, ...]:
    """Integers near the ideal values that add up to the total and respect the bounds."""
    lows, highs = bounds
    planes = [max(int(n), int(low)) for n, low in zip(ideal, lows, strict=True)]
    while (missing := total - sum(planes)) != 0:
        sign = 1 if missing > 0 else -1
        free = [k for k, n in enumerate(planes) if lows[k] <= n + sign <= highs[k]]
        # One plane each, those farthest from their ideal value first; if the sum is far off,
        # several passes are needed.
        free.sort(key=lambda k: sign * (planes[k] - ideal[k]))
        for k in free[: abs(missing)]:
            planes[k] += sign
    return tuple(planes)


def _as_asked(
    work: WorkEstimate, bounds: tuple[Numbers, Numbers], block: int, shares: Sequence[float]
) -> tuple[int, ...] | None:
    # Requested shares are rounded to whole planes of at least a halo's width; None if they violate
    # the bounds.
    shortest = max(1, block * work.radius if len(shares) > 1 else 1)
    pieces = split_by_speed(work.n_planes, shares, min_planes=shortest)
    planes = np.array([stop - start for start, stop in pieces])
    low, high = bounds
    return tuple(planes.tolist()) if ((low <= planes) & (planes <= high)).all() else None


def _predict(work: WorkEstimate, crew: WorkerTable, planes: Sequence[int], block: int) -> Division:
    count, n_cuts = len(planes), int(_cuts(work, len(planes)).sum())
    # Slabs as a decomposition with one piece along the second axis of `WorkEstimate.domain`.
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
    # Workers that were left out get 0 planes and no time.
    planes, busy = [0] * count, [0.0] * count
    for k, n, seconds in zip(members, division.planes, division.busy, strict=True):
        planes[k], busy[k] = n, seconds
    return dataclasses.replace(division, planes=tuple(planes), busy=tuple(busy))
