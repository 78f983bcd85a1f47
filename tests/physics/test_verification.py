"""The verification cases pass with a right answer, and none of a number of wrong ones gets
through.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from tetris_sim.__main__ import main
from tetris_sim.errors import ConfigError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.verification.case import CaseSolver, Outcome, VerificationCase, cooling_series
from tetris_sim.verification.heated import check_balance, stefan_root
from tetris_sim.verification.suite import (
    VerificationResult,
    all_cases,
    choose_methods,
    quick_cases,
    verify,
)

METHODS = choose_methods(None)
CASES = {f"{case.name} {case.ndim}d": case for case in all_cases()}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("name", CASES)
def test_every_case_passes_with_every_method(name: str, method: object) -> None:
    case = CASES[name]
    results = list(verify(tuple(m for m in METHODS if m is method), (case,), find_machine()))
    assert [result.dtype for result in results] == list(case.precisions)
    for result in results:
        assert result.verdict in ("pass", "refused"), result


class Wrong:
    """The reference with a defect: what a broken method would do."""

    stepwise = True

    def __init__(self, change: Callable[[Problem, Field, int], Field]) -> None:
        self.change = change

    def __call__(self, problem: Problem, *, workers: int = 1) -> Field:
        """Advance with the reference, then let the defect do its work."""
        start = problem.initial(Slab.whole(problem.grid))
        return self.change(problem, start, workers)


def advance(problem: Problem, state: Field, **changes: object) -> Field:
    changed = dataclasses.replace(problem, **changes)  # type: ignore[arg-type]
    return reference.advance(state, changed, changed.steps)


def right(problem: Problem, state: Field, workers: int) -> Field:
    return advance(problem, state)


def one_step_too_few(problem: Problem, state: Field, workers: int) -> Field:
    return advance(problem, state, steps=problem.steps - 1)


def sides_exchanged(problem: Problem, state: Field, workers: int) -> Field:
    return advance(
        problem,
        state,
        boundary=Boundary(tuple((high, low) for low, high in problem.boundary.faces)),
    )


def spacings_exchanged(problem: Problem, state: Field, workers: int) -> Field:
    spacing = problem.grid.spacing
    return advance(
        problem,
        state,
        grid=dataclasses.replace(
            problem.grid, spacing=spacing[::-1] if len(spacing) > 1 else (spacing[0] * 1.01,)
        ),
    )


def offsets_mirrored(problem: Problem, state: Field, workers: int) -> Field:
    offsets = tuple(tuple(-c for c in offset) for offset in problem.stencil.offsets)
    return advance(problem, state, stencil=Stencil(offsets, problem.stencil.weights))


def axes_exchanged(problem: Problem, state: Field, workers: int) -> Field:
    offsets = tuple(offset[::-1] for offset in problem.stencil.offsets)
    return advance(problem, state, stencil=Stencil(offsets, problem.stencil.weights))


def weights_slightly_off(problem: Problem, state: Field, workers: int) -> Field:
    eps = float(np.finfo(problem.dtype).eps)
    weights = tuple(weight * (1 + 40 * eps) for weight in problem.stencil.weights)
    return advance(problem, state, stencil=Stencil(problem.stencil.offsets, weights))


def one_point_forgotten(problem: Problem, state: Field, workers: int) -> Field:
    result = advance(problem, state)
    result[(0, *(n - 1 for n in problem.grid.shape))] = state[
        (0, *(n - 1 for n in problem.grid.shape))
    ]
    return result


def computed_in_single(problem: Problem, state: Field, workers: int) -> Field:
    return advance(problem, state, dtype=np.dtype(np.float32)).astype(problem.dtype)


def seam_between_workers(problem: Problem, state: Field, workers: int) -> Field:
    result = advance(problem, state)
    if workers > 1:
        row = problem.grid.shape[0] // 2
        result[:, row] = np.nextafter(result[:, row], np.inf, dtype=result.dtype)
    return result


def depends_on_place(problem: Problem, state: Field, workers: int) -> Field:
    result = advance(problem, state)
    result[:, 3] = np.nextafter(result[:, 3], np.inf, dtype=result.dtype)
    return result


def materials_mixed(problem: Problem, state: Field, workers: int) -> Field:
    """Between two materials the mean of their conductances, as if they were one."""
    assert problem.conduction is not None
    medium = problem.conduction.medium
    own = np.diagonal(medium.conductance, axis1=1, axis2=2)
    mean = (own[:, :, None] + own[:, None, :]) / 2
    medium = dataclasses.replace(medium, conductance=mean)
    return advance(
        problem, state, conduction=dataclasses.replace(problem.conduction, medium=medium)
    )


def numbers_of_the_next_step(problem: Problem, state: Field, workers: int) -> Field:
    return reference.advance(state, problem, problem.steps, first=1)


def numbers_stand_still(problem: Problem, state: Field, workers: int) -> Field:
    for _ in range(problem.steps):
        state = reference.advance(state, problem, 1)
    return state


def sources_forgotten(problem: Problem, state: Field, workers: int) -> Field:
    conduction = dataclasses.replace(problem.conduction, source=None)  # type: ignore[type-var]
    return advance(problem, state, conduction=conduction)


def half_of_the_steps(problem: Problem, state: Field, workers: int) -> Field:
    return advance(problem, state, steps=problem.steps // 2)


def conductivity_is_one(problem: Problem, state: Field, workers: int) -> Field:
    """What flows follows temperature, not the integral of k over it."""
    assert problem.conduction is not None
    enthalpy = problem.conduction.enthalpy
    assert enthalpy is not None
    enthalpy = dataclasses.replace(enthalpy, potential=enthalpy.temperature)
    return advance(
        problem, state, conduction=dataclasses.replace(problem.conduction, enthalpy=enthalpy)
    )


def not_a_number(problem: Problem, state: Field, workers: int) -> Field:
    return np.full_like(state, np.nan)


DEFECTS = {
    one_step_too_few: ("wave", "mode", "pure shift", "spreading"),
    sides_exchanged: ("mode", "convective", "steady", "composite", "damped", "moving"),
    materials_mixed: ("composite", "wall with", "chip"),
    numbers_stand_still: ("damped", "chip"),
    sources_forgotten: ("chip",),
    spacings_exchanged: ("convective",),
    offsets_mirrored: ("wave of a skew", "pure shift"),
    axes_exchanged: ("wave of a skew", "pure shift"),
    weights_slightly_off: ("conservation", "wave", "mode"),
    one_point_forgotten: ("wave", "mode", "translation", "convective", "steady", "composite"),
    computed_in_single: ("wave", "mode", "conservation"),
    seam_between_workers: ("two workers",),
    depends_on_place: ("translation",),
    half_of_the_steps: ("Stefan, one phase, Ste = 1", "Stefan, two", "k = c"),
    conductivity_is_one: ("Stefan, two", "k = c"),
    not_a_number: (
        "wave",
        "mode",
        "translation",
        "pure",
        "two",
        "conservation",
        "maximum",
        "conv",
        "spread",
        "steady",
        "composite",
        "NAFEMS T3",
        "Stefan, one phase, Ste = 1",
        "Stefan, two",
        "k = c",
    ),
}


def failing(defect: Callable[[Problem, Field, int], Field], family: str) -> list[str]:
    """The cases of a family, of at most two axes and in double precision, that notice a defect."""
    cases = [case for case in CASES.values() if case.name.startswith(family) and case.ndim <= 2]
    with np.errstate(invalid="ignore"):
        return [
            case.name
            for case in cases
            if not case.check(Wrong(defect), np.dtype(np.float64)).passed
        ]


@pytest.mark.parametrize(
    ("defect", "family"),
    [(defect, family) for defect, names in DEFECTS.items() for family in names],
)
def test_a_wrong_answer_is_noticed(
    defect: Callable[[Problem, Field, int], Field], family: str
) -> None:
    assert failing(defect, family)


@pytest.mark.parametrize(
    "family",
    [
        *("wave", "mode", "pure", "conservation", "maximum", "steady"),
        *("composite", "wall with", "damped", "NAFEMS T3", "chip"),
        *("Stefan, one phase, Ste = 1", "Stefan, two", "k = c"),
    ],
)
def test_the_reference_itself_passes(family: str) -> None:
    assert not failing(right, family)


@pytest.mark.parametrize("defect", [numbers_of_the_next_step, sources_forgotten, one_step_too_few])
def test_a_balance_that_is_not_kept_is_noticed(
    defect: Callable[[Problem, Field, int], Field],
) -> None:
    double = np.dtype(np.float64)
    assert check_balance(300, Wrong(right), double).passed
    assert not check_balance(300, Wrong(defect), double).passed


def test_a_range_that_is_left_is_noticed() -> None:
    def overshoot(problem: Problem, state: Field, workers: int) -> Field:
        return advance(problem, state) * 1.01 + 0.5

    assert len(failing(overshoot, "maximum principle")) == 3


@pytest.mark.parametrize(("biot", "first"), [(1.0, 0.8603), (0.01, 0.0998), (100.0, 1.5552)])
def test_the_cooling_series_is_that_of_the_text_books(biot: float, first: float) -> None:
    # First roots: F. P. Incropera and D. P. DeWitt, Fundamentals of Heat and Mass Transfer, table
    # 5.1.
    late = [cooling_series(biot, fourier, np.zeros(1))[0] for fourier in (5.0, 5.5)]
    assert math.sqrt(math.log(late[0] / late[1]) / 0.5) == pytest.approx(first, abs=6e-5)
    start = cooling_series(biot, 1e-3, np.linspace(0, 0.8, 5))
    np.testing.assert_allclose(start, 1, atol=2e-4)  # the cold has not come that far
    # The face obeys the law of convection: d(theta)/dx = -Bi theta.
    depth = np.array([1 - 2e-5, 1 - 1e-5, 1.0])
    theta = cooling_series(biot, 0.2, depth)
    assert (3 * theta[2] - 4 * theta[1] + theta[0]) / 2e-5 == pytest.approx(
        -biot * theta[2], rel=1e-4
    )


@pytest.mark.parametrize(("stefan", "root"), [(0.1, 0.220016), (0.5, 0.464786), (1.0, 0.620063)])
def test_fronts_move_as_published(stefan: float, root: float) -> None:
    # V. Alexiades, A. D. Solomon, Mathematical Modeling of Melting and Freezing Processes (1993).
    assert stefan_root(stefan) == pytest.approx(root, abs=1e-6)


def test_an_outcome_that_is_not_a_number_fails() -> None:
    assert not Outcome(math.nan, 1.0).passed
    assert (
        VerificationResult("a", 1, "m", "float64", "FAIL", Outcome(math.nan, 1.0)).as_json()[
            "outcome"
        ]["error"]
        is None
    )


def test_a_method_that_refuses_is_told_and_not_failed() -> None:
    class Refusing:
        name = "cpu.fussy"
        device = "cpu"

        def refusal(self, problem: Problem) -> str:
            return "it is Monday"

    case = next(iter(CASES.values()))
    results = list(verify((Refusing(),), (case,)))  # type: ignore[arg-type]
    assert {(result.verdict, result.note) for result in results} == {("refused", "it is Monday")}


def test_only_methods_that_do_not_fuse_steps_must_be_exact_under_translation() -> None:
    assert all(
        CaseSolver(method, find_machine()).stepwise
        for method in METHODS
        if method.name == "cpu.plain"
    )


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"cpu\.nope is not one.*cpu\.plain"):
        choose_methods("cpu.nope")


def test_the_verb_prints_a_table_and_returns_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--case", "pure shift", "--method", "cpu.plain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "case",
        "dim",
        "method",
        "dtype",
        "error",
        "bound",
        "order",
        "result",
    ]
    assert len(lines) == 1 + 3 + 1
    assert all(line.endswith("pass") for line in lines[1:-1])
    assert lines[-1].startswith("3 of 3 passed")


def test_quick_computes_one_case_of_a_kind_in_double_precision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cases = quick_cases()
    assert len(cases) == 7
    assert {case.precisions for case in cases} == {("float64",)}
    # Each number of axes is compiled anew, and the curve has only one axis.
    axes = {case.name: case.ndim for case in cases}
    assert axes["composite wall"] == axes["NAFEMS T3, varying temperature"]

    arguments = ["verify", "--quick", "--method", "cpu.plain", "--json"]
    assert main(arguments) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["case"] for result in results] == [case.name for case in cases]


def test_the_verb_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--case", "spreading Gaussian heat-1d", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is True
    assert found["results"][0]["outcome"]["order"] == pytest.approx(2, abs=0.15)


def test_the_verb_returns_6_if_a_case_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = VerificationCase(
        "wrong on purpose", 1, lambda advance, dtype: Outcome(2.0, 1.0), ("float64",)
    )
    monkeypatch.setattr("tetris_sim.commands.verify.all_cases", lambda: (wrong,))
    assert main(["verify", "--quiet"]) == 6
    assert "FAIL" in capsys.readouterr().out
    assert main(["verify", "--json"]) == 6
    assert json.loads(capsys.readouterr().out)["passed"] is False


def test_the_verb_refuses_a_case_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--case", "nonsense"]) == 2
    assert "has this in its name" in capsys.readouterr().err
