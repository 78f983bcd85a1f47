"""The time loop of one thread by equations: sweep its planes stage by stage, publish their ghosts,
meet the others, again.

Idea    As `plain/sweep.py`, but a step has stages, and the row update is the kernel of a stage,
        called by address for some planes at a time. Who computed the points that a ghost mirrors
        also writes that ghost. A slab with neighbours computes each stage a margin further than its
        own points, so that later stages find what they read.
Layout  `places` has addresses of lists of the streams of each stage at even and at odd steps: the
        state is in two arrays that take turns. The ghosts that are filled after stage k are the
        rows fill_starts[k + 1] to fill_starts[k + 2] of `fills`, those of the state at the
        beginning the rows before; a row has the address of a name at even and at odd steps, and
        widths. `axes` has the columns of `columns.py`. `counts` has a row for each thread, which
        kernels read. numbers: the address of the parameters of the first step, from there
        `row_bytes` a step.
Limits  Refuses nothing that equations can be.
Test    tests/kernels/test_cpu_equations.py
"""

from __future__ import annotations

from numba import njit
from numba.core import types

from tetris_sim.cpu_kernels.common.columns import COUNT, FIRST, PITCH, SHRINK
from tetris_sim.cpu_kernels.compiled.barrier import wait
from tetris_sim.cpu_kernels.compiled.intrinsics import address_of, call_stage, elements_at
from tetris_sim.cpu_kernels.equations.ghosts import fill_sides, ghost_and_source, reflect_plane
from tetris_sim.cpu_kernels.equations.sides import COLUMNS, NOTHING, ROWS, SHIFT
from tetris_sim.cpu_kernels.plain.parts import CACHED_POINTS

# [the row update begins]
REAL = types.float64
# [the row update ends]
_inner = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
_INT = types.intp
_INTS, _TABLE = types.int64[::1], types.int64[:, ::1]
SIGNATURE = types.void(
    _INT,
    _INT,
    _TABLE,
    _TABLE,
    _INTS,
    _TABLE,
    _TABLE,
    _INTS,
    _INTS,
    _TABLE,
    REAL[:, :, :, :, ::1],
    _TABLE,
    _INT,
    _INT,
    _INT,
    _INTS,
)


@_inner
def _span(axes, beyond, margins, stage, axis, steps_left):
    """First and one past the last padded index along an axis that is computed."""
    low, high = axes[axis, FIRST], axes[axis, FIRST] + axes[axis, COUNT]
    if beyond[axis, 0] == NOTHING:
        low -= steps_left * axes[axis, SHRINK] + margins[stage, axis]
    if beyond[axis, 1] == NOTHING:
        high += steps_left * axes[axis, SHRINK + 1] + margins[stage, axis]
    return low, high


@_inner
def _part(span, thread, threads):
    low, n = span[0], span[1] - span[0]
    return low + n * thread // threads, low + n * (thread + 1) // threads


@_inner
def _computed(axes, beyond, margins, stage, steps_left, thread, threads):
    """Planes, rows and columns of this thread. A grid of one plane and one row is cut along its
    columns.
    """
    planes = _span(axes, beyond, margins, stage, 0, steps_left)
    rows = _span(axes, beyond, margins, stage, 1, steps_left)
    columns = _span(axes, beyond, margins, stage, 2, steps_left)
    alone = beyond[0, 0] == NOTHING and beyond[0, 1] == NOTHING
    if alone and planes[1] - planes[0] == 1 and rows[1] - rows[0] == 1:
        return planes, rows, _part(columns, thread, threads)
    return _part(planes, thread, threads), rows, columns


@_inner
def _fill(v, planes, rows, columns, axes, beyond, fills, faces, f):
    """Every ghost that follows from some planes of a name."""
    pitch0, pitch1 = axes[0, PITCH], axes[1, PITCH]
    for plane in range(planes[0], planes[1]):
        fill_sides(v, plane * pitch0, rows, columns, pitch1, axes, beyond, fills, faces, f)
    for side in range(2):
        if beyond[0, side] == NOTHING:
            continue
        for k in range(fills[f, 2]):
            ghost, source = ghost_and_source(axes, beyond, 0, side, k)
            if planes[0] <= source < planes[1]:
                a, b = faces[f, 0, side, k, 0], faces[f, 0, side, k, 1]
                there = ghost * pitch0
                reflect_plane(v, there, source * pitch0, rows, columns, pitch1, a, b)
                fill_sides(v, there, rows, columns, pitch1, axes, beyond, fills, faces, f)


@njit(SIGNATURE, nogil=True, cache=True)
def advance(
    thread,
    threads,
    axes,
    beyond,
    kernels,
    places,
    margins,
    pitches,
    fill_starts,
    fills,
    faces,
    counts,
    numbers,
    row_bytes,
    steps,
    barrier,
):
    """Advance the state by `steps`, to be called by all `threads` at once.

    The result is in the first array if `steps` is even, in the second if it is odd.
    """
    pitch0, pitch1, other0, other1 = pitches[0], pitches[1], pitches[2], pitches[3]
    block = max(1, CACHED_POINTS // pitch0)
    for number in range(-1, steps * len(kernels)):
        # The state at the beginning is what an odd step before it would have stored.
        step, stage, parity, left = -1, -1, 1, steps
        if number >= 0:
            step, stage = number // len(kernels), number % len(kernels)
            parity, left = step % 2, steps - 1 - step
        planes, rows, columns = _computed(axes, beyond, margins, stage + 1, left, thread, threads)
        counts[thread, COLUMNS], counts[thread, ROWS] = columns[1] - columns[0], rows[1] - rows[0]

        for first in range(planes[0], planes[1], block):
            last = min(first + block, planes[1])
            if stage >= 0:
                for i in range(first, last):
                    counts[thread, SHIFT] = i * pitch0 + rows[0] * pitch1 + columns[0]
                    counts[thread, SHIFT + 1] = i * other0 + rows[0] * other1 + columns[0]
                    counts[thread, SHIFT + 2] = i
                    counts[thread, SHIFT + 3] = rows[0]
                    counts[thread, SHIFT + 4] = columns[0]
                    told = address_of(counts) + thread * 8 * counts.shape[1]
                    row = numbers + step * row_bytes
                    call_stage(kernels[stage], places[parity, stage], told, row)
            for f in range(fill_starts[stage + 1], fill_starts[stage + 2]):
                v, part = elements_at(fills[f, parity], REAL), (first, last)
                _fill(v, part, rows, columns, axes, beyond, fills, faces, f)
        wait(barrier, threads)
