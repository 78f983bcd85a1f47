"""Every operator differentiates with the order asked for, and in few operations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.pde_cases import config, field, second
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import ConfigError
from tetris_sim.model import reference
from tetris_sim.model.program import Instruction
from tetris_sim.model.slab import Slab

PLAIN = METHODS[-1]
A, B, C = 2 * math.pi, 4 * math.pi, 2 * math.pi
WAVE_1 = "sin(2*pi*x/Lx + 0.3)"
WAVE_2 = "sin(2*pi*x + 0.3)*cos(4*pi*y - 0.2)"
WAVE_3 = "sin(2*pi*x + 0.3)*cos(4*pi*y - 0.2)*sin(2*pi*z + 0.1)"
# operator -> its value at the plane wave, x, y -> number
SX, CX = "sin(2*pi*x + 0.3)", "cos(2*pi*x + 0.3)"
TRUTH_1 = {
    "laplace(u)": f"-4*pi**2*{SX}",
    "dx(u)": f"2*pi*{CX}",
    "dxx(u)": f"-4*pi**2*{SX}",
    "grad_squared(u)": f"(2*pi*{CX})**2",
    "biharmonic(u)": f"16*pi**4*{SX}",
    "laplace(laplace(u))": f"16*pi**4*{SX}",
    "dx(dx(u)*u)": f"4*pi**2*({CX}**2 - {SX}**2)",
    "div_grad(2 + cos(2*pi*x), u)": (f"-4*pi**2*((2 + cos(2*pi*x))*{SX} + sin(2*pi*x)*{CX})"),
    "div_grad(u, u)": f"4*pi**2*({CX}**2 - {SX}**2)",
    "advect(2 + cos(2*pi*x), u)": f"(2 + cos(2*pi*x))*2*pi*{CX}",
    "laplace(u**2)": f"8*pi**2*({CX}**2 - {SX}**2)",
}
SY, CY = "sin(4*pi*y - 0.2)", "cos(4*pi*y - 0.2)"
TRUTH_2 = {
    "laplace(u)": f"-(4 + 16)*pi**2*{SX}*{CY}",
    "dx(u)": f"2*pi*{CX}*{CY}",
    "dy(u)": f"-4*pi*{SX}*{SY}",
    "dxx(u)": f"-4*pi**2*{SX}*{CY}",
    "dyy(u)": f"-16*pi**2*{SX}*{CY}",
    "dxy(u)": f"-8*pi**2*{CX}*{SY}",
    "grad_squared(u)": f"(2*pi*{CX}*{CY})**2 + (4*pi*{SX}*{SY})**2",
    "biharmonic(u)": f"400*pi**4*{SX}*{CY}",
    "laplace(laplace(u))": f"400*pi**4*{SX}*{CY}",
    "dx(dy(u)*u)": f"-4*pi*{SY}*{CY}*2*2*pi*{SX}*{CX}",
    "div_grad(2 + cos(2*pi*x), u)": (
        f"(2 + cos(2*pi*x))*-20*pi**2*{SX}*{CY} - 2*pi*sin(2*pi*x)*2*pi*{CX}*{CY}"
    ),
    "div_grad(u, u)": (f"-20*pi**2*({SX}*{CY})**2 + (2*pi*{CX}*{CY})**2 + (4*pi*{SX}*{SY})**2"),
    "advect(2, cos(2*pi*x), u)": f"4*pi*{CX}*{CY} - 4*pi*cos(2*pi*x)*{SX}*{SY}",
    "laplace(u**2)": (f"2*(-20*pi**2*({SX}*{CY})**2 + (2*pi*{CX}*{CY})**2 + (4*pi*{SX}*{SY})**2)"),
}
SZ, CZ = "sin(2*pi*z + 0.1)", "cos(2*pi*z + 0.1)"
SLOPES_3 = f"((2*pi*{CX}*{CY}*{SZ})**2 + (4*pi*{SX}*{SY}*{SZ})**2 + (2*pi*{SX}*{CY}*{CZ})**2)"
TRUTH_3 = {
    "laplace(u)": f"-24*pi**2*{SX}*{CY}*{SZ}",
    "dx(u)": f"2*pi*{CX}*{CY}*{SZ}",
    "dy(u)": f"-4*pi*{SX}*{SY}*{SZ}",
    "dxx(u)": f"-4*pi**2*{SX}*{CY}*{SZ}",
    "dyy(u)": f"-16*pi**2*{SX}*{CY}*{SZ}",
    "dxy(u)": f"-8*pi**2*{CX}*{SY}*{SZ}",
    "grad_squared(u)": SLOPES_3,
    "laplace(laplace(u))": f"24**2*pi**4*{SX}*{CY}*{SZ}",
    "div_grad(u, u)": f"{SLOPES_3} - 24*pi**2*({SX}*{CY}*{SZ})**2",
    "laplace(u**2)": f"2*({SLOPES_3} - 24*pi**2*({SX}*{CY}*{SZ})**2)",
    "dz(u)": f"2*pi*{SX}*{CY}*{CZ}",
    "dzz(u)": f"-4*pi**2*{SX}*{CY}*{SZ}",
    "dxz(u)": f"4*pi**2*{CX}*{CY}*{CZ}",
    "dyz(u)": f"-8*pi**2*{SX}*{SY}*{CZ}",
    "biharmonic(u)": f"24**2*pi**4*{SX}*{CY}*{SZ}",
    "div_grad(2 + cos(2*pi*x), u)": (
        f"((2 + cos(2*pi*x))*-24*pi**2*{SX} - 4*pi**2*sin(2*pi*x)*{CX})*{CY}*{SZ}"
    ),
    "advect(1, 2, -3, u)": (f"2*pi*{CX}*{CY}*{SZ} - 8*pi*{SX}*{SY}*{SZ} - 6*pi*{SX}*{CY}*{CZ}"),
}


def error(operator: str, truth: str, wave: str, n: int, ndim: int, **model: Any) -> float:
    """The largest difference after a step of 1 s of du/dt = operator - truth."""
    shape = (n, 2 * n, n)[:ndim]
    problem = config(
        {"u": field(f"{operator} - ({truth})", wave)},
        shape=shape,
        size=(1.0, 1.0, 1.0)[:ndim],
        time={"steps": 1, "dt": 1.0},
        allow_growth=True,
        **model,
    ).build()
    u = problem.initial(Slab.whole(problem.grid))
    return float(np.abs(reference.advance(u, problem, 1) - u).max())


def order(operator: str, truth: str, wave: str, ndim: int, n: int, **model: Any) -> float:
    coarse, fine = (error(operator, truth, wave, k, ndim, **model) for k in (n, 2 * n))
    return math.log2(coarse / fine)


@pytest.mark.parametrize("accuracy", [2, 4])
@pytest.mark.parametrize("operator", [*TRUTH_1])
def test_operators_in_1d_have_their_order(operator: str, accuracy: int) -> None:
    found = order(operator, TRUTH_1[operator], SX, 1, 48, accuracy=accuracy, advection="central")
    assert accuracy - 0.2 < found < accuracy + 0.3


@pytest.mark.parametrize("accuracy", [2, 4])
@pytest.mark.parametrize("operator", [*TRUTH_2])
def test_operators_in_2d_have_their_order(operator: str, accuracy: int) -> None:
    found = order(
        operator, TRUTH_2[operator], WAVE_2, 2, 24, accuracy=accuracy, advection="central"
    )
    assert accuracy - 0.35 < found < accuracy + 0.6


@pytest.mark.parametrize("accuracy", [2, 4])
@pytest.mark.parametrize("operator", [*TRUTH_3])
def test_operators_in_3d_have_their_order(operator: str, accuracy: int) -> None:
    found = order(
        operator, TRUTH_3[operator], WAVE_3, 3, 12, accuracy=accuracy, advection="central"
    )
    assert accuracy - 0.5 < found < accuracy + 0.7


def test_upwind_has_first_order_and_looks_upstream() -> None:
    operator = "advect(2, cos(2*pi*x), u)"
    assert 0.8 < order(operator, TRUTH_2[operator], WAVE_2, 2, 32) < 1.2
    operator = "advect(2 + cos(2*pi*x), u)"
    assert 0.8 < order(operator, TRUTH_1[operator], SX, 1, 48) < 1.2
    operator = "advect(1, 2, -3, u)"
    assert 0.8 < order(operator, TRUTH_3[operator], WAVE_3, 3, 16) < 1.2

    problem = config(
        {"u": field("-advect(1, u)", "1 if x < 5 else 0")},
        shape=(10,),
        boundaries={"*": {"type": "neumann"}},
        time={"steps": 1, "dt": 1.0},
    ).build()
    u = problem.initial(Slab.whole(problem.grid))
    expected = np.where(np.arange(10) < 6, 1.0, 0.0)
    np.testing.assert_array_equal(reference.advance(u, problem, 1)[0], expected)


def test_stencils_of_the_catalogue_are_operators() -> None:
    problem = config(
        {"u": field("mean_2d9p(u) - u", "sin(2*pi*x/Lx)*cos(2*pi*y/Ly)")},
        time={"steps": 1, "dt": 1.0},
        allow_growth=True,
    ).build()
    u = problem.initial(Slab.whole(problem.grid))
    mean = sum(np.roll(u, (i, j), (1, 2)) for i in (-1, 0, 1) for j in (-1, 0, 1)) / 9
    np.testing.assert_allclose(reference.advance(u, problem, 1), mean, atol=1e-14)


def test_gray_scott_takes_17_operations() -> None:
    """Both fields: what decides how fast it is where memory does not."""
    problem = config(
        {
            "u": field("Du*laplace(u) - u*v**2 + F*(1 - u)", 1.0),
            "v": field("Dv*laplace(v) + u*v**2 - (F + k)*v", 0.1),
        },
        constants={"F": 0.04, "k": 0.06, "Du": 0.16, "Dv": 0.08},
    ).build()
    assert problem.equations is not None
    assert problem.equations.n_operations == 17
    assert len(problem.equations.stages) == 1


def test_a_changed_constant_changes_parameters_and_nothing_else() -> None:
    def programs(k: float, h: float) -> tuple[tuple[Instruction, ...], ...]:
        problem = config(
            {"u": field("k*laplace(u) - u/(2*k) + k/h2*dx(u)*where(x < 3, k, 1)", 0.0)},
            constants={"k": k, "h2": h},
            shape=(12,),
        ).build()
        assert problem.equations is not None
        return tuple(stage.programs.instructions for stage in problem.equations.stages)

    assert programs(0.25, 1.0) == programs(0.1, 3.0)
    assert "divide" not in {it.operation for it in programs(0.1, 3.0)[0]}


@pytest.mark.parametrize("shape", [(48,), (14, 12)])
def test_waves_keep_their_energy_for_a_hundred_thousand_steps(shape: tuple[int, ...]) -> None:
    steps = 100_000
    problem = config(
        {"w": second("c**2*laplace(w)", "exp(-50*(x/Lx - 0.4)**2)")},
        constants={"c": 2.0},
        shape=shape,
        time={"steps": steps, "dt": "auto"},
    ).build()
    u = problem.initial(Slab.whole(problem.grid))

    def energy(now: np.ndarray, before: np.ndarray) -> float:
        """Of leapfrog, exactly kept: velocity^2 between two times, and slopes of both."""
        speed = (now[0] - before[0]) / problem.dt
        both = [(now[0], before[0], axis) for axis in range(len(shape))]
        slopes = [(np.roll(a, 1, k) - a) * (np.roll(b, 1, k) - b) for a, b, k in both]
        return float((speed**2 + 4.0 * sum(slopes)).sum())

    after = reference.advance(u, problem, 1)
    begin = energy(after, u)
    team = ThreadTeam(1)
    try:
        stepper = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, team)
        stepper.load(problem.initial)
        stepper.advance(steps - 1)
        late = stepper.interior()
    finally:
        team.close()
    end = energy(reference.advance(late, problem, 1, first=steps - 1), late)
    assert abs(end - begin) < 1e-10 * begin


def test_cahn_hilliard_keeps_its_mass() -> None:
    problem = config(
        {
            "c": field(
                "laplace(c**3 - c - laplace(c))",
                {"type": "random", "low": -0.1, "high": 0.1, "seed": 3},
            )
        },
        shape=(20, 16),
        boundaries={"x": {"type": "periodic"}, "y": {"type": "neumann"}},
        time={"steps": 900, "dt": "auto"},
    ).build()
    u = problem.initial(Slab.whole(problem.grid))
    v = reference.advance(u, problem, 900)
    assert abs(v).max() > 2 * abs(u).max()
    assert abs(v.sum() - u.sum()) < 900 * 1e-16 * abs(v).sum()


def test_one_sided_differences_and_shifts_read_their_neighbours() -> None:
    """The same as Perona and Malik's scheme by hand, and as a difference of shifts."""
    flow = "dx_minus(dx_plus(u)/(1 + dx_plus(u)**2)) + dy_minus(dy_plus(u)/(1 + dy_plus(u)**2))"
    east, north = "(shift(u, 1, 0) - u)/hx", "(shift(u, 0, n) - u)/hy"
    fields = {
        "u": field(flow, {"type": "random"}),
        "v": field("shift(u**2, -2, 1) - shift(laplace(u), 1, 0)", 0.0),
        "w": field(f"{east} - dx_plus(u) + {north} - dy_plus(u)", 0.0),
    }
    problem = config(
        fields,
        shape=(12, 10),
        size=(6.0, 2.5),
        constants={"hx": 0.5, "hy": 0.25, "n": 1},
        time={"steps": 1, "dt": 1e-3, "scheme": "euler"},
    ).build()
    start = problem.initial(Slab.whole(problem.grid))
    u = start[0]
    rate = (reference.advance(start, problem, 1) - start) / problem.dt

    expected = np.zeros_like(u)
    for axis, h in ((1, 0.5), (0, 0.25)):
        slope = (np.roll(u, -1, axis) - u) / h
        through = slope / (1 + slope**2)
        expected += (through - np.roll(through, 1, axis)) / h
    np.testing.assert_allclose(rate[0], expected, atol=1e-10)

    lap = sum((np.roll(u, k, a) - u) / h**2 for a, h in ((1, 0.5), (0, 0.25)) for k in (1, -1))
    moved = np.roll(u**2, (-1, 2), (0, 1)) - np.roll(lap, -1, 1)
    np.testing.assert_allclose(rate[1], moved, atol=1e-10)
    np.testing.assert_allclose(rate[2], 0, atol=1e-10)


@pytest.mark.parametrize("shift", ["shift(u, 0.5, 0)", "shift(u, x, 0)", "shift(u, 9, 0)"])
def test_shifts_are_whole_numbers_of_points(shift: str) -> None:
    with pytest.raises(ConfigError, match="reads u some whole points away"):
        config({"u": field(shift, 0.0)}).build()
