"""Stiff equations: exponential and implicit-explicit schemes, TR-BDF2 and steady states of any
equations, against SciPy on the same differences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import solve_ivp

from tests.support.pde_cases import config, field
from tetris_sim.config import Config, make_config
from tetris_sim.errors import ConfigError, NumericsError, UnsupportedError
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.report import Report

Numbers = npt.NDArray[np.float64]
ONE = {"devices": ["cpu"], "tuning_budget": 0, "threads": 1}
RING: dict[str, Any] = {"*": {"type": "periodic"}}
CLOSED: dict[str, Any] = {"*": {"type": "neumann"}}
HELD: dict[str, Any] = {"*": {"type": "dirichlet", "value": 0.0}}


def case(directory: Path, fields: dict[str, tuple[str, Any]], **sections: Any) -> Config:
    values = config({name: field(*it) for name, it in fields.items()}).resolved()
    values |= {"output": {"directory": str(directory), "fields": {"every": "1 step"}}}
    values |= {"compute": ONE, "checkpoint": {}, **sections}
    return make_config(values)


def run(
    directory: Path, fields: dict[str, tuple[str, Any]], **sections: Any
) -> tuple[Report, Numbers]:
    report = launch(case(directory, fields, **sections))
    with h5py.File(directory / "fields.h5") as file:
        return report, np.array([file[name][-1] for name in fields])


def second(u: Numbers, h: float, faces: str) -> Numbers:
    """The second difference in 1D."""
    if faces == "ring":
        return np.asarray((np.roll(u, 1) - 2 * u + np.roll(u, -1)) / h**2)
    sign = 1.0 if faces == "closed" else -1.0
    wide = np.concatenate([[sign * u[0]], u, [sign * u[-1]]])
    return np.asarray((wide[:-2] - 2 * u + wide[2:]) / h**2)


FACES = {"ring": RING, "closed": CLOSED, "held": HELD}
N, LENGTH = 32, 8.0
H = LENGTH / N
X = (np.arange(N) + 0.5) * H
ALLEN_CAHN = "0.8*laplace(u) + u - u**3"
BEGIN = "0.2*sin(2*pi*x/Lx)**2 + 0.1*sin(pi*x/Lx)"


def allen_cahn(faces: str, end: float) -> Numbers:
    """What Allen and Cahn's equation gives on the grid, by SciPy."""
    first = 0.2 * np.sin(2 * np.pi * X / LENGTH) ** 2 + 0.1 * np.sin(np.pi * X / LENGTH)
    found = solve_ivp(
        lambda _, u: 0.8 * second(u, H, faces) + u - u**3,
        (0, end),
        first,
        "Radau",
        rtol=1e-11,
        atol=1e-12,
    )
    return np.asarray(found.y[:, -1])


@pytest.mark.parametrize(
    ("scheme", "order", "faces"),
    [
        ("etdrk4", 4, "ring"),
        ("etdrk4", 4, "held"),
        ("imex", 3, "closed"),
        ("implicit", 2, "ring"),
        ("implicit", 2, "held"),
    ],
)
def test_orders_of_schemes(scheme: str, order: int, faces: str, tmp_path: Path) -> None:
    end, errors = 2.0, []
    for steps in (10, 20):
        report, (u,) = run(
            tmp_path / str(steps),
            {"u": (ALLEN_CAHN, BEGIN)},
            grid={"shape": [N], "size": [LENGTH]},
            boundaries=FACES[faces],
            time={"scheme": scheme, "t_end": end, "dt": end / steps, "tolerance": 1e-12}
            if scheme == "implicit"
            else {"scheme": scheme, "t_end": end, "dt": end / steps},
        )
        assert report.methods["cpu:0"] == f"cpu.{'newton' if scheme == 'implicit' else scheme}"
        errors.append(np.abs(u - allen_cahn(faces, end)).max())
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.35)
    assert errors[1] < 2e-3


@pytest.mark.parametrize(("scheme", "most"), [("etdrk4", 2e-5), ("imex", 1e-3)])
def test_faces_that_change_are_followed_in_long_steps(
    scheme: str, most: float, tmp_path: Path
) -> None:
    # Steps of 70 times what is stable explicitly: faces are as stiff as what answers to them.
    ends = {
        side: {"type": "dirichlet", "value": value}
        for side, value in (("x-", "sin(3*t)"), ("x+", "t**2"))
    }
    fields = {"u": ("dxx(u) - sin(t)*u + exp(-t)*x", "sin(pi*x)")}
    grid = {"shape": [32], "size": [1.0]}

    def end(directory: str, **time: Any) -> Numbers:
        sections: dict[str, Any] = {"grid": grid, "boundaries": ends}
        return run(tmp_path / directory, fields, time={"t_end": 0.5, **time}, **sections)[1]

    exact = end("exact", scheme="implicit", tolerance=1e-8)
    found = [end(str(dt), scheme=scheme, dt=dt) for dt in (0.05, 0.025)]
    errors = [np.abs(it - exact).max() for it in found]
    assert errors[0] < most
    assert errors[0] / errors[1] > 3.5


