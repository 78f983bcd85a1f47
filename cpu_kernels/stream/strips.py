"""The compiled loop of `cpu.stream` in 2D and 3D: strips streamed through the caches, many levels
at once.

Idea    A time block advances the whole slab by `levels` steps in one pass over memory. Each thread
        owns a box (a part). It cuts the box into strips along x (and y in 3D) and streams the
        planes of a strip along axis 0: as a group of planes is loaded (level 0), level 1 is
        computed one radius behind it, level 2 another radius behind, and so on; only the last
        planes of each level are kept, in rings that stay in the caches, and the last level goes
        back to memory. A strip leans over: at level t it covers columns (and rows) t radii further
        to the left, so that it reads only from itself and from what the strip before it left behind
        at its edge (`edges`): nothing is computed twice between strips. Only where a part meets
        another thread's, a neighbour's halo or a periodic face, the part is extended by levels *
        radius and that is computed by both.
Layout  u, v: flat arrays of padded boxes as in `sweep.py`. In the rings a row of n columns is
        lifted: it is cut into LANES equal pieces and vector p holds the p-th point of every piece,
        so neighbours along x are neighbouring vectors. In front of each row lie 2 radius vectors,
        and in front of each unit (the rows of one plane in one strip) 2 radius rows, which the
        strip before has left behind. Lifting and its inverse happen on the way from and to memory,
        once per block. `numbers` (n) and `scratch` (g) are the thread's own; `numbers.py` names
        what is where. Ghosts are filled in the rings after every level, axis 0 first; u and v need
        none.
Limits  Every axis has at least `radius` points, and a strip at a face as many rows and columns as
        LEVELS + 2 radii.
Test    tests/kernels/test_stream.py, tests/kernels/test_against_reference.py
"""

from __future__ import annotations

from tetris_sim.cpu_kernels.compiled.intrinsics import call_kernel, inner
from tetris_sim.cpu_kernels.compiled.vectors import prefetch
from tetris_sim.cpu_kernels.stream.rows import (
    LANES,
    LINE_ELEMENTS,
    last,
    load,
    reflect,
    shift_up,
    store,
    store_line,
    transpose_in,
    transpose_out,
)

# [copied into each generated module from here on]


@inner
def _turn(slot, depth):
    """A slot below 2 * depth, counted around the ring."""
    return slot - depth if slot >= depth else slot


@inner
def _load_unit(u, g, n, unit, plane):
    """Lift the rows of one plane from memory."""
    vectors = n.vectors
    first = n.field + plane * n.pitch[0] + n.column
    exist = n.high[1] + (n.radius[1] if n.face_high[1] else n.levels * n.radius[1]) - n.row
    for j in range(min(n.rows, exist)):
        row = unit + (2 * n.radius[1] + j) * n.row_pitch + 2 * n.radius[2] * LANES
        p = first + (n.row + j) * n.pitch[1]
        for x in range(0, vectors - LANES + 1, LANES):
            transpose_in(u, p + x, vectors, g, row + x * LANES)
        # The last vectors overlap those before; both copies take the same values.
        if vectors % LANES:
            transpose_in(u, p + vectors - LANES, vectors, g, row + (vectors - LANES) * LANES)


@inner
def _store_rows(v, g, n, unit, plane, row):
    """Lower some rows of one plane at the last level into memory, as far as they belong to the
    part.
    """
    vectors, line = n.vectors, n.line
    column, row0 = n.column - n.levels * n.radius[2], n.row - n.levels * n.radius[1]
    first, past = max(n.low[2] - column, 0), min(n.high[2] - column, vectors * LANES)
    # At the last level this strip may lie outside the part altogether.
    if first >= past:
        return
    for j in range(max(n.low[1] - row0, row), min(n.high[1] - row0, n.rows, row + n.jam[1])):
        source = unit + (2 * n.radius[1] + j) * n.row_pitch + 2 * n.radius[2] * LANES
        for x in range(0, vectors - LANES + 1, LANES):
            transpose_out(g, source + x * LANES, g, line + x, vectors)
        if vectors % LANES:
            transpose_out(g, source + (vectors - LANES) * LANES, g, line + vectors - LANES, vectors)
        p = n.field + plane * n.pitch[0] + (row0 + j) * n.pitch[1] + column
        store_line(v, p, g, line, first, past, n.past_caches)


