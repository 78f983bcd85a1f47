"""The time loop of one thread that streams equations: strips of a slab, all steps of a block and
all their stages in one pass.

Idea    A strip is a box of rows and columns through all planes of a part. Planes are read one after
        the other into rings in the second-level cache; each stage of each step follows some planes
        behind what it reads, and what the last step makes goes to memory. Strips overlap: each
        computes as far beyond its box as its later stages need, so that strips need nothing from
        each other, and what lies beyond periodic faces is read from the other end.
Layout  Each step of a block has a set of rings: of the fields as they are before it and of the
        names that its stages give. A ring has as many planes as are needed at a time. u, v: flat
        arrays of padded boxes. table: the address of the parameters of the first step, from there
        `row_bytes` a step. What is in tables and records says `numbers.py`.
Limits  Vectors of columns are computed whole: up to a vector beyond the box, from whatever lies
        there, and never read. Ghosts are filled after that.
Test    tests/kernels/test_cpu_equations.py
"""

from __future__ import annotations

from numba import from_dtype
from numba.core import types

from tetris_sim.cpu_kernels.compiled.barrier import wait
from tetris_sim.cpu_kernels.compiled.intrinsics import (
    elements_at,
    elements_of,
    fetch_add,
    inner,
    larger,
    njit,
    smaller,
    store_release,
)
from tetris_sim.cpu_kernels.compiled.vectors import (
    fence_stores,
    prefetch,
    vector_operations,
)
from tetris_sim.cpu_kernels.equations.planes import (
    call_kernel,
    fill_plane,
    of_name,
    of_stage,
)
from tetris_sim.cpu_kernels.equations.stages import (
    DEPTH,
    FIELD,
    LAG,
    MADE,
    MARGIN,
    MIRRORED,
    NEXT,
    NOTHING,
    NUMBERS,
    START,
    WIDTH,
    WRAP,
)

# [the row update begins]
REAL, LANES = types.float64, 4
# [the row update ends]
_V = vector_operations(REAL.name, LANES)
load, store, store_past_caches = _V.load, _V.store, _V.store_past_caches
LINE_ELEMENTS = 64 * 8 // REAL.bitwidth
_INT, _INTS = types.intp, types.int64[::1]
SIGNATURE = types.void(
    _INT, _INT, REAL[::1], REAL[::1], from_dtype(NUMBERS)[::1], _INT, _INT, _INT, _INTS, _INTS
)  # fmt: skip


@inner
def _copy(v, p, g, q, run, past_caches):
    """v[p + k] = g[q + k] for k = 0 .. run-1."""
    k = 0
    if past_caches:
        # Streaming stores need an aligned address, so the first elements are stored one by one.
        while k < run and (p + k) % LANES != 0:
            v[p + k] = g[q + k]
            k += 1
        while k + LANES <= run:
            store_past_caches(v, p + k, load(g, q + k))
            k += LANES

    while k + LANES <= run:
        store(v, p + k, load(g, q + k))
        k += LANES
    while k < run:
        v[p + k] = g[q + k]
        k += 1


@inner
def _wrapped(n, axis, index):
    """The padded index of the point that is meant by one beyond a periodic face."""
    if n.beyond[2 * axis] == WRAP:
        return n.first[axis] + (index - n.first[axis]) % n.count[axis]
    return index


@inner
def _read_plane(u, g, n, field, p, to):
    """A plane of a field into its ring; `to` is the element of row 0, column 0 there."""
    start = field * n.field_pitch + _wrapped(n, 0, p) * n.pitch[0]
    for j in range(n.begin[1], n.end[1]):
        row, k = start + _wrapped(n, 1, j) * n.pitch[1], n.begin[2]
        while k < n.end[2]:
            source, run = _wrapped(n, 2, k), n.end[2] - k
            # A run ends where the periodic axis wraps around.
            if n.beyond[4] == WRAP:
                run = smaller(run, n.first[2] + n.count[2] - source)
            _copy(g, to + j * n.row + k, u, row + source, run, 0)
            k += run


