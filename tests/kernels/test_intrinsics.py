"""Single machine operations: exact fused multiply-add, a barrier that holds, threads that report
what went wrong.
"""

from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.compiled.barrier import new_barrier, wait
from tetris_sim.cpu_kernels.compiled.intrinsics import fma, round_to_half


@njit
def fused(a, b, c):  # type: ignore[no-untyped-def]
    return fma(a, b, c)


NUMBERS = st.floats(-1e100, 1e100, allow_subnormal=False)


@given(a=NUMBERS, b=NUMBERS, c=NUMBERS)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert fused(a, b, c) == float(exact)


def test_fma_is_single_precision_on_single_precision_numbers() -> None:
    a, b, c = np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(-1)
    result = fused(a, b, c)
    assert np.float32(result) == np.float32(
        float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))
    )
    assert result != a * b + c  # which rounds the product first


@njit
def halves(values):  # type: ignore[no-untyped-def]
    found = np.empty_like(values)
    for i in range(values.size):
        found[i] = round_to_half(values[i])
    return found


def test_rounding_to_half_has_the_bits_of_numpy() -> None:
    """Every float16, what lies in the middle of two, what lies beside that, and anything."""
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.sort(numbers[np.isfinite(numbers)])
    middles = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(middles, np.float32(to)) for to in (-np.inf, np.inf)]
    any_bits = (
        np.random.default_rng(0).integers(0, 1 << 32, 100_000).astype(np.uint32).view(np.float32)
    )
    ends = np.array([65519.99, 65520.0, -65520.0, 3e38, -0.0], np.float32)
    values = np.concatenate([numbers, middles, *beside, any_bits, ends])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(np.float16).astype(np.float32)
    found, known = halves(values), ~np.isnan(values)
    np.testing.assert_array_equal(found[known].view(np.uint32), expected[known].view(np.uint32))
    assert np.isnan(found[~known]).all()


@njit(nogil=True)
def add_in_turns(thread, threads, rounds, counters, barrier):  # type: ignore[no-untyped-def]
    """Every thread writes its own counter, meets the others, then checks that all counters are
    equal.
    """
    wrong = 0
    for round_ in range(rounds):
        counters[thread * 16] = round_ + 1
        wait(barrier, threads)
        for other in range(threads):
            if counters[other * 16] != round_ + 1:
                wrong += 1
        wait(barrier, threads)
    return wrong


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_nobody_passes_the_barrier_before_everybody_has_arrived(threads: int) -> None:
    team, barrier = ThreadTeam(threads), new_barrier()
    counters = np.zeros(threads * 16, dtype=np.int64)
    add_in_turns(0, 1, 1, np.zeros(16, dtype=np.int64), new_barrier())  # compile first
    wrong = [-1] * threads

    def task(thread: int) -> None:
        wrong[thread] = add_in_turns(thread, threads, 300, counters, barrier)

    team.run(task)
    team.close()
    assert wrong == [0] * threads


@pytest.mark.parametrize("failing", [{1}, {0, 1}])
def test_an_exception_in_a_thread_reaches_the_caller_once_and_the_team_goes_on(
    failing: set[int],
) -> None:
    team = ThreadTeam(2)

    def fail(thread: int) -> None:
        if thread in failing:
            msg = f"thread {thread} has a problem"
            raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="thread 1" if failing == {1} else r"thread [01]"):
        team.run(fail)
    seen: list[int] = []
    team.run(seen.append)
    assert sorted(seen) == [0, 1]
    team.close()


def test_start_returns_while_the_team_works() -> None:
    team, gate = ThreadTeam(2), threading.Event()
    team.start(lambda thread: None if gate.wait(10) else pytest.fail("start did not return"))
    gate.set()
    team.wait()
    team.close()


def test_a_team_ends_its_threads() -> None:
    before = threading.active_count()
    ThreadTeam(3).close()
    assert threading.active_count() == before


@given(n=st.integers(0, 1000), size=st.integers(1, 9))
def test_the_parts_of_a_team_cover_everything_once(n: int, size: int) -> None:
    team = ThreadTeam.__new__(ThreadTeam)
    team.size = size
    parts = [i for thread in range(size) for i in team.split(n, thread)]
    assert parts == list(range(n))
