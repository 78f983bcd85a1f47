"""The time loop of one thread by equations: sweep its planes stage by stage, publish their ghosts,
meet the others, again.

Idea    As `plain/sweep.py`, but a step has stages, and the row update is the kernel of a stage,
        called by address. Who computed the points that a ghost mirrors also writes that ghost. A
        slab with neighbours computes each stage a margin further than its own points, so that later
        stages find what they read.
Layout  The state is in two arrays that take turns, so of lists of streams and of addresses of names
        there is one for even and one for odd steps. table: the address of the parameters of the
        first step, from there `row_bytes` a step.
Limits  Refuses nothing that equations can be.
Test    tests/kernels/test_cpu_equations.py
"""

from __future__ import annotations

from numba import from_dtype
from numba.core import types

from tetris_sim.cpu_kernels.compiled.barrier import CACHED_POINTS, wait
from tetris_sim.cpu_kernels.compiled.intrinsics import inner, larger, njit, smaller
from tetris_sim.cpu_kernels.equations.planes import (
    call_kernel,
    fill_plane,
    ghost_and_source,
    of_name,
    of_stage,
)
from tetris_sim.cpu_kernels.equations.stages import EVEN, MADE, MARGIN, NOTHING, NUMBERS, WIDTH

_INT = types.intp
SIGNATURE = types.void(
    _INT, _INT, from_dtype(NUMBERS)[::1], _INT, _INT, _INT, types.int64[::1]
)  # fmt: skip


@inner
def _set_box(n, s, left, thread, threads):
    """Planes, rows and columns of this thread, all of which a stage computes when so many steps
    follow. A grid of one plane and one row is cut along its columns.
    """
    for axis in range(3):
        around = of_stage(n, s, MARGIN + axis) + left * n.radius[axis]
        n.begin[axis], n.end[axis] = n.first[axis], n.first[axis] + n.count[axis]
        # Where a neighbour owns the points, later stages and steps need a margin around the own
        # ones.
        if n.beyond[2 * axis] == NOTHING:
            n.begin[axis] -= around
        if n.beyond[2 * axis + 1] == NOTHING:
            n.end[axis] += around

    ghosts = n.beyond[0] != NOTHING or n.beyond[1] != NOTHING
    alone = n.end[0] - n.begin[0] == 1 and n.end[1] - n.begin[1] == 1 and not ghosts
    # A single row in 1D has no planes to share among threads.
    cut = 2 if alone else 0
    low, size = n.begin[cut], n.end[cut] - n.begin[cut]
    n.begin[cut], n.end[cut] = (
        low + size * thread // threads,
        low + size * (thread + 1) // threads,
    )


@inner
def _fill(n, f, parity, first, last):
    """Every ghost of a name that follows from some planes."""
    v, width, pitch = of_name(n, f, EVEN + parity), of_name(n, f, WIDTH), n.pitch[0]
    for p in range(first, last):
        for number in range(1 + 2 * width):  # the plane itself, then those that may mirror it
            plane, side, k = p, (number - 1) % 2, (number - 1) // 2
            if number > 0:
                plane, source = ghost_and_source(n, 0, side, k)
                if n.beyond[side] == NOTHING or source != p:
                    continue
            fill_plane(v, n, plane * pitch, p * pitch, f, side, k)


@njit(SIGNATURE, nogil=True, cache=True, error_model="numpy")
def advance(thread, threads, own, table, row_bytes, steps, barrier):
    """Advance the state by `steps`, to be called by all `threads` at once.

    The result is in the first array if `steps` is even, in the second if it is odd.
    # Ghosts are filled block by block, while the planes are in the L2 cache.
    """
    n = own[thread]
    block = larger(1, CACHED_POINTS // n.pitch[0])
    for number in range(-1, steps * n.n_stages):
        # The state at the beginning is what an odd step before it would have stored.
        step, s, parity, left = -1, 0, 1, steps
        if number >= 0:
            step, s = number // n.n_stages, 1 + number % n.n_stages
            parity, left = step % 2, steps - 1 - step
        _set_box(n, s, left, thread, threads)

        for first in range(n.begin[0], n.end[0], block):
            last = smaller(first + block, n.end[0])
            if s > 0:
                column, columns = n.begin[2], n.end[2] - n.begin[2]
                shift = first * n.pitch[0] + n.begin[1] * n.pitch[1] + column
                row = table + step * row_bytes
                call_kernel(n, s, first, last - first, column, columns, shift, parity, row)
            for f in range(of_stage(n, s, MADE), of_stage(n, s, MADE + 1)):
                _fill(n, f, parity, first, last)
        wait(barrier, threads)
