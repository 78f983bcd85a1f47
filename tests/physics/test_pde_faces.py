"""Faces of equations that change with time: the numbers of constant ones, exact solutions, the same
bits by all methods.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.kernels.test_substeps import solved
from tests.support.pde_cases import SINE, config, field, second
from tetris_sim.api.arrays import run_problem
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.errors import ConfigError
from tetris_sim.gpu_kernels import METHODS as GPU_METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model import reference
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

WALLS: dict[str, Any] = {
    "x-": {"type": "dirichlet", "value": "3*sin(t)"},
    "x+": {"type": "neumann", "flux": "sin(t)"},
    "y": {"type": "neumann"},
}


def run(problem: Problem) -> Field:
    return reference.advance(problem.initial(Slab.whole(problem.grid)), problem, problem.steps)


def error(scheme: str, dt: float) -> float:
    """U = sin(t) (3 + x) solves du/dt = laplace(u) + cos(t) (3 + x), on the grid too."""
    problem = config(
        {"u": field("laplace(u) + cos(t)*(x + 3)", 0.0)},
        shape=(6, 4),
        size=(1.0, 1.0),
        boundaries=WALLS,
        time={"t_end": 0.5, "dt": dt, "scheme": scheme},
    ).build()
    exact = math.sin(0.5) * (3 + problem.grid.coordinates(1, 0, 6))
    return float(np.abs(run(problem)[0] - exact).max())


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1), ("rk2", 2), ("rk4", 2)])
def test_stages_see_the_faces_at_their_times(scheme: str, order: int) -> None:
    coarse, fine = error(scheme, 0.005), error(scheme, 0.0025)
    assert math.log2(coarse / fine) > order - 0.2
    assert fine < {"euler": 5e-3, "rk2": 3e-5, "rk4": 1e-6}[scheme]


@pytest.mark.parametrize("accuracy", [2, 4])
def test_formulas_of_time_that_stay_are_numbers(accuracy: int) -> None:
    """Every kind of face, corners of corners, periodic axes, products of neighbours."""
    walls: dict[str, Any] = {
        "x-": {"type": "dirichlet", "value": 0.7},
        "x+": {"type": "robin", "h": 0.3, "ambient": 1.5},
        "y-": {"type": "fixed", "value": 0.2},
        "y+": {"type": "neumann", "flux": 0.4},
        "z": {"type": "periodic"},
    }
    timed = {
        face: {k: f"{v} + 0*t" if k in ("value", "flux", "ambient") else v for k, v in it.items()}
        for face, it in walls.items()
    }
    timed["x-"]["value"] = {"table": [[0.0, 0.7], [1.0, 0.7], [2.0, 3.0]]}
    formula = "laplace(u) + dxy(u) + 0.1*grad_squared(u) + div_grad(1 + u**2, u) + dxz(u)"
    found = [
        run(
            config(
                {"u": field(formula, "sin(3*x) + cos(2*y) + sin(2*pi*z/Lz)")},
                shape=(10, 9, 8),
                boundaries=faces,
                accuracy=accuracy,
                time={"steps": 4, "dt": 0.01, "scheme": "rk2"},
            ).build()
        )
        for faces in (walls, timed)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-13)


def driven(precision: str = "float64", **time: Any) -> Problem:
    faces = {
        "x-": {"type": "dirichlet", "value": "0.5 + 0.5*t"},
        "x+": {"type": "robin", "h": 2, "ambient": {"table": [[0, 0.0], [0.1, 1.0], [0.5, 0.3]]}},
        "y-": {"type": "neumann", "flux": "t*t"},
        "y+": {"type": "fixed", "value": "1 - t"},
    }
    fields = {
        "u": field("laplace(u) - u*v + 0.1*dxy(u)", {"type": "random"}, boundaries=faces),
        "v": field("0.5*laplace(v) + u*v", {"type": "random", "seed": 1}),
    }
    times = {"steps": 7, "dt": 0.05, "scheme": "rk2", **time}
    walls = {"*": {"type": "neumann"}}
    it = config(fields, shape=(21, 12), boundaries=walls, time=times, precision=precision)
    return it.build()


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_methods_and_partitions_have_the_same_bits(precision: str) -> None:
    problem = driven(precision)
    alone, _ = solved(problem, ComputeSection(method="cpu.plain", threads=1))
    near = run(problem)
    np.testing.assert_allclose(alone, near, atol=1e-13 if precision == "float64" else 1e-5)
    parts = ComputeSection(method="cpu.plain", devices=("cpu",) * 3, threads=3)
    np.testing.assert_array_equal(solved(problem, parts)[0], alone)
    np.testing.assert_array_equal(run_problem(problem, "cpu.stream", 2), alone)


def test_a_gpu_has_the_bits_of_a_cpu() -> None:
    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    problem = driven()
    stepper = GpuPlain().prepare(problem, Slab.whole(problem.grid), {}, HostGpu())
    stepper.load(problem.initial)
    stepper.advance(problem.steps)
    np.testing.assert_array_equal(stepper.interior(), run_problem(problem, "cpu.plain", 1))
    stepper.close()
    fused = next(it for it in GPU_METHODS if it.name == "gpu.stream")
    assert "faces change with time" in str(fused.refusal(problem))
    assert METHODS[0].refusal(problem) is None


def test_a_wave_is_driven_at_its_end() -> None:
    """W = sin(t - x) runs along at speed 1: in from x-, out at x+."""
    walls = {
        "x-": {"type": "dirichlet", "value": "sin(t)"},
        "x+": {"type": "dirichlet", "value": "sin(t - 6)"},
    }
    section = second("laplace(w)", "-sin(x)")
    section["initial_velocity"] = {"type": "expression", "expression": "cos(x)"}
    problem = config(
        {"w": section}, shape=(120,), size=(6.0,), boundaries=walls, time={"t_end": 4.0}
    ).build()
    exact = np.sin(4.0 - problem.grid.coordinates(0, 0, 120))
    assert float(np.abs(run(problem)[0] - exact).max()) < 2e-3


@pytest.mark.parametrize(
    ("equation", "face", "message"),
    [
        ("laplace(u - laplace(u))", {"type": "dirichlet", "value": "t"}, "changes with time"),
        ("laplace(u)", {"type": "dirichlet", "value": "t*y"}, "formulas of t"),
        ("laplace(u)", {"type": "robin", "h": "1 + t", "ambient": 0}, "formulas of t"),
    ],
)
def test_faces_that_cannot_be_are_refused(equation: str, face: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config({"u": field(equation, SINE)}, boundaries={"*": face}).build()
