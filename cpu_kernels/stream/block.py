"""One time block after the other: what lies beyond periodic faces, and parts dealt out to threads.

Idea    Each thread takes its own parts of the slab first and then those that no thread has begun.
        Parts need nothing from each other within a block, so the threads meet once per block.
Layout  u, v: flat arrays of padded boxes as in `sweep.py`; a margin of levels * radius beyond
        periodic faces. `constants` are the weights and the (a, b) of every ghost.
Test    tests/kernels/test_stream.py
"""

from __future__ import annotations

from numba import from_dtype
from numba.core import types

from tetris_sim.cpu_kernels.compiled.barrier import wait
from tetris_sim.cpu_kernels.compiled.intrinsics import elements_of, fetch_add, inner, njit
from tetris_sim.cpu_kernels.compiled.vectors import fence_stores
from tetris_sim.cpu_kernels.stream.rows import LINE_ELEMENTS, REAL
from tetris_sim.cpu_kernels.stream.strips import advance_part
from tetris_sim.cpu_kernels.stream.work import FACE, NUMBERS, WRAP

# [copied into each generated module from here on]
_INT = types.intp
SIGNATURE = types.void(
    _INT, _INT, REAL[::1], REAL[::1], _INT, _INT, REAL[::1], from_dtype(NUMBERS)[::1], REAL[:, ::1],
    _INT, types.int64[::1], types.int64[::1],
)  # fmt: skip


@inner
def _set_part(n, number, left):
    """The box of part `number` when `left` more steps follow this block."""
    for axis in range(2, -1, -1):
        pieces, k = n.parts[axis], number % n.parts[axis]
        number //= pieces
        low, high = n.first[axis], n.first[axis] + n.count[axis]
        low -= left * n.shrink_low[axis]
        high += left * n.shrink_high[axis]
        # Borders on cache lines keep two threads from writing the same line.
        step = LINE_ELEMENTS if axis == 2 else 1  # no line of memory belongs to two parts
        most = (high - low + step - 1) // step
        n.low[axis] = low + most * k // pieces * step
        n.high[axis] = min(low + most * (k + 1) // pieces * step, high)
        n.face_low[axis] = k == 0 and n.below[axis] == FACE
        n.face_high[axis] = k == pieces - 1 and n.above[axis] == FACE


@inner
def _margins(n, axis, levels, left):
    """Planes beyond both sides that this block reads or that a neighbour's halo still holds."""
    reach = levels * n.radius[axis]
    low = 0 if n.below[axis] == FACE else reach + left * n.shrink_low[axis]
    high = 0 if n.above[axis] == FACE else reach + left * n.shrink_high[axis]
    return low, high


@inner
def _wrap_planes(u, n, field, levels, left, thread, threads):
    """Copy the planes beyond the periodic faces of axis 0 from the other end, halo rows included,
    each thread some.
    """
    first, count, pitch, width = n.first[0], n.count[0], n.pitch[0], levels * n.radius[0]
    low, past = n.first[1], n.first[1] + n.count[1]
    if n.below[1] != WRAP:  # what lies beyond periodic faces is filled after this
        margin = _margins(n, 1, levels, left)
        low -= margin[0]
        past += margin[1]
    for k in range(thread, 2 * width, threads):
        plane = first - 1 - k if k < width else first + count + k - width
        source = first + (plane - first) % count
        for x in range(field + low * n.pitch[1], field + past * n.pitch[1]):
            u[plane * pitch + x] = u[source * pitch + x]


@inner
def _wrap_sides(u, n, field, levels, left, thread, threads):
    """Copy what lies beyond the periodic faces of axes 1 and 2, each thread in some planes."""
    planes, rows = _margins(n, 0, levels, left), _margins(n, 1, levels, left)
    low, high = n.first[0] - planes[0], n.first[0] + n.count[0] + planes[1]
    first, past = n.first[1], n.first[1] + n.count[1]
    start, columns = n.first[2], n.count[2]
    for plane in range(
        low + (high - low) * thread // threads, low + (high - low) * (thread + 1) // threads
    ):
        base = field + plane * n.pitch[0] + start
        for row in range(first - rows[0], past + rows[1]):
            p = base + row * n.pitch[1]

            if n.below[1] == WRAP and not first <= row < past:
                source = base + (first + (row - first) % n.count[1]) * n.pitch[1]
                for x in range(columns):
                    u[p + x] = u[source + x]
            if n.below[2] == WRAP:
                for k in range(levels * n.radius[2]):
                    u[p - 1 - k] = u[p + (-1 - k) % columns]
                    u[p + columns + k] = u[p + k % columns]


@njit(SIGNATURE, nogil=True, cache=True)
def advance(
    thread,
    threads,
    u,
    v,
    n_fields,
    field_pitch,
    constants,
    numbers,
    scratch,
    steps,
    claims,
    barrier,
):
    """Advance the state in u by `steps`, to be called by all `threads` at once.

    The result is in u if the number of blocks is even, in v if it is odd.
    """
    n, g = numbers[thread], elements_of(scratch[thread])
    source, target = elements_of(u), elements_of(v)
    # A thread's scratch memory holds its own copy of the constants, next to its rings.
    for k in range(constants.size):
        g[n.weights + k] = constants[k]

    parts = n.parts[0] * n.parts[1] * n.parts[2]
    left = steps
    while left > 0:
        # The shorter block comes first: a rim (`stepper.py`) reads twice the levels of its block
        # deep into what the block after the next one has written over in the inner part.
        levels = (left - 1) % n.block + 1
        left -= levels
        n.levels = levels

        if n.below[0] == WRAP:
            for field in range(n_fields):
                _wrap_planes(source, n, field * field_pitch, levels, left, thread, threads)
            wait(barrier, threads)
        if n.below[1] == WRAP or n.below[2] == WRAP:
            for field in range(n_fields):
                _wrap_sides(source, n, field * field_pitch, levels, left, thread, threads)
            wait(barrier, threads)

        # Its own parts first, then those that no thread has begun.
        for k in range(parts):
            number = (parts * thread // threads + k) % parts
            # Counters grow by `threads` per block: each thread tries each part once, and only the
            # first one takes it.
            if fetch_add(claims, number * 8, 1) % threads == 0:
                _set_part(n, number, left)
                if n.low[0] < n.high[0] and n.low[1] < n.high[1]:  # rims are thin for many parts
                    for field in range(n_fields):
                        n.field = field * field_pitch
                        advance_part(source, target, g, n)

        fence_stores()
        wait(barrier, threads)
        source, target = target, source
