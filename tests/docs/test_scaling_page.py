"""docs/scaling.md says what the model makes of the files beside the benchmark pages."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "scaling.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made() -> tuple[str, Any]:
    """The page, of which a figure was changed by hand, made again; and its picture."""
    changed = re.sub(r"\| \d+\.\d% \|", "| 99.9% |", PAGE, count=1)
    assert changed != PAGE
    found: tuple[str, Any] = runpy.run_path(str(DOCS / "make_benchmark_pages.py"))["scaling_page"](
        changed
    )
    return found


def test_the_predictions_are_those_of_the_files(made: tuple[str, Any]) -> None:
    assert made[0] == PAGE, "run python docs/make_benchmark_pages.py"


def test_the_picture_has_a_panel_for_each_study_and_every_efficiency_is_possible(
    made: tuple[str, Any],
) -> None:
    panels = made[1].axes
    assert len(panels) == 8
    for axes in panels:
        lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
        today, direct, everywhere = lines.values()
        assert len(today) > 2
        assert all(0 < a <= b <= c < 105 for a, b, c in zip(today, direct, everywhere, strict=True))
    assert "(images/scaling.svg)" in PAGE
    assert (DOCS / "images" / "scaling.svg").exists()