@inner
def _expect_plane(u, n, field, p):
    """Ask for a plane of a field that is read at the next visit: all steps of this one lie between,
    so that memory answers meanwhile.
    """
    start = field * n.field_pitch + _wrapped(n, 0, p) * n.pitch[0]
    for j in range(n.begin[1], n.end[1]):
        row = start + _wrapped(n, 1, j) * n.pitch[1]
        for k in range(n.begin[2], n.end[2], LINE_ELEMENTS):
            prefetch(u, row + _wrapped(n, 2, k))


@inner
def _write_plane(v, g, n, field, p, at):
    """Store the strip's own part of a plane of a field from its ring to memory."""
    start, run = field * n.field_pitch + p * n.pitch[0] + n.low[2], n.high[2] - n.low[2]
    for j in range(n.low[1], n.high[1]):
        _copy(v, start + j * n.pitch[1], g, at + j * n.row + n.low[2], run, n.past_caches)


@inner
def _set_box(n, s, later):
    """The points that a stage computes when so many steps follow."""
    n.touches = 0
    for axis in range(3):
        around = of_stage(n, s, MARGIN + axis) + later * n.radius[axis]
        low, high = n.low[axis] - around, n.high[axis] + around
        first, past = n.first[axis], n.first[axis] + n.count[axis]
        n.touch[2 * axis], n.touch[2 * axis + 1] = NOTHING, NOTHING
        # Beyond a face with mirrors there is nothing to compute: ghosts take its place.
        if n.beyond[2 * axis] == MIRRORED and low < first:
            low, n.touch[2 * axis] = first, MIRRORED
            n.touches += 1
        if n.beyond[2 * axis + 1] == MIRRORED and high > past:
            high, n.touch[2 * axis + 1] = past, MIRRORED
            n.touches += 1
        n.begin[axis], n.end[axis] = low, high


@inner
def _in_ring(n, f, level, p):
    """The element of row 0 and column 0 of a plane of a name."""
    ring = of_name(n, f, START) + p % of_name(n, f, DEPTH) * n.plane
    return (level + of_name(n, f, NEXT)) * n.set + ring - n.row0 * n.row - n.column0


@inner
def _visit(u, v, g, n, level, s, at, row):
    """Some planes of a stage of the step after `level`; stage 0 reads the state."""
    made, past = of_stage(n, s, MADE), of_stage(n, s, MADE + 1)
    first, last = larger(at, n.begin[0]), smaller(at + n.visit, n.end[0])
    if s == 0:
        for p in range(first, last):
            for f in range(made, past):
                _read_plane(u, g, n, of_name(n, f, FIELD), p, _in_ring(n, f, level, p))
        for p in range(last, smaller(last + n.visit, n.end[0])):
            for f in range(made, past):
                _expect_plane(u, n, of_name(n, f, FIELD), p)
    elif first < last:
        # Begin on a whole vector of the ring; the extra columns are never read.
        column = n.begin[2] - (n.begin[2] - n.column0) % LANES
        columns = (n.end[2] - column + LANES - 1) // LANES * LANES
        shift = level * n.set + (n.begin[1] - n.row0) * n.row + column - n.column0
        call_kernel(n, s, first, last - first, column, columns, shift, first % n.period, row)

    if s > 0 and level == n.levels - 1:
        # Only the strip's own box goes to memory: what overlaps belongs to other strips.
        for p in range(larger(first, n.low[0]), smaller(last, n.high[0])):
            for f in range(made, past):
                if of_name(n, f, FIELD) >= 0:
                    _write_plane(v, g, n, of_name(n, f, FIELD), p, _in_ring(n, f, level, p))
    if n.touches > 0:
        for p in range(at, at + n.visit):
            _fill_ghosts(n, level, made, past, p)


