"""A barrier for threads that are inside compiled code and do not hold the interpreter lock, and
what each of them computes of a whole slab.

Idea    One counter and one generation number in shared memory. The last thread to arrive resets the
        counter and starts the next generation; the others spin on the generation, and after a while
        offer their core to someone else, so that more threads than cores still make progress.
        Threads that wait for longer sleep until somebody wakes them (`futex` of Linux).
Layout  `new_barrier()` is an int64 array; counter and generation lie on cache lines of their own.
Test    tests/kernels/test_intrinsics.py
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tetris_sim.cpu_kernels.common.layout import COUNT, FIRST, LINKS, SHRINK
from tetris_sim.cpu_kernels.compiled.intrinsics import (
    element_address,
    fetch_add,
    inner,
    load_acquire,
    pause,
    sched_yield,
    store_release,
)

_ARRIVED, _GENERATION = 8, 24  # element numbers: 128 bytes apart, prefetchers fetch lines in pairs
_INT64 = ir.IntType(64)
# Number of the system call `futex`; elsewhere threads offer their cores instead of sleeping.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # of this process only
_EVERYBODY = 0x7FFFFFFF
# planes of about this many points get their ghosts while they are in the L2 cache
CACHED_POINTS = 1 << 15
_SPINS = 2000  # about 50 microseconds; a barrier is usually met in a few


def new_barrier() -> npt.NDArray[np.int64]:
    """The shared memory of one barrier."""
    return np.zeros(40, dtype=np.int64)


@inner
def wait(barrier, threads):
    """Return when all `threads` have called it; everything written before is then visible to all of
    them.
    """
    if threads == 1:
        return
    # Read before arriving: after the last arrival the generation may change at any time.
    generation = load_acquire(barrier, _GENERATION)
    if fetch_add(barrier, _ARRIVED, 1) == threads - 1:
        # The counter is cleared before the release, so that it is ready when a thread meets the
        # next barrier.
        store_release(barrier, _ARRIVED, 0)
        store_release(barrier, _GENERATION, generation + 1)
        return

    spins = 0
    while load_acquire(barrier, _GENERATION) == generation:
        spins += 1
        if spins < _SPINS:
            pause()
        # More threads than cores: let one run that has not arrived.
        else:
            sched_yield()


def _call_futex(builder: Any, address: Any, operation: int, value: Any) -> None:
    if _FUTEX is None:
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return
    kind = ir.FunctionType(_INT64, [_INT64], var_arg=True)
    syscall = cgutils.get_or_insert_function(builder.module, kind, "syscall")
    numbers = [_INT64(_FUTEX), builder.ptrtoint(address, _INT64), _INT64(operation), value]
    builder.call(syscall, [*numbers, *[_INT64(0)] * 3])  # no time limit


@intrinsic
def sleep_while(typing_context, array, index, value):
    """Let the thread sleep until `wake`, if the lower half of array[index] still is that of value;
    it may wake up for no reason.
    """

    def generate(context, builder, signature, arguments):
        place = element_address(context, builder, signature.args[0], *arguments[:2])
        _call_futex(builder, place, _FUTEX_WAIT, arguments[2])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), generate


@intrinsic
def wake(typing_context, array, index):
    """Wake all threads that sleep while array[index] has a value."""

    def generate(context, builder, signature, arguments):
        place = element_address(context, builder, signature.args[0], *arguments)
        _call_futex(builder, place, _FUTEX_WAKE, _INT64(_EVERYBODY))
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@inner
def _computed(axes, axis, steps_left):
    """First and one past the last padded index along `axis` that is computed when `steps_left` more
    steps follow.
    """
    low = axes[axis, FIRST] - steps_left * axes[axis, SHRINK]
    high = axes[axis, FIRST] + axes[axis, COUNT] + steps_left * axes[axis, SHRINK + 1]
    return low, high


@inner
def _part(span, thread, threads):
    """This thread's piece of the range span[0] .. span[1]-1."""
    low, n = span[0], span[1] - span[0]
    return low + n * thread // threads, low + n * (thread + 1) // threads


@inner
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
