"""The tuner keeps to its budget, and to what the run is worth."""

from __future__ import annotations

import dataclasses
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_methods import FakeMethod
from tests.support.tuner_cases import FAST, MACHINE, SLOW, TERMS, Use, label, notes, problem_of
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.tuning import compete
from tetris_sim.scheduler.tuning.tune import tune

pytestmark = pytest.mark.usefixtures("kept_choices")


def test_a_candidate_that_would_exceed_the_budget_is_not_started(
    use: Use, kept_choices: Path
) -> None:
    second = FakeMethod("cpu.b", (FAST,))
    use(second, FakeMethod("cpu.a", (FAST, SLOW), opening_s=0.3))  # the last one is tried first
    hasty = dataclasses.replace(TERMS, budget=0.2)
    long_run = problem_of(steps=10**9)  # on any machine
    choice = tune(long_run, MACHINE, hasty)
    assert label(choice) == ("cpu.a", FAST)  # one is always tried
    assert second.opened == []
    assert notes(choice)["cpu.b", 0] == "not tried: the budget of 0.2 s is used up"
    assert "1 of 3 candidates" in choice.reasons[0]
    assert choice.reasons[1] == "The verb `tune` gives the others their turn."
    kept = (
        "Kept for later runs of up to 2 s, since not every method had its turn in time; longer "
        "ones, such as this, measure again."
    )
    assert choice.reasons[-1] == kept
    # cpu.b had no chance: a short run does not wait for it, a long one gives it one.
    assert len(list(kept_choices.iterdir())) == 1
    short = dataclasses.replace(problem_of(), steps=10)
    assert tune(short, MACHINE, hasty).date is not None
    assert second.opened == []
    begin = time.perf_counter()
    choice = tune(long_run, MACHINE, dataclasses.replace(TERMS, budget=0.5))
    assert notes(choice)["cpu.a", 3000] == "not tried: the budget of 0.5 s is used up"
    assert second.opened != []
    assert time.perf_counter() - begin < 2
    assert len(list(kept_choices.iterdir())) == 1


def late_method(use: Use) -> FakeMethod:
    """One that the first, whose code takes 0.3 s to compile, leaves no time for."""
    late = FakeMethod("cpu.late", (FAST, SLOW))
    use(late, FakeMethod("cpu.first", (SLOW,), opening_s=0.3))
    return late


PATIENT = dataclasses.replace(TERMS, budget=0.2, patient=True)


def test_a_run_that_is_much_longer_waits_until_every_method_has_had_one_turn(
    use: Use, kept_choices: Path
) -> None:
    late_method(use)
    choice = tune(problem_of(), MACHINE, PATIENT)
    assert label(choice) == ("cpu.late", FAST)
    assert notes(choice)["cpu.late", 3000] == "not tried: the budget of 0.2 s is used up"
    assert "Kept for later runs" not in choice.reasons[-1]  # later runs have nothing to make up for
    assert tune(problem_of(), MACHINE, TERMS).date is not None
    assert len(list(kept_choices.iterdir())) == 1


# A step of the first method takes at least 3 ms: 300 are thrice what its code took to compile.
@pytest.mark.parametrize(("steps", "beside"), [(300, 0.0), (10**6, 1e12)])
def test_a_run_that_is_not_much_longer_does_not_wait(use: Use, steps: int, beside: float) -> None:
    late = late_method(use)
    choice = tune(problem_of(steps=steps), MACHINE, dataclasses.replace(PATIENT, beside=beside))
    assert label(choice) == ("cpu.first", SLOW)
    assert late.opened == []


def test_other_tile_sizes_are_not_expected_to_compile_again(use: Use) -> None:
    tiles = (
        {"tile_x": 1, "jam": 1},
        {"tile_x": 2, "jam": 1},
        {"steps_per_block": 2, "jam": 1},
        {"tile_x": 1, "jam": 2},
    )

    class CompilingOnce(FakeMethod):
        def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
            self.opening_s = 0.0 if self.opened else 0.4
            return super().prepare(problem, slab, parameters, device)

    use(CompilingOnce("cpu.a", tiles))
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, budget=1.0))
    assert [row.note.startswith("not tried") for row in choice.rows] == [False, False, False, True]


