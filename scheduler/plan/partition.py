"""Partition: cut the grid into slabs, one per worker, as long as their workers are fast."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tetris_sim.boundary import Boundary
from tetris_sim.grid import Grid
from tetris_sim.slab import Slab


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
    if len(pieces) == 1:
        return (Slab.whole(grid),)
    joined = boundary.periodic(0)
    slabs = []
    for start, stop in pieces:
        low = halo if start > 0 or joined else 0
        high = halo if stop < grid.shape[0] or joined else 0
        rest = ((0, 0),) * (grid.ndim - 1)
        slabs.append(
            Slab((start, *(0,) * (grid.ndim - 1)), (stop, *grid.shape[1:]), ((low, high), *rest))
        )
    return tuple(slabs)
