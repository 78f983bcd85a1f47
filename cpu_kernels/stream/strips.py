"""The compiled loop of `cpu.stream` in 2D and 3D: strips streamed through the caches, many levels
at once.

Idea    A time block advances the whole slab by `levels` steps in one pass over memory. Each thread
owns a box (a part).
        It cuts the box into strips along x (and y in 3D) and streams the planes of a strip along
        axis 0: as a group of planes is loaded (level 0), level 1 is computed one radius behind it,
        level 2 another radius behind, and so on; only the last planes of each level are kept, in
        rings that stay in the caches, and the last level goes back to memory. A strip leans over:
        at level t it covers columns (and rows) t radii further to the left, so that it reads only
        from itself and from what the strip before it left behind at its edge (`edges`): nothing is
        computed twice between strips. Only where a part meets another thread's, a neighbour's halo
        or a periodic face, the part is extended by levels * radius and that is computed by both.
Layout  u, v: flat arrays of padded boxes as in `sweep.py`. In the rings a row of n columns is
lifted: it is cut into
        LANES equal pieces and vector p holds the p-th point of every piece, so neighbours along x
        are neighbouring vectors. In front of each row lie 2 radius vectors, and in front of each
        unit (the rows of one plane in one strip) 2 radius rows, which the strip before has left
        behind. Lifting and its inverse happen on the way from and to memory, once per block.
        `numbers` (n) and `scratch` (g) are the thread's own; `numbers.py` names what is where.
        Ghosts are filled in the rings after every level, axis 0 first; u and v need none.
Limits  Every axis has at least `radius` points, and a strip at a face as many rows and columns as
LEVELS + 2 radii. Test    tests/kernels/test_stream.py, tests/kernels/test_against_reference.py
"""

from __future__ import annotations

