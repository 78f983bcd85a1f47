"""Model of out-of-core streaming: how a slab larger than a device's memory passes through the
device in chunks (`Piece`). Arithmetic only.

A pass advances every chunk by some steps: its planes, and the planes that those steps reach on both
sides, are copied to the device, advanced, and the planes of the chunk are copied back, while the
next chunk arrives and the one before leaves. The planes beyond a chunk are computed twice; this
trapezoid costs (steps - 1) * radius planes per chunk. In return the state lies in host memory only
once, because a chunk is written back in place as soon as its neighbour has been read (Tetris 5.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Streaming, WorkEstimate

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
