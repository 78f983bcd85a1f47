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
from tetris_sim.apps.pde.wholes import roughness
from tetris_sim.config import make_config
from tetris_sim.config.overrides import read_ranges
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.outputs.tables import read_table

TIMES = np.linspace(0, 5, 200)
RANGES = {"model.a": "1:10", "model.b": "0.1:3", "model.c": (-5, 5)}
TRUE = np.array([4.0, 0.7, 1.5])


class Curves:
    """A model in place of runs: a * exp(-b t) + c."""

    def __init__(self, noise: float, seed: int = 0, kind: str = "exponential") -> None:
        self.ranges, self.kind = read_ranges(RANGES), kind
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
        read_ranges(vary)


def test_data_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        ts.fit({}, tmp_path / "none.csv", {"conductivity": "1:2"})
    (tmp_path / "one.csv").write_text("time [s]\n1\n2\n")
    with pytest.raises(ConfigError, match="one with the name of each probe"):
        ts.fit({}, tmp_path / "one.csv", {"conductivity": "1:2"})
    with pytest.raises(ConfigError, match="cannot tell 1 parameters"):
        ts.fit({}, {"core": [[0.0, 1.0]]}, {"conductivity": "1:2"})


# Unknown fields, by runs forwards and back.

X = (np.arange(24) + 0.5) / 24


def rod(initial: float) -> dict[str, Any]:
    """A rod with a source s of its own, and probes all along it."""
    equations = {"u": "D*laplace(u) + s - r*u", "s": "0"}
    return {
        "grid": {"shape": [24], "size": [1.0]},
        "model": {
            "type": "pde",
            "constants": {"D": 0.02, "r": 0.5},
            "fields": {
                name: {"equation": it, "initial": {"type": "constant", "value": initial}}
                for name, it in equations.items()
            },
        },
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"dt": 0.02, "t_end": 1.0},
        "compute": {"devices": "cpu", "tuning_budget": 0, "threads": 1},
        "output": {
            "pictures": False,
            "probes": [
                {"name": f"p{k}", "at": [(k + 0.5) / 12], "every": "0.02 s"} for k in range(12)
            ],
        },
    }


def measured(noise: float, **initial: Any) -> dict[str, Any]:
    """What the probes of a rod say, at every fifth step."""
    times = np.round(np.arange(1, 11) * 0.1, 12)
    nothing = {f"p{k}": np.stack([times, 0 * times], axis=1) for k in range(12)}
    found = ts.gradient(rod(0.0), None, "u", data=nothing, initial=initial).residuals
    rng = np.random.default_rng(5)
    return {
        name: np.stack([times, it + noise * rng.normal(size=len(it))], axis=1)
        for name, it in found.items()
    }


def test_a_source_map_and_a_constant_are_found(tmp_path: Path) -> None:
    source = np.exp(-60 * (X - 0.4) ** 2)
    data = measured(1e-3, u=np.zeros(24), s=source)
    found = ts.fit(
        rod(0.0), data, {"s": "0:2", "constants.r": "0.1:2"}, smooth=1e-6, directory=tmp_path
    )
    assert np.abs(found.fields["s"] - source).max() < 0.08
    assert found.values["model.constants.r"] == pytest.approx(0.5, rel=0.05)
    # The field takes up some of the noise.
    assert 0.7e-3 < found.deviation < 1e-3
    assert "by adjoints" in found.derivatives
    assert "25 unknowns" in found.derivatives
    assert np.array_equal(np.load(tmp_path / "s.npy"), found.fields["s"])
    said = json.loads((tmp_path / "fit.json").read_text())
    assert said["fields"] == {"s": "s.npy"}
    assert said["parameters"][0]["error"] is None
    # Results that are there are not replaced without being asked.
    with pytest.raises(ConfigError, match="is there already"):
        ts.fit(rod(0.0), data, {"s": "0:2"}, smooth=1e-6, directory=tmp_path)


def test_both_ways_find_the_same(tmp_path: Path) -> None:
    data = measured(1e-3, u=np.sin(3 * X), s=1 - X)
    config = rod(0.0)
    for name, text in (("u", "sin(3*x)"), ("s", "1 - x")):
        config["model"]["fields"][name]["initial"] = {"type": "expression", "expression": text}
    vary = {"constants.r": "0.1:2"}
    ways = [
        ts.fit(config, data, vary, derivatives=way, directory=tmp_path / way, processes=1)
        for way in ("auto", "adjoints")
    ]
    assert "by differences" in ways[0].derivatives
    assert "by adjoints" in ways[1].derivatives
    for first, second in zip(*(it.parameters for it in ways), strict=True):
        assert abs(first.value - second.value) < 0.05 * first.error
        assert first.error == pytest.approx(second.error, rel=0.05)


