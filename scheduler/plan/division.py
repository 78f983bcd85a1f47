"""Division: how many planes each worker gets, and how many steps go between two exchanges.
Arithmetic only.

The model, for a block of k steps: a worker with p planes and c neighbours computes its planes k
times and the planes of its halos k - 1, k - 2, ..., 0 times. Then it gives c messages away, and
when all have done so takes c of them; each takes latency + bytes / bandwidth of its link (Tetris
5.3: k (alpha + n beta) against redundant work). What is wanted is the set of workers, the planes
and the k with the shortest time per step; a worker that would make it longer gets nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.scheduler.facts.link import Link
from tetris_sim.scheduler.plan.partition import split_by_speed

_ALL_SUBSETS = (
    4  # workers; of more, those are tried that are left when one after the other is dropped
)
_BLOCKS_TRIED = 48
_HALVINGS = 60  # of the time in which the planes are done: as exact as a float
# A step that does not fill the method's depth takes that many times as long: single sweeps beside
# the fastest fused method, 3 to 10 by stencil on an H200 (docs/benchmarks/gpu.md).
_LEFT_OVER = 4.0
FREE = Link(0.0, 0.0)
N = TypeVar("N", float, npt.NDArray[np.float64])


def stretched(block: int, left_over: N) -> N:
    """How many times as long steps take in blocks of so many, of which some do not fill the
    method's depth.
    """
    return 1 + (_LEFT_OVER - 1) * left_over / block


@dataclass(frozen=True)
class Work:
    """What is divided.

    Attributes:
        n_planes: of axis 0.
        plane_points: points of a plane, all fields.
        plane_bytes: that a plane takes in a message.
        radius: planes that a step reaches.
        periodic: whether the first and the last plane are neighbours.
    """

    n_planes: int
    plane_points: int
    plane_bytes: int
    radius: int
    periodic: bool = False

    def cuts(self, place: int, count: int) -> int:
        """Neighbours of worker number `place` of `count`."""
        if count == 1:
            return 0
        return 2 if self.periodic else (place > 0) + (place < count - 1)


@dataclass(frozen=True)
class Capacity:
    """What a worker can do.

    Attributes:
        name: of the worker.
        points_per_second: as measured.
        start: time that starting and ending a block takes [s].
        link: to the others: what giving a message away, or taking one, costs.
        room: planes that its memory holds, halos included.
        depth: steps that its method makes at a time; 1 if a block can be of any length.
    """

    name: str
    points_per_second: float
    start: float = 0.0
    link: Link = FREE
    room: int = 1 << 62
    depth: int = 1

    def slowness(self, block: int) -> float:
        """Seconds per point and step in blocks of so many steps."""
        return stretched(block, float(block % self.depth)) / self.points_per_second

    def computing(self, work: Work, planes: float, cuts: int, block: int) -> float:
        """Time that it computes in a block."""
        points = work.plane_points * (planes + cuts * work.radius * (block - 1) / 2) * block
        return self.start + points * self.slowness(block)

    def passing(self, work: Work, cuts: int, block: int) -> float:
        """Time in which it gives its messages away, or takes those of its neighbours."""
        n_bytes = block * work.radius * work.plane_bytes
        return cuts * (self.link.latency + n_bytes * self.link.seconds_per_byte)

    def planes_in(self, work: Work, seconds: float, cuts: int, block: int) -> float:
        """Planes that it can own to have computed and given its messages away in so long; negative
        if none.
        """
        points = (
            (seconds - self.start - self.passing(work, cuts, block)) / self.slowness(block) / block
        )
        return points / work.plane_points - cuts * work.radius * (block - 1) / 2


@dataclass(frozen=True)
class Division:
    """Who gets what, and what that should take.

    Attributes:
        planes: of each worker; 0 for one that is left out.
        time_block: steps between two exchanges.
        block_seconds: predicted time of a block, exchange included [s].
        busy: predicted time that each worker computes in a block [s].
        exchange_seconds: predicted part of a block in which nobody computes who should [s].
        replicated: points that are computed twice in a block.
        messages: of an exchange.
        message_bytes: of each of them.
    """

    planes: tuple[int, ...]
    time_block: int
    block_seconds: float
    busy: tuple[float, ...]
    exchange_seconds: float
    replicated: int
    messages: int
    message_bytes: int

    @property
    def seconds_per_step(self) -> float:
        """Predicted time of a step [s]."""
        return self.block_seconds / self.time_block

    def idle(self, worker: int) -> float:
        """Predicted share of the time in which a worker waits, for others or for the exchange; 0 to
        1.
        """
        return 1.0 - self.busy[worker] / self.block_seconds


@dataclass(frozen=True)
class Profile:
    """What a division was made from, and what it says (Tetris 5.2).

    Attributes:
        work: what is divided.
        capacities: of the workers that take part, as measured; in a run, those of its last blocks
            take their place.
        division: between them.
        in_flight: blocks, or pieces of one that is streamed, that are under way at a time.
    """

    work: Work
    capacities: tuple[Capacity, ...]
    division: Division
    in_flight: int = 1


def divide(
    work: Work,
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
    best: Division | None = None
    everyone = range(len(capacities))
    for members in (
        [tuple(everyone)] if shares is not None else _subsets(work, capacities, most, time_block)
    ):
        found = _divide_among(work, capacities, members, most, time_block, shares)
        if found is not None and (best is None or found.seconds_per_step < best.seconds_per_step):
            best = found
    if best is not None:
        return best
    if shares is not None:
        msg = (
            f"compute.shares gives a worker fewer than {work.radius} of the {work.n_planes} "
            f"planes, or more than its memory holds ({_rooms(capacities)}). Change the shares, or "
            "leave them out."
        )
        raise ConfigError(msg)
    msg = (
        f"{work.n_planes} planes do not fit into the memory of the workers, which is for "
        f"{_rooms(capacities)}"
    )
    raise UnsupportedError(msg)


def without(
    work: Work, capacities: Sequence[Capacity], worker: int, division: Division, *, most: int
) -> float | None:
    """Predicted seconds per step if everyone who has planes and `worker` too, but nobody else, took
    part.
    """
    members = tuple(k for k, planes in enumerate(division.planes) if planes or k == worker)
    found = _divide_among(work, capacities, members, most, None, None)
    return None if found is None else found.seconds_per_step


def blocks_in_flight(*stages: float) -> int:
    """Blocks that must be under way at a time so that the slowest stage of a pipeline never waits.

    >>> blocks_in_flight(1.0), blocks_in_flight(0.5, 1.0, 0.5), blocks_in_flight(0.9, 1.0, 0.9)
    (1, 2, 3)
    """
    return math.ceil(sum(stages) / max(stages) - 1e-9)


def _rooms(capacities: Sequence[Capacity]) -> str:
    return ", ".join(f"{each.name} {each.room}" for each in capacities)


def _subsets(
    work: Work, capacities: Sequence[Capacity], most: int, time_block: int | None
) -> Iterator[tuple[int, ...]]:
    """Sets of workers that are worth a try."""
    everyone = tuple(range(len(capacities)))
    if len(everyone) <= _ALL_SUBSETS:
        for size in range(len(everyone), 0, -1):
            yield from itertools.combinations(everyone, size)
        return
    yield from ((k,) for k in everyone)
    members = everyone
    while len(members) > 1:
        yield members
        rests = [tuple(k for k in members if k != out) for out in members]
        timed = [
            (_divide_among(work, capacities, rest, most, time_block, None), rest) for rest in rests
        ]
        members = min(
            timed, key=lambda pair: math.inf if pair[0] is None else pair[0].seconds_per_step
        )[1]


def _divide_among(
    work: Work,
    capacities: Sequence[Capacity],
    members: tuple[int, ...],
    most: int,
    time_block: int | None,
    shares: Sequence[float] | None,
) -> Division | None:
    """The best division among all of these workers, over the lengths of a block; None if there is
    none.
    """
    chosen = [capacities[k] for k in members]
    best = None
    for block in _blocks(work, chosen, most, time_block):
        if shares is None:
            planes = _balance(work, chosen, block)
        else:
            planes = _as_asked(work, chosen, block, [shares[k] for k in members])
        if planes is None:
            continue
        found = predict(work, chosen, planes, block)
        if best is None or found.seconds_per_step < best.seconds_per_step:
            best = found
    return None if best is None else _for_everyone(best, members, len(capacities))


def _blocks(work: Work, chosen: Sequence[Capacity], most: int, time_block: int | None) -> list[int]:
    """Lengths of a block to be tried: whole multiples of the deepest method, if the planes allow
    that.
    """
    limit = most
    if len(chosen) > 1 and work.radius:
        limit = work.n_planes // (len(chosen) * work.radius)
    if limit < 1:
        return []
    if time_block is not None:
        return [min(time_block, limit)] if len(chosen) > 1 else [time_block]
    depth = max(each.depth for each in chosen)
    if depth > limit:
        return [limit] if len(chosen) > 1 else [depth]
    times = max(1, min(limit, most) // depth)
    steps = sorted({round(times ** (i / (_BLOCKS_TRIED - 1))) for i in range(_BLOCKS_TRIED)})
    return [depth * n for n in (steps if len(chosen) > 1 else [times])]


def _bounds(work: Work, chosen: Sequence[Capacity], block: int) -> list[tuple[int, int]] | None:
    """(fewest, most) planes of each; None if they cannot add up."""
    count = len(chosen)
    bounds = []
    for place, each in enumerate(chosen):
        cuts = work.cuts(place, count)
        bounds.append(
            (max(1, block * work.radius) if cuts else 1, each.room - cuts * block * work.radius)
        )
    if any(low > high for low, high in bounds):
        return None
    fits = sum(low for low, _ in bounds) <= work.n_planes <= sum(high for _, high in bounds)
    return bounds if fits else None


def _balance(work: Work, chosen: Sequence[Capacity], block: int) -> tuple[int, ...] | None:
    """Planes with which all are done at the same time, as far as their bounds allow."""
    bounds = _bounds(work, chosen, block)
    if bounds is None:
        return None
    count = len(chosen)

    def ideal(seconds: float) -> list[float]:
        planes = [
            each.planes_in(work, seconds, work.cuts(k, count), block)
            for k, each in enumerate(chosen)
        ]
        return [min(max(n, low), high) for n, (low, high) in zip(planes, bounds, strict=True)]

    low = 0.0
    high = max(
        each.computing(work, work.n_planes, 2, block) + each.passing(work, 2, block)
        for each in chosen
    )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if sum(ideal(middle)) >= work.n_planes else (middle, high)
    return _whole(ideal(high), bounds, work.n_planes)


def _whole(
    ideal: Sequence[float], bounds: Sequence[tuple[int, int]], total: int
) -> tuple[int, ...]:
    """Whole numbers near the ideal ones that add up to the total and keep the bounds."""
    planes = [max(int(n), low) for n, (low, _) in zip(ideal, bounds, strict=True)]
    while (missing := total - sum(planes)) != 0:
        sign = 1 if missing > 0 else -1
        free = [k for k, (low, high) in enumerate(bounds) if low <= planes[k] + sign <= high]
        # Those who are farthest from their ideal first, one plane each; a sum far off goes to the
        # largest.
        free.sort(key=lambda k: sign * (planes[k] - ideal[k]))
        for k in free[: abs(missing)]:
            planes[k] += sign
    return tuple(planes)


def _as_asked(
    work: Work, chosen: Sequence[Capacity], block: int, shares: Sequence[float]
) -> tuple[int, ...] | None:
    bounds = _bounds(work, chosen, block)
    if bounds is None:
        return None
    pieces = split_by_speed(
        work.n_planes, shares, min_planes=max(1, block * work.radius if len(chosen) > 1 else 1)
    )
    planes = tuple(stop - start for start, stop in pieces)
    return (
        planes
        if all(low <= n <= high for n, (low, high) in zip(planes, bounds, strict=True))
        else None
    )


def predict(work: Work, chosen: Sequence[Capacity], planes: Sequence[int], block: int) -> Division:
    """What certain planes would take, none of which is 0."""
    count = len(chosen)
    cuts = [work.cuts(k, count) for k in range(count)]
    busy = tuple(
        each.computing(work, n, c, block) for each, n, c in zip(chosen, planes, cuts, strict=True)
    )
    passing = [each.passing(work, c, block) for each, c in zip(chosen, cuts, strict=True)]
    given = max(map(sum, zip(busy, passing, strict=True)))
    return Division(
        planes=tuple(planes),
        time_block=block,
        block_seconds=given + max(passing),
        busy=busy,
        exchange_seconds=given + max(passing) - max(busy),
        replicated=sum(cuts) * work.radius * block * (block - 1) // 2 * work.plane_points,
        messages=sum(cuts),
        message_bytes=block * work.radius * work.plane_bytes if count > 1 else 0,
    )


def of_members(division: Division) -> Division:
    """A division without those that were left out."""
    members = [k for k, planes in enumerate(division.planes) if planes]
    return dataclasses.replace(
        division,
        planes=tuple(division.planes[k] for k in members),
        busy=tuple(division.busy[k] for k in members),
    )


def _for_everyone(division: Division, members: tuple[int, ...], count: int) -> Division:
    planes, busy = [0] * count, [0.0] * count
    for k, n, seconds in zip(members, division.planes, division.busy, strict=True):
        planes[k], busy[k] = n, seconds
    return dataclasses.replace(division, planes=tuple(planes), busy=tuple(busy))
