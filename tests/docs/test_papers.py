"""docs/papers.md leaves nothing out and names nothing that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"
FOLDERS = {"tetris_sim", "cpu_kernels", "gpu_kernels", "scheduler", "docs", "tests"}
NUMBERED = re.compile(r"(Equation|Figure|Table|Algorithm|Definition|Theorem|Problem) (\d+)")
PATH = re.compile(r"`((?:\w+/)+(?:[\w.-]+)?|\w+\.md)`")

# Every numbered item of each paper, counted in the papers.
ITEMS: dict[str, dict[str, Iterable[int]]] = {
    "Tetris": {
        "Equation": range(1, 6),
        "Figure": range(1, 17),
        "Table": range(1, 5),
        "Algorithm": range(1, 2),
    },
    "ConvStencil": {"Equation": range(1, 17), "Figure": range(1, 9), "Table": range(1, 6)},
    "Notes on ConvStencil": {
        "Equation": (1, 2, 4, 5, 6, 11, 13, 16),
        "Figure": (1, 2, 3, 4, 5, 8),
        "Table": (2, 4, 5),
    },
    "SparStencil": {
        "Equation": range(1, 13),
        "Figure": range(1, 12),
        "Table": range(1, 4),
        "Algorithm": range(1, 2),
        "Definition": range(1, 5),
        "Theorem": range(1, 3),
        "Problem": range(1, 2),
    },
    "TCStencil, appendix": {"Table": range(1, 2), "Algorithm": range(1, 2)},
}
# Techniques with a name and no number, which no numbered item stands for.
TECHNIQUES = {
    "Tetris": (
        "Vector skewed swizzling",
        "Quadruple pipelining",
        "Tensor trapezoid folding",
        "Octuple pipelining",
        "Tessellate tiling",
        "Checkerboard blocking",
        "Bidirectional memory squeezing",
        "Auto-tuning computation scheduling",
        "Less communication volume",
        "More communication overlap",
        "Centralized communication launch",
        "Case study",
    ),
    "ConvStencil": (
        "stencil2row",
        "Dual tessellation",
        "Kernel fusion",
        "Lookup table",
        "Dirty bits padding",
        "1D",
        "3D",
    ),
    "SparStencil": (
        "Stencil flattening",
        "Duplicates crush",
        "Permutation invariant transformation",
        "Blossom",
        "Layout exploration",
        "Code generation",
    ),
    "TCStencil, appendix": ("Roofline", "Arithmetic intensity"),
}


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    item: str
    says: str
    answer: str
    status: str


def tables() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title, body = section.split("\n", 1)
        lines = [line for line in body.splitlines() if line.startswith("|")]
        assert lines[0] == "| Item | What it says | Answered by | Status |", title
        found[title] = [
            Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[2:]
        ]
    return found


ROWS = [
    pytest.param(row, id=f"{paper}: {row.item}") for paper, rows in tables().items() for row in rows
]


def test_there_is_a_table_for_each_paper() -> None:
    assert list(tables()) == list(ITEMS)


@pytest.mark.parametrize("paper", ITEMS)
def test_every_numbered_item_has_exactly_one_row(paper: str) -> None:
    listed = [
        (kind, int(number))
        for row in tables()[paper]
        for kind, number in NUMBERED.findall(row.item)
    ]
    expected = [(kind, number) for kind, numbers in ITEMS[paper].items() for number in numbers]
    assert sorted(listed) == sorted(expected)


@pytest.mark.parametrize("paper", TECHNIQUES)
def test_every_named_technique_has_a_row(paper: str) -> None:
    items = " ".join(row.item for row in tables()[paper])
    assert not [name for name in TECHNIQUES[paper] if name not in items]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_what_its_status_asks_for(row: Row) -> None:
    paths = PATH.findall(row.answer)
    if row.status == "done":
        assert not [path for path in paths if not (ROOT / path).exists()]
        tests = [path for path in paths if Path(path).name.startswith("test_")]
        assert tests, "a done item names its test"
        assert set(paths) - set(tests), "a done item names its code"
    elif row.status == "planned":
        assert paths, "a planned item names the folder it will be in"
        assert {path.split("/")[0] for path in paths} <= FOLDERS
    else:
        assert re.fullmatch(r"not applicable: .{15,}", row.status), row.status
    assert len(row.says) > 10
