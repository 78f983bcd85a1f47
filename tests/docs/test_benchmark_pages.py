"""The benchmark pages say what the files beside them say."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "benchmarks").glob("*.md"))


@pytest.fixture(scope="module")
def maker() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "make_benchmark_pages.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_its_files(page: Path, maker: dict[str, Any]) -> None:
    text = page.read_text(encoding="utf-8")
    assert maker["filled"](text) == text, "run python docs/make_benchmark_pages.py"


def test_every_result_is_on_a_page_with_all_that_makes_it_believable(maker: dict[str, Any]) -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    tabled = {name for text in texts for name in maker["sources"](text)}
    linked = {name for text in texts for name in re.findall(r"\]\(([^()/ ]+\.json)\)", text)}
    files = sorted((DOCS / "benchmarks").glob("*.json"))
    assert tabled
    assert tabled | linked == {
        file.name for file in files
    }  # figures of a page without tables have a test of their own
    for file in [DOCS / "benchmarks" / name for name in tabled]:
        result = json.loads(file.read_text(encoding="utf-8"))
        assert {"cpu", "threads", "versions", "commit", "date"} <= set(result)
        assert {"limits", "gpu_limits", "devices"} & set(
            result
        )  # sets of devices are judged by what each does alone


def test_a_figure_that_was_changed_by_hand_is_made_right_again(maker: dict[str, Any]) -> None:
    page = next(page for page in PAGES if maker["sources"](page.read_text(encoding="utf-8")))
    text = page.read_text(encoding="utf-8")
    changed = re.sub(r"\| \d[\d.]* \|", "| 99.9 |", text, count=1)
    assert changed != text
    assert maker["filled"](changed) == text