@pytest.mark.parametrize("scheme", ["etdrk4", "imex", "implicit"])
def test_adaptive_steps_keep_the_tolerance(scheme: str, tmp_path: Path) -> None:
    _, (u,) = run(
        tmp_path,
        {"u": (ALLEN_CAHN, BEGIN)},
        grid={"shape": [N], "size": [LENGTH]},
        boundaries=RING,
        time={"scheme": scheme, "t_end": 2.0, "tolerance": 1e-6},
    )
    assert np.abs(u - allen_cahn("ring", 2.0)).max() < 1e-4


GRAY_SCOTT = {
    "u": ("0.16*laplace(u) - u*v**2 + 0.035*(1 - u)", "1 - 0.5*exp(-((x-4)/0.8)**2)"),
    "v": ("0.08*laplace(v) + u*v**2 - 0.1*v", "0.25*exp(-((x-4)/0.8)**2)"),
}


@pytest.mark.parametrize("scheme", ["etdrk4", "imex", "implicit"])
def test_systems_of_two_fields(scheme: str, tmp_path: Path) -> None:
    def slope(_: float, both: Numbers) -> Numbers:
        u, v = both.reshape(2, N)
        return np.concatenate(
            [
                0.16 * second(u, H, "closed") - u * v**2 + 0.035 * (1 - u),
                0.08 * second(v, H, "closed") + u * v**2 - 0.1 * v,
            ]
        )

    bump = np.exp(-(((X - 4) / 0.8) ** 2))
    exact = solve_ivp(
        slope,
        (0, 20),
        np.concatenate([1 - 0.5 * bump, 0.25 * bump]),
        "Radau",
        rtol=1e-10,
        atol=1e-12,
    )
    _, found = run(
        tmp_path,
        GRAY_SCOTT,
        grid={"shape": [N], "size": [LENGTH]},
        boundaries=CLOSED,
        time={"scheme": scheme, "t_end": 20.0, "tolerance": 1e-6},
    )
    np.testing.assert_allclose(found.reshape(-1), exact.y[:, -1], rtol=0, atol=2e-4)


def test_a_stiff_reaction_agrees_with_scipy(tmp_path: Path) -> None:
    # H. H. Robertson, 1966, in every cell.
    equations = {
        "a": ("-0.04*a + 1e4*b*c", 1.0),
        "b": ("0.04*a - 1e4*b*c - 3e7*b**2", 0.0),
        "c": ("3e7*b**2", 0.0),
    }

    def slope(_: float, y: Numbers) -> Numbers:
        a, b, c = y
        one, two = -0.04 * a + 1e4 * b * c, 3e7 * b**2
        return np.array([one, -one - two, two])

    exact = solve_ivp(slope, (0, 40), [1.0, 0.0, 0.0], "Radau", rtol=1e-10, atol=1e-14).y[:, -1]
    _, found = run(
        tmp_path,
        equations,
        grid={"shape": [4], "size": [1.0]},
        boundaries=CLOSED,
        time={"scheme": "implicit", "t_end": 40.0, "tolerance": 1e-5},
    )
    np.testing.assert_allclose(found[:, 0], exact, rtol=2e-3)
    np.testing.assert_allclose(found.sum(axis=0), 1.0, rtol=1e-10)


@pytest.mark.parametrize("scheme", ["etdrk4", "imex", "implicit"])
def test_cahn_hilliard_keeps_its_mass(scheme: str, tmp_path: Path) -> None:
    end = {"t_end": 1.0, "dt": 0.02} if scheme != "implicit" else {"t_end": 0.2, "dt": 0.02}
    _, (c,) = run(
        tmp_path,
        {"c": ("laplace(c**3 - c - 0.5*laplace(c))", "0.1*cos(2*pi*x/Lx)*cos(pi*y/Ly) + 0.2")},
        grid={"shape": [24, 16], "size": [12.0, 8.0]},
        boundaries=CLOSED,
        time={"scheme": scheme, **end},
    )
    assert c.mean() == pytest.approx(0.2, abs=1e-13)
    assert np.ptp(c) > 0.1


def test_a_steady_state_of_two_fields(tmp_path: Path) -> None:
    report, (u, v) = run(
        tmp_path,
        {"u": ("laplace(u) - u*v + 1", 1.0), "v": ("0.5*laplace(v) + u - v**3", 1.0)},
        grid={"shape": [N], "size": [LENGTH]},
        boundaries=HELD,
        time={"scheme": "steady", "tolerance": 1e-10},
    )
    assert report.methods["cpu:0"] == "cpu.newton"
    assert np.abs(second(u, H, "held") - u * v + 1).max() < 1e-8
    assert np.abs(0.5 * second(v, H, "held") + u - v**3).max() < 1e-8


