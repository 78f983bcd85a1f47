from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.config.sections.quantities import Every
from tetris_sim.outputs.output import StepSchedule


def due_steps(schedule: StepSchedule, begin: int = 0) -> list[int]:
    steps, step = [], schedule.next_step(begin)
    while step is not None:
        steps.append(step)
        step = schedule.next_step(step)
    return steps


def test_steps_are_due_at_multiples_and_at_the_last() -> None:
    assert due_steps(StepSchedule(Every(30, "steps"), dt=1.0, last=100)) == [30, 60, 90, 100]
    assert due_steps(StepSchedule(Every(25, "steps"), dt=1.0, last=100)) == [25, 50, 75, 100]
    assert due_steps(StepSchedule(Every(1000, "steps"), dt=1.0, last=100)) == [100]


def test_a_period_of_time_is_due_at_the_first_step_not_before_each_multiple() -> None:
    assert due_steps(StepSchedule(Every(1.0, "s"), dt=0.3, last=12)) == [
        4,
        7,
        10,
        12,
    ]  # 1.2, 2.1, 3.0, 3.6 s


def test_rounding_does_not_move_a_step_that_lies_on_a_multiple() -> None:
    assert 49 * (1 / 49) < 1  # it would be taken for a step before the multiple
    assert 3 * 0.1 / 1e-3 > 300  # it would be taken for a multiple after the step
    for denominator in (3, 7, 10, 49, 98, 103, 1000):
        schedule = StepSchedule(Every(1.0, "s"), dt=1 / denominator, last=50 * denominator)
        assert due_steps(schedule) == [k * denominator for k in range(1, 51)]
    schedule = StepSchedule(Every(0.1, "s"), dt=1e-3, last=5000)
    assert due_steps(schedule) == list(range(100, 5001, 100))


def test_after_a_change_of_the_step_multiples_are_counted_from_time_zero() -> None:
    # 40 steps of 0.3 s lead to 12 s, all others take 0.25 s.
    schedule = StepSchedule(Every(1.0, "s"), dt=0.25, last=60, start=(40, 12.0))
    assert due_steps(schedule, begin=40) == [44, 48, 52, 56, 60]
    schedule = StepSchedule(Every(1.0, "s"), dt=0.25, last=60, start=(41, 12.3))
    assert due_steps(schedule, begin=41) == [44, 48, 52, 56, 60]  # 13.05 s, 14.05 s, ...
    schedule = StepSchedule(Every(30, "steps"), dt=0.25, last=70, start=(41, 12.3))
    assert due_steps(schedule, begin=41) == [60, 70]


def test_a_period_shorter_than_a_step_is_due_at_every_step() -> None:
    assert due_steps(StepSchedule(Every(0.1, "s"), dt=1.0, last=5)) == [1, 2, 3, 4, 5]


def test_after_the_last_step_nothing_is_due() -> None:
    schedule = StepSchedule(Every(3, "steps"), dt=1.0, last=10)
    assert schedule.next_step(10) is None
    assert schedule.next_step(11) is None


@given(
    dt=st.floats(1e-9, 1e3),
    ratio=st.floats(1e-2, 1e4),
    last=st.integers(1, 10**6),
    begin=st.integers(0, 10**6),
)
def test_the_next_step_does_not_depend_on_where_one_asks_from(
    dt: float, ratio: float, last: int, begin: int
) -> None:
    schedule = StepSchedule(Every(ratio * dt, "s"), dt=dt, last=last)
    due = schedule.next_step(begin)
    if due is None:
        assert begin >= last
        return
    assert begin < due <= last
    between = (begin + due) // 2
    assert schedule.next_step(between) == due if between < due else True


@given(period=st.fractions(Fraction(1, 2), 100, max_denominator=12), last=st.integers(1, 300))
def test_times_are_those_of_exact_arithmetic(period: Fraction, last: int) -> None:
    dt = Fraction(1, 8)
    exact = sorted(
        {min(math.ceil(k * period / dt), last) for k in range(1, math.ceil(last * dt / period) + 1)}
        | {last}
    )
    assert due_steps(StepSchedule(Every(float(period), "s"), dt=float(dt), last=last)) == exact


@pytest.mark.parametrize("last", [1, 2])
def test_short_runs_end_with_an_output(last: int) -> None:
    assert due_steps(StepSchedule(Every(1e6, "s"), dt=1.0, last=last)) == [last]
