"""Conservation laws: shocks have their speed, smooth waves their order, nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.pde_cases import config, field
from tetris_sim.api.arrays import run_problem
from tetris_sim.api.pde import solve_pde
from tetris_sim.apps.pde.model import PdeModel
from tetris_sim.errors import ConfigError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model import reference
from tetris_sim.model.boundary import Periodic
from tetris_sim.model.slab import Slab

LIMITERS = ("none", "minmod", "van_leer", "superbee", "weno5")
OPEN: dict[str, Any] = {"*": {"type": "neumann"}}
Values = npt.NDArray[np.float64]


def run(
    equation: str, initial: str, n: int, t_end: float, **more: Any
) -> tuple[Values, Values, Values]:
    """(x, u at the start, u at the end) on the unit interval."""
    time = {"t_end": t_end, "dt": more.pop("dt", "auto")}
    time |= {"scheme": more.pop("scheme")} if "scheme" in more else {}
    given = {"boundaries": OPEN, "time": time, **more}
    problem = config({"u": field(equation, initial)}, shape=(n,), size=(1.0,), **given).build()
    start = problem.initial(Slab.whole(problem.grid))
    end = reference.advance(start, problem, problem.steps)
    return problem.grid.coordinates(0, 0, n), start[0], end[0]


def variation(u: Values) -> float:
    return float(np.abs(np.diff(u)).sum())


@pytest.mark.parametrize("limiter", LIMITERS)
@pytest.mark.parametrize(
    ("flux", "initial", "t_end", "front", "inflow"),
    [
        ("u**2/2", "where(x < 0.3, 1, 0)", 0.3, 0.45, 0.5),
        # Two lanes of traffic: the end of a jam, which does not move.
        ("u*(1 - u)", "where(x < 0.5, 0.2, 0.8)", 0.3, 0.5, 0.0),
        # Buckley-Leverett: a shock from 0 to sqrt(1/2) at (1 + sqrt 2)/2, behind it a rarefaction.
        ("u**2/(u**2 + (1 - u)**2)", "where(x < 0.1, 1, 0)", 0.5, 0.1 + (1 + 2**0.5) / 4, 1.0),
        # Burgers backwards, and a shock between states of both signs.
        ("u**2/2", "where(x < 0.4, 1.5, -0.5)", 0.4, 0.6, 1.0),
    ],
    ids=["burgers", "traffic", "buckley", "signs"],
)
def test_shocks_have_their_speed(
    limiter: str, flux: str, initial: str, t_end: float, front: float, inflow: float
) -> None:
    n = 100
    x, start, end = run(f"-flux({flux}, limiter: {limiter})", initial, n, t_end)
    low, high = min(start[0], start[-1]), max(start[0], start[-1])
    behind = 2**-0.5 if "(1 - u)**2" in flux else start[0]
    nearest = x[np.argmin(np.abs(end - (behind + start[-1]) / 2))]
    assert abs(nearest - front) <= 1.6 / n

    assert variation(end) <= variation(start) * (1 + 1e-11)
    assert low - 1e-12 <= end.min()
    assert end.max() <= high + 1e-12
    gained = t_end * inflow * (1.0 if inflow else 0.0)
    assert abs((end - start).mean() - gained) < 1e-13


@pytest.mark.parametrize(
    ("limiter", "worst"), [("none", 0.025), ("minmod", 8e-3), ("van_leer", 6e-3), ("weno5", 9e-3)]
)
def test_a_rarefaction_passes_the_sonic_point(limiter: str, worst: float) -> None:
    x, _, u = run(f"-flux(u**2/2, u, limiter: {limiter})", "where(x < 0.5, -1, 1)", 100, 0.3)
    assert np.abs(u - np.clip((x - 0.5) / 0.3, -1, 1)).mean() < worst
    assert np.diff(u).min() > -1e-13


def burgers(x: Values, t: float) -> Values:
    u = np.ones_like(x)
    for _ in range(60):  # a contraction by pi t
        u = 1 + 0.5 * np.sin(2 * np.pi * (x - u * t))
    return u


@pytest.mark.parametrize(
    ("equation", "initial", "exact"),
    [
        ("-flux(u", "sin(2*pi*x)", lambda x, t: np.sin(2 * np.pi * (x - t))),
        ("flux(2*u", "sin(2*pi*x)", lambda x, t: np.sin(2 * np.pi * (x + 2 * t))),
        ("0*u - (-cos(0*t))*2*flux(u, u", "sin(2*pi*x)",
         lambda x, t: np.sin(2 * np.pi * (x + 2 * t))),
        ("-flux(u**2/2", "1 + 0.5*sin(2*pi*x)", burgers),
        # What carries differs from place to place: u sin(2 pi x) + 2 u stays where it is constant.
        ("-flux((2 + sin(2*pi*x))*u, u", "1/(2 + sin(2*pi*x))",
         lambda x, t: 1 / (2 + np.sin(2 * np.pi * x))),
    ],
    ids=["right", "left", "signs", "burgers", "places"],
)  # fmt: skip
@pytest.mark.parametrize(("limiter", "order"), [("none", 1), ("van_leer", 2), ("weno5", 5)])
def test_smooth_waves_have_the_order_of_the_limiter(
    equation: str, initial: str, exact: Callable[[Values, float], Values], limiter: str, order: int
) -> None:
    errors = []
    for n in (32, 64):
        x, _, u = run(
            f"{equation}, limiter: {limiter})",
            initial,
            n,
            0.08,
            boundaries={"*": {"type": "periodic"}},
            dt=0.08 / n,
            scheme="euler" if limiter == "none" else "rk4",
        )
        errors.append(float(np.abs(u - exact(x, 0.08)).mean()))
    assert errors[1] < 1e-14 or math.log2(errors[0] / errors[1]) > order - 0.35


@pytest.mark.parametrize("limiter", LIMITERS)
def test_nothing_is_lost_and_nothing_oscillates_on_a_ring(limiter: str) -> None:
    _, start, end = run(
        f"-flux(u**3/3 - u/4, limiter: {limiter})",
        "where(x > 0.2 and x < 0.6, 1, sin(2*pi*x)/2)",
        80,
        0.4,
        boundaries={"*": {"type": "periodic"}},
    )
    assert abs(end.sum() - start.sum()) < 1e-12
    first, last = (variation(np.append(it, it[0])) for it in (start, end))
    assert last <= first * (1 + (1e-12 if limiter != "weno5" else 1e-2))


def test_flows_along_two_axes_and_by_other_fields() -> None:
    """A blob in a vortex, whose speeds are fields: mass to rounding, a constant stays."""
    turning = {
        "vx": field("0*vx", "sin(pi*x)*cos(pi*y)"),
        "vy": field("0*vy", "-cos(pi*x)*sin(pi*y)"),
    }
    for initial in ("exp(-40*((x-0.5)**2 + (y-0.3)**2))", "1"):
        problem = config(
            {
                "c": field("-div(vx*c, vy*c, c, limiter: superbee)", initial),
                **{name: dict(it) for name, it in turning.items()},
            },
            shape=(24, 20),
            size=(1.0, 1.0),
            boundaries={"x": {"type": "neumann"}, "y": {"type": "neumann"}},
            time={"steps": 8, "dt": "auto"},
        ).build()
        assert 0.4 < problem.dt * 24 * 2 < 0.9
        start = problem.initial(Slab.whole(problem.grid))
        end = reference.advance(start, problem, problem.steps)
        assert end[0].min() > -1e-12
        if initial != "1":
            assert abs(end[0].sum() / start[0].sum() - 1) < 2e-2  # walls where speeds are 0


def test_systems_give_the_speed_of_their_waves() -> None:
    """A dam breaks: water of depth 2 and 1; mass is kept, and between the waves it is even."""
    speed = "abs(q/h) + sqrt(h)"
    problem = config(
        {
            "h": field(f"-flux(q, h, {speed}, limiter: van_leer)", "where(x < 5, 2, 1)"),
            "q": field(f"-flux(q**2/h + h**2/2, q, {speed}, limiter: van_leer)", 0.0),
        },
        shape=(200,),
        size=(10.0,),
        boundaries=OPEN,
        time={"t_end": 1.5, "dt": "auto"},
    ).build()
    start = problem.initial(Slab.whole(problem.grid))
    h, _ = reference.advance(start, problem, problem.steps)
    assert abs(h.sum() - start[0].sum()) < 1e-10
    # Of 2 sqrt(2) - 2 sqrt(h) = (h - 1) sqrt((h + 1)/(2 h)): Riemann invariant and shock.
    low, high = 1.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        rest = 2 * (2**0.5 - middle**0.5) - (middle - 1) * ((middle + 1) / (2 * middle)) ** 0.5
        low, high = (middle, high) if rest > 0 else (low, middle)
    np.testing.assert_allclose(h[105:125], low, rtol=2e-3)


@pytest.mark.parametrize(
    ("equation", "told"),
    [
        ("-flux(2*x)", "does not have u; name the field that it carries"),
        ("-flux(u, x)", "the last field of a flux is the one that it carries"),
        ("-flux(u, limiter: mean)", "limiter=van_leer"),
        ("-flux(u, limiter: weno5)", "with euler waves of weno5 grow; take ssprk3 or rk4"),
    ],
)
def test_mistakes_in_fluxes_are_told(equation: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config(
            {"u": field(equation, 1.0)},
            shape=(20,),
            time={"steps": 1, "dt": 0.1, "scheme": "euler"},
        ).build()


def test_a_field_that_carries_itself_is_noted() -> None:
    fields = {"u": field("-advect(u, u)", "x"), "c": field("-advect(u, c)", "x")}
    it = config(fields, shape=(20,), boundaries=OPEN)
    assert isinstance(it.model, PdeModel)
    (note,) = it.model.notes(it)
    assert "u in the equation of u is carried by itself" in note
    assert "flux(u**2/2)" in note


def test_a_gpu_has_the_bits_of_a_cpu() -> None:
    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    limited = "-flux(u**3, y*u, u, limiter: van_leer) + flux(0, -u**2/2, u, limiter: weno5)"
    problem = config(
        {"u": field(f"{limited} + 0.01*laplace(u)", "sin(2*pi*x/Lx) + 0.5")},
        shape=(23, 15),
        boundaries=OPEN,
        time={"steps": 3, "dt": "auto"},
    ).build()
    stepper = GpuPlain().prepare(problem, Slab.whole(problem.grid), {}, HostGpu())
    stepper.load(problem.initial)
    stepper.advance(problem.steps)
    alone = run_problem(problem, "cpu.plain", 1)
    np.testing.assert_array_equal(stepper.interior(), alone)
    stepper.close()
    near = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, problem.steps)
    np.testing.assert_allclose(alone, near, atol=1e-14)


def test_functions_have_fluxes_and_linear_ones_are_stencils() -> None:
    u = np.sin(2 * np.pi * (np.arange(40) + 0.5) / 40)
    found = solve_pde(
        {"u": u}, {"u": lambda u, flux: -flux(2 * u)}, 4, boundary=Periodic(), dt=0.25
    )
    # Upwind of first order at half of its largest step.
    expected = u
    for _ in range(4):
        expected = (expected + np.roll(expected, 1)) / 2
    np.testing.assert_allclose(found["u"], expected, atol=1e-15)
    problem = config({"u": field("-flux(2*u)", "x")}, shape=(20,)).build()
    assert problem.equations is None
