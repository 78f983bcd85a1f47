"""Formulas of the whole grid as columns of the statistics: against NumPy and a decay that is known,
with the same bits for any division, after restarts, and with mistakes at their line.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from tests.support.config_cases import mistakes, read
from tetris_sim.api.running import run
from tetris_sim.errors import ConfigError

TEXT = """\
grid: {shape: [24, 17], size: [2, 1]}
model:
  type: pde
  constants: {K: 3, weight: "1 + x"}
  definitions: {mu: "u - u**3"}
  fields:
    u: {equation: "laplace(u)/500 + mu - mean(mu)", initial: {type: random, low: -1, high: 1}}
    v: {equation: "u - v", initial: {type: expression, expression: "sin(x)*y"}}
boundaries: {"*": {type: neumann}}
time: {steps: 8, dt: 0.02, scheme: rk4}
output:
  pictures: false
  fields: {every: 2 steps}
  statistics:
    every: 2 steps
    formulas:
      energy: {formula: "integral(u**2 + K*v**2)/2", unit: J}
      inner: "mean(weight*u*v) + K*t"
      peak: "max(abs(mu - mean(mu)))"
      edges: "integral(grad_squared(u)) - min(dx(v))"
checkpoint: {every: 4 steps}
"""
COLUMNS = ["energy [J]", "inner [1]", "peak [1]", "edges [1]"]


def made(text: str, folder: Path, *overrides: str) -> list[list[float]]:
    """The columns of the formulas."""
    run(read(text, f"output.directory={folder}", *overrides), overwrite=True)
    with (folder / "statistics.csv").open() as file:
        header, *rows = list(csv.reader(file))
    places = [header.index(it) for it in COLUMNS]
    assert places == sorted(places)
    return [[float(row[k]) for k in places] for row in rows]


def test_columns_are_what_numpy_makes_of_the_fields(tmp_path: Path) -> None:
    import h5py

    rows = made(TEXT, tmp_path)
    assert len(rows) == 5
    with h5py.File(tmp_path / "fields.h5") as file:
        states = [[file[name][k] for name in "uv"] for k in range(5)]
    hx, hy = 2 / 24, 1 / 17
    x = (np.arange(24) + 0.5) * hx

    for number, (u, v) in enumerate(states):
        mu = u - u**3
        wide, tall = np.pad(u, 1, mode="edge"), np.pad(v, 1, mode="edge")
        slope = (wide[1:-1, 2:] - wide[1:-1, :-2]) / (2 * hx)
        rise = (wide[2:, 1:-1] - wide[:-2, 1:-1]) / (2 * hy)
        right = [
            (u**2 + 3 * v**2).sum() * hx * hy / 2,
            ((1 + x) * u * v).mean() + 3 * 0.04 * number,
            abs(mu - mu.mean()).max(),
            (slope**2 + rise**2).sum() * hx * hy
            - ((tall[1:-1, 2:] - tall[1:-1, :-2]) / (2 * hx)).min(),
        ]
        np.testing.assert_allclose(rows[number], right, rtol=1e-13)


def test_any_division_has_the_same_bits(tmp_path: Path) -> None:
    one = made(TEXT, tmp_path / "one", "compute.devices=cpu", "compute.threads=1")
    two = made(TEXT, tmp_path / "two", "compute.devices=[cpu, cpu]", "compute.threads=2")
    assert one == two


def test_a_restart_goes_on_with_the_table(tmp_path: Path) -> None:
    whole = made(TEXT, tmp_path / "whole")
    folder = tmp_path / "parts"
    run(read(TEXT, f"output.directory={folder}", "time.steps=4"))
    config = read(TEXT, f"output.directory={folder}")
    run(config, resume="auto")
    lines = (folder / "statistics.csv").read_text().splitlines()
    assert lines == (tmp_path / "whole" / "statistics.csv").read_text().splitlines()
    assert len(lines) == 1 + len(whole)


def test_the_energy_of_a_wave_that_decays(tmp_path: Path) -> None:
    text = """\
grid: {shape: [64], size: [1]}
model:
  type: pde
  constants: {D: 0.1}
  fields:
    u: {equation: "D*laplace(u)", initial: {type: expression, expression: "sin(2*pi*x)"}}
boundaries: {"*": {type: periodic}}
time: {t_end: 1, scheme: spectral}
output:
  pictures: false
  statistics: {every: 0.25, formulas: {norm: "sqrt(integral(u**2))"}}
"""
    result = run(read(text, f"output.directory={tmp_path}"))
    # Jumps have no error in time, so the rate is that of the wave on the grid.
    rate = 0.1 * (2 * 64 * math.sin(math.pi / 64)) ** 2
    found = result.statistics["norm [1]"]
    assert len(found) > 3
    for time, norm in found.items():
        assert norm == pytest.approx(math.sqrt(0.5) * math.exp(-rate * time), rel=1e-9)


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        ("u**2", "u has a value at every point, and a column has one number; write integral(u)"),
        ("integral(w)", "unknown name 'w'"),
        ("mean(u)*x", "x has a value at every point"),
        ("mu", "u has a value at every point"),
        ("integral(u", "never closed"),
        ("noise(1, 2)", "noise is not a number of the state"),
        ("mean(dz(u))", "the grid has no axis z"),
    ],
)
def test_mistakes_have_their_place(formula: str, told: str) -> None:
    text = TEXT.replace('"integral(u**2 + K*v**2)/2"', f'"{formula}"')
    line = next(k for k, it in enumerate(text.splitlines(), 1) if "energy" in it)
    (said,) = mistakes(text)
    assert told in said
    assert said.split(":")[1] == str(line)
    assert int(said.split(":")[2]) >= 25


def test_other_models_and_names_twice_are_refused(tmp_path: Path) -> None:
    heat = """\
grid: {shape: [8], size: [1]}
model: {type: heat, diffusivity: 1}
initial: {type: constant, value: 1}
boundaries: {"*": {type: neumann}}
time: {steps: 1}
output: {statistics: {every: 1 step, formulas: {a: "mean(temperature)"}}}
"""
    (said,) = mistakes(heat)
    assert "formulas: it is for model.type: pde" in said
    assert ":6:" in said

    # A single field has a column "integral [m]" already.
    twice = """\
grid: {shape: [8], size: [1]}
model: {type: pde, fields: {u: {equation: "-u", initial: {type: constant, value: 1}}}}
boundaries: {"*": {type: neumann}}
time: {steps: 1, dt: 0.1}
output: {statistics: {every: 1 step, formulas: {integral: {formula: "mean(u)", unit: m}}}}
"""
    with pytest.raises(ConfigError, match=r"column integral \[m\], which there is already"):
        run(read(twice, f"output.directory={tmp_path}"))
