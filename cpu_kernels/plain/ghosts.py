"""The ghosts of a sweep over a whole slab, by the table of their mirror points.

Layout  As in `sweep.py`, which calls this. No stencil occurs here, so `generate.py` makes one
        module of this file for each dtype, and a new stencil compiles none of it. Between the two
        markers stands what is done to values before they are stored.
Test    tests/kernels/test_against_reference.py
"""

from __future__ import annotations

from tetris_sim.cpu_kernels.common.layout import GHOSTS, LINKS, PITCH
from tetris_sim.cpu_kernels.compiled.intrinsics import fma, inner, njit, round_to_half  # noqa: F401  for float16


# [the row update begins]
@njit(nogil=True, cache=True, inline="always")
def as_stored(value):
    """The value as memory holds it: unchanged, or rounded to the nearest float16, which is stored
    as a float32.
    """
    return value


# [the row update ends]


@inner
def _fill_sides(v, base, planes, axes, links, faces, rows, columns):
    """Ghosts of some planes: along axis 1 over the computed columns, then along axis 2 over ghost
    rows too.
    """
    pitch0, pitch1 = axes[0, PITCH], axes[1, PITCH]
    low, high = base + planes[0] * pitch0, base + planes[1] * pitch0
    for k in range(axes[1, LINKS]):
        a, b = faces[1, k, 0], faces[1, k, 1]
        for plane in range(low, high, pitch0):
            ghost, source = plane + links[1, k, 0] * pitch1, plane + links[1, k, 1] * pitch1
            for x in range(columns[0], columns[1]):
                # Each ghost has one source, which this thread has computed: no two threads write
                # the same element.
                v[ghost + x] = as_stored(fma(b, v[source + x], a))

    first_row = (rows[0] - axes[1, GHOSTS]) * pitch1
    last_row = (rows[1] + axes[1, GHOSTS + 1]) * pitch1
    for k in range(axes[2, LINKS]):
        a, b, ghost, source = faces[2, k, 0], faces[2, k, 1], links[2, k, 0], links[2, k, 1]
        if columns[0] <= source < columns[1]:  # in 1D another thread may have computed it
            for plane in range(low, high, pitch0):
                for row in range(plane + first_row, plane + last_row, pitch1):
                    v[row + ghost] = as_stored(fma(b, v[row + source], a))


@njit(cache=True, no_cpython_wrapper=True)
def fill_ghosts(v, base, planes, axes, links, faces, rows, columns):
    """Every ghost that follows from some planes: those at their sides, and the ghost planes that
    mirror them.
    """
    _fill_sides(v, base, planes, axes, links, faces, rows, columns)
    pitch0, pitch1 = axes[0, PITCH], axes[1, PITCH]
    # Ghost planes are written by the thread that owns their source.
    for k in range(axes[0, LINKS]):
        a, b, ghost, source = faces[0, k, 0], faces[0, k, 1], links[0, k, 0], links[0, k, 1]
        if planes[0] <= source < planes[1]:
            for row in range(base + rows[0] * pitch1, base + rows[1] * pitch1, pitch1):
                for x in range(row + columns[0], row + columns[1]):
                    v[ghost * pitch0 + x] = as_stored(fma(b, v[source * pitch0 + x], a))
            _fill_sides(v, base, (ghost, ghost + 1), axes, links, faces, rows, columns)
