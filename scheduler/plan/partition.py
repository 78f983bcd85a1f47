"""Partition: which slab does each worker get, and into how many parts can each axis be cut?

Cut along its first axis only, the grid falls into slabs as long as their workers are fast. Cut
along two or three, it falls into equal pieces. Which cut is fastest, `search.py` predicts from
what was measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tetris_sim.model.boundary import Boundary
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.domain import Domain, Parts

# Reaches of a step: the halos on both sides of a slab for 16 steps, as many as the deepest methods
# make at a time. In thinner ones these could not show what they can, and they are seldom the
# fastest cut.
_THIN = 32

# Cuts along all three axes whose times are predicted: those with the least surface. 5040 workers
# have 810 cuts.
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
        min_planes: shortest piece allowed; every halo must fit into the neighbour's piece.

    Returns:
        (start, stop) per worker, in order, covering everything.

    Raises:
        ValueError: if there are fewer than len(speeds) * min_planes planes.
    """
    if n_planes < len(speeds) * min_planes:
        msg = (
            f"{n_planes} planes are too few for {len(speeds)} workers with at least {min_planes} "
            "each"
        )
        raise ValueError(msg)

    counts = [0] * len(speeds)
    free, planes = set(range(len(speeds))), n_planes
    # Workers that would get too little get the minimum; the others share what is left by speed.
    while True:
        total = sum(speeds[k] for k in free)
        short = {k for k in free if planes * speeds[k] / total < min_planes}
        if not short:
            break
        for k in short:
            counts[k] = min_planes
        planes -= min_planes * len(short)
        free -= short

    # Largest remainder, so that the pieces add up exactly and nobody gets more than one plane too
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
    """The slabs of pieces of axis 0, with `halo` planes wherever a side has a neighbour.

    Args:
        grid: what is cut.
        boundary: tells whether the first and the last piece are neighbours.
        pieces: (start, stop) per slab.
        halo: planes kept beyond the owned ones.
    """
    rest = [(0, n) for n in grid.shape[1:]]
    periodic = [boundary.periodic(axis) for axis in range(grid.ndim)]
    halos = [halo, *(0 for _ in rest)]
    return tuple(_slab((piece, *rest), grid.shape, periodic, halos) for piece in pieces)


def likely_parts(domain: Domain, workers: int) -> Parts:
    """Into how many pieces each axis will probably be cut, when nothing is measured yet: slabs
    unless they are thin.
    """
    slabs = factorizations(workers, len(domain.shape))[0]
    if domain.shape[0] // workers >= max(_THIN * domain.radii[0], 1):
        return slabs
    return min(
        possible_parts(domain, workers), key=lambda parts: surface(domain, parts), default=slabs
    )


def possible_parts(domain: Domain, workers: int) -> list[Parts]:
    """Process grids of so many workers in which halos for one step fit into the neighbours' pieces:
    all along the first two axes, and of those along three the few with the least surface.
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
    """Every way to cut into `workers` parts, those with whole rows and the most along the first
    axis first.

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
    """Most steps between two exchanges for which every halo fits into the neighbour's part; 0 if
    not even one does.
    """
    rooms = [
        n // pieces // max(radius, 1)
        for n, pieces, radius in zip(domain.shape, parts, domain.radii, strict=True)
        if pieces > 1
    ]
    return min(rooms, default=1 << 30)


def surface(domain: Domain, parts: Parts) -> int:
    """Points that are exchanged per step of a halo, over all cuts."""
    n_points, total = math.prod(domain.shape), 0
    for axis, (n, pieces, radius) in enumerate(zip(domain.shape, parts, domain.radii, strict=True)):
        cuts = pieces if domain.periodic[axis] and pieces > 1 else pieces - 1
        total += 2 * cuts * radius * (n_points // n)
    return total


def cut(
    domain: Domain, parts: Parts, weights: Sequence[float], time_block: int
) -> tuple[Slab, ...]:
    """The slab of each worker, with halos for `time_block` steps; the last cut axis varies fastest.

    Args:
        domain: what is cut.
        parts: pieces per axis.
        weights: relative speed of each worker, used where only the first axis is cut.
        time_block: steps between two exchanges.
    """
    halo = [time_block * radius for radius in domain.radii]
    pieces = axis_pieces(domain, parts, weights, time_block)
    boxes = itertools.product(*pieces)
    return tuple(_slab(box, domain.shape, domain.periodic, halo) for box in boxes)


def axis_pieces(
    domain: Domain, parts: Parts, weights: Sequence[float], time_block: int
) -> list[tuple[tuple[int, int], ...]]:
    """The pieces of each axis, as (start, stop), of which `cut` makes slabs."""
    pieces = [evenly(n, count) for n, count in zip(domain.shape, parts, strict=True)]
    if parts[0] == len(weights) > 1:
        halo = time_block * domain.radii[0]
        pieces[0] = split_by_speed(domain.shape[0], weights, min_planes=max(halo, 1))
    return pieces


def evenly(n: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Pieces of range(n) whose lengths differ by one at most.

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
        around = joined and stop - start < n
        halos.append((width if start > 0 or around else 0, width if stop < n or around else 0))
    starts, stops = zip(*box, strict=True)
    return Slab(starts, stops, tuple(halos))


def redundant_points(slab: Slab, radii: Sequence[int], time_block: int) -> float:
    """Points outside the slab that are computed with it, on average over the steps of a block."""
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
