"""Equations as a function on arrays: formulas and traced functions give the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tetris_sim import Dirichlet, Neumann, Periodic, solve_pde
from tetris_sim.errors import ConfigError, UnstableStepError

RNG = np.random.default_rng(3)
U = RNG.uniform(0.2, 1.0, (9, 14))
V = RNG.uniform(0.2, 1.0, (9, 14))
GRAY_SCOTT = {
    "u": "Du*laplace(u) - u*v**2 + F*(1 - u)",
    "v": "Dv*laplace(v) + u*v**2 - (F + k)*v",
}
NUMBERS = {"Du": 0.16, "Dv": 0.08, "F": 0.035, "k": 0.065}


def solve(equations: Any, steps: int = 5, **more: Any) -> dict[str, Any]:
    given = {"constants": NUMBERS, "dt": 0.5, "boundary": Periodic(), "method": "cpu.plain"}
    return solve_pde({"u": U, "v": V}, equations, steps, **{**given, **more})


def by_hand(steps: int) -> tuple[Any, Any]:
    u, v = U.copy(), V.copy()

    def laplace(a: Any) -> Any:
        return sum(np.roll(a, s, axis) for s in (-1, 1) for axis in (0, 1)) - 4 * a

    for _ in range(steps):
        eaten = u * v**2
        du = 0.16 * laplace(u) - eaten + 0.035 * (1 - u)
        dv = 0.08 * laplace(v) + eaten - 0.1 * v
        u, v = u + 0.5 * du, v + 0.5 * dv
    return u, v


def test_formulas_give_what_numpy_by_hand_gives() -> None:
    found, (u, v) = solve(GRAY_SCOTT), by_hand(5)
    np.testing.assert_allclose(found["u"], u, rtol=1e-13)
    np.testing.assert_allclose(found["v"], v, rtol=1e-13)


def test_a_function_is_traced() -> None:
    def rates(u: Any, v: Any, f: Any, k: Any, d: Any, laplace: Any) -> Any:
        eaten = u * np.square(v)
        return 2 * d * laplace(u) - eaten + f * (1 - u), d * laplace(v) + eaten - (f + k) * v

    numbers = {"f": 0.035, "k": 0.065, "d": 0.08}
    found, expected = solve(rates, constants=numbers), solve(GRAY_SCOTT)
    np.testing.assert_allclose(found["u"], expected["u"], rtol=1e-14)
    np.testing.assert_allclose(found["v"], expected["v"], rtol=1e-14)


def test_functions_of_numpy_comparisons_and_places_are_traced() -> None:
    def traced(u: Any, x: Any, y: Any, t: Any) -> Any:
        return np.where(u > 0.5, np.exp(-u), np.clip(x, 0, 3)) + np.hypot(u, y) + t

    text = "where(u > 0.5, exp(-u), clip(x, 0, 3)) + hypot(u, y) + t"
    found = [solve({"u": it, "v": "0*v"}, scheme="rk2", dt=0.01)["u"] for it in (traced, text)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda u: u if u > 0 else -u, "if, while, and, or, not"),
        (lambda u: u[0], "an index of a field"),
        (lambda u: np.cumsum(u), "np.cumsum cannot be traced"),
        (lambda u: float(u), "float() and math functions"),
        (lambda u: u + np.ones(3), "an array of shape (3,)"),
        (lambda u: sum(u), "a loop over a field"),
        (lambda u: u + 1j, "a value of type complex"),
        (lambda u, q: u + q, "the function has a parameter 'q'"),
        (lambda u, dz: dz(u), "the grid has no axis z"),
        (lambda u, laplace: laplace(u, 2), "laplace takes 1 argument, not 2"),
        (lambda u: "u", "a value of type str"),
        (lambda u: np.modf(u)[0], "np.modf cannot be traced"),
    ],
)
def test_what_cannot_be_traced_is_refused(function: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        solve({"u": function, "v": "v"})


def test_faces_are_those_of_each_field() -> None:
    faces = {"u": Dirichlet(1.0), "v": Neumann()}
    found = solve({"u": "laplace(u)", "v": "laplace(v)"}, steps=2000, dt=0.2, boundary=faces)
    np.testing.assert_allclose(found["u"], 1.0, atol=1e-3)
    np.testing.assert_allclose(found["v"], V.mean(), atol=1e-3)


@pytest.mark.parametrize(
    ("more", "error", "told"),
    [
        ({"dt": 5.0, "equations": {"u": "laplace(u)", "v": "v"}}, UnstableStepError, "unstable"),
        ({"equations": {"u": "laplace(u)"}}, ConfigError, "equations are given for ['u']"),
        ({"equations": {"u": "lap(u)", "v": "w"}}, ConfigError, "equations, v: unknown name 'w'"),
        ({"scheme": "rk3"}, ConfigError, "scheme is 'rk3'"),
        ({"constants": {"u": 1}}, ConfigError, "u is a field and a constant"),
        ({"constants": {"x": 1}}, ConfigError, "'x' already means something"),
        ({"boundary": {"w": Neumann()}}, ConfigError, "boundary names ['w']"),
        ({"dtype": np.float16}, ConfigError, "not in float16"),
    ],
)
def test_mistakes_are_told(more: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=re.escape(told)):
        solve(more.pop("equations", GRAY_SCOTT), **more)


def test_single_precision_stays() -> None:
    found = solve_pde({"u": U.astype(np.float32)}, {"u": "laplace(u)"}, 3, method="cpu.plain")["u"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.mean(), U.mean(), rtol=1e-6)
