"""Partitions: the slab of each worker, and the possible numbers of pieces along each axis.

Cut along its first axis only, the grid falls into slabs in proportion to the speeds of their
workers. Cut along two or three axes, it falls into equal pieces. `search.py` predicts which cut is
fastest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tetris_sim.model.boundary import Boundary
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Domain, Parts

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
