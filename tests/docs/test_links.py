"""The documents name what exists: links between them resolve, and so do the file names in
ARCHITECTURE.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".venv", ".git", "build", "dist", "results", "api", ".pytest_cache"}
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for path in ROOT.rglob("*.md")
    if not SKIPPED & set(path.relative_to(ROOT).parts)
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PATH_IN_TEXT = re.compile(
    r"[\w.*-]+(?:/[\w.*-]+)*(?:\.(?:py|md|yaml|toml|cff|cu|cuh|typed)|/)|Makefile|LICENSE"
)


def prose(path: Path) -> str:
    return FENCE.sub("", (ROOT / path).read_text())


def anchors(path: Path) -> set[str]:
    """The fragments that headings of a document can be reached by (GitHub's rule)."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE):
        text = re.sub(r"[^\w\- ]", "", LINK.sub("", heading).replace("`", "").strip().lower())
        found.add(text.replace(" ", "-"))
    return found


def problem_with(link: str, document: Path) -> str | None:
    """Why a link of a document leads nowhere; None if it is fine or leads out of the repository."""
    if re.match(r"[a-z]+:", link):
        return None
    target, _, fragment = link.partition("#")
    path = (ROOT / document).parent / target if target else ROOT / document
    if not path.exists():
        return f"{target or document} does not exist"
    if (
        fragment
        and path.suffix == ".md"
        and fragment not in anchors(path.resolve().relative_to(ROOT))
    ):
        return f"{target or document} has no heading #{fragment}"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    problems = {link: problem_with(link, document) for link in LINK.findall(prose(document))}
    assert not {link: problem for link, problem in problems.items() if problem is not None}


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    here = Path("docs/papers.md")
    assert problem_with("nowhere.md", here) == "nowhere.md does not exist"
    assert (
        problem_with("#no-such-heading", here) == "docs/papers.md has no heading #no-such-heading"
    )
    assert problem_with("../LICENSE", here) is None
    assert problem_with("https://example.org/x", here) is None


def named_paths(text: str) -> list[str]:
    """What stands in backticks and looks like a file or a folder."""
    return [span for span in re.findall(r"`([^`\n]+)`", text) if PATH_IN_TEXT.fullmatch(span)]


def exists(name: str) -> bool:
    """Whether a path from the top, or a bare file name from anywhere in the sources, exists."""
    if any(ROOT.glob(name.rstrip("/"))):
        return True
    tops = ("tetris_sim", "cpu_kernels", "gpu_kernels", "scheduler", "apps")
    return "/" not in name and any(next((ROOT / top).rglob(name), None) for top in tops)


def test_every_file_that_architecture_names_exists() -> None:
    # Its code blocks count too: the walk is one.
    names = named_paths((ROOT / "ARCHITECTURE.md").read_text())
    assert len(set(names)) > 20
    assert not [name for name in names if not exists(name)]


def test_a_file_name_that_is_wrong_is_noticed() -> None:
    text = (
        "`tetris_sim/model/grid.py`, `grid.py`, `scheduler/`, `docs/*.md`, `gird.py`, "
        "`scheduler/grid.py`, `nouns/`, `a.b`"
    )
    assert [name for name in named_paths(text) if not exists(name)] == [
        "gird.py",
        "scheduler/grid.py",
        "nouns/",
    ]
