"""The page of promises names tests that exist, and its numbers are those of the campaign."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "trust" / "README.md").read_text()


def test_every_promise_names_tests_that_exist() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "tests/" in line]
    assert len(rows) >= 20
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, name in named:
            tree = ast.parse((ROOT / path).read_text())
            assert name in {it.name for it in tree.body if isinstance(it, ast.FunctionDef)}, path


def test_the_numbers_of_operations_are_those_of_the_campaign() -> None:
    told = json.loads((ROOT / "docs" / "trust" / "operations.json").read_text())
    names = ("operations", "tries", "right", "told", "killed")
    for kind in told["kinds"]:
        numbers = " | ".join(str(kind[name]) for name in names)
        assert f"| {kind['kind']} | {numbers} | {len(kind['failures'])} |" in PAGE
    assert told["tries"] == sum(kind["tries"] for kind in told["kinds"])


def test_the_numbers_of_kills_and_inputs_are_those_of_the_campaign() -> None:
    told = json.loads((ROOT / "docs" / "trust" / "campaign.json").read_text())
    assert f"commit {told['commit']}, seed {told['kills']['seed']}" in PAGE
    for kind in told["kills"]["kinds"]:
        numbers = " | ".join(str(kind[name]) for name in ("kills", "chains", "resumed", "refused"))
        assert f"| {kind['kind']} | {numbers} | 0 | {len(kind['failures'])} |" in PAGE
        assert all(text.endswith("no end within 300 s") for text in kind["failures"])
    for kind in told["mutants"]["kinds"]:
        row = f"| {kind['kind']} | {kind['cases']:,} | {kind['deadly']} | {len(kind['failures'])} |"
        assert row in PAGE