@pytest.mark.parametrize("equation", ["laplace(u) - u**2", "laplace(u) + 1", "laplace(u) - x*u"])
def test_what_is_no_balance_of_heat_is_solved_by_newton(equation: str, tmp_path: Path) -> None:
    grid = {"shape": [N], "size": [1.0]}
    _, (u,) = run(
        tmp_path,
        {"u": (equation, 0.5)},
        grid=grid,
        boundaries={"*": {"type": "dirichlet", "value": 1.0}},
        time={"scheme": "steady", "tolerance": 1e-11},
    )
    h, x = 1.0 / N, (np.arange(N) + 0.5) / N
    wide = np.concatenate([[2 - u[0]], u, [2 - u[-1]]])
    rest = {"laplace(u) - u**2": -(u**2), "laplace(u) + 1": 1.0, "laplace(u) - x*u": -x * u}
    left = (wide[:-2] - 2 * u + wide[2:]) / h**2 + rest[equation]
    assert np.abs(left).max() < 1e-7


def test_large_systems_are_solved_by_waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tetris_sim.solvers import newton

    found = []
    for direct in (20_000, 10):
        monkeypatch.setattr(newton, "_DIRECT", direct)
        _, (u,) = run(
            tmp_path / str(direct),
            {"u": (ALLEN_CAHN, "0.3*cos(2*pi*x/Lx)*cos(pi*y/Ly) + 0.05*x*x/Lx/Lx")},
            grid={"shape": [24, 20], "size": [LENGTH, LENGTH]},
            boundaries=CLOSED,
            time={"scheme": "implicit", "t_end": 1.0, "dt": 0.1, "tolerance": 1e-10},
        )
        found.append(u)
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-8)


@pytest.mark.parametrize("scheme", ["etdrk4", "imex", "implicit"])
@pytest.mark.parametrize("step", [{"dt": 0.5}, {"dt": 0.5, "tolerance": 1e-5}])
def test_continued_runs_have_the_same_bits(
    scheme: str, step: dict[str, float], tmp_path: Path
) -> None:
    def part(name: str, steps: int) -> Config:
        return case(
            tmp_path / name,
            GRAY_SCOTT,
            grid={"shape": [N], "size": [LENGTH]},
            boundaries=RING,
            time={"scheme": scheme, "t_end": steps * 0.5, **step},
            checkpoint={"every": "2 steps"},
        )

    def last(name: str) -> Numbers:
        with h5py.File(tmp_path / name / "fields.h5") as file:
            return np.array([file[it][-1] for it in GRAY_SCOTT])

    launch(part("whole", 6))
    launch(part("parts", 2))
    launch(part("parts", 6), resume="auto")
    np.testing.assert_array_equal(last("parts"), last("whole"))


def test_faces_without_transforms_are_refused(tmp_path: Path) -> None:
    robin = {"*": {"type": "robin", "h": 1.0, "ambient": 0.0}}
    with pytest.raises((ConfigError, UnsupportedError), match="take scheme implicit"):
        run(
            tmp_path,
            {"u": (ALLEN_CAHN, BEGIN)},
            grid={"shape": [N], "size": [LENGTH]},
            boundaries=robin,
            time={"scheme": "etdrk4", "t_end": 1.0, "dt": 0.1},
        )


def test_what_grows_without_end_has_no_steady_state(tmp_path: Path) -> None:
    with pytest.raises(NumericsError, match="Does the state swing for ever, or grow"):
        run(
            tmp_path,
            {"u": ("1 + u**2", 0.0)},
            grid={"shape": [4], "size": [1.0]},
            boundaries=RING,
            time={"scheme": "steady"},
        )


@pytest.mark.parametrize(
    ("equation", "scheme", "wanted"),
    [
        ("0", "euler", np.ones(8)),
        ("x", "euler", 1 + (np.arange(8) + 0.5) / 8),
        ("t", "rk4", np.full(8, 1.5)),
        ("t", "implicit", np.full(8, 1.5)),
    ],
)
def test_right_hand_sides_need_not_read_their_field(
    equation: str, scheme: str, wanted: Numbers, tmp_path: Path
) -> None:
    _, (u,) = run(
        tmp_path,
        {"u": (equation, 1.0)},
        grid={"shape": [8], "size": [1.0]},
        boundaries=RING,
        time={"scheme": scheme, "t_end": 1.0, "dt": 0.1},
    )
    np.testing.assert_allclose(u, wanted, rtol=1e-12)
