"""Results directories that somebody else wrote, or that were cut off: a sentence, no traceback."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tetris_sim as ts
from tests.support.fault_runs import tetris_here
from tetris_sim.commands.sources import read_config_text
from tetris_sim.config import make_config
from tetris_sim.errors import CheckpointError, ConfigError, TetrisError
from tetris_sim.outputs.tables import read_table
from tetris_sim.simulation.report import read_report

ESCAPE = "\x1b]0;mine\x07"
REPORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "empty": lambda report: {},
    "list": lambda report: [report],
    "less": lambda report: {key: report[key] for key in report if key != "versions"},
    "words": lambda report: report | {"step": "x" * 500},
    "huge": lambda report: report | {"steps": 10**400},
    "half": lambda report: report | {"step": 1.5},
    "methods": lambda report: report | {"methods": [1]},
    "workers": lambda report: report | {"workers": [{"worker": 1}]},
}


@pytest.fixture
def copy(ended_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ended_run, tmp_path / "out"))


def test_a_report_comes_back_as_it_was_written(ended_run: Path) -> None:
    report = read_report(ended_run / "report.json")
    assert json.loads(json.dumps(report.as_json())) == json.loads(
        (ended_run / "report.json").read_text()
    )
    assert isinstance(report.plan, tuple)
    assert report == ts.open_result(ended_run).report


@pytest.mark.parametrize("change", REPORTS)
def test_a_report_that_is_none_is_refused_or_left_out(change: str, copy: Path) -> None:
    path = copy / "report.json"
    path.write_text(json.dumps(REPORTS[change](json.loads(path.read_text()))))
    with pytest.raises(CheckpointError, match=r"report\.json cannot be read as the report"):
        read_report(path)
    with pytest.raises(CheckpointError, match="holds no report of a run"):
        ts.open_result(copy)
    watched = tetris_here("watch", copy, "--once")
    assert watched.returncode == 0, watched.stderr
    assert "stopped without a report" in watched.stdout
    assert tetris_here("info", copy).returncode == 2


@pytest.mark.parametrize("text", ["[" * 100_000, "\0", "", "null", "\udcff"])
@pytest.mark.parametrize("name", ["report.json", "resolved.yaml"])
def test_what_is_no_text_of_ours_is_survived(name: str, text: str, copy: Path) -> None:
    (copy / name).write_bytes(text.encode(errors="surrogateescape"))
    for verb in (("watch", copy, "--once"), ("info", copy)):
        done = tetris_here(*verb)
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == 0 or len(done.stderr.splitlines()) == 1


def test_names_of_others_do_not_command_a_terminal(copy: Path) -> None:
    path = copy / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"ended": f"ended{ESCAPE}"}))
    (copy / "probes" / "one.csv").rename(copy / "probes" / f"one{ESCAPE}.csv")
    done = tetris_here("watch", copy, "--once")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "ended?]0;mine?" in done.stdout


def test_a_configuration_that_multiplies_itself_is_not_expanded() -> None:
    lines = ["a0: &a0 [x]"] + [
        f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 30)
    ]
    assert read_config_text("\n".join(lines)) == {}
    assert read_config_text("[" * 50_000) == {}
    assert read_config_text("a: 1e-4\nb: [1, two]") == {"a": 1e-4, "b": [1, "two"]}


@pytest.mark.parametrize(
    "name", ["report.json", "resolved.yaml", "statistics.csv", "fields.h5", ".lock"]
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name: str, copy: Path) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    for verb in (("info", copy), ("watch", copy, "--once")):
        done = tetris_here(*verb)
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
    if name != ".lock":
        with pytest.raises(TetrisError):
            look_at(copy)


def test_a_page_is_put_together_of_what_is_checked_alone(copy: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="plotly draws the plots of the page (the extra `report`)")
    config = copy / "resolved.yaml"
    text, page = config.read_text(), tmp_path / "page.html"
    for other in (
        "title: [1]\ngrid: []\nboundaries: 5",
        "a: 1",
        text.replace("Small", "A @@DATA@@"),
    ):
        config.write_text(other)
        done = tetris_here("report", copy, "-o", page, "--overwrite")
        assert done.returncode == 0, done.stderr
    assert "<title>A @@DATA@@ plate</title>" in page.read_text()


@pytest.mark.parametrize("step", ["1" * 400, "9" * 4500, str(2**53), "-1"])
def test_a_row_of_no_step_of_ours_is_left_out(step: str, copy: Path) -> None:
    table = copy / "statistics.csv"
    header, first, *_ = table.read_text().splitlines()
    row = ",".join([step, *first.split(",")[1:]])
    table.write_text(f"{header}\n{first}\n{row}\n")
    assert len(read_table(table)[1]) == 1
    assert tetris_here("watch", copy, "--once").returncode == 0


def test_a_column_without_end_is_refused_with_a_sentence(tmp_path: Path) -> None:
    table = tmp_path / "statistics.csv"
    table.write_text(f"step,time [s],{'a' * 200_000}\n0,0,1\n")
    with pytest.raises(CheckpointError, match="cannot be read: field larger"):
        read_table(table)


def test_what_info_shows_does_not_command_a_terminal(copy: Path) -> None:
    path = copy / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"ended": f"ended{ESCAPE}"}))
    done = tetris_here("info", copy)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "ended?]0;mine?" in done.stdout


def look_at(results: Path) -> None:
    result = ts.open_result(results)
    _ = result.statistics, result.field()


def conducting(**changes: object) -> dict[str, object]:
    """A small body."""
    return {
        "grid": {"shape": [12, 9], "size": ["12 mm", "9 mm"]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "constant", "value": 20},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"steps": 6},
        "compute": {"devices": "cpu", "method": "cpu.plain", "threads": 1, "tuning_budget": 0},
    } | changes


@pytest.mark.parametrize("table", ["/dev/zero", "pipe.csv", "large.csv"])
def test_a_table_over_time_that_never_ends_is_refused(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.config.sections.varying._MOST_BYTES", 1000)
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "large.csv").write_text("".join(f"{k},1\n" for k in range(1000)))
    flux = {"table": str(tmp_path / table)}
    faces = {"*": {"type": "neumann"}, "x-": {"type": "neumann", "flux": flux}}
    with pytest.raises(ConfigError, match=r"it is no file|it has more than 1000 bytes"):
        make_config(conducting(boundaries=faces)).build()


def test_a_text_that_is_too_long_for_a_path_is_a_formula_like_others() -> None:
    source = {"power": "1 W", "over_time": "+".join(["t"] * 4000)}
    model = {"type": "heat", "material": "copper", "sources": [source]}
    with contextlib.suppress(ConfigError):
        make_config(conducting(model=model)).build()


@pytest.mark.parametrize("every", ["1e-320 s", "1e308 s", "1e-300 s", "1 ns"])
def test_a_look_at_changes_may_be_as_seldom_or_as_frequent_as_one_likes(every: str) -> None:
    looked = {"steps": 6, "until": {"change": "1e-300 K/s", "every": every}}
    report = ts.run(conducting(time=looked), progress=False).report
    assert (report.exit_code, report.steps) == (0, 6)
