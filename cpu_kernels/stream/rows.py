"""Shared parts of the compiled loops of `cpu.stream`: dtype and lanes, storing a row, ghosts.

`rows.py`, `strips.py` or `line.py`, and `block.py` of this folder are templates. `kernels.py`
copies what follows their markers into one module for each dtype and vector length, with those in
place of the ones below. The innermost loops are not in it: they are made for each stencil and
called by address, so that a new stencil compiles little.

Test    tests/kernels/test_stream.py
"""

from __future__ import annotations

from numba.core import types

from tetris_sim.cpu_kernels.compiled.intrinsics import fma, inner
from tetris_sim.cpu_kernels.compiled.vectors import vector_operations

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


@inner
def store_line(v, p, g, line, first, past, past_caches):
    """v[p + x] = g[line + x] for x from `first` to past - 1; p may point before the array."""
    # Whole cache lines suit streaming stores and do not split across lines.
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


@inner
def reflect(g, n, source, target, elements, axis, side, k):
    """Target = a + b * source, with a and b of ghost number k beyond a face."""
    place = n.faces + ((axis * 2 + side) * n.ghosts + k) * 2
    a, b = g[place], g[place + 1]
    for x in range(elements):
        g[target + x] = fma(b, g[source + x], a)
