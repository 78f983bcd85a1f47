"""Materials from a file of one's own, with their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tetris_sim.__main__ import main
from tetris_sim.config import load_config
from tetris_sim.errors import ConfigMistakesError

LIBRARY = """
gap filler: {conductivity: 3.2, density: 2900, specific_heat: 900, source: "data sheet XY, 2024"}
fr4:
  conductivity: {x: 0.8, y: 0.8, z: 0.3}
  density: 1850
  specific_heat: 1100
  source: a handbook, table 5
copper: {material: copper, conductivity: 385, source: measured here}
paste: {conductivity: {table: [[20 degC, 3], [80 degC, 2.5]]}, density: 2500, specific_heat: 900, source: them}
"""
CONFIG = """
grid: {shape: [10, 10, 4], size: [10 mm, 10 mm, 4 mm]}
model:
  type: heat
  library: ours.yaml
  materials: {board: {material: fr4, density: 1900}, lid: copper}
  regions:
    - {material: board}
    - {material: gap filler, box: {z: [1 mm, 2 mm]}}
    - {material: lid, box: {z: [2 mm, 3 mm]}}
    - {material: steel, box: {z: [3 mm, 4 mm]}}
initial: {type: constant, value: 20 degC}
boundaries: {"*": {type: insulated}}
time: {steps: 1}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ours.yaml").write_text(LIBRARY)
    (tmp_path / "body.yaml").write_text(CONFIG)
    return tmp_path


def test_names_of_a_library_are_materials(files: Path) -> None:
    model: Any = load_config(files / "body.yaml").model
    found = model.substances()
    assert found["gap filler"].conductivity[0] == 3.2
    assert found["board"].conductivity == (0.8, 0.8, 0.3)
    assert found["board"].capacity == 1900 * 1100
    assert found["lid"].conductivity[0] == 385  # of the library, before the table's 401
    assert found["steel"].conductivity[0] != 385
    assert "paste" not in found


def test_what_is_kept_of_a_run_says_it_all(files: Path) -> None:
    text = load_config(files / "body.yaml").resolved_text()
    assert "ours.yaml" not in text
    (files / "again.yaml").write_text(text)
    (files / "ours.yaml").unlink()
    again: Any = load_config(files / "again.yaml").model
    assert again.substances()["gap filler"].conductivity[0] == 3.2


@pytest.mark.parametrize("more", ["", ", density: 2000"])
def test_a_body_of_one_material_has_it_from_the_library(files: Path, more: str) -> None:
    head, _, rest = CONFIG.partition("  materials")
    text = (
        f"{head}  material: gap filler\n{more.replace(', ', '  ')}\n{rest[rest.index('initial') :]}"
    )
    (files / "body.yaml").write_text(text)
    model: Any = load_config(files / "body.yaml").model
    capacity = (2000 if more else 2900) * 900
    (found,) = model.substances().values()
    assert (found.conductivity[0], found.capacity) == (3.2, capacity)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (', source: "data sheet XY, 2024"', "", "ours.yaml:2:1: gap filler: a section with source"),
        ("conductivity: 3.2", "conductivity: -3.2", "gap filler.conductivity"),
        ("density: 1850", "densty: 1850", "board.densty: unknown key"),
        (LIBRARY, "- a\n", "materials by name are wanted"),
        (LIBRARY, "a: [", "ours.yaml:"),
    ],
)
def test_mistakes_of_a_library_are_told(files: Path, old: str, new: str, words: str) -> None:
    (files / "ours.yaml").write_text(LIBRARY.replace(old, new))
    with pytest.raises(ConfigMistakesError, match=words):
        load_config(files / "body.yaml")


def test_a_library_that_is_not_there_is_told(files: Path) -> None:
    (files / "ours.yaml").unlink()
    with pytest.raises(ConfigMistakesError, match="a YAML file of materials is wanted"):
        load_config(files / "body.yaml")


def test_a_library_is_listed_with_its_sources(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(files / "ours.yaml")
    assert main(["materials", "--library", file]) == 0
    told = capsys.readouterr().out
    assert "data sheet XY, 2024" in told
    assert "a handbook, table 5" in told
    assert main(["materials", "--library", file, "gap filler", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["conductivity"], row["specific_heat"]) == (3.2, 900)
