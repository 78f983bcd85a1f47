"""Ghosts within a plane, and of a plane that follows from another, by a function that loops of
equations call by its address.

Idea    As `planes.py` says it. A function of its own is compiled once for sweeps and streams, and
        LLVM does not work through it again in each function that calls it.
Layout  v: a bare pointer; `n`: the record of the thread (`numbers.py`), which knows the table of
        (a, b).
Test    tests/kernels/test_cpu_equations.py
"""

from __future__ import annotations

from numba import from_dtype
from numba.core import types

from tetris_sim.cpu_kernels.compiled.intrinsics import (
    cfunc,
    elements_at,
    fma,
    larger,
    record_at,
    smaller,
)
from tetris_sim.cpu_kernels.equations.planes import ghost_and_source, of_name
from tetris_sim.cpu_kernels.equations.stages import NOTHING, NUMBERS, WIDTH

# [the row update begins]
REAL = types.float64
# [the row update ends]
_REALS, _RECORD = types.CPointer(REAL), types.CPointer(from_dtype(NUMBERS))  # type: ignore[attr-defined]
_INT = types.intp


@cfunc(
    types.void(_REALS, _RECORD, _INT, _INT, _INT, _INT, _INT),
    cache=True,
    error_model="numpy",
)
def fill(v, told, p, source, f, side, k):
    """The ghosts of name f in a plane, at the ends of axes 1 and 2. If it follows from another
    plane, it is the one of ghosts number k beyond a side of axis 0, and filled first.
    """
    n = record_at(told)
    faces = elements_at(n.faces, REAL)
    low, high = n.begin[1], n.end[1]
    column, run = n.begin[2], n.end[2] - n.begin[2]
    # Axis 0, then axis 1, with one loop for both: each copy of it takes time to compile.
    for axis in range(2):
        for end in range(2):
            if n.touch[2 + end] == NOTHING if axis == 1 else (source == p or end != side):
                continue
            rows = n.end[1] - n.begin[1] if axis == 0 else of_name(n, f, WIDTH + 1)
            for j in range(rows):
                number, to, there = k, n.begin[1] + j, n.begin[1] + j
                if axis == 1:
                    number, (to, there) = j, ghost_and_source(n, 1, end, j)
                    low, high = smaller(low, to), larger(high, to + 1)
                at = (((f * 3 + axis) * 2 + end) * n.ghosts + number) * 2
                # Coefficients of the affine ghost: value = a + b * source.
                a, b = faces[at], faces[at + 1]
                from_plane = source if axis == 0 else p
                x, y = p + to * n.row + column, from_plane + there * n.row + column
                for i in range(run):
                    v[x + i] = fma(b, v[y + i], a)

    for end in range(2):
        if n.touch[4 + end] != NOTHING:
            for number in range(of_name(n, f, WIDTH + 2)):
                ghost, there = ghost_and_source(n, 2, end, number)
                if n.begin[2] <= there < n.end[2]:  # in 1D another thread may have computed it
                    at = (((f * 3 + 2) * 2 + end) * n.ghosts + number) * 2
                    for j in range(low, high):
                        q = p + j * n.row
                        v[q + ghost] = fma(faces[at + 1], v[q + there], faces[at])
