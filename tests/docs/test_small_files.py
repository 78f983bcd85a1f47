"""Files beside the pages are small and lose nothing."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "small_files.py"))


def test_a_compact_file_has_the_content_of_the_long_one(small: dict[str, Any]) -> None:
    content = {
        "rates": [{"median": 57266050972.56896, "low": 1e-9, "runs": 3, "of": None}] * 9,
        "words": ['a "b"', True],
        "empty": [],
        "whole": 2.0,
    }
    text = small["compact"](content)
    again = json.loads(text)
    assert again["rates"] == [{"median": 57266051000.0, "low": 1e-9, "runs": 3, "of": None}] * 9
    assert {**again, "rates": 0} == {**content, "rates": 0}
    assert isinstance(again["whole"], float)
    assert max(map(len, text.splitlines())) <= 160
    assert len(text.splitlines()) == 16


def test_a_picture_is_small_and_keeps_its_words(small: dict[str, Any], tmp_path: Path) -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2], [3, 40], label="a line")
    axes.set_title("what it shows")
    axes.set_xscale("log")
    axes.legend()
    small["save_picture"](figure, tmp_path / "new.svg")
    figure.savefig(tmp_path / "old.svg", metadata={"Date": None})
    new, old = ((tmp_path / name).read_text() for name in ("new.svg", "old.svg"))
    assert ">what it shows</text>" in new
    assert ">a line</text>" in new
    assert "metadata" not in new
    assert 3 * len(new) < len(old)
    assert set(re.findall(r"(?:url\(|href=\")#([\w.-]+)", new)) <= set(
        re.findall('id="([^"]+)"', new)
    )


def test_numbers_of_a_picture_have_one_digit(small: dict[str, Any]) -> None:
    head = '<svg xmlns="http://www.w3.org/2000/svg">'
    long = f'{head}<g id="a"><path id="b" d="M 1.26 -0.04 L 10 2.0 z "/></g></svg>'
    assert small["small"](long).replace("\n", "") == f'{head}<path d="M1.3 0L10 2z" /></svg>'
