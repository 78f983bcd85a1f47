"""The gallery's pictures are there, small, and link to the files that made them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
LINKED = re.compile(r"\[!\[[^\]]+\]\(([^)]+)\)\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "make_gallery.py"))


def test_every_picture_is_there_small_and_of_a_file(made: dict[str, Any]) -> None:
    assert {it.picture for it in made["GALLERY"]} == {*made["PICTURES"].glob("*")}
    for shown in made["GALLERY"]:
        assert shown.path.is_file()
        assert shown.picture.stat().st_size <= made["MOST_BYTES"]
        with Image.open(shown.picture) as image:
            assert image.width == made["WIDTH"]


def test_pictures_of_the_front_page_link_to_what_made_them(made: dict[str, Any]) -> None:
    pairs = LINKED.findall((ROOT / "README.md").read_text())
    files = {it.picture: it.path for it in made["GALLERY"]}
    assert len(pairs) == 4
    for picture, file in pairs:
        assert files[ROOT / picture] == ROOT / file


def test_the_page_says_what_the_files_say(made: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "gallery.md").read_text()
    assert text == made["page"](), "python docs/make_gallery.py makes it again"
    pairs = dict(LINKED.findall(text))
    for shown in made["GALLERY"]:
        assert f"](../{shown.path.relative_to(ROOT)})" in text
        assert f"images/gallery/{shown.name}.png" in pairs
    assert len(made["GALLERY"]) >= 17


def test_anchors_of_the_page_are_those_of_its_headings(made: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "gallery.md").read_text()
    headings = {made["anchor"](it) for it in re.findall(r"^## (.+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) == headings
