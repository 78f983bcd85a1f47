"""What compiled loops of equations make with a plane: call the kernel of a stage, fill ghosts.

Idea    Each name has its own ghosts, of its own width, by its own boundary, and they are filled as
        soon as the points that they mirror have been computed. Along axis 0 whole planes follow;
        along the two others ghosts follow within a plane, axis 1 first, axis 2 over ghost rows too.
        Beyond periodic faces ghosts are copies: b = 1 and a = -0.0 leave every bit as it is.
Layout  v: a bare pointer; `p` is the element of padded index (row 0, column 0) of a plane; `faces`
        the table of (a, b). The box that was computed is in the record `n` (`numbers.py`).
Test    tests/kernels/test_cpu_equations.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import types
from numba.core.types.misc import unliteral

from tetris_sim.cpu_kernels.compiled.intrinsics import call_stage, elements_at, fma
from tetris_sim.cpu_kernels.equations.numbers import KERNEL, N_NAME, N_STAGE, WIDTH
from tetris_sim.cpu_kernels.equations.sides import COLUMNS, NOTHING, PLANES, ROWS, SHIFT, WRAP

INTEGER = types.int64


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function into its callers, which are kept on disk, and once for any whole numbers.

    Numba would compile it again for every constant that it is called with.
    """
    compiled = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    of_types = compiled.get_call_template

    def without_values(args: Any, kws: Any) -> Any:
        return of_types(tuple(map(unliteral, args)), kws)

    compiled.get_call_template = without_values
    return compiled


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
def ghost_and_source(n, axis, side, k):
    """Padded indices of the ghost number k beyond a side and of the point it follows from."""
    first, count = n.first[axis], n.count[axis]
    last = first + count - 1
    if n.beyond[2 * axis + side] == WRAP:
        return (first - 1 - k, last - k % count) if side == 0 else (last + 1 + k, first + k % count)
    return (first - 1 - k, first + k) if side == 0 else (last + 1 + k, last - k)


@inner
def fill_plane(v, n, p, source, faces, f, side, k):
    """The ghosts of name f in a plane, at the ends of axes 1 and 2. If it follows from another
    plane, it is the one of ghosts number k beyond a side of axis 0, and filled first.
    """
    low, high = n.begin[1], n.end[1]
    column, run = n.begin[2], n.end[2] - n.begin[2]
    # Axis 0, then axis 1, with one loop for both: each copy of it takes time to compile.
    for axis in range(2):
        for end in range(2):
            if n.touch[2 + end] == NOTHING if axis == 1 else (source == p or end != side):
                continue
            rows = n.end[1] - n.begin[1] if axis == 0 else of_name(n, f, WIDTH + 1)
            for j in range(rows):
                number, to, there = k, n.begin[1] + j, n.begin[1] + j
                if axis == 1:
                    number, (to, there) = j, ghost_and_source(n, 1, end, j)
                    low, high = min(low, to), max(high, to + 1)
                at = (((f * 3 + axis) * 2 + end) * n.ghosts + number) * 2
                a, b = faces[at], faces[at + 1]
                from_plane = source if axis == 0 else p
                x, y = p + to * n.row + column, from_plane + there * n.row + column
                for i in range(run):
                    v[x + i] = fma(b, v[y + i], a)

    for end in range(2):
        if n.touch[4 + end] != NOTHING:
            for number in range(of_name(n, f, WIDTH + 2)):
                ghost, there = ghost_and_source(n, 2, end, number)
                if n.begin[2] <= there < n.end[2]:  # in 1D another thread may have computed it
                    at = (((f * 3 + 2) * 2 + end) * n.ghosts + number) * 2
                    for j in range(low, high):
                        q = p + j * n.row
                        v[q + ghost] = fma(faces[at + 1], v[q + there], faces[at])
