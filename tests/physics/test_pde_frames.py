"""Grids that move: what moves with them stands still, a front is followed, and columns say where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.config_cases import mistakes, read
from tetris_sim.api.running import run

FRONT = """\
grid: {shape: [N], size: [40], origin: {x: -20}}
model:
  type: pde
  accuracy: 4
  constants: {a: 0.2, D: 1, v: (1 - 2*a)/sqrt(2)}
  frame: {velocity: {x: v}}
  fields:
    u:
      equation: "D*laplace(u) + u*(1 - u)*(u - a)"
      initial: {type: expression, expression: "1/(1 + exp(x/sqrt(2)))"}
boundaries: {x-: {type: dirichlet, value: 1}, x+: {type: dirichlet, value: 0}}
time: {t_end: 20, scheme: rk4}
output: {pictures: false, statistics: {every: 5, formulas: {place: "integral(u) - 20"}}}
"""


def test_the_front_of_nagumo_stands_still_where_the_grid_moves_with_it(tmp_path: Path) -> None:
    """u = 1/(1 + exp((x - v t)/sqrt(2))), v = (1 - 2a)/sqrt(2) (Murray, Mathematical Biology)."""
    errors = []
    for n in (60, 120):
        text = FRONT.replace("[N]", f"[{n}]")
        result = run(read(text, f"output.directory={tmp_path}/{n}"))
        x = (np.arange(n) + 0.5) * 40 / n - 20
        errors.append(np.abs(result.field("u") - 1 / (1 + np.exp(x / np.sqrt(2)))).max())
    assert errors[1] < 2e-4
    assert errors[0] / errors[1] > 10
    table = result.statistics
    np.testing.assert_allclose(table["frame_x [m]"], 0.6 / np.sqrt(2) * table.index, rtol=1e-14)
    # Without it the front is where the grid would have been.
    still = FRONT.replace("[N]", "[120]").replace("  frame: {velocity: {x: v}}\n", "")
    place = run(read(still, f"output.directory={tmp_path}/still")).statistics["place [1]"]
    assert place.iloc[-1] == pytest.approx(table["frame_x [m]"].iloc[-1], rel=2e-3)
    assert "frame_x [m]" not in run(read(still, f"output.directory={tmp_path}/no")).statistics


def test_a_frame_is_the_term_that_it_stands_for() -> None:
    text = """\
grid: {shape: [20, 16], size: [2, 1.6]}
model:
  type: pde
  FRAME
  fields:
    u: {equation: "0.1*laplace(u) - uMORE", initial: {type: random}}
    psi: {complex: true, equation: "1j*psiOTHER", initial: {type: random, seed: 2}}
boundaries: {"*": {type: periodic}}
time: {steps: 10, dt: 1.0e-3, scheme: rk4}
"""
    moving = text.replace("FRAME", "frame: {velocity: {x: 2, y: -1}}")
    moving = moving.replace("MORE", "").replace("OTHER", "")
    plain = text.replace("FRAME", "accuracy: 2").replace("MORE", " + 2*dx(u) + (-1)*dy(u)")
    plain = plain.replace("OTHER", " + 2*dx(psi) - dy(psi)")
    for name in ("u", "psi"):
        found, right = (run(read(it)).field(name) for it in (moving, plain))
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("old", "new", "key", "told"),
    [
        ("{x: v}", "{y: v}", "model.frame.velocity.y", "the grid has no axis y"),
        ("{x: v}", "{x: x}", "model.frame.velocity.x", "a number, or a formula of constants"),
        ("{x: v}", "{x: w}", "model.frame.velocity.x", "unknown name 'w'"),
        ("equation:", "second_order:", "model.frame", "write it as two equations of first order"),
        (
            "\n  fields",
            "\n  absorbing: {x: {cells: 9, speed: 1}}\n  fields",
            "model.frame",
            "a pml is for grids that do not move; take kind: sponge",
        ),
    ],
)
def test_mistakes_have_their_place(old: str, new: str, key: str, told: str) -> None:
    text = FRONT.replace("[N]", "[60]").replace(old, new, 1)
    said = mistakes(text)
    assert any("c.yaml:6:" in it and f"{key}: " in it and told in it for it in said)
