"""Constants that are a number at every point, and the order of fields, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

import tetris_sim
from tests.support.config_cases import mistakes, read
from tetris_sim.errors import ConfigError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Neumann, Periodic
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import problem_digest

RNG = np.random.default_rng(1)
U, K = RNG.random((12, 18)), RNG.random((12, 18)) + 0.5

FILE = """\
grid: {{shape: [18, 12], spacing: [1, 1]}}
model:
  type: pde
  constants: {{k: {{path: {path}{more}}}, half: k/2, D: 0.5}}
  fields: {{u: {{equation: "{formula}", initial: {{type: file, path: u.npy}}}}}}
boundaries: {{"*": {{type: {face}}}}}
time: {{steps: 5, dt: 0.05, scheme: {scheme}}}
"""

Numbers = npt.NDArray[np.float64]


def div_grad(k: Numbers, u: Numbers, mode: str) -> Numbers:
    """What flows in through the four faces of every cell, with the means of k at them."""
    total = np.zeros_like(u)
    wide = [np.pad(it, 1, mode=mode) for it in (k, u)]  # type: ignore[call-overload]
    for axis in (0, 1):
        for shift in (-1, 1):
            ks, us = (np.roll(it, shift, axis)[1:-1, 1:-1] for it in wide)
            total += (k + ks) / 2 * (us - u)
    return total


@pytest.mark.parametrize(("face", "mode"), [("periodic", "wrap"), ("neumann", "symmetric")])
@pytest.mark.parametrize("scheme", ["euler", "rk2"])
def test_coefficient_fields_agree_with_numpy(face: str, mode: str, scheme: str) -> None:
    def right_side(u: Numbers) -> Numbers:
        return div_grad(K, u, mode) + K / 2 * u * (1 - u)

    u, dt = U.copy(), 0.05
    for _ in range(5):
        start = u + dt / 2 * right_side(u) if scheme == "rk2" else u
        u = u + dt * right_side(start)
    found = tetris_sim.solve_pde(
        *({"u": U}, {"u": "div_grad(k, u) + half*u*(1 - u)"}, 5),
        constants={"k": K, "half": "k/2"},
        dt=dt,
        scheme=scheme,
        boundary=Periodic() if face == "periodic" else Neumann(),
    )
    np.testing.assert_allclose(found["u"], u, rtol=0, atol=1e-14)


@pytest.mark.parametrize("formula", ["div_grad(k, u) + dx(half)*t", "k*laplace(half*u)"])
@pytest.mark.parametrize("kind", ["npy", "h5"])
def test_files_give_the_same_as_arrays(tmp_path: Path, kind: str, formula: str) -> None:
    np.save(tmp_path / "u.npy", U)
    if kind == "npy":
        np.save(tmp_path / "k.npy", K)
    else:
        with h5py.File(tmp_path / "k.h5", "w") as file:
            file["a"], file["b"] = K, U
    more = ", dataset: a" if kind == "h5" else ""
    given = {"face": "periodic", "scheme": "euler", "formula": formula}
    text = FILE.format(path=tmp_path / f"k.{kind}", more=more, **given)
    text = text.replace("u.npy", str(tmp_path / "u.npy"))
    problem = read(text).build()
    found = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, 5)[0]
    expected = tetris_sim.solve_pde(
        *({"u": U}, {"u": formula}, 5),
        constants={"k": K, "half": "k/2"},
        dt=0.05,
        boundary=Periodic(),
    )
    np.testing.assert_allclose(found, expected["u"], rtol=0, atol=1e-14)

    # Checkpoints belong to the numbers, not to the name of their file.
    before = problem_digest(problem)
    if kind == "npy":
        np.save(tmp_path / "k.npy", K + 1e-9)
        assert problem_digest(read(text).build()) != before


def test_runs_until_a_time_take_arrays() -> None:
    given: dict[str, Any] = {
        "boundary": Periodic(),
        "constants": {"k": K, "half": "k/2"},
        "dt": 0.05,
    }
    formula = "div_grad(k, u) + half*u"
    steps = tetris_sim.solve_pde({"u": U}, {"u": formula}, 5, **given)
    found = tetris_sim.solve_pde(initial={"u": U}, equations={"u": formula}, t_end=0.25, **given)
    np.testing.assert_array_equal(found.fields["u"].values[-1], steps["u"])


def test_mistakes_in_arrays_are_told(tmp_path: Path) -> None:
    u = tmp_path / "u.npy"
    np.save(u, U)
    for name, values in (("small", K[1:]), ("nan", K * np.nan)):
        np.save(tmp_path / f"{name}.npy", values)
    given = {"more": "", "face": "periodic", "scheme": "euler", "formula": "k*laplace(u)"}
    for path, told in (
        ("none.npy", "model.constants.k.path: there is no file .*none.npy"),
        ("small.npy", "model.constants.k.path: .*small.npy"),
        ("nan.npy", "model.constants.k: .*nan.npy holds NaN or infinity"),
    ):
        with pytest.raises(ConfigError, match=told):
            read(FILE.format(path=tmp_path / path, **given).replace("u.npy", str(u))).build()
    # Nothing is known of an array on a face.
    np.save(tmp_path / "k.npy", K)
    text = FILE.format(path=tmp_path / "k.npy", **given)
    text = text.replace("type: periodic", "type: dirichlet, value: half + k")
    assert any("unknown names 'half'" in it and "'k'" in it for it in mistakes(text))

    with pytest.raises(ConfigError, match=r"constants, k: an array of shape \(11, 18\)"):
        tetris_sim.solve_pde({"u": U}, {"u": "k*u"}, 1, constants={"k": K[1:]}, dt=0.1)
    with pytest.raises(ConfigError, match="constants, k: every number"):
        tetris_sim.solve_pde({"u": U}, {"u": "k*u"}, 1, constants={"k": K * np.inf}, dt=0.1)


MIXED = """\
grid: {shape: [16], spacing: [1]}
model:
  type: pde
  fields:
    w: {second_order: "laplace(w) + v", initial: {type: expression, expression: sin(2*pi*x/16)}}
    v: {equation: "-v + 0.1*w", initial: {type: constant, value: 2}}
    q: {second_order: "-q", initial: {type: constant, value: 5}}
