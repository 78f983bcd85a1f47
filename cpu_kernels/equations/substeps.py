"""Substeps of adaptive steps by one thread: parameters, a sweep, errors, the next length, again.

Idea    What `advance_adaptive` of simulation/workers.py does substep by substep, for a slab without
        neighbours, so that a small grid does not wait for Python between two sweeps. Lengths follow
        from the functions of `step_control.py` themselves, compiled here; every thread looks at the
        errors of all and comes to the same decision.
Layout  even, odd: the records of the threads (`stages.py`) for the two orders of the two arrays of
        the state. steps: a row for each step that is divided; tally: what their substeps came to.
        program: instructions on float64 registers, of which the first two are begin and length of
        the substep and the last ones are those that the instructions make, one each; `results` are
        those of the parameters, which go to `numbers`. places: for each order, addresses of the new
        fields and then of their errors. found: the largest magnitudes in the part of each thread;
        seen: for each thread those of the fields before, then of fields and errors after a substep.
Limits  Parameters are made of operations that have the same bits here and in NumPy (`EXACT`).
        `CpuSubstepStepper` puts the dtype and the time loop between the two markers.
Test    tests/kernels/test_substeps.py
"""

from __future__ import annotations

import math

from numba import from_dtype
from numba.core import types

from tetris_sim.cpu_kernels.compiled.barrier import wait
from tetris_sim.cpu_kernels.compiled.intrinsics import address_of, elements_at, inner, njit, real_of
from tetris_sim.cpu_kernels.equations.stages import (
    ABS,
    ACCEPTED,
    ADD,
    AT_LEAST_AS_LARGE,
    AT_LEAST_AS_SMALL,
    AT_MOST,
    BEFORE,
    DIVIDE,
    END,
    EQUAL,
    LEAST,
    LESS,
    LONGEST,
    MORE,
    MULTIPLY,
    NEGATIVE,
    NUMBERS,
    ORDER,
    OTHER,
    REACHED,
    REJECTED,
    SHORTEST,
    SQRT,
    SUBTRACT,
    TIME,
    TOLERANCE,
    TURN,
    WANTED,
    WHERE,
)
from tetris_sim.model import step_control
from tetris_sim.model.step_control import LEAST_ERROR

# [the row update begins]
REAL, BITS = types.float64, types.int64


@inner
def advance(thread, threads, own, table, row_bytes, steps, barrier):
    """In place of the time loop of `sweep.py`."""


# [the row update ends]

_INT, _TABLE, _LINES = types.intp, types.int64[:, ::1], types.float64[:, ::1]
SIGNATURE = types.void(
    *(_INT, _INT, from_dtype(NUMBERS)[::1], from_dtype(NUMBERS)[::1]),
    *(_LINES, types.float64[::1], types.float64[::1]),
    *(_TABLE, _LINES, types.int64[::1], REAL[:, ::1]),
    *(_TABLE, _LINES, types.float64[:, :, ::1], types.int64[::1]),
)

# All bits but the sign, and those of infinity: magnitudes are ordered as these whole numbers are,
# with NaN above infinity. Vectors of whole numbers have a maximum that knows no NaN.
_MAGNITUDE = (1 << (REAL.bitwidth - 1)) - 1
_INFINITE = 0x7FF << 52 if REAL.bitwidth == 64 else 0xFF << 23

_next_factor = inner(step_control.next_factor)
_cut_length = inner(step_control.cut_length)
_largest_error = inner(step_control.largest_error)


@inner
def _evaluate(program, r, results, row):
    """Make the parameters of a substep, whose begin and length are in the first two registers."""
    first = r.size - program.shape[0]
    for k in range(program.shape[0]):
        code, a, b = program[k, 0], r[program[k, 1]], r[program[k, 2]]
        made = a  # of the sign +
        if code == ADD:
            made = a + b
        elif code == SUBTRACT:
            made = a - b
        elif code == MULTIPLY:
            made = a * b
        elif code == DIVIDE:
            made = a / b
        elif code == NEGATIVE:
            made = -a
        elif code == SQRT:
            made = math.sqrt(a)
        elif code == ABS:
            made = math.fabs(a)
        elif code == WHERE:
            made = b if a != 0 else r[program[k, 3]]
        elif (
            (code == LESS and a < b)
            or (code == AT_LEAST_AS_SMALL and a <= b)
            or (code == MORE and a > b)
            or (code == AT_LEAST_AS_LARGE and a >= b)
            or (code == EQUAL and a == b)
            or (code == OTHER and a != b)
        ):
            made = 1.0
        elif code >= LESS:
            made = 0.0
        r[first + k] = made

    for k in range(results.size):
        row[k] = REAL(r[results[k]])


