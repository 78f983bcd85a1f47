"""Tables of the page about equations: what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from tetris_sim.bench.cells import Table

Read = Callable[[str], Mapping[str | None, Mapping[str, Any]]]
"""The runs of a file of benchmarks/ by their names."""

WAYS = {
    "cpu.stream": "`cpu.stream`",
    "cpu.plain": "`cpu.plain`",
    "loop": "a `prange` loop for both fields",
    "py-pde": "py-pde, backend for Numba",
}


def equations_on_two_cores(read: Read) -> Table:
    """Rates, and how many times those of the other ways of the same turn cpu.stream makes."""
    rows = read("equations-cpu.json")[None]["cpu_rows"]
    cells = []
    for row in rows:
        stream = next(
            other["gpoint_steps_per_s"]
            for other in rows
            if (other["equations"], other["n"], other["way"])
            == (row["equations"], row["n"], "cpu.stream")
        )
        ratio = median(a / b for a, b in zip(stream, row["gpoint_steps_per_s"], strict=True))
        rate = f"{median(row['gpoint_steps_per_s']):.3g}"
        size = f"{row['n']}^2"
        cells.append([row["equations"], size, WAYS[row["way"]], rate, f"{ratio:.3g}"])
    header = ["equations", "grid", "way", "GPoint-steps/s", "cpu.stream is so many times as fast"]
    return Table("Two threads, float64, periodic faces", header, cells, 3)
