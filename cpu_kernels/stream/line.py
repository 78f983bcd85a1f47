"""The compiled loop of `cpu.stream` in one dimension: tiles of a line, several levels per pass in
registers.

Idea    A tile of columns is lifted into the second-level cache once per block. A pass over it
        advances FUSED levels: as vector i is loaded, level 1 is computed from the last 2 radius + 1
        vectors of level 0, level 2 from the last of level 1, and so on, all in registers, and the
        last of them is stored where vector i was. Tiles lean over as strips do: at level t a tile
        covers columns t radii further to the left, so that it needs only what the tile before it
        left behind, which is the end of its last lane at the first level of each pass.
Layout  As in `strips.py`: vector p holds the p-th column of every lane's piece; 2 FUSED radius
        vectors lie in front.
Limits  Ghosts would be in the way of the passes. The columns that a face can reach within the block
        are computed apart, step by step, from the same field (`_advance_end`); so is a part that is
        too short for tiles.
Test    tests/kernels/test_stream.py
"""

from __future__ import annotations

from tetris_sim.cpu_kernels.compiled.intrinsics import call_kernel, inner
from tetris_sim.cpu_kernels.stream.rows import (
    LANES,
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
def _advance_tile(u, v, g, n, column, vectors, first, past):
    """All levels of one tile, which begins at `column` at level 0; stores columns `first` to past -
    1 of the result.
    """
    levels, field = n.levels, n.field
    row, end = n.rings + 2 * n.fused * n.radius[2] * LANES, (vectors - 1) * LANES
    for x in range(0, vectors, LANES):
        transpose_in(u, field + column + x, vectors, g, row + x * LANES)

    n.target, n.vectors = row, vectors
    kept, level = n.along, 0
    # A remainder of levels is computed one by one.
    while level < levels:
        fused = n.fused if level + n.fused <= levels else 1
        for q in range(2 * fused * n.radius[2]):
            vector = load(g, row + end - q * LANES)
            # The lane shift brings in what the tile before has left at its end.
            store(g, row - (1 + q) * LANES, shift_up(vector, g[kept + q]))
            g[kept + q] = last(vector)
        kept += 2 * fused * n.radius[2]
        level += fused
        call_kernel(n.kernel if fused == n.fused else n.single_kernel, g, n)

    line, column = n.line, column - levels * n.radius[2]
    for x in range(0, vectors, LANES):
        transpose_out(g, row + x * LANES, g, line + x, vectors)
    begin, stop = max(first - column, 0), min(past - column, vectors * LANES)
    if begin < stop:
        store_line(v, field + column, g, line, begin, stop, n.past_caches)


@inner
def _advance_tiles(u, v, g, n, first, past):
    """Columns `first` to past - 1 of the result, none of which a face can reach."""
    column = first - n.levels * n.radius[2]
    squares = (past + n.levels * n.radius[2] - column + LANES * LANES - 1) // (LANES * LANES)
    tiles = (squares * LANES + n.strip_vectors - 1) // n.strip_vectors
    for i in range(tiles):
        begin, end = squares * i // tiles, squares * (i + 1) // tiles
        _advance_tile(
            u, v, g, n, column + begin * LANES * LANES, (end - begin) * LANES, first, past
        )


@inner
def _advance_end(u, v, g, n, first, past):
    """Columns `first` to past - 1 of the result, step by step; a face may lie at either end."""
    levels, field = n.levels, n.field
    face_low = n.face_low[2] and first == n.low[2]
    face_high = n.face_high[2] and past == n.high[2]
    low = first - (n.radius[2] if face_low else levels * n.radius[2])
    high = past + (n.radius[2] if face_high else levels * n.radius[2])

    source, target = n.line, n.line + high - low
    for x in range(high - low):
        g[source + x] = u[field + low + x]

    for level in range(1, levels + 1):
        grown = (levels - level) * n.radius[2]
        begin = first - (0 if face_low else grown) - low
        stop = past + (0 if face_high else grown) - low
        for k in range(n.radius[2]):
            if face_low:
                reflect(g, n, source + n.radius[2] + k, source + n.radius[2] - 1 - k, 1, 2, 0, k)
            if face_high:
                reflect(g, n, source + past - low - 1 - k, source + past - low + k, 1, 2, 1, k)

        n.source, n.target, n.columns = source + begin, target + begin, stop - begin
        call_kernel(n.line_kernel, g, n)
        source, target = target, source
    for x in range(first - low, past - low):
        v[field + low + x] = g[source + x]


@inner
def advance_part(u, v, g, n):
    """The tiles of one part, and apart from them what lies near a face."""
    reach = n.levels * n.radius[2]
    first = n.low[2] + (reach if n.face_low[2] else 0)
    past = n.high[2] - (reach if n.face_high[2] else 0)
    if past - first < 2 * n.fused * n.radius[2] * LANES:
        _advance_end(u, v, g, n, n.low[2], n.high[2])
        return
    if first > n.low[2]:
        _advance_end(u, v, g, n, n.low[2], first)
    _advance_tiles(u, v, g, n, first, past)
    if past < n.high[2]:
        _advance_end(u, v, g, n, past, n.high[2])
