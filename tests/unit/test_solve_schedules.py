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


# What implicit steps of whatever moves, flows or exchanges read at moments: (model, faces, column,
# heat per area [J/m^2]); each for 4 s in 500.
def _course(value: float) -> dict[str, Any]:
    return {"table": [[0, 0], [100, 0], [100, value], [104, value], [104, 0]]}


STEEL_PARTS = {"materials": {"steel": STEEL}, "regions": [{"material": "steel"}]}
PARTS: dict[str, tuple[Any, Any, float]] = {
    "the power of a lump": (
        {
            **STEEL,
            "lumps": {
                "sink": {
                    "capacity": 1e-3,
                    "initial": 0,
                    "power": _course(1e4),
                    "exchanges": [{"face": "x-", "h": 1e3}],
                }
            },
        },
        INSULATED,
        4e4,
    ),
    "the inlet of what moves": (
        {"conductivity": 1e-3, "density": 1e3, "specific_heat": 1e3, "velocity": [1e-4]},
        {"x-": {"type": "dirichlet", "value": _course(100.0)}, **INSULATED},
        4e4,
    ),
    "a source in what moves": (
        {
            "conductivity": 1e-3,
            "density": 1e3,
            "specific_heat": 1e3,
            "velocity": [1e-9],
            "sources": [{"power": _course(1e4)}],
        },
        {"x-": {"type": "dirichlet", "value": 0}, **INSULATED},
        4e4,
    ),
}


@pytest.mark.parametrize("step", [{"dt": 25}, {"tolerance": 1e-6}])
@pytest.mark.parametrize("case", PARTS)
def test_newtons_method_takes_up_the_whole_of_a_pulse(case: str, step: dict[str, Any]) -> None:
    model, faces, heat = PARTS[case]
    moved = ts.run(
        {
            "grid": {"shape": [20], "size": [LENGTH]},
            "model": {"type": "heat", **model, "advection": "upwind"},
            "boundaries": faces,
            "initial": {"type": "constant", "value": 0},
            "time": {"scheme": "implicit", "t_end": 500, **step},
        }
    )
    density = model["density"] * model["specific_heat"]
    assert moved.field().mean() * density * LENGTH == pytest.approx(heat, rel=3e-3)


@pytest.mark.parametrize("step", [{"dt": 25}, {"tolerance": 1e-6}])
def test_fluids_warm_for_a_while_give_heat_for_a_while(step: dict[str, Any]) -> None:
    water = {"name": "water", "fluid": {"ambient": _course(100.0), "h": 1e3}}
    regions = [{"material": "steel"}, {**water, "box": {"x": [0, 0.01]}}]
    config: dict[str, Any] = {
        "grid": {"shape": [10], "size": [LENGTH]},
        "model": {"type": "heat", "materials": {"steel": STEEL}, "regions": regions},
        "boundaries": INSULATED,
        "initial": {"type": "constant", "value": 0},
        "output": {"statistics": {"every": 200}},
    }
    found = [
        ts.run({**config, "time": {"t_end": 200, **time}}).statistics.iloc[-1]
        for time in ({"dt": 0.5}, {"scheme": "implicit", **step})
    ]
    exact, implicit = (it["heat from water [J/m^2]"] for it in found)
    assert implicit == pytest.approx(exact, rel=3e-3)
    assert implicit == pytest.approx(found[1]["heat stored [J/m^2]"], rel=1e-6)
