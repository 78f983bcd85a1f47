"""The time loop of one thread through a medium: sweep its planes, publish their ghosts, meet the
others, again.

Idea    As in `sweep.py`, but the update of a row reads the ids of its points, and ghosts follow
        from the program of their side with the numbers of the step. Corners are never read.
Layout  u, v: flat arrays of one padded box. `axes` has the columns of `layout.py`, `sides` too, a
        row per side with ghosts. `arrays`, `numbers` and `places` are those of `medium.py`; the
        ghosts of a block's step number k are made with row k of the tables.
Limits  Never refuses. What stands between the two markers is an example, one material along one
        axis with insulated faces; `compiled/conduction.py` makes it for each problem.
Test    tests/kernels/test_conduct.py
"""

from __future__ import annotations

import math  # noqa: F401  for programs

import numpy as np  # noqa: F401
from numba.core import types

from tetris_sim.cpu_kernels.common.layout import (
    AXIS,
    CODE_PITCH,  # noqa: F401  for programs
    CODES,  # noqa: F401
    GHOST,
    KIND,  # noqa: F401
    MIRROR,
    PITCH,
    RULE,  # noqa: F401
    RUN,  # noqa: F401
)
from tetris_sim.cpu_kernels.compiled.barrier import CACHED_POINTS, ranges, wait
from tetris_sim.cpu_kernels.compiled.intrinsics import (
    call_library,  # noqa: F401
    divide,  # noqa: F401
    elements_of,
    fma,
    inner,
    load,
    njit,
    round_to_half,  # noqa: F401
    store,
)

# [the row update begins]
REAL = types.float64
ID = types.uint8


@inner
def update_row(u, v, p, n, place, axes, arrays, numbers, places, row):
    """v[p + k] = the step at u[p + k] for k = 0 .. n-1; `place` has the padded indices of the
    first.
    """
    conductance, rates = arrays[1], arrays[2]
    for k in range(n):
        q = p + k
        here = load(u, q)
        gained = conductance[0] * (load(u, q - 1) - here)
        gained = fma(conductance[0], load(u, q + 1) - here, gained)
        store(v, q, fma(rates[0], gained, here))


@inner
def ghost_row(v, mirror, n, place, side, axes, arrays, numbers, places, row):
    """The ghosts beyond a side that follow from v[mirror + k] for k = 0 .. n-1; `place` has the
    padded indices of the first.
    """
    sides = arrays[5]
    ghost = mirror + (sides[side, GHOST] - sides[side, MIRROR]) * axes[sides[side, AXIS], PITCH]
    for k in range(n):
        v[ghost + k] = v[mirror + k]


# [the row update ends]

_INT = types.intp
_AXES = types.int64[:, ::1]
_ARRAYS = types.Tuple(  # type: ignore[attr-defined]
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
        types.uint8[::1],
        types.Tuple((*(5 * (REAL[::1],)), types.int64[::1])),  # type: ignore[attr-defined]
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


@inner
def _fill_ghosts(v, planes, rows, columns, axes, arrays, numbers, places, row):
    """Every ghost that follows from some planes."""
    pitch0, pitch1, sides = axes[0, PITCH], axes[1, PITCH], arrays[5]
    for side in range(len(sides)):
        axis, mirror = sides[side, AXIS], sides[side, MIRROR]
        first, last, run = planes, rows, columns
        if axis == 0:
            # The mirror plane belongs to another thread, which fills these ghosts.
            if not planes[0] <= mirror < planes[1]:
                continue
            first = (mirror, mirror + 1)
        elif axis == 1:
            last = (mirror, mirror + 1)
        else:
            if not columns[0] <= mirror < columns[1]:
                continue  # in 1D another thread may have computed the mirror point
            run = (mirror, mirror + 1)

        n = run[1] - run[0]
        for i in range(first[0], first[1]):
            for j in range(last[0], last[1]):
                p, place = i * pitch0 + j * pitch1 + run[0], (i, j, run[0])
                ghost_row(v, p, n, place, side, axes, arrays, numbers, places, row)


@inner
def _pointers(arrays):
    """`arrays` with bare pointers in place of all but the table of sides."""
    ids, conductance, rates, volume, extents, sides, codes, coordinates, starts, alike, heat = (
        arrays
    )
    knots, curves, half, contact, radiance, kinds = heat
    curved = (
        *(elements_of(knots), elements_of(curves), elements_of(half)),
        *(elements_of(contact), elements_of(radiance), elements_of(kinds)),
    )
    return (
        *(elements_of(ids), elements_of(conductance), elements_of(rates), elements_of(volume)),
        *(elements_of(extents), sides, elements_of(codes), elements_of(coordinates)),
        *(elements_of(starts), elements_of(alike), curved),
    )


@njit(SIGNATURE, nogil=True, cache=True)
def advance(thread, threads, u, v, axes, arrays, numbers, places, steps, barrier):
    """Advance the state in u by `steps`, to be called by all `threads` at once.

    The result is in u if `steps` is even, in v if it is odd.
    """
    pitch0, pitch1 = axes[0, PITCH], axes[1, PITCH]
    block = max(1, CACHED_POINTS // pitch0)
    # Bare pointers from here on: all that Numba knows of an array takes time to compile.
    given = _pointers(arrays)
    table = elements_of(numbers)

    # Step -1 computes nothing, the initial state only needs its ghosts: both arrays swap first.
    now, then = elements_of(v), elements_of(u)
    for step in range(-1, steps):
        planes, rows, columns = ranges(axes, steps - 1 - step, thread, threads)
        n = columns[1] - columns[0]

        # Blocks of planes get their ghosts while they are still in the L2 cache.
        for first in range(planes[0], planes[1], block):
            last = min(first + block, planes[1])
            if step >= 0:
                for i in range(first, last):
                    for j in range(rows[0], rows[1]):
                        p, place = i * pitch0 + j * pitch1 + columns[0], (i, j, columns[0])
                        update_row(now, then, p, n, place, axes, given, table, places, step)
            if step + 1 < steps:  # the tables end with the last step
                part = (first, last)
                _fill_ghosts(then, part, rows, columns, axes, given, table, places, step + 1)
        wait(barrier, threads)
        now, then = then, now
