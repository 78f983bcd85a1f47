"""The table of the page about a newcomer's tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from tetris_sim.bench.tables import TextTable

Row = Mapping[str, Any]
Read = Callable[[str], Mapping[str | None, Mapping[str, Any]]]
"""The runs of a file of benchmarks/ by their names."""

PROGRAMS = ("tetris_sim", "FiPy", "py-pde")


def newcomer(read: Read) -> TextTable:
    """Lines, tries, seconds and error of each task and program, and the first time of ours."""
    cells, runs = [], read("newcomer.json")
    for run in runs.values():
        for row in run["rows"]:
            mine = row["program"] == PROGRAMS[0]
            first = f"{row['first']:.1f}" if mine else ""
            seconds, cpu = (f"{median(row[key]):.1f}" for key in ("seconds", "cpu_seconds"))
            numbers = [str(row["lines"]), str(row["tries"]), seconds, cpu, first]
            what = row["what"] if mine else ""
            cells.append([what, row["program"], *numbers, f"{row['error']:.1g}"])
    header = ("task", "program", "lines", "tries", "s", "CPU s", "first time, s", "error")
    where = " and ".join(str(name) for name in runs)
    return TextTable(
        f"From start to answer, errors of the range of the answer ({where})", header, cells, 2
    )
