"""What is given over time enters every step as its mean over the step, and no step misses a pulse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tests.support.body_samples import build, finish, heat_in, start
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.model.problem import Problem
from tetris_sim.solvers.implicit import AdaptiveSteps, ImplicitSteps
from tetris_sim.solvers.solver import OneDevice, Solver

STEEL = {"conductivity": 50.0, "density": 7800.0, "specific_heat": 500.0}
PULSE: list[list[float]] = [[0, 0], [520, 0], [521, 1e4], [530, 1e4], [531, 0]]
LENGTH, END = 0.1, 1000.0
INSULATED: dict[str, Any] = {"*": {"type": "neumann"}}


@pytest.fixture(scope="module")
def device() -> Iterator[Solver]:
    team = ThreadTeam(1)
    yield OneDevice(CpuArithmetic(team))
    team.close()


def slab(dt: float, source: Any = None, faces: Any = None) -> Problem:
    """A plate of steel of 0.1 m and 10 cells, insulated where nothing else is said."""
    return build(
        grid={"shape": [10], "size": [LENGTH]},
        model={"type": "heat", **STEEL, "sources": [source] if source else []},
        boundaries={**(faces or {}), **INSULATED},
        time={"scheme": "implicit" if dt > 1 else "explicit", "dt": dt, "steps": round(END / dt)},
    )


def gained(problem: Problem, device: Solver, dt: float | None) -> float:
    """Heat per area that implicit steps take up, adaptive ones without a length [J/m^2]."""
    u = start(problem)[0].astype(np.float64)
    if dt is None:
        found = AdaptiveSteps(problem, device, 1e-6).advance(u, 0.0, END)
    else:
        steps = ImplicitSteps(problem, device, 1e-11)
        found = u
        for number in range(problem.steps):
            found = steps.advance(found, number)
    return heat_in(problem, found) - heat_in(problem, u)


# (source, faces, heat taken up [J/m^2])
SCHEDULES: dict[str, tuple[Any, Any, float]] = {
    "a table of power": ({"power": {"table": PULSE}}, None, 1e5),
    "a table of factors": (
        {"power": 1e4, "over_time": [[t, q / 1e4] for t, q in PULSE]},
        None,
        1e5,
    ),
    "a flux through a face": (None, {"x-": {"type": "neumann", "flux": {"table": PULSE}}}, 1e5),
    "a formula that jumps": ({"density": "1e5 if 520 < t and t < 530 else 0"}, None, 1e5),
    "a formula that is smooth": (
        {"density": "1e5*exp(-((t - 525)/5)**2)"},
        None,
        1e4 * 5 * np.sqrt(np.pi),
    ),
    "a formula of place and time": (
        {"density": "(1e5 if 520 < t and t < 530 else 0)*(1 + (x - 0.05)/0.05)"},
        None,
        1e5,
    ),
}


@pytest.mark.parametrize("dt", [None, 50.0, 125.0])
@pytest.mark.parametrize("case", SCHEDULES)
def test_implicit_steps_take_up_the_whole_of_a_pulse(
    case: str, dt: float | None, device: Solver
) -> None:
    source, faces, heat = SCHEDULES[case]
    assert gained(slab(dt or 50.0, source, faces), device, dt) == pytest.approx(heat, rel=1e-5)


def test_explicit_steps_take_up_the_whole_of_a_pulse() -> None:
    problem = slab(0.4, {"power": {"table": PULSE}})  # rows lie between the steps
    u = finish(problem)
    assert heat_in(problem, u) == pytest.approx(1e5, rel=1e-10)
    np.testing.assert_allclose(u.mean(), 1e5 / (7800 * 500 * LENGTH), rtol=1e-9)


def test_a_constant_table_has_the_bits_of_its_number() -> None:
    table = {"table": [[0, 700.0], [333, 700.0], [1000, 700.0]]}
    number, rows = (finish(slab(0.4, {"power": power})) for power in (700.0, table))
    np.testing.assert_array_equal(number, rows)


@pytest.mark.parametrize(
    "time",
    [
        {"scheme": "implicit", "tolerance": 1e-6},
        {"scheme": "implicit", "dt": 50},
        {"scheme": "implicit", "dt": 1000},
        {"dt": "auto"},
    ],
)
def test_the_balance_has_the_heat_that_the_steps_took_up(time: dict[str, Any]) -> None:
    result = ts.run(
        {
            "grid": {"shape": [10], "size": [LENGTH]},
            "model": {"type": "heat", **STEEL, "sources": [{"power": {"table": PULSE}}]},
            "boundaries": INSULATED,
            "initial": {"type": "constant", "value": 0},
            "time": {"t_end": END, **time},
            "output": {"statistics": {"every": END}},
        }
    )
    last = result.statistics.iloc[-1]
    assert last["heat by sources [J/m^2]"] == pytest.approx(1e5, rel=1e-9)
    assert last["heat stored [J/m^2]"] == pytest.approx(1e5, rel=1e-6)