from tetris_sim.cpu_kernels.common.intrinsics import call_kernel
from tetris_sim.cpu_kernels.common.vectors import prefetch
from tetris_sim.cpu_kernels.stream.numbers import (
    ACROSS,
    ALONG,
    COLUMN,
    DEPTH,
    FACE_HIGH,
    FACE_LOW,
    FIELD,
    GROUPS,
    HIGH,
    JAM,
    KEPT_ROWS,
    KERNEL,
    LEVELS,
    LINE,
    LOW,
    PAST_CACHES,
    PITCH,
    PLANE,
    RADIUS,
    RINGS,
    ROW,
    ROW_PITCH,
    ROWS,
    SLOT,
    SOURCE,
    STRIP_ROWS,
    STRIP_VECTORS,
    TARGET,
    UNIT,
    UNROLL,
    VECTORS,
)
from tetris_sim.cpu_kernels.stream.rows import (
    LANES,
    LINE_ELEMENTS,
    _inner,
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


@_inner
def _turn(slot, depth):
    """A slot below 2 * depth, counted around the ring."""
    return slot - depth if slot >= depth else slot


@_inner
def _load_unit(u, g, n, unit, plane):
    """Lift the rows of one plane from memory."""
    vectors = n[VECTORS]
    first = n[FIELD] + plane * n[PITCH] + n[COLUMN]
    exist = (
        n[HIGH + 1] + (n[RADIUS + 1] if n[FACE_HIGH + 1] else n[LEVELS] * n[RADIUS + 1]) - n[ROW]
    )
    for j in range(min(n[ROWS], exist)):
        row = unit + (2 * n[RADIUS + 1] + j) * n[ROW_PITCH] + 2 * n[RADIUS + 2] * LANES
        p = first + (n[ROW] + j) * n[PITCH + 1]
        for x in range(0, vectors - LANES + 1, LANES):
            transpose_in(u, p + x, vectors, g, row + x * LANES)
        if vectors % LANES:
            transpose_in(u, p + vectors - LANES, vectors, g, row + (vectors - LANES) * LANES)


@_inner
def _store_rows(v, g, n, unit, plane, row):
    """Lower some rows of one plane at the last level into memory, as far as they belong to the
    part.
    """
    vectors, line = n[VECTORS], n[LINE]
    column, row0 = n[COLUMN] - n[LEVELS] * n[RADIUS + 2], n[ROW] - n[LEVELS] * n[RADIUS + 1]
    first, past = max(n[LOW + 2] - column, 0), min(n[HIGH + 2] - column, vectors * LANES)
    if first >= past:
        return
    for j in range(max(n[LOW + 1] - row0, row), min(n[HIGH + 1] - row0, n[ROWS], row + n[JAM + 1])):
        source = unit + (2 * n[RADIUS + 1] + j) * n[ROW_PITCH] + 2 * n[RADIUS + 2] * LANES
        for x in range(0, vectors - LANES + 1, LANES):
            transpose_out(g, source + x * LANES, g, line + x, vectors)
        if vectors % LANES:
            transpose_out(g, source + (vectors - LANES) * LANES, g, line + vectors - LANES, vectors)
        p = n[FIELD] + plane * n[PITCH] + (row0 + j) * n[PITCH + 1] + column
        store_line(v, p, g, line, first, past, n[PAST_CACHES])


@_inner
def _update_group(u, v, g, n, level, plane, ring, slot, stop):
    """Compute a group of planes of one level, a few rows at a time.

    Between them it asks for a part of the group that will be loaded next (all levels together for
    all of it), and of the last level it stores what is ready: all at once would fill the queues to
    memory, and the core would wait.
    """
    lines = n[VECTORS] * LANES // LINE_ELEMENTS
    begin, end = (
        lines * (level - 1) // n[LEVELS] * LINE_ELEMENTS,
        lines * level // n[LEVELS] * LINE_ELEMENTS,
    )
    coming = plane + level * n[RADIUS] + n[JAM]
    ahead = min(n[JAM], n[HIGH] + (0 if n[FACE_HIGH] else n[LEVELS] * n[RADIUS]) - coming)
    next_row = n[FIELD] + coming * n[PITCH] + n[ROW] * n[PITCH + 1] + n[COLUMN]
    n[SLOT] = slot
    for j in range(0, n[ROWS], n[JAM + 1]):
        n[SOURCE], n[TARGET] = ring - n[DEPTH] * n[UNIT] + j * n[ROW_PITCH], ring + j * n[ROW_PITCH]
        call_kernel(n[KERNEL], g, n)
        for k in range(ahead):
            for i in range(n[JAM + 1]):
                p = next_row + k * n[PITCH] + i * n[PITCH + 1]
                for x in range(begin, end, LINE_ELEMENTS):
                    prefetch(u, p + x)
        next_row += n[JAM + 1] * n[PITCH + 1]
        if level == n[LEVELS]:
            for k in range(max(n[LOW] - plane, 0), min(n[JAM], stop - plane)):
                _store_rows(v, g, n, ring + _turn(slot + k, n[DEPTH]) * n[UNIT], plane + k, j)


@_inner
def _fill_rows(g, n, unit, level):
    """Ghost rows beyond the faces of axis 1 that lie in this unit."""
    pitch, past = n[ROW_PITCH], 2 * n[RADIUS + 1] + n[ROWS]
    row0 = n[ROW] - level * n[RADIUS + 1] - 2 * n[RADIUS + 1]  # that of the first row in memory
    for k in range(n[RADIUS + 1]):
        ghost, source = n[LOW + 1] - 1 - k - row0, n[LOW + 1] + k - row0
        if n[FACE_LOW + 1] and ghost >= 2 * n[RADIUS + 1] and source < past:
            reflect(g, n, unit + source * pitch, unit + ghost * pitch, pitch, 1, 0, k)
        ghost, source = n[HIGH + 1] + k - row0, n[HIGH + 1] - 1 - k - row0
        if n[FACE_HIGH + 1] and 2 * n[RADIUS + 1] <= ghost < past:
            reflect(g, n, unit + source * pitch, unit + ghost * pitch, pitch, 1, 1, k)


@_inner
def _fill_columns(g, n, row, kept, level):
    """Ghosts of one row beyond the faces of axis 2 that lie in this strip; `row` is the element of
    vector 0.
    """
    vectors, column = n[VECTORS], n[COLUMN] - level * n[RADIUS + 2]
    for k in range(n[RADIUS + 2]):
        ghost, source = n[LOW + 2] - 1 - k - column, n[LOW + 2] + k - column
        if n[FACE_LOW + 2] and ghost >= 0 and source < vectors * LANES:
            p, q = (
                row + source % vectors * LANES + source // vectors,
                row + ghost % vectors * LANES + ghost // vectors,
            )
            reflect(g, n, p, q, 1, 2, 0, k)
        ghost, source = n[HIGH + 2] + k - column, n[HIGH + 2] - 1 - k - column
        if n[FACE_HIGH + 2] and 0 <= ghost < vectors * LANES:
            p, q = (
                row + source % vectors * LANES + source // vectors,
                row + ghost % vectors * LANES + ghost // vectors,
            )
            reflect(g, n, p if source >= 0 else kept - 1 - source, q, 1, 2, 1, k)


@_inner
def _finish_unit(g, n, unit, level, place):
    """After a unit's own points are known: its ghosts, and the rows and vectors in front of it.

    `place` is the number of this unit among all that the strip keeps something of for the next
    strip.
    """
    last_vector = (n[VECTORS] - 1) * LANES
    across = n[KEPT_ROWS] + place * 2 * n[RADIUS + 1] * n[ROW_PITCH]
    kept = n[ALONG] + place * n[STRIP_ROWS] * 2 * n[RADIUS + 2]
    prefetch(g, kept + n[LEVELS] * n[JAM] * n[STRIP_ROWS] * 2 * n[RADIUS + 2])
    if n[RADIUS + 1] > 0:
        for x in range(0, 2 * n[RADIUS + 1] * n[ROW_PITCH], LANES):
            store(g, unit + x, load(g, across + x))
        _fill_rows(g, n, unit, level)
    column = n[COLUMN] - level * n[RADIUS + 2]
    faces = (n[FACE_LOW + 2] and column <= n[LOW + 2]) or (
        n[FACE_HIGH + 2] and column + n[VECTORS] * LANES > n[HIGH + 2]
    )
    row = unit + 2 * n[RADIUS + 1] * n[ROW_PITCH] + 2 * n[RADIUS + 2] * LANES
    for _ in range(n[ROWS]):
        if faces:
            _fill_columns(g, n, row, kept, level)
        for q in range(2 * n[RADIUS + 2]):
            vector = load(g, row + last_vector - q * LANES)
            store(g, row - (1 + q) * LANES, shift_up(vector, g[kept + q]))
            g[kept + q] = last(vector)
        row += n[ROW_PITCH]
        kept += 2 * n[RADIUS + 2]
    if n[RADIUS + 1] > 0:
        for x in range(0, 2 * n[RADIUS + 1] * n[ROW_PITCH], LANES):
            store(g, across + x, load(g, unit + n[ROWS] * n[ROW_PITCH] + x))


@_inner
def _reflect_plane(g, n, source, ghost, side, k, level, place):
    """A ghost plane of axis 0, with its own ghosts."""
    zero, ring = n[PLANE] - level * n[RADIUS], n[RINGS] + level * n[DEPTH] * n[UNIT]
    own, target = 2 * n[RADIUS + 1] * n[ROW_PITCH], ring + (ghost - zero) % n[DEPTH] * n[UNIT]
    reflect(
        g,
        n,
        ring + (source - zero) % n[DEPTH] * n[UNIT] + own,
        target + own,
        n[UNIT] - own,
        0,
        side,
        k,
    )
    _finish_unit(g, n, target, level, place)


@_inner
def _advance_group(u, v, g, n, level, group, slot):
    """Make the next group of planes of one level; the first of them takes place `slot` of its
    ring.
    """
    plane, grown = n[PLANE] - level * n[RADIUS] + group * n[JAM], (n[LEVELS] - level) * n[RADIUS]
    start = n[LOW] - (0 if n[FACE_LOW] else grown)
    stop = n[HIGH] + (0 if n[FACE_HIGH] else grown)
    end = stop + (n[RADIUS] if n[FACE_HIGH] and level < n[LEVELS] else 0)
    if plane + n[JAM] <= start or plane >= end:
        return
    ring = n[RINGS] + level * n[DEPTH] * n[UNIT]
    if level > 0 and plane < stop:
        _update_group(u, v, g, n, level, plane, ring, slot, stop)
    if level == n[LEVELS]:
        return
    place = (group * n[LEVELS] + level) * n[JAM]
    for k in range(max(start - plane, 0), min(n[JAM], end - plane)):
        unit, i = ring + _turn(slot + k, n[DEPTH]) * n[UNIT], plane + k
        if i >= stop:
            _reflect_plane(g, n, 2 * stop - 1 - i, i, 1, i - stop, level, place + k)
        else:
            if level == 0:
                _load_unit(u, g, n, unit, i)
            _finish_unit(g, n, unit, level, place + k)
            if n[FACE_LOW] and i < start + n[RADIUS]:
                ghosts = n[GROUPS] * n[LEVELS] * n[JAM] + level * n[RADIUS]
                _reflect_plane(g, n, i, 2 * start - 1 - i, 0, i - start, level, ghosts + i - start)


@_inner
def _stream_strip(u, v, g, n):
    """All levels of one strip: a group of planes at a time, each level one radius behind the one
    before.
    """
    n[ROW_PITCH] = (2 * n[RADIUS + 2] + n[VECTORS]) * LANES
    n[UNIT] = (2 * n[RADIUS + 1] + (n[ROWS] + n[JAM + 1] - 1) // n[JAM + 1] * n[JAM + 1]) * n[
        ROW_PITCH
    ]
    slot = 0
    for group in range(n[GROUPS]):
        for level in range(n[LEVELS] + 1):
            _advance_group(u, v, g, n, level, group, slot)
        slot = _turn(slot + n[JAM], n[DEPTH])


@_inner
def advance_part(u, v, g, n):
    """All strips of one part, in the order in which they leave their edges to each other."""
    levels = n[LEVELS]
    # A first strip begins with one radius of ghosts, or with all that two parts compute both.
    row0 = n[LOW + 1] - (n[RADIUS + 1] if n[FACE_LOW + 1] else levels * n[RADIUS + 1])
    column0 = n[LOW + 2] - (n[RADIUS + 2] if n[FACE_LOW + 2] else levels * n[RADIUS + 2])
    n[PLANE] = n[LOW] - (0 if n[FACE_LOW] else levels * n[RADIUS])
    n[GROUPS] = (n[HIGH] + levels * n[RADIUS] - n[PLANE] + n[JAM] - 1) // n[JAM]
    places = n[GROUPS] * levels * n[JAM] + levels * n[RADIUS]
    rows = n[HIGH + 1] + levels * n[RADIUS + 1] - row0
    n_down = (rows + n[STRIP_ROWS] - 1) // n[STRIP_ROWS]
    turns = (n[HIGH + 2] + levels * n[RADIUS + 2] - column0 + LANES * n[UNROLL] - 1) // (
        LANES * n[UNROLL]
    )  # n[UNROLL] vectors each
    turns = max(turns, (LANES + n[UNROLL] - 1) // n[UNROLL])
    n_right = (turns * n[UNROLL] + n[STRIP_VECTORS] - 1) // n[STRIP_VECTORS]
    for j in range(n_down):
        n[ROW] = row0 + rows * j // n_down
        n[ROWS] = row0 + rows * (j + 1) // n_down - n[ROW]
        n[KEPT_ROWS] = n[ACROSS]
        for i in range(n_right):
            n[COLUMN] = column0 + turns * i // n_right * n[UNROLL] * LANES
            n[VECTORS] = (turns * (i + 1) // n_right - turns * i // n_right) * n[UNROLL]
            _stream_strip(u, v, g, n)
            n[KEPT_ROWS] += places * 2 * n[RADIUS + 1] * n[ROW_PITCH]
