"""Adaptive steps of equations: errors follow the tolerance, and the substeps are those of any run."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import tetris_sim as ts
from tests.support.pde_cases import SINE, config, field, second
from tetris_sim.__main__ import main
from tetris_sim.api.arrays import run_problem
from tetris_sim.apps.pde.runge_kutta import PAIRS, Pair
from tetris_sim.config import read_config
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model import reference
from tetris_sim.model.conduction import Parameter
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.step_control import Controller, Counted, largest_error
from tetris_sim.simulation.launch import launch

HUNTERS = {"u": field("u*(1 - v) + sin(3*t)", 1.2), "v": field("v*(u - 1)*cos(t)", 0.7)}


def hunted(scheme: str, tolerance: float, **time: Any) -> Problem:
    times = {"t_end": 2.0, "scheme": scheme, "tolerance": tolerance, **time}
    return config(HUNTERS, shape=(3,), time=times).build()


def truth() -> Any:
    def rate(t: float, y: Any) -> list[float]:
        u, v = y
        return [u * (1 - v) + math.sin(3 * t), v * (u - 1) * math.cos(t)]

    return solve_ivp(rate, (0, 2), [1.2, 0.7], method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]


def by_reference(problem: Problem) -> tuple[Field, Counted]:
    """The state after the run, and its substeps, one plain NumPy step after the other."""
    equations, u = problem.equations, problem.initial(Slab.whole(problem.grid))
    assert equations is not None
    substeps = equations.substeps
    assert substeps is not None
    counted, space = Counted(), tuple(range(1, u.ndim))
    for step in range(problem.steps):
        begin, end = problem.time(step), problem.time(step + 1)
        control = Controller(begin, end, substeps.first, substeps.order, counted)
        while not control.ended:
            numbers = substeps.numbers(control.time, control.length, {})
            named = zip(equations.parameters, numbers, strict=True)
            given = tuple(Parameter(it.name, np.array([n])) for it, n in named)
            fixed = dataclasses.replace(equations, parameters=given)
            wrong = dataclasses.replace(fixed, results=dict(substeps.errors))
            new, errors = (
                reference.evolve(u, dataclasses.replace(problem, equations=it), 0)
                for it in (fixed, wrong)
            )
            after = np.abs([new, errors]).max(axis=tuple(k + 1 for k in space))
            if control.accept(largest_error(np.abs(u).max(axis=space), after, substeps.tolerance)):
                u = new
        counted = control.counted
    return u, counted


def conditions(pair: Pair, weights: tuple[Fraction, ...], order: int) -> list[tuple[Any, Any]]:
    """The conditions of a method up to an order, as what is and what must be; J. C. Butcher,
    Numerical Methods for Ordinary Differential Equations, 2008, table 301(III).
    """
    rows = [(), *pair.rows]
    c, b = pair.nodes, weights

    def a(values: list[Fraction]) -> list[Fraction]:
        return [
            sum((x * y for x, y in zip(row, values, strict=False)), Fraction(0)) for row in rows
        ]

    def of(*factors: Any) -> Fraction:
        return sum((math.prod(it) for it in zip(b, *factors, strict=True)), Fraction(0))

    ac, ac2 = a([*c]), a([x * x for x in c])
    trees = [
        (1, of(), 1),
        (2, of(c), 2),
        *((3, of(c, c), 3), (3, of(ac), 6)),
        *((4, of(c, c, c), 4), (4, of(c, ac), 8), (4, of(ac2), 12), (4, of(a(ac)), 24)),
        *((5, of(c, c, c, c), 5), (5, of(c, c, ac), 10), (5, of(c, ac2), 15), (5, of(ac, ac), 20)),
        *((5, of(c, a(ac)), 30), (5, of(a([x**3 for x in c])), 20)),
        *((5, of(a([x * y for x, y in zip(c, ac, strict=True)])), 40), (5, of(a(ac2)), 60)),
        (5, of(a(a(ac))), 120),
    ]
    return [(found, Fraction(1, wanted)) for p, found, wanted in trees if p <= order]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=lambda it: it.name)
def test_pairs_have_their_orders(pair: Pair) -> None:
    for row, node in zip(pair.rows, pair.nodes[1:], strict=True):
        assert sum(row) == node
    for weights, order in ((pair.weights, pair.order), (pair.lower, pair.order - 1)):
        assert all(found == wanted for found, wanted in conditions(pair, weights, order))
    assert any(found != wanted for found, wanted in conditions(pair, pair.lower, pair.order))


@pytest.mark.parametrize(("scheme", "tolerances"), [
    ("euler", (1e-2, 1e-4)), ("rk2", (1e-4, 1e-6)), ("rk4", (1e-5, 1e-9)),
])  # fmt: skip
def test_errors_and_substeps_follow_the_tolerance(
    scheme: str, tolerances: tuple[float, float]
) -> None:
    errors, substeps = [], []
    for tolerance in tolerances:
        u, counted = by_reference(hunted(scheme, tolerance))
        errors.append(float(np.abs(u[:, 0] - truth()).max()))
        substeps.append(counted.made)
        assert errors[-1] < 30 * tolerance
    ratio = tolerances[0] / tolerances[1]
    assert ratio / 30 < errors[0] / errors[1] < 30 * ratio or errors[1] < 1e-12
    power = math.log(substeps[1] / substeps[0]) / math.log(ratio)
    assert power == pytest.approx(1 / PAIRS[scheme].order, abs=0.1)


@pytest.mark.parametrize("scheme", PAIRS)
def test_runs_make_the_substeps_of_the_reference(scheme: str) -> None:
    walls = {"x-": {"type": "dirichlet", "value": 1}, "*": {"type": "neumann", "flux": 0.1}}
    fields = {
        "u": field("laplace(u) - u*v**2 + 0.04*(1 - u)", "0.5 + 0.3*sin(x)"),
        "v": field("0.5*div_grad(1 + u, v) + u*v**2 - 0.1*v*cos(t)", "0.4 + 0.2*cos(y)"),
    }
    problem = config(
        fields,
        shape=(9, 7),
        boundaries=walls,
        time={"t_end": 1.5, "dt": 0.5, "scheme": scheme, "tolerance": 1e-4},
    ).build()
    expected, counted = by_reference(problem)
    assert problem.steps == 3
    assert counted.made > 3
    found = run_problem(problem, "cpu.plain", 2)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_stiff_equations_are_followed_where_a_fixed_step_would_blow_up() -> None:
    problem = config(
        {"u": field("-1e4*(u - cos(t))", 0.0)},
        shape=(2,),
        time={"t_end": 0.05, "scheme": "rk2", "tolerance": 1e-5},
    ).build()
    u, counted = by_reference(problem)
    assert u[0, 0] == pytest.approx(math.cos(0.05), abs=1e-4)
    assert counted.longest < 4e-4  # from 2.5/1e4 on it grows until its errors are seen
    assert counted.rejected < counted.made / 3


def test_what_grows_without_end_ends_in_a_sentence() -> None:
    time = {"t_end": 2.0, "scheme": "rk4", "tolerance": 1e-6}
    problem = config({"u": field("u**2", 1.0)}, shape=(3,), time=time).build()
    with pytest.raises(NumericsError, match=r"no substep is short enough at t = 1.*without end"):
        run_problem(problem, "cpu.plain", 1)
    root = config({"u": field("1 + 0*sqrt(1.5 - u)", 1.0)}, shape=(3,), time=time).build()
    with pytest.raises(NumericsError, match=r"no substep is short enough at t = 0\.(49999|5)"):
        run_problem(root, "cpu.plain", 1)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ({"t_end": 1.0, "scheme": "leapfrog", "tolerance": 1e-6}, "leapfrog has no estimate"),
        ({"steps": 3, "scheme": "rk4", "tolerance": 1e-6}, "give t_end, or dt beside tolerance"),
        ({"t_end": 1.0, "scheme": "rk4", "tolerance": 1e-16}, "in float64 it is 3.6e-15 or more"),
    ],
)
def test_what_cannot_be_adaptive_is_refused(time: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config({"w": second("laplace(w)", SINE)}, time=time).build()


def test_equations_of_second_order_are_two_of_first() -> None:
    """A wave comes back after a period; velocities begin at 0, which is no scale for errors."""
    c = 2 * math.sin(math.pi / 16) * 16 / (2 * math.pi)  # of the longest wave on 16 points
    time = {"t_end": 1 / c, "tolerance": 1e-7}
    problem = config({"w": second("laplace(w)", SINE)}, shape=(16,), size=(1.0,), time=time).build()
    u, _ = by_reference(problem)
    start = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_allclose(u[0], start[0], atol=2e-5)


def test_a_step_is_what_all_times_of_the_outputs_have_in_common() -> None:
    text = RUN.format(directory="x", dt="", more="fields: {every: 0.15 s, at: [0.4 s]}")
    problem = read_config(text, name="x", base=Path()).build()
    assert problem.dt == pytest.approx(0.05)
    assert problem.steps == 24


RUN = """
schema: 1
grid: {{shape: [12, 10]}}
model:
  type: pde
  fields:
    u: {{equation: "laplace(u) - u*v**2 + 0.04*(1 - u)", initial: {{type: constant, value: 1}}}}
    v: {{equation: "0.5*laplace(v) + u*v**2 - 0.1*v", initial: {{type: random, low: 0, high: 0.5}}}}
