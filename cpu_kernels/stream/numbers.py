"""Numbers that the compiled loops of `cpu.stream` read and write: a record that each thread owns.

In a file of their own, so that the host side knows them without compiling anything. Compiled code
names the fields as attributes; those of three are per padded axis.
"""

from __future__ import annotations

import numpy as np

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
