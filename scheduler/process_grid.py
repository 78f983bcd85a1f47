"""Process grid: into how many parts is each axis cut, and which slab does each worker get?

The grid is cut along its first axis only, into slabs as long as their workers are fast, unless these would be too thin
for their halos. Then the first two axes are cut evenly, in the way that leaves the least surface between parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tetris_sim.boundary import Boundary
from tetris_sim.grid import Grid
from tetris_sim.problem import Problem
from tetris_sim.scheduler.partition import split_by_speed
from tetris_sim.slab import Slab

Parts = tuple[int, ...]  # per axis, into how many pieces it is cut
_THIN = 2  # halos: where a slab is thinner, both of its halos together are more than itself


def choose_parts(problem: Problem, workers: int, halo_steps: int, *, slabs_only: bool = False) -> Parts:
    """Into how many pieces each axis is cut.

    >>> from tetris_sim.scheduler.process_grid import factorizations
    >>> factorizations(6, 3)
    [(6, 1, 1), (3, 2, 1), (2, 3, 1), (1, 6, 1)]

    Args:
        problem: what is cut.
        workers: number of pieces altogether.
        halo_steps: so many steps between two exchanges would be best.
        slabs_only: whether the workers are too different for even cuts, if slabs are possible at all.
    """
    ndim, shape, radii = problem.grid.ndim, problem.grid.shape, problem.stencil.radii
    slabs = factorizations(workers, ndim)[0]
    wanted = radii[0] if slabs_only else _THIN * halo_steps * radii[0]
    if shape[0] // workers >= max(wanted, 1):
        return slabs
    possible = [parts for parts in factorizations(workers, ndim) if longest_block(problem, parts) >= 1]
    return min(possible, key=lambda parts: surface(problem, parts), default=slabs)


def factorizations(workers: int, ndim: int) -> list[Parts]:
    """Every way to cut the first two axes into `workers` parts, the one with the most along the first axis first."""
    if ndim == 1:
        return [(workers,)]
    rest = (1,) * (ndim - 2)
    return [(first, workers // first, *rest) for first in range(workers, 0, -1) if workers % first == 0]


def longest_block(problem: Problem, parts: Parts) -> int:
    """Most steps between two exchanges for which every halo fits into the neighbour's part; 0 if not even one does."""
    rooms = [
        n // pieces // max(radius, 1)
        for n, pieces, radius in zip(problem.grid.shape, parts, problem.stencil.radii, strict=True)
        if pieces > 1
    ]
    return min(rooms, default=1 << 30)


def surface(problem: Problem, parts: Parts) -> int:
    """Points that are exchanged per step of a halo, over all cuts."""
    total = 0
    for axis, (n, pieces, radius) in enumerate(zip(problem.grid.shape, parts, problem.stencil.radii, strict=True)):
        cuts = pieces if problem.boundary.periodic(axis) and pieces > 1 else pieces - 1
        total += 2 * cuts * radius * (problem.grid.n_points // n)
    return total


def cut(problem: Problem, parts: Parts, weights: Sequence[float], time_block: int) -> tuple[Slab, ...]:
    """The slab of each worker, with halos for `time_block` steps; the last cut axis varies fastest.

    Args:
        problem: what is cut.
        parts: pieces per axis.
        weights: relative speed of each worker, used where only the first axis is cut.
        time_block: steps between two exchanges.
    """
    grid, halo = problem.grid, [time_block * radius for radius in problem.stencil.radii]
    pieces = [evenly(n, count) for n, count in zip(grid.shape, parts, strict=True)]
    if parts[0] == len(weights) > 1:
        pieces[0] = split_by_speed(grid.shape[0], weights, min_planes=max(halo[0], 1))
    return tuple(_slab(box, grid, problem.boundary, halo) for box in itertools.product(*pieces))


def evenly(n: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Pieces of range(n) whose lengths differ by one at most.

    >>> evenly(7, 3)
    ((0, 2), (2, 4), (4, 7))
    """
    return tuple((n * k // parts, n * (k + 1) // parts) for k in range(parts))


def describe_parts(parts: Parts) -> str:
    """For example "3 x 2 along z and y"."""
    names = ("z", "y", "x")[-len(parts) :]
    axes = [(count, name) for count, name in zip(parts, names, strict=True) if count > 1] or [(1, names[0])]
    return f"{' x '.join(str(count) for count, _ in axes)} along {' and '.join(name for _, name in axes)}"


def _slab(box: tuple[tuple[int, int], ...], grid: Grid, boundary: Boundary, halo: Sequence[int]) -> Slab:
    halos = []
    for axis, (start, stop) in enumerate(box):
        n = grid.shape[axis]
        joined = boundary.periodic(axis) and stop - start < n
        halos.append((halo[axis] if start > 0 or joined else 0, halo[axis] if stop < n or joined else 0))
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
