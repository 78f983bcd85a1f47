"""Tables of the page about bodies of several materials: what was wanted and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from tetris_sim.bench.tables import TextTable

Row = Mapping[str, Any]
Read = Callable[[str], Mapping[str | None, Mapping[str, Any]]]
"""The runs of a file of benchmarks/ by their names."""

BODIES_WANTED = {
    (2, "one"): 1500,
    (2, "rectangles"): 1150,
    (2, "voronoi"): 1000,
    (2, "discs"): 850,
    (2, "random"): 750,
    (3, "one"): 430,
    (3, "rectangles"): 380,
    (3, "voronoi"): 330,
    (3, "random"): 270,
}
"""GStencil/s of kernels without faces on an H200, in float64, 10240^2 and 1024^3."""
HEAT_WANTED = {
    ("melting", "one"): 760,
    ("melting", "rectangles"): 585,
    ("melting", "voronoi"): 585,
    ("coefficients", "one"): 600,
}
"""The same in 2D of bodies that melt, and where every face has its own conductance."""
PHYSICS = {
    "melting": "heat content of",
    "coefficients": "another conductance at every face",
}
BODIES = {
    "one": "eight ids in the tables, one in the body",
    "constant": "constant stencil",
    "layers": "eight layers",
    "rectangles": "60 rectangles or boxes",
    "rectangles with sources": "the same with sources",
    "voronoi": "200 Voronoi cells",
    "discs": "discs or balls of two materials",
    "random": "another material at every point",
    "arrays": "another conductance at every face",
    "loop": "the same as a prange loop, one step at a time",
}


def bodies_on_a_gpu(read: Read) -> TextTable:
    """The fastest proposal for each body, with and without sources."""
    rows = read("bodies.json")[None]["gpu_rows"]
    cells = []
    for (axes, body), wanted in BODIES_WANTED.items():
        mine = [
            row
            for row in rows
            if (row["axes"], row["body"], row["physics"]) == (axes, body, "temperatures")
        ]
        cells.append([f"{mine[0]['n']}^{axes}", BODIES[body], *_of_a_gpu(mine, wanted)])
    header = ["grid", "body", "`gpu.stream`", "wanted", "with sources", "`gpu.plain`"]
    return TextTable("GStencil/s of whole steps with faces, float64", header, cells, 2)


def heat_on_a_gpu(read: Read) -> TextTable:
    """The same of bodies that melt, and of arrays of coefficients."""
    rows = read("bodies.json")[None]["gpu_rows"]
    cells = []
    for (physics, body), wanted in HEAT_WANTED.items():
        mine = [row for row in rows if (row["physics"], row["body"]) == (physics, body)]
        name = PHYSICS[physics] + (f" {BODIES[body]}" if physics == "melting" else "")
        cells.append([f"{mine[0]['n']}^2", name, *_of_a_gpu(mine, wanted)])
    header = ["grid", "body", "`gpu.stream`", "wanted", "with sources", "`gpu.plain`"]
    return TextTable("GStencil/s of whole steps with faces, float64", header, cells, 2)


def _of_a_gpu(rows: list[Row], wanted: int) -> tuple[str, ...]:
    """The best of gpu.stream, what was wanted, the best with sources, and gpu.plain."""

    def best(method: str, sources: bool) -> str:
        found = [
            median(row["gstencil_per_s"])
            for row in rows
            if row["method"] == method and row["sources"] == sources
        ]
        return f"{max(found):.0f}" if found else ""

    return (
        best("gpu.stream", False),
        f"{wanted}",
        best("gpu.stream", True),
        best("gpu.plain", False),
    )


def bodies_on_two_cores(read: Read) -> TextTable:
    """Rates and their ratios to the constant stencil of the same turn."""
    rows = read("bodies.json")[None]["cpu_rows"]
    cells = []
    for row in rows:
        constant = next(
            other["gstencil_per_s"]
            for other in rows
            if (other["axes"], other["body"]) == (row["axes"], "constant")
        )
        ratios = [a / b for a, b in zip(row["gstencil_per_s"], constant, strict=True)]
        rate = f"{median(row['gstencil_per_s']):.2f}"
        size = f"{row['n']}^{row['axes']}"
        cells.append([size, BODIES[row["body"]], rate, f"{median(ratios):.2f}"])
    header = ["grid", "body", "GStencil/s", "of the constant stencil"]
    return TextTable("cpu.tessellate on two cores, float64", header, cells, 2)


def bodies_beside_peers(read: Read) -> TextTable:
    """Lines, time to solution and difference of every program for one chip."""
    found = read("peers-bodies.json")[None]
    cells = []
    for row in found["rows"]:
        seconds = f"{median(row['cpu_seconds']):.1f}"
        cells.append([row["program"], f"{row['lines']}", seconds, f"{row['difference']:.1g}"])
        if "first_cpu" in row:
            cells.append(["its first run", "", f"{row['first_cpu']:.1f}", ""])
    header = ["program", "lines of input", "CPU s", "largest difference [K]"]
    size = f"100 x 50 cells, 0.2 s, largest rise {found['rise']:.2f} K"
    return TextTable(f"From start to answer, {size}", header, cells, 1)
