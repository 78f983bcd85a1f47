"""The table of the page about first choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tetris_sim.bench.tables import TextTable

Row = Mapping[str, Any]
Read = Callable[[str], Mapping[str | None, Mapping[str, Any]]]
"""The runs of a file of benchmarks/ by their names."""


def first_choice(read: Read) -> TextTable:
    """What is taken without a measurement, in shares of the best of all candidates: a column for
    each run on large grids, which all have the same stencils.
    """
    runs = {name: run for name, run in read("first-choice.json").items() if "smaller" not in run}
    cells: dict[tuple[str, str, str], list[str]] = {}
    for run in runs.values():
        for row in run["rows"]:
            key = row["stencil"], row["weights"], row["dtype"]
            rate, share = row["best"]["rate"] / 1e9, row["share"]
            cells.setdefault(key, []).extend([f"{rate:.0f}", f"{share:.2f}"])
    header = ["stencil", "weights", "dtype"]
    for name in runs:
        header += [f"best on {name}", "first"]
    title = "The best of all candidates in GStencil/s, and the first choice in shares of it"
    return TextTable(title, header, [[*key, *found] for key, found in cells.items()], 3)


def first_choice_smaller(read: Read) -> TextTable:
    """The same on grids that GPUs do not fill."""
    cells = []
    for run in read("first-choice.json").values():
        for row in run["rows"] if "smaller" in run else ():
            shape = " x ".join(map(str, row["shape"]))
            rate, share = f"{row['best']['rate'] / 1e9:.0f}", f"{row['share']:.2f}"
            names = [row[it] for it in ("stencil", "weights", "dtype")]
            cells.append([*names, shape, row["method"], rate, share])
    header = ("stencil", "weights", "dtype", "grid", "best method", "GStencil/s", "first")
    return TextTable("The same on smaller grids (NVIDIA H200)", header, cells, 5)
