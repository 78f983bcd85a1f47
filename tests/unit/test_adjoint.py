"""Transposed steps and gradients: against the tangent, against differences of runs, and refused
with a sentence.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.api.arrays import steps_of
from tetris_sim.apps.heat.moving import as_equations_at_rest
from tetris_sim.config import make_config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, TetrisError, UnsupportedError
from tetris_sim.model import reference
from tetris_sim.model.adjoint import as_equations, split, transposed
from tetris_sim.model.linearisation import tangent
from tetris_sim.model.problem import Problem, StateVariable
from tetris_sim.model.stencil import star_mean


def pde(
    equations: Mapping[str, str], shape: list[int], faces: Any, time: Any, **more: Any
) -> dict[str, Any]:
    start = {"type": "expression", "expression": "1.3 + 0.5*cos(3*x)"}
    fields = {name: {"equation": it, "initial": start} for name, it in equations.items()}
    return {
        "grid": {"shape": shape, "size": [1.0] * len(shape)},
        "model": {"type": "pde", "fields": fields, **more},
        "boundaries": faces,
        "time": time,
    }


INSULATED = {"*": {"type": "neumann"}}
HEAT: dict[str, Any] = {
    "grid": {"shape": [12, 10], "size": ["1 m", "1 m"]},
    "model": {
        "type": "heat",
        "materials": {
            "a": {"conductivity": 2.0, "density": 1000, "specific_heat": 100},
            "b": {"conductivity": 20.0, "density": 1000, "specific_heat": 100},
        },
        "regions": [
            {"material": "a", "box": {"x": ["0 m", "1 m"]}},
            {"material": "b", "box": {"x": ["0 m", "0.5 m"]}},
        ],
        "sources": [
            {
                "box": {"x": ["0.2 m", "0.4 m"]},
                "density": 100.0,
                "over_time": [["0 s", 0.0], ["40 s", 1.0], ["120 s", 0.2]],
            }
        ],
    },
    "initial": {"type": "expression", "expression": "100*sin(pi*x/Lx)"},
    "boundaries": {
        "x-": {"type": "dirichlet", "value": "10 degC"},
        "x+": {"type": "convection", "h": 5.0, "ambient": 30.0},
        "y": {"type": "neumann", "flux": 10.0},
    },
    "time": {"t_end": "120 s"},
    "output": {"probes": [{"at": ["0.5 m", "0.99 m"], "every": "10 s", "name": "edge"}]},
}
GRAY_SCOTT = pde(
    {"u": "0.1*laplace(u) - u*v**2 + F*(1 - u)", "v": "0.05*laplace(v) + u*v**2 - (F + k)*v"},
    [12, 10],
    {"x": {"type": "periodic"}, "y": {"type": "neumann"}},
    {"dt": 1e-3, "steps": 6, "scheme": "rk4"},
    constants={"F": 0.04, "k": 0.06},
)
SYSTEMS = {
    "heat": HEAT,
    "Gray-Scott rk4": GRAY_SCOTT,
    "robin and variable coefficients": pde(
        {"u": "div_grad(1 + x**2, u) + sin(u)"},
        [16],
        {"x-": {"type": "robin", "h": 2.0, "ambient": 3.0}, "x+": {"type": "neumann", "flux": 1.0}},
        {"dt": 1e-4, "steps": 5},
    ),
    "upwind with where": pde(
        {"u": "-advect(where(u > 1.2, 1, -1)*x, u, u) + 0.01*laplace(u)"},
        [11, 9],
        {"*": {"type": "dirichlet", "value": 1}},
        {"dt": 1e-4, "steps": 5, "scheme": "rk2"},
    ),
    "fourth order across corners": pde(
        {"u": "laplace(u**3) - dx(u) + dxy(u) + exp(-t)*u"},
        [11, 12],
        {"x": {"type": "dirichlet", "value": 1}, "y": {"type": "robin", "h": 1.0, "ambient": 0.5}},
        {"dt": 1e-5, "steps": 5, "scheme": "euler"},
        accuracy=4,
    ),
    "limited flux": pde(
        {"u": "-flux(u**2/2, limiter: van_leer)"},
        [20],
        {"x": {"type": "periodic"}},
        {"dt": 1e-3, "steps": 5},
    ),
    "an operator of operators": pde(
        {"c": "laplace(c**3 - c - 0.001*laplace(c))"},
        [14, 12],
        INSULATED,
        {"dt": 1e-6, "steps": 5, "scheme": "rk2"},
    ),
    "heat on a disc": {
        **HEAT,
        "grid": {
            "coordinates": "cylindrical",
            "axes": ["r", "theta"],
            "shape": [6, 12],
            "size": ["1 m", "360 deg"],
        },
        "model": {
            **HEAT["model"],
            "regions": [
                {"material": "a"},
                {"material": "b", "box": {"theta": ["-30 deg", "60 deg"]}},
            ],
            "sources": [{"box": {"r": ["0.2 m", "0.6 m"]}, "density": 100.0}],
        },
        "initial": {"type": "expression", "expression": "100*r*cos(theta)"},
        "boundaries": {"r+": {"type": "convection", "h": 5.0, "ambient": 30.0}},
        "output": {},
    },
    "one linear step": pde(
        {"u": "laplace(u)"},
        [12, 10, 9],
        {"*": {"type": "dirichlet", "value": 2}},
        {"dt": 1e-4, "steps": 5},
    ),
}


def posed(config: Mapping[str, Any]) -> Problem:
    problem = make_config(config).build()
    return as_equations_at_rest(problem) if problem.conduction else as_equations(problem)


def directions_of(problem: Problem) -> Problem:
    """The problem whose second half of fields are J v of the first and v."""
    both = tangent(problem.system)
    variables = [StateVariable(it, "1", it, problem.variables[0].total) for it in both.fields]
    reach = star_mean(problem.grid.ndim, both.radii)
    return replace(problem, equations=both, variables=tuple(variables), stencil=reach)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_transposed_step_is_the_transpose_of_the_tangent(name: str) -> None:
    problem = posed(SYSTEMS[name])
    back, rng = transposed(problem), np.random.default_rng(1)
    u = rng.uniform(1.0, 1.5, problem.state_shape)
    v, w = rng.normal(size=u.shape), rng.normal(size=u.shape)

    jv = reference.advance(np.concatenate([u, v]), directions_of(problem), 1, 2)[len(u) :]
    begun = np.concatenate([u[[*back.reads]], w])
    jtw = reference.advance(begun, back.problem, 1, 2)[len(back.reads) :]
    assert abs((jv * w).sum() - (v * jtw).sum()) < 1e-12 * np.linalg.norm(jv) * np.linalg.norm(w)


def test_a_linear_step_needs_no_state() -> None:
    assert transposed(posed(SYSTEMS["one linear step"])).reads == ()
    assert transposed(posed(HEAT)).reads == ()
    assert transposed(posed(GRAY_SCOTT)).reads == (0, 1)


def test_kernels_make_the_transposed_step() -> None:
    back = transposed(posed(GRAY_SCOTT)).problem
    state = np.random.default_rng(2).uniform(0.5, 1.0, back.state_shape)
    with steps_of(back, ComputeSection(), small=False) as steps:
        found = steps.advance(state, 3, 1)
    expected = reference.advance(state, back, 1, 3)
    assert np.abs(found - expected).max() < 1e-13


@functools.cache
def fewest(steps: int, kept: int) -> int:
    if steps == 1 or kept == 1:
        return steps * (steps - 1) // 2
    return min(m + fewest(steps - m, kept - 1) + fewest(m, kept) for m in range(1, steps))


def test_the_fewest_steps_are_made_again() -> None:
    def made(steps: int, kept: int) -> int:
        if steps == 1 or kept == 1:
            return steps * (steps - 1) // 2
        first = split(steps, kept)
        return first + made(steps - first, kept - 1) + made(first, kept)

    for steps in range(1, 40):
        for kept in range(1, 7):
            assert made(steps, kept) == fewest(steps, kept)


def test_what_is_kept_does_not_matter() -> None:
    found = [ts.gradient(GRAY_SCOTT, "integral(u*v)", ["F", "u"], kept=n) for n in (1, 2, 100)]
    for it in found[:2]:
        assert it["F"] == found[2]["F"]
        assert np.array_equal(it["u"], found[2]["u"])
    assert [it.made for it in found] == [16, 9, 6]
    assert [it.kept for it in found] == [1, 2, 6]


def difference(config: Mapping[str, Any], functional: str | None, key: str, **given: Any) -> float:
    """The derivative of fourth order of runs with other values of a key."""
    checked = make_config(config)
    value: Any = checked.resolved()
    for part in key.split("."):
        value = value[int(part) if part.isdigit() else part]
    width, total = 1e-4 * (abs(value) or 1.0), 0.0
    for k, weight in {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}.items():
        changes = {key: value + k * width, "time.dt": checked.build().dt}
        if checked.model.type == "pde":
            changes["model.allow_growth"] = True
        total += weight * ts.gradient(config, functional, changes=changes, **given).value
    return total / width


NUMBERS: list[tuple[dict[str, Any], str, dict[str, str]]] = [
    (
        GRAY_SCOTT,
        "integral(u*v) + mean(u)**2",
        {"F": "model.constants.F", "k": "model.constants.k"},
    ),
    (
        pde(
            {"u": "div_grad(1 + D*x**2, u) - u**n + exp(-w*t)"},
            [16],
            {
                "x-": {"type": "robin", "h": 2.0, "ambient": 3.0},
                "x+": {"type": "dirichlet", "value": 1.5},
            },
            {"t_end": 0.05},
            constants={"D": 0.3, "n": 2.5, "w": 4.0},
        ),
        "integral(where(u > 1.2, u, 0.5)*x)",
        {
            "D": "model.constants.D",
            "n": "model.constants.n",
            "w": "model.constants.w",
            "boundaries.x-.h": "boundaries.x-.h",
            "boundaries.x+.value": "boundaries.x+.value",
        },
    ),
    # Numbers of time that jump within a step, which then reads their means.
    *(
        (
            pde(
                {"u": "0.02*laplace(u) + " + source},
                [12],
                INSULATED,
                {"dt": 0.01, "t_end": 0.1, "scheme": scheme},
                constants={"a": 3.0},
            ),
            "integral(u**3)",
            {"a": "model.constants.a"},
        )
        for source in ("where(t < 0.053, a*t, 0)", "exp(-a*t)*where(t < 0.053, sin(20*t), 0.3)")
        for scheme in ("euler", "rk4")
    ),
]


@pytest.mark.parametrize("case", range(len(NUMBERS)))
def test_derivatives_by_numbers_are_those_of_differences(case: int) -> None:
    config, functional, keys = NUMBERS[case]
    found = ts.gradient(config, functional, [*keys])
    for name, key in keys.items():
        assert found[name] == pytest.approx(difference(config, functional, key), rel=1e-6)


def test_derivatives_of_a_heated_body_and_its_probe() -> None:
    data = {"edge": [[20.0, 30.0], [43.7, 35.0], [120.0, 28.0]]}
    names = ["materials.a.conductivity", "model.sources.0.density", "boundaries.x+.h"]
    names += ["boundaries.x-.value", "temperature"]
    found = ts.gradient(HEAT, "mean((temperature - 20)**2)", names, data=data)
    for name in names[:4]:
        key = name if name.split(".")[0] in ("model", "boundaries") else f"model.{name}"
        expected = difference(HEAT, "mean((temperature - 20)**2)", key, data=data)
        assert found[name] == pytest.approx(expected, rel=1e-6)

    # By the initial state in one direction.
    start = make_config(HEAT).build().initial
    u = start(ts.Slab.whole(make_config(HEAT).build().grid))[0]
    v = np.random.default_rng(3).normal(size=u.shape)
    values = [
        ts.gradient(HEAT, "mean((temperature - 20)**2)", data=data, initial=u + h * v).value
        for h in (-1e-3, 1e-3)
    ]
    slope = float((found["temperature"] * v).sum())
    assert slope == pytest.approx((values[1] - values[0]) / 2e-3, rel=1e-6)


def test_an_initial_field_is_found_again() -> None:
    from scipy.optimize import minimize

    rod = pde({"u": "0.02*laplace(u)"}, [24], INSULATED, {"t_end": 0.1})
    x = (np.arange(24) + 0.5) / 24
    wanted = np.exp(-20 * (x - 0.4) ** 2)
    target = ts.solve_pde({"u": wanted}, {"u": "0.02*laplace(u)"}, t_end=0.1, spacing=1 / 24).field(
        "u"
    )

    def objective(u: Any) -> tuple[float, Any]:
        arrays = {"target": target}
        found = ts.gradient(rod, "integral((u - target)**2)", "u", initial={"u": u}, arrays=arrays)
        return 1e4 * found.value, 1e4 * found["u"]

    found = minimize(objective, np.zeros(24), jac=True, method="L-BFGS-B", options={"maxiter": 60})
    assert np.abs(found.x - wanted).max() < 0.02


def test_a_function_of_the_fields() -> None:
    text = ts.gradient(GRAY_SCOTT, "integral(u**2*v)", ["k", "v"])
    volume = 1 / 120
    own = ts.gradient(
        GRAY_SCOTT,
        lambda it: (
            volume * float((it["u"] ** 2 * it["v"]).sum()),
            {"u": volume * 2 * it["u"] * it["v"], "v": volume * it["u"] ** 2},
        ),
        ["k", "v"],
    )
    assert own.value == pytest.approx(text.value, rel=1e-13)
    assert own["k"] == pytest.approx(text["k"], rel=1e-12)
    assert np.allclose(own["v"], text["v"], rtol=1e-12, atol=0)


DECAY = pde({"u": "laplace(u) - u**3"}, [16], INSULATED, {"t_end": 0.01})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"time.scheme": "implicit", "time.dt": 1e-3}, "time.scheme is implicit"),
        (
            {"time.tolerance": 1e-4, "time.scheme": "rk4", "time.dt": 1e-3},
            "errors choose the steps",
        ),
        ({"time.until": {"condition": "max(u) < 1"}}, "time.until"),
        ({"model.fields.u.equation": "laplace(u) - mean(u)"}, "numbers of the whole grid"),
        ({"model.fields.u.equation": "laplace(u) + noise(0.1, 1)"}, "noise"),
    ],
)
def test_what_has_no_transposed_step_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(UnsupportedError, match="explicit steps of a given length") as caught:
        ts.gradient(DECAY, "integral(u)", "u", changes=change)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("functional", "wrt", "told"),
    [
        (None, "u", "a functional, data of probes, or both"),
        ("u**2", "u", "let it stand in integral or mean"),
        ("integral(w)", "u", "unknown name 'w'"),
        ("integral(mean(u))", "u", "write that outside"),
        ("integral(u)", "time.t_end", "no number of the model"),
        ("integral(u)", "q", "there is no q"),
        ("integral(u)", "model.fields.u.equation", "derivatives are by numbers"),
    ],
)
def test_mistakes_are_told(functional: str | None, wrt: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ts.gradient(DECAY, functional, wrt)
    assert told in str(caught.value)


def test_a_whole_exponent_is_no_number_to_differentiate_by() -> None:
    config = pde({"u": "laplace(u) - u**n"}, [16], INSULATED, {"t_end": 0.01}, constants={"n": 3.0})
    with pytest.raises(ConfigError, match="exponent"):
        ts.gradient(config, "integral(u)", "n")


def test_a_derivative_that_is_none_is_told() -> None:
    time = {"t_end": 0.01, "dt": 1e-3}
    config = pde({"u": "laplace(u) - sqrt(u)"}, [16], INSULATED, time)
    with pytest.raises(TetrisError, match="finite"):
        ts.gradient(config, "integral(u)", "u", initial={"u": np.zeros(16)})