def test_the_derivative_of_a_fit_is_that_of_gradient() -> None:
    data = measured(0.0, u=np.zeros(24), s=1 - X)
    ranges = read_ranges({"s": "0:2", "constants.D": "0.005:0.1"})
    config = make_config(rod(0.5))
    goal = fitting._Misfit(config, data, ranges[1:], {"s": ranges[0]}, 1e-3)
    total, slopes, _ = goal(goal.begin)
    middle = ranges[1].at(0.5)
    found = ts.gradient(config, None, ["s", "D"], data=data, changes={"model.constants.D": middle})
    assert total == found.value  # a constant field is not rough
    assert slopes[0] == found["D"] * ranges[1].slopes(np.array(0.5))
    assert np.array_equal(slopes[1:], 2 * found["s"])

    # With the Tikhonov term, against differences along a direction.
    rng = np.random.default_rng(6)
    at, way = rng.uniform(0.3, 0.7, 25), rng.normal(size=25)
    totals = [goal(at + h * way)[0] for h in (-1e-5, 1e-5)]
    assert goal(at)[1] @ way == pytest.approx((totals[1] - totals[0]) / 2e-5, rel=1e-6)


def test_an_initial_temperature_in_kelvin(tmp_path: Path) -> None:
    config = flash(tmp_path / "run")
    config["boundaries"]["x-"] = {"type": "insulated"}
    config["output"]["probes"] = [
        {"name": f"p{k}", "at": [f"{k / 5} mm"], "every": "5 ms"} for k in range(11)
    ]
    x = (np.arange(10) + 0.5) / 10
    true, times = 20 + 10 * np.cos(np.pi * x), np.arange(1, 20) * 0.002
    nothing = {f"p{k}": np.stack([times, 0 * times], axis=1) for k in range(11)}
    del config["output"]["directory"]
    seen = ts.gradient(config, None, "temperature", data=nothing, initial=true).residuals
    data = {name: np.stack([times, it], axis=1) for name, it in seen.items()}
    found = ts.fit(config, data, {"temperature": "273 K:323 K"}, directory=tmp_path / "fit")
    assert np.abs(found.fields["temperature"] - true).max() < 0.02
    assert any("temperature  10 points" in line for line in found.as_lines())


@pytest.mark.parametrize(
    ("change", "given", "error", "said"),
    [
        ({}, {}, ConfigError, "cannot tell 24 unknowns: give `smooth`"),
        ({}, {"derivatives": "differences"}, ConfigError, "a run for each point of s"),
        (
            {"time": {"scheme": "implicit", "dt": 0.01, "t_end": 1.0}},
            {"smooth": 1.0},
            UnsupportedError,
            "time.scheme is implicit",
        ),
    ],
)
def test_fields_that_cannot_be_fitted(
    change: dict[str, Any], given: dict[str, Any], error: Any, said: str, tmp_path: Path
) -> None:
    data = {"p1": [[0.5, 1.0], [0.6, 1.0]]}
    with pytest.raises(error, match=said):
        ts.fit({**rod(0.0), **change}, data, {"s": "0:2"}, directory=tmp_path, **given)


def test_roughness_is_the_integral_of_the_squared_gradient() -> None:
    problem = make_config(
        {
            "grid": {
                "shape": [40, 40],
                "size": ["1 m", "1 m"],
                "coordinates": "cylindrical",
                "axes": ["r", "z"],
            },
            "model": {"type": "heat", "conductivity": 1, "density": 1, "specific_heat": 1},
            "initial": {"type": "constant", "value": 0},
            "boundaries": {"*": {"type": "insulated"}},
            "time": {"t_end": 1e-6},
        }
    ).build()
    r = problem.grid.coordinates(problem.grid.axis_names.index("r"))
    along = problem.grid.axis_names.index("r")
    values = np.broadcast_to(np.expand_dims(r**2, 1 - along), problem.grid.shape)
    total, slopes = roughness(problem, values)
    assert total == pytest.approx(2 * np.pi * 0.9875**4, rel=1e-3)  # of 4 r^2 * 2 pi r
    assert (slopes * values).sum() == pytest.approx(2 * total)
