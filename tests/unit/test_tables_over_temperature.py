"""Tables over temperature may lie in files, in columns with names and units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tetris_sim.config import Config, load_config, make_config
from tetris_sim.errors import ConfigError

SHEET = """T [K],k [W/(m K)],c,note
293.15,60,0.49,solid
1073.15,30,0.8,solid
1073.15,25,0.9,liquid
"""


def config(**steel: Any) -> dict[str, Any]:
    numbers = {"conductivity": 50, "density": 7800, "specific_heat": 500, **steel}
    return {
        "grid": {"shape": [4], "size": ["4 cm"]},
        "model": {
            "type": "heat",
            "regions": [{"material": "mine"}],
            "materials": {"mine": numbers},
        },
        "initial": {"type": "constant", "value": 20},
        "boundaries": {"x": {"type": "neumann"}},
        "time": {"t_end": "1 s"},
    }


def mine(config: Config) -> Any:
    model: Any = config.model
    return model.materials["mine"]


def test_columns_are_taken_by_name_and_unit_and_may_jump(tmp_path: Path) -> None:
    sheet = tmp_path / "steel.csv"
    sheet.write_text(SHEET)
    k = {"file": str(sheet), "column": "k", "temperature": "T"}
    c = {"file": str(sheet), "column": "c", "temperature": "T", "unit": "kJ/(kg K)", "hold": True}
    found = mine(make_config(config(conductivity=k, specific_heat=c)))
    assert found.conductivity.table == ((20.0, 60.0), (800.0, 30.0), (800.0, 25.0))
    assert found.specific_heat.table[1] == (800.0, pytest.approx(800.0))
    assert found.specific_heat.hold

    # What it resolves to has the rows, and means the same without the file.
    resolved = make_config(config(conductivity=k, specific_heat=c)).resolved()
    sheet.unlink()
    assert mine(make_config(resolved)) == found


def test_a_file_of_two_columns_lies_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "k.csv").write_text("20,60\n100,50\n")
    (tmp_path / "c.csv").write_text("temperature [degC],c [J/(kg K)],d\n0,400,1\n50,420,1\n")
    text = """
grid: {shape: [4], size: [4 cm]}
model:
  type: heat
  regions: [{material: mine}]
  materials:
    mine:
      conductivity: {table: k.csv}
      density: 7800
      specific_heat: {file: c.csv, column: c}
initial: {type: constant, value: 20}
boundaries: {x: {type: neumann}}
time: {t_end: 1 s}
"""
    (tmp_path / "run.yaml").write_text(text)
    found = mine(load_config(tmp_path / "run.yaml"))
    assert found.conductivity.table == ((20.0, 60.0), (100.0, 50.0))
    assert found.specific_heat.table == ((0.0, 400.0), (50.0, 420.0))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"file": "none.csv", "column": "k"}, "none.csv cannot be read .*temperatures and values"),
        ({"file": "{}", "column": "q", "temperature": "T"}, "no column is named 'q'"),
        ({"file": "{}", "column": "k"}, "no column is named 'temperature'"),
        ({"file": "{}", "column": "note", "temperature": "T"}, "row 1: 'solid'"),
        ({"file": "{}", "column": "k", "temperature": "T", "unit": "W"}, "unit says W"),
        ({"table": [[20, 50]], "column": "k"}, "rows were found"),
        ({"table": [[20, 50]], "row": "k"}, "a file beside column, temperature and unit"),
        ({"table": [[20, 50], [10, 40]]}, "temperatures of a table ascend"),
    ],
)
def test_what_is_no_table_is_refused(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    sheet = tmp_path / "steel.csv"
    sheet.write_text(SHEET)
    filled = {key: str(sheet) if it == "{}" else it for key, it in given.items()}
    with pytest.raises(ConfigError, match=words):
        make_config(config(conductivity=filled))
