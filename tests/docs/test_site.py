"""The documentation as a site: it builds without a warning, has every public name, and finds words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tetris_sim

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guide/reference.md"


def test_the_reference_page_has_every_public_name_where_it_is() -> None:
    named = re.findall(r"^::: (\S+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    places = {
        f"{getattr(tetris_sim, name).__module__}.{name}"
        for name in tetris_sim.__all__
        if name != "__version__"
    }
    assert set(named) == places
    assert len(named) == len(places)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="mkdocs-material makes the site (the extra `dev`)")
    pytest.importorskip("mkdocs_jupyter", reason="mkdocs-jupyter shows notebooks on the site")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings makes the API reference")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages_with(index: dict[str, Any], word: str) -> set[str]:
    """The pages whose words, split as the search of the site does, have one."""
    # Python has no \s in a class that JavaScript reads otherwise; the separator is the same.
    separator = re.compile(index["config"]["separator"])
    return {
        it["location"].partition("#")[0]
        for it in index["docs"]
        if word in separator.split(re.sub("<[^>]+>", " ", f"{it['title']} {it['text']}").lower())
    }


def test_the_search_finds_words_of_users_and_no_records(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    for word in ("stl", "gif", "mp4", "aluminium"):
        assert pages_with(index, word), word
    assert "guide/materials.html" in pages_with(index, "aluminium")
    found = {it["location"].partition("/")[0] for it in index["docs"]}
    assert "guide" in found
    assert found.isdisjoint({"decisions", "benchmarks"})


def test_the_site_documents_every_public_name(site: Path) -> None:
    page = (site / "guide/reference.html").read_text(encoding="utf-8")
    for name in tetris_sim.__all__:
        if name != "__version__":
            place = f"{getattr(tetris_sim, name).__module__}.{name}"
            assert f'id="{place}"' in page, name
