"""Streaming: how a slab that is larger than a device's memory goes through it. Arithmetic only.

A pass makes some steps with every piece: its planes and, on both sides, the planes that those steps
reach are brought to the device, advanced there, and the planes of the piece are taken back, while
the next piece is brought and the one before is on its way out. The planes beyond a piece are
computed twice: this trapezoid costs (steps - 1) * radius planes per piece. In return the state lies
in host memory once, because a piece is written back where it came from as soon as its neighbour has
been read (Tetris 5.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.domain import Streaming, WorkEstimate

_GAIN = 1.002  # longer passes and more pieces must be this much faster
_MORE_PIECES = 60  # than must be, that are tried


@dataclass(frozen=True)
class Lane:
    """What a device does with a piece.

    Attributes:
        points_per_second: that it computes.
        depth: steps that its method makes at a time.
        bring: seconds per byte from the host.
        take: seconds per byte to the host.
        room: planes that each of the arrays can have between which pieces move.
        start: time of the host to start a piece, while the device is at work on others [s].
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
    """The steps of a pass and the pieces that are fastest; None if not even one step's pieces fit.

    Few steps do not hide the copies, many make wide trapezoids. Large pieces lose less by their
    trapezoids, but the first one must arrive before anything is computed, and the last one leave
    before the block is done.

    Args:
        work: the planes that go through.
        lane: the device.
        most_steps: that a pass may have; a method's depth is allowed in any case.
        block_steps: after which everything must be back.
    """
    best, fastest = None, 0.0
    points = work.n_planes * work.plane_points
    for steps in range(lane.depth, max(most_steps, lane.depth) + 1, lane.depth):
        fewest = fewest_pieces(work, lane, steps)
        if fewest is None:
            break
        for pieces in {fewest, *range(fewest, min(fewest + _MORE_PIECES, work.n_planes) + 1)}:
            streaming = streaming_with(work, lane, steps, pieces)
            if streaming is None:
                continue

            block = max(1, block_steps // steps) * steps * points
            rate = block / (block / streaming.points_per_second + streaming.start)
            if rate > _GAIN * fastest:
                best, fastest = streaming, rate
    return best


def fewest_pieces(work: WorkEstimate, lane: Lane, steps: int) -> int | None:
    """Into how many pieces the planes must be cut at least; None if they would be narrower than
    what steps reach.
    """
    reach = steps * work.radius
    room = lane.room - 2 * reach
    if room < max(1, reach) or work.n_planes < reach:
        return None
    return -(-work.n_planes // room)


def streaming_with(work: WorkEstimate, lane: Lane, steps: int, pieces: int) -> Streaming | None:
    """What so many steps per pass and so many pieces would give; None if the pieces would be too
    narrow.

    The first piece of a pass needs two pieces of the pass before, and where planes wrap around, the
    last one too.
    """
    reach = steps * work.radius
    planes = -(-work.n_planes // pieces)
    if pieces > 1 and work.n_planes // pieces < max(1, reach):
        return None

    around = 0 if pieces == 1 and not work.periodic else 2
    surplus = around * work.radius * (steps - 1) / 2
    compute = steps * work.plane_points * (planes + surplus) / lane.points_per_second
    bring = (planes + around * reach) * work.plane_bytes * lane.bring
    take = planes * work.plane_bytes * lane.take

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
    """Blocks that must be under way at a time so that the slowest stage of a pipeline never waits.

    >>> blocks_in_flight(1.0), blocks_in_flight(0.5, 1.0, 0.5), blocks_in_flight(0.9, 1.0, 0.9)
    (1, 2, 3)
    """
    return math.ceil(sum(stages) / max(stages) - 1e-9)


@dataclass(frozen=True)
class Piece:
    """A part of a slab on its way through a device.

    Attributes:
        slab: its planes in global indices, and as halo the planes that its steps reach.
        low: planes below it that are brought: (first, count), counted from the first owned plane of
            the whole slab.
        high: the same above it.
    """

    slab: Slab
    low: tuple[int, int]
    high: tuple[int, int]


def largest_piece(problem: Problem, slab: Slab, streaming: Streaming) -> Slab:
    """A piece of a slab with its halo; none of a streaming's pieces is larger."""
    planes = min(streaming.planes, slab.shape[0] + sum(slab.halo[0]))
    reach = streaming.steps * problem.stencil.radii[0]
    stop = (slab.start[0] + planes, *slab.stop[1:])
    return Slab(slab.start, stop, ((reach, reach), *slab.halo[1:]))


def cut_into_pieces(
    slab: Slab, planes: int, reach: int, later: int, *, wraps: bool
) -> tuple[Piece, ...]:
    """The pieces of one pass.

    Args:
        slab: everything.
        planes: most that a piece has.
        reach: planes that the steps of the pass reach.
        later: planes that later passes will reach before the halo of the slab is renewed.
        wraps: whether the first and the last plane are neighbours, and both in this slab.
    """
    (below, above), rest = slab.halo[0], slab.halo[1:]
    start, stop = -(later if below else 0), slab.shape[0] + (later if above else 0)
    count = max(1, -(-(stop - start) // planes))
    if reach:
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
    """For each piece, the last one that reads its planes; it may be written back when that one has
    been brought.

    Args:
        pieces: of a pass, in order.
        start: global index of the first plane of the slab, from which the planes beside pieces are
            counted.
    """
    spans = [(piece.slab.start[0] - start, piece.slab.stop[0] - start) for piece in pieces]
    last = []
    for k, (first, end) in enumerate(spans):
        readers = [
            j for j in range(k + 1, len(pieces)) if pieces[j].low[0] < end and spans[j][0] > first
        ]
        last.append(max(readers, default=k))
    return last
