"""Layers that absorb waves: what comes back, against the same waves in a box from whose faces
nothing has come back yet; and mistakes at their place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.config_cases import mistakes, read
from tests.support.pde_cases import whole_and_continued
from tetris_sim.api.running import run
from tetris_sim.model.slab import Slab

K = 2 * np.pi / 0.12  # of waves of 12 cells
LINE = """\
grid: {shape: [COUNT], spacing: [0.01], origin: {x: FIRST}}
model:
  type: pde
  constants: {k: 52.35987755982989}
  fields:
    u:
      second_order: "laplace(u)"
      initial: {type: expression, expression: "exp(-((x - 1)/0.25)**2)*cos(k*x)"}
      initial_velocity:
        type: expression
        expression: "exp(-((x - 1)/0.25)**2)*(k*sin(k*x) + 32*(x - 1)*cos(k*x))"
  absorbing: {LAYERS}
boundaries: {"*": {type: dirichlet, value: 0}}
time: {t_end: 2.5, dt: 5.0e-3, scheme: SCHEME}
output: {pictures: false}
"""


def made(text: str, cells: int, layers: str, *, wide: int = 0) -> Any:
    """The field inside the layers; with `wide` more points on each side instead."""
    n, more = (200, wide or cells)
    text = text.replace("COUNT", str(n + 2 * more)).replace("FIRST", f"{-0.01 * more}")
    u = run(read(text.replace("LAYERS", layers))).field("u")
    return u[(slice(more, -more),) * u.ndim]


@pytest.mark.parametrize(
    ("kind", "cells", "scheme", "most"),
    [
        ("sponge", 40, "leapfrog", 1e-3),
        ("sponge", 40, "rk4", 1e-3),
        ("pml", 20, "rk4", 1e-5),
        ("pml", 10, "rk4", 1e-4),
    ],
)
def test_little_of_a_wave_comes_back(kind: str, cells: int, scheme: str, most: float) -> None:
    text = LINE.replace("SCHEME", scheme)
    free = made(text, 0, "", wide=320)
    layers = f"x: {{kind: {kind}, cells: {cells}, speed: 1}}"
    assert np.abs(made(text, cells, layers) - free).max() < most
    # Without layers all of it comes back.
    assert np.abs(made(text, cells, "") - free).max() > 0.5


PLANE = """\
grid: {shape: [COUNT, COUNT], spacing: [0.01, 0.01], origin: {x: FIRST, y: FIRST}}
model:
  type: pde
  accuracy: ORDER
  constants: {k: "1 + 0*x"}
  fields:
    FIELDS
  absorbing: {LAYERS}
