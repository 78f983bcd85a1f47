"""The tuner remembers what it chose, and believes no more of it than it should."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cases import FACES, make_problem
from tests.support.fake_methods import FakeMethod
from tests.support.tuner_cases import FAST, MACHINE, SLOW, TERMS, Use, label, problem_of
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.tuning import tuned
from tetris_sim.scheduler.tuning.tune import tune

pytestmark = pytest.mark.usefixtures("kept_choices")


def test_the_choice_of_a_short_run_is_kept_for_short_runs_only(use: Use) -> None:
    use(FakeMethod("cpu.b", (FAST,)), FakeMethod("cpu.a", (SLOW,), opening_s=0.1))
    assert tune(problem_of(steps=10), MACHINE, TERMS).method.name == "cpu.a"
    again = tune(problem_of(steps=12), MACHINE, TERMS)
    assert (again.method.name, again.date is None) == ("cpu.a", False)
    assert tune(problem_of(), MACHINE, TERMS).method.name == "cpu.b"
    again = tune(problem_of(steps=10), MACHINE, TERMS)
    assert (again.method.name, again.date is None) == ("cpu.b", False)


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


def test_without_the_cache_nothing_is_read_or_kept(use: Use, kept_choices: Path) -> None:
    use(FakeMethod("cpu.a", (FAST, SLOW)))
    alone = dataclasses.replace(TERMS, use_cache=False)
    tune(problem_of(), MACHINE, alone)
    assert list(kept_choices.iterdir()) == []
    tune(problem_of(), MACHINE, TERMS)
    assert tune(problem_of(), MACHINE, alone).date is None
    assert tune(problem_of(), MACHINE, dataclasses.replace(TERMS, anew=True)).date is None
    assert tune(problem_of(), MACHINE, TERMS).date is not None


def damages() -> dict[str, Callable[[str], str]]:
    def changed(**changes: object) -> Callable[[str], str]:
        return lambda text: json.dumps(
            {**json.loads(text), "choice": {**json.loads(text)["choice"], **changes}}
        )

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
    use: Use, kept_choices: Path, damage: Callable[[str], str]
) -> None:
    use(FakeMethod("cpu.a", (FAST,)))
    tune(problem_of(), MACHINE, TERMS)
    (path,) = kept_choices.iterdir()
    good = path.read_text()
    path.write_text(damage(good))
    assert path.read_text() != good
    assert tune(problem_of(), MACHINE, TERMS).date is None
    assert json.loads(path.read_text())["key"] == json.loads(good)["key"]
    assert tune(problem_of(), MACHINE, TERMS).date is not None
    assert list(kept_choices.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to_does_not_stop_a_run(
    use: Use, kept_choices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "cache_directory", lambda part: kept_choices / "not there")
    use(FakeMethod("cpu.a", (FAST,)))
    assert tune(problem_of(), MACHINE, TERMS).method.name == "cpu.a"
    assert list(kept_choices.iterdir()) == []


def test_a_remembered_method_that_is_wrong_now_is_not_used(use: Use) -> None:
    use(FakeMethod("cpu.a", (FAST,)), FakeMethod("cpu.b", (SLOW,)))
    assert tune(problem_of(), MACHINE, TERMS).method.name == "cpu.a"
    use(FakeMethod("cpu.a", (FAST,), error=1e-6), FakeMethod("cpu.b", (SLOW,)))
    choice = tune(problem_of(), MACHINE, TERMS)
    assert (choice.method.name, choice.date) == ("cpu.b", None)


def key_of(
    problem: Problem,
    *,
    threads: int = 2,
    candidates: tuple[str, ...] = ("cpu.a",),
    cpu: str = "cpu",
) -> tuned.Key:
    machine = dataclasses.replace(MACHINE, cpu=cpu)
    return tuned.tuning_key(
        problem, machine, threads=threads, fixed_threads=False, candidates=candidates
    )


def test_similar_problems_share_a_choice_and_others_do_not() -> None:
    problem = problem_of((512, 700))
    key = key_of(problem)
    assert key_of(problem_of((540, 680), steps=3)) == key
    weights = tuple(weight / 2 for weight in problem.stencil.weights)
    assert (
        key_of(dataclasses.replace(problem, stencil=Stencil(problem.stencil.offsets, weights)))
        == key
    )
    reflecting = Boundary.everywhere(FACES["dirichlet"], 2)
    assert key_of(dataclasses.replace(problem, boundary=reflecting)) == key
    periodic = Boundary((problem.boundary.faces[0], (FACES["periodic"], FACES["periodic"])))
    others = [
        key_of(problem_of((512, 1000))),
        key_of(problem_of((700, 512))),
        key_of(dataclasses.replace(problem, boundary=periodic)),
        key_of(dataclasses.replace(problem, stencil=named_stencil("box-2d9p").stencil)),
        key_of(
            dataclasses.replace(
                problem, dtype=make_problem(problem.stencil, reflecting, dtype="f4")[0].dtype
            )
        ),
        key_of(make_problem(problem.stencil, problem.boundary, shape=(512, 700), n_fields=2)[0]),
        key_of(problem, threads=1),
        key_of(problem, candidates=("cpu.a", "cpu.b")),
        key_of(problem, cpu="another"),
    ]
    texts = [json.dumps(each, sort_keys=True) for each in (key, *others)]
    assert len(set(texts)) == len(texts)
