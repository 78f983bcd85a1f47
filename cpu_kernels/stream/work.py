"""StripWork: how a slab is cut into parts and strips, and how much scratch memory that takes.
Arithmetic only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tetris_sim.cpu_kernels.stream.kernels import KernelShape
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_ALIGNED = 64  # elements; every piece of scratch memory begins on a cache line


@dataclass(frozen=True)
class StripWork:
    """The cut, and the layout of a thread's scratch memory in elements.

    Attributes:
        lanes: elements per vector.
        shape: of the kernels.
        steps: time levels per block.
        parts: boxes per padded axis that are dealt to the threads.
        strip_rows: most rows of a strip.
        strip_vectors: most vectors of a strip's rows.
        constants, rings, across, along, line: where the weights and faces, the rings, the rows and
            the columns left to the next strip, and a row in natural order begin.
        scratch: elements of all of it.
        overhang: elements that the last strip reads beyond the last row.
    """

    lanes: int
    shape: KernelShape
    steps: int
    parts: tuple[int, int, int]
    strip_rows: int
    strip_vectors: int
    constants: int
    rings: int
    across: int
    along: int
    line: int
    scratch: int
    overhang: int


def plan_work(
    problem: Problem,
    slab: Slab,
    threads: int,
    *,
    lanes: int,
    shape: KernelShape,
    steps: int,
    tile: tuple[int, int],
) -> StripWork:
    """Cut a slab for some threads.

    Args:
        problem: gives the stencil.
        slab: what is cut.
        threads: how many there are.
        lanes: elements per vector.
        shape: of the kernels.
        steps: levels per block that are wished for; fewer where parts would be too narrow for them.
        tile: rows and columns of a strip that are wished for; more where a face needs it.
    """
    radii = on_three(problem.stencil.radii, 0, OUTER)
    owned = on_three(slab.shape, 1, OUTER)
    # Most of the halo is computed too, while it lasts.
    computed = on_three(
        [n + sum(halo) for n, halo in zip(slab.shape, slab.halo, strict=True)], 1, OUTER
    )

    parts, steps = _choose_parts(owned, radii, threads, steps)
    reach = [steps * radius for radius in radii]
    part = [-(-n // pieces) for n, pieces in zip(computed, parts, strict=True)]

    # Ghosts and their mirror points lie in the first strip at every level, so it must not be too
    # narrow for them.
    rows = max(tile[0], 2 * (steps + 2) * radii[1], 1)
    narrow = (
        -(-(reach[2] + 2 * radii[2]) // lanes) + shape.unroll + lanes + 4 * shape.fused * radii[2]
    )
    turn = math.lcm(shape.unroll, lanes if problem.grid.ndim == 1 else 1)
    vectors = -(-max(-(-tile[1] // lanes), 2 * narrow) // turn) * turn

    sizes = _line_sizes if problem.grid.ndim == 1 else _strip_sizes
    # Weights, then (a, b) of every ghost: three axes, two sides, two numbers each.
    n_constants = problem.stencil.n_points + 12 * max(1, *radii)
    starts = [0]
    for size in (n_constants, *sizes(part, radii, steps, rows, vectors, lanes, shape)):
        starts.append(starts[-1] + -(-size // _ALIGNED) * _ALIGNED)

    overhang = reach[2] + lanes * (lanes + shape.unroll) + _ALIGNED
    # Threads at the same place of different pages would be in each other's way in a shared cache.
    scratch = starts[-1] + (0 if starts[-1] * np.dtype(problem.dtype).itemsize % 4096 else _ALIGNED)
    constants, rings, across, along, line, _ = starts
    return StripWork(
        lanes,
        shape,
        steps,
        parts,
        rows,
        vectors,
        constants,
        rings,
        across,
        along,
        line,
        scratch,
        overhang,
    )


def _choose_parts(
    owned: tuple[int, int, int], radii: tuple[int, int, int], threads: int, steps: int
) -> tuple[tuple[int, int, int], int]:
    """Parts per axis, as many as threads, that compute least twice; with fewer steps if they would
    be too narrow.
    """

    def wide(parts: tuple[int, int, int]) -> bool:
        # A part reads its own width at most beyond its sides. Along rows its sides are moved to the
        # next cache line.
        return all(
            pieces == 1
            or owned[axis] // pieces - 16 * (axis == 2) >= 2 * steps * max(radii[axis], 1)
            for axis, pieces in enumerate(parts)
        )

    def computed_twice(parts: tuple[int, int, int]) -> tuple[float, int]:
        return sum(
            (k - 1) * steps * radii[axis] / owned[axis] for axis, k in enumerate(parts)
        ), -parts[0]

    # Fewer levels first, then fewer parts: narrow parts compute too much twice.
    while True:
        possible = [parts for parts in _factors(threads) if wide(parts)]
        if possible:
            return min(possible, key=computed_twice), steps
        # Shorter blocks overlap less; halving keeps the search short.
        if steps > 1:
            steps //= 2
        else:
            threads -= 1


def _factors(n: int) -> list[tuple[int, int, int]]:
    """All ways to write n as a product of three numbers.

    >>> _factors(2)
    [(1, 1, 2), (1, 2, 1), (2, 1, 1)]
    """
    divisors = [k for k in range(1, n + 1) if n % k == 0]
    return [(a, b, n // a // b) for a in divisors for b in divisors if n % (a * b) == 0]


def _strip_sizes(
    part: list[int],
    radii: tuple[int, int, int],
    steps: int,
    rows: int,
    vectors: int,
    lanes: int,
    shape: KernelShape,
) -> tuple[int, int, int, int]:
    """Elements of rings, rows left, columns left, and a line, in two and three dimensions
    (`strips.py`).
    """
    r0, r1, r2 = radii
    pitch = (2 * r2 + vectors) * lanes
    unit = (2 * r1 + -(-rows // shape.jam[1]) * shape.jam[1]) * pitch
    groups = -(-(part[0] + 2 * steps * r0) // shape.jam[0])
    places = groups * steps * shape.jam[0] + steps * r0
    width = part[2] + 2 * steps * r2 + 2 * lanes * max(lanes, shape.unroll) + 64
    n_right = -(-width // (vectors * lanes)) + 1
    kept_rows = places * 2 * r1 * (width + n_right * 2 * r2 * lanes)
    return (
        (steps + 1) * (2 * r0 + shape.jam[0]) * unit,
        kept_rows,
        places * rows * 2 * r2,
        vectors * lanes,
    )


def _line_sizes(
    part: list[int],
    radii: tuple[int, int, int],
    steps: int,
    rows: int,
    vectors: int,
    lanes: int,
    shape: KernelShape,
) -> tuple[int, int, int, int]:
    """Scratch memory in one dimension (`line.py`), in elements, as `_strip_sizes`; the line also
    holds two copies of the columns computed step by step near a face.
    """
    radius = radii[2]
    near_face = 4 * steps * radius + 2 * shape.fused * radius * lanes + 4 * radius
    return (
        (2 * shape.fused * radius + vectors) * lanes,
        0,
        2 * radius * steps,
        max(vectors * lanes, 2 * near_face),
    )


# What lies beyond a side of the slab.
FACE, HALO, WRAP = 0, 1, 2

_FIELDS = {
    # The slab: first owned index, owned points, elements between neighbours, what lies beyond.
    "first": 3,
    "count": 3,
    "pitch": 3,
    "below": 3,
    "above": 3,
    # Planes by which the points to compute lose at either end with each step; below 0 they gain.
    "shrink_low": 3,
    "shrink_high": 3,
    # What was chosen: parts; steps per block, rows and vectors of a strip, whether results go past
    # the caches.
    "parts": 3,
    "block": 1,
    "strip_rows": 1,
    "strip_vectors": 1,
    "past_caches": 1,
    # The stencil and its kernels: radius; rows updated together along the streamed axis and the
    # next; vectors per turn of its loop, levels per pass in 1D, planes in the ring of a level, most
    # ghosts beyond one side; addresses of the compiled kernels.
    "radius": 3,
    "jam": 2,
    "unroll": 1,
    "fused": 1,
    "depth": 1,
    "ghosts": 1,
    "kernel": 1,
    "single_kernel": 1,
    "line_kernel": 1,
    # Elements from the start of a thread's scratch memory: weights, faces, rings, rows and columns
    # left to the next strip, a row in natural order.
    "weights": 1,
    "faces": 1,
    "rings": 1,
    "across": 1,
    "along": 1,
    "line": 1,
    # The part at work: its box at the last level, and whether its sides are faces of the domain.
    "low": 3,
    "high": 3,
    "face_low": 3,
    "face_high": 3,
    # The strip at work: first element of its field, levels, first row and column at level 0, rows,
    # vectors per row, elements per row and per unit, first plane of the first group, groups, where
    # it keeps rows for the next strip.
    "field": 1,
    "levels": 1,
    "row": 1,
    "column": 1,
    "rows": 1,
    "vectors": 1,
    "row_pitch": 1,
    "unit": 1,
    "plane": 1,
    "groups": 1,
    "kept_rows": 1,
    # What a kernel is called for: where it reads and writes; in 2D and 3D the slot of its planes in
    # their ring, in 1D columns.
    "source": 1,
    "target": 1,
    "slot": 1,
    "columns": 1,
}
_LINES = 10  # of 64 bytes: each thread has its own

NUMBERS = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [np.int64 if n == 1 else (np.int64, n) for n in _FIELDS.values()],
        "itemsize": _LINES * 64,
    },
    align=True,
)
"""The record; its fields lie in the order above."""
