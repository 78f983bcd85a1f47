"""Scaling: what would many GPUs do with one grid? Arithmetic only, the same that the scheduler
plans ranks with.

A step takes as long as the slowest rank computes, halos that are computed twice included, and its
part of an exchange: latency + bytes * seconds per byte for each message, one after the other
(Tetris 5.3: k (alpha + n beta)), and one agreement of all ranks. Beyond what
`scheduler/plan/ranks.py` asks, messages within a computer and between computers differ, a GPU is
slower on fewer points, and steps that do not fill the depth of its kernels take longer
(`WorkerTable.slowness`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Capacity, Domain, Link, Parts
from tetris_sim.scheduler.plan.cost import BLOCK_SECONDS, WorkerTable
from tetris_sim.scheduler.plan.partition import (
    factorizations,
    halo_points,
    longest_block,
    redundant_points,
)
from tetris_sim.scheduler.plan.search import fastest_grid

# of a block: as `scheduler/plan/find.py` has it for a worker with a thread of its own
_START_SECONDS = 5e-5
_BLOCKS_TRIED = 32
_WAYS = 2  # of an agreement: to the root and back


@dataclass(frozen=True)
class Cluster:
    """Equal GPUs, one rank each, in equal computers; neighbouring ranks are in one computer where
    that is possible.

    Attributes:
        rates: points per second of a GPU, by the points that it has.
        depth: steps that its kernels make at a time.
        near: what a message costs between GPUs of one computer.
        far: what it costs between computers.
        hop: time of a short message between computers, of which agreements are made [s].
        gpus_each: GPUs of a computer.
        beside: whether messages travel while a GPU computes what needs none of them, which the
            program does not do.
    """

    rates: Mapping[int, float]
    depth: int
    near: Link
    far: Link
    hop: float
    gpus_each: int = 8
    beside: bool = False

    def rate(self, points: float) -> float | None:
        """Points per second of a GPU with so many points; None if that is fewer than were ever
        measured.
        """
        known = sorted(self.rates)
        if points < known[0]:
            return None
        logs = [math.log(each) for each in known]
        return float(np.interp(math.log(points), logs, [self.rates[each] for each in known]))


@dataclass(frozen=True)
class Prediction:
    """What some GPUs would do.

    Attributes:
        gpus: their number.
        shape: of the grid.
        parts: into how many pieces each axis is cut.
        time_block: steps between two exchanges.
        seconds_per_step: of the whole grid [s].
        twice: share of the point updates that are made twice.
        exchanging: share of the time of a step in which messages and agreements keep the slowest
            rank.
        efficiency: of as many times one GPU with 2^30 points, or the most that were measured.
    """

    gpus: int
    shape: tuple[int, ...]
    parts: Parts
    time_block: int
    seconds_per_step: float
    twice: float
    exchanging: float
    efficiency: float

    @property
    def points_per_second(self) -> float:
        """Of the whole grid."""
        return math.prod(self.shape) / self.seconds_per_step


def on_grid(problem: Problem, shape: Sequence[int]) -> Problem:
    """The same on another grid, whose state is never made."""
    return problem.on_shape(shape)


def predict(problem: Problem, parts: Parts, cluster: Cluster, block: int) -> Prediction | None:
    """With so many pieces and steps per block; None if the pieces are smaller than any that was
    measured.

    Args:
        problem: of which all axes that are cut are periodic, so that all pieces are alike.
        parts: pieces of each axis.
        cluster: what computes.
        block: steps between two exchanges, no more than `longest_block` allows.
    """
    piece = largest_piece(problem, parts, block)
    rate = cluster.rate(piece.n_points)
    if rate is None:
        return None
    gpus, radii = math.prod(parts), problem.stencil.radii
    redundant = redundant_points(piece, radii, block)
    crew = WorkerTable.of([Capacity("gpu", rate, depth=cluster.depth)])
    slowness = float(crew.slowness(block)[0])
    computing = (piece.n_points + redundant) * problem.n_fields * slowness
    messages = exchange_seconds(problem, piece, parts, cluster)
    if cluster.beside:
        inside = inner_points(piece) * problem.n_fields * slowness * block
        messages = max(0.0, messages - inside)
    passing = (messages + agreement_seconds(gpus, cluster)) / block
    step = computing + passing + _START_SECONDS / block
    alone = cluster.rate(1 << 30)
    assert alone is not None
    return Prediction(
        gpus=gpus,
        shape=problem.grid.shape,
        parts=parts,
        time_block=block,
        seconds_per_step=step,
        twice=redundant / (piece.n_points + redundant),
        exchanging=passing / step,
        efficiency=problem.grid.n_points / step / gpus / alone,
    )


def predict_planned(problem: Problem, gpus: int, cluster: Cluster) -> Prediction | None:
    """Cut as the scheduler cuts for ranks, with the fastest block."""
    return _with_best_block(problem, planned_parts(problem, gpus, cluster), cluster)


def predict_best(problem: Problem, gpus: int, cluster: Cluster) -> Prediction | None:
    """Cut in the fastest way, with the fastest block; see `predict`."""
    ways = factorizations(gpus, problem.grid.ndim)
    fitting = [parts for parts in ways if longest_block(Domain.of(problem), parts) >= 1]
    found = [_with_best_block(problem, parts, cluster) for parts in fitting]
    return min(
        (each for each in found if each is not None),
        key=lambda each: each.seconds_per_step,
        default=None,
    )


def planned_parts(
    problem: Problem, gpus: int, cluster: Cluster, time_block: int | None = None
) -> Parts:
    """As `scheduler/plan/ranks.py` cuts, which knows one speed and one link, the slowest."""
    rate = cluster.rate(max(problem.grid.n_points / gpus, min(cluster.rates)))
    assert rate is not None
    link = cluster.far if gpus > cluster.gpus_each else cluster.near
    computers = [rank // cluster.gpus_each for rank in range(gpus)]
    gpu = Capacity("gpu", rate, link=link, depth=cluster.depth, one_way=True)
    crew = WorkerTable.of([gpu] * gpus)
    return fastest_grid(Domain.of(problem), crew, time_block, computers=computers)[0].parts


def largest_piece(problem: Problem, parts: Parts, block: int) -> Slab:
    """The largest of the pieces, which are cut evenly, with halos on both sides of each axis that
    is cut.
    """
    shape = tuple(-(-n // pieces) for n, pieces in zip(problem.grid.shape, parts, strict=True))
    halo = tuple(
        (block * radius, block * radius) if pieces > 1 else (0, 0)
        for pieces, radius in zip(parts, problem.stencil.radii, strict=True)
    )
    return Slab((0,) * len(shape), shape, halo)


def inner_points(piece: Slab) -> int:
    """Points that need no halo during a block."""
    return math.prod(
        max(0, n - sum(widths)) for n, widths in zip(piece.shape, piece.halo, strict=True)
    )


def exchange_seconds(problem: Problem, piece: Slab, parts: Parts, cluster: Cluster) -> float:
    """Time that the rank with the dearest neighbours takes for its messages, one after the
    other.
    """
    near, far = [], []
    for axis, (below, _) in enumerate(piece.halo):
        points = math.prod(high - low for low, high in piece.halo_ranges(axis, 0)) if below else 0
        n_bytes = points * problem.n_fields * problem.dtype.itemsize
        near.append(cluster.near.latency + n_bytes * cluster.near.seconds_per_byte)
        far.append(cluster.far.latency + n_bytes * cluster.far.seconds_per_byte)
    messages, _ = halo_points(piece)
    per_axis = [2 * bool(below) for below, _ in piece.halo]
    assert messages == sum(per_axis)
    return max(
        sum(away * far[k] + (per_axis[k] - away) * near[k] for k, away in enumerate(aways))
        for aways in far_neighbours(parts, cluster.gpus_each)
    )


@functools.lru_cache
def far_neighbours(parts: Parts, gpus_each: int) -> frozenset[tuple[int, ...]]:
    """For each kind of rank, how many of its two neighbours along each axis are in other computers.

    Ranks lie as slabs do, the last axis that is cut varying fastest, and fill one computer after
    the other.

    >>> sorted(far_neighbours((16, 1), 8)), sorted(far_neighbours((4, 8), 8))
    ([(0, 0), (1, 0)], [(2, 0)])
    """
    places = np.arange(math.prod(parts)).reshape(parts)
    computers = places // gpus_each
    counts = []
    for axis, pieces in enumerate(parts):
        aways = (
            [np.roll(computers, shift, axis) != computers for shift in (1, -1)]
            if pieces > 1
            else []
        )
        counts.append(sum((away.astype(int) for away in aways), np.zeros(parts, dtype=int)))
    return frozenset(zip(*(count.ravel().tolist() for count in counts), strict=True))


def agreement_seconds(gpus: int, cluster: Cluster) -> float:
    """Time in which all ranks agree on what comes next, once per block: a tree to the root and
    back.
    """
    return _WAYS * math.ceil(math.log2(gpus)) * cluster.hop


def _with_best_block(problem: Problem, parts: Parts, cluster: Cluster) -> Prediction | None:
    found = [predict(problem, parts, cluster, block) for block in _blocks(problem, parts, cluster)]
    return min(
        (each for each in found if each is not None),
        key=lambda each: each.seconds_per_step,
        default=None,
    )


def _blocks(problem: Problem, parts: Parts, cluster: Cluster) -> list[int]:
    """Whole multiples of the depth, or what fits where not even that does."""
    longest = longest_block(Domain.of(problem), parts)
    if longest < cluster.depth:
        return list(range(1, longest + 1))
    rate = cluster.rate(max(problem.grid.n_points / math.prod(parts), min(cluster.rates)))
    assert rate is not None
    steps = int(BLOCK_SECONDS * rate * math.prod(parts) / problem.grid.n_points)
    times = max(1, min(longest, steps) // cluster.depth)
    return [
        cluster.depth * n
        for n in sorted({round(times ** (k / (_BLOCKS_TRIED - 1))) for k in range(_BLOCKS_TRIED)})
    ]
