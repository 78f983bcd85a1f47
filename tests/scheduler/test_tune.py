"""The tuner takes the fastest right answer within its budget, and remembers it: with methods made up for that."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import FACES, make_problem
from fake_methods import FakeMethod

from tetris_sim.boundary import Boundary, Neumann
from tetris_sim.catalogue import named_stencil
from tetris_sim.cpu_kernels.plain import PlainMethod
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.method import Method, Parameters
from tetris_sim.problem import Problem
from tetris_sim.scheduler import compete, tuned
from tetris_sim.scheduler import tune as tuning
from tetris_sim.scheduler.candidates import Asked
from tetris_sim.scheduler.choice import Choice
from tetris_sim.scheduler.machine import Machine
from tetris_sim.scheduler.measure import Speed, check_method
from tetris_sim.scheduler.place import Place
from tetris_sim.scheduler.tune import Terms, tune
from tetris_sim.slab import Slab
from tetris_sim.stencil import Stencil

MACHINE = Machine("host", "cpu", 2, "cores in the affinity mask", 8 << 30, "free memory of the machine")
TERMS = Terms(Asked(), threads=1, fixed_threads=True, budget=2.0)
FAST, SLOW = {"delay_us": 0}, {"delay_us": 3000}  # a step of the grid below takes 10 us

Use = Callable[..., None]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Compile what the methods below compute with, so that no budget is spent on it."""
    assert check_method(problem_of(), PlainMethod(), {}, place=Place(1)) is None


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where choices are kept; kernels stay in the session's cache. Timings are short: the methods differ by much."""
    monkeypatch.setattr(tuned, "cache_directory", lambda part: tmp_path)
    monkeypatch.setattr(compete, "_ROUNDS", 2)
    monkeypatch.setattr(compete, "_ROUND_SECONDS", 0.01)
    return tmp_path


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Sets the methods there are."""

    def set_methods(*methods: Method) -> None:
        monkeypatch.setattr("tetris_sim.cpu_kernels.METHODS", methods)

    return set_methods


def problem_of(shape: tuple[int, ...] = (90, 70), steps: int = 10**6) -> Problem:
    stencil = named_stencil("heat-2d").stencil
    return make_problem(stencil, Boundary.everywhere(Neumann(), 2), shape=shape, steps=steps)[0]


def label(choice: Choice) -> tuple[str, dict[str, int]]:
    return choice.method.name, dict(choice.parameters)


def notes(choice: Choice) -> dict[tuple[str, int], str]:
    return {(row.method, row.parameters.get("delay_us", -1)): row.note for row in choice.rows}


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
    monkeypatch.setattr("tetris_sim.scheduler.measure.Trial.time", lambda *_: Speed(1e7, 0.0))  # on a busy machine, too
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
    # The last method is the one that never refuses and compiles quickly: it tells how long the run is.
    assert order[:4] == ["cpu.b 1", "cpu.a 1", "cpu.b 2", "cpu.a 2"]


def test_of_equally_fast_candidates_the_first_guess_is_taken(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(FakeMethod("cpu.a", ({"tile": 1}, {"tile": 2})))
    monkeypatch.setattr("tetris_sim.scheduler.measure.Trial.time", lambda *_: Speed(1e9, 0.0))
    assert label(tune(problem_of(), MACHINE, TERMS)) == ("cpu.a", {"tile": 1})


def test_a_method_that_refuses_is_not_tried_and_the_reason_is_told(use: Use) -> None:
    refusing = FakeMethod("cpu.fussy", why_not="it is Monday")
    use(refusing, PlainMethod())
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
    ids=["weights", "after a block", "rest of a block", "after a long block", "rest of a short block"],
)
def test_a_method_that_computes_something_else_is_dropped_and_the_next_is_used(use: Use, wrong: FakeMethod) -> None:
    use(wrong, FakeMethod("cpu.slow", (SLOW,)))
    choice = tune(problem_of(), MACHINE, TERMS)
    assert choice.method.name == "cpu.slow"
    assert any("cpu.bad" in reason and "differs from the reference" in reason for reason in choice.reasons)
    assert [row.check for row in choice.rows] == ["wrong", "right"]
    with pytest.raises(UnsupportedError, match=r"no method can advance.*cpu\.bad.*differs from the reference"):
        tune(problem_of(), MACHINE, dataclasses.replace(TERMS, asked=Asked("cpu.bad")))


@pytest.mark.parametrize(
    "failure", [ValueError("tile 3 is odd"), RuntimeError(), KeyError("x"), MemoryError("no more")]
)
def test_a_candidate_that_raises_is_dropped_and_the_next_is_used(use: Use, failure: Exception) -> None:
    use(FakeMethod("cpu.a", ({"tile": 3}, {"tile": 4}), failure=failure, fails_with=("tile", 3)), PlainMethod())
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, asked=Asked("cpu.a")))
    assert label(choice) == ("cpu.a", {"tile": 4})
    (told,) = (reason for reason in choice.reasons if reason.startswith("Not "))
    assert told.startswith(f"Not cpu.a (tile 3): it failed with {type(failure).__name__}")


def test_a_method_that_fails_when_it_is_asked_is_passed_over(use: Use) -> None:
    class Failing(FakeMethod):
        def refusal(self, problem: Problem) -> None:
            msg = "no such register"
            raise LookupError(msg)

    use(Failing("cpu.a"), PlainMethod())
    choice = tune(problem_of(), MACHINE, TERMS)
    assert choice.reasons[0] == "Not cpu.a: it failed with LookupError: no such register."


def test_if_nothing_works_every_reason_is_told(use: Use) -> None:
    use(FakeMethod("cpu.a", why_not="it is Monday"), FakeMethod("cpu.b", failure=ValueError("odd")))
    with pytest.raises(
        UnsupportedError, match=r"Not cpu\.a: it is Monday\. Not cpu\.b: it failed with ValueError: odd"
    ):
        tune(problem_of(), MACHINE, TERMS)


def test_a_candidate_that_would_exceed_the_budget_is_not_started(use: Use, folder: Path) -> None:
    second = FakeMethod("cpu.b", (FAST,))
    use(second, FakeMethod("cpu.a", (FAST, SLOW), opening_s=0.3))  # the last one is tried first
    hasty = dataclasses.replace(TERMS, budget=0.2)
    choice = tune(problem_of(), MACHINE, hasty)
    assert label(choice) == ("cpu.a", FAST)  # one is always tried
    assert second.opened == []
    assert notes(choice)["cpu.b", 0] == "not tried: the budget of 0.2 s is used up"
    assert "1 of 3 candidates" in choice.reasons[0]
    assert choice.reasons[1] == "The verb `tune` gives the others their turn."
    kept = (
        "Kept for later runs of up to 2 s, since not every method had its turn in time; longer ones, such as this, "
        "measure again."
    )
    assert choice.reasons[-1] == kept
    # cpu.b had no chance: a short run does not wait for it, a long one gives it one.
    assert len(list(folder.iterdir())) == 1
    short = dataclasses.replace(problem_of(), steps=10)
    assert tune(short, MACHINE, hasty).date is not None
    assert second.opened == []
    begin = time.perf_counter()
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, budget=0.5))
    assert notes(choice)["cpu.a", 3000] == "not tried: the budget of 0.5 s is used up"
    assert second.opened != []
    assert time.perf_counter() - begin < 2
    assert len(list(folder.iterdir())) == 1


def late_method(use: Use) -> FakeMethod:
    """One that the first, whose code takes 0.3 s to compile, leaves no time for."""
    late = FakeMethod("cpu.late", (FAST, SLOW))
    use(late, FakeMethod("cpu.first", (SLOW,), opening_s=0.3))
    return late


PATIENT = dataclasses.replace(TERMS, budget=0.2, patient=True)


def test_a_run_that_is_much_longer_waits_until_every_method_has_had_one_turn(use: Use, folder: Path) -> None:
    late_method(use)
    choice = tune(problem_of(), MACHINE, PATIENT)
    assert label(choice) == ("cpu.late", FAST)
    assert notes(choice)["cpu.late", 3000] == "not tried: the budget of 0.2 s is used up"
    assert "Kept for later runs" not in choice.reasons[-1]  # later runs have nothing to make up for
    assert tune(problem_of(), MACHINE, TERMS).date is not None
    assert len(list(folder.iterdir())) == 1


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


def test_the_choice_of_a_short_run_is_kept_for_short_runs_only(use: Use) -> None:
    use(FakeMethod("cpu.b", (FAST,)), FakeMethod("cpu.a", (SLOW,), opening_s=0.1))
    assert tune(problem_of(steps=10), MACHINE, TERMS).method.name == "cpu.a"
    again = tune(problem_of(steps=12), MACHINE, TERMS)
    assert (again.method.name, again.date is None) == ("cpu.a", False)
    assert tune(problem_of(), MACHINE, TERMS).method.name == "cpu.b"
    again = tune(problem_of(steps=10), MACHINE, TERMS)
    assert (again.method.name, again.date is None) == ("cpu.b", False)


def test_a_method_whose_best_guess_is_far_behind_gets_no_second_trial_unless_all_is_asked_for(use: Use) -> None:
    slow = FakeMethod("cpu.slow", (SLOW, FAST))
    use(slow, FakeMethod("cpu.b", (FAST,)))
    choice = tune(problem_of(), MACHINE, TERMS)
    assert choice.method.name == "cpu.b"
    assert notes(choice)["cpu.slow", 0] == "not tried: the method is less than half as fast as another"
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, anew=True))
    assert all(row.points_per_second is not None for row in choice.rows)


def test_where_memory_runs_out_a_smaller_piece_is_tried(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "trial_bytes", lambda memory, cache: 16 << 20)
    short = FakeMethod("cpu.short", most_bytes=5 << 20)
    use(short)
    choice = tune(problem_of((2000, 1500)), MACHINE, TERMS)
    assert choice.method.name == "cpu.short"
    trials = [shape[0] * shape[1] * 8 for _, shape in short.opened]
    assert trials[0] > 5 << 20 > trials[1] > 3 << 20
    use(FakeMethod("cpu.none", most_bytes=1), PlainMethod())
    choice = tune(problem_of((2000, 1500)), MACHINE, TERMS)
    assert choice.method.name == "cpu.plain"
    assert any("cpu.none: it failed with MemoryError" in reason for reason in choice.reasons)


def test_candidates_that_need_more_memory_than_there_is_are_not_tried(use: Use) -> None:
    greedy = FakeMethod("cpu.greedy", needs=9 << 30)
    use(greedy, PlainMethod())
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
    growing = dataclasses.replace(problem, stencil=stencil, dtype=problem_of().dtype.type(0).astype("f4").dtype)
    assert tune(growing, MACHINE, TERMS).method.name == "cpu.a"


def test_a_choice_is_remembered_and_only_checked_in_the_next_run(use: Use) -> None:
    method = FakeMethod("cpu.a", (SLOW, FAST))
    use(method, FakeMethod("cpu.b", (SLOW,)))
    first = tune(problem_of(), MACHINE, TERMS)
    assert first.date is None
    method.opened.clear()
    second = tune(problem_of(), MACHINE, TERMS)
    assert label(second) == label(first) == ("cpu.a", FAST)
    assert second.speed == first.speed
    assert second.rows == ()
    assert method.n_trials == len(method.opened) == 1
    assert second.date is not None
    assert second.reasons[0].endswith(f" GStencil/s, tuned on {second.date[:10]}, cached; checked.")


def test_without_the_cache_nothing_is_read_or_kept(use: Use, folder: Path) -> None:
    use(FakeMethod("cpu.a", (FAST, SLOW)))
    alone = dataclasses.replace(TERMS, use_cache=False)
    tune(problem_of(), MACHINE, alone)
    assert list(folder.iterdir()) == []
    tune(problem_of(), MACHINE, TERMS)
    assert tune(problem_of(), MACHINE, alone).date is None
    assert tune(problem_of(), MACHINE, dataclasses.replace(TERMS, anew=True)).date is None
    assert tune(problem_of(), MACHINE, TERMS).date is not None


def damages() -> dict[str, Callable[[str], str]]:
    def changed(**changes: object) -> Callable[[str], str]:
        return lambda text: json.dumps({**json.loads(text), "choice": {**json.loads(text)["choice"], **changes}})

    return {
        "empty": lambda text: "",
        "torn": lambda text: text[: len(text) // 2],
        "a list": lambda text: "[]",
        "a number": lambda text: "3",
        "another key": lambda text: text.replace('"threads": 1', '"threads": 7'),
        "an older format": lambda text: text.replace('"format": 2', '"format": 0'),
        "a method that is gone": changed(method="cpu.gone"),
        "parameters that are not proposed": changed(parameters={"delay_us": 17}),
        "parameters that are no numbers": changed(parameters={"delay_us": "0"}),
        "no parameters": changed(parameters=None),
        "a speed of zero": changed(points_per_second=0),
        "a speed in words": changed(points_per_second="fast"),
        "no threads": changed(threads=0),
        "half a thread": changed(threads=0.5),
        "words for a time": changed(good_for="ever"),
        "more than it should hold": changed(extra=1),
    }


@pytest.mark.parametrize("damage", damages().values(), ids=damages().keys())
def test_what_cannot_be_believed_is_measured_anew_and_replaced(
    use: Use, folder: Path, damage: Callable[[str], str]
) -> None:
    use(FakeMethod("cpu.a", (FAST,)))
    tune(problem_of(), MACHINE, TERMS)
    (path,) = folder.iterdir()
    good = path.read_text()
    path.write_text(damage(good))
    assert path.read_text() != good
    assert tune(problem_of(), MACHINE, TERMS).date is None
    assert json.loads(path.read_text())["key"] == json.loads(good)["key"]
    assert tune(problem_of(), MACHINE, TERMS).date is not None
    assert list(folder.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to_does_not_stop_a_run(
    use: Use, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "cache_directory", lambda part: folder / "not there")
    use(FakeMethod("cpu.a", (FAST,)))
    assert tune(problem_of(), MACHINE, TERMS).method.name == "cpu.a"
    assert list(folder.iterdir()) == []


def test_a_remembered_method_that_is_wrong_now_is_not_used(use: Use) -> None:
    use(FakeMethod("cpu.a", (FAST,)), FakeMethod("cpu.b", (SLOW,)))
    assert tune(problem_of(), MACHINE, TERMS).method.name == "cpu.a"
    use(FakeMethod("cpu.a", (FAST,), error=1e-6), FakeMethod("cpu.b", (SLOW,)))
    choice = tune(problem_of(), MACHINE, TERMS)
    assert (choice.method.name, choice.date) == ("cpu.b", None)


def key_of(
    problem: Problem, *, threads: int = 2, candidates: tuple[str, ...] = ("cpu.a",), cpu: str = "cpu"
) -> tuned.Key:
    machine = dataclasses.replace(MACHINE, cpu=cpu)
    return tuned.tuning_key(problem, machine, threads=threads, fixed_threads=False, candidates=candidates)


def test_similar_problems_share_a_choice_and_others_do_not() -> None:
    problem = problem_of((512, 700))
    key = key_of(problem)
    assert key_of(problem_of((540, 680), steps=3)) == key
    weights = tuple(weight / 2 for weight in problem.stencil.weights)
    assert key_of(dataclasses.replace(problem, stencil=Stencil(problem.stencil.offsets, weights))) == key
    reflecting = Boundary.everywhere(FACES["dirichlet"], 2)
    assert key_of(dataclasses.replace(problem, boundary=reflecting)) == key
    periodic = Boundary((problem.boundary.faces[0], (FACES["periodic"], FACES["periodic"])))
    others = [
        key_of(problem_of((512, 1000))),
        key_of(problem_of((700, 512))),
        key_of(dataclasses.replace(problem, boundary=periodic)),
        key_of(dataclasses.replace(problem, stencil=named_stencil("box-2d9p").stencil)),
        key_of(dataclasses.replace(problem, dtype=make_problem(problem.stencil, reflecting, dtype="f4")[0].dtype)),
        key_of(make_problem(problem.stencil, problem.boundary, shape=(512, 700), n_fields=2)[0]),
        key_of(problem, threads=1),
        key_of(problem, candidates=("cpu.a", "cpu.b")),
        key_of(problem, cpu="another"),
    ]
    texts = [json.dumps(each, sort_keys=True) for each in (key, *others)]
    assert len(set(texts)) == len(texts)


def test_with_a_budget_of_nothing_the_first_method_that_is_right_is_taken_unmeasured(use: Use, folder: Path) -> None:
    first, second = FakeMethod("cpu.a", (SLOW, FAST)), FakeMethod("cpu.b", (FAST,))
    use(FakeMethod("cpu.fussy", why_not="it is Monday"), FakeMethod("cpu.bad", error=1e-6), first, second)
    choice = tune(problem_of(), MACHINE, dataclasses.replace(TERMS, budget=0))
    assert label(choice) == ("cpu.a", SLOW)
    assert (len(first.opened), len(second.opened)) == (1, 0)  # for the check
    assert choice.speed.points_per_second > 0
    assert list(folder.iterdir()) == []
    assert any("Nothing was measured, since compute.tuning_budget is 0" in reason for reason in choice.reasons)
    assert any(reason.startswith("Not cpu.bad: ") for reason in choice.reasons)


def asking(method: str, **parameters: int) -> Terms:
    return dataclasses.replace(TERMS, asked=Asked(method, parameters))


def test_parameters_that_are_asked_for_are_used_and_the_others_are_the_best_guess(use: Use) -> None:
    use(FakeMethod("cpu.a", ({"tile": 3, "delay_us": 0}, {"tile": 5, "delay_us": 0})), PlainMethod())
    assert label(tune(problem_of(), MACHINE, asking("cpu.a", delay_us=7))) == ("cpu.a", {"tile": 3, "delay_us": 7})


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (asking("cpu.a", tiles=3), r"compute\.parameters\.tiles is not a parameter.*takes tile and delay_us.*'tile'"),
        (asking("cpu.plain", tile=3), r"compute\.parameters\.tile is not a parameter.*cpu\.plain takes none"),
        (asking("cpu.a", tile=13), r"these parameters of cpu\.a cannot be used.*tile 13.*ValueError: unlucky"),
        (asking("auto", tile=3), "parameters belong to one method"),
        (asking("cpu.q"), r"compute\.method is 'cpu\.q', which is not one of the methods: auto, cpu\.a, cpu\.plain"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_what_can(use: Use, terms: Terms, said: str) -> None:
    failing = FakeMethod("cpu.a", ({"tile": 3, "delay_us": 0},), failure=ValueError("unlucky"), fails_with=("tile", 13))
    use(failing, PlainMethod())
    with pytest.raises(ConfigError, match=said):
        tune(problem_of(), MACHINE, terms)


def test_a_small_grid_gets_as_many_threads_as_are_fastest(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(PlainMethod())
    asked = []

    def measure(*_: object, place: Place, **__: object) -> Speed:
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


def test_a_parameter_that_only_a_later_proposal_has_can_be_asked_for(use: Use) -> None:
    use(FakeMethod("cpu.a", ({"tile": 1, "delay_us": 0}, {"tile": 2, "delay_us": 0, "star": 1, "blocks": 5})))
    asked = dataclasses.replace(TERMS, asked=Asked("cpu.a", {"star": 1}))
    assert label(tune(problem_of(), MACHINE, asked)) == ("cpu.a", {"tile": 2, "delay_us": 0, "star": 1, "blocks": 5})
    with pytest.raises(ConfigError, match=r"cpu\.a takes tile, delay_us, star and blocks"):
        tune(problem_of(), MACHINE, dataclasses.replace(TERMS, asked=Asked("cpu.a", {"stars": 1})))


def test_what_takes_long_is_said(use: Use, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(compete, "_SILENCE", 0.1)
    use(FakeMethod("cpu.a", (FAST,), opening_s=0.5))
    with caplog.at_level(logging.INFO, logger="tetris_sim"):
        tune(problem_of(), MACHINE, TERMS)
    assert [record.getMessage()[:39] for record in caplog.records] == ["Finding the fastest method for the CPU:"]
    caplog.clear()
    monkeypatch.setattr(compete, "_SILENCE", 60.0)
    with caplog.at_level(logging.INFO, logger="tetris_sim"):
        tune(problem_of(), MACHINE, dataclasses.replace(TERMS, anew=True))
    assert caplog.records == []
