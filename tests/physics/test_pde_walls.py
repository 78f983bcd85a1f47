"""Faces that are more than mirrors: walls that stop all that flows, ends of beams, formulas of
places and of other fields, fourth order beside faces.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.pde_cases import affine, config, field, steady_error
from tetris_sim.api.arrays import run_problem
from tetris_sim.api.pde import solve_pde
from tetris_sim.errors import ConfigError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model import reference
from tetris_sim.model.boundary import CLAMPED, Boundary, Neumann, NoFlux
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

STOPPED: dict[str, Any] = {"*": {"type": "no_flux"}}
HELD: dict[str, Any] = {"type": "dirichlet", "value": 0}


def run(problem: Problem) -> tuple[Field, Field]:
    start = problem.initial(Slab.whole(problem.grid))
    return start, reference.advance(start, problem, problem.steps)


def rest(equation: str, n: int, **model: Any) -> npt.NDArray[np.float64]:
    """What a field of mean 1 between walls becomes."""
    problem = config(
        {"c": field(equation, 1.0)},
        shape=(n,),
        size=(1.0,),
        boundaries=STOPPED,
        time={"t_end": 0.9, "dt": "auto", "scheme": "rk4"},
        **model,
    ).build()
    _, c = run(problem)
    assert abs(c.mean() - 1) < 1e-13
    return np.asarray(c[0])


def drifted(n: int) -> npt.NDArray[np.float64]:
    x = (np.arange(n) + 0.5) / n
    return np.asarray(2 * np.exp(-2 * x) / (1 - math.exp(-2)))


@pytest.mark.parametrize(
    "equation",
    [
        "D*dxx(c)+v*dx(c)",
        "dx(D*dx(c) + v*c)",
        "div_grad(D, c) - flux(-v*c, limiter: van_leer)",
        "D*laplace(c) + 2*dx(exp(0*x)*c)",
        "dx(c*dx(log(c) + v*x))",
        "div_grad(c, v*x, mean: arithmetic) - (-1)*laplace(c)",
    ],
)
@pytest.mark.parametrize("accuracy", [2, 4])
def test_a_wall_stops_drift_and_diffusion_together(equation: str, accuracy: int) -> None:
    constants = {"D": 1, "v": 2}
    coarse, fine = (
        float(np.abs(rest(equation, n, constants=constants, accuracy=accuracy) - drifted(n)).max())
        for n in (8, 16)
    )
    assert fine < 4e-3
    assert math.log2(coarse / fine) > 1.7


def test_walls_keep_what_is_between_them_along_two_axes() -> None:
    """A cloud that settles, is carried along and follows another field, in a box of four walls."""
    cloud = field(
        "laplace(c) + dy(3*c) - flux(2*c, 0, c, limiter: minmod) - div_grad(c, s) + dx(dy(c))/9",
        "1 + x*y",
        boundaries={"x": {"type": "no_flux"}, "y-": {"type": "no_flux"}},
    )
    problem = config(
        {"c": cloud, "s": field("laplace(s) + c - s", "x")},
        shape=(14, 11),
        size=(1.0, 1.0),
        boundaries={"*": {"type": "neumann"}},
        time={"steps": 40, "dt": "auto"},
    )
    with pytest.raises(ConfigError, match=r"dxy|both axes"):
        config({"c": {**cloud, "equation": "dxy(c)"}}, shape=(14, 11), boundaries=STOPPED).build()
    cloud["boundaries"]["y+"] = {"type": "no_flux"}
    cloud["equation"] = cloud["equation"].replace(" + dx(dy(c))/9", "")
    start, end = run(problem.build())
    assert np.abs(end - start)[0].max() > 0.1
    problem = config(
        {"c": cloud, "s": field("laplace(s) + c - s", "x")},
        shape=(14, 11),
        size=(1.0, 1.0),
        boundaries={"*": {"type": "neumann"}},
        time={"steps": 40, "dt": "auto"},
    )
    start, end = run(problem.build())
    assert abs(end[0].sum() - start[0].sum()) < 1e-12


@pytest.mark.parametrize(
    ("equation", "told"),
    [
        ("x*laplace(c)", "is not the divergence of one"),
        ("c*dx(c)", "is not the divergence of one"),
        ("laplace(c) + grad_squared(c)", "is not the divergence of one"),
        ("laplace(c) - advect(x, c)", r"write flux\(v\*c, c\) for advect"),
    ],
)
def test_a_wall_refuses_what_it_cannot_stop(equation: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config({"c": field(equation, 1.0)}, shape=(20,), boundaries=STOPPED).build()


def test_other_equations_do_not_read_beyond_a_wall() -> None:
    fields = {
        "c": field("laplace(c)", 1.0, boundaries=STOPPED),
        "s": field("laplace(c)", 1.0),
    }
    with pytest.raises(ConfigError, match="make this face no_flux for s too"):
        config(fields, shape=(20,), boundaries={"*": {"type": "neumann"}}).build()


ENDS = {"c": {"type": "clamped"}, "s": {"type": "supported"}, "f": {"type": "free"}}


@pytest.mark.parametrize("accuracy", [2, 4])
@pytest.mark.parametrize("equation", ["-biharmonic(u)", "-dxx(k*dxx(u))/k"])
@pytest.mark.parametrize(
    ("ends", "frequency"),
    [("cf", 3.5160152685), ("cc", 22.373285448), ("ss", math.pi**2), ("cs", 15.41820572),
     ("ff", 22.373285448)],
)  # fmt: skip
def test_beams_swing_at_their_frequencies(
    ends: str, frequency: float, equation: str, accuracy: int
) -> None:
    errors = []
    for n in (12, 24):
        problem = config(
            {"u": field("v", 0.0), "v": field(equation, 0.0)},
            constants={"k": 2},
            shape=(n,),
            size=(1.0,),
            boundaries={"x-": ENDS[ends[0]], "x+": ENDS[ends[1]]},
            accuracy=accuracy,
            time={"steps": 1, "dt": 1e-7, "scheme": "euler"},
            allow_growth=True,
        ).build()
        swings = np.linalg.eigvals(affine(problem)[0])
        # Nothing grows; a free beam may move and turn besides.
        assert swings.real.max() < 1e-6 * np.abs(swings).max()
        found = np.sort(np.abs(swings.imag))
        errors.append(abs(float(found[found > 0.05 * frequency][0]) / frequency - 1))
    assert math.log2(errors[0] / errors[1]) > accuracy - 0.7 or errors[1] < 1e-6
    assert errors[1] < (2.5e-3 if accuracy == 2 else 4e-5)


@pytest.mark.parametrize("scheme", ["rk4", "leapfrog"])
def test_a_cantilever_swings_for_a_period(scheme: str) -> None:
    """With the automatic step, which its clamped end shortens."""
    exact = 2 * math.pi / 3.5160152685
    k = 1.8751040687
    share = (math.cosh(k) + math.cos(k)) / (math.sinh(k) + math.sin(k))
    mode = f"cosh({k}*x) - cos({k}*x) - {share}*(sinh({k}*x) - sin({k}*x))"
    u: dict[str, Any] = {"initial": {"type": "expression", "expression": mode}}
    fields = (
        {"u": {**u, "second_order": "-biharmonic(u)"}}
        if scheme == "leapfrog"
        else {"u": {**u, "equation": "v"}, "v": field("-biharmonic(u)", 0.0)}
    )
    problem = config(
        fields,
        shape=(16,),
        size=(1.0,),
        boundaries={"x-": ENDS["c"], "x+": ENDS["f"]},
        time={"t_end": exact, "dt": "auto", "scheme": scheme},
    ).build()
    start, end = run(problem)
    assert np.abs(end[0] - start[0]).max() < 0.02


@pytest.mark.parametrize(
    ("equation", "exact", "walls"),
    [
        ("-biharmonic(u) + 24", "x**2*(1-x)**2", {"*": ENDS["c"]}),
        ("-biharmonic(u) + 24", "x**4 - 2*x**3 + x", {"*": ENDS["s"]}),
        # Values, slopes and curvatures that are not 0.
        (
            "-biharmonic(u) + exp(x)", "exp(x)",
            {"x-": {"type": "clamped", "value": 1, "slope": -1},
             "x+": {"type": "supported", "value": math.e, "curvature": "exp(1)"}},
        ),
        ("laplace(u) - 2", "x**2",
         {"x-": HELD, "x+": {"type": "robin", "h": "k/2", "ambient": "k + 1"}}),
        ("laplace(u) - exp(x) - u + exp(x)", "exp(x)",
         {"x-": {"type": "curvature", "curvature": 1}, "x+": {"type": "dirichlet", "value": "e"}}),
    ],
    ids=["clamped", "supported", "given", "robin", "curvature"],
)  # fmt: skip
def test_faces_of_derivatives_have_second_order(equation: str, exact: str, walls: Any) -> None:
    errors = [
        steady_error(equation, exact, n, boundaries=walls, constants={"k": 2}) for n in (16, 32)
    ]
    assert math.log2(errors[0] / errors[1]) > 1.75 or errors[1] < 1e-12


@pytest.mark.parametrize(
    ("equation", "exact", "walls"),
    [
        ("laplace(u) - exp(x)", "exp(x)",
         {"x-": {"type": "dirichlet", "value": 1}, "x+": {"type": "neumann", "flux": math.e}}),
        ("laplace(u) - exp(x)", "exp(x)",
         {"x-": {"type": "robin", "h": 2, "ambient": 0.5},
          "x+": {"type": "dirichlet", "value": "exp(1) + 0*t"}}),
        ("div_grad(1+x, u) - (2+x)*exp(x)", "exp(x)",
         {"x-": {"type": "neumann", "flux": "-1"}, "x+": {"type": "dirichlet", "value": math.e}}),
        ("dxx(u) + 3*dx(u) - 4*exp(x)", "exp(x)",
         {"x-": {"type": "dirichlet", "value": 1}, "x+": {"type": "dirichlet", "value": "1*e"}}),
        ("-biharmonic(u) + exp(x)", "exp(x)",
         {"x-": {"type": "clamped", "value": 1, "slope": -1},
          "x+": {"type": "clamped", "value": "e", "slope": "e"}}),
    ],
    ids=["held", "robin", "flow", "carried", "clamped"],
)  # fmt: skip
def test_accuracy_4_is_of_fourth_order_beside_faces(equation: str, exact: str, walls: Any) -> None:
    errors = [steady_error(equation, exact, n, boundaries=walls, accuracy=4) for n in (12, 24)]
    assert math.log2(errors[0] / errors[1]) > 3.5


@pytest.mark.parametrize("accuracy", [2, 4])
def test_faces_take_formulas_of_place_time_and_constants(accuracy: int) -> None:
    """U = exp(-t) sin(a x) cosh(b y) with a^2 - b^2 = 1, given on all four faces."""
    exact = "exp(-t)*sin(a*x)*cosh(b*y)"
    walls = {
        "x-": {"type": "dirichlet", "value": 0},
        "x+": {"type": "dirichlet", "value": exact},
        "y-": {"type": "neumann", "flux": 0},
        "y+": {"type": "neumann", "flux": "b*exp(-t)*sin(a*x)*sinh(b*y)"},
    }
    errors = []
    for n in (12, 20):
        problem = config(
            {"u": field("laplace(u)", "sin(1.25*x)*cosh(0.75*y)")},
            constants={"a": 1.25, "b": 0.75},
            shape=(n, n),
            size=(1.0, 1.0),
            boundaries=walls,
            accuracy=accuracy,
            time={"t_end": 0.06, "dt": 3e-4, "scheme": "rk4"},
        ).build()
        x = problem.grid.coordinates(1, 0, n)
        y = problem.grid.coordinates(0, 0, n)[:, None]
        right = math.exp(-0.06) * np.sin(1.25 * x) * np.cosh(0.75 * y)
        errors.append(float(np.abs(run(problem)[1][0] - right).max()))
    assert math.log2(errors[0] / errors[1]) / math.log2(20 / 12) > accuracy - 0.6


def test_faces_take_other_fields() -> None:
    """U = x v on the face x = 1 with v = exp(-t): what v is there is held by u."""
    errors = []
    for n in (8, 16):
        problem = config(
            {
                "u": field("laplace(u) - u", "x", boundaries={
                    "x-": HELD, "x+": {"type": "dirichlet", "value": "v*k"}}),
                "v": field("-v", 1.0),
            },
            constants={"k": "1*x"},
            shape=(n,),
            size=(1.0,),
            boundaries={"*": {"type": "neumann"}},
            time={"t_end": 0.3, "dt": 0.2 / n**2, "scheme": "rk4"},
        ).build()  # fmt: skip
        x = problem.grid.coordinates(0, 0, n)
        errors.append(float(np.abs(run(problem)[1][0] - math.exp(-0.3) * x).max()))
    assert errors[1] < 1e-9 or math.log2(errors[0] / errors[1]) > 1.8


def test_a_face_radiates_what_its_own_field_says() -> None:
    """Slope -u^4 at x = 1, u(0) = 1: u = 1 - s x with s = (1 - s)^4."""
    s = 0.27550804
    for _ in range(40):
        s -= (s - (1 - s) ** 4) / (1 + 4 * (1 - s) ** 3)
    walls = {"x-": {**HELD, "value": 1}, "x+": {"type": "neumann", "flux": "-u**4"}}
    problem = config(
        {"u": field("laplace(u)", 1.0)},
        shape=(16,),
        size=(1.0,),
        boundaries=walls,
        time={"t_end": 4.0, "dt": "auto"},
    ).build()
    x = problem.grid.coordinates(0, 0, 16)
    np.testing.assert_allclose(run(problem)[1][0], 1 - s * x, atol=1e-8)


def many_faces() -> Problem:
    clamped = {
        "x-": {"type": "clamped", "slope": "sin(y)*t"},
        "x+": {"type": "curvature", "curvature": "v"},
    }
    walled = {"y": {"type": "no_flux"}, "x+": {**HELD, "value": "y*t"}}
    return config(
        {
            "u": field("-0.01*biharmonic(u) + laplace(u) + dxy(u)", "x*y", boundaries=clamped),
            "v": field("laplace(v) + dy(0.3*v)", "x", boundaries=walled),
        },
        shape=(17, 13),
        boundaries={"*": {"type": "neumann"}},
        time={"steps": 4, "dt": 0.02, "scheme": "rk2"},
    ).build()


def test_methods_have_the_same_bits() -> None:
    problem = many_faces()
    alone = run_problem(problem, "cpu.plain", 1)
    np.testing.assert_allclose(alone, run(problem)[1], atol=1e-12)
    np.testing.assert_array_equal(run_problem(problem, "cpu.stream", 2), alone)

    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    stepper = GpuPlain().prepare(problem, Slab.whole(problem.grid), {}, HostGpu())
    stepper.load(problem.initial)
    stepper.advance(problem.steps)
    np.testing.assert_array_equal(stepper.interior(), alone)
    stepper.close()


def test_arrays_have_walls_and_ends_too() -> None:
    found = solve_pde(
        {"c": np.ones(20)}, {"c": "laplace(c) + dx(0.1*c)"}, 5, boundary=NoFlux(), dt=0.2
    )
    assert abs(found["c"].sum() - 20) < 1e-12
    assert found["c"][0] > 1 > found["c"][-1]
    ends = Boundary(((CLAMPED, Neumann()),))
    bent = solve_pde({"u": np.zeros(20)}, {"u": "1 - biharmonic(u)"}, 5, boundary=ends, dt=0.02)
    assert bent["u"][0] < bent["u"][1] < 0.1


def test_a_grid_has_enough_points_for_its_faces() -> None:
    with pytest.raises(ConfigError, match="3 points along x are too few"):
        config({"u": field("-biharmonic(u)", 0.0)}, shape=(3,), boundaries={"*": ENDS["c"]}).build()


def test_what_is_clamped_is_one_operator() -> None:
    with pytest.raises(ConfigError, match=r"write it as biharmonic"):
        config(
            {"u": field("-dxx((1+x)*dxx(u))", 0.0)}, shape=(20,), boundaries={"*": ENDS["c"]}
        ).build()
