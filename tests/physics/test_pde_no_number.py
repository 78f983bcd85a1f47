"""Equations that have no value somewhere, and what is said of equations in words of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.config_cases import mistakes
from tetris_sim import Periodic, run, simulate, solve_pde
from tetris_sim.errors import ConfigError, ExitCode, NumericsError


def config(equation: str, initial: str = "1", shape: tuple[int, ...] = (64,), **time: Any) -> Any:
    return {
        "grid": {"shape": [*shape], "size": [*map(float, shape)]},
        "model": {
            "type": "pde",
            "allow_growth": True,
            "fields": {
                "u": {
                    "equation": equation,
                    "initial": {"type": "expression", "expression": initial},
                }
            },
        },
        "boundaries": {"*": {"type": "periodic"}},
        "time": {"steps": 50, "dt": 0.1} | time,
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (config("laplace(u) + log(u - 2)"),
         "in step 1 (t = 0 s) at point x = 0 with log of -1."),
        (config("laplace(u) - sqrt(u)", "1 + 0.1*sin(x)", scheme="rk4"),
         "at point x = 4 with sqrt of -0.00"),
        (config("u**2", "1 + 0*x"), "in step 22 (t = 2.1 s) at point x = 0 with 3.19158e+206 * 3.19158e+206"),
        (config("laplace(u) + 1/(x - 3.5)", shape=(16, 9)), "at point x = 3, y = 0 with inf as"),
        (config("where(u > 5, log(-u), 0.1) + acos(u*u)", "0.9"), "with acos of 1.0"),
        (config("laplace(u) + log(u - 2)", tolerance=1e-4), "at point x = 0 with log of -1."),
        (config("exp(1000*u)", "0.2 + 0.6*x/64", steps=5), "with exp of 7"),
        (config("laplace(u) + log(u - 2)", scheme="etdrk4"),
         "in step 1 (t = 0 s) at point x = 0 with log of -1."),
        (config("laplace(u) - 1 + sqrt(u - 0.5)", "0.6", scheme="imex", shape=(8, 6)),
         "in step 2 (t = 100 ms) at point x = 0, y = 0 with sqrt of -0.0"),
        (config("laplace(u) + log(u - 2)", scheme="implicit"), "begins at point x = 0 with log of -1"),
    ],
)  # fmt: skip
def test_the_step_the_place_and_the_operation_are_told(given: Any, told: str) -> None:
    with pytest.raises(NumericsError) as raised:
        run(given, progress=False)
    assert raised.value.exit_code == ExitCode.NOT_FINITE
    assert told in str(raised.value)


def test_nothing_is_told_of_a_state_that_was_replaced() -> None:
    def replaced() -> None:
        with simulate(config("laplace(u) + log(u - 2)", "5")) as simulation:
            simulation.run(until=0.1)
            simulation.set_field(np.ones(64))
            simulation.run()

    with pytest.raises(NumericsError) as raised:
        replaced()
    assert "It began" not in str(raised.value)


TRACED: dict[str, Callable[..., Any]] = {
    ".mean of a field": lambda u: u - u.mean(),
    ".max of a field": lambda u: u * u.max(),
    ".shape of a field": lambda u: u * u.shape[0],
    ".T of a field": lambda u: u.T,
    ".copy of a field": lambda u: u.copy(),
    ".astype of a field": lambda u: u.astype(float),
    "a call of a field": lambda u: 2 * u(1),
    "round() of a field": lambda u: round(u),
    "complex() of a field": lambda u: complex(u),
    "np.mean": lambda u: u - np.mean(u),
}


@pytest.mark.parametrize("told", TRACED)
def test_what_cannot_be_traced_is_told_in_a_sentence(told: str) -> None:
    with pytest.raises(ConfigError, match="cannot be traced; a right-hand side is") as raised:
        solve_pde({"u": np.ones(9)}, {"u": TRACED[told]}, 1, dt=0.1, boundary=Periodic())
    assert str(raised.value).startswith(told)


def test_points_are_not_assigned() -> None:
    def rate(u: Any) -> Any:
        u[0] = 1
        return u

    with pytest.raises(ConfigError, match="an assignment to points of a field"):
        solve_pde({"u": np.ones(9)}, {"u": rate}, 1, dt=0.1, boundary=Periodic())


def test_an_array_begins_the_only_field(tmp_path: Path) -> None:
    array = np.random.default_rng(0).uniform(0, 1, (6, 8))
    given = config("laplace(u)", shape=(8, 6), steps=2)
    by_name = run(given, initial={"u": array}, progress=False).field()
    np.testing.assert_array_equal(run(given, initial=array, progress=False).field(), by_name)
    del given["model"]["fields"]["u"]["initial"]
    with simulate(given, initial=array) as simulation:
        simulation.run()
        np.testing.assert_array_equal(simulation.field()[0], by_name)

    path = tmp_path / "one.yaml"
    path.write_text(
        "grid: {shape: [8, 6], size: [8, 6]}\n"
        "model: {type: pde, fields: {u: {equation: laplace(u)}}}\n"
        'boundaries: {"*": {type: periodic}}\n'
        "time: {steps: 2, dt: 0.1}\n"
    )
    with simulate(path, tmp_path / "out", initial=array) as simulation:
        simulation.run()
        np.testing.assert_array_equal(simulation.field()[0], by_name)


def test_an_array_for_several_fields_is_refused_with_their_names() -> None:
    given = config("laplace(u)")
    given["model"]["fields"]["v"] = {"equation": "u - v"}
    with pytest.raises(ConfigError, match=r'2 fields; give \{"u": array, "v": array\}'):
        run(given, initial=np.ones(64), progress=False)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("value: 1}", "value: 1 m}", "'1 m' is a length; a number is wanted"),
        ("value: 1}", "value: .inf}", "inf is not a finite number; a number is wanted"),
        ("value: 0}", "value: .nan}", "nan is not a finite number; a number is wanted"),
        ("value: 0}", "value: [1]}", "a list of 1 was found; a number is wanted"),
    ],
)  # fmt: skip
def test_fields_are_not_called_temperatures(old: str, new: str, told: str) -> None:
    text = """\
grid: {shape: [16], size: [16]}
model: {type: pde, fields: {u: {equation: laplace(u), initial: {type: constant, value: 0}}}}
boundaries: {"*": {type: dirichlet, value: 1}}
time: {steps: 10, dt: 0.1}
"""
    assert old in text
    found = "\n".join(mistakes(text.replace(old, new)))
    assert told in found
    assert "temperature" not in found


def test_an_array_that_is_not_finite_is_called_by_its_values() -> None:
    with pytest.raises(NumericsError, match="every value must be finite"):
        solve_pde({"u": np.full(9, np.nan)}, {"u": "laplace(u)"}, 1, boundary=Periodic())