def test_if_the_first_is_wrong_one_that_the_budget_left_out_is_used(use: Use) -> None:
    use(FakeMethod("cpu.a", error=1e-6, opening_s=0.2), FakeMethod("cpu.b"))
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, budget=0.1))
    assert choice.method.name == "cpu.b"
    assert [row.note for row in choice.rows][1] == "chosen"


def test_no_more_time_is_spent_on_trials_than_the_run_takes(use: Use) -> None:
    second = FakeMethod("cpu.b", (FAST,))
    use(second, FakeMethod("cpu.a", (FAST,), opening_s=0.2))
    choice = tune(problem_of(steps=10), MACHINE, TERMS)
    assert choice.method.name == "cpu.a"
    assert second.opened == []
    assert notes(choice)["cpu.b", 0].startswith("not tried: the whole run takes about ")
    tune(problem_of(steps=10), MACHINE, dataclasses.replace(TERMS, anew=True))
    assert second.opened != []


def test_what_a_short_run_left_out_has_its_turn_in_one_that_is_twice_as_long(use: Use) -> None:
    # A step of the first method takes at least 3 ms, and its code 0.4 s to compile.
    second, quick = FakeMethod("cpu.b", (FAST,)), FakeMethod("cpu.a", (SLOW,), opening_s=0.4)
    use(second, quick)
    choice = tune(problem_of(steps=250), MACHINE, TERMS)
    assert (choice.method.name, second.opened) == ("cpu.a", [])
    tune(problem_of(steps=300), MACHINE, TERMS)
    assert second.opened == []
    assert tune(problem_of(steps=2000), MACHINE, TERMS).method.name == "cpu.b"


def test_a_method_whose_best_guess_is_far_behind_gets_no_second_trial_unless_all_is_asked_for(
    use: Use,
) -> None:
    slow = FakeMethod("cpu.slow", (SLOW, FAST))
    use(slow, FakeMethod("cpu.b", (FAST,)))
    choice = tune(problem_of(), MACHINE, TERMS)
    assert choice.method.name == "cpu.b"
    assert (
        notes(choice)["cpu.slow", 0] == "not tried: the method is less than half as fast as another"
    )
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, anew=True))
    assert all(row.points_per_second is not None for row in choice.rows)


def test_with_a_budget_of_nothing_the_first_method_that_is_right_is_taken_unmeasured(
    use: Use, kept_choices: Path
) -> None:
    first, second = FakeMethod("cpu.a", (SLOW, FAST)), FakeMethod("cpu.b", (FAST,))
    use(
        FakeMethod("cpu.fussy", why_not="it is Monday"),
        FakeMethod("cpu.bad", error=1e-6),
        first,
        second,
    )
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, budget=0))
    assert label(choice) == ("cpu.a", SLOW)
    assert (len(first.opened), len(second.opened)) == (1, 0)  # for the check
    assert choice.speed.points_per_second > 0
    assert list(kept_choices.iterdir()) == []
    assert any(
        "Nothing was measured, since compute.tuning_budget is 0" in reason
        for reason in choice.reasons
    )
    assert any(reason.startswith("Not cpu.bad: ") for reason in choice.reasons)


def test_what_takes_long_is_said(
    use: Use, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compete, "_SILENCE", 0.1)
    use(FakeMethod("cpu.a", (FAST,), opening_s=0.5))
    with caplog.at_level(logging.INFO, logger="tetris_sim"):
        tune(problem_of(), MACHINE, TERMS)
    assert [record.getMessage()[:39] for record in caplog.records] == [
        "Finding the fastest method for the CPU:"
    ]
    caplog.clear()
    monkeypatch.setattr(compete, "_SILENCE", 60.0)
    with caplog.at_level(logging.INFO, logger="tetris_sim"):
        tune(problem_of(), MACHINE, dataclasses.replace(TERMS, anew=True))
    assert caplog.records == []
