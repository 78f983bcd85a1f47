"""The case study: its exact solution is exact, and its page has the numbers of its data."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "case_study.py"))


def test_the_cosine_solution_is_that_of_the_steps() -> None:
    start = np.random.default_rng(0).random((12, 9))
    u = start
    for _ in range(7):
        p = np.pad(u, 1, mode="symmetric")
        u = u + SCRIPT["CFL"] * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)
    np.testing.assert_allclose(SCRIPT["exact"](start, 7), u, rtol=0, atol=1e-14)


def test_deviations_are_shares_of_points() -> None:
    found = SCRIPT["deviations"](np.array([1.0, 2.2, 10.6, 4.0]), np.array([1.0, 2.0, 10.0, 4.0]))
    assert found["over"] == {"0.1": 0.5, "0.5": 0.25, "1.0": 0.0}
    assert found["over_percent"] == {"1": 0.5, "3": 0.5, "5": 0.5}


def test_the_page_has_the_numbers_of_the_data() -> None:
    folder = ROOT / "docs" / "benchmarks"
    data = json.loads((folder / "case-study.json").read_text(encoding="utf-8"))
    page = (folder / "case-study.md").read_text(encoding="utf-8")
    for row in data["rows"].values():
        assert (
            f"{row['points_per_second'] / 1e9:,.3g} " in page
            or f"{row['points_per_second'] / 1e9:,.0f} " in page
        )
        assert f"{row['seconds']:,.0f} s" in page
    assert f"{data['centre']:.3f}" in page
    assert f"{data['float32']['over']['0.1']:.1%}".replace("%", " %") in page
