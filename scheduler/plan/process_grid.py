"""Process grid: into how many parts can each axis be cut, and which slab does each worker then get?

Cut along its first axis only, the grid falls into slabs as long as their workers are fast. Cut
along the first two, it falls into equal pieces. Which cut is fastest, `fastest_cut.py` predicts
from what was measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tetris_sim.boundary import Boundary
from tetris_sim.grid import Grid
from tetris_sim.problem import Problem
from tetris_sim.scheduler.plan.partition import split_by_speed
from tetris_sim.slab import Slab

Parts = tuple[int, ...]  # per axis, into how many pieces it is cut
# Reaches of a step: the halos on both sides of a slab for 16 steps, as many as the deepest methods
# make at a time. In thinner ones these could not show what they can, and they are seldom the
# fastest cut.
_THIN = 32


def likely_parts(problem: Problem, workers: int) -> Parts:
    """Into how many pieces each axis will probably be cut, when nothing is measured yet: slabs
    unless they are thin.
    """
    slabs = factorizations(workers, problem.grid.ndim)[0]
    if problem.grid.shape[0] // workers >= max(_THIN * problem.stencil.radii[0], 1):
        return slabs
    return min(
        possible_parts(problem, workers), key=lambda parts: surface(problem, parts), default=slabs
    )


def possible_parts(problem: Problem, workers: int) -> list[Parts]:
    """Every process grid of so many workers in which halos for one step fit into the neighbours'
    pieces.
    """
    return [
        parts
        for parts in factorizations(workers, problem.grid.ndim)
        if longest_block(problem, parts) >= 1
    ]


def factorizations(workers: int, ndim: int) -> list[Parts]:
    """Every way to cut the first two axes into `workers` parts, the one with the most along the
    first axis first.

    >>> factorizations(6, 3)
    [(6, 1, 1), (3, 2, 1), (2, 3, 1), (1, 6, 1)]
    """
    if ndim == 1:
        return [(workers,)]
    rest = (1,) * (ndim - 2)
    return [
        (first, workers // first, *rest) for first in range(workers, 0, -1) if workers % first == 0
    ]


def is_slabs(parts: Parts) -> bool:
    """Whether only the first axis is cut."""
    return all(pieces == 1 for pieces in parts[1:])


def longest_block(problem: Problem, parts: Parts) -> int:
    """Most steps between two exchanges for which every halo fits into the neighbour's part; 0 if
    not even one does.
    """
    rooms = [
        n // pieces // max(radius, 1)
        for n, pieces, radius in zip(problem.grid.shape, parts, problem.stencil.radii, strict=True)
        if pieces > 1
    ]
    return min(rooms, default=1 << 30)


def surface(problem: Problem, parts: Parts) -> int:
    """Points that are exchanged per step of a halo, over all cuts."""
    total = 0
    for axis, (n, pieces, radius) in enumerate(
        zip(problem.grid.shape, parts, problem.stencil.radii, strict=True)
    ):
        cuts = pieces if problem.boundary.periodic(axis) and pieces > 1 else pieces - 1
        total += 2 * cuts * radius * (problem.grid.n_points // n)
    return total


def cut(
    problem: Problem, parts: Parts, weights: Sequence[float], time_block: int
) -> tuple[Slab, ...]:
    """The slab of each worker, with halos for `time_block` steps; the last cut axis varies fastest.

    Args:
        problem: what is cut.
        parts: pieces per axis.
        weights: relative speed of each worker, used where only the first axis is cut.
        time_block: steps between two exchanges.
    """
    grid, halo = problem.grid, [time_block * radius for radius in problem.stencil.radii]
    pieces = axis_pieces(problem, parts, weights, time_block)
    return tuple(_slab(box, grid, problem.boundary, halo) for box in itertools.product(*pieces))


def axis_pieces(
    problem: Problem, parts: Parts, weights: Sequence[float], time_block: int
) -> list[tuple[tuple[int, int], ...]]:
    """The pieces of each axis, as (start, stop), of which `cut` makes slabs."""
    pieces = [evenly(n, count) for n, count in zip(problem.grid.shape, parts, strict=True)]
    if parts[0] == len(weights) > 1:
        halo = time_block * problem.stencil.radii[0]
        pieces[0] = split_by_speed(problem.grid.shape[0], weights, min_planes=max(halo, 1))
    return pieces


def evenly(n: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Pieces of range(n) whose lengths differ by one at most.

    >>> evenly(7, 3)
    ((0, 2), (2, 4), (4, 7))
    """
    return tuple((n * k // parts, n * (k + 1) // parts) for k in range(parts))


def describe_parts(parts: Parts) -> str:
    """For example "3 x 2 along z and y"."""
    names = ("z", "y", "x")[-len(parts) :]
    axes = [(count, name) for count, name in zip(parts, names, strict=True) if count > 1] or [
        (1, names[0])
    ]
    return (
        f"{' x '.join(str(count) for count, _ in axes)} along "
        f"{' and '.join(name for _, name in axes)}"
    )


def _slab(
    box: tuple[tuple[int, int], ...], grid: Grid, boundary: Boundary, halo: Sequence[int]
) -> Slab:
    halos = []
    for axis, (start, stop) in enumerate(box):
        n = grid.shape[axis]
        joined = boundary.periodic(axis) and stop - start < n
        halos.append(
            (halo[axis] if start > 0 or joined else 0, halo[axis] if stop < n or joined else 0)
        )
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
