"""Floorplans and power traces of chip simulators: blocks by name, each with its power over time."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim.apps.heat.sources import read_floorplan
from tetris_sim.config import load_config
from tetris_sim.config.sections.varying import read_trace
from tetris_sim.errors import ConfigError, ConfigMistakesError
from tetris_sim.simulation.launch import launch

PLAN = """# name, width, height, left x, lower y
core\t0.004 0.006 0 0
cache 0.006  0.006 0.004 0.000   # to the right

core cache 3.0
"""
TRACE = "core\tcache\n4\t1\n8\t1\n0\t1.5\n"
CONFIG = """
grid: {shape: [37, 23, 4], size: [10 mm, 6 mm, 1 mm]}
model:
  type: heat
  material: silicon
  sources:
    - {floorplan: chip.flp, box: {z: [0 mm, 0.25 mm]}, power: {file: chip.ptrace, interval: 1 ms}}
initial: {type: constant, value: 20 degC}
boundaries: {"*": {type: insulated}}
time: {t_end: 3 ms}
compute: {devices: cpu, tuning_budget: 0}
output: {statistics: {every: 1 ms, sources: true}, pictures: false}
"""


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    (tmp_path / "chip.flp").write_text(PLAN)
    (tmp_path / "chip.ptrace").write_text(TRACE)
    (tmp_path / "chip.yaml").write_text(CONFIG)
    return tmp_path / "chip.yaml"


def rows_of(directory: Path) -> list[dict[str, float]]:
    with (directory / "statistics.csv").open(newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def test_blocks_are_read_with_comments_and_without_wires(chip: Path) -> None:
    core, cache = read_floorplan(chip.parent / "chip.flp")
    assert (core.name, core.x, core.y) == ("core", (0.0, 0.004), (0.0, 0.006))
    assert (cache.name, cache.x, cache.resistivity) == ("cache", (0.004, 0.01), None)
    names, rows = read_trace(chip.parent / "chip.ptrace")
    assert names == ["core", "cache"]
    assert rows.tolist() == [[4, 1], [8, 1], [0, 1.5]]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"time.scheme": "implicit", "time.dt": "0.5 ms"},
        {"grid.shape": [3, 2, 1]},
        {"grid.shape": [2, 1, 1]},
    ],
)
def test_every_joule_of_a_trace_arrives_on_any_grid(
    chip: Path, changes: dict[str, Any], tmp_path: Path
) -> None:
    words = [f"{key}={value}" for key, value in changes.items()]
    launch(load_config(chip, overrides=[*words, f"output.directory={tmp_path / 'r'}"]))
    found = rows_of(tmp_path / "r")
    heats = {row["time [s]"]: row["heat by sources [J]"] for row in found}
    given = {0.0: 0.0, 0.001: 5e-3, 0.002: 14e-3, 0.003: 15.5e-3}
    assert heats == pytest.approx({t: given[t] for t in heats}, rel=1e-9, abs=1e-15)
    assert found[-1]["heat stored [J]"] == pytest.approx(15.5e-3, rel=1e-7)
    assert found[-1]["core mean [degC]"] > found[-1]["cache mean [degC]"] > 20


def test_blocks_are_ordinary_sources_by_name(chip: Path) -> None:
    config = load_config(chip)
    sources: Any = config.model
    assert [it.name for it in sources.sources] == ["core", "cache"]
    assert sources.sources[1].power.column == "cache"
    # What a checkpoint keeps says the same without the floorplan.
    text = config.resolved_text()
    assert "chip.flp" not in text
    (chip.parent / "again.yaml").write_text(text)
    assert load_config(chip.parent / "again.yaml").resolved_text() == text


def test_a_trace_without_interval_gives_its_means(chip: Path, tmp_path: Path) -> None:
    text = CONFIG.replace(", interval: 1 ms", "").replace("t_end: 3 ms", "scheme: steady")
    text = text.replace("every: 1 ms", "every: 1 step")
    cooled = '{z+: {type: convection, h: 1e4, ambient: 20 degC}, "*": {type: insulated}}'
    chip.write_text(text.replace('{"*": {type: insulated}}', cooled))
    launch(load_config(chip, overrides=[f"output.directory={tmp_path / 'r'}"]))
    assert rows_of(tmp_path / "r")[-1]["sources [W]"] == pytest.approx(4 + 3.5 / 3, rel=1e-12)


def test_a_thin_block_heats_the_cells_of_its_middle(chip: Path) -> None:
    plan = "core 0.01 0.0001 0 0.0021\ncache 0.01 0.0038 0 0.0022\n"
    (chip.parent / "chip.flp").write_text(plan)
    config = load_config(chip, overrides=["grid.shape=[10, 6, 4]"])
    model: Any = config.model
    heated = model.heated(config)
    cells = np.argwhere(heated[0](((0, 4), (0, 6), (0, 10))))
    assert set(cells[:, 1]) == {2}
    assert len(cells) == 10


def test_each_region_of_a_floorplan_has_the_material_that_the_file_says(chip: Path) -> None:
    plan = "core 0.004 0.006 0 0 2e6 0.01\ncache 0.006 0.006 0.004 0\n"
    (chip.parent / "vias.flp").write_text(plan)
    region = "{name: tim, floorplan: vias.flp, material: copper, box: {z: [0 mm, 0.25 mm]}}"
    regions = f"  regions: [{{material: silicon}}, {region}]\n"
    chip.write_text(CONFIG.replace("  material: silicon\n", regions))
    model: Any = load_config(chip).model
    assert [it.name for it in model.regions] == [None, "tim_core", "tim_cache"]
    own = model.substances()["tim_core"]
    assert own.conductivity[0] == pytest.approx(100)
    assert own.capacity == pytest.approx(2e6)
    assert model.regions[2].material == "copper"


@pytest.mark.parametrize(
    ("file", "content", "line", "words"),
    [
        ("chip.flp", PLAN.replace("0.004 0.006 0 0", "0.005 0.006 0 0"), 7, "core and cache over"),
        ("chip.flp", PLAN.replace("0.004 0.006 0 0", "0.004 0.006 0"), 7, "line 2: 4 words"),
        ("chip.flp", PLAN.replace("cache 0.006  0.006", "core 0.006 0.006"), 7, "core is there t"),
        ("chip.flp", "# nothing\n", 7, "holds no block"),
        ("chip.flp", PLAN.replace("\tcore", "c").replace("core\t", "cpu "), 7, "cpu is in .* and not in"),
        ("chip.ptrace", TRACE.replace("cache", "cash"), 7, "cache is in .* not in .*cash"),
        ("chip.ptrace", "core cache gpu\n1 2 3\n", 7, "gpu is in .* and in no floorplan"),
        ("chip.ptrace", "core cache\n1 2\n1 2 3\n", 7, "line 3: 3 words"),
        ("chip.ptrace", "1 2\n1 2\n", 7, "the first line names"),
        ("chip.yaml", CONFIG.replace("floorplan: chip", "at: [1 mm, 0 mm], floorplan: chip"),
         7, "cache: it reaches from 0.005 m to 0.011 m along x"),
        ("chip.yaml", CONFIG.replace("box: {z", "box: {x: [0, 1], z"), 7, "says x and y"),
        ("chip.yaml", CONFIG.replace("power: {file: chip.ptrace, interval: 1 ms}", "power: 5 W"),
         7, "wants a power trace"),
    ],
)  # fmt: skip
def test_mistakes_are_told_where_the_floorplan_is_written(
    chip: Path, file: str, content: str, line: int, words: str
) -> None:
    (chip.parent / file).write_text(content)
    with pytest.raises(ConfigMistakesError, match=words) as caught:
        load_config(chip)
    assert {it.place.line for it in caught.value.problems} == {line}
    assert all("sources.0" in str(it) for it in caught.value.problems)


def test_two_layers_share_a_trace_but_not_the_names_of_blocks(chip: Path) -> None:
    again = "    - {floorplan: chip.flp, box: {z: [0.5 mm, 0.75 mm]}, power: {file: chip.ptrace}}\n"
    chip.write_text(CONFIG.replace("initial:", f"{again}initial:"))
    with pytest.raises(ConfigMistakesError, match="two sources are named core"):
        load_config(chip)
    chip.write_text(CONFIG.replace("initial:", again.replace("{fl", "{name: top, fl") + "initial:"))
    model: Any = load_config(chip).model
    assert [it.name for it in model.sources] == ["core", "cache", "top_core", "top_cache"]


def test_beams_stand_beside_floorplans(chip: Path) -> None:
    beam = "    - {type: beam, name: spot, power: 1 W, d4sigma: 2 mm, face: q+}\n"
    chip.write_text(CONFIG.replace("initial:", f"{beam}initial:"))
    with pytest.raises(ConfigMistakesError, match=r"chip.yaml:8:.*sources.1.face"):
        load_config(chip)
    chip.write_text(CONFIG.replace("initial:", f"{beam}initial:".replace("q+", "z+")))
    model: Any = load_config(chip).model
    assert [it.name for it in model.sources] == ["core", "cache", "spot"]


def test_a_column_of_a_file_without_times_serves_any_source(chip: Path) -> None:
    source = "{box: {x: [0 mm, 1 mm]}, power: {file: chip.ptrace, column: core, interval: 1 ms}}"
    text = CONFIG[: CONFIG.index("    - {floor")] + f"    - {source}\n"
    chip.write_text((text + CONFIG[CONFIG.index("initial:") :]).replace(", sources: true", ""))
    assert load_config(chip).build().steps > 0
    chip.write_text(chip.read_text().replace("column: core", "column: cpu"))
    with pytest.raises(ConfigError, match="no column is named 'cpu'"):
        load_config(chip)
