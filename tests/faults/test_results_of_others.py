"""Results directories that somebody else wrote, or that were cut off: a sentence, no traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_runs import tetris_here

import tetris_sim as ts
from tetris_sim.commands.sources import read_config_text
from tetris_sim.errors import CheckpointError
from tetris_sim.report import read_report

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
