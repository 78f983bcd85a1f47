"""Sources and receivers off the grid: exact for polynomials, the amount that a signal says, the
same record when they change places, even times, and mistakes at their place.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.config_cases import mistakes, read
from tetris_sim.api.running import run
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid

WAVE = """\
grid: {shape: [40, 31], size: [4, 3.1]}
model:
  type: pde
  constants: {c: "1 + 0.3*sin(2*x)*cos(3*y)", ricker: "(1 - 18*(t - 0.4)**2)*exp(-9*(t - 0.4)**2)"}
  point_sources: [{field: u, at: [AT], signal: ricker, interpolation: HOW}]
  fields:
    u: {second_order: "div_grad(c**2, u)", initial: {type: constant, value: 0}}
boundaries: {"*": {type: dirichlet, value: 0}}
time: {t_end: 3, align: true}
output:
  pictures: false
  probes: [{at: [TO], every: 0.07 s, interpolation: HOW, name: r}]
"""


def recorded(text: str, folder: Path, *overrides: str) -> Any:
    result = run(read(text, f"output.directory={folder}", *overrides), overwrite=True)
    return result.probes["r"]


@pytest.mark.parametrize("how", ["linear", "cubic"])
def test_a_source_and_a_receiver_change_places(how: str, tmp_path: Path) -> None:
    a, b = "1.234, 0.777", "2.871, 2.139"
    text = WAVE.replace("HOW", how)
    there = recorded(text.replace("AT", a).replace("TO", b), tmp_path / "1")
    back = recorded(text.replace("AT", b).replace("TO", a), tmp_path / "2")
    u, v = there["u [1]"].to_numpy(), back["u [1]"].to_numpy()
    assert np.abs(u).max() > 0.01
    np.testing.assert_allclose(u, v, rtol=0, atol=1e-13 * np.abs(u).max())


def test_records_are_even_in_time(tmp_path: Path) -> None:
    text = WAVE.replace("HOW", "cubic").replace("AT", "1, 1").replace("TO", "2, 2")
    even = recorded(text, tmp_path / "even").index.to_numpy()
    np.testing.assert_allclose(even[:-1], 0.07 * np.arange(len(even) - 1), rtol=1e-14, atol=0)
    assert even[-1] == pytest.approx(3, rel=1e-14)
    # Without it, records are at the first step after each multiple.
    others = recorded(text, tmp_path / "other", "time.align=false").index.to_numpy()
    assert np.abs(others[1:20] / 0.07 - np.arange(1, 20)).max() > 1e-3
    # A given step becomes shorter too.
    assert read(text, "time.dt=0.0172").build().dt == pytest.approx(0.01, rel=1e-14)
    heat = """\
grid: {shape: [8], size: [1]}
model: {type: heat, diffusivity: 1}
initial: {type: constant, value: 1}
boundaries: {"*": {type: neumann}}
time: {t_end: 1, align: true}
output: {statistics: {every: 0.1 s}}
"""
    steps = read(heat).build().steps
    assert steps % 10 == 0
    assert read(heat, "time.align=false").build().steps % 10


def test_an_amount_is_that_of_the_signal(tmp_path: Path) -> None:
    """What is added in all is the integral of the signal, wherever the source lies."""
    text = """\
grid: {shape: [9, 11], size: [0.9, 2.2]}
model:
  type: pde
  constants: {k: 3}
  point_sources:
    - {field: u, at: [0.03, 2.17], signal: k*t}
    - {field: u, at: [0.5123, 1.234], signal: k*t, interpolation: cubic}
    - {field: u, at: [0.9, 0], signal: "2", interpolation: cubic}
  fields:
    u: {equation: "0.01*laplace(u)", initial: {type: constant, value: 0}}
boundaries: {x: {type: periodic}, y: {type: neumann}}
time: {t_end: 1, dt: 0.1, scheme: rk4}
output: {pictures: false, statistics: {every: 1 step, formulas: {all: "integral(u)"}}}
"""
    result = run(read(text, f"output.directory={tmp_path}"))
    for time, found in result.statistics["all [1]"].items():
        assert found == pytest.approx(3 * time**2 + 2 * time, rel=1e-12, abs=1e-14)


def test_a_source_in_one_dimension_gives_the_wave_of_the_formula(tmp_path: Path) -> None:
    """u_tt = u_xx + s(t) delta(x - a) has u = S(t - |x - a|)/2, with S the integral of s."""
    text = """\
grid: {shape: [N], size: [4]}
model:
  type: pde
  accuracy: 4
  point_sources: [{field: u, at: [1.7031], signal: "exp(-20*(t - 0.6)**2)*40*(t - 0.6)", interpolation: cubic}]
  fields: {u: {second_order: "laplace(u)", initial: {type: constant, value: 0}}}
