"""The page of `report`: it holds what the files say, needs nothing besides itself, and opens."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim.__main__ import main
from tetris_sim.commands import report, sources
from tetris_sim.config import load_config, read_config
from tetris_sim.errors import CheckpointError, ExitCode
from tetris_sim.outputs.figure_layout import FIELD_COLOURS
from tetris_sim.outputs.preview import draw_preview
from tetris_sim.outputs.tables import read_table
from tetris_sim.simulation.launch import launch

pytest.importorskip("plotly", reason="plotly draws the plots of the page (the extra `report`)")

BODY = """\
title: Two <layers>
grid: {shape: [14, 12], size: [14 mm, 12 mm]}
model:
  type: heat
  regions:
    - {material: copper}
    - {material: steel, box: {y: [0, 6 mm]}}
initial: {type: expression, expression: 100*x/Lx}
boundaries: {"*": {type: neumann}, y+: {type: robin, h: 50, ambient: 20}}
time: {steps: 40}
compute: {devices: cpu, method: cpu.plain, threads: 1, tuning_budget: 0}
output:
  fields: {every: 10 steps}
  probes: [{name: mid, at: [6 mm, 5 mm], every: 10 steps}]
  statistics: {every: 10 steps}
  pictures: false
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    path = folder / "body.yaml"
    path.write_text(BODY, encoding="utf-8")
    for name, change in (("a", "time.steps=40"), ("b", "boundaries.y+.h=500")):
        there = f"output.directory={folder / name}"
        launch(load_config(path, overrides=[change, there], environ={}))
    return folder


def make_page(runs: Path, *names: str) -> str:
    path = runs / f"{'_'.join(names)}.html"
    words = ["report", *(str(runs / name) for name in names), "-o", str(path), "--overwrite"]
    assert main(words) == ExitCode.OK
    return path.read_text(encoding="utf-8")


def written(page: str) -> str:
    """The page without the script of the library."""
    begin = page.index("<script>")
    return page[:begin] + page[page.index('<script type="application/json"') :]


def data_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    told: list[dict[str, Any]] = json.loads(found[1])["runs"]
    return told


def test_the_page_holds_fields_tables_and_how_to_repeat_the_run(runs: Path) -> None:
    page = make_page(runs, "a")
    assert "<h1>Two &lt;layers&gt;</h1>" in page
    assert not re.search(r'(?:src|href)="(?!data:)', written(page))  # nothing is fetched
    assert "@@" not in written(page)

    (run,) = data_of(page)
    (field,) = run["fields"]
    assert len(field["moments"]) == 5
    with sources.open_series(runs / "a") as series:
        whole = series.read(4, 0, ((0, 12), (0, 14)))
    levels = np.frombuffer(base64.b64decode(field["planes"][0]["frames"][4]), "<u2")
    shown = field["low"] + (field["high"] - field["low"]) * levels.reshape(12, 14) / 65535
    assert np.allclose(shown, whole, rtol=0, atol=(field["high"] - field["low"]) / 65535)

    columns, rows = read_table(runs / "a/probes/mid.csv")
    line = next(line for table in run["tables"] for line in table["lines"] if "mid" in line["name"])
    assert line["y"] == [row[columns.index("temperature [degC]")] for row in rows]

    text = re.search(r'<pre class="config">(.*?)</pre>', page, re.DOTALL)
    assert text is not None
    again = read_config(html.unescape(text[1]), name="again", base=Path.cwd(), environ={})
    assert again == read_config(
        (runs / "a/resolved.yaml").read_text(), name="resolved", base=Path.cwd(), environ={}
    )


def test_the_page_shows_the_preview_and_says_in_words_what_it_shows(runs: Path) -> None:
    page = make_page(runs, "a")
    ((words, encoded),) = re.findall(
        r'<img alt="([^"]*)" src="data:image/png;base64,([^"]+)"', written(page)
    )
    assert "y+: robin, h 50 W/(m² K), ambient 20 °C" in words
    assert words.count("insulated") == 3
    assert "copper and steel" in words
    assert "probes mid" in words

    # the lower half is steel: two colours, steel at the bottom
    config = load_config(runs / "a/resolved.yaml", environ={})
    drawing = draw_preview(config, config.build())
    assert drawing.png(110) == base64.b64decode(encoded)
    numbers = np.asarray(drawing.artists[0].get_array())
    assert (numbers[:6] == numbers[0, 0]).all()
    assert (numbers[6:] != numbers[0, 0]).all()


def test_pictures_of_the_page_have_the_colours_and_labels_of_those_of_the_run(runs: Path) -> None:
    page = make_page(runs, "a")
    (run,) = data_of(page)
    (field,) = run["fields"]
    assert field["colours"].lower() == FIELD_COLOURS
    with sources.open_series(runs / "a") as series:
        assert field["label"] == sources.caption(series, 0).quantity
    assert "Viridis" not in page[page.rindex("<script>") :]


def test_two_runs_are_compared_with_what_differs(runs: Path) -> None:
    page = make_page(runs, "a", "b")
    assert "boundaries.y+.h is 500.0, and was 50.0" in page
    assert len(data_of(page)) == 2
    assert page.count("<article") == 3


def test_a_run_without_fields_or_report_has_a_page_too(runs: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(runs / "a/resolved.yaml", bare)
    path = tmp_path / "bare.html"
    assert main(["report", str(bare), "-o", str(path)]) == ExitCode.OK
    assert "still running, or no report" in path.read_text()
    with pytest.raises(CheckpointError, match="holds no results"):
        report.gather(tmp_path / "nowhere")


def test_the_page_is_not_replaced_unasked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_page(runs, "a")
    words = ["report", str(runs / "a"), "-o", str(runs / "a.html")]
    assert main(words) == ExitCode.CONFIG
    assert "use --overwrite" in capsys.readouterr().err
    assert main([*words[:2], str(runs / "b"), *words[1:]]) == ExitCode.CONFIG
    assert "compares two at most" in capsys.readouterr().err


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt install chromium")
@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_a_browser_draws_every_plot_of_the_page(
    runs: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    make_page(runs, *names)
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=20000",
    ]
    command += [f"--user-data-dir={tmp_path}", "--window-size=1200,900", "--dump-dom"]
    url = (runs / f"{'_'.join(names)}.html").as_uri()
    done = subprocess.run(
        [*command, url], capture_output=True, text=True, timeout=240, check=True, env=os.environ
    )
    found = re.search(r'<body data-ready="(\d+)"', done.stdout)
    assert found is not None, done.stderr[-2000:]
    plots = int(found[1])
    (first, *_) = data_of((runs / "a.html").read_text())
    of_tables = len(first["tables"])
    assert plots == (1 + of_tables if len(names) == 1 else 2 + 3 * of_tables)
    assert done.stdout.count('class="main-svg"') >= 2 * plots  # plotly draws at least two each
    assert "t = " in re.findall(r"<output>(.*?)</output>", done.stdout)[0]
