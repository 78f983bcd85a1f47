"""A barrier for threads that are inside compiled code and do not hold the interpreter lock.

Idea    One counter and one generation number in shared memory. The last thread to arrive resets the
        counter and starts the next generation; the others spin on the generation, and after a while
        offer their core to someone else, so that more threads than cores still make progress.
Layout  `new_barrier()` is an int64 array; counter and generation lie on cache lines of their own.
Test    tests/kernels/test_intrinsics.py
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from tetris_sim.cpu_kernels.compiled.intrinsics import (
    fetch_add,
    load_acquire,
    pause,
    sched_yield,
    store_release,
)

_ARRIVED, _GENERATION = 8, 24  # element numbers: 128 bytes apart, prefetchers fetch lines in pairs
_SPINS = 2000  # about 50 microseconds; a barrier is usually met in a few


def new_barrier() -> npt.NDArray[np.int64]:
    """The shared memory of one barrier."""
    return np.zeros(40, dtype=np.int64)


@njit(nogil=True)  # compiled into its callers, which are kept on disk
def wait(barrier, threads):
    """Return when all `threads` have called it; everything written before is then visible to all of
    them.
    """
    if threads == 1:
        return
    generation = load_acquire(barrier, _GENERATION)
    if fetch_add(barrier, _ARRIVED, 1) == threads - 1:
        store_release(barrier, _ARRIVED, 0)
        store_release(barrier, _GENERATION, generation + 1)
        return
    spins = 0
    while load_acquire(barrier, _GENERATION) == generation:
        spins += 1
        if spins < _SPINS:
            pause()
        else:
            sched_yield()
