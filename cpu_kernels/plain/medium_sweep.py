"""The time loop of one thread through a medium: sweep its planes, publish their ghosts, meet the
others, again.

Idea    As in `sweep.py`, but the update of a row reads the ids of its points, and ghosts follow from
        the program of their side with the numbers of the step. Corners are never read.
Layout  u, v: flat arrays of one padded box. `axes` has the columns of `columns.py`, `sides` too, a
        row per side with ghosts. `arrays`, `numbers` and `places` are those of `medium.py`; the
        ghosts of a block's step number k are made with row k of the tables.
Limits  Never refuses. What stands between the two markers is an example, one material along one
        axis with insulated faces; `compiled/conduction.py` makes it for each problem.
Test    tests/kernels/test_conduction.py
"""

from __future__ import annotations

import math  # noqa: F401  for programs

import numpy as np
from numba import njit
from numba.core import types

from tetris_sim.cpu_kernels.common.columns import (
    AXIS,
    CODE_PITCH,  # noqa: F401  for programs
    CODES,  # noqa: F401
    GHOST,
    KIND,  # noqa: F401
    MIRROR,
    PITCH,
    RULE,  # noqa: F401
)
from tetris_sim.cpu_kernels.compiled.barrier import wait
from tetris_sim.cpu_kernels.compiled.intrinsics import (
    call_library,  # noqa: F401
    divide,  # noqa: F401
    fma,
    load,
    round_to_half,  # noqa: F401
    store,
)
from tetris_sim.cpu_kernels.plain.parts import CACHED_POINTS, ranges

# [the row update begins]
REAL = types.float64
ID = types.uint8


@njit(nogil=True, cache=True)
def update_row(u, v, p, n, i, j, x, arrays, numbers, places, row, pitch0, pitch1):
    """v[p + k] = the step at u[p + k] for k = 0 .. n-1, the padded indices of the first being i, j
    and x.
    """
    _, conductance, rates, _, _, _, _, _, _ = arrays
    for k in range(n):
        q = p + k
        here = load(u, q)
        gained = conductance[0] * (load(u, q - 1) - here)
        gained = fma(conductance[0], load(u, q + 1) - here, gained)
        store(v, q, fma(rates[0], gained, here))


@njit(nogil=True, cache=True)
def ghost_row(side, v, ghost, mirror, n, stride, i, j, x, along, arrays, numbers, places, row):
    """v[ghost + k * stride] from v[mirror + k * stride] for k = 0 .. n-1, along one padded axis; i,
    j and x are the padded indices of the first mirror point.
    """
    for k in range(n):
        v[ghost + k * stride] = v[mirror + k * stride]


# [the row update ends]

_INT = types.intp
_AXES = types.int64[:, ::1]
_ARRAYS = types.Tuple(
    (
        ID[::1],
        REAL[::1],
        REAL[::1],
        REAL[::1],
        types.int64[::1],
        types.int64[:, ::1],
        types.int32[::1],
        REAL[::1],
        types.int64[::1],
    )
)
SIGNATURE = types.void(
    _INT,
    _INT,
    REAL[::1],
    REAL[::1],
    _AXES,
    _ARRAYS,
    REAL[::1],
    types.int64[:, :, ::1],
    _INT,
    types.int64[::1],
)


@njit(nogil=True, cache=True)
def _fill_ghosts(v, planes, rows, columns, axes, arrays, numbers, places, row):
    """Every ghost that follows from some planes."""
    pitch0, pitch1, sides = axes[0, PITCH], axes[1, PITCH], arrays[5]
    for side in range(len(sides)):
        axis, ghost, mirror = sides[side, AXIS], sides[side, GHOST], sides[side, MIRROR]
        if axis == 0 and planes[0] <= mirror < planes[1]:
            n, shift, x = columns[1] - columns[0], (ghost - mirror) * pitch0, columns[0]
            for j in range(rows[0], rows[1]):
                p = mirror * pitch0 + j * pitch1 + x
                ghost_row(
                    side, v, p + shift, p, n, 1, mirror, j, x, 2, arrays, numbers, places, row
                )
        elif axis == 1:
            n, shift, x = columns[1] - columns[0], (ghost - mirror) * pitch1, columns[0]
            for i in range(planes[0], planes[1]):
                p = i * pitch0 + mirror * pitch1 + x
                ghost_row(
                    side, v, p + shift, p, n, 1, i, mirror, x, 2, arrays, numbers, places, row
                )
        elif axis == 2 and columns[0] <= mirror < columns[1]:
            # in 1D another thread may have computed the mirror point
            n, shift, j = rows[1] - rows[0], ghost - mirror, rows[0]
            for i in range(planes[0], planes[1]):
                p = i * pitch0 + j * pitch1 + mirror
                ghost_row(
                    side, v, p + shift, p, n, pitch1, i, j, mirror, 1, arrays, numbers, places, row
                )


@njit(SIGNATURE, nogil=True, cache=True)
def advance(thread, threads, u, v, axes, arrays, numbers, places, steps, barrier):
    """Advance the state in u by `steps`, to be called by all `threads` at once.

    The result is in u if `steps` is even, in v if it is odd.
    """
    pitch0, pitch1 = axes[0, PITCH], axes[1, PITCH]
    planes, rows, columns = ranges(axes, steps, thread, threads)
    _fill_ghosts(u, planes, rows, columns, axes, arrays, numbers, places, 0)
    wait(barrier, threads)

    block = max(1, CACHED_POINTS // pitch0)
    for step in range(steps):
        planes, rows, columns = ranges(axes, steps - 1 - step, thread, threads)
        n = columns[1] - columns[0]
        for first in range(planes[0], planes[1], block):
            last = min(first + block, planes[1])
            for i in range(first, last):
                for j in range(rows[0], rows[1]):
                    p = i * pitch0 + j * pitch1 + columns[0]
                    update_row(
                        u, v, p, n, i, j, columns[0], arrays, numbers, places, step, pitch0, pitch1
                    )
            if step + 1 < steps:  # the tables end with the last step
                _fill_ghosts(
                    v, (first, last), rows, columns, axes, arrays, numbers, places, step + 1
                )
        wait(barrier, threads)
        u, v = v, u
