"""Sources whose power depends on temperature: leakage, reactions, resistive heat, and runaway."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tests.support.body_samples import build, heat_model, start
from tests.support.cases import run as run_method
from tests.unit.test_solve_tangent import device  # noqa: F401
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model import reference
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.audit import GIVEN, RESIDUAL
from tetris_sim.simulation.launch import launch
from tetris_sim.solvers.implicit import AdaptiveSteps, ImplicitSteps
from tetris_sim.solvers.solver import Solver
from tetris_sim.solvers.steady import solve_steady
from tetris_sim.verification.engineering import explosion

EXAMPLE = Path(__file__).parents[2] / "examples" / "leaking_chip.yaml"
CRITICAL = {"slab": 0.8785, "cylinder": 2.0, "sphere": 3.3220}
INSULATED = {"type": "neumann"}


def burning(shape: str, delta: float, n: int = 120) -> Problem:
    """A body of radius 1 at 0 outside in which delta exp(T) is set free."""
    return build(**explosion(shape, delta, n))


@pytest.mark.parametrize("shape", CRITICAL)
def test_bodies_burn_steadily_below_the_critical_number_only(shape: str, device: Solver) -> None:  # noqa: F811
    below = burning(shape, 0.985 * CRITICAL[shape])
    found = solve_steady(below, start(below)[0], device, tolerance=1e-10)
    assert 0.9 < found.state.max() < 1.61  # 1.19, 1.39 and 1.61 at the critical number itself
    assert found.solutions < 12
    above = burning(shape, 1.015 * CRITICAL[shape])
    with pytest.raises(NumericsError, match="thermal runaway"):
        solve_steady(above, start(above)[0], device, tolerance=1e-10)


def test_what_explodes_ends_a_run_with_the_reason(device: Solver) -> None:  # noqa: F811
    time = {"scheme": "implicit", "dt": 0.05, "steps": 100}
    problem = build(**{**explosion("sphere", 5.0, 20), "time": time})
    steps, reached = ImplicitSteps(problem, device, 1e-8), [start(problem)[0].astype(np.float64)]

    def explode() -> None:
        for number in range(problem.steps):
            reached.append(steps.advance(reached[-1], number))

    with pytest.raises(NumericsError, match=r"at 0\.\d+ s no step is short.*thermal runaway"):
        explode()
    assert reached[-1].max() > 2


def test_a_cylinder_is_as_warm_as_the_formula_says(device: Solver) -> None:  # noqa: F811
    # exp(T) = 8 B / (delta (1 + B r^2)^2), with the smaller root of 8 B = delta (1 + B)^2.
    delta, errors = 1.8, []
    b = (8 / delta - 2 - math.sqrt((8 / delta - 2) ** 2 - 4)) / 2
    for n in (40, 80):
        problem = burning("cylinder", delta, n)
        state = solve_steady(problem, start(problem)[0], device, tolerance=1e-12).state
        r = problem.grid.coordinates(0)
        errors.append(float(abs(state - np.log(8 * b / (delta * (1 + b * r**2) ** 2))).max()))
    assert errors[1] < 1e-3
    assert 1.8 < math.log2(errors[0] / errors[1]) < 2.2


def plate(density: str, **more: Any) -> dict[str, Any]:
    """10 mm of a very good conductor, cooled on one side."""
    material = {"conductivity": 1e7, "density": 1000.0, "specific_heat": 1000.0}
    return {
        "grid": {"shape": [1], "size": [0.01]},
        "model": heat_model(
            {"material": "it"}, materials={"it": material}, sources=[{"density": density}]
        ),
        "boundaries": {"x+": {"type": "robin", "h": 50.0, "ambient": 20}, "*": INSULATED},
        "initial": {"type": "constant", "value": 30},
        **more,
    }


LAWS = {
    "leakage": ("1e5*exp((T - 20)/80)", lambda t: 1e5 * np.exp((t - 20) / 80)),
    "resistance": ("2e5*(1 + 0.004*(T - 20))", lambda t: 2e5 * (1 + 0.004 * (t - 20))),
    "Arrhenius": (
        "1e12*exp(-5e4/(8.314*(T + 273.15)))",
        lambda t: 1e12 * np.exp(-5e4 / (8.314 * (t + 273.15))),
    ),
}


def lumped(law: Any, end: float, h: float = 50.0) -> float:
    from scipy.integrate import solve_ivp

    def rate(_: float, t: Numbers) -> Numbers:
        return np.asarray((0.01 * law(t) - h * (t - 20)) / (0.01 * 1e6))

    return float(solve_ivp(rate, (0, end), [30.0], rtol=1e-12, atol=1e-10).y[0, -1])


@pytest.mark.parametrize("name", LAWS)
def test_plates_follow_scipy(name: str, device: Solver) -> None:  # noqa: F811
    text, law = LAWS[name]
    end = 100.0
    exact = lumped(law, end)
    problem = build(**plate(text, time={"scheme": "implicit", "dt": 0.5, "steps": 200}))
    steps, u = ImplicitSteps(problem, device, 1e-12), start(problem)[0].astype(np.float64)
    for number in range(problem.steps):
        u = steps.advance(u, number)
    assert u.mean() == pytest.approx(exact, rel=1e-6)
    stored = float((u - start(problem)[0]).sum()) * 1e6 * 0.01
    assert sum(steps.moved.values()) == pytest.approx(stored, rel=1e-9)
    assert steps.moved["sources"] > 0

    adaptive = AdaptiveSteps(problem, device, 1e-6)
    v = adaptive.advance(start(problem)[0].astype(np.float64), 0.0, end)
    assert v.mean() == pytest.approx(exact, rel=1e-4)


def test_explicit_steps_read_the_temperature_of_now() -> None:
    text, law = LAWS["leakage"]
    sections = plate(text)
    sections["model"]["materials"]["it"]["conductivity"] = 100.0
    problem = build(**sections, time={"dt": 0.01, "steps": 2000})
    found = reference.advance(start(problem), problem, 2000)[0]
    # Half of the only cell resists besides the film.
    exact = lumped(law, 20.0, 1 / (1 / 50 + 0.005 / 100))
    assert found.mean() == pytest.approx(exact, abs=1e-4)
    assert found.mean() - 30 > 1e-2


def test_a_rod_that_resists_more_when_warm(device: Solver) -> None:  # noqa: F811
    # k T'' + q (1 + a T) = 0 between ends at 0: T = (cos(m x) / cos(m L) - 1) / a, m^2 = q a / k.
    k, q, a, half = 10.0, 4e5, 4e-3, 0.05
    problem = build(
        grid={"shape": [200], "size": [2 * half], "origin": {"x": -half}},
        model=heat_model(
            {"material": "it"},
            materials={"it": {"conductivity": k, "density": 1.0, "specific_heat": 1.0}},
            sources=[{"density": f"{q}*(1 + {a}*T)"}],
        ),
        boundaries={"*": {"type": "dirichlet", "value": 0}},
    )
    found = solve_steady(problem, start(problem)[0], device, tolerance=1e-12)
    m, x = math.sqrt(q * a / k), problem.grid.coordinates(0)
    exact = (np.cos(m * x) / math.cos(m * half) - 1) / a
    np.testing.assert_allclose(found.state, exact, atol=1e-4 * exact.max())
    assert found.solutions <= 3  # linear in T, so that the derivative says all


@pytest.mark.parametrize("melts", [False, True])
def test_kernels_and_the_reference_have_the_same_bits(melts: bool) -> None:
    k: Any = {"table": [[0, 1.0], [100, 3.0]]} if melts else 2.0
    model = heat_model(
        {"material": "a"},
        {"material": "b", "where": "x > y"},
        materials={
            "a": {"conductivity": k, "density": 1.0, "specific_heat": 1.0},
            "b": {"conductivity": 1.0, "density": 1.0, "specific_heat": 2.0},
        },
        sources=[{"material": "a", "density": "1e4*T*where(T > 21, 1, 0.5)"}],
    )
    problem = build(
        grid={"shape": [9, 7], "size": [0.09, 0.07]},
        model=model,
        initial={"type": "expression", "expression": "20 + 30*x"},
        boundaries={"*": INSULATED},
        time={"dt": 5e-6, "steps": 20},
    )
    team = ThreadTeam(2)
    found = run_method(METHODS[-1], problem, {}, team, (1, 12, 7))
    again = run_method(METHODS[-1], problem, {}, team, (20,))
    tiles = next(it for it in METHODS if it.name == "cpu.tessellate")
    tiled = run_method(tiles, problem, tiles.parameters(problem)[0], team, (1, 12, 7))
    team.close()
    expected = reference.advance(start(problem), problem, 20)
    assert abs(expected - start(problem)).max() > 1
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_array_equal(again, found)
    np.testing.assert_array_equal(tiled, found)


def last_row(path: Path) -> dict[str, float]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(float, rows[-1]), strict=True))


def run(directory: Path, *overrides: str, **how: Any) -> dict[str, float]:
    small = (
        "grid.shape=[24, 16]",
        "output.pictures=false",
        "output.probes=[]",
        "compute.tuning_budget=0",
    )
    where = f"output.directory={directory}"
    launch(ts.load_config(EXAMPLE, overrides=(*small, where, *overrides), environ={}), **how)
    return last_row(directory / "statistics.csv")


def named(found: dict[str, float], name: str) -> float:
    return next(number for key, number in found.items() if key.split(" [")[0] == name)


EXPLICIT = ("time.scheme=explicit", "time.dt=auto", "time.t_end=20 ms")
EVERY = ("output.statistics.every=5 ms", "output.fields.every=20 ms")


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_the_balance_counts_what_leaks(scheme: str, tmp_path: Path) -> None:
    found = (
        run(tmp_path / "r", *EXPLICIT, *EVERY)
        if scheme == "explicit"
        else run(tmp_path / "r", "time.t_end=2 s", "output.fields.every=2 s")
    )
    assert abs(named(found, RESIDUAL)) < 1e-7 * named(found, GIVEN)
    # 1200 W/m compute and 320 W/m leak at 25 degC.
    assert named(found, "sources") > 1525


def test_a_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    every = ("output.statistics.every=100 ms", "output.fields.every=400 ms")
    whole = run(tmp_path / "a", "time.t_end=800 ms", *every)
    run(tmp_path / "b", "time.t_end=400 ms", *every)
    again = run(tmp_path / "b", "time.t_end=800 ms", *every, resume="auto")
    assert named(again, "temperature max") == named(whole, "temperature max")
    assert named(again, GIVEN) == pytest.approx(named(whole, GIVEN), rel=1e-12)


def test_what_leaks_more_than_is_cooled_runs_away(tmp_path: Path) -> None:
    with pytest.raises(NumericsError, match="thermal runaway"):
        run(tmp_path / "r", "time={scheme: steady}", "boundaries.y-.h=600", "output.fields=null")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"density": "1e5*exp(Tc)"}, "Tc"),
        ({"power": "5*T"}, "T"),
        ({"density": "1e5/(T - 20)"}, "must be finite"),
    ],
)
def test_formulas_that_are_none_are_refused(source: dict[str, Any], told: str) -> None:
    sections = plate("0")
    sections["model"]["sources"] = [source]
    with pytest.raises((ConfigError, ValueError), match=told):
        build(**sections, time={"dt": 0.1, "steps": 1})
