"""The tuner takes the fastest right answer: with methods made up for that."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.fake_methods import FakeMethod
from tests.support.tuner_cases import FAST, MACHINE, SLOW, TERMS, Use, label, notes, problem_of
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencil import Stencil
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning import tune as tuning
from tetris_sim.scheduler.tuning.candidates import TuningRequest
from tetris_sim.scheduler.tuning.choice import Speed
from tetris_sim.scheduler.tuning.tune import tune

pytestmark = pytest.mark.usefixtures("kept_choices")


def test_the_fastest_of_all_methods_and_parameters_is_chosen(use: Use) -> None:
    use(
        FakeMethod("cpu.slow", (SLOW,)),
        FakeMethod("cpu.mixed", ({"delay_us": 2000}, FAST)),
        FakeMethod("cpu.x", (SLOW,)),
    )
    choice = tune(problem_of(), MACHINE, TERMS)
    assert label(choice) == ("cpu.mixed", FAST)
    assert notes(choice)["cpu.mixed", 0] == "chosen"
    rates = {(row.method, row.parameters["delay_us"]): row.points_per_second for row in choice.rows}
    assert len(rates) == 4
    for rate in rates.values():
        assert rate is not None
        assert 0 < rate[1] <= rate[0] <= rate[2]
    assert rates["cpu.slow", 3000][0] < choice.speed.points_per_second / 10  # type: ignore[index]
    assert "cpu.mixed (delay_us 0)" in choice.reasons[0]
    assert "4 candidates" in choice.reasons[0]
    assert any(reason.startswith("cpu.slow (delay_us 3000): ") for reason in choice.reasons)


def test_the_best_guess_of_each_method_is_tried_before_any_second_guess(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tetris_sim.scheduler.tuning.measure.Trial.time", lambda *_: Speed(1e7, 0.0)
    )  # on a busy machine, too
    order: list[str] = []

    class Noting(FakeMethod):
        def refusal(self, problem: Problem) -> None:
            self.opened = Noted(self.name)

    class Noted(list):  # type: ignore[type-arg]
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def append(self, item: tuple[dict[str, int], tuple[int, ...]]) -> None:
            order.append(f"{self.name} {item[0]['delay_us']}")

    use(*(Noting(name, ({"delay_us": 1}, {"delay_us": 2})) for name in ("cpu.a", "cpu.b")))
    tune(problem_of(), MACHINE, TERMS)
    # The last method is the one that never refuses and compiles quickly: it tells how long the run
    # is.
    assert order[:4] == ["cpu.b 1", "cpu.a 1", "cpu.b 2", "cpu.a 2"]


def test_of_equally_fast_candidates_the_first_guess_is_taken(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(FakeMethod("cpu.a", ({"tile": 1}, {"tile": 2})))
    monkeypatch.setattr(
        "tetris_sim.scheduler.tuning.measure.Trial.time", lambda *_: Speed(1e9, 0.0)
    )
    assert label(tune(problem_of(), MACHINE, TERMS)) == ("cpu.a", {"tile": 1})


def test_a_method_that_refuses_is_not_tried_and_the_reason_is_told(use: Use) -> None:
    refusing = FakeMethod("cpu.fussy", why_not="it is Monday")
    use(refusing, CpuPlainMethod())
    choice = tune(problem_of(), MACHINE, TERMS)
    assert choice.method.name == "cpu.plain"
    assert refusing.opened == []
    assert choice.reasons[0] == "Not cpu.fussy: it is Monday."


@pytest.mark.parametrize(
    "wrong",
    [
        FakeMethod("cpu.bad", error=1e-9),
        FakeMethod("cpu.bad", ({"steps_per_block": 4},), fault="one block"),
        FakeMethod("cpu.bad", ({"steps_per_block": 4},), fault="whole blocks"),
        FakeMethod("cpu.bad", ({"steps_per_block": 32},), fault="one block"),
        FakeMethod("cpu.bad", ({"steps_per_block": 2},), fault="whole blocks"),
    ],
    ids=[
        "weights",
        "after a block",
        "rest of a block",
        "after a long block",
        "rest of a short block",
    ],
)
def test_a_method_that_computes_something_else_is_dropped_and_the_next_is_used(
    use: Use, wrong: FakeMethod
) -> None:
    use(wrong, FakeMethod("cpu.slow", (SLOW,)))
    choice = tune(problem_of(), MACHINE, TERMS)
    assert choice.method.name == "cpu.slow"
    assert any(
        "cpu.bad" in reason and "differs from the reference" in reason for reason in choice.reasons
    )
    assert [row.check for row in choice.rows] == ["wrong", "right"]
    with pytest.raises(
        UnsupportedError, match=r"no method can advance.*cpu\.bad.*differs from the reference"
    ):
        tune(problem_of(), MACHINE, dataclasses.replace(TERMS, asked=TuningRequest("cpu.bad")))


@pytest.mark.parametrize(
    "failure", [ValueError("tile 3 is odd"), RuntimeError(), KeyError("x"), MemoryError("no more")]
)
def test_a_candidate_that_raises_is_dropped_and_the_next_is_used(
    use: Use, failure: Exception
) -> None:
    use(
        FakeMethod("cpu.a", ({"tile": 3}, {"tile": 4}), failure=failure, fails_with=("tile", 3)),
        CpuPlainMethod(),
    )
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, asked=TuningRequest("cpu.a")))
    assert label(choice) == ("cpu.a", {"tile": 4})
    (told,) = (reason for reason in choice.reasons if reason.startswith("Not "))
    assert told.startswith(f"Not cpu.a (tile 3): it failed with {type(failure).__name__}")


def test_a_method_that_fails_when_it_is_asked_is_passed_over(use: Use) -> None:
    class Failing(FakeMethod):
        def refusal(self, problem: Problem) -> None:
            msg = "no such register"
            raise LookupError(msg)

    use(Failing("cpu.a"), CpuPlainMethod())
    choice = tune(problem_of(), MACHINE, TERMS)
    assert choice.reasons[0] == "Not cpu.a: it failed with LookupError: no such register."


def test_if_nothing_works_every_reason_is_told(use: Use) -> None:
    use(FakeMethod("cpu.a", why_not="it is Monday"), FakeMethod("cpu.b", failure=ValueError("odd")))
    with pytest.raises(
        UnsupportedError,
        match=r"Not cpu\.a: it is Monday\. Not cpu\.b: it failed with ValueError: odd",
    ):
        tune(problem_of(), MACHINE, TERMS)


def test_where_memory_runs_out_a_smaller_piece_is_tried(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "trial_bytes", lambda memory, cache: 16 << 20)
    short = FakeMethod("cpu.short", most_bytes=5 << 20)
    use(short)
    choice = tune(problem_of((2000, 1500)), MACHINE, TERMS)
    assert choice.method.name == "cpu.short"
    trials = [shape[0] * shape[1] * 8 for _, shape in short.opened]
    assert trials[0] > 5 << 20 > trials[1] > 3 << 20
    use(FakeMethod("cpu.none", most_bytes=1), CpuPlainMethod())
    choice = tune(problem_of((2000, 1500)), MACHINE, TERMS)
    assert choice.method.name == "cpu.plain"
    assert any("cpu.none: it failed with MemoryError" in reason for reason in choice.reasons)


def test_candidates_that_need_more_memory_than_there_is_are_not_tried(use: Use) -> None:
    greedy = FakeMethod("cpu.greedy", needs=9 << 30)
    use(greedy, CpuPlainMethod())
    choice = tune(problem_of(), MACHINE, TERMS)
    assert greedy.opened == []
    assert choice.reasons[0] == "Not cpu.greedy: it needs 9 GiB of memory, and 7.75 GiB can be had."


@pytest.mark.parametrize("proposals", [(FAST, SLOW), (SLOW, FAST)])
def test_trials_that_do_not_fit_beside_each_other_are_held_one_at_a_time(
    use: Use, proposals: tuple[dict[str, int], ...]
) -> None:
    large = FakeMethod("cpu.a", proposals, needs=3 << 30)  # half of the 8 GiB are for trials
    use(large)
    assert label(tune(problem_of(), MACHINE, TERMS)) == ("cpu.a", FAST)
    assert (large.most_open, large.now_open) == (1, 0)
    small = FakeMethod("cpu.a", proposals)
    use(small)
    tune(problem_of(), MACHINE, dataclasses.replace(TERMS, use_cache=False))
    assert (small.most_open, small.now_open) == (2, 0)


def test_the_weights_of_a_growing_problem_do_not_overflow_the_check(use: Use) -> None:
    use(FakeMethod("cpu.a", ({"steps_per_block": 64},)))
    problem = problem_of()
    stencil = Stencil(problem.stencil.offsets, (7.0, -3.0, 40.0, 2.0, 9.0))
    growing = dataclasses.replace(
        problem, stencil=stencil, dtype=problem_of().dtype.type(0).astype("f4").dtype
    )
    assert tune(growing, MACHINE, TERMS).method.name == "cpu.a"


def test_a_small_grid_gets_as_many_threads_as_are_fastest(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(CpuPlainMethod())
    asked = []

    def measure(*_: object, place: ComputeResource, **__: object) -> Speed:
        asked.append(place.threads)
        return Speed({2: 3e15, 1: 2e15}[place.threads], 1e-6)

    monkeypatch.setattr(tuning, "measure_speed", measure)
    free = dataclasses.replace(TERMS, threads=4, fixed_threads=False, budget=0.1)
    choice = tune(problem_of(), MACHINE, free)
    assert (asked, choice.threads, choice.speed.points_per_second) == ([2, 1], 2, 3e15)
    assert choice.reasons[-1] == "2 threads of 4: the grid is so small that fewer are faster."
    again = tune(problem_of(), MACHINE, free)
    assert (again.threads, again.reasons[-1], len(asked)) == (2, choice.reasons[-1], 2)
    assert tune(problem_of((700, 600)), MACHINE, free).threads == 4
    assert tune(problem_of(), MACHINE, dataclasses.replace(free, fixed_threads=True)).threads == 4
    assert len(asked) == 2
