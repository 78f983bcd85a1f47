"""Statistics over regions, materials, fluids and boxes are those of the points that belong to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.errors import ConfigError

CHIP: dict[str, Any] = {
    "grid": {"shape": [12, 10], "size": ["12 mm", "10 mm"]},
    "model": {
        "type": "heat",
        "regions": [
            {"material": "copper"},
            {"name": "die", "material": "silicon", "box": {"x": ["2 mm", "8 mm"]}},
            {"name": "core", "material": "silicon", "box": {"x": ["3 mm", "5 mm"]}},
            {"name": "coolant", "fluid": {"ambient": 5, "h": 900}, "box": {"y": ["0 mm", "2 mm"]}},
            {
                "name": "hole",
                "void": True,
                "box": {"x": ["10 mm", "12 mm"], "y": ["8 mm", "10 mm"]},
            },
        ],
        "sources": [{"region": "core", "power": "1e3*(1 + t)"}],
    },
    "initial": {"type": "expression", "expression": "20 + 1e3*x"},
    "boundaries": {"*": {"type": "neumann"}},
    "time": {"t_end": "20 ms"},
    "compute": {"method": "cpu.plain", "threads": 1},
}
OVER = {
    "the_core": {"region": "core"},
    "rest_of_die": {"region": "die"},
    "si": {"material": "silicon"},
    "water": {"fluid": "coolant"},
    "corner": {"box": {"x": ["9 mm", "12 mm"]}},
}


def with_parts(config: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    return {**config, "output": {"statistics": {"every": "5 ms", "over": over}}}


def test_parts_have_minimum_maximum_mean_and_heat(tmp_path: Path) -> None:
    result = ts.run(with_parts(CHIP, OVER), tmp_path, progress=False)
    last, field = result.statistics.iloc[-1], np.asarray(result.field())
    y, x = np.mgrid[0.5:10, 0.5:12]
    solid, inside = y > 2, (x > 3) & (x < 5)
    silicon = solid & (x > 2) & (x < 8)
    here = {
        "the_core": solid & inside,
        "rest_of_die": silicon & ~inside,
        "si": silicon,
        "water": ~solid,
        "corner": solid & (x > 9) & ~((x > 10) & (y > 8)),
    }
    for name, points in here.items():
        values = field[points]
        found = [last[f"{name} {what} [degC]"] for what in ("min", "max", "mean")]
        np.testing.assert_allclose(found, [values.min(), values.max(), values.mean()])

    of_die = last["the_core heat [J/m]"] + last["rest_of_die heat [J/m]"]
    assert last["si heat [J/m]"] == pytest.approx(of_die)
    assert last["si heat [J/m]"] == pytest.approx(last["silicon heat [J/m]"])
    assert np.isnan(last["water heat [J/m]"])
    assert "of parts: the_core min" in result.report.as_text()


def test_so_do_uniform_bodies_and_equations(tmp_path: Path) -> None:
    bar = {
        **CHIP,
        "grid": {"shape": [10], "size": ["10 mm"]},
        "model": {"type": "heat", "material": "copper"},
    }
    over = {"half": {"box": {"x": ["0 mm", "5 mm"]}}, "all": {"material": "copper"}}
    row = ts.run(with_parts(bar, over), tmp_path / "bar", progress=False).statistics.iloc[0]
    assert row["half mean [degC]"] == pytest.approx(22.5)
    assert row["half heat [J/m^2]"] == pytest.approx(row["all heat [J/m^2]"] * 22.5 / 25 / 2)

    fields = {
        name: {"equation": f"0*{name}", "initial": {"type": "expression", "expression": text}}
        for name, text in (("u", "x"), ("v", "2*x"))
    }
    equations = {
        "grid": {"shape": [8], "size": [8.0]},
        "model": {"type": "pde", "fields": fields},
        "boundaries": {"x": {"type": "periodic"}},
        "time": {"dt": 0.1, "steps": 2},
        "output": {"statistics": {"every": 1, "over": {"left": {"box": {"x": [0, 4]}}}}},
    }
    row = ts.run(equations, tmp_path / "pde", progress=False).statistics.iloc[-1]
    assert (row["left u mean [1]"], row["left v max [1]"]) == (2.0, 7.0)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"a": {"region": "dye"}}, "over.a.region: 'dye' is no region of model.regions.*'die'"),
        ({"a": {"material": "iron"}}, "over.a.material: 'iron' is no material"),
        ({"a": {"fluid": "air"}}, "over.a.fluid: 'air' is no fluid.*known are coolant"),
        ({"a": {"box": {"z": [0, 1]}}}, "over.a.box.z: .*no axis z"),
        ({"a": {"box": {"x": [0, 1]}}}, "from 0 to 0.012 m along x"),
        ({"a": {}}, "give one of region, material, fluid, source and box"),
        ({"silicon": {"material": "silicon"}}, "would have the column silicon min"),
        ({"a": {"region": "hole"}}, "over.a holds no point"),
    ],
)
def test_what_is_no_part_is_refused(over: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ts.run(with_parts(CHIP, over), progress=False)
