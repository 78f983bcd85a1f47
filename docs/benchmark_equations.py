"""Tables of the page about equations: what was wanted and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from tetris_sim.bench.tables import TextTable

Row = Mapping[str, Any]
Read = Callable[[str], Mapping[str | None, Mapping[str, Any]]]
"""The runs of a file of benchmarks/ by their names."""

_CASE = ("name", "size", "ndim", "dtype", "boundary")
_WANTED = {("gray-scott", "float64"): 650, ("gray-scott", "float32"): 1170}
"""Of the kernel alone on an H200, periodic, 8192^2."""
_SAME_TURN = ("equations", "n", "threads")
_WAYS = {
    "cpu.stream": "`cpu.stream`",
    "cpu.plain": "`cpu.plain`",
    "loop": "a `prange` loop for both fields",
    "py-pde": "py-pde, backend for Numba",
}


def equations_on_a_gpu(read: Read) -> TextTable:
    """The fastest tile of each problem, the fastest with 8 steps a launch, and single steps."""
    rows = read("equations-gpu.json")[None]["rows"]
    cells = []
    for case in dict.fromkeys(tuple(row[key] for key in _CASE) for row in rows):
        name, size, ndim, dtype, boundary = case
        mine = [row for row in rows if tuple(row[key] for key in _CASE) == case]
        streamed = [row for row in mine if row["method"] == "gpu.stream"]
        best = max(streamed, key=_rate, default=None)
        eight = [_rate(row) for row in streamed if row["parameters"]["steps_per_block"] == 8]
        (plain,) = (_rate(row) for row in mine if row["method"] == "gpu.plain")
        swept = [_rate(row) for row in rows if row["method"] == "one sweep" and _same(row, case)]
        wanted = _WANTED.get((name, dtype), "") if (ndim, boundary) == (2, "periodic") else ""
        cells.append(
            [
                *(f"{size}^{ndim}" if ndim > 1 else f"{size}", name, dtype, boundary),
                f"{_rate(best):.0f}" if best else "",
                f"{best['parameters']['steps_per_block']}" if best else "",
                f"{max(eight):.0f}" if eight else "",
                f"{wanted}",
                f"{plain:.0f}",
                f"{swept[0]:.0f}" if swept else "",
            ]
        )
    header = ["grid", "equations", "type", "faces", "`gpu.stream`", "steps a launch", "with 8"]
    header += ["wanted", "`gpu.plain`", "one sweep"]
    return TextTable("Billions of points and steps a second", header, cells, 4)


def _same(row: Row, case: tuple[Any, ...]) -> bool:
    """The same problem: a kernel that makes one step a sweep knows no faces."""
    return tuple(row[key] for key in _CASE[:-1]) == case[:-1]


def _rate(row: Row) -> float:
    return float(median(row["rates"]))


def equations_on_two_cores(read: Read) -> TextTable:
    """Rates, and how many times those of the other ways of the same turn cpu.stream makes."""
    cells = [
        [row["equations"], f"{row['n']}^2", _WAYS[row["way"]], rate, ratio]
        for row, rate, ratio in _beside_stream(read("equations-cpu.json")[None]["cpu_rows"])
    ]
    header = ["equations", "grid", "way", "GPoint-steps/s", "cpu.stream is so many times as fast"]
    return TextTable("Two threads, float64, periodic faces", header, cells, 3)


def equations_on_one_and_two_cores(read: Read) -> TextTable:
    """The same by threads, and what py-pde takes to its first step."""
    cells = []
    for row, rate, ratio in _beside_stream(read("equations-peers.json")[None]["cpu_rows"]):
        first = f"{min(row['first_step_s']):.0f}" if row["first_step_s"] else ""
        threads = str(row["threads"])
        cells.append([row["equations"], threads, _WAYS[row["way"]], rate, ratio, first])
    header = ["equations", "threads", "way", "GPoint-steps/s", "cpu.stream: times", "compiling, s"]
    return TextTable("1024^2, float64, periodic faces", header, cells, 3)


def _beside_stream(rows: Sequence[Row]) -> Iterator[tuple[Row, str, str]]:
    """Rows with their rates, and how many times that is what cpu.stream makes in the same turn."""
    for row in rows:
        case = [row[key] for key in _SAME_TURN]
        stream = next(
            other["gpoint_steps_per_s"]
            for other in rows
            if other["way"] == "cpu.stream" and [other[key] for key in _SAME_TURN] == case
        )
        ratio = median(a / b for a, b in zip(stream, row["gpoint_steps_per_s"], strict=True))
        yield row, f"{median(row['gpoint_steps_per_s']):.3g}", f"{ratio:.3g}"