@inner
def _update_group(u, v, g, n, level, plane, ring, slot, stop):
    """Compute a group of planes of one level, a few rows at a time.

    Between them it asks for a part of the group that will be loaded next (all levels together for
    all of it), and of the last level it stores what is ready: all at once would fill the queues to
    memory, and the core would wait.
    """
    lines = n.vectors * LANES // LINE_ELEMENTS
    # Each level prefetches its share of the next group's columns.
    begin = lines * (level - 1) // n.levels * LINE_ELEMENTS
    end = lines * level // n.levels * LINE_ELEMENTS
    coming = plane + level * n.radius[0] + n.jam[0]
    ahead = min(n.jam[0], n.high[0] + (0 if n.face_high[0] else n.levels * n.radius[0]) - coming)
    next_row = n.field + coming * n.pitch[0] + n.row * n.pitch[1] + n.column

    n.slot = slot
    for j in range(0, n.rows, n.jam[1]):
        n.source, n.target = ring - n.depth * n.unit + j * n.row_pitch, ring + j * n.row_pitch
        call_kernel(n.kernel, g, n)

        for k in range(ahead):
            for i in range(n.jam[1]):
                p = next_row + k * n.pitch[0] + i * n.pitch[1]
                for x in range(begin, end, LINE_ELEMENTS):
                    prefetch(u, p + x)
        next_row += n.jam[1] * n.pitch[1]

        if level == n.levels:
            for k in range(max(n.low[0] - plane, 0), min(n.jam[0], stop - plane)):
                _store_rows(v, g, n, ring + _turn(slot + k, n.depth) * n.unit, plane + k, j)


@inner
def _fill_rows(g, n, unit, level):
    """Ghost rows beyond the faces of axis 1 that lie in this unit."""
    pitch, past = n.row_pitch, 2 * n.radius[1] + n.rows
    row0 = n.row - level * n.radius[1] - 2 * n.radius[1]  # that of the first row in memory
    for k in range(n.radius[1]):
        ghost, source = n.low[1] - 1 - k - row0, n.low[1] + k - row0
        if n.face_low[1] and ghost >= 2 * n.radius[1] and source < past:
            reflect(g, n, unit + source * pitch, unit + ghost * pitch, pitch, 1, 0, k)

        ghost, source = n.high[1] + k - row0, n.high[1] - 1 - k - row0
        if n.face_high[1] and 2 * n.radius[1] <= ghost < past:
            reflect(g, n, unit + source * pitch, unit + ghost * pitch, pitch, 1, 1, k)


@inner
def _fill_columns(g, n, row, kept, level):
    """Ghosts of one row beyond the faces of axis 2 that lie in this strip; `row` is the element of
    vector 0.
    """
    vectors, column = n.vectors, n.column - level * n.radius[2]
    for k in range(n.radius[2]):
        ghost, source = n.low[2] - 1 - k - column, n.low[2] + k - column
        if n.face_low[2] and ghost >= 0 and source < vectors * LANES:
            p, q = (
                row + source % vectors * LANES + source // vectors,
                row + ghost % vectors * LANES + ghost // vectors,
            )
            reflect(g, n, p, q, 1, 2, 0, k)

        ghost, source = n.high[2] + k - column, n.high[2] - 1 - k - column
        if n.face_high[2] and 0 <= ghost < vectors * LANES:
            p, q = (
                row + source % vectors * LANES + source // vectors,
                row + ghost % vectors * LANES + ghost // vectors,
            )
            reflect(g, n, p if source >= 0 else kept - 1 - source, q, 1, 2, 1, k)


@inner
def _finish_unit(g, n, unit, level, place):
    """After a unit's own points are known: its ghosts, and the rows and vectors in front of it.

    `place` is the number of this unit among all that the strip keeps something of for the next
    strip.
    """
    last_vector = (n.vectors - 1) * LANES
    across = n.kept_rows + place * 2 * n.radius[1] * n.row_pitch
    kept = n.along + place * n.strip_rows * 2 * n.radius[2]
    prefetch(g, kept + n.levels * n.jam[0] * n.strip_rows * 2 * n.radius[2])

    # Rows that the previous strip left behind become the rows in front of this unit.
    if n.radius[1] > 0:
        for x in range(0, 2 * n.radius[1] * n.row_pitch, LANES):
            store(g, unit + x, load(g, across + x))
        _fill_rows(g, n, unit, level)

    column = n.column - level * n.radius[2]
    faces = (n.face_low[2] and column <= n.low[2]) or (
        n.face_high[2] and column + n.vectors * LANES > n.high[2]
    )
    row = unit + 2 * n.radius[1] * n.row_pitch + 2 * n.radius[2] * LANES
    for _ in range(n.rows):
        if faces:
            _fill_columns(g, n, row, kept, level)
        for q in range(2 * n.radius[2]):
            vector = load(g, row + last_vector - q * LANES)
            store(g, row - (1 + q) * LANES, shift_up(vector, g[kept + q]))
            g[kept + q] = last(vector)
        row += n.row_pitch
        kept += 2 * n.radius[2]

    # Leave the last rows of this unit to the next strip.
    if n.radius[1] > 0:
        for x in range(0, 2 * n.radius[1] * n.row_pitch, LANES):
            store(g, across + x, load(g, unit + n.rows * n.row_pitch + x))