boundaries: {"*": {type: dirichlet, value: 0}}
time: {t_end: 2, scheme: rk4, dt: 5.0e-3}
output: {pictures: false}
"""
START = "initial: {type: expression, expression: 'exp(-((x - 0.7)**2 + (y - 1.2)**2)/0.06**2)'}"
SECOND = f'u: {{second_order: "laplace(u)", {START}}}'
FLOWS = f'u: {{second_order: "div_grad(k, u)", {START}}}'
NESTED = f'u: {{second_order: "dx(k*dx(u)) + dyy(u)", {START}}}'
NOTHING = "initial: {type: constant, value: 0}"
SOUND = f"""u: {{equation: "-dx(v) - dy(w)", {START}}}
    v: {{equation: "-dx(u)", {NOTHING}}}
    w: {{equation: "-dy(u)", {NOTHING}}}"""


@pytest.mark.parametrize(
    ("fields", "order", "most"),
    [
        (SECOND, 2, 1e-5),
        (FLOWS, 2, 1e-5),
        (SECOND, 4, 1e-4),
        (NESTED, 4, 1e-4),
        (SOUND, 2, 1e-4),
    ],
)
def test_matched_layers_absorb_at_all_angles_and_in_corners(
    fields: str, order: int, most: float
) -> None:
    text = PLANE.replace("FIELDS", fields).replace("ORDER", str(order))
    free = made(text, 0, "", wide=110)
    found = made(text, 20, '"*": {cells: 20, speed: 1}')
    assert np.abs(found - free).max() < most


def test_memories_are_nothing_but_in_layers() -> None:
    text = PLANE.replace("FIELDS", SECOND).replace("ORDER", "2").replace("t_end: 2", "t_end: 1")
    text = text.replace("COUNT", "120").replace("FIRST", "0").replace("LAYERS", "x+: LAYER")
    result = run(read(text.replace("LAYER", "{cells: 15, speed: 1}")))
    assert {*result.fields} == {"u", "u_velocity", "pml_x1", "pml_x2"}
    for name in ("pml_x1", "pml_x2"):
        memory = result.field(name)
        assert np.abs(memory[:, 105:]).max() > 1e-3
        assert np.abs(memory[:, :104]).max() == 0


def test_equal_derivatives_share_their_memories() -> None:
    fields = f"""u: {{second_order: "laplace(u) + dx(u)*0.1 - dx(u)**3", {START}}}
    v: {{equation: "dx(u) + dxy(u)", {START}}}"""
    text = PLANE.replace("FIELDS", fields).replace("ORDER", "2").replace("COUNT", "60")
    text = text.replace("FIRST", "0").replace("LAYERS", "x: {cells: 9, speed: 1}")
    problem = read(text).build()
    # Of dx(u), twice for laplace(u), and of dx(dy(u)).
    names = [name for name in problem.system.fields if name.startswith("pml")]
    assert names == ["pml_x1", "pml_x2", "pml_x3", "pml_x4"]
    assert np.abs(problem.initial(Slab.whole(problem.grid))[3:]).max() == 0


def test_a_run_that_is_continued_has_the_same_bits(tmp_path: Path) -> None:
    text = LINE.replace("SCHEME", "rk4").replace("COUNT", "200").replace("FIRST", "0")
    text = text.replace("LAYERS", "x: {cells: 20, speed: 1}").replace("t_end: 2.5", "steps: 30")
    text = text.replace("output: {pictures: false}\n", "")
    whole, continued = whole_and_continued(text, tmp_path, ("u", "pml_x1"), every=11)
    np.testing.assert_array_equal(continued, whole)


@pytest.mark.parametrize(
    ("layers", "key", "told"),
    [
        ("y+: {cells: 9, speed: 1}", "absorbing.y+", "the grid has no axis y"),
        ("x: {cells: 9, speed: x}", "absorbing.x.speed", "a formula of constants"),
        ("x: {cells: 9, speed: c}", "absorbing.x.speed", "unknown name 'c'"),
        ("x: {cells: 9, speed: -k}", "absorbing.x.speed", "greater than 0 is wanted"),
        ("x: {cells: 100, speed: 1}", "absorbing.x.cells", "nothing is left of the 200 points"),
        ("x: {cells: 9}", "absorbing.x.speed", "missing"),
        ("x: {cells: 9, speed: 1, kind: foam}", "absorbing.x.kind", "pml or sponge"),
    ],
)
def test_mistakes_have_their_place(layers: str, key: str, told: str) -> None:
    text = LINE.replace("COUNT", "200").replace("FIRST", "0").replace("SCHEME", "rk4")
    (said,) = mistakes(text.replace("LAYERS", layers))
    assert f"model.{key}: " in said
    assert told in said
    assert said.split(":")[1] == "12"


def test_what_does_not_fit_is_refused() -> None:
    text = LINE.replace("COUNT", "200").replace("FIRST", "0")
    layered = text.replace("LAYERS", "x: {cells: 20, speed: 1}")
    (said,) = mistakes(layered.replace("SCHEME", "leapfrog"))
    assert "a pml has fields with equations; take rk4, or kind: sponge" in said
    (said,) = mistakes(layered.replace("SCHEME", "rk4").replace("laplace(u)", "-biharmonic(u)"))
    assert "biharmonic of u is not known in a pml; take kind: sponge" in said
    round_ = layered.replace("SCHEME", "rk4").replace("type: dirichlet, value: 0", "type: periodic")
    (said,) = mistakes(round_)
    assert "x is periodic, so it has no faces" in said
    # The simplest scheme is chosen by what there is.
    chosen = layered.replace(", scheme: SCHEME", "")
    spongy = chosen.replace("cells: 20", "kind: sponge, cells: 20")
    for each, scheme in ((chosen, "rk4"), (spongy, "leapfrog")):
        config: Any = read(each)
        assert config.model.scheme(config) == scheme
    # Around a periodic axis * means the faces of the others.
    ring = round_.replace("x: {cells", '"*": {cells')
    assert read(ring).build().system.fields == ("u", "u_velocity")