@inner
def _fill_ghosts(n, level, made, past, p):
    """Ghosts in a plane itself, and in a plane of ghosts that mirrors it; or the plane is one."""
    inside, low, beyond = n.begin[0] <= p < n.end[0], n.begin[0], p - n.end[0]
    for number in range(2):
        plane, source, side, k = p, p, number, p - low
        if number == 1 and inside and n.touch[0] != NOTHING:
            plane, side = low - 1 - k, 0
        elif number == 1 and not inside and n.touch[1] != NOTHING and beyond >= 0:
            source, k = n.end[0] - 1 - beyond, beyond
        elif number == 1 or not inside:
            continue
        for f in range(made, past):
            if number == 0 or k < of_name(n, f, WIDTH):
                to, at = _in_ring(n, f, level, plane), _in_ring(n, f, level, source)
                fill_plane(n.rings, n, to, at, f, side, k)


@inner
def _advance_strip(u, v, g, n, table, row_bytes):
    """All steps of a block in one strip; `table` has the parameters of the first of them."""
    n.row0, n.column0 = n.low[1] - n.around[1], n.low[2] - n.around[2]
    _set_box(n, 0, n.levels)
    first, behind = n.begin[0] - n.around[0], (n.levels - 1) * n.lag + n.last_lag
    for front in range(first, n.high[0] + behind, n.visit):
        for level in range(n.levels):
            for s in range(0 if level == 0 else 1, n.n_stages + 1):
                at = front - level * n.lag - of_stage(n, s, LAG)
                # This stage has not reached the strip yet.
                if at + n.visit <= first:
                    continue
                _set_box(n, s, n.levels - level - (s > 0))
                _visit(u, v, g, n, level, s, at, table + level * row_bytes)


@inner
def _set_strip(n, number, left):
    """The box of strip `number` when so many steps follow the block."""
    for axis in range(2, -1, -1):
        pieces, k = n.strips[axis], number % n.strips[axis]
        number //= pieces
        low, high = n.first[axis], n.first[axis] + n.count[axis]
        low -= left * n.radius[axis] if n.beyond[2 * axis] == NOTHING else 0
        high += left * n.radius[axis] if n.beyond[2 * axis + 1] == NOTHING else 0
        step = LINE_ELEMENTS if axis == 2 else 1  # no line of memory belongs to two strips
        units = (high - low + step - 1) // step
        n.low[axis] = low + units * k // pieces * step
        n.high[axis] = smaller(low + units * (k + 1) // pieces * step, high)


@njit(SIGNATURE, nogil=True, cache=True, error_model="numpy")
def advance(thread, threads, u, v, own, table, row_bytes, steps, claims, barrier):
    """Advance the state in u by `steps`, to be called by all `threads` at once.

    The result is in u after an even number of blocks, in v after an odd one. `claims` are two
    counters of strips that have been begun, on cache lines of their own: 0 at the beginning.
    """
    n = own[thread]
    g, source, target = elements_at(n.rings, REAL), elements_of(u), elements_of(v)
    number = 0
    for done in range(0, steps, n.block):
        n.levels = smaller(n.block, steps - done)
        left = steps - done - n.levels
        # Two counters take turns, so one can be cleared while the other one is in use.
        if thread == 0:
            store_release(claims, 8 * (1 - number % 2), 0)  # all have left the block before

        while True:
            strip = fetch_add(claims, 8 * (number % 2), 1)
            if strip >= n.strips[0] * n.strips[1] * n.strips[2]:
                break
            _set_strip(n, strip, left)
            if n.low[0] < n.high[0] and n.low[1] < n.high[1] and n.low[2] < n.high[2]:
                here = table + done * row_bytes
                _advance_strip(source, target, g, n, here, row_bytes)

        if n.past_caches:
            fence_stores()
        # The barrier orders the blocks: strips of the next one read results of all threads.
        wait(barrier, threads)
        source, target, number = target, source, number + 1