@inner
def _look(n, thread, threads, places, row):
    """The largest magnitudes of some fields in a thread's part, infinite where one is no number."""
    # A grid of one row has no planes to share among threads.
    cut = 2 if n.count[0] == 1 and n.count[1] == 1 else 0
    low, high = n.count[cut] * thread // threads, n.count[cut] * (thread + 1) // threads
    planes, columns = (n.count[0], high - low) if cut == 2 else (high - low, n.count[2])
    begin = n.first[0] * n.pitch[0] + n.first[1] * n.pitch[1] + n.first[2] + low * n.pitch[cut]

    for k in range(places.size):
        values, most = elements_at(places[k], BITS), types.int64(0)
        for p in range(planes):
            for j in range(n.count[1]):
                at = begin + p * n.pitch[0] + j * n.pitch[1]
                for i in range(columns):
                    bits = values[at + i] & _MAGNITUDE
                    most = bits if bits > most else most
        row[k] = real_of(most, REAL) if most <= _INFINITE else math.inf


@inner
def _gather(found, threads, seen, after):
    """The largest magnitudes of all threads: of the state alone, or of fields and errors."""
    fields = seen.shape[1]
    for k in range(fields * (1 + after)):
        most = 0.0
        for thread in range(threads):
            most = max(most, found[thread, k])
        seen[after + k // fields, k % fields] = most


@njit(SIGNATURE, nogil=True, cache=True, error_model="numpy")
def divide(
    thread, threads, even, odd, steps, tally, asked,
    program, registers, results, numbers, places, found, seen, barrier,
):  # fmt: skip
    """Divide steps one after the other, to be called by all `threads` at once.

    Returns when the last one is complete, when a substep would be too short, or when `asked` allows
    no more; the first thread then says in `steps` and `tally` how far it came. The state is in the
    first array if `tally[TURN]` is 0.
    """
    # Other threads may still read what the first one writes, so all write at the end alone.
    accepted, rejected, shortest, longest = tally[ACCEPTED], tally[REJECTED], tally[2], tally[3]
    tolerance, order = asked[TOLERANCE], asked[ORDER]
    turn, reached, tries = 0, 0, types.int64(asked[AT_MOST])
    row = address_of(numbers[thread])
    own_seen, fields = seen[thread], seen.shape[2]

    _look(even[thread], thread, threads, places[1, :fields], found[thread])
    wait(barrier, threads)
    _gather(found, threads, own_seen, 0)

    time, wanted, before = steps[0, TIME], steps[0, WANTED], steps[0, BEFORE]
    length, is_last = _cut_length(wanted, steps[0, END] - time)
    while tries > 0 and wanted >= steps[reached, LEAST]:
        tries -= 1
        registers[thread, 0], registers[thread, 1] = time, length
        _evaluate(program, registers[thread], results, numbers[thread])
        advance(thread, threads, even if turn == 0 else odd, row, 0, 1, barrier)
        _look(even[thread], thread, threads, places[turn], found[thread])
        wait(barrier, threads)
        _gather(found, threads, own_seen, 1)

        error = _largest_error(own_seen[0], own_seen[1:], tolerance)
        wanted = length * _next_factor(error, before, order)
        if error > 1:
            rejected, before = rejected + 1, 1.0
        else:
            accepted, shortest = accepted + 1, min(shortest, length)
            longest, before = max(longest, length), max(error, LEAST_ERROR)
            time = steps[reached, END] if is_last else time + length
            wanted, turn = max(wanted, steps[reached, LEAST]), 1 - turn
            for k in range(fields):
                own_seen[0, k] = own_seen[1, k]
        if time >= steps[reached, END]:
            reached += 1
            if reached == steps.shape[0]:
                break
            time, wanted, before = steps[reached, TIME], steps[reached, WANTED], 1.0
        length, is_last = _cut_length(wanted, steps[reached, END] - time)

    wait(barrier, threads)
    if thread == 0:
        tally[ACCEPTED], tally[REJECTED], tally[SHORTEST] = accepted, rejected, shortest
        tally[LONGEST], tally[REACHED], tally[TURN] = longest, reached, turn
        if reached < steps.shape[0]:
            steps[reached, TIME], steps[reached, WANTED] = time, wanted
            steps[reached, BEFORE] = before