boundaries: {{"*": {{type: neumann}}}}
time: {{{dt} t_end: 1.2, scheme: rk2, tolerance: 1.0e-5}}
compute: {{method: cpu.plain, threads: 1}}
output: {{directory: {directory}, pictures: false, {more}}}
checkpoint: {{every: 0.3 s, keep: 9}}
"""


def test_a_plan_says_that_substeps_are_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(RUN.format(directory=tmp_path / "out", dt="", more="fields: {every: 0.3 s}"))
    assert main(["plan", str(path)]) == 0
    said = capsys.readouterr().out
    assert "4 steps of" in said
    assert "times substeps a step, whose number is not known" in said


def test_a_run_that_is_continued_has_the_bits_of_the_whole(tmp_path: Path) -> None:
    def run(name: str, resume: Any = "never") -> Field:
        text = RUN.format(directory=tmp_path / name, dt="dt: 0.1,", more="fields: {every: 0.3 s}")
        made = launch(read_config(text, name="x", base=tmp_path), resume=resume)
        assert made.step == 12
        with h5py.File(tmp_path / name / "fields.h5") as file:
            return np.array([file["u"][-1], file["v"][-1]])

    whole = run("whole")
    half = next(iter(sorted((tmp_path / "whole" / "checkpoints").glob("*6.h5"))))
    np.testing.assert_array_equal(run("half", resume=half), whole)
    report = (tmp_path / "whole" / "report.txt").read_text()
    assert "substeps made" in report
    assert "the shortest" in report


PULSED = ["where(t > 520, where(t < 521, 1, 0), 0)", "1 if t % 1000 >= 520 and t < 521 else 0"]
STEPS: list[dict[str, Any]] = [
    {"scheme": "euler"},
    {"scheme": "rk4"},
    *({"scheme": it, "tolerance": 1e-6} for it in ("euler", "rk2", "rk4", "etdrk4", "implicit")),
    *({"scheme": it, "dt": 100} for it in ("etdrk4", "imex", "implicit")),
]


@pytest.mark.parametrize("time", [{"scheme": "euler"}, {"scheme": "rk4", "tolerance": 1e-6}])
def test_no_step_with_numbers_of_the_whole_grid_misses_a_pulse(time: dict[str, Any]) -> None:
    found = ts.run(
        {
            "grid": {"shape": [8], "size": [8]},
            "model": {
                "type": "pde",
                "fields": {"u": field(f"0.1*laplace(u) + u - mean(u) + {PULSED[0]}", 0.0)},
            },
            "boundaries": {"*": {"type": "neumann"}},
            "time": {**time, "t_end": 1000},
        }
    )
    assert found.field().mean() == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("time", STEPS, ids=str)
@pytest.mark.parametrize("pulse", [*PULSED, "a face"])
def test_no_step_misses_or_repeats_a_pulse(time: dict[str, Any], pulse: str) -> None:
    given: Any = {"type": "neumann"}
    if pulse == "a face":
        rows = [[0, 0], [520, 0], [520, 80], [521, 80], [521, 0]]
        given, pulse = {"type": "neumann", "flux": {"table": rows}}, "0"
    found = ts.run(
        {
            "grid": {"shape": [8], "size": [8]},
            "model": {"type": "pde", "fields": {"u": field(f"0.1*laplace(u) + ({pulse})", 0.0)}},
            "boundaries": {"x-": given, "x+": {"type": "neumann"}},
            "time": {**time, "t_end": 1000},
        }
    )
    assert found.field().mean() == pytest.approx(1.0, rel=1e-6)
