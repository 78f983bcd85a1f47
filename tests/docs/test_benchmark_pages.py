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
    tabled = {source for text in texts for source in maker["sources"](text)}
    linked = {name for text in texts for name in re.findall(r"\]\(([^()/ ]+\.json)\)", text)}
    assert tabled

    # Figures of a page without tables have a test of their own.
    for file in sorted((DOCS / "benchmarks").glob("*.json")):
        assert file.name in linked
        for run, result in maker["read_runs"](file).items():
            if any(file.name == name for name, _ in tabled):
                assert (file.name, run) in tabled
                assert {"cpu", "threads", "versions", "commit", "date"} <= set(result)
                # Sets of devices are judged by what each does alone.
                assert {"limits", "gpu_limits", "devices"} & set(result)


def test_a_summary_is_made_of_the_files_and_nothing_else(maker: dict[str, Any]) -> None:
    shown = [
        name
        for page in PAGES
        for name in re.findall("<!-- summary: (.+) -->", page.read_text(encoding="utf-8"))
    ]
    assert sorted(shown) == sorted(maker["SUMMARIES"])

    page = DOCS / "benchmarks" / "README.md"
    text = page.read_text(encoding="utf-8")
    changed = re.sub(r"\| \d[\d.]* \|", "| 99.9 |", text, count=1)
    assert changed != text
    assert maker["filled"](changed) == text
    assert len(text.splitlines()) <= 70, "a summary fits on two screens"


def test_a_page_takes_its_tables_from_runs_of_one_file(
    maker: dict[str, Any], tmp_path: Path
) -> None:
    versions = dict.fromkeys(("python", "numpy", "numba", "llvmlite"), "1.2.3")
    one = {"cpu": "Some CPU", "host": "here", "threads": 2, "versions": versions}
    one |= {"date": "2026-01-02", "rounds": 3, "seconds": 0.1}
    runs = {"one": {**one, "commit": "abc"}, "other": {**one, "commit": "def"}}
    (tmp_path / "a.json").write_text(json.dumps({"runs": runs}), encoding="utf-8")
    page = "".join(
        f"<!-- tables: a.json#{run} -->\n<!-- end of tables -->\n\n" for run in ("other", "one")
    )
    filled = maker["filled"](page, tmp_path)
    assert [re.findall("commit ([a-z]+)", part) for part in filled.split("<!-- end")] == [
        ["def"],
        ["abc"],
        [],
    ]
    assert maker["sources"](filled) == [("a.json", "other"), ("a.json", "one")]


def test_pictures_show_all_runs_of_a_file_and_devices_those_of_the_first(
    maker: dict[str, Any],
) -> None:
    joined = maker["joined"]([{"kernels": [1], "commit": "a"}, {"kernels": [2], "commit": "b"}])
    assert joined == {"kernels": [1, 2], "commit": "a"}
    assert maker["joined"]([{"devices": [1]}, {"devices": [2]}]) == {"devices": [1]}


def test_results_are_kept_in_few_bytes(maker: dict[str, Any]) -> None:
    files = [file for file in (DOCS / "benchmarks").iterdir() if file.suffix != ".md"]
    assert not [file.name for file in files if file.stat().st_size > 150_000]
    for file in files:
        if file.suffix == ".json":
            text = file.read_text(encoding="utf-8")
            assert maker["compact"](json.loads(text)) == text, "run docs/make_benchmark_pages.py"


def test_a_figure_that_was_changed_by_hand_is_made_right_again(maker: dict[str, Any]) -> None:
    page = next(page for page in PAGES if maker["sources"](page.read_text(encoding="utf-8")))
    text = page.read_text(encoding="utf-8")
    changed = re.sub(r"\| \d[\d.]* \|", "| 99.9 |", text, count=1)
    assert changed != text
    assert maker["filled"](changed) == text
