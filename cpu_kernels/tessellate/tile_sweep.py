"""The time loop of one thread of `cpu.tessellate`: take a tile, advance it through the block, take
the next one.

Idea    Tiles of a stage need nothing from each other (`tiles.py`, which is also the arithmetic that
        runs here), so threads meet only after each stage. Each thread begins with the tiles of its
        own part of the grid, whose pages lie near it, and then takes what others have left: tiles
        are handed out by counters that are added to atomically. A tile near a face also writes the
        ghosts of what it computed, right after each step; the others do not know that faces exist.
Layout  As in `sweep.py`, for both arrays and for `axes`, `links` and `faces`. Units along the last
        axis are elements or, in a lifted row (`lifted.py`), vectors; the links of axis 2 are in
        elements of a row always. counters: two sets of N_KINDS x threads numbers on cache lines of
        their own; a stage uses one and clears the other. kernel: address of the compiled function
        that makes one step of a box (`call_box` in `intrinsics.py`). Being called by address, it is
        compiled for each stencil alone, and this loop once for each dtype. RULED: faces follow
        rules (`conduction.py`): `codes` has a number for each ghost, by its element, and `faces`
        (a, b) by step and code; of numbers below 0 the function at another address makes the ghost
        (`formulas.py`). Weights are then a table by thread and step (`OPERANDS` of
        `conducting.py`).
Limits  `generate.py` copies this file and puts dtype and lanes of the layout, dtype of the weights
        and whether there are rules between the two markers.
Test    tests/kernels/test_tessellate.py, test_tessellate_conduction.py, tests/unit/test_tiles.py
"""

from __future__ import annotations

from numba.core import types
from numba.extending import register_jitable

from tetris_sim.cpu_kernels.common.layout import (
    COUNT,
    FIRST,
    LINKS,
    N_COLUMNS,
    PITCH,
    REACH,
    SHRINK,
)
from tetris_sim.cpu_kernels.compiled.barrier import wait
from tetris_sim.cpu_kernels.compiled.intrinsics import (
    call_box,
    call_ghost,
    elements_of,
    fetch_add,
    fma,
    inner,
    moved,
    njit,
    store_release,
)
from tetris_sim.cpu_kernels.compiled.vectors import vector_operations
from tetris_sim.cpu_kernels.tessellate import tiles
from tetris_sim.cpu_kernels.tessellate.tiles import (
    N_KINDS,
    N_STAGES,
    at_end,
    lay,
    n_pieces,
    n_tiles,
    place,
    span,
    stage_of,
)

# [the row update begins]
REAL, LANES, WEIGHT, RULED = types.float64, 1, types.float64, False
# [the row update ends]

# In the functions below `shape` is (axes, links, faces, links per axis, codes, elements of faces
# from step to step, address of what makes ghosts, weights), arrays as bare pointers, and `kernel`
# is (address, weights, elements of weights from step to step, planes that it may compute together
# before their ghosts are filled).
_LINE = 8  # counters per cache line
_INT = types.intp
SIGNATURE = types.void(
    *(
        _INT,
        _INT,
        REAL[::1],
        REAL[::1],
        _INT,
        _INT,
        types.int64[:, ::1],
        types.int64[:, :, ::1],
        REAL[:, :, ::1],
    ),
    *(WEIGHT[::1], _INT, types.int64[::1]),
    types.Tuple(  # type: ignore[attr-defined]
        (
            *(_INT, types.UniTuple(_INT, 3), _INT, types.int64[::1]),  # type: ignore[attr-defined]
            *(types.int32[::1], types.UniTuple(_INT, 3), _INT, _INT),  # type: ignore[attr-defined]
        )
    ),
)
_VECTORS = vector_operations(REAL.name, LANES)
_load, _store, _shift_up, _shift_down = (
    _VECTORS.load,
    _VECTORS.store,
    _VECTORS.shift_up,
    _VECTORS.shift_down,
)
for function in (
    tiles.least_width,
    tiles.cut,
    tiles.n_along,
    lay,
    span,
    n_pieces,
    at_end,
    stage_of,
    n_tiles,
    place,
):
    register_jitable(
        function
    )  # Numba compiles the very functions that tests/unit/test_tiles.py proves


