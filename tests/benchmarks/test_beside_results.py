"""What the decision about GPUs that are told ahead says of CPU threads beside them is what was
measured.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "decisions" / "0044-gpus-told-ahead.md").read_text(encoding="utf-8")
ROWS: list[dict[str, Any]] = json.loads(
    (DOCS / "benchmarks" / "beside.json").read_text(encoding="utf-8")
)["rows"]


def test_the_table_has_the_figures_of_the_rows() -> None:
    rows = [row for row in ROWS if row["case"] == "plain"]
    gpu, cpu, planned, *others = rows
    table = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in PAGE.splitlines()
        if re.match(r"\s+\| (GPU|15 threads|both)", line)
    ]
    beside = next(row for row in others if row["block"] == 32 and row["overlapped"])
    before = next(row for row in others if row["block"] == 32 and not row["overlapped"])
    measured = (gpu, cpu, planned, beside, before)
    assert [int(cells[1]) for cells in table] == [row["block"] for row in measured]
    for cells, row in zip(table, measured, strict=True):
        assert float(cells[2]) == round(row["rate"] / 1e9, 0 if row is gpu else 1)
        if row not in (gpu, cpu):
            assert float(cells[3]) == round(row["rate"] / gpu["rate"], 3)
            assert float(cells[4]) == round(row["rate"] / (gpu["rate"] + cpu["rate"]), 3)
            assert cells[5] == f"{100 * row['busy']['gpu:0']:.0f} %"


def test_the_text_has_the_figures_of_a_gpu_that_was_held_back() -> None:
    cpu, gpu, both = (row for row in ROWS if row["case"] == "held")
    rates = " ".join(PAGE.split())
    assert f"{gpu['rate'] / 1e9:.1f} and {cpu['rate'] / 1e9:.1f} make" in rates
    share = both["rate"] / (gpu["rate"] + cpu["rate"])
    assert f"{both['rate'] / 1e9:.1f} together, {share:.2f} of the sum" in rates
    for worker, part in both["busy"].items():
        assert f"{100 * part:.0f} %" in rates, worker
