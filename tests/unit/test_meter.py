"""What statistics say that came in through each surface is what the steps have moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tests.support.body_samples import SEVERAL_WAYS
from tetris_sim.config import make_config
from tetris_sim.outputs import meter

ROD: dict[str, Any] = {
    "grid": {"shape": [12], "size": ["0.12 m"]},
    "model": {"type": "heat", "material": "steel"},
    "initial": {"type": "constant", "value": 20},
    "boundaries": {
        "x-": {"type": "dirichlet", "value": "20 + 3*t"},
        "x+": {"type": "robin", "h": 900, "ambient": {"table": [["0 s", 5], ["30 s", 90]]}},
    },
    "time": {"t_end": "60 s", "scheme": "explicit"},
    "compute": {"method": "cpu.plain", "threads": 1},
}
FLUIDS = {
    "type": "heat",
    "regions": [
        {"material": "steel"},
        {"name": "water", "fluid": {"ambient": 90, "h": 500}, "box": {"x": ["2 cm", "4 cm"]}},
        {"name": "air", "fluid": {"ambient": 5, "h": 50}, "box": {"x": ["8 cm", "10 cm"]}},
    ],
    "sources": [{"power": "1e4*t*exp(-t/9)"}],
}
RADIATION = {"*": {"type": "radiation", "emissivity": 0.8, "ambient": "300 + 5*t"}}
WAX = {
    "type": "heat",
    "regions": [{"material": "wax"}],
    "materials": {
        "wax": {
            "conductivity": "40 W/(m K)",
            "density": "900 kg/m^3",
            "specific_heat": "2000 J/(kg K)",
            "solidus": "30 degC",
            "liquidus": "32 degC",
            "latent_heat": "100 kJ/kg",
        }
    },
}
PLATE = {
    **ROD,
    "grid": {"shape": [9, 7], "size": ["9 cm", "7 cm"]},
    "boundaries": {
        "x-": {"type": "dirichlet", "value": "100*y"},
        "x+": {"type": "neumann", "flux": "1e4*t"},
        "y": {"type": "robin", "h": 300, "ambient": 5},
    },
}
GRADED = {
    **ROD,
    "grid": {
        "shape": [6, 4],
        "size": [0.1, 0.04],
        "graded": {"x": {"edges": [0, 0.02, 0.03, 0.05, 0.06, 0.08, 0.1]}},
    },
    "boundaries": {"x": {"type": "robin", "h": 300, "ambient": 5}, "y": {"type": "neumann"}},
    "model": {**FLUIDS, "sources": [{"density": "1e6*(1 + x)"}]},
}

TUBE = {
    **ROD,
    "grid": {
        "coordinates": "cylindrical",
        "axes": ["r", "z"],
        "shape": [7, 5],
        "size": ["8 cm", "5 cm"],
        "graded": {"r": {"edges": [0, 0.01, 0.02, 0.025, 0.03, 0.04, 0.06, 0.08]}},
    },
    "boundaries": {
        "r+": {"type": "robin", "h": 900, "ambient": "60 + t"},
        "z-": {"type": "radiation", "emissivity": 0.8, "ambient": 300},
        "z+": {"type": "neumann"},
    },
    "model": {
        **WAX,
        "regions": [
            {"material": "wax"},
            {"material": "steel", "box": {"r": ["4 cm", "8 cm"]}},
            {"name": "oil", "fluid": {"ambient": 90, "h": 500}, "box": {"r": [0, "1 cm"]}},
        ],
        "contacts": [{"between": ["wax", "steel"], "resistance": 1e-4}],
        "sources": [{"density": "1e6*(1 + z)", "material": "wax"}],
    },
}

# Surfaces off the faces of cells: a disc of wax in steel that is cut off, in air.
CUT: dict[str, Any] = {
    **ROD,
    "grid": {"shape": [11, 9], "size": ["11 cm", "9 cm"]},
    "boundaries": {
        "x": {"type": "robin", "h": 900, "ambient": "60 + t"},
        "y": {"type": "neumann"},
    },
    "model": {
        **WAX,
        "regions": [
            {"name": "air", "fluid": {"ambient": 80, "h": 400}},
            {"material": "steel", "box": {"x": [0, "11 cm"], "y": [0, "7.3 cm"]}},
            {"material": "wax", "where": "hypot(x - 5e-2, y - 4e-2) < 2.7e-2"},
            {"material": "titanium", "box": {"x": ["4.2 cm", "5.6 cm"], "y": ["3.3 cm", "5.4 cm"]}},
        ],
        "contacts": [{"between": ["wax", "steel"], "resistance": 1e-4}],
        "sources": [{"density": "1e6*(1 + x)", "material": "wax"}],
    },
}

WAYS: dict[str, Any] = {
    **ROD,
    "grid": {"shape": [8, 6], "size": [0.1, 0.08]},
    "boundaries": SEVERAL_WAYS,
    "initial": {"type": "expression", "expression": "200 + 900*x - 500*y"},
}

CASES = {
    "faces over time": ROD,
    "fluids": {**ROD, "model": FLUIDS},
    "plate": PLATE,
    "graded": GRADED,
    "moving": {**ROD, "model": {**FLUIDS, "sources": [{"density": "1e6*exp(-(x-t/500)**2)"}]}},
    "radiation": {**ROD, "boundaries": RADIATION},
    "melting": {**ROD, "model": WAX},
    "melting in a tube": TUBE,
    "melting, cut": CUT,
    "faces of temperature": WAYS,
}


def last_of(
    config: dict[str, Any], every: str, directory: Path, **changes: Any
) -> dict[str, float]:
    config = {**config, "output": {"statistics": {"every": every}}}
    table = ts.run(config, directory, changes=changes, progress=False).statistics
    return {str(name): float(value) for name, value in table.iloc[-1].items()}


def parts_of(row: dict[str, float]) -> dict[str, float]:
    kinds = ("heat stored", "heat by", "heat through", "heat from", "heat residual")
    return {name: value for name, value in row.items() if name.startswith(kinds)}


@pytest.mark.parametrize("name", CASES)
def test_explicit_steps_are_counted_however_seldom_there_are_records(
    name: str, tmp_path: Path
) -> None:
    each = parts_of(last_of(CASES[name], "1 step", tmp_path / "each"))
    once = parts_of(last_of(CASES[name], "1 day", tmp_path / "once"))
    largest = max(map(abs, each.values()))
    assert largest > 1e3
    residual = next(value for key, value in once.items() if "residual" in key)
    assert abs(residual) < 1e-10 * largest
    for key, value in each.items():
        assert once[key] == pytest.approx(value, abs=1e-10 * largest), key


@pytest.mark.parametrize(
    ("name", "time"),
    [
        *(
            (name, {"dt": "7 s"})
            for name in (
                *("faces over time", "graded", "melting", "melting in a tube"),
                *("melting, cut", "faces of temperature"),
            )
        ),
        *((name, {"tolerance": 1e-6}) for name in ("fluids", "plate")),
    ],
)
def test_implicit_steps_are_counted_to_the_tolerance_of_their_solver(
    name: str, time: dict[str, Any], tmp_path: Path
) -> None:
    config = {**CASES[name], "time": {"t_end": "60 s", "scheme": "implicit", **time}}
    config["compute"] = {"threads": 1}
    rare = parts_of(last_of(config, "1 day", tmp_path / "rare"))
    largest = max(map(abs, rare.values()))
    residual = next(value for key, value in rare.items() if "residual" in key)
    assert abs(residual) < 2e-6 * largest
    # The explicit steps of the same body move the same, to the error of both.
    fine = parts_of(last_of(CASES[name], "1 day", tmp_path / "fine"))
    for key, value in fine.items():
        assert rare[key] == pytest.approx(value, abs=0.03 * largest), key


@pytest.mark.parametrize("name", ["melting in a tube", "melting, cut"])
def test_totals_of_heat_contents_are_of_what_cells_hold(name: str, tmp_path: Path) -> None:
    row = last_of(CASES[name], "1 day", tmp_path)
    (unit,) = {key.split("[")[1] for key in row if key.startswith("temperature heat")}
    heat = row[f"temperature heat [{unit}"]
    assert row[f"heat_content heat [{unit}"] == pytest.approx(heat, rel=1e-12)
    volume = heat / row["heat_content mean [J/m^3]"]
    molten = row["liquid_fraction mean [1]"] * volume
    unit = {"J]": "m^3]", "J/m]": "m^3/m]"}[unit]
    assert row[f"liquid_fraction liquid volume [{unit}"] == pytest.approx(molten, rel=1e-12)


def test_what_jumps_between_two_records_is_not_taken_as_a_line(tmp_path: Path) -> None:
    """A pulse of a flux that is over before the first record."""
    flux = "1e4 if 3 < t < 5.5 else 0"
    config: dict[str, Any] = {
        **ROD,
        "boundaries": {"x-": {"type": "neumann", "flux": flux}, "x+": {"type": "neumann"}},
    }
    times: tuple[dict[str, Any], ...] = (
        {"dt": "0.1 s"},
        {"dt": "20 s", "scheme": "implicit"},
        {"tolerance": 1e-6},
    )
    for number, time in enumerate(times):
        if "tolerance" in time:
            time = {**time, "scheme": "implicit"}
        config["time"] = {"t_end": "60 s", **time}
        row = last_of({**config, "compute": {"threads": 1}}, "1 day", tmp_path / str(number))
        for name in ("heat stored", "heat through x-", "heat through surfaces"):
            assert row[f"{name} [J/m^2]"] == pytest.approx(2.5e4, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *(("fluids", "explicit"), ("radiation", "explicit"), ("fluids", "implicit")),
        *(("melting, cut", "explicit"), ("melting, cut", "implicit")),
        *(("faces of temperature", "explicit"), ("faces of temperature", "implicit")),
    ],
)
def test_a_continued_run_counts_on(name: str, scheme: str, tmp_path: Path) -> None:
    config = {
        **CASES[name],
        "time": {"dt": "0.5 s", "steps": 9, "scheme": scheme},
        "output": {"statistics": {"every": "4 steps"}},
        "checkpoint": {"every": "5 steps", "keep": 3},
        "compute": {"threads": 1} if scheme == "implicit" else ROD["compute"],
    }
    whole = ts.run(config, tmp_path, progress=False).statistics
    for later in (tmp_path / "checkpoints").glob("*9.h5"):
        later.unlink()
    again = ts.run(config, tmp_path, resume="auto", progress=False).statistics
    assert again.equals(whole) if scheme == "explicit" else np.allclose(again, whole, rtol=1e-9)


def test_what_set_field_brings_is_no_heat_that_is_stored(tmp_path: Path) -> None:
    for name in ("fluids", "radiation"):
        config = {**CASES[name], "output": {"statistics": {"every": "1 day"}}}
        with ts.simulate(config, tmp_path / name) as sim:
            sim.run(until=20.0)
            field = sim.field()[0]
            sim.set_field(np.where((field == 90) | (field == 5), field, field + 300))
            sim.run()
        row = parts_of(dict(ts.open_result(tmp_path / name).statistics.iloc[-1]))
        residual = next(value for key, value in row.items() if "residual" in key)
        assert abs(residual) < 1e-10 * max(map(abs, row.values()))


def test_weights_of_large_bodies_are_iterated(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_config({**ROD, "model": FLUIDS}).build()
    direct = meter.find_weights(problem)
    monkeypatch.setattr(meter, "_FACTORISED", 0)
    iterated = meter.find_weights(problem)
    assert direct is not None
    assert iterated is not None
    for name, stored in direct.stored.items():
        np.testing.assert_allclose(iterated.stored[name], stored, atol=1e-10 * abs(stored).max())
