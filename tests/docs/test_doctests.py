"""The examples in docstrings are run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def modules_with_examples() -> list[str]:
    found = []
    for top in ("tetris_sim", "cpu_kernels", "gpu_kernels", "scheduler", "apps"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if ">>> " in path.read_text():
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                found.append(name if top == "tetris_sim" else f"tetris_sim.{name}")

    for top in ("tests/papers", "benchmarks"):
        found += [
            ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for path in sorted((ROOT / top).rglob("*.py"))
            if ">>> " in path.read_text()
        ]
    return found


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_give_what_they_show(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), verbose=False)
    assert results.attempted > 0
    assert results.failed == 0


def test_the_pure_modules_have_examples() -> None:
    assert {"tetris_sim.model.stencil", "tetris_sim.scheduler.plan.partition"} <= set(
        modules_with_examples()
    )
