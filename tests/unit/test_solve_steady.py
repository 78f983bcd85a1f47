"""The steady state of a problem is where its own steps change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import build, heat_model, settle, start
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.errors import ConfigError, NumericsError, UnsupportedError
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem
from tetris_sim.solvers import solver, steady
from tetris_sim.solvers.solver import OneDevice, Solver
from tetris_sim.solvers.steady import Steady, solve_steady

LAYERS = heat_model(
    {"material": "copper"},
    {"material": "glass", "box": {"x": [0.03, 0.05]}, "name": "glass"},
    contacts=[{"between": ["copper", "glass"], "resistance": 1e-3}],
    sources=[{"power": 40.0, "region": "glass"}],
)
WARM = {"type": "dirichlet", "value": 20}
AIR = {"type": "robin", "h": 25, "ambient": 10}
ANY_FACES = {"x-": WARM, "x+": AIR, "*": {"type": "neumann", "flux": 300}}


@pytest.fixture(scope="module")
def arithmetic() -> Iterator[Solver]:
    team = ThreadTeam(2)
    yield OneDevice(CpuArithmetic(team))
    team.close()


def solve(problem: Problem, device: Solver, tolerance: float = 1e-12) -> Steady:
    return solve_steady(problem, start(problem)[0], device, tolerance=tolerance)


def grid(*shape: int, size: float = 0.1) -> dict[str, Any]:
    return {"shape": list(shape), "size": [size] * len(shape)}


CASES = {
    "one material in 1D": {"grid": grid(11), "boundaries": {"x-": WARM, "x+": AIR}},
    "one material in 3D": {
        "grid": grid(6, 5, 7),
        "model": {"type": "heat", "material": "steel"},
        "boundaries": ANY_FACES,
    },
    "fixed ghosts and a ring": {
        "grid": grid(7, 8),
        "boundaries": {
            "x": {"type": "periodic"},
            "y-": {"type": "fixed", "value": 5},
            "y+": {"type": "neumann", "flux": 2},
        },
    },
    "layers with a contact and a source": {
        "grid": grid(20, 6),
        "model": LAYERS,
        "boundaries": ANY_FACES,
    },
    "cells of different widths": {
        "grid": {
            **grid(12, 5),
            "graded": {"x": {"segments": [{"to": 0.04, "n": 3}, {"to": 0.1, "n": 9}]}},
        },
        "model": LAYERS,
        "boundaries": {"x-": WARM, "*": AIR},
    },
    "axes whose cells differ by more than two": {
        "grid": {
            **grid(12, 7, 10),
            "graded": {
                "x": {"segments": [{"to": 0.004, "n": 6}, {"to": 0.1, "n": 6}]},
                "z": {"segments": [{"to": 0.001, "n": 5}, {"to": 0.1, "n": 5}]},
            },
        },
        "model": LAYERS,
        "boundaries": {"x-": WARM, "z+": AIR, "*": {"type": "neumann"}},
    },
    "fluid and void": {
        "grid": grid(9, 10),
        "model": heat_model(
            {"material": "steel"},
            {"fluid": {"ambient": 80, "h": 500}, "box": {"x": [0.03, 0.06], "y": [0.02, 0.06]}},
            {"void": True, "box": {"x": [0.07, 0.1], "y": [0.05, 0.1]}},
        ),
        "boundaries": {"y-": AIR, "*": {"type": "neumann"}},
    },
    "a ring through materials": {
        "grid": grid(9, 8, 4),
        "model": LAYERS,
        "boundaries": {"x": {"type": "periodic"}, "*": AIR},
    },
    "what differs along a face": {
        "grid": grid(8, 6),
        "model": heat_model({"material": "steel"}, sources=[{"density": "1e5*x/0.1"}]),
        "boundaries": {"x-": {"type": "dirichlet", "value": "20 + 300*y"}, "*": AIR},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_the_steady_state_is_the_solution_of_the_step(case: str, arithmetic: Solver) -> None:
    problem = build(**CASES[case])
    found = solve(problem, arithmetic)
    expected = settle(problem)
    span = np.ptp(expected)
    assert span > 0
    np.testing.assert_allclose(found.state, expected, rtol=0, atol=1e-9 * span)
    assert found.residual <= 1e-12


def test_a_radiating_wall_is_as_warm_as_published(arithmetic: Solver) -> None:
    # NAFEMS T2: 927.0 K at the right.
    n = 400
    problem = build(
        grid=grid(n),
        model={"type": "heat", "conductivity": 55.563, "density": 7850, "specific_heat": 460},
        boundaries={
            "x-": {"type": "dirichlet", "value": "1000 K"},
            "x+": {"type": "radiation", "emissivity": 0.98, "ambient": "300 K"},
        },
    )
    found = solve(problem, arithmetic, 1e-10)
    inner, outer = found.state[-2:]
    assert outer + (outer - inner) / 2 + 273.15 == pytest.approx(926.97, abs=0.005)
    assert 1 < found.solutions < 8


@pytest.mark.parametrize("threads", [1, 3])
def test_the_answer_does_not_depend_on_threads(threads: int, arithmetic: Solver) -> None:
    problem = build(
        grid=grid(40, 33, 35),
        model=heat_model({"material": "steel"}, {"material": "copper", "where": "x*y > 4e-3"}),
        boundaries=ANY_FACES,
    )
    team = ThreadTeam(threads)
    alone = solve(problem, OneDevice(CpuArithmetic(team)), 1e-8).state
    team.close()
    np.testing.assert_array_equal(alone, solve(problem, arithmetic, 1e-8).state)


@pytest.mark.parametrize("n", [16, 32, 64])
def test_iterations_do_not_grow_with_the_grid(n: int, arithmetic: Solver) -> None:
    problem = build(
        grid=grid(n, n, n),
        model=heat_model(
            {"material": "glass"},
            {"material": "copper", "where": "sin(150*x)*sin(170*y)*sin(130*z) > 0"},
            sources=[{"density": 1e5}],
        ),
        boundaries={"x-": WARM, "*": {"type": "neumann"}},
    )
    assert solve(problem, arithmetic, 1e-8).iterations <= 70


def test_what_is_insulated_keeps_its_heat(arithmetic: Solver) -> None:
    # Two halves apart: one is insulated, one touches a wall.
    model = heat_model({"material": "steel"}, {"void": True, "box": {"x": [0.05, 0.06]}})
    problem = build(
        grid=grid(10, 4),
        model=model,
        initial={"type": "expression", "expression": "1000*x"},
        boundaries={"x+": {"type": "dirichlet", "value": 7}, "*": {"type": "neumann"}},
    )
    found = solve(problem, arithmetic)
    np.testing.assert_allclose(found.state[:, :5], start(problem)[0][:, :5].mean(), rtol=1e-12)
    np.testing.assert_allclose(found.state[:, 6:], 7, rtol=1e-9)
    assert "keeps its heat" in found.notes[0]


def test_what_is_heated_and_insulated_has_no_steady_state(arithmetic: Solver) -> None:
    problem = build(
        grid=grid(10, 4),
        model=heat_model({"material": "steel"}, sources=[{"power": 1.0}]),
        boundaries={"*": {"type": "neumann"}},
    )
    with pytest.raises(ConfigError, match="no steady state"):
        solve(problem, arithmetic)


def test_fluxes_that_cancel_have_a_steady_state(arithmetic: Solver) -> None:
    problem = build(
        grid=grid(10),
        model={"type": "heat", "conductivity": 50, "density": 1, "specific_heat": 1},
        boundaries={"x-": {"type": "neumann", "flux": 50}, "x+": {"type": "neumann", "flux": -50}},
        initial={"type": "constant", "value": 4},
    )
    state = solve(problem, arithmetic).state
    assert state.mean() == pytest.approx(4)
    np.testing.assert_allclose(np.diff(state), -0.01, rtol=1e-9)


def test_what_does_not_converge_is_said(
    arithmetic: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady, "_LIMIT", 3)
    monkeypatch.setattr(solver, "SMALL", 100)  # so that it is not factorised
    problem = build(grid=grid(30, 30), boundaries=ANY_FACES)
    with pytest.raises(NumericsError, match="after 3 iterations the heat balance is off"):
        solve(problem, arithmetic)


def test_a_wide_stencil_is_refused(arithmetic: Solver) -> None:
    problem = build(
        grid=grid(8, 8), model={"type": "heat", "material": "steel", "stencil": "box-2d9p"}
    )
    with pytest.raises(UnsupportedError, match="another one"):
        solve(problem, arithmetic)


def test_the_oracle_does_not_leave_the_steady_state(arithmetic: Solver) -> None:
    problem = build(**CASES["layers with a contact and a source"])
    state = solve(problem, arithmetic).state
    later = reference.advance(state[None], problem, 20)[0]
    np.testing.assert_allclose(later, state, rtol=1e-10)
