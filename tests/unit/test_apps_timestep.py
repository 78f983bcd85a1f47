from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.apps.domain import MAX_STEPS, choose_time_step, count_steps
from tetris_sim.config.sections.schema import TimeSection
from tetris_sim.errors import ConfigError, UnstableStepError

LIMIT, UNIT = 0.25, 1.0  # as the 5-point Laplacian


def choose(
    dt: float | None = None, *, limit: float = LIMIT, unit: float = UNIT, **section: object
) -> tuple[float, int]:
    return choose_time_step(
        TimeSection.model_validate(section), dt_limit=limit, cfl_unit=unit, dt=dt
    )


def test_auto_is_the_safety_factor_times_the_limit() -> None:
    assert choose(steps=5) == (0.9 * LIMIT, 5)
    assert choose(dt=None, steps=5, safety=0.5) == (0.5 * LIMIT, 5)
    assert choose_time_step(TimeSection(dt="auto", steps=5), dt_limit=LIMIT, cfl_unit=UNIT) == (
        0.9 * LIMIT,
        5,
    )


def test_a_cfl_number_is_in_units_of_spacing_squared_over_diffusivity() -> None:
    assert choose(cfl=0.2, steps=3, unit=0.5, limit=1.0) == (0.1, 3)


def test_a_number_is_taken_as_it_is() -> None:
    assert choose_time_step(TimeSection(dt=0.125, steps=0), dt_limit=LIMIT, cfl_unit=UNIT) == (
        0.125,
        0,
    )


@given(wanted=st.floats(1e-6, 0.25), t_end=st.floats(1e-3, 1e6))
def test_whole_steps_end_at_t_end_and_none_is_longer_than_asked_for(
    wanted: float, t_end: float
) -> None:
    dt, steps = choose_time_step(TimeSection(dt=wanted, t_end=t_end), dt_limit=LIMIT, cfl_unit=UNIT)
    assert steps * dt == pytest.approx(t_end, rel=4e-16)
    assert dt <= wanted * (1 + 2e-12)
    assert steps == 1 or t_end / (steps - 1) > wanted * (
        1 - 1e-15
    )  # one step fewer would be too long


@given(dt=st.floats(1e-9, 1.0), steps=st.integers(1, 10**9))
def test_a_whole_number_of_steps_is_found_again_in_spite_of_rounding(dt: float, steps: int) -> None:
    assert count_steps(steps * dt, dt) == steps
    assert choose(dt=dt / 4, t_end=steps * (dt / 4)) == (dt / 4, steps)


@given(dt=st.floats(1e-6, 0.25), t_end=st.floats(1e-3, 1e3))
def test_a_continued_run_keeps_its_step_to_the_bit_and_reaches_t_end(
    dt: float, t_end: float
) -> None:
    kept, steps = choose(dt=dt, cfl=0.1, t_end=t_end)
    assert kept == dt
    assert steps * dt >= t_end * (1 - 2e-12)
    assert (steps - 1) * dt < t_end


def test_a_run_with_t_end_continues_with_the_same_number_of_steps() -> None:
    for t_end in (0.3, 1.7, 100.0, 12345.678):
        dt, steps = choose(cfl=0.23, t_end=t_end)
        assert choose(dt=dt, cfl=0.23, t_end=t_end) == (dt, steps)


def test_the_largest_stable_step_is_accepted_and_a_longer_one_refused_with_both_numbers() -> None:
    assert choose(cfl=0.25, steps=1) == (0.25, 1)
    with pytest.raises(
        UnstableStepError, match=r"time\.cfl = 0\.26.*0\.26 s is unstable.*0\.25 s.*cfl 0\.25.*auto"
    ):
        choose(cfl=0.26, steps=1)
    with pytest.raises(
        UnstableStepError, match=r"time\.dt = 0\.3 s.*largest stable step is 0\.25 s"
    ):
        choose_time_step(TimeSection(dt=0.3, t_end=1.0), dt_limit=LIMIT, cfl_unit=UNIT)


@pytest.mark.parametrize(
    "section",
    [
        {"cfl": 1e-300, "steps": 1, "unit": 1e-300},
        {"cfl": 0.2, "steps": 1, "unit": 0.0},
        {"cfl": 0.2, "steps": 1, "unit": math.inf},
        {"steps": 1, "limit": 0.0},
        {"steps": 1, "limit": math.inf},
        {"cfl": 1e-300, "t_end": 1e300},
        {"cfl": 1e-20, "t_end": 1.0},
        {"steps": MAX_STEPS + 1},
    ],
)
def test_absurd_numbers_are_a_configuration_error(section: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        choose(**section)


def test_the_most_steps_that_can_be_counted_are_allowed() -> None:
    assert choose(steps=MAX_STEPS)[1] == MAX_STEPS