boundaries: {"*": {type: neumann}}
time: {t_end: 1.5, align: true, safety: 0.3, scheme: rk4}
output: {pictures: false, probes: [{at: [2.2222], every: 0.05, interpolation: cubic, name: r}]}
"""
    errors = []
    for n in (100, 200):
        found = recorded(text.replace("[N]", f"[{n}]"), tmp_path / str(n))
        late = found.index.to_numpy() - (2.2222 - 1.7031)
        right = np.where(late > 0, math.exp(-7.2) - np.exp(-20 * (late - 0.6) ** 2), 0) / 2
        errors.append(np.abs(found["u [1]"].to_numpy() - right).max())
    assert errors[1] < 2e-4
    assert errors[0] / errors[1] > 8


def test_complex_fields_have_complex_sources() -> None:
    text = """\
grid: {shape: [16], size: [1]}
model:
  type: pde
  point_sources: [{field: psi, at: [0.4], signal: "(1 + 2j)*exp(1j*t)"}]
  fields: {psi: {complex: true, equation: "1j*laplace(psi)", initial: {type: constant, value: 0}}}
boundaries: {"*": {type: neumann}}
time: {t_end: 1.0e-3, dt: 1.0e-4, scheme: rk4}
"""
    total = run(read(text)).field("psi").sum() / 16
    assert total == pytest.approx((1 + 2j) * (np.exp(1e-3j) - 1) / 1j, rel=1e-12)


def test_polynomials_are_interpolated_exactly() -> None:
    grid = Grid((9,), (0.5,), (0.25,))
    x = grid.coordinates(0)
    for place in (0.03, 0.25, 1.11, 2.75, 4.4):
        for points in (2, 4):
            indices, weights = grid.interpolation(0, place, points=points, periodic=False)
            assert len(indices) == points
            for power in range(points):
                found = (x[list(indices)] ** power) @ weights
                assert found == pytest.approx(place**power, rel=1e-12, abs=1e-14)
    indices, weights = grid.interpolation(0, 0.1, points=4, periodic=True)
    assert indices == (7, 8, 0, 1)
    assert sum(weights) == pytest.approx(1)


@pytest.mark.parametrize(
    ("old", "new", "key", "told"),
    [
        ("field: u, at", "field: v, at", "point_sources.0.field", "there is no field 'v'"),
        ("[1, 1]", "[1, 1, 1]", "point_sources.0.at", "it has 3 entries; the grid has 2 axes"),
        ("[1, 1]", "[1, 9]", "point_sources.0.at.1", "reaches from 0 to 3.1 m along y"),
        (
            "signal: ricker",
            "signal: x*t",
            "point_sources.0.signal",
            "it has x; a signal is a formula",
        ),
        ("signal: ricker", "signal: q*t", "point_sources.0.signal", "unknown name 'q'"),
        ("signal: ricker", "signal: t*1j", "point_sources.0.signal", "this is a complex number"),
        (
            "HOW}]\n  fields",
            "tubic}]\n  fields",
            "point_sources.0.interpolation",
            "linear or cubic",
        ),
        ("t_end: 3,", "steps: 3,", "time", "give t_end"),
    ],
)
def test_mistakes_have_their_place(old: str, new: str, key: str, told: str) -> None:
    text = WAVE.replace("AT", "1, 1").replace("TO", "2, 2").replace(old, new)
    (said,) = mistakes(text.replace("HOW", "cubic"))
    assert f"{key}: " in said
    assert told in said
    assert said.split(":")[1] == ("9" if key == "time" else "5")


def test_what_cannot_be_even_or_cubic_is_refused(tmp_path: Path) -> None:
    text = WAVE.replace("HOW", "cubic").replace("AT", "1, 1").replace("TO", "2, 2")
    with pytest.raises(ConfigError, match="no common interval"):
        read(text, "output.probes.0.every=0.0700000001 s").build()
    body = """\
grid: {shape: [8], size: [1]}
model:
  type: heat
  regions: [{material: copper}, {material: aluminium, box: {x: [0, 0.5]}}]
initial: {type: constant, value: 1}
boundaries: {"*": {type: neumann}}
time: {steps: 1}
output: {probes: [{at: [0.5], every: 1 step, interpolation: cubic}]}
"""
    with pytest.raises(ConfigError, match="in a body probes are linear"):
        run(read(body, f"output.directory={tmp_path}"))


def test_velocities_of_leapfrog_are_no_part_of_constraints() -> None:
    text = """\
grid: {shape: [16], size: [1]}
model:
  type: pde
  fields:
    u: {second_order: "laplace(u) - p", initial: {type: random}}
    p: {equation: "0 = laplace(p) - 9*p + u_velocity"}
boundaries: {"*": {type: neumann}}
time: {steps: 4, dt: 1.0e-3, scheme: leapfrog}
"""
    (said,) = mistakes(text)
    assert ":6:" in said
    assert "leapfrog keeps u_velocity half a step before the fields" in said
    assert read(text, "time.scheme=rk4").build().steps == 4
    assert read(text.replace("+ u_velocity", "+ u")).build().steps == 4
