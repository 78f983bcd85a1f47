"""Points that a thread computes at a step, for the time loops that sweep over whole slabs."""

from __future__ import annotations

from numba import njit

from tetris_sim.cpu_kernels.common.layout import COUNT, FIRST, LINKS, SHRINK

# planes of about this many points get their ghosts while they are in the L2 cache
CACHED_POINTS = 1 << 15


@njit(nogil=True)  # compiled into its callers, which are kept on disk
def _computed(axes, axis, steps_left):
    """First and one past the last padded index along `axis` that is computed when `steps_left` more
    steps follow.
    """
    low = axes[axis, FIRST] - steps_left * axes[axis, SHRINK]
    high = axes[axis, FIRST] + axes[axis, COUNT] + steps_left * axes[axis, SHRINK + 1]
    return low, high


@njit(nogil=True)  # compiled into its callers, which are kept on disk
def _part(span, thread, threads):
    """This thread's piece of the range span[0] .. span[1]-1."""
    low, n = span[0], span[1] - span[0]
    return low + n * thread // threads, low + n * (thread + 1) // threads


@njit(nogil=True)  # compiled into its callers, which are kept on disk
def ranges(axes, steps_left, thread, threads):
    """Planes, rows and columns this thread computes. A grid of one plane and one row is cut along
    its columns.
    """
    planes, rows, columns = (
        _computed(axes, 0, steps_left),
        _computed(axes, 1, steps_left),
        _computed(axes, 2, steps_left),
    )
    # A single row in 1D is cut along its columns; ghosts of axis 0 would need whole planes.
    if planes[1] - planes[0] == 1 and rows[1] - rows[0] == 1 and axes[0, LINKS] == 0:
        return planes, rows, _part(columns, thread, threads)
    return _part(planes, thread, threads), rows, columns
