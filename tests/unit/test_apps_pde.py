"""Configurations of equations: every mistake is told where it is; what is right is built."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.config_cases import mistakes, read
from tetris_sim.apps.pde.language import read_constant
from tetris_sim.errors import ConfigError
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import problem_digest

GOOD = """\
grid: {shape: [24, 20], size: [12, 10]}
model:
  type: pde
  constants: {F: 0.04, k: 0.06, D: 2 mm^2/s, c: "where(x < Fx, 1, 2)", Fx: 2*F}
  fields:
    u: {equation: "D*laplace(u) - u*v**2 + F*(1 - u)", initial: {type: constant, value: 1}}
    v:
      equation: u*v**2 - (F + k)*v
      initial: {type: expression, expression: F*x}
    w: {second_order: "c**2*laplace(w)", initial: {type: gaussian, amplitude: 1, sigma: 1}}
boundaries: {"*": {type: neumann}}
time: {steps: 2, dt: 0.1}
"""


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_fields_velocities_and_their_order() -> None:
    problem = read(GOOD).build()
    assert [it.name for it in problem.variables] == ["u", "v", "w", "w_velocity"]
    assert problem.equations is not None
    assert len(problem.equations.stages) == 4  # rk4, as there are both kinds of equations
    state = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_array_equal(state[0], 1.0)
    np.testing.assert_allclose(state[1][0], 0.04 * (np.arange(24) + 0.5) / 2)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("D*laplace(u) - u*v", "D*laplase(u) - u*v",
         "c.yaml:6:22: model.fields.u.equation: unknown function 'laplase' (did you mean 'laplace'?)"),
        ("u*v**2 - (F + k)*v", "u*q**2 - (F + k)*v",
         "c.yaml:8:19: model.fields.v.equation: unknown name 'q'"),
        ("laplace(w)", "dz(w)", "model.fields.w.second_order: the grid has no axis z"),
        ("laplace(w)", "laplace(w, 2)", "laplace takes 1 argument, not 2"),
        ("laplace(w)", "advect(1, w)", "advect takes 3 arguments, not 2"),
        ("laplace(w)", "heat_3d(w)", "the stencil heat-3d has 3 axes, but the grid has 2"),
        ("laplace(w)", "laplace", "laplace is a function; write laplace(...)"),
        ("laplace(w)", "laplace(w, mean: harmonic)", "laplace takes no named arguments"),
        ("laplace(w)", "div_grad(c, w, mean=geometric)",
         "div_grad takes no named arguments but mean=arithmetic or mean=harmonic"),
        ("laplace(w)", "div_grad(c, mean: harmonic)",
         "div_grad(mean=harmonic) takes 2 arguments, not 1"),
        ("Fx: 2*F", "Fx: 2*F + c", "c: it needs Fx, which needs it in turn; give one of them a number"),
        ("Fx: 2*F", "Fx: 2*F/0", "model.constants.Fx: it comes out as inf; a finite number is wanted"),
        ("Fx: 2*F", "laplace: 2", "'laplace' already means something in equations"),
        ("D: 2 mm^2/s", "D: 2 mmm^2/s", "is not a unit"),
        (", initial: {type: constant, value: 1}", "", "model.fields.u: initial is missing"),
        ("expression: F*x}", "expression: G*x}",
         "c.yaml:9:47: model.fields.v.initial.expression: unknown name 'G'"),
        ("second_order:", "equation: u, second_order:",
         "give either equation (its derivative by time) or second_order"),
        ("time: {", "initial: {type: constant, value: 1}\ntime: {", "initial: each field has its own"),
        ("time: {", "compute: {precision: float16}\ntime: {", "float64 or float32, not in float16"),
        ("dt: 0.1", "dt: 0.1, scheme: leapfrog", "leapfrog is for fields with second_order"),
        ("dt: 0.1", "dt: 0.1, scheme: rk3", "'rk3' was found"),
        ("dt: 0.1", "cfl: 0.1", "time.cfl: it is for heat conduction"),
        ('"*": {type: neumann}', '"*": {type: radiation, emissivity: 0.5, ambient: 0}',
         "a face of equations takes one condition: dirichlet"),
        ('"*": {type: neumann}', '"*": {type: dirichlet, value: "sin(y + q)"}', "unknown name 'q'"),
        ('"*": {type: neumann}', '"*": {type: robin, h: "1 + t", ambient: 0}',
         "h of equations is a number, or a formula of constants"),
        ('"*": {type: neumann}', '"*": {type: fixed, value: y}', "take dirichlet"),
        ('"*": {type: neumann}', '"*": {type: free}', "depends on its Poisson's ratio"),
    ],
)  # fmt: skip
def test_each_mistake_is_told_at_its_place(old: str, new: str, told: str) -> None:
    lines = mistakes(changed(old, new))
    assert any(told in line for line in lines), lines


def test_all_mistakes_are_told_at_once() -> None:
    text = changed("D*laplace(u)", "E*laplace(u)").replace("c**2*", "c**q*").replace("F*x}", "z}")
    assert len(mistakes(text)) == 3


def test_an_axis_is_periodic_for_all_fields_or_none() -> None:
    text = changed("value: 1}}", "value: 1}, boundaries: {x: {type: periodic}}}")
    assert "x is periodic for all fields or for none" in mistakes(text)[0]


def test_other_models_refuse_schemes_of_equations_and_need_an_initial_state() -> None:
    text = """\
    grid: {shape: [12, 10]}
    model: {type: heat, diffusivity: 1}
    boundaries: {"*": {type: neumann}}
    time: {steps: 2, scheme: rk4}
    """
    told = mistakes(text)
    assert "initial: missing; a section with a type (gaussian" in told[0]
    assert "rk4 is for model.type: pde" in told[1]


@pytest.mark.parametrize(
    ("constants", "told"),
    [("D: 0", "comes out as inf; is something divided by 0"), ("D: 1e-320", "divided by 0")],
)
def test_division_by_a_constant_that_is_zero_is_refused(constants: str, told: str) -> None:
    text = changed("D: 2 mm^2/s", constants).replace("D*laplace(u)", "laplace(u)/D")
    with pytest.raises(ConfigError, match=told):
        read(text).build()


@pytest.mark.parametrize("text", ["shift(u, 0.5, 0)", "laplace(u)/(2*D - 2*D)", "u/0"])
def test_numbers_that_cannot_be_are_told_by_their_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml:6:19: model\.fields\.u\.equation: "):
        read(changed("D*laplace(u)", text))


def test_a_grid_that_is_too_small_is_refused() -> None:
    text = changed("shape: [24, 20]", "shape: [24, 1]").replace("laplace(w)", "biharmonic(w)")
    with pytest.raises(ConfigError, match=r"grid\.shape: the grid has 1 points along y"):
        read(text, "model.allow_growth=true").build()


def test_negative_diffusion_is_noted() -> None:
    negative = read(changed("D*laplace(u)", "-D*laplace(u)"))
    assert "negative diffusion" in negative.model.notes(negative)[0]  # type: ignore[union-attr]
    good = read(GOOD)
    assert good.model.notes(good) == ()  # type: ignore[union-attr]


def test_the_digest_knows_equations_constants_and_schemes() -> None:
    def digest(text: str = GOOD, *overrides: str) -> str:
        return problem_digest(read(text, *overrides).build())

    texts = [
        GOOD,
        changed("F: 0.04", "F: 0.041"),
        changed("(F + k)", "(F - k)"),
        changed("where(x < Fx", "where(x < 3"),
        changed("value: 1}}", "value: 1}, boundaries: {x-: {type: dirichlet, value: 1}}}"),
    ]
    found = [digest(text) for text in texts] + [digest(GOOD, "model.accuracy=4")]
    assert len({*found, digest(GOOD, "time.scheme=rk2", "model.allow_growth=true")}) == 7
    assert digest() == found[0]


def test_constants_are_numbers_with_units_or_formulas() -> None:
    assert read_constant("1.5e3 um^2/ms") == pytest.approx(1.5e-6)
    assert read_constant(2) == 2.0
    assert read_constant("2*x") == "2*x"
    assert read_constant("3e-2") == 0.03


def test_resolved_configurations_load_again() -> None:
    config = read(GOOD)
    assert read(config.resolved_text()) == config


def test_definitions_are_what_they_stand_for() -> None:
    plain = changed('"D*laplace(u) - u*v**2 + F*(1 - u)"', '"laplace(u**3 - u - D*laplace(u))"')
    named = plain.replace('"laplace(u**3 - u - D*laplace(u))"', "laplace(mu)").replace(
        "  fields:",
        "  definitions: {mu: cube - u - curved, cube: u**3, curved: D*laplace(u)}\n  fields:",
    )
    found = [read(text, "model.allow_growth=true").build() for text in (plain, named)]
    stages = [problem.equations.stages for problem in found if problem.equations is not None]
    assert len(stages) == 2
    for one, other in zip(*stages, strict=True):
        assert one.programs.instructions == other.programs.instructions


@pytest.mark.parametrize(
    ("definitions", "told"),
    [
        ("{mu: laplace(q)}", "model.definitions.mu: unknown name 'q'"),
        ("{mu: 2*nu, nu: mu + u}", "mu: it needs nu, which needs it in turn; make one of them a field"),
        ("{u: v}", "u is a field or a constant already"),
        ("{laplace: v}", "'laplace' already means something in equations"),
    ],
)  # fmt: skip
def test_mistakes_in_definitions_are_told(definitions: str, told: str) -> None:
    lines = mistakes(changed("  fields:", f"  definitions: {definitions}\n  fields:"))
    assert any(told in line for line in lines), lines
