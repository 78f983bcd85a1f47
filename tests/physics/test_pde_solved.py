"""Linear equations are solved for instead of stepped: what lasts, steps of any length, jumps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.pde_cases import config, field
from tetris_sim.config import Config, make_config
from tetris_sim.errors import ConfigError, UnstableStepError
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.report import Report

D, K, LENGTH = 2e-2, 0.5, 0.7
WALL = {"x-": {"type": "dirichlet", "value": 1.0}, "*": {"type": "neumann"}}
RING = {"*": {"type": "periodic"}}
ONE = {"devices": ["cpu"], "tuning_budget": 0, "threads": 1}


def case(directory: Path, equation: str, **sections: Any) -> Config:
    values = config({"u": field(equation, sections.pop("initial", 0.0))}).resolved()
    values |= {"output": {"directory": str(directory), "fields": {"every": "1 step"}}}
    values |= {"compute": ONE, "checkpoint": {}, **sections}
    return make_config(values)


def run(directory: Path, equation: str, **sections: Any) -> tuple[Report, npt.NDArray[np.float64]]:
    report = launch(case(directory, equation, **sections))
    with h5py.File(directory / "fields.h5") as file:
        return report, np.asarray(file["u"][-1])


def fin(tmp_path: Path, n: int) -> float:
    """The largest error of a fin that loses heat to what is around it, with a tip that loses none:
    cosh(m (L - x)) / cosh(m L) with m^2 = K / D (Incropera and DeWitt, table 3.4, case B).
    """
    report, u = run(
        tmp_path / str(n),
        f"{D}*laplace(u) - {K}*u",
        grid={"shape": [n, 3], "size": [LENGTH, 0.1]},
        boundaries=WALL,
        time={"scheme": "steady", "tolerance": 1e-12},
    )
    assert report.methods["cpu:0"] == "cpu.steady"
    m, x = math.sqrt(K / D), (np.arange(n) + 0.5) * LENGTH / n
    exact = np.cosh(m * (LENGTH - x)) / np.cosh(m * LENGTH)
    return float(np.abs(u - exact).max())


def test_the_steady_state_of_a_fin(tmp_path: Path) -> None:
    coarse, fine = fin(tmp_path, 24), fin(tmp_path, 48)
    assert fine < 1e-3
    assert coarse / fine == pytest.approx(4, rel=0.1)


def wave(tmp_path: Path, time: dict[str, Any], n: int = 40) -> tuple[Report, float]:
    """(the report, the largest error of a wave of the grid that decays by itself and spreads)."""
    end, u0 = 3.0, 2 * math.pi * (np.arange(n) + 0.5) / n
    report, u = run(
        tmp_path / f"{len([*tmp_path.iterdir()])}",
        f"{D}*laplace(u) - {K}*u",
        grid={"shape": [n], "size": [1.0]},
        boundaries=RING,
        initial="sin(2*pi*x/Lx)",
        time={"t_end": end, **time},
    )
    rate = 2 * D * n**2 * (math.cos(2 * math.pi / n) - 1) - K
    return report, float(np.abs(u - np.sin(u0) * math.exp(rate * end)).max())


def test_implicit_steps_are_of_second_order_beyond_what_is_stable(tmp_path: Path) -> None:
    errors = []
    for steps in (6, 12):
        report, error = wave(tmp_path, {"scheme": "implicit", "dt": 3 / steps, "tolerance": 1e-12})
        assert report.methods["cpu:0"] == "cpu.implicit"
        assert report.steps == steps
        errors.append(error)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)
    with pytest.raises(UnstableStepError, match="unstable with euler"):
        wave(tmp_path, {"scheme": "euler", "dt": 3 / 12})


def test_a_decay_counts_however_fast_heat_spreads(tmp_path: Path) -> None:
    _, u = run(
        tmp_path,
        f"laplace(u) - {K}*u",
        grid={"shape": [12, 10], "size": [1.2e-5, 1e-5]},
        boundaries={"*": {"type": "neumann"}},
        initial=1.0,
        time={"scheme": "implicit", "dt": 0.05, "t_end": 1.0, "tolerance": 1e-13},
    )
    np.testing.assert_allclose(u, math.exp(-K), rtol=2e-4)


def test_implicit_steps_follow_their_errors(tmp_path: Path) -> None:
    rough, fine = (
        wave(tmp_path, {"scheme": "implicit", "tolerance": tolerance})[1]
        for tolerance in (1e-3, 1e-6)
    )
    assert fine < 1e-4
    assert fine < rough / 10


def test_jumps_are_steps_without_their_error(tmp_path: Path) -> None:
    found = {}
    for scheme, steps in (("euler", 50), ("euler", 100), ("spectral", 50)):
        report, found[scheme, steps] = run(
            tmp_path / f"{scheme}{steps}",
            f"{D}*laplace(u) - {K}*u",
            initial={"type": "random", "low": 0.0, "high": 1.0, "seed": 5},
            boundaries=WALL,
            time={"steps": steps, "dt": 0.05 / steps, "scheme": scheme},
            compute={**ONE, **({"method": "cpu.plain"} if scheme == "euler" else {})},
        )
        assert (report.methods["cpu:0"] == "cpu.spectral") == (scheme == "spectral")

    # The error of euler is of first order, so half of the step leaves half of it.
    coarse, fine, jump = found.values()
    assert np.abs(coarse - jump).max() > 1e-6
    np.testing.assert_allclose(jump, 2 * fine - coarse, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("equation", ["laplace(u) - u**2", "laplace(u) + 1", "laplace(u) - x*u"])
def test_what_is_not_linear_does_not_jump(equation: str, tmp_path: Path) -> None:
    time = {"scheme": "spectral", "t_end": 1.0, "dt": 1e-5}
    with pytest.raises(ConfigError, match=r"time.scheme: spectral is for equations of one field"):
        launch(case(tmp_path, equation, time=time))


def test_a_tolerance_of_jumps_is_refused(tmp_path: Path) -> None:
    time = {"scheme": "spectral", "t_end": 1.0, "tolerance": 1e-4}
    with pytest.raises(ConfigError, match=r"time.tolerance: a jump has no errors"):
        case(tmp_path, "laplace(u)", time=time)


@pytest.mark.parametrize("equation", ["laplace(u) + 3*u", "laplace(u) - advect(1, 0, u)"])
def test_what_is_no_balance_of_heat_is_left_to_newton(equation: str, tmp_path: Path) -> None:
    report, u = run(tmp_path, equation, time={"scheme": "steady"})
    assert report.methods["cpu:0"] == "cpu.newton"
    np.testing.assert_array_equal(u, 0.0)  # as it began
