"""Which points a launch writes: boxes that shrink with the halo, and the frame along the faces."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tetris_sim.gpu_kernels.layout import Box3
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

_SHARED_BYTES = 96 << 10  # of a frame tile's two levels: two blocks fit on a multiprocessor of 228 KB
_TILES = {1: (1, 1, 1024), 2: (1, 64, 64), 3: (16, 16, 32)}  # points of a frame tile at most
Radii = tuple[int, int, int]


def three_radii(problem: Problem) -> Radii:
    """Radius of the stencil along each axis of three."""
    z, y, x = (0,) * (3 - problem.grid.ndim) + tuple(problem.stencil.radii)
    return z, y, x


def owned_with_halo(problem: Problem, slab: Slab, later: int) -> Box3:
    """The points that must be right when `later` steps follow before the halo is renewed."""
    missing = 3 - problem.grid.ndim
    spans = [(0, 1)] * missing
    for n, radius, (low, high) in zip(slab.shape, problem.stencil.radii, slab.halo, strict=True):
        spans.append((-later * radius if low else 0, n + (later * radius if high else 0)))
    return spans[0], spans[1], spans[2]


def without_frame(problem: Problem, slab: Slab, box: Box3, depth: int) -> Box3 | None:
    """The part of a box that no face concerns within `depth` steps; None if there is none.

    It begins at whole lines of 128 bytes along x, whether there is a face or not.
    """
    missing = 3 - problem.grid.ndim
    spans = list(box)
    for axis, (radius, (low, high)) in enumerate(zip(problem.stencil.radii, slab.halo, strict=True)):
        start, stop = spans[missing + axis]
        spans[missing + axis] = (
            start if low else start + depth * radius,
            stop if high else stop - depth * radius,
        )
    line = 128 // problem.dtype.itemsize
    spans[2] = (-(-spans[2][0] // line) * line, spans[2][1])
    inner = spans[0], spans[1], spans[2]
    return inner if all(start < stop for start, stop in inner) else None


def frame_of(outer: Box3, inner: Box3) -> list[Box3]:
    """Boxes without overlap that make up what `outer` has and `inner` has not.

    >>> frame_of(((0, 1), (0, 9), (0, 8)), ((0, 1), (2, 7), (3, 8)))
    [((0, 1), (0, 2), (0, 8)), ((0, 1), (7, 9), (0, 8)), ((0, 1), (2, 7), (0, 3))]
    """
    found = []
    for axis in range(3):
        for span in ((outer[axis][0], inner[axis][0]), (inner[axis][1], outer[axis][1])):
            if span[0] < span[1]:
                box = [*inner[:axis], span, *outer[axis + 1 :]]
                found.append((box[0], box[1], box[2]))
    return found


def tile_of_frame(problem: Problem, depth: int) -> tuple[tuple[int, int, int], int] | None:
    """(points of a tile along each axis, points that it loads); None if not even the smallest fits."""
    tile = list(_TILES[problem.grid.ndim])
    radii, itemsize = three_radii(problem), problem.dtype.itemsize
    while True:
        loaded = math.prod(n + 2 * depth * radius for n, radius in zip(tile, radii, strict=True))
        if 2 * loaded * itemsize <= _SHARED_BYTES:
            return (tile[0], tile[1], tile[2]), loaded
        longest = max(range(3), key=lambda axis: tile[axis])
        if tile[longest] == 1:
            return None
        tile[longest] //= 2


def tiles_of(boxes: list[Box3], tile: tuple[int, int, int]) -> Iterator[Box3]:
    """The boxes cut into tiles."""
    for box in boxes:
        cuts = [
            [(low, min(low + n, stop)) for low in range(start, stop, n)]
            for (start, stop), n in zip(box, tile, strict=True)
        ]
        for z in cuts[0]:
            for y in cuts[1]:
                for x in cuts[2]:
                    yield z, y, x
