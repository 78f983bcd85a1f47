"""Pictures and pages of sweeps show the numbers of the table where they belong."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tetris_sim.__main__ import main
from tetris_sim.errors import CheckpointError, ExitCode
from tetris_sim.outputs.sweep_table import SweepAxis, draw_sweep, read_sweep

H, MATERIAL, SIZE = "boundaries.y+.h", "model.material", "grid.size"
HOT = "temperature max [degC]"


def write(
    folder: Path, over: dict[str, list[Any]], rows: list[list[Any]], *, zipped: bool = False
) -> Path:
    folder.mkdir()
    plan = {"over": over, "zipped": zipped, "runs": len(rows)}
    (folder / "sweep.json").write_text(json.dumps(plan))
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", *over, "ended", "error", HOT, "heat [J/m]", "directory"])
        writer.writerows(rows)
    return folder


def maps(folder: Path) -> Path:
    over: dict[str, list[Any]] = {H: [10, 20, 40], MATERIAL: ["copper", "steel"]}
    values = [(h, m) for h in over[H] for m in over[MATERIAL]]
    rows = [[k + 1, h, m, "Done", "", 10.0 * k, 5.0, "x"] for k, (h, m) in enumerate(values)]
    return write(folder, over, rows)


@pytest.mark.parametrize(
    ("values", "unit", "places", "names"),
    [
        ([10, 20.5], "", (10.0, 20.5), ()),
        (["1.0 mm", "2e1 mm"], "mm", (1.0, 20.0), ()),
        (["1 mm", "2 cm"], "", (0.0, 1.0), ("1 mm", "2 cm")),
        (["copper", 5], "", (0.0, 1.0), ("copper", "5")),
        ([[50], [100]], "", (0.0, 1.0), ("[50]", "[100]")),
    ],
)
def test_numbers_of_one_unit_keep_their_distances(
    values: list[Any], unit: str, places: tuple[float, ...], names: tuple[str, ...]
) -> None:
    axis = SweepAxis.of("key", values)
    assert (axis.unit, axis.places, axis.names) == (unit, places, names)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([1, 10, 100], True), ([1, 2, 3], False), ([0, 1, 2], False), ([1, 10], False)],
)
def test_values_that_grow_by_a_factor_are_spaced_evenly(values: list[Any], wanted: bool) -> None:
    assert SweepAxis.of("key", values).geometric is wanted


def test_a_map_has_each_number_at_its_values(tmp_path: Path) -> None:
    table = read_sweep(maps(tmp_path / "it"))
    assert table.choose(None) == (HOT,)  # the heat is the same in all runs
    (panel,) = draw_sweep(table, [HOT]).figure.axes[:1]
    mesh = panel.collections[0]
    np.testing.assert_array_equal(
        np.asarray(mesh.get_array()).reshape(3, 2), [[0, 10], [20, 30], [40, 50]]
    )
    assert [it.get_text() for it in panel.get_xticklabels()] == ["copper", "steel"]
    assert panel.get_yscale() == "log"
    assert panel.get_ylabel() == H


def test_one_key_makes_curves_with_a_gap_where_a_run_failed(tmp_path: Path) -> None:
    rows = [
        [1, "1.0 mm", "Done", "", 3, 1, "x"],
        [2, "2.0 mm", "failed", "no", "", "", "x"],
        [3, "3.0 mm", "Done", "", 5, 2, "x"],
    ]
    table = read_sweep(write(tmp_path / "it", {"a": ["1.0 mm", "2.0 mm", "3.0 mm"]}, rows))
    above, below = draw_sweep(table, table.choose(None)).figure.axes
    (line,) = above.lines
    np.testing.assert_array_equal(line.get_ydata(), [3, np.nan, 5])
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
    assert below.get_xlabel() == "a [mm]"


def test_a_probe_is_chosen_by_its_name_alone(tmp_path: Path) -> None:
    table = read_sweep(maps(tmp_path / "it"))
    probe, other = "core: temperature [degC]", "rim: temperature [degC]"
    table = dataclasses.replace(table, results=(*table.results, probe, other))
    assert table.choose("core") == table.choose("core: temperature") == (probe,)


def test_more_keys_make_a_line_per_run_that_ended(tmp_path: Path) -> None:
    over: dict[str, list[Any]] = {H: [1, 2], MATERIAL: ["copper", "steel"], SIZE: [[1, 2], [3, 4]]}
    values = [(h, m, s) for h in over[H] for m in over[MATERIAL] for s in over[SIZE]]
    rows = [[k + 1, *it, "Done", "", k if k else "", 7, "x"] for k, it in enumerate(values)]
    table = read_sweep(write(tmp_path / "it", over, rows))
    axes = draw_sweep(table, [HOT]).figure.axes[0]
    found = [np.asarray(it.get_ydata()).tolist() for it in axes.lines]
    lines = [it for it in found if len(it) == 4]
    assert len(lines) == 7
    assert lines[0] == [
        0,
        0,
        1,
        0,
    ]  # the second run: h 1, copper, the larger size, the lowest result


def test_the_verbs_draw_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = maps(tmp_path / "it")
    assert main(["plot", str(folder)]) == ExitCode.OK
    assert f"it.png: 6 runs over {H} and {MATERIAL}" in capsys.readouterr().out
    with Image.open("it.png") as picture:
        assert picture.width > 600
    assert (
        main(["plot", str(folder / "table.csv"), "--variable", "heat", "-o", "h.png"])
        == ExitCode.OK
    )

    assert main(["report", str(folder), "-o", "it.html"]) == ExitCode.OK
    page = Path("it.html").read_text()
    assert f"6 runs over {H} and {MATERIAL}, 0 failed" in page
    assert page.count("<tr>") == 7
    assert "@@" not in page


def test_what_is_no_sweep_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = maps(tmp_path / "it")
    assert main(["plot", str(folder), "--variable", "speed"]) == ExitCode.CONFIG
    assert f"the table of it has {HOT} or heat [J/m]" in capsys.readouterr().err
    assert main(["plot", str(folder), "--last"]) == ExitCode.CONFIG
    assert "a table is drawn whole" in capsys.readouterr().err
    assert main(["report", str(folder), str(folder)]) == ExitCode.CONFIG
    (folder / "table.csv").unlink()
    with pytest.raises(CheckpointError, match="no run of the sweep has ended"):
        read_sweep(folder)
    (folder / "sweep.json").write_text("[]")
    with pytest.raises(CheckpointError, match="does not hold a sweep"):
        read_sweep(folder)
    table = read_sweep(write(tmp_path / "none", {H: [1]}, [[1, 1, "waiting", "", "", "", "x"]]))
    with pytest.raises(CheckpointError, match="nothing to draw yet"):
        table.choose(None)
    with pytest.raises(CheckpointError, match="nothing to draw yet"):
        table.choose("heat")
