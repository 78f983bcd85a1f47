"""Schemes of equations have their order in time, bounds of the step hold, and limits are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.pde_cases import SINE, config, field, second
from tetris_sim.errors import UnstableStepError
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

RING = {"*": {"type": "periodic"}}


def run(problem: Problem) -> Any:
    return reference.advance(problem.initial(Slab.whole(problem.grid)), problem, problem.steps)


def build(fields: dict[str, Any], **more: Any) -> Problem:
    return config(fields, **more).build()


@pytest.mark.parametrize(("scheme", "expected"), [("euler", 1), ("rk2", 2), ("rk4", 4)])
def test_schemes_have_their_order(scheme: str, expected: int) -> None:
    """A predator, its prey and a force that changes with time: stages read t + c dt."""

    def final(steps: int) -> Any:
        fields = {
            "u": field("u*(1 - v) + sin(3*t)", 1.2),
            "v": field("v*(u - 1)*cos(t)", 0.7),
        }
        time = {"t_end": 1.0, "dt": 1.0 / steps, "scheme": scheme}
        return run(build(fields, shape=(3,), time=time, allow_growth=True))[:, 0]

    truth = final(512) if scheme == "rk4" else final_by_rk4()
    coarse, fine = (np.abs(final(n) - truth).max() for n in (16, 32))
    assert abs(math.log2(coarse / fine) - expected) < 0.25


def final_by_rk4() -> Any:
    fields = {"u": field("u*(1 - v) + sin(3*t)", 1.2), "v": field("v*(u - 1)*cos(t)", 0.7)}
    return run(build(fields, shape=(3,), time={"t_end": 1.0, "dt": 1 / 512, "scheme": "rk4"}))[:, 0]


@pytest.mark.parametrize("damping", ["", " - s*w_velocity"])
def test_leapfrog_is_of_second_order_from_the_first_step_on(damping: str) -> None:
    """An oscillator at every point, damped or not, whose velocity at time 0 is not 0."""

    def error(steps: int) -> float:
        section = second(f"-w{damping}", 1.0)
        section["initial_velocity"] = {"type": "constant", "value": 0.5}
        time = {"t_end": 2.0, "dt": 2.0 / steps}
        found = run(build({"w": section}, shape=(3,), time=time, constants={"s": 0.4}))[0, 0]
        s = 0.2 if damping else 0.0
        q = math.sqrt(1 - s * s)
        exact = math.exp(-2 * s) * (math.cos(2 * q) + (0.5 + s) / q * math.sin(2 * q))
        return abs(float(found) - exact)

    assert abs(math.log2(error(40) / error(80)) - 2) < 0.15


CASES: dict[str, tuple[dict[str, Any], str, float]] = {
    "diffusion": ({"u": field("0.5*laplace(u)", SINE)}, "euler", 2 / (8 * 0.5)),
    "diffusion rk2": ({"u": field("0.5*laplace(u)", SINE)}, "rk2", 2 / (8 * 0.5)),
    "diffusion rk4": ({"u": field("0.5*laplace(u)", SINE)}, "rk4", 2.785293563405282 / 4),
    "biharmonic": ({"u": field("-biharmonic(u)", SINE)}, "euler", 2 / 64),
    "upwind": ({"u": field("-advect(2, -1, u)", SINE)}, "euler", 1 / 3),
    "wave": ({"w": second("9*laplace(w)", SINE)}, "leapfrog", 2 / math.sqrt(72)),
    "wave rk4": ({"w": second("9*laplace(w)", SINE)}, "rk4", 2 * math.sqrt(2) / math.sqrt(72)),
    "two stages": ({"u": field("laplace(u - laplace(u))", SINE)}, "euler", 2 / 72),
    "decay": ({"u": field("-3*u", SINE)}, "euler", 2 / 3),
    "reaction": ({"u": field("-u**3", 2.0)}, "euler", 2 / 12),
    "place": ({"u": field("where(x < 3, 1, 4)*laplace(u)", SINE)}, "euler", 2 / 32),
}


@pytest.mark.parametrize("name", [*CASES])
def test_the_largest_stable_step_is_known(name: str) -> None:
    fields, scheme, limit = CASES[name]
    time = {"steps": 1, "dt": limit * 0.5, "scheme": scheme}
    assert build(fields, time=time).dt_limit == pytest.approx(limit, rel=1e-5)


@pytest.mark.parametrize("scheme", ["euler", "rk2"])
def test_what_only_swings_is_refused_by_schemes_that_let_it_grow(scheme: str) -> None:
    with pytest.raises(UnstableStepError, match=f"no step of {scheme} is stable.*take rk4"):
        build({"w": second("laplace(w)", SINE)}, time={"steps": 1, "scheme": scheme})


def test_a_step_beyond_the_limit_is_refused_unless_it_is_asked_for() -> None:
    fields = {"u": field("laplace(u)", SINE)}
    with pytest.raises(
        UnstableStepError, match=r"largest stable step at the initial state is 0\.25"
    ):
        build(fields, time={"steps": 1, "dt": 0.26})
    assert build(fields, time={"steps": 1, "dt": 0.26}, allow_growth=True).dt == 0.26


@pytest.mark.parametrize(
    ("equation", "initial"),
    [
        ("0.1*laplace(u) + u*(1 - u)", "exp(-(x - 5)**2)"),
        ("laplace(u**3 - u - laplace(u))", {"type": "random", "low": -0.1, "high": 0.1}),
        ("-laplace(u) - biharmonic(u) - 0.5*grad_squared(u)", "sin(2*pi*x/Lx)"),
        ("div_grad(0.1 + u**2, u)", "1 if x < 8 else 0"),
        ("-u*dx(u) + 0.5*laplace(u)", "sin(2*pi*x/Lx)"),
    ],
)
def test_automatic_steps_do_not_blow_up(equation: str, initial: Any) -> None:
    for scheme in ("euler", "rk4"):
        time = {"t_end": 20.0, "dt": "auto", "scheme": scheme}
        found = run(build({"u": field(equation, initial)}, shape=(16, 12), time=time))
        assert np.std(found) < 5


def test_values_on_a_face_decide_for_what_operators_read_of_operators() -> None:
    """A plate held at its edge: its bending there is 0, so sines are eigenfunctions."""
    problem = build(
        {"u": field("-laplace(laplace(u))", "sin(pi*x/Lx)*sin(2*pi*y/Ly)")},
        boundaries={"*": {"type": "dirichlet", "value": 0}},
        time={"steps": 1, "dt": 1e-3},
    )
    u = problem.initial(Slab.whole(problem.grid))
    n, m = problem.grid.shape
    number = 4 * math.sin(math.pi / 2 / m) ** 2 + 4 * math.sin(math.pi / n) ** 2
    np.testing.assert_allclose(run(problem), u * (1 - 1e-3 * number**2), atol=1e-14)


def test_faces_of_a_potential_follow_from_its_fields() -> None:
    """mu = c^3 - c - laplace(c) at c = 1 on all faces is 0: the state c = 1 stays."""
    problem = build(
        {"c": field("laplace(c**3 - c - laplace(c))", 1.0)},
        boundaries={"*": {"type": "dirichlet", "value": 1}},
        time={"steps": 20, "dt": 0.01},
    )
    np.testing.assert_array_equal(run(problem), 1.0)
