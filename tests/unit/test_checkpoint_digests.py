"""Digests of checkpoints stay what they were when the first files were written, whatever the classes
of formulas are called today.
"""

from __future__ import annotations

import pytest

from tests.support.config_cases import read
from tetris_sim.model.formula import compile_expression
from tetris_sim.outputs.checkpoint import problem_digest
from tetris_sim.outputs.checkpoint.state import digested_text

# Sums and products only: they have the same bits on every processor.
BODY = """\
grid: {shape: [12, 9], size: [12 mm, 9 mm]}
model:
  type: heat
  regions: [{material: copper}, {material: aluminium, box: {x: [2 mm, 5 mm]}}]
  sources: [{box: {y: [2 mm, 5 mm]}, density: 1e6*(1 + 3*t)*x}]
initial: {type: constant, value: 20 degC}
boundaries:
  "*": {type: robin, h: 25, ambient: 20 + 5*t}
  x-: {type: dirichlet, value: 20 + 10*t}
time: {steps: 10}
"""
MELTING = """\
grid: {shape: [16], size: [16 mm]}
model:
  type: heat
  materials:
    track: copper
    solder:
      conductivity: {table: [[20 degC, 60], [217 degC, 53], [221 degC, 33]]}
      density: 7400
      specific_heat: {table: [[20 degC, 220], [217 degC, 250]]}
      latent_heat: 6e4
      solidus: 217 degC
      liquidus: 221 degC
  regions: [{material: solder}, {material: track, box: {x: [4 mm, 8 mm]}}]
initial: {type: constant, value: 20 degC}
boundaries: {"*": {type: dirichlet, value: 400}}
time: {steps: 10}
"""
EQUATIONS = """\
grid: {shape: [16, 12], size: [16, 12]}
model:
  type: pde
  constants: {k: "where(x < 8, 1, 2)"}
  fields:
    u: {equation: "0.2*k*laplace(u) + u - u**3 - v", initial: {type: constant, value: 1}}
    v: {equation: "0.1*laplace(v) + where(u > 0.1, u, 0.5*t)", initial: {type: constant, value: 0}}
boundaries: {"*": {type: neumann}}
time: {dt: 0.05, steps: 10, scheme: rk2}
"""
FORMULA = "where(u > 0.1, u**2, 0.5*t) - v"


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (BODY, "0a66e62ab42554571776230834a4c2b36d47b2209a7b6cb42385818f6fa7c5b5"),
        (MELTING, "9c2f4bb713f38969cef09a3e1774df77b18273de928e7cd4bc6507dcad64b2ba"),
        (EQUATIONS, "8b301702e3bdb5d5f9fc3cd4de11154edeb3da76a1fc208bf2df96acbad0e23a"),
    ],
)
def test_digests_are_those_of_the_first_files(text: str, digest: str) -> None:
    assert problem_digest(read(text).build()) == digest


def test_a_formula_is_digested_under_the_first_names_of_its_parts() -> None:
    tree = compile_expression(FORMULA, ("u", "v", "t")).tree
    text = digested_text(tree)
    assert text.startswith("Operation(name='subtract', arguments=(Operation(name='where', argumen")
    assert "Comparison(signs=('>',), operands=(Variable(name='u'), Constant(value=0.1)))" in text
    assert text.endswith("Variable(name='v')))")
