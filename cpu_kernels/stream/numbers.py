"""What the compiled loops of `cpu.stream` know and remember: a record that each thread has for
itself.

In a file of their own, so that the host side knows them without compiling anything. Compiled code
names the fields as attributes; those of three are per padded axis.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.core import types

from tetris_sim.cpu_kernels.compiled.intrinsics import fma
from tetris_sim.cpu_kernels.compiled.vectors import vector_operations

# What lies beyond a side of the slab.
FACE, HALO, WRAP = 0, 1, 2

_FIELDS = {
    # The slab: first owned index, owned points, elements between neighbours, what lies beyond.
    "first": 3,
    "count": 3,
    "pitch": 3,
    "below": 3,
    "above": 3,
    # Planes by which the points to compute lose at either end with each step; below 0 they gain.
    "shrink_low": 3,
    "shrink_high": 3,
    # What was chosen: parts; steps per block, rows and vectors of a strip, whether results go past
    # the caches.
    "parts": 3,
    "block": 1,
    "strip_rows": 1,
    "strip_vectors": 1,
    "past_caches": 1,
    # The stencil and its kernels: radius; rows updated together along the streamed axis and the
    # next; vectors per turn of its loop, levels per pass in 1D, planes in the ring of a level, most
    # ghosts beyond one side; addresses of the compiled kernels.
    "radius": 3,
    "jam": 2,
    "unroll": 1,
    "fused": 1,
    "depth": 1,
    "ghosts": 1,
    "kernel": 1,
    "single_kernel": 1,
    "line_kernel": 1,
    # Elements from the start of a thread's scratch memory: weights, faces, rings, rows and columns
    # left to the next strip, a row in natural order.
    "weights": 1,
    "faces": 1,
    "rings": 1,
    "across": 1,
    "along": 1,
    "line": 1,
    # The part at work: its box at the last level, and whether its sides are faces of the domain.
    "low": 3,
    "high": 3,
    "face_low": 3,
    "face_high": 3,
    # The strip at work: first element of its field, levels, first row and column at level 0, rows,
    # vectors per row, elements per row and per unit, first plane of the first group, groups, where
    # it keeps rows for the next strip.
    "field": 1,
    "levels": 1,
    "row": 1,
    "column": 1,
    "rows": 1,
    "vectors": 1,
    "row_pitch": 1,
    "unit": 1,
    "plane": 1,
    "groups": 1,
    "kept_rows": 1,
    # What a kernel is called for: where it reads and writes; in 2D and 3D the slot of its planes in
    # their ring, in 1D columns.
    "source": 1,
    "target": 1,
    "slot": 1,
    "columns": 1,
}
_LINES = 10  # of 64 bytes: each thread has its own

NUMBERS = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [np.int64 if n == 1 else (np.int64, n) for n in _FIELDS.values()],
        "itemsize": _LINES * 64,
    },
    align=True,
)
"""The record; its fields lie in the order above."""


# What the compiled loops of `cpu.stream` share: dtype and lanes, a row to memory, ghosts from their
# mirror points.
#
# `rows.py`, `strips.py` or `line.py`, and `block.py` of this folder are templates. `generate.py`
# copies what follows their markers into one module for each dtype and vector length, with those in
# place of the ones below. The innermost loops are not in it: `kernels.py` makes them for each
# stencil, and they are called by address, so that a new stencil compiles little.
#
# Test tests/kernels/test_stream.py

# [dtype and lanes]
REAL, LANES = types.float64, 8
# [copied into each generated module from here on]
_V = vector_operations(REAL.name, LANES)
load, store, store_past_caches, shift_up, last = (
    _V.load,
    _V.store,
    _V.store_past_caches,
    _V.shift_up,
    _V.last,
)
transpose_in, transpose_out = _V.transpose_in, _V.transpose_out
LINE_ELEMENTS = 64 * 8 // REAL.bitwidth

_inner = njit(
    nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)  # compiled into `advance` and kept with it


@_inner
def store_line(v, p, g, line, first, past, past_caches):
    """v[p + x] = g[line + x] for x from `first` to past - 1; p may point before the array."""
    x = first
    while x < past and (p + x) % LINE_ELEMENTS != 0:
        v[p + x] = g[line + x]
        x += 1
    if past_caches:
        while x + LANES <= past:
            store_past_caches(v, p + x, load(g, line + x))
            x += LANES
    while x + LANES <= past:
        store(v, p + x, load(g, line + x))
        x += LANES
    while x < past:
        v[p + x] = g[line + x]
        x += 1


@_inner
def reflect(g, n, source, target, elements, axis, side, k):
    """Target = a + b * source, with a and b of ghost number k beyond a face."""
    place = n.faces + ((axis * 2 + side) * n.ghosts + k) * 2
    a, b = g[place], g[place + 1]
    for x in range(elements):
        g[target + x] = fma(b, g[source + x], a)