@inner
def _number(shape, axis, column):
    """An entry of `axes`."""
    return shape[0][axis * N_COLUMNS + column]


@inner
def _link(shape, axis, k):
    """Ghost and source of link k along an axis."""
    place = (axis * shape[3] + k) * 2
    return shape[1][place], shape[1][place + 1]


@inner
def _mirrored(v, source, ghost, shape, axis, k):
    """Value of the ghost of link k, given the elements of the ghost and of its source."""
    # Negative codes: a formula computes the ghost.
    if RULED and shape[4][ghost] < 0:
        return call_ghost(shape[6], v, shape[7], shape[4][ghost], source)
    place = (shape[4][ghost] if RULED else axis * shape[3] + k) * 2
    return fma(shape[2][place + 1], v[source], shape[2][place])


@inner
def _join_lanes(v, row, shape):
    """The halo vectors of a whole lifted row: each is its neighbour's end moved by a lane, with a
    ghost moved in.
    """
    half = _number(shape, 2, REACH) * LANES
    for k in range(0, 2 * half, LANES):
        outermost, mirror = _link(shape, 2, k)
        ghost = _mirrored(v, row + mirror, row + outermost, shape, 2, k)
        begin, source = _link(shape, 2, k + 1)
        if k < half:  # the ghost is lane 0, and the link after it leads to lane 1
            _store(v, row + begin - 1, _shift_up(_load(v, row + source), ghost))
        else:  # the ghost is the last lane, and the link after it leads to lane 0
            _store(v, row + begin, _shift_down(_load(v, row + source - 1), ghost))


@inner
def _fill_ends(v, row, columns, shape):
    """Ghosts at the ends of one row, of those columns of it that were computed."""
    # A whole lifted row needs all its halo vectors; a part only the links whose sources it has
    # computed.
    if LANES > 1 and columns[1] - columns[0] == _number(shape, 2, COUNT):
        _join_lanes(v, row, shape)
        return
    for k in range(_number(shape, 2, LINKS)):
        ghost, source = _link(shape, 2, k)
        if columns[0] <= source // LANES < columns[1]:
            v[row + ghost] = _mirrored(v, row + source, row + ghost, shape, 2, k)


@inner
def _mirror_row(v, row, to, columns, shape, axis, k):
    """A ghost row `to` elements away, over the computed columns."""
    for x in range(row + columns[0] * LANES, row + columns[1] * LANES):
        v[x + to] = _mirrored(v, x, x + to, shape, axis, k)


@inner
def _fill_rows(v, plane, rows, columns, shape):
    """Ghosts that follow from a box of one plane: ghost rows first, then the ends of all those
    rows.
    """
    pitch1 = _number(shape, 1, PITCH)
    if _number(shape, 2, LINKS) > 0:
        for j in range(rows[0], rows[1]):
            _fill_ends(v, plane + j * pitch1, columns, shape)
    for k in range(_number(shape, 1, LINKS)):
        ghost, source = _link(shape, 1, k)
        if rows[0] <= source < rows[1]:
            _mirror_row(v, plane + source * pitch1, (ghost - source) * pitch1, columns, shape, 1, k)
            _fill_ends(v, plane + ghost * pitch1, columns, shape)


