"""Ghosts of one name, for the compiled loops of equations.

Idea    Each name has its own ghosts, of its own width, by its own boundary, and they are filled as
        soon as the points that they mirror have been computed. Along axis 0 whole planes follow;
        along the two others ghosts follow within a plane, axis 1 first, axis 2 over ghost rows too.
        Beyond periodic faces ghosts are copies: b = 1 and a = -0.0 leave every bit as it is.
Layout  v: a bare pointer; `p` is the element of padded index (row 0, column 0) of a plane. `axes`
        has the columns of `columns.py`, `beyond` what lies beyond each side, per padded axis.
        Row f of `fills` has from column 2 on the ghosts of a name per padded axis, faces[f] their
        (a, b) by axis, side and number.
Test    tests/kernels/test_cpu_equations.py
"""

from __future__ import annotations

from numba import njit

from tetris_sim.cpu_kernels.common.columns import COUNT, FIRST
from tetris_sim.cpu_kernels.compiled.intrinsics import fma
from tetris_sim.cpu_kernels.equations.sides import NOTHING, WRAP

# compiled into its callers, which are kept on disk
_inner = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@_inner
def ghost_and_source(axes, beyond, axis, side, k):
    """Padded indices of the ghost number k beyond a side and of the point it follows from."""
    first, n = axes[axis, FIRST], axes[axis, COUNT]
    last = first + n - 1
    if beyond[axis, side] == WRAP:
        return (first - 1 - k, last - k % n) if side == 0 else (last + 1 + k, first + k % n)
    return (first - 1 - k, first + k) if side == 0 else (last + 1 + k, last - k)


@_inner
def reflect_run(v, ghost, source, n, a, b):
    """v[ghost + k] = a + b * v[source + k] for k = 0 .. n-1."""
    for k in range(n):
        v[ghost + k] = fma(b, v[source + k], a)


@_inner
def fill_sides(v, p, rows, columns, pitch, axes, beyond, fills, faces, f):
    """The ghosts of a plane at the ends of axes 1 and 2, of some computed rows and columns."""
    run = columns[1] - columns[0]
    low, high = rows
    for side in range(2):
        if beyond[1, side] != NOTHING:
            for k in range(fills[f, 3]):
                ghost, source = ghost_and_source(axes, beyond, 1, side, k)
                a, b = faces[f, 1, side, k, 0], faces[f, 1, side, k, 1]
                at = p + columns[0]
                reflect_run(v, at + ghost * pitch, at + source * pitch, run, a, b)
            low, high = low - fills[f, 3] * (side == 0), high + fills[f, 3] * (side == 1)

    for side in range(2):
        if beyond[2, side] != NOTHING:
            for k in range(fills[f, 4]):
                ghost, source = ghost_and_source(axes, beyond, 2, side, k)
                if columns[0] <= source < columns[1]:  # in 1D another thread may have computed it
                    a, b = faces[f, 2, side, k, 0], faces[f, 2, side, k, 1]
                    for j in range(low, high):
                        v[p + j * pitch + ghost] = fma(b, v[p + j * pitch + source], a)


@_inner
def reflect_plane(v, ghost, source, rows, columns, pitch, a, b):
    """A plane of ghosts from the one that it mirrors, both as `p` of `fill_sides`."""
    run = columns[1] - columns[0]
    for j in range(rows[0], rows[1]):
        at = j * pitch + columns[0]
        reflect_run(v, ghost + at, source + at, run, a, b)
