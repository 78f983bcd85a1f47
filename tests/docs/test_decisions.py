"""Decision records have their parts, are numbered without gaps, are listed, and name files that
exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
HEADINGS = ["Context", "Options", "Choice", "Consequences", "How to undo it"]
PATH = re.compile(
    r"`((?:tests|tetris_sim|cpu_kernels|gpu_kernels|scheduler|apps|docs|examples)/[\w./-]*)`"
)


def test_records_are_numbered_without_gaps_and_listed() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", (FOLDER / "README.md").read_text())
    assert listed == [record.name for record in RECORDS]


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_number_date_and_all_parts(record: Path) -> None:
    text = record.read_text()
    assert text.startswith(f"# {record.name[:4]} ")
    assert re.search(r"^Date: 20\d\d-\d\d$", text, re.MULTILINE)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        assert len(part.split()) > 10


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_files_that_a_record_names_exist(record: Path) -> None:
    assert not [path for path in PATH.findall(record.read_text()) if not (ROOT / path).exists()]
