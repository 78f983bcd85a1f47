"""Formulas that nobody would write: clean errors, or what the oracle gives, bit by bit.

`python tests/physics/test_pde_fuzz.py 100000` tries many.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tetris_sim.apps.pde.arrays import equations_problem
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import ConfigError, TetrisError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Neumann, Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import INEXACT
from tetris_sim.model.reference import allowed_error
from tetris_sim.model.slab import Slab

GRID = Grid((11, 9), (0.5, 0.25), (0.25, 0.125))
CONSTANTS: dict[str, float | str] = {"k": 0.5, "D": "0.1 + x*k"}
DT = 1e-4
WALLS = Boundary(((Dirichlet(0.5), Neumann()), (Periodic(), Periodic())))
LEAVES = ["u", "v", "k", "D", "x", "y", "t", "0", "1", "0.5", "2", "3e-3", "pi", "w"]
UNARY = ["-{}", "sqrt({})", "exp({})", "sin({})", "abs({})", "tanh({})", "({})**2", "({})**-1"]
UNARY += ["laplace({})", "dx({})", "dyy({})", "dxy({})", "grad_squared({})", "biharmonic({})"]
UNARY += ["mean_2d9p({})", "({})**0.5", "dz({})", "log({})", "not {}", "({})**k", "laplace"]
BINARY = ["{} + {}", "{} - {}", "({})*({})", "({})/({})", "min({}, {})", "div_grad({}, {})"]
BINARY += ["({})**({})", "{} < {}", "({}) % ({})", "hypot({}, {})", "({}) and ({})", "({})({})"]
TERNARY = ["where({}, {}, {})", "advect({}, {}, {})", "clip({}, {}, {})"]


def formulas() -> st.SearchStrategy[str]:
    def grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        def fill(patterns: list[str], n: int) -> st.SearchStrategy[str]:
            return st.tuples(st.sampled_from(patterns), *[parts] * n).map(
                lambda it: it[0].format(*it[1:])
            )

        return fill(UNARY, 1) | fill(BINARY, 2) | fill(TERNARY, 3)

    return st.recursive(st.sampled_from(LEAVES), grown, max_leaves=8)


def state() -> Any:
    return np.random.default_rng(0).uniform(0.1, 1.0, (2, *GRID.shape))


def build(u: str, v: str, scheme: str) -> Problem | None:
    """The problem, if it is one; every error is one of ours."""
    with contextlib.suppress(TetrisError):
        return equations_problem(
            state(),
            ["u", "v"],
            {"u": u, "v": v},
            constants=CONSTANTS,
            grid=GRID,
            boundaries={"u": WALLS, "v": Boundary(((Neumann(), Neumann()), WALLS.faces[1]))},
            dt=DT,
            steps=2,
            scheme=scheme,
            accuracy=2,
            advection="upwind",
        )
    return None


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(max_examples=100, deadline=None)
@given(u=formulas(), v=formulas(), scheme=st.sampled_from(["euler", "rk2", "rk4"]))
def test_formulas_give_errors_or_problems_that_can_be_computed(u: str, v: str, scheme: str) -> None:
    problem = build(u, v, scheme)
    if problem is not None:
        assert reference.advance(state(), problem, 1).shape == (2, *GRID.shape)


FIXED = [
    ("laplace(u*v) - dx(u)**2", "div_grad(D, v) - where(u < v, u, v)/k"),
    ("advect(v, -u, u) + dxy(v)", "laplace(laplace(v) - v**3)"),
    ("min(u, v) % (k + t) - biharmonic(u)", "-v/(1 + u*u) + sqrt(abs(dy(u)))"),
    ("exp(-u)*tanh(laplace(v))", "advect(D, x, v) + hypot(u, v)"),
    ("grad_squared(sqrt(u < biharmonic(D)))", "sqrt(min(t, 1) + biharmonic(1))"),
]


@pytest.mark.parametrize(
    ("pair", "scheme"), list(zip(FIXED, ("rk4", "euler", "rk2", "euler", "euler"), strict=True))
)
def test_the_cpu_gives_what_the_oracle_gives(pair: tuple[str, str], scheme: str) -> None:
    problem = build(*pair, scheme)
    assert problem is not None
    check(problem)


def test_a_part_that_is_infinite_on_a_face_is_refused() -> None:
    with pytest.raises(ConfigError, match="which is inf on a face with given values"):
        equations_problem(
            state()[:1],
            ["u"],
            {"u": "laplace((pi + u)/dyy(1))"},
            constants={},
            grid=GRID,
            boundaries={"u": WALLS},
            dt=DT,
            steps=1,
            scheme="euler",
            accuracy=2,
            advection="upwind",
        )


def check(problem: Problem) -> None:
    """Compare cpu.plain with the oracle."""
    method = next(it for it in METHODS if it.name == "cpu.plain")
    assert method.refusal(problem) is None
    team = ThreadTeam(1)
    try:
        stepper = method.prepare(problem, Slab.whole(problem.grid), {}, team)
        stepper.load(problem.initial)
        stepper.advance(2)
        found = stepper.interior()
    finally:
        team.close()
    expected = reference.advance(state(), problem, 2)
    finite = np.isfinite(expected)
    assert (np.isfinite(found) == finite).all()
    if finite.all():
        allowed = allowed_error(state(), expected, problem, 2)
        errors = np.abs(found - expected)
        assert (errors <= allowed + 1e-300).all(), (errors.max(), allowed.max())


def inexact(problem: Problem) -> bool:
    """Whether devices may differ in the last bits."""
    assert problem.equations is not None
    stages = problem.equations.stages
    return any(it.operation in INEXACT for stage in stages for it in stage.programs.instructions)


def main(n: int) -> None:
    """Try many formulas; those that can be computed on the CPU too, one in a hundred."""
    built = 0

    @settings(max_examples=n, deadline=None, database=None)
    @given(u=formulas(), v=formulas(), scheme=st.sampled_from(["euler", "rk2", "rk4"]))
    def run(u: str, v: str, scheme: str) -> None:
        nonlocal built
        problem = build(u, v, scheme)
        if problem is None:
            return
        built += 1
        reference.advance(state(), problem, 1)
        if built % 100 == 0:
            check(problem)

    run()
    sys.stdout.write(f"{n} tried, {built} computed\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
