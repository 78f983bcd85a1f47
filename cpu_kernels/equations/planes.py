"""Operations of compiled equation loops on a plane: call the kernel of a stage, fill ghosts.

Idea    Each name has its own ghosts, of its own width, by its own boundary, and they are filled as
        soon as the points that they mirror have been computed. Along axis 0 whole planes follow;
        along the two others ghosts follow within a plane, axis 1 first, axis 2 over ghost rows too.
        Beyond periodic faces ghosts are copies: b = 1 and a = -0.0 leave every bit as it is.
Layout  v: an address; `p` is the element of padded index (row 0, column 0) of a plane. The box that
        was computed is in the record `n` (`numbers.py`).
Test    tests/kernels/test_cpu_equations.py
"""

from __future__ import annotations

from numba.core import types

from tetris_sim.cpu_kernels.compiled.intrinsics import call_fill, call_stage, elements_at, inner
from tetris_sim.cpu_kernels.equations.stages import (
    COLUMNS,
    KERNEL,
    N_NAME,
    N_STAGE,
    PLANES,
    ROWS,
    SHIFT,
    WRAP,
)

INTEGER = types.int64


@inner
def of_stage(n, s, column):
    """An entry of the table of stages."""
    return elements_at(n.stages, INTEGER)[s * N_STAGE + column]


@inner
def of_name(n, f, column):
    """An entry of the table of names."""
    return elements_at(n.names, INTEGER)[f * N_NAME + column]


@inner
def call_kernel(n, s, p, planes, column, columns, shift, turn, row):
    """The kernel of a stage on the rows of some planes.

    Args:
        n: the record of this thread.
        s: row of the stage in its table.
        p: padded index of the first plane.
        planes: how many.
        column: padded index of the first column.
        columns: how many.
        shift: elements from the addresses of the state's streams to the first point.
        turn: which list of streams the first plane has.
        row: address of the parameters.
    """
    counts = n.counts
    counts[PLANES], counts[ROWS], counts[COLUMNS] = planes, n.end[1] - n.begin[1], columns
    counts[SHIFT] = shift
    counts[SHIFT + 1] = p * n.other[0] + n.begin[1] * n.other[1] + column
    counts[SHIFT + 2], counts[SHIFT + 3], counts[SHIFT + 4] = p, n.begin[1], column
    places = n.lists + ((s - 1) * n.turns + turn) * n.list_bytes
    call_stage(of_stage(n, s, KERNEL), places, n.told, row)


@inner
def fill_plane(v, n, p, source, f, side, k):
    """`fill` of `fill.py`, called by its address: it is compiled once, and not into every loop."""
    call_fill(n.fill, v, n.told, p, source, f, side, k)


@inner
def ghost_and_source(n, axis, side, k):
    """Padded indices of the ghost number k beyond a side and of the point it follows from."""
    first, count = n.first[axis], n.count[axis]
    last = first + count - 1
    if n.beyond[2 * axis + side] == WRAP:
        return (first - 1 - k, last - k % count) if side == 0 else (last + 1 + k, first + k % count)
    return (first - 1 - k, first + k) if side == 0 else (last + 1 + k, last - k)