@inner
def _fill_box(v, base, planes, rows, columns, shape):
    """Every ghost that follows from a box: those at its sides, and the ghost planes that mirror its
    planes.
    """
    pitch0, pitch1 = _number(shape, 0, PITCH), _number(shape, 1, PITCH)
    for i in range(planes[0], planes[1]):
        _fill_rows(v, base + i * pitch0, rows, columns, shape)
    for k in range(_number(shape, 0, LINKS)):
        ghost, source = _link(shape, 0, k)
        if planes[0] <= source < planes[1]:
            for j in range(rows[0], rows[1]):
                row = base + source * pitch0 + j * pitch1
                _mirror_row(v, row, (ghost - source) * pitch0, columns, shape, 0, k)
            _fill_rows(v, base + ghost * pitch0, rows, columns, shape)


@inner
def _advance_box(u, v, base, planes, rows, columns, near_face, shape, kernel):
    """One step of a box and, near a face, its ghosts of the next step while the planes they mirror
    are in the cache.
    """
    shape = _later(shape, kernel, 1)[0]
    pitch0, pitch1 = _number(shape, 0, PITCH), _number(shape, 1, PITCH)
    # Without a face nothing is filled, so the whole box is one group.
    group = kernel[3] if near_face else planes[1] - planes[0]
    for first in range(planes[0], planes[1], group):
        last = min(first + group, planes[1])
        box = (first, last, rows[0], rows[1], columns[0], columns[1])
        call_box(kernel[0], u, v, kernel[1], base, *box, pitch0, pitch1)
        if near_face:
            _fill_box(v, base, (first, last), rows, columns, shape)


@inner
def _later(shape, kernel, steps):
    """Both as they are so many steps later."""
    axes, links, faces, per_axis, codes, stride, ghost, _ = shape
    weights = moved(kernel[1], steps * kernel[2])
    return (
        (axes, links, moved(faces, steps * stride), per_axis, codes, stride, ghost, weights),
        (kernel[0], weights, kernel[2], kernel[3]),
    )


@inner
def _near_face(cuts, inverted, k, shape):
    """Whether a tile may hold points that ghosts mirror."""
    return (
        (_number(shape, 0, LINKS) > 0 and at_end(cuts[0], inverted[0], k[0]))
        or (_number(shape, 1, LINKS) > 0 and at_end(cuts[1], inverted[1], k[1]))
        or (_number(shape, 2, LINKS) > 0 and at_end(cuts[2], inverted[2], k[2]))
    )


@inner
def _advance_tile(u, v, base, cuts, kind, number, shape, kernel, steps):
    """All steps of a block on one tile of one field."""
    k = place(cuts, kind, number)
    flat, side, row = kind & 1, kind >> 1 & 1, kind >> 2 & 1
    near_face = _near_face(cuts, (flat, side, row), k, shape)

    for step in range(steps):
        for piece0 in range(n_pieces(cuts[0], flat, k[0])):
            planes = span(cuts[0], flat, k[0], piece0, step)
            for piece1 in range(n_pieces(cuts[1], side, k[1])):
                rows = span(cuts[1], side, k[1], piece1, step)
                for piece2 in range(n_pieces(cuts[2], row, k[2])):
                    columns = span(cuts[2], row, k[2], piece2, step)
                    if planes[0] < planes[1] and rows[0] < rows[1] and columns[0] < columns[1]:
                        _advance_box(u, v, base, planes, rows, columns, near_face, shape, kernel)
        # Levels alternate between the two buffers.
        u, v = v, u
        shape, kernel = _later(shape, kernel, 1)


@inner
def _part(axes, axis, thread, threads, steps):
    """This thread's piece of everything along an axis that is right when `steps` steps are to
    come.
    """
    low = axes[axis, FIRST] - steps * axes[axis, SHRINK]
    n = axes[axis, FIRST] + axes[axis, COUNT] + steps * axes[axis, SHRINK + 1] - low
    return low + n * thread // threads, low + n * (thread + 1) // threads


@inner
def _take(counters, turn, kind, owner, threads, n):
    """The next tile of a kind in one thread's part; -1 if none is left."""
    first, last = n * owner // threads, n * (owner + 1) // threads
    number = first + fetch_add(counters, ((turn * N_KINDS + kind) * threads + owner) * _LINE, 1)
    return number if number < last else -1


