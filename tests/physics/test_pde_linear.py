"""Equations that are one stencil are advanced as one, with the same numbers; all others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.pde_cases import config, field, second
from tetris_sim.apps.pde import build
from tetris_sim.apps.pde.model import PdeModel
from tetris_sim.config import Config
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import SPECTRAL
from tetris_sim.model import reference
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

WALLS = {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 0.5}}
RING = {"*": {"type": "periodic"}}
LINEAR: dict[str, dict[str, Any]] = {
    "diffusion on a line": {"equation": "0.3*laplace(u)", "shape": (40,), "points": 3},
    "diffusion of fourth order": {
        "equation": "0.3*laplace(u)",
        "accuracy": 4,
        "boundaries": RING,
        "points": 9,
    },
    "diffusion in 3D": {"equation": "laplace(k*u)", "shape": (9, 8, 7), "points": 7},
    "upwind": {"equation": "-advect(0.7, -0.4, u)", "points": 3},
    "decay": {"equation": "(laplace(u) - 3*(2*u - k*u))/4 + dx(u)", "points": 5},
    "mixed": {"equation": "laplace(u) + 0.5*dxy(u)", "boundaries": RING, "points": 9},
    "decay at a point": {"equation": "-2*u", "points": 1},
    "a constant with units": {"equation": "a*laplace(u)", "points": 5},
}
OTHERS: dict[str, dict[str, Any]] = {
    "a square": {"equation": "laplace(u) - u**2"},
    "a product of taps": {"equation": "u*laplace(u)"},
    "a source": {"equation": "laplace(u) + 1"},
    "a place": {"equation": "laplace(u) - x*u"},
    "a time": {"equation": "cos(t)*laplace(u)"},
    "a choice": {"equation": "where(u > 0.5, laplace(u), 0)"},
    "a root of a number": {"equation": "laplace(u) + sqrt(u)"},
    "a face that changes": {
        "equation": "laplace(u)",
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": "sin(t)"}},
    },
    "two stages": {"equation": "laplace(u)", "time": {"steps": 3, "dt": 1e-3, "scheme": "rk2"}},
}


def built(case: dict[str, Any]) -> Problem:
    shape = case.get("shape", (14, 12))
    model = {"accuracy": case["accuracy"]} if "accuracy" in case else {}
    return config(
        {"u": field(case["equation"], {"type": "random", "low": 0.0, "high": 1.0, "seed": 3})},
        shape=shape,
        boundaries=case.get("boundaries", WALLS),
        time=case.get("time", {"steps": 3, "dt": 1e-3}),
        constants={"k": 0.5, "a": "97 mm^2/s"},
        **model,
    ).build()


def result(problem: Problem) -> Field:
    initial = problem.initial(Slab.whole(problem.grid))
    return reference.advance(initial, problem, problem.steps)


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_step_with_constant_numbers_is_a_stencil(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = LINEAR[name]
    problem = built(case)
    assert problem.equations is None
    assert problem.stencil.n_points == case["points"]

    monkeypatch.setattr(build, "as_one_stencil", lambda problem: problem)
    expected = built(case)
    assert expected.equations is not None
    assert (problem.dt, problem.steps) == (expected.dt, expected.steps)
    assert problem.dt_limit == expected.dt_limit
    np.testing.assert_allclose(result(problem), result(expected), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_stays_equations(name: str) -> None:
    assert built(OTHERS[name]).equations is not None


def test_several_fields_and_second_derivatives_stay_equations() -> None:
    two = config({"u": field("laplace(u)", 1.0), "v": field("laplace(v)", 1.0)}).build()
    wave = config({"u": second("laplace(u)", 1.0)}).build()
    assert two.equations is not None
    assert wave.equations is not None


def test_methods_of_stencils_take_it() -> None:
    problem = built(LINEAR["diffusion in 3D"])
    assert all(method.refusal(problem) is None for method in METHODS)
    assert problem.why_not_one_stencil is None


def test_a_gpu_may_compute_it_in_pairs() -> None:
    problem = config({"u": field("laplace(u)", 1.0)}, precision="float32x2").build()
    assert problem.pairs
    assert problem.equations is None


def test_weights_of_both_sides_are_equal_so_that_steps_can_be_jumped_over() -> None:
    problem = built({"equation": "0.3*laplace(u)", "boundaries": RING})
    beside = {weight for offset, weight in problem.stencil.terms.items() if any(offset)}
    assert len(beside) == 1
    assert sum(problem.stencil.weights) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("scheme", ["spectral", "auto"])
@pytest.mark.parametrize(
    ("equation", "walls", "mode"),
    [
        ("laplace(u)-0.3*u", RING, lambda i, n: np.sin(2 * np.pi * 5 * (i + 0.5) / n)),
        ("laplace(u)-0.3*u", RING, lambda i, n: np.cos(np.pi * i)),
        ("0.5*laplace(u)-biharmonic(u)", RING, lambda i, n: np.cos(2 * np.pi * 3 * i / n)),
        (
            "laplace(u)-2*u",
            {"*": {"type": "neumann"}},
            lambda i, n: np.cos(np.pi * 4 * (i + 0.5) / n),
        ),
        (
            "3*laplace(u)",
            {"*": {"type": "dirichlet", "value": 0}},
            lambda i, n: np.sin(np.pi * 3 * (i + 0.5) / n),
        ),
    ],
)
def test_jumps_have_no_error_in_time(equation: str, walls: Any, mode: Any, scheme: str) -> None:
    n = 64
    problem = config(
        {"u": field(equation, 0.0)},
        shape=(n,),
        size=(20 * np.pi,),
        boundaries=walls,
        time={"t_end": 2.0, "dt": "auto", "scheme": scheme},
    ).build()
    # The rate of one eigenvector, by the step itself.
    start = mode(np.arange(n), n)[np.newaxis]
    rate = float((reference.advance(start, problem, 1) - start)[0, 1] / (problem.dt * start[0, 1]))
    assert rate < -0.01

    team = ThreadTeam(1)
    try:
        stepper = SPECTRAL.prepare(problem, Slab.whole(problem.grid), {}, team)
        stepper.load(lambda slab: start)
        stepper.advance(problem.steps)
        found = stepper.interior()
    finally:
        team.close()
    np.testing.assert_allclose(found, start * np.exp(2 * rate), atol=1e-13)


def test_a_scheme_that_is_asked_for_is_repeated() -> None:
    times = {"t_end": 2.0, "dt": "auto"}
    found = [
        config({"u": field("laplace(u)", 1.0)}, time={**times, **more}).build().continuous
        for more in ({}, {"scheme": "euler"}, {"scheme": "spectral"}, {"scheme": "auto"})
    ]
    assert found == [False, False, True, True]


def pde_model(it: Config) -> PdeModel:
    assert isinstance(it.model, PdeModel)
    return it.model


@pytest.mark.parametrize(("scheme", "order"), [("euler", 2), ("rk2", 3), ("rk4", 5)])
def test_notes_tell_the_error_of_a_step(scheme: str, order: int) -> None:
    """Of u' = -u it is the next term of the exponential, within a factor of two."""
    it = config({"u": field("-u", 1.0)}, time={"steps": 9, "dt": 0.125, "scheme": scheme})
    (note,) = pde_model(it).notes_of_steps(it, 0.125)
    assert f"a step of {scheme} of 0.125 s" in note
    error = float(note.split("about ")[1].split()[0])
    exact = 0.125**order / float(np.prod(np.arange(1, order + 1)))
    assert exact / 2 < error < exact * 2


def test_notes_look_at_the_middle_of_a_large_grid() -> None:
    it = config(
        {"u": field("-x*u", 1.0)}, shape=(400, 300), size=(2.0, 3.0), time={"steps": 9, "dt": 0.1}
    )
    (note,) = pde_model(it).notes_of_steps(it, 0.1)
    assert "is off by about 0.00" in note
