"""Threads that stay in compiled code between two blocks and wait for the next one there.

Idea    Starting a team anew takes Python a turn in each thread. Beside a GPU of which a block takes
        two milliseconds, that is a fifth of it. Here the threads wait for a number to change, which
        costs whoever starts them one store, and one system call for those who sleep by then. A
        block begins with the halos that came, and ends with the edges that leave, each copied by
        all threads.
Layout  control: numbers on cache lines of their own, see the constants. trips: a row for each copy
        of planes: address of the memory outside, elements from field to field, plane to plane and
        row to row there, first element of the box in the state, planes, rows. shape: fields,
        elements from field to field, plane to plane and row to row in the state, vectors of a row,
        vectors from lane to lane; points lie as `lifted.py` says, with one lane as they come.
Limits  `Ready` of `common/ready.py` puts the dtype, the lanes and the time loop between the
        two markers; its arguments around the number of steps are tuples.
Test    tests/kernels/test_ready.py
"""

from __future__ import annotations

from numba.core import types

from tetris_sim.cpu_kernels.compiled.barrier import sleep_while, wait, wake
from tetris_sim.cpu_kernels.compiled.intrinsics import (
    elements_at,
    elements_of,
    fetch_add,
    inner,
    load_acquire,
    njit,
    pause,
    store_release,
)
from tetris_sim.cpu_kernels.compiled.vectors import (
    fence_stores,
    vector_operations,
)

# [the row update begins]
REAL, LANES = types.float64, 1


@inner
def advance(thread, threads, u, v, n, steps, barrier):
    """In place of a time loop: swap both arrays, so many times."""


# [the row update ends]

_VECTORS = vector_operations(REAL.name, LANES)
_transpose_in, _transpose_out, _transpose_past = (
    _VECTORS.transpose_in,
    _VECTORS.transpose_out,
    _VECTORS.transpose_out_past_caches,
)
_BYTES = REAL.bitwidth // 8

# Numbers of `control`. Of a task: how often one was given, steps (below 0: go back to Python),
# whether the state is in the second array, whether it is in the other one afterwards, halos that
# came, edges that leave. Then how many tasks are done, and how many threads are done with this one.
TASK, STEPS, TURN, FLIPS, COMING, LEAVING = 16, 32, 33, 34, 35, 36
# Tests of a number before a thread of the team sleeps, or who waits for it.
DONE, ARRIVED, SPINS, PATIENCE = 48, 64, 80, 81
_CUTS = 4  # of a row, so that few rows are enough for all threads


@njit(nogil=True, cache=True)
def start(control):
    """Give the task that `control` describes to all threads; which one it is."""
    task = fetch_add(control, TASK, 1) + 1
    wake(control, TASK)
    return task


@njit(nogil=True, cache=True)
def await_end(control, task):
    """Return when a task is done."""
    spins = 0
    # The value is kept for `sleep_while`, which returns at once if it has changed meanwhile.
    done = load_acquire(control, DONE)
    while done != task:
        spins += 1
        if spins < control[PATIENCE]:
            pause()
        else:
            sleep_while(control, DONE, done)
        done = load_acquire(control, DONE)


@inner
def _listen(control, last):
    """Wait for the next task and return its number."""
    spins = 0
    while load_acquire(control, TASK) == last:
        spins += 1
        if spins < control[SPINS]:
            pause()
        else:
            sleep_while(control, TASK, last)
    return last + 1


@inner
def _report(control, threads, task):
    """Say that a thread is done."""
    # The last thread to finish publishes the end of the task for all.
    if fetch_add(control, ARRIVED, 1) == threads - 1:
        store_release(control, ARRIVED, 0)
        store_release(control, DONE, task)
        wake(control, DONE)


@inner
def _lift(outside, there, stride, state, here, cut):
    """Store the vectors from the first of `cut` to the last one: squares of them, then the rest."""
    for p in range(cut[0], cut[1], LANES):
        _transpose_in(outside, there + p, stride, state, here + p * LANES)
    for p in range(cut[1], cut[2]):
        for lane in range(LANES):
            state[here + p * LANES + lane] = outside[there + lane * stride + p]


@inner
def _unlift(state, here, stride, outside, there, cut, aligned):
    """The inverse of `_lift`. A device reads what is stored, so it need not be in the caches."""
    if aligned:
        for p in range(cut[0], cut[1], LANES):
            _transpose_past(state, here + p * LANES, outside, there + p, stride)
    else:
        for p in range(cut[0], cut[1], LANES):
            _transpose_out(state, here + p * LANES, outside, there + p, stride)

    # A point in two lanes is written from one lane only: each lane up to `stride`, the last one to
    # its end.
    for p in range(cut[1], min(cut[2], stride)):
        for lane in range(LANES):
            outside[there + lane * stride + p] = state[here + p * LANES + lane]
    for p in range(max(cut[1], stride), cut[2]):
        end = (LANES - 1) * stride + p
        outside[there + end] = state[here + p * LANES + LANES - 1]


@inner
def _carry(thread, threads, flat, trip, shape, inwards):
    """A thread's part of the copy of some planes, into the state or out of it."""
    outside, state = elements_at(trip[0], REAL), elements_of(flat)
    planes, rows, vectors, stride = trip[5], trip[6], shape[4], shape[5]
    pieces = shape[0] * planes * rows * _CUTS
    # Streaming stores need every address to be aligned: the first one, and all distances.
    steps = trip[1] | trip[2] | trip[3] | stride
    aligned = (trip[0] | steps * _BYTES) % (LANES * _BYTES) == 0

    for piece in range(pieces * thread // threads, pieces * (thread + 1) // threads):
        cut, number = piece % _CUTS, piece // _CUTS
        row, plane, field = number % rows, number // rows % planes, number // rows // planes
        here = trip[4] + field * shape[1] + plane * shape[2] + row * shape[3]
        there = field * trip[1] + plane * trip[2] + row * trip[3]

        first = vectors * cut // _CUTS // LANES * LANES
        last = vectors if cut == _CUTS - 1 else vectors * (cut + 1) // _CUTS // LANES * LANES
        whole = first + max(0, min(last, stride) - first) // LANES * LANES
        if inwards:
            _lift(outside, there, stride, state, here, (first, whole, last))
        else:
            _unlift(state, here, stride, outside, there, (first, whole, last), aligned)
    if aligned and not inwards:
        fence_stores()


@njit(nogil=True, cache=True)
def serve(thread, threads, control, trips, shape, last, state, before, barrier, after):
    """Work off one task after the other, to be called by all `threads` at once.

    Args:
        thread: which.
        threads: how many.
        control: see above.
        trips: two rows for halos, then two for edges.
        shape: of the state.
        last: task before the first one.
        state: the two arrays.
        before: arguments of the time loop between these and the number of steps.
        barrier: where threads meet after halos have come.
        after: arguments of the time loop after the number of steps.
    """
    while True:
        last = _listen(control, last)
        steps, flips = control[STEPS], control[FLIPS]
        if steps < 0:
            _report(control, threads, last)
            return
        now, then = state[0], state[1]
        if control[TURN] == 1:
            now, then = then, now
        coming, leaving = control[COMING], control[LEAVING]

        for k in range(coming):
            _carry(thread, threads, now, trips[k], shape, True)
        # Threads take different rows of the halo, so all must have finished before a step reads it.
        if coming > 0:
            wait(barrier, threads)
        if steps > 0:
            advance(thread, threads, now, then, *before, steps, *after)
        if flips == 1:
            now = then
        for k in range(leaving):
            _carry(thread, threads, now, trips[2 + k], shape, False)
        _report(control, threads, last)
