"""Implicit steps: second order, the same as explicit steps in the limit, stable at any length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.body_samples import build, heat_in, heat_model, settle, start
from tests.unit.test_solve_steady import ANY_FACES, CASES, grid
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.model.problem import Problem
from tetris_sim.solvers.implicit import ImplicitSteps
from tetris_sim.solvers.solver import OneDevice, Solver

WARM_START = {"type": "expression", "expression": "50*sin(20*x)"}


@pytest.fixture(scope="module")
def device() -> Iterator[Solver]:
    team = ThreadTeam(2)
    yield OneDevice(CpuArithmetic(team))
    team.close()


def step(problem: Problem, device: Solver, tolerance: float = 1e-12) -> npt.NDArray[Any]:
    steps = ImplicitSteps(problem, device, tolerance)
    u: npt.NDArray[Any] = start(problem)[0].astype(np.float64)
    for number in range(problem.steps):
        u = steps.advance(u, number)
    return u


def implicit(steps: int, end: float, **sections: Any) -> Problem:
    time = {"scheme": "implicit", "dt": end / steps, "steps": steps}
    return build(**{"initial": WARM_START, **sections, "time": time})


CHANGING = {
    "grid": grid(16, size=0.1),
    "model": heat_model(
        {"material": "steel"},
        {"material": "copper", "box": {"x": [0.06, 0.1]}},
        sources=[{"density": "2e6*sin(t/7)"}],
    ),
    "boundaries": {
        "x-": {"type": "dirichlet", "value": "50*sin(t/10)"},
        "x+": {"type": "radiation", "emissivity": 0.9, "ambient": "900*t/40"},
    },
}


@pytest.mark.parametrize("case", ["layers", "changing"])
def test_errors_fall_with_the_square_of_the_step(case: str, device: Solver) -> None:
    sections = CHANGING if case == "changing" else CASES["layers with a contact and a source"]
    fine = step(implicit(160, 40.0, **sections), device)
    coarse, half = (step(implicit(n, 40.0, **sections), device) for n in (20, 40))
    errors = [float(abs(it - fine).max()) for it in (coarse, half)]
    order = np.log2(errors[0] / errors[1])
    assert 1.8 < order < 2.3
    assert errors[1] < 0.5


def test_implicit_and_explicit_steps_agree(device: Solver) -> None:
    from tetris_sim.model import reference

    end, sections = 10.0, {**CHANGING, "initial": WARM_START}
    explicit = build(**{**sections, "time": {"dt": 0.005, "t_end": end}})
    expected = reference.advance(start(explicit), explicit, explicit.steps)[0]
    found = step(implicit(100, end, **sections), device)
    # Euler's steps err by about their length times the rate.
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_a_huge_step_ends_in_the_steady_state(device: Solver) -> None:
    sections = CASES["fluid and void"]
    found = step(implicit(6, 6e7, **sections), device)
    np.testing.assert_allclose(found, settle(build(initial=WARM_START, **sections)), atol=1e-6)


def test_heat_is_kept(device: Solver) -> None:
    sections = {
        "grid": grid(12, 9),
        "model": heat_model({"material": "steel"}, {"material": "glass", "where": "x > y"}),
        "boundaries": {"*": {"type": "neumann"}},
    }
    problem = implicit(10, 100.0, **sections)
    before, after = heat_in(problem, start(problem)[0]), heat_in(problem, step(problem, device))
    assert after == pytest.approx(before, rel=1e-11)


def test_one_material_is_stepped_as_several_are(device: Solver) -> None:
    sections = {"grid": grid(9, 8, 7), "boundaries": ANY_FACES}
    whole = {"type": "heat", "material": "steel"}
    one = implicit(5, 30.0, **sections, model=whole)
    body = implicit(5, 30.0, **sections, model=heat_model({"material": "steel"}))
    several = heat_model(
        {"material": "a"},
        {"material": "b", "where": "x > y"},
        materials={"a": {"material": "steel"}, "b": {"material": "steel"}},
    )
    assert one.conduction is None
    answers = [step(it, device) for it in (one, body, implicit(5, 30.0, **sections, model=several))]
    for other in answers[1:]:
        np.testing.assert_allclose(other, answers[0], atol=1e-8)
