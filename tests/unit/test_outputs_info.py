from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.checkpoint_samples import make_problem as make_checkpoint_problem
from tests.support.checkpoint_samples import make_state
from tests.support.outputs_samples import (
    SALT,
    TEMPERATURE,
    every,
    make_problem,
    snapshot,
    write_fields,
)
from tetris_sim.__main__ import main
from tetris_sim.errors import ExitCode
from tetris_sim.model.stencils.catalogue import catalogue
from tetris_sim.outputs.checkpoint import write_checkpoint, write_crash_dump
from tetris_sim.outputs.tables import StatisticsOutput


def info(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["info", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def text(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["info", *arguments]) == 0
    return capsys.readouterr().out


def save(directory: Path, step: int = 120, *, good: bool = True) -> Path:
    problem = make_checkpoint_problem()
    values = np.zeros(problem.state_shape)
    arguments = (directory, make_state(problem, step), problem)

    def read(box: Any) -> Any:
        return values[(slice(None), *(slice(low, high) for low, high in box))]

    return (
        write_checkpoint(*arguments, read, keep=3) if good else write_crash_dump(*arguments, read)
    )


def test_fields_are_described_with_grid_times_and_variables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fields(make_problem((5, 8), (0.25, 0.8), variables=(TEMPERATURE, SALT)), tmp_path)
    found = info(capsys, str(tmp_path / "fields.h5"))
    assert found["kind"] == "fields"
    assert (found["shape"], found["size_m"], found["spacing_m"]) == (
        [8, 5],
        [0.8, 0.25],
        [0.1, 0.05],
    )
    assert [(v["name"], v["unit"]) for v in found["variables"]] == [
        ("temperature", "degC"),
        ("salt", "kg/m^3"),
    ]
    assert found["records"] == [{"step": step, "time_s": step / 2} for step in (0, 20, 40)]
    assert (found["dtype"], found["dt_s"], found["steps"], found["run_id"]) == (
        "float64",
        0.5,
        40,
        "abc",
    )
    files = [tmp_path / "fields.h5", *(tmp_path / "fields").iterdir()]
    assert found["bytes"] == sum(path.stat().st_size for path in files)
    shown = text(capsys, str(tmp_path / "fields.h5"))
    assert "8 x 5 points (x, y), 80 cm x 25 cm, spacing 10 cm x 5 cm" in shown
    assert "temperature [degC], salt [kg/m^3], float64" in shown
    assert "3: step 0 (t = 0 s) to step 40 (t = 20 s)" in shown
    assert "steps 0, 20, 40" in shown


def test_a_removed_record_is_listed_as_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fields(make_problem(), tmp_path)
    gone = tmp_path / "fields" / "fields_000000000020.h5"
    gone.unlink()
    assert info(capsys, str(tmp_path))["fields"]["missing"] == [str(gone)]
    assert f"missing      {gone}" in text(capsys, str(tmp_path / "fields.h5"))


def test_a_checkpoint_is_described_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path)
    found = info(capsys, str(path))
    assert found["kind"] == "checkpoint"
    assert (found["step"], found["steps"], found["shape"]) == (120, 1000, [29, 13])
    assert found["time_s"] == pytest.approx(4.0)
    assert found["bytes"] == path.stat().st_size
    assert found["methods"]["workers"]["cpu:0"]["method"] == "cpu.plain"
    shown = text(capsys, str(path))
    assert "step 120 (t = 4 s) of 1000" in shown
    assert "cpu:0: cpu.plain" in shown
    assert "title        Kupferplatte, 15 µm" in shown
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff\x00\xff")
    assert main(["info", str(path)]) == ExitCode.CONFIG
    assert str(path) in capsys.readouterr().err


def test_a_crash_dump_is_called_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert info(capsys, str(save(tmp_path, good=False)))["kind"] == "crash dump"


def test_a_results_directory_lists_what_every_output_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = make_problem()
    write_fields(problem, tmp_path)
    output = StatisticsOutput(problem, tmp_path, every(10, problem))
    output.start(0)
    output.write(snapshot(problem, 0))
    output.write(snapshot(problem, 10))
    output.close()
    (tmp_path / "final.png").write_bytes(b"a picture")
    older, newer = save(tmp_path / "checkpoints", 100), save(tmp_path / "checkpoints", 200)
    found = info(capsys, str(tmp_path))
    assert found["kind"] == "results"
    assert len(found["fields"]["records"]) == 3
    assert [(table["rows"], table["last"]["step"]) for table in found["tables"]] == [(2, 10)]
    assert found["pictures"] == [str(tmp_path / "final.png")]
    assert [saved["path"] for saved in found["checkpoints"]] == [str(newer), str(older)]
    assert found["newest_checkpoint"]["step"] == 200
    shown = text(capsys, str(tmp_path))
    for part in (
        "fields.h5: fields",
        "statistics.csv: table",
        "final.png",
        "checkpoint_000000000200.h5: checkpoint",
    ):
        assert part in shown


def test_a_table_shows_its_columns_and_its_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "core.csv"
    path.write_text("step,time [s],temperature [degC]\n0,0.0,20.5\n7,3.5,21.25\n9,4.")
    found = info(capsys, str(path))
    assert (found["columns"], found["rows"]) == (["step", "time [s]", "temperature [degC]"], 2)
    assert found["last"] == {"step": 7, "time [s]": 3.5, "temperature [degC]": 21.25}
    assert "last         7, 3.5, 21.25" in text(capsys, str(path))


def test_the_stored_configuration_can_be_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fields(make_problem(), tmp_path)
    stored = "title: Test\nmodel: {type: heat}\n"
    assert text(capsys, str(tmp_path / "fields.h5"), "--config") == stored
    assert text(capsys, str(tmp_path), "--config") == stored
    assert info(capsys, str(tmp_path / "fields.h5"), "--config") == {
        "title": "Test",
        "model": {"type": "heat"},
    }
    assert text(capsys, str(save(tmp_path / "c")), "--config") == "title: Kupferplatte, 15 µm\n"
    (tmp_path / "core.csv").write_text("step,time [s],u [1]\n")
    assert main(["info", str(tmp_path / "core.csv"), "--config"]) == ExitCode.CONFIG


def test_the_catalogue_of_stencils_is_listed_by_domain_with_points_and_radius(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = info(capsys, "--stencils")
    assert [row["name"] for row in rows] == list(catalogue())
    by_name = {row["name"]: row for row in rows}
    star = by_name["star-2d13p"]
    assert (star["points"], star["radius"], star["axes"], star["benchmark"]) == (13, 3, 2, True)
    assert by_name["box-3d27p"]["heat"]
    assert not by_name["box-2d25p"]["heat"]
    assert by_name["upwind-2d"]["offsets"] == [[0, -1], [-1, 0], [0, 0]]  # along x, y
    assert by_name["upwind-2d"]["exact_weights"] == ["3/10", "2/5", "3/10"]
    lines = text(capsys, "--stencils").splitlines()
    assert lines[0].startswith(f"{len(rows)} stencils of 10 domains")
    for row in rows:
        (line,) = (line for line in lines if line.split()[:1] == [row["name"]])
        assert line.endswith(row["description"])
        marks = line.removesuffix(row["description"]).split()[4:]
        assert marks == [
            mark for mark, holds in (("*", row["heat"]), ("-", not row["stable"])) if holds
        ]


@pytest.mark.parametrize("arguments", [[], ["x.h5", "--stencils"]])
def test_info_wants_one_thing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", *arguments]) == ExitCode.CONFIG
    assert "either a file or directory, or --stencils" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nowhere", "empty", "text.h5", "foreign.csv"])
def test_what_is_not_ours_is_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.h5").write_text("no HDF5")
    (tmp_path / "foreign.csv").write_text("a,b\n")
    assert main(["info", str(tmp_path / name)]) == ExitCode.CONFIG
    assert str(tmp_path / name) in capsys.readouterr().err


def test_looking_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_fields(make_problem(), tmp_path)
    save(tmp_path / "checkpoints")
    (tmp_path / "checkpoints" / "checkpoint_000000000130.h5.77.part").write_bytes(
        b"being written by a run"
    )
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
    os.sync()
    text(capsys, str(tmp_path))
    assert {
        path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")
    } == before
