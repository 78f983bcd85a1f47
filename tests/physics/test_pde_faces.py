"""Faces of equations that change with time: the numbers of constant ones, exact solutions, the same
bits by all methods.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.kernels.test_substeps import solved
from tests.support.config_cases import read
from tests.support.pde_cases import SINE, config, field, second, steady_error
from tetris_sim.api.arrays import run_problem
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.errors import ConfigError
from tetris_sim.gpu_kernels import METHODS as GPU_METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model import reference
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

_TILE_2D = (2, 3, 2, 2, 1, 2)
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
                {"u": field(formula, "sin(0.5*x) + cos(0.4*y) + sin(2*pi*z/Lz)")},
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
    assert METHODS[0].refusal(problem) is None


@pytest.mark.parametrize(
    ("shape", "names", "numbers"),
    [
        ((211,), ("steps_per_block", "columns", "blocks"), (4, 4, 2)),
        ((97, 61), ("steps_per_block", "rows", "columns", "warps", "blocks", "edges"), _TILE_2D),
        (
            (37, 15, 11),
            ("steps_per_block", "rows", "across", "warps", "ahead", "blocks", "held"),
            (2, 3, 1, 4, 1, 1, 0),
        ),
    ],
    ids=["1d", "2d", "3d"],
)
def test_fused_steps_have_the_bits_of_single_ones(
    shape: tuple[int, ...], names: tuple[str, ...], numbers: tuple[int, ...]
) -> None:
    """Faces that change with time, and coefficients that are no mirror images beyond them."""
    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    fused = next(it for it in GPU_METHODS if it.name == "gpu.stream")
    walls = {"x-": {"type": "dirichlet", "value": "t"}, "*": {"type": "neumann", "flux": "1 - t"}}
    problem = config(
        {"u": field("div_grad(2 + sin(x), u) + 0.1*dx(cos(x)*u)", {"type": "random"})},
        shape=shape,
        boundaries=walls,
        time={"steps": 7, "dt": 0.02},
    ).build()
    assert problem.equations is not None
    assert len(problem.equations.outside) > 3
    found = []
    for method, parameters in ((fused, dict(zip(names, numbers, strict=True))), (GpuPlain(), {})):
        gpu = HostGpu()
        stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
        stepper.load(problem.initial)
        for steps in (4, 3):
            stepper.advance(steps)
        found.append(stepper.interior())
        stepper.close()
        if method is fused:
            assert f"equations_{len(shape)}d" in gpu.launches
    np.testing.assert_array_equal(found[0], found[1])


HELD: dict[str, Any] = {"type": "dirichlet", "value": 0}
SLOPE = 1 / (2 * math.log(2))


@pytest.mark.parametrize(
    ("equation", "exact", "walls"),
    [
        ("div_grad(1+x, u)", "log(1+x)/log(2)", {"x+": {"type": "neumann", "flux": SLOPE}}),
        (
            "div_grad(1+x, u)",
            "log(1+x)/log(2)",
            {"x+": {"type": "robin", "h": 1, "ambient": 1 + SLOPE}},
        ),
        # The slope at the face is that of a formula of time, and the coefficient one of both.
        (
            "div_grad((1+x)*(1+t), u)",
            "log(1+x)/log(2)",
            {"x+": {"type": "neumann", "flux": f"{SLOPE} + 0*t"}},
        ),
        ("div_grad(exp(-x), u)", "exp(x) - 1", {"x+": {"type": "neumann", "flux": math.e}}),
        ("div_grad(1+x, u, mean: harmonic)", "log(1+x)/log(2)", {"x+": {**HELD, "value": 1}}),
        (
            "div_grad(1+x, u, mean: harmonic)",
            "log(1+x)/log(2)",
            {"x+": {"type": "neumann", "flux": SLOPE}},
        ),
        # Other operators that read a coefficient beyond the face.
        (
            "dxx(u) + dx((2+x)*u) - (2+2*x)",
            "x",
            {"x+": {"type": "neumann", "flux": 1}},
        ),
        (
            "laplace((1+x)*u) - (2+6*x)",
            "x*x",
            {"x+": {"type": "robin", "h": 1, "ambient": 3}},
        ),
    ],
)
def test_coefficients_have_second_order_at_faces(equation: str, exact: str, walls: Any) -> None:
    boundaries = {"x-": HELD, **walls}
    errors = [steady_error(equation, exact, n, boundaries=boundaries) for n in (20, 40, 80)]
    assert math.log2(errors[1] / errors[2]) > 1.8 or errors[2] < 1e-12
    assert errors[2] < 2e-4


def test_the_flux_through_a_face_has_the_coefficient_of_the_face() -> None:
    """In 2D, at all four faces; the quoted numbers of 1D are errors of 4.4e-4, 1.1e-4, 2.8e-5."""
    walls = {"x-": HELD, "x+": {"type": "neumann", "flux": SLOPE}}
    errors = [
        steady_error("div_grad(1+x, u)", "log(1+x)/log(2)", n, boundaries=walls)
        for n in (20, 40, 80)
    ]
    np.testing.assert_allclose(errors, [4.434662e-4, 1.117800e-4, 2.806078e-5], rtol=1e-6)

    exact = "exp(x) + exp(y)"
    low, high = ({"type": "neumann", "flux": it} for it in (-1, math.e))
    faces = {"x-": low, "y-": low, "x+": high, "y+": high}
    source = "(2+y)*(2+x)*exp(x) + (1+x)*(3+y)*exp(y)"
    equation = f"div_grad((1+x)*(2+y), u) - ({source}) - u + {exact}"
    coarse, fine = (
        steady_error(equation, exact, n, size=(1.0, 1.0), boundaries=faces) for n in (8, 16)
    )
    assert math.log2(coarse / fine) > 1.8


@pytest.mark.parametrize(
    ("k", "exact", "size"),
    [
        (
            "where(x > 2.5 and x < 7.5, 0.1, 1)",
            "where(x < 2.5, x, where(x < 7.5, 2.5 + 10*(x-2.5), 52.5 + x-7.5))/55",
            10.0,
        ),
        ("where(x < 0.5, 1, 1000)", "where(x < 0.5, x, 0.5 + (x-0.5)/1000)/0.5005", 1.0),
        ("1 + 4*heaviside(x - 0.25)", "where(x < 0.25, x, 0.25 + (x-0.25)/5)/0.4", 1.0),
        # The coefficient is a product of jumps and of a function that is smooth elsewhere.
        ("(1+x)*where(x < 0.5, 1, 3)", None, 1.0),
    ],
)
def test_the_harmonic_mean_is_right_where_the_coefficient_jumps(
    k: str, exact: str | None, size: float
) -> None:
    walls = {"x-": HELD, "x+": {"type": "dirichlet", "value": 1}}
    if exact is None:
        whole = math.log(1.5) + math.log(2 / 1.5) / 3
        exact = f"where(x < 0.5, log(1+x), log(1.5) + log((1+x)/1.5)/3)/{whole}"
    errors = {
        mean: [
            steady_error(
                f"div_grad({k}, u, mean: {mean})", exact, n, size=(size,), boundaries=walls
            )
            for n in (20, 40)
        ]
        for mean in ("arithmetic", "harmonic")
    }
    coarse, fine = errors["harmonic"]
    assert fine < 1e-12 or math.log2(coarse / fine) > 1.8
    assert 0.7 < math.log2(errors["arithmetic"][0] / errors["arithmetic"][1]) < 1.3
    assert fine < errors["arithmetic"][1] / 20


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
        ("laplace(u)", {"type": "robin", "h": "1 + t", "ambient": 0}, "a formula of constants"),
    ],
)
def test_faces_that_cannot_be_are_refused(equation: str, face: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config({"u": field(equation, SINE)}, boundaries={"*": face}).build()


ORIGIN = """\
grid: {shape: [24], size: [1.2], origin: {x: OFF}}
model:
  type: pde
  accuracy: ORDER
  fields: {u: {equation: "EQUATION", initial: {type: expression, expression: "sin(7*(x - (OFF))) + 1"}}}
boundaries: {"*": {FACE}}
time: {steps: 60, dt: STEP, scheme: rk4}
"""


@pytest.mark.parametrize(
    ("equation", "face", "order", "dt"),
    [
        ("0.1*laplace(u)", "type: dirichlet, value: 1", "4", "2.0e-3"),
        ("0.1*laplace(u) + dx(u)", "type: no_flux", "2", "2.0e-3"),
        ("-biharmonic(u)", "type: clamped, value: 1", "2", "2.0e-7"),
    ],
)
def test_faces_are_where_the_origin_of_the_grid_puts_them(
    equation: str, face: str, order: str, dt: str
) -> None:
    text = ORIGIN.replace("EQUATION", equation).replace("FACE", face).replace("ORDER", order)
    found = [
        run(read(text.replace("STEP", dt).replace("OFF", origin)).build())
        for origin in ("0.0", "-0.6", "3.0")
    ]
    assert np.abs(found[0] - found[0].mean()).max() > 0.01
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found[2], found[0], rtol=0, atol=1e-11)
