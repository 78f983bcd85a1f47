"""Balances of bodies whose state is heat content: k(T) and melting, steady and in implicit steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import build, heat_model, start
from tests.unit.test_solve_steady import AIR, grid
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model import reference
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.problem import Field, Problem
from tetris_sim.solvers import implicit, steady
from tetris_sim.solvers.implicit import ImplicitSteps
from tetris_sim.solvers.solver import OneDevice, Solver
from tetris_sim.solvers.steady import Steady, solve_steady
from tetris_sim.verification.heated import melting_cases

INSULATED = {"*": {"type": "neumann"}}


def table(*rows: tuple[float, float]) -> dict[str, Any]:
    return {"table": [list(row) for row in rows]}


def material(k: Any, **more: Any) -> dict[str, Any]:
    return {"conductivity": k, "density": 1.0, "specific_heat": 1.0, **more}


MATERIALS = {
    "falling": material(table((0, 100.0), (100, 1.0))),
    "rising": material(table((0, 1.0), (100, 50.0))),
    "melting": material(
        table((0, 1.0), (49.9, 1.0), (50.1, 10.0)), latent_heat=100.0, solidus=50.0
    ),
}


def body(*regions: dict[str, Any], **keys: Any) -> dict[str, Any]:
    names = {it["material"] for it in regions if "material" in it}
    return heat_model(*regions, materials={it: MATERIALS[it] for it in names}, **keys)


def held(value: float) -> dict[str, Any]:
    return {"type": "dirichlet", "value": value}


@pytest.fixture(scope="module")
def device() -> Iterator[Solver]:
    team = ThreadTeam(1)
    yield OneDevice(CpuArithmetic(team))
    team.close()


def solve(problem: Problem, device: Solver) -> Steady:
    return solve_steady(problem, start(problem)[0], device, tolerance=1e-11)


def temperatures(problem: Problem, heat: Numbers) -> Numbers:
    assert problem.view is not None
    whole = tuple((0, n) for n in problem.grid.shape)
    return np.asarray(problem.view.look(whole, heat[None])[0])


STEADY = {
    "two materials with a contact": {
        "grid": grid(30),
        "model": body(
            {"material": "falling"},
            {"material": "rising", "box": {"x": [0.05, 0.1]}},
            contacts=[{"between": ["falling", "rising"], "resistance": 1e-3}],
        ),
        "boundaries": {"x-": held(0), "x+": held(100)},
    },
    "radiation, air, a hole and a source": {
        "grid": grid(20, 20),
        "model": body(
            {"material": "falling"},
            {"material": "rising", "box": {"x": [0.05, 0.1], "y": [0, 0.07]}},
            {"void": True, "box": {"x": [0.02, 0.03], "y": [0.02, 0.06]}},
            {"fluid": {"ambient": 40, "h": 200}, "box": {"x": [0.06, 0.07], "y": [0.03, 0.06]}},
            sources=[{"density": 5e4, "material": "rising"}],
        ),
        "boundaries": {
            "x-": {"type": "radiation", "emissivity": 0.9, "ambient": 30},
            "x+": AIR,
            **INSULATED,
        },
    },
    "what melts beside what does not": {
        "grid": grid(6, 7, 8),
        "model": body({"material": "melting"}, {"material": "rising", "where": "x > y"}),
        "boundaries": {"x-": held(0), "y+": held(100), **INSULATED},
    },
    "a ring": {
        "grid": grid(8, 9),
        "model": body({"material": "rising"}, sources=[{"density": 1e4}]),
        "boundaries": {"x": {"type": "periodic"}, "y-": held(10), "y+": AIR},
    },
}


@pytest.mark.parametrize("case", STEADY)
def test_no_step_leaves_the_steady_state(case: str, device: Solver) -> None:
    problem = build(**STEADY[case])
    found = solve(problem, device)
    before = temperatures(problem, found.state)
    later = temperatures(problem, reference.advance(found.state[None], problem, 50)[0])
    spread = np.nanmax(before) - np.nanmin(before)  # NaN in holes
    assert spread > 1
    np.testing.assert_allclose(later, before, atol=1e-6 * spread)


def test_a_wall_of_k_of_t_is_exact_in_one_solution(device: Solver) -> None:
    problem = build(
        grid=grid(40, size=1.0),
        model=body({"material": "rising"}),
        boundaries={"x-": held(0), "x+": held(100)},
    )
    found = solve(problem, device)
    # phi = T + 0.245 T^2 is a straight line.
    phi = (100 + 0.245 * 100**2) * problem.grid.coordinates(0)
    exact = (np.sqrt(1 + 4 * 0.245 * phi) - 1) / 0.49
    np.testing.assert_allclose(temperatures(problem, found.state), exact, atol=1e-2)
    assert found.solutions == 1


def test_layers_of_k_of_t_carry_the_same_flow(device: Solver) -> None:
    problem = build(**STEADY["two materials with a contact"])
    t = temperatures(problem, solve(problem, device).state)

    def phi(t: Any, k0: float, k1: float) -> Any:
        return k0 * t + (k1 - k0) * t**2 / 200

    h = problem.grid.spacing[0]
    falling, rising = phi(t[:15], 100, 1), phi(t[15:], 1, 50)
    flows = [*np.diff(falling) / h, *np.diff(rising) / h]
    # Curves are straight between points that are accurate to 1e-5 of their range.
    np.testing.assert_allclose(flows, np.mean(flows), rtol=2e-3)


@pytest.mark.parametrize("regions", [1, 2])
def test_what_is_insulated_and_melts_keeps_its_heat(regions: int, device: Solver) -> None:
    other: dict[str, Any] = {"material": "rising", "box": {"x": [0.05, 0.1]}}
    problem = build(
        grid=grid(10),
        model=body(*[{"material": "melting"}, other][:regions]),
        initial={"type": "expression", "expression": "1500*x"},
        boundaries=INSULATED,
    )
    found = solve(problem, device)
    assert found.state.sum() == pytest.approx(start(problem)[0].sum(), rel=1e-12)
    np.testing.assert_allclose(temperatures(problem, found.state), 50, atol=1e-6)
    assert "keeps its heat" in found.notes[0]


def test_what_is_heated_and_insulated_has_no_steady_state(device: Solver) -> None:
    problem = build(
        grid=grid(10),
        model=body({"material": "melting"}, sources=[{"power": 1.0}]),
        boundaries=INSULATED,
    )
    with pytest.raises(ConfigError, match="no steady state"):
        solve(problem, device)


def test_linearisations_that_do_not_converge_are_said(
    device: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady, "_OUTER", 2)
    with pytest.raises(NumericsError, match="after 2 linearisations the heat balance is off"):
        solve(build(**STEADY["what melts beside what does not"]), device)
    monkeypatch.setattr(implicit, "_OUTER", 2)
    problem = build(**STEADY["what melts beside what does not"])
    with pytest.raises(NumericsError, match="does not hold after 2 linearisations"):
        step(replace(problem, dt=10.0, steps=1), device)


def step(problem: Problem, device: Solver, tolerance: float = 1e-10) -> Field:
    steps = ImplicitSteps(problem, device, tolerance)
    u: Numbers = start(problem)[0].astype(np.float64)
    for number in range(problem.steps):
        u = steps.advance(u, number)
    return u[None]


def in_steps(n: int, device: Solver, problem: Problem) -> Field:
    return step(replace(problem, dt=problem.dt * problem.steps / n, steps=n), device)


@pytest.mark.parametrize("case", list(melting_cases()), ids=lambda it: it.name)
def test_fronts_are_where_the_exact_ones_are(case: Any, device: Solver) -> None:
    # Fronts pass several cells in a step; without one, a jump of temperature needs more steps.
    n = 20 if case.name.startswith("k = c") else 3
    outcome = case.check(partial(in_steps, n, device), np.dtype(np.float64))
    assert outcome.error <= outcome.bound


def melts(n: int, **more: Any) -> Problem:
    sections = {
        "grid": grid(12, 6),
        "model": body({"material": "melting"}, {"material": "rising", "box": {"x": [0.05, 0.1]}}),
        "boundaries": INSULATED,
        "initial": {"type": "expression", "expression": "1000*x"},
        **more,
    }
    return build(**sections, time={"scheme": "implicit", "dt": 2e-4 / n, "steps": n})


def test_heat_is_kept_to_the_tolerance(device: Solver) -> None:
    problem = melts(8)
    before, after = start(problem)[0], step(problem, device)[0]
    assert abs(after - before).max() > 1
    assert after.sum() == pytest.approx(before.sum(), rel=1e-9)


def test_errors_fall_with_the_square_of_the_step(device: Solver) -> None:
    def run(n: int) -> Numbers:
        # Without a latent heat, whose fronts pass from cell to cell.
        model = body({"material": "falling"}, {"material": "rising", "box": {"x": [0.05, 0.1]}})
        return np.asarray(step(melts(n, model=model), device))

    exact = run(160)
    errors = [abs(run(n) - exact).max() for n in (10, 20)]
    assert 1.7 < np.log2(errors[0] / errors[1]) < 2.4


def test_implicit_and_explicit_steps_agree(device: Solver) -> None:
    many, few = melts(400), melts(50)
    assert many.dt < many.dt_limit
    expected = temperatures(many, reference.advance(start(many), many, many.steps)[0])
    np.testing.assert_allclose(temperatures(few, step(few, device)[0]), expected, atol=0.5)


def test_huge_steps_end_in_the_steady_state(device: Solver) -> None:
    sections = STEADY["radiation, air, a hole and a source"]
    problem = build(**sections)
    found = step(replace(problem, dt=1e3, steps=8), device)[0]
    expected = temperatures(problem, solve(problem, device).state)
    np.testing.assert_allclose(temperatures(problem, found), expected, atol=1e-5)