boundaries: {"*": {type: periodic}}
time: {steps: 3, dt: 0.1, scheme: rk4}
"""


def test_second_order_fields_before_others_keep_their_places() -> None:
    problem = read(MIXED).build()
    names = ["w", "w_velocity", "v", "q", "q_velocity"]
    assert [it.name for it in problem.variables] == names
    assert problem.system.fields == tuple(names)

    def right_side(state: npt.NDArray[Any]) -> npt.NDArray[Any]:
        w, speed, v, q, q_speed = state
        laplace = np.roll(w, 1) + np.roll(w, -1) - 2 * w
        return np.stack([speed, laplace + v, -v + 0.1 * w, q_speed, -q])

    state = problem.initial(Slab.whole(problem.grid))
    found, dt = reference.advance(state, problem, 3), 0.1
    for _ in range(3):
        a = right_side(state)
        b = right_side(state + dt / 2 * a)
        c = right_side(state + dt / 2 * b)
        d = right_side(state + dt * c)
        state = state + dt / 6 * (a + 2 * b + 2 * c + d)
    np.testing.assert_allclose(found, state, rtol=0, atol=1e-14)


ORIGIN = """\
grid: {{shape: [16, 12], {lengths}, origin: {{x: -8 mm, y: 3 mm}}{more}}}
{model}
boundaries: {{"*": {{type: neumann}}, y-: {{type: dirichlet, value: "1 K"}}}}
time: {{steps: 4, dt: 1e-9}}
"""
PDE = """\
model:
  type: pde
  fields:
    u: {equation: "y*laplace(u) + x", initial: {type: expression, expression: x + 10*y}}
"""
HEAT = """\
model: {type: heat, material: copper}
initial: {type: expression, expression: x + 10*y}
"""


@pytest.mark.parametrize("lengths", ["size: [16 mm, 12 mm]", "spacing: [1 mm, 1 mm]"])
@pytest.mark.parametrize("model", [PDE, HEAT], ids=["pde", "heat"])
def test_boxes_may_begin_anywhere(model: str, lengths: str) -> None:
    text = ORIGIN.format(lengths=lengths, model=model, more="")
    text = text if model is HEAT else text.replace('"1 K"', "1")
    problem = read(text).build()
    np.testing.assert_allclose(problem.grid.bounds(1), (-0.008, 0.008), atol=1e-15)
    np.testing.assert_allclose(problem.grid.bounds(0), (0.003, 0.015), atol=1e-15)
    x = (np.arange(16) - 7.5) * 1e-3
    y = (np.arange(12)[:, None] + 3.5) * 1e-3
    state = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_allclose(state[0], x + 10 * y, atol=1e-15)

    # The same problem around 0, written with shifted coordinates.
    away = text.replace(", origin: {x: -8 mm, y: 3 mm}", "")
    away = away.replace("x + 10*y", "(x - 0.008) + 10*(y + 0.003)")
    away = away.replace("y*laplace(u) + x", "(y + 0.003)*laplace(u) + (x - 0.008)")
    other = read(away).build()
    found, expected = (
        reference.advance(it.initial(Slab.whole(it.grid)), it, 4) for it in (problem, other)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert problem_digest(problem) != problem_digest(other)


def test_cells_of_an_axis_may_differ_and_begin_anywhere() -> None:
    graded = ", graded: {x: {edges: [-8 mm, 0 mm, 4 mm, 8 mm]}}"
    text = ORIGIN.format(lengths="size: [16 mm, 12 mm]", model=HEAT, more=graded)
    grid = read(text.replace("[16, 12]", "[3, 12]")).build().grid
    np.testing.assert_allclose(grid.ends(1), [-0.008, 0, 0.004, 0.008], atol=1e-15)
    assert grid.bounds(0)[0] == pytest.approx(0.003)