@inner
def _clear(counters, turn, thread, threads):
    """Start the counts of one thread's parts anew."""
    for kind in range(N_KINDS):
        store_release(counters, ((turn * N_KINDS + kind) * threads + thread) * _LINE, 0)


@inner
def _advance_stage(team, u, v, fields, cuts, stage, shape, kernel, steps, counters, turn):
    """All tiles of one stage: first those of this thread's part, then what other threads have not
    begun.
    """
    thread, threads = team
    n_fields, field_pitch = fields
    # Own tiles first, for locality; then tiles of the neighbours, for load balancing.
    for distance in range(threads):
        owner = (thread + distance) % threads
        for kind in range(N_KINDS):
            n = n_tiles(cuts, kind) * n_fields if stage_of(kind) == stage else 0
            number = _take(counters, turn, kind, owner, threads, n) if n > 0 else -1
            while number >= 0:
                base = number % n_fields * field_pitch
                _advance_tile(u, v, base, cuts, kind, number // n_fields, shape, kernel, steps)
                number = _take(counters, turn, kind, owner, threads, n)


@inner
def _has_tiles(cuts, stage):
    """Whether a stage of this block is worth a barrier."""
    n = 0
    for kind in range(N_KINDS):
        if stage_of(kind) == stage:
            n += n_tiles(cuts, kind)
    return n > 0


@njit(SIGNATURE, nogil=True, cache=True)
def advance(
    thread, threads, u, v, n_fields, field_pitch, axes, links, faces, weights, steps, barrier, plan
):
    """Advance the state in u by `steps`, to be called by all `threads` at once.

    The result is in u if `steps` is even, in v if it is odd. `plan` is (address of the kernel,
    width of a tile along each axis, steps per block, counters, codes, elements of weights and of
    faces from step to step and of weights from thread to thread, address of what makes ghosts,
    planes that a kernel may compute together before their ghosts are filled); the other arguments
    are those of `advance` in `sweep.py`.
    """
    address, tile, steps_per_block, counters, codes, strides, ghost, together = plan
    # Bare pointers from here on: Numba would count references to arrays at every call.
    now, then = elements_of(u), elements_of(v)
    mine = moved(elements_of(weights), thread * strides[2])
    kernel = (address, mine, strides[0], together)
    where = (elements_of(axes), elements_of(links), elements_of(faces))
    rest = (elements_of(codes), strides[1], ghost, mine)
    shape = (where[0], where[1], where[2], links.shape[1], rest[0], rest[1], rest[2], rest[3])
    team, fields = (thread, threads), (n_fields, field_pitch)

    planes = _part(axes, 0, thread, threads, steps)
    for field in range(n_fields):
        _fill_box(
            now,
            field * field_pitch,
            planes,
            _part(axes, 1, 0, 1, steps),
            _part(axes, 2, 0, 1, steps),
            shape,
        )
    _clear(counters, 0, thread, threads)
    _clear(counters, 1, thread, threads)
    wait(barrier, threads)

    turn = _INT(0)  # not a literal, for which Numba would compile the stages once more
    later = steps
    while later > 0:
        block = min(steps_per_block, later)
        later -= block
        # The cut depends on the steps to come, because open ends shrink.
        cuts = (
            lay(axes[0], tile[0], block, later),
            lay(axes[1], tile[1], block, later),
            lay(axes[2], tile[2], block, later),
        )

        for stage in range(N_STAGES):
            if _has_tiles(cuts, stage):
                # The other set of counters is idle during this stage, so clearing it is safe.
                _clear(counters, 1 - turn, thread, threads)
                _advance_stage(
                    team, now, then, fields, cuts, stage, shape, kernel, block, counters, turn
                )
                wait(barrier, threads)
                turn = 1 - turn
        shape, kernel = _later(shape, kernel, block)
        if block % 2:
            now, then = then, now
