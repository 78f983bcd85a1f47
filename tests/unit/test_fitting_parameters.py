"""Fits: what they find, how sure they are, and what they say of parameters that data cannot tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.__main__ import main
from tetris_sim.api import fitting
from tetris_sim.errors import ConfigError
from tetris_sim.outputs.tables import read_table

TIMES = np.linspace(0, 5, 200)
RANGES = {"model.a": "1:10", "model.b": "0.1:3", "model.c": (-5, 5)}
TRUE = np.array([4.0, 0.7, 1.5])


class Curves:
    """A model in place of runs: a * exp(-b t) + c."""

    def __init__(self, noise: float, seed: int = 0, kind: str = "exponential") -> None:
        self.ranges, self.kind = fitting.read_ranges(RANGES), kind
        self.data = self.of(TRUE) + noise * np.random.default_rng(seed).normal(size=len(TIMES))
        self.count = 0

    def of(self, values: Any) -> Any:
        a, b, c = values
        if self.kind == "blind":  # to c
            return a * np.exp(-b * TIMES) + 1e-6 * c
        return (a * c if self.kind == "twins" else a) * np.exp(-b * TIMES) + (
            0 if self.kind == "twins" else c
        )

    def at(self, shares: Any) -> list[Any]:
        self.count += len(shares)
        found = [
            [it.at(float(x)) for it, x in zip(self.ranges, own, strict=True)] for own in shares
        ]
        return [self.of(values) - self.data for values in found]


def fitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, curves: Curves) -> fitting.FitResult:
    monkeypatch.setattr(fitting, "_Runs", lambda *_: curves)
    data = {"core": np.stack([TIMES, curves.data], axis=1)}
    return ts.fit({}, data, RANGES, directory=tmp_path)


def test_three_parameters_within_two_errors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apart = []
    for seed in range(12):
        curves = Curves(0.05, seed)
        result = fitted(monkeypatch, tmp_path, curves)
        assert curves.count <= 30
        assert not any(it.told for it in result.parameters)
        assert result.deviation == pytest.approx(0.05, rel=0.25)
        for it, true in zip(result.parameters, TRUE, strict=True):
            apart.append(abs(it.value - true) / it.error)
            assert it.low < it.value < it.high
    # Of normal noise 95 % lie within two standard errors, and these are not too wide either.
    assert np.mean(np.array(apart) < 2) > 0.85
    assert np.mean(np.array(apart) > 0.5) > 0.4
    said = json.loads((tmp_path / "fit.json").read_text())
    assert len(said["residuals"]["core"]) == len(TIMES)
    assert (tmp_path / "residuals.png").stat().st_size > 1000
    assert "model.b" in (tmp_path / "fit.html").read_text()


@pytest.mark.parametrize(
    ("kind", "key", "said"),
    [
        ("blind", "model.c", "its interval is as wide as its range"),
        ("twins", "model.a", "apart from model.c"),
    ],
)
def test_what_data_cannot_tell_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, key: str, said: str
) -> None:
    result = fitted(monkeypatch, tmp_path, Curves(0.02, kind=kind))
    told = {it.key: it.told for it in result.parameters}
    assert said in told[key]
    assert told["model.b"] == ""
    assert any(said in line for line in result.as_lines())


def flash(place: Path) -> dict[str, Any]:
    """A plate after a pulse on its front."""
    pulse = {"table": [[0, 2e6], [0.01, 2e6], [0.01, 0]]}
    return {
        "grid": {"shape": [10], "size": ["2 mm"]},
        "model": {"type": "heat", "conductivity": 20, "density": 8000, "specific_heat": 500},
        "initial": {"type": "constant", "value": 20},
        "boundaries": {"x-": {"type": "neumann", "flux": pulse}, "x+": {"type": "insulated"}},
        "time": {"t_end": 0.6},
        "compute": {"devices": "cpu", "tuning_budget": 0, "threads": 1},
        "output": {
            "directory": str(place),
            "pictures": False,
            "probes": [{"name": "rear", "at": ["2 mm"], "every": "5 ms"}],
        },
    }


def test_flash_method_from_a_noisy_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = flash(tmp_path / "run")
    ts.run(config)
    rows = np.array(read_table(tmp_path / "run" / "probes" / "rear.csv")[1])
    noise = 0.02 * np.random.default_rng(3).normal(size=len(rows))
    lines = [
        f"{t * 1e3:.12g},{v + n + 273.15:.12g}" for (_, t, v), n in zip(rows, noise, strict=True)
    ]
    (tmp_path / "data.csv").write_text("\n".join(["time [ms],rear [K]", *lines]) + "\n")
    (tmp_path / "flash.yaml").write_text(json.dumps(config))

    words = ["fit", str(tmp_path / "flash.yaml"), "--data", str(tmp_path / "data.csv")]
    words += ["--vary", "conductivity=5 W/(m K):80 W/(m K)", "--processes", "1", "--json"]
    assert main([*words, "-o", str(tmp_path / "fit")]) == 0
    out, err = capsys.readouterr()
    (found,) = json.loads(out)["parameters"]
    # One line for each batch of runs, and nothing of the sweeps that make them.
    told = err.splitlines()
    assert all("off at best" in line for line in told)
    assert 2 <= len(told) <= json.loads(out)["runs"]
    assert abs(found["value"] - 20) < 2 * found["error"]
    # A. J. Parker's estimate of the diffusivity, from the half of the rise.
    rear, times = rows[:, 2], rows[:, 1] - 0.005  # from the middle of the pulse on
    half = float(np.interp((rear[-1] + 20) / 2, rear, times))
    assert 0.1388 * 4e-6 / half == pytest.approx(found["value"] / 8000 / 500, rel=0.02)


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ({"conductivity": "10"}, "LOW:HIGH is wanted"),
        ({"conductivity": "10:5"}, "the lower one first"),
        ({"grid.size": "1 mm:2 m"}, "the same unit"),
        ({}, "a key and its range"),
    ],
)
def test_ranges_that_are_none(vary: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        fitting.read_ranges(vary)


def test_data_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        ts.fit({}, tmp_path / "none.csv", {"conductivity": "1:2"})
    (tmp_path / "one.csv").write_text("time [s]\n1\n2\n")
    with pytest.raises(ConfigError, match="one with the name of each probe"):
        ts.fit({}, tmp_path / "one.csv", {"conductivity": "1:2"})
    with pytest.raises(ConfigError, match="cannot tell 1 parameters"):
        ts.fit({}, {"core": [[0.0, 1.0]]}, {"conductivity": "1:2"})
