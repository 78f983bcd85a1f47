"""Partitions: the slab of each worker, and the possible numbers of pieces along each axis.

Cut along its first axis only, the grid falls into slabs in proportion to the speeds of their
workers. Cut along two or three axes, it falls into equal pieces. `search.py` predicts which cut is
fastest. A slab larger than a device's memory passes through it in chunks (`Piece`), out of core.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.model.boundary import Boundary
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Domain, Parts, Streaming, WorkEstimate

# Least thickness of a slab in radii: the halos on both sides for 16 steps, the largest depth of a
# method. In thinner slabs the deepest methods lose their advantage, and thin slabs are seldom the
# fastest cut.
_THIN = 32

# Number of cuts along all three axes whose times are predicted: those with the least surface. 5040
# workers have 810 cuts.
_TRIED = 16


def split_by_speed(
    n_planes: int, speeds: Sequence[float], *, min_planes: int
) -> tuple[tuple[int, int], ...]:
    """Cut range(n_planes) into one piece per worker, in proportion to speed but none shorter than
    `min_planes`.

    >>> split_by_speed(100, [3.0, 1.0], min_planes=4)
    ((0, 75), (75, 100))
    >>> split_by_speed(10, [1000.0, 1.0], min_planes=4)
    ((0, 6), (6, 10))

    Args:
        n_planes: planes to distribute.
        speeds: relative speed of each worker, positive.
        min_planes: shortest piece allowed, since every halo must fit into the neighbour's piece.

    Returns:
        (start, stop) per worker, in order, covering everything.

    Raises:
        ValueError: there are fewer than len(speeds) * min_planes planes.
    """
    if n_planes < len(speeds) * min_planes:
        msg = (
            f"{n_planes} planes are too few for {len(speeds)} workers with at least {min_planes} "
            "each"
        )
        raise ValueError(msg)

    counts = [0] * len(speeds)
    free, planes = set(range(len(speeds))), n_planes
    # Workers that would get too few planes get the minimum; the others share the remainder by
    # speed. Repeat, because the others' parts have become smaller.
    while True:
        total = sum(speeds[k] for k in free)
        short = {k for k in free if planes * speeds[k] / total < min_planes}
        if not short:
            break
        for k in short:
            counts[k] = min_planes
        planes -= min_planes * len(short)
        free -= short

    # Largest remainder method: the pieces add up exactly, and none has more than one plane too
    # many.
    ideal = {k: planes * speeds[k] / total for k in free}
    for k in free:
        counts[k] = int(ideal[k])
    for k in sorted(free, key=lambda k: counts[k] - ideal[k])[
        : planes - sum(counts[k] for k in free)
    ]:
        counts[k] += 1

    ends = list(itertools.accumulate(counts))
    return tuple((end - count, end) for end, count in zip(ends, counts, strict=True))


def cut_along_axis_0(
    grid: Grid, boundary: Boundary, pieces: Sequence[tuple[int, int]], *, halo: int
) -> tuple[Slab, ...]:
    """The slabs of pieces of axis 0, with `halo` planes on each side that has a neighbour.

    Args:
        grid: grid to cut.
        boundary: boundary conditions, which say whether the first and the last piece are
            neighbours.
        pieces: (start, stop) of each slab.
        halo: planes kept beyond the owned ones.
    """
    rest = [(0, n) for n in grid.shape[1:]]
    periodic = [boundary.periodic(axis) for axis in range(grid.ndim)]
    halos = [halo, *(0 for _ in rest)]
    return tuple(_slab((piece, *rest), grid.shape, periodic, halos) for piece in pieces)


def likely_parts(domain: Domain, workers: int) -> Parts:
    """Number of pieces along each axis that is probably best, before anything is measured: slabs
    unless they are thin.
    """
    slabs = factorizations(workers, len(domain.shape))[0]
    if domain.shape[0] // workers >= max(_THIN * domain.radii[0], 1):
        return slabs
    return min(
        possible_parts(domain, workers), key=lambda parts: surface(domain, parts), default=slabs
    )


def possible_parts(domain: Domain, workers: int) -> list[Parts]:
    """Process grids for this number of workers in which halos for one step fit into the neighbours'
    pieces: all cuts of the first two axes, and of those of three axes the few with the least
    surface.
    """
    found = [
        parts
        for parts in factorizations(workers, len(domain.shape))
        if longest_block(domain, parts) >= 1
    ]
    three = [parts for parts in found if not has_whole_rows(parts)]
    least = sorted(three, key=lambda parts: surface(domain, parts))[:_TRIED]
    return [parts for parts in found if parts not in three or parts in least]


def factorizations(workers: int, ndim: int) -> list[Parts]:
    """All ways to cut into `workers` parts; those with whole rows and the most parts along the
    first axis come first.

    >>> factorizations(6, 2)
    [(6, 1), (3, 2), (2, 3), (1, 6)]
    >>> factorizations(4, 3)
    [(4, 1, 1), (2, 2, 1), (1, 4, 1), (2, 1, 2), (1, 2, 2), (1, 1, 4)]
    """
    if ndim == 1:
        return [(workers,)]
    divisors = [count for count in range(workers, 0, -1) if workers % count == 0]
    if ndim == 2:
        return [(first, workers // first) for first in divisors]
    return [
        (first, second, last)
        for last in reversed(divisors)
        for first, second in factorizations(workers // last, 2)
    ]


def is_slabs(parts: Parts) -> bool:
    """Whether only the first axis is cut."""
    return all(pieces == 1 for pieces in parts[1:])


def has_whole_rows(parts: Parts) -> bool:
    """Whether the last of three axes is not cut."""
    return len(parts) < 3 or parts[-1] == 1


def longest_block(domain: Domain, parts: Parts) -> int:
    """Largest number of steps between two exchanges for which every halo fits into the neighbour's
    part; 0 if a single step does not fit.
    """
    rooms = [
        n // pieces // max(radius, 1)
        for n, pieces, radius in zip(domain.shape, parts, domain.radii, strict=True)
        if pieces > 1
    ]
    # Without a cut there is no halo to fit: any length.
    return min(rooms, default=1 << 30)


def surface(domain: Domain, parts: Parts) -> int:
    """Points exchanged per step of halo width, over all cuts."""
    n_points, total = math.prod(domain.shape), 0
    for axis, (n, pieces, radius) in enumerate(zip(domain.shape, parts, domain.radii, strict=True)):
        # A periodic axis has one more cut, between its ends.
        cuts = pieces if domain.periodic[axis] and pieces > 1 else pieces - 1
        total += 2 * cuts * radius * (n_points // n)
    return total


def cut(
    domain: Domain, parts: Parts, weights: Sequence[float], time_block: int
) -> tuple[Slab, ...]:
    """The slab of each worker, with halos for `time_block` steps, in order of the pieces with the
    last axis varying fastest.

    Args:
        domain: grid to cut.
        parts: number of pieces along each axis.
        weights: relative speed of each worker, used if only the first axis is cut.
        time_block: steps between two exchanges.
    """
    halo = [time_block * radius for radius in domain.radii]
    pieces = axis_pieces(domain, parts, weights, time_block)
    boxes = itertools.product(*pieces)
    return tuple(_slab(box, domain.shape, domain.periodic, halo) for box in boxes)


def axis_pieces(
    domain: Domain, parts: Parts, weights: Sequence[float], time_block: int
) -> list[tuple[tuple[int, int], ...]]:
    """The pieces of each axis as (start, stop), from which `cut` makes slabs."""
    pieces = [evenly(n, count) for n, count in zip(domain.shape, parts, strict=True)]
    # As many parts along axis 0 as workers: only axis 0 is cut, so pieces can follow the speeds.
    if parts[0] == len(weights) > 1:
        halo = time_block * domain.radii[0]
        pieces[0] = split_by_speed(domain.shape[0], weights, min_planes=max(halo, 1))
    return pieces


def evenly(n: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Pieces of range(n) whose lengths differ by at most one.

    >>> evenly(7, 3)
    ((0, 2), (2, 4), (4, 7))
    """
    return tuple((n * k // parts, n * (k + 1) // parts) for k in range(parts))


def _slab(
    box: Sequence[tuple[int, int]],
    shape: Sequence[int],
    periodic: Sequence[bool],
    halo: Sequence[int],
) -> Slab:
    halos = []
    for (start, stop), n, joined, width in zip(box, shape, periodic, halo, strict=True):
        # A piece that spans a whole periodic axis wraps onto itself and needs no halo.
        around = joined and stop - start < n
        halos.append((width if start > 0 or around else 0, width if stop < n or around else 0))
    starts, stops = zip(*box, strict=True)
    return Slab(starts, stops, tuple(halos))


def redundant_points(slab: Slab, radii: Sequence[int], time_block: int) -> float:
    """Halo points computed in addition to the slab, per step, on average over the steps of a
    block.
    """
    grown = math.prod(
        n + sum(radius * (time_block - 1) / 2 for width in widths if width)
        for n, widths, radius in zip(slab.shape, slab.halo, radii, strict=True)
    )
    return grown - slab.n_points


def halo_points(slab: Slab) -> tuple[int, int]:
    """(messages, points) that a slab receives in one exchange."""
    messages, points = 0, 0
    for axis, widths in enumerate(slab.halo):
        for side, width in enumerate(widths):
            if width:
                messages += 1
                points += math.prod(high - low for low, high in slab.halo_ranges(axis, side))
    return messages, points


# Model of out-of-core streaming: how a slab larger than a device's memory passes through the
# device in chunks (`Piece`). Arithmetic only.
#
# A pass advances every chunk by some steps: its planes, and the planes that those steps reach on
# both sides, are copied to the device, advanced, and the planes of the chunk are copied back, while
# the next chunk arrives and the one before leaves. The planes beyond a chunk are computed twice;
# this trapezoid costs (steps - 1) * radius planes per chunk. In return the state lies in host
# memory only once, because a chunk is written back in place as soon as its neighbour has been read
# (Tetris 5.1).

_GAIN = 1.002  # longer passes and more chunks must be this much faster
_MORE_PIECES = 60  # beyond the fewest, up to which numbers of chunks are tried


@dataclass(frozen=True)
class Lane:
    """Rates and memory of a device through which chunks are streamed.

    Attributes:
        points_per_second: rate of point updates.
        depth: steps that its method makes at a time.
        bring: inverse bandwidth from the host [s/byte].
        take: inverse bandwidth to the host [s/byte].
        room: planes that fit into each of the device arrays between which chunks move.
        start: host time to start a chunk, while the device works on others [s].
    """

    points_per_second: float
    depth: int
    bring: float
    take: float
    room: int
    start: float = 0.0


def choose_streaming(
    work: WorkEstimate, lane: Lane, *, most_steps: int, block_steps: int
) -> Streaming | None:
    """Find the fastest steps per pass and number of chunks; None if not even the chunks of a single
    step fit.

    Few steps per pass do not hide the copies, many make wide trapezoids. Large chunks lose less by
    their trapezoids, but the first must arrive before anything is computed, and the last must leave
    before the block is done.

    Args:
        work: planes to stream.
        lane: the device.
        most_steps: largest number of steps per pass; a method's depth is allowed in any case.
        block_steps: steps after which everything must be back in host memory.
    """
    best, fastest = None, 0.0
    points = work.n_planes * work.plane_points
    for steps in range(lane.depth, max(most_steps, lane.depth) + 1, lane.depth):
        # More steps need wider surroundings, so once the chunks do not fit, they do not fit for
        # more steps either.
        fewest = fewest_pieces(work, lane, steps)
        if fewest is None:
            break
        for pieces in {fewest, *range(fewest, min(fewest + _MORE_PIECES, work.n_planes) + 1)}:
            streaming = streaming_with(work, lane, steps, pieces)
            if streaming is None:
                continue

            # Rate over a block, with the time to fill and drain the pipeline once.
            block = max(1, block_steps // steps) * steps * points
            rate = block / (block / streaming.points_per_second + streaming.start)
            if rate > _GAIN * fastest:
                best, fastest = streaming, rate
    return best


def fewest_pieces(work: WorkEstimate, lane: Lane, steps: int) -> int | None:
    """Least number of chunks into which the planes must be cut; None if a chunk would be narrower
    than the reach of the steps.
    """
    reach = steps * work.radius
    room = lane.room - 2 * reach
    if room < max(1, reach) or work.n_planes < reach:
        return None
    return -(-work.n_planes // room)


def streaming_with(work: WorkEstimate, lane: Lane, steps: int, pieces: int) -> Streaming | None:
    """The streaming with this many steps per pass and chunks, and its predicted rate; None if the
    chunks would be too narrow.

    The first chunk of a pass needs two chunks of the pass before, and with periodic planes also the
    last one.
    """
    reach = steps * work.radius
    planes = -(-work.n_planes // pieces)
    if pieces > 1 and work.n_planes // pieces < max(1, reach):
        return None

    # Sides of a chunk with surroundings, and the planes per step that these add to its computation.
    around = 0 if pieces == 1 and not work.periodic else 2
    surplus = around * work.radius * (steps - 1) / 2
    compute = steps * work.plane_points * (planes + surplus) / lane.points_per_second
    bring = (planes + around * reach) * work.plane_bytes * lane.bring
    take = planes * work.plane_bytes * lane.take

    # Time of a pass: the slowest stage of the pipeline sets the pace, unless dependences between
    # passes do. With periodic planes a pass starts after the one before has ended, so the pipeline
    # is filled and drained every time.
    slowest = max(compute, bring, take, lane.start)
    once = max(pieces * slowest, bring + take + min(pieces, 2) * compute)
    if work.periodic:
        once = pieces * slowest + bring + take

    return Streaming(
        steps=steps,
        planes=planes,
        pieces=pieces,
        points_per_second=steps * work.n_planes * work.plane_points / once,
        start=bring + take,
        redundant=surplus / (planes + surplus),
        hidden=max(bring, take) / compute,
        in_flight=min(pieces, blocks_in_flight(bring, compute, take)),
    )


def blocks_in_flight(*stages: float) -> int:
    """Number of blocks in progress that keeps the slowest stage of a pipeline always busy.

    >>> blocks_in_flight(1.0), blocks_in_flight(0.5, 1.0, 0.5), blocks_in_flight(0.9, 1.0, 0.9)
    (1, 2, 3)
    """
    return math.ceil(sum(stages) / max(stages) - 1e-9)


@dataclass(frozen=True)
class Piece:
    """A chunk of a slab on its way through a device.

    Attributes:
        slab: its planes in global indices, with the planes that its steps reach as halo.
        low: planes below it that are copied along: (first, count), counted from the first owned
            plane of the whole slab.
        high: planes above it, likewise.
    """

    slab: Slab
    low: tuple[int, int]
    high: tuple[int, int]


def largest_piece(problem: Problem, slab: Slab, streaming: Streaming) -> Slab:
    """A chunk of a slab with its halo, at least as large as any chunk of this streaming."""
    planes = min(streaming.planes, slab.shape[0] + sum(slab.halo[0]))
    reach = streaming.steps * problem.stencil.radii[0]
    stop = (slab.start[0] + planes, *slab.stop[1:])
    return Slab(slab.start, stop, ((reach, reach), *slab.halo[1:]))


def cut_into_pieces(
    slab: Slab, planes: int, reach: int, later: int, *, wraps: bool
) -> tuple[Piece, ...]:
    """The chunks of one pass.

    Args:
        slab: the whole slab.
        planes: most planes per chunk.
        reach: planes that the steps of the pass reach.
        later: planes that later passes reach before the halo of the slab is exchanged again.
        wraps: whether the first and the last plane are neighbours and both in this slab.
    """
    (below, above), rest = slab.halo[0], slab.halo[1:]
    # This pass must also advance the part of the slab's halo that later passes read.
    start, stop = -(later if below else 0), slab.shape[0] + (later if above else 0)
    count = max(1, -(-(stop - start) // planes))
    if reach:
        # No chunk is narrower than the reach, so that it reads from its direct neighbours only.
        count = max(1, min(count, (stop - start) // reach))
    cuts = [start + (stop - start) * k // count for k in range(count + 1)]

    pieces = []
    for k, (first, end) in enumerate(itertools.pairwise(cuts)):
        low = reach if k > 0 or below or wraps else 0
        high = reach if k < count - 1 or above or wraps else 0
        bounds = (slab.start[0] + first, *slab.start[1:]), (slab.start[0] + end, *slab.stop[1:])
        pieces.append(Piece(Slab(*bounds, ((low, high), *rest)), (first - low, low), (end, high)))
    return tuple(pieces)


def needed_later(pieces: Sequence[Piece], start: int) -> list[int]:
    """For each chunk, the last chunk that reads its planes; it may be written back once that one
    has been copied to the device.

    Args:
        pieces: chunks of a pass, in order.
        start: global index of the first plane of the slab, from which surroundings are counted.
    """
    spans = [(piece.slab.start[0] - start, piece.slab.stop[0] - start) for piece in pieces]
    last = []
    for k, (first, end) in enumerate(spans):
        # A later chunk reads this one if its lower surroundings overlap it. Upper surroundings are
        # read by earlier chunks, which were copied before.
        readers = [
            j for j in range(k + 1, len(pieces)) if pieces[j].low[0] < end and spans[j][0] > first
        ]
        last.append(max(readers, default=k))
    return last
