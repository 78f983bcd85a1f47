"""The time loop of one thread: sweep its planes, publish their ghosts, meet the others, again.

Idea    One call advances many steps, so Python is not in the loop. Threads own ranges of planes and
        meet at one barrier per step: whoever computed the points that a ghost mirrors also writes
        that ghost.
Layout  u, v: flat arrays of n_fields fields, each a padded box of three axes (slowest first;
        missing axes have one point and no ghosts). `axes[d]` holds the columns of `layout.py`.
        Axis d has `axes[d, LINKS]` planes of ghosts; number k lies at padded index `links[d, k, 0]`
        and takes a + b * u at index `links[d, k, 1]`, with (a, b) = `faces[d, k]`. A periodic ghost
        has b = 1 and a = -0.0, which leaves every bit as it is. A side with SHRINK is owned by a
        neighbour: there the computed range shrinks by as much a step, starting from steps * SHRINK
        planes of halo that were right.
Limits  Never refuses. The update of a row is made for each stencil: `generate.py` copies this file
        and puts it in place of the one between the two markers, which is the stencil that reads the
        point itself. With it comes `fill_ghosts` of `ghosts.py` as it is compiled for the dtype.
Test    tests/kernels/test_against_reference.py
"""

from __future__ import annotations

from numba.core import types

from tetris_sim.cpu_kernels.common.layout import PITCH
from tetris_sim.cpu_kernels.compiled.barrier import CACHED_POINTS, ranges, wait
from tetris_sim.cpu_kernels.compiled.intrinsics import fma, load, njit, round_to_half, store  # noqa: F401  for the update
from tetris_sim.cpu_kernels.plain.ghosts import fill_ghosts

# [the row update begins]
REAL = types.float64


@njit(nogil=True, cache=True, inline="always")
def update_row(u, v, p, n, pitch0, pitch1, weights):
    """v[p + x] = the stencil at u[p + x] for x = 0 .. n-1; p counts elements from the start of the
    array.
    """
    w0 = weights[0]
    for x in range(n):
        store(v, p + x, w0 * load(u, p + x))


# [the row update ends]

_INT = types.intp
_AXES = types.int64[:, ::1]
_LINKS = types.int64[:, :, ::1]
SIGNATURE = types.void(
    _INT,
    _INT,
    REAL[::1],
    REAL[::1],
    _INT,
    _INT,
    _AXES,
    _LINKS,
    REAL[:, :, ::1],
    REAL[::1],
    _INT,
    types.int64[::1],
)


@njit(SIGNATURE, nogil=True, cache=True)
def advance(
    thread, threads, u, v, n_fields, field_pitch, axes, links, faces, weights, steps, barrier
):
    """Advance the state in u by `steps`, to be called by all `threads` at once.

    The result is in u if `steps` is even, in v if it is odd.
    """
    pitch0, pitch1 = axes[0, PITCH], axes[1, PITCH]
    planes, rows, columns = ranges(axes, steps, thread, threads)
    # The initial state comes without ghosts, so they are filled before the first step.
    for field in range(n_fields):
        fill_ghosts(u, field * field_pitch, planes, axes, links, faces, rows, columns)
    wait(barrier, threads)

    block = max(1, CACHED_POINTS // pitch0)
    for steps_left in range(steps - 1, -1, -1):
        planes, rows, columns = ranges(axes, steps_left, thread, threads)
        for field in range(n_fields):
            base = field * field_pitch
            for first in range(planes[0], planes[1], block):
                last = min(first + block, planes[1])
                for i in range(first, last):
                    for j in range(rows[0], rows[1]):
                        p = base + i * pitch0 + j * pitch1 + columns[0]
                        update_row(u, v, p, columns[1] - columns[0], pitch0, pitch1, weights)
                # The block is still in the L2 cache.
                fill_ghosts(v, base, (first, last), axes, links, faces, rows, columns)
        wait(barrier, threads)
        u, v = v, u