@inner
def _reflect_plane(g, n, source, ghost, side, k, level, place):
    """A ghost plane of axis 0, with its own ghosts."""
    zero, ring = n.plane - level * n.radius[0], n.rings + level * n.depth * n.unit
    own, target = 2 * n.radius[1] * n.row_pitch, ring + (ghost - zero) % n.depth * n.unit
    reflect(
        g,
        n,
        ring + (source - zero) % n.depth * n.unit + own,
        target + own,
        n.unit - own,
        0,
        side,
        k,
    )
    _finish_unit(g, n, target, level, place)


@inner
def _advance_group(u, v, g, n, level, group, slot):
    """Make the next group of planes of one level; the first of them takes place `slot` of its
    ring.
    """
    plane = n.plane - level * n.radius[0] + group * n.jam[0]
    grown = (n.levels - level) * n.radius[0]
    start = n.low[0] - (0 if n.face_low[0] else grown)
    stop = n.high[0] + (0 if n.face_high[0] else grown)
    end = stop + (n.radius[0] if n.face_high[0] and level < n.levels else 0)
    # The group lies outside the range that this level needs.
    if plane + n.jam[0] <= start or plane >= end:
        return

    ring = n.rings + level * n.depth * n.unit
    if level > 0 and plane < stop:
        _update_group(u, v, g, n, level, plane, ring, slot, stop)
    if level == n.levels:
        return

    place = (group * n.levels + level) * n.jam[0]
    for k in range(max(start - plane, 0), min(n.jam[0], end - plane)):
        unit, i = ring + _turn(slot + k, n.depth) * n.unit, plane + k
        if i >= stop:
            _reflect_plane(g, n, 2 * stop - 1 - i, i, 1, i - stop, level, place + k)
        else:
            if level == 0:
                _load_unit(u, g, n, unit, i)
            _finish_unit(g, n, unit, level, place + k)
            if n.face_low[0] and i < start + n.radius[0]:
                ghosts = n.groups * n.levels * n.jam[0] + level * n.radius[0]
                _reflect_plane(g, n, i, 2 * start - 1 - i, 0, i - start, level, ghosts + i - start)


@inner
def _stream_strip(u, v, g, n):
    """All levels of one strip: a group of planes at a time, each level one radius behind the one
    before.
    """
    n.row_pitch = (2 * n.radius[2] + n.vectors) * LANES
    n.unit = (2 * n.radius[1] + (n.rows + n.jam[1] - 1) // n.jam[1] * n.jam[1]) * n.row_pitch
    slot = 0
    # Levels of one group run in order: each reads planes that the one before has just made.
    for group in range(n.groups):
        for level in range(n.levels + 1):
            _advance_group(u, v, g, n, level, group, slot)
        slot = _turn(slot + n.jam[0], n.depth)


@inner
def advance_part(u, v, g, n):
    """All strips of one part, in the order in which they leave their edges to each other."""
    levels = n.levels
    # A first strip begins with one radius of ghosts, or with all that two parts compute both.
    row0 = n.low[1] - (n.radius[1] if n.face_low[1] else levels * n.radius[1])
    column0 = n.low[2] - (n.radius[2] if n.face_low[2] else levels * n.radius[2])
    n.plane = n.low[0] - (0 if n.face_low[0] else levels * n.radius[0])
    n.groups = (n.high[0] + levels * n.radius[0] - n.plane + n.jam[0] - 1) // n.jam[0]

    places = n.groups * levels * n.jam[0] + levels * n.radius[0]
    rows = n.high[1] + levels * n.radius[1] - row0
    n_down = (rows + n.strip_rows - 1) // n.strip_rows
    columns, turn = n.high[2] + levels * n.radius[2] - column0, LANES * n.unroll
    turns = max((columns + turn - 1) // turn, (LANES + n.unroll - 1) // n.unroll)
    n_right = (turns * n.unroll + n.strip_vectors - 1) // n.strip_vectors

    for j in range(n_down):
        n.row = row0 + rows * j // n_down
        n.rows = row0 + rows * (j + 1) // n_down - n.row
        n.kept_rows = n.across

        for i in range(n_right):
            n.column = column0 + turns * i // n_right * n.unroll * LANES
            n.vectors = (turns * (i + 1) // n_right - turns * i // n_right) * n.unroll
            _stream_strip(u, v, g, n)
            n.kept_rows += places * 2 * n.radius[1] * n.row_pitch
