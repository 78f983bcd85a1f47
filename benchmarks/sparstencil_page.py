"""The page of what `sparstencil.py` and `sparstencil_formats.py` measured, written beside the first
of two files.

`python benchmarks/sparstencil_page.py FILE.json FORMATS.json` makes FILE.md with all tables,
FILE-catalogue.svg (SparStencil's Figure 10) and FILE-layouts.svg (its Figure 9).
"""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks.pictures import save  # noqa: E402
from tests.papers.sparstencil.crush import Layout  # noqa: E402
from tests.papers.sparstencil.exploration import SPARSE_F16, n_products  # noqa: E402
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, catalogue  # noqa: E402

Rows = Sequence[dict[str, Any]]
COLOURS = {"gpu.sparse": "#0072b2", "gpu.tcstencil": "#d55e00"}


def giga(row: dict[str, Any]) -> str:
    """A rate in GStencil/s, or why there is none."""
    return f"{row['median'] / 1e9:.4g}" if "median" in row else row["failed"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)] + [""]


def text(*parts: str) -> str:
    """A paragraph."""
    return (
        textwrap.fill(" ".join(parts), 130, break_long_words=False, break_on_hyphens=False) + "\n"
    )


def page(result: dict[str, Any], name: str, formats: dict[str, Any], formats_name: str) -> str:
    """All of the page."""
    measured = [row for row in result["catalogue"] if "median" in row]
    names = {row["stencil"] for row in measured}
    domains = {catalogue()[each].domain for each in names}
    n_kernels = sum(len(result[each]) for each in ("catalogue", "dense", "layouts"))
    lines = [
        "# Half precision: layouts, preparation, and every stencil of the catalogue",
        "",
        text(
            f"One NVIDIA H200, float16, {result['date']}, commit {result['commit']}:",
            (
                f"`python benchmarks/sparstencil.py FILE.json` ([data]({name}.json)); this "
                "page is made from the"
            ),
            (
                "file by `benchmarks/sparstencil_page.py`. Whole steps on grids of 2^26 "
                "points with periodic faces,"
            ),
            (
                "feedback on, every step counted once, weights random and positive with sum 1, "
                "best guesses of the methods"
            ),
            (
                f"(nothing is tuned), medians of {result['times']} timings of "
                f"{result['seconds']:g} s. What they do:"
            ),
            "[the main page of half precision](half.md).",
        ),
        (
            f"## Every stencil of the catalogue: {len(names)} stencils of {len(domains)} domains "
            "(SparStencil's Figure 10)"
        ),
        "",
        f"![GStencil/s of all stencils]({name}-catalogue.svg)",
        "",
        *_by_domain(measured),
        "## Dense and sparse",
        "",
        text(
            (
                "The same matrices in the same order, all their zeros multiplied on dense tensor "
                "cores, with the most"
            ),
            "steps or the second most, whichever is faster. In parentheses steps per launch.",
        ),
        *_dense(result),
        "By size, points along each of two axes, with the same steps per launch:",
        "",
        *_sizes(result["sizes"]),
        "## Layouts (SparStencil's Figure 9)",
        "",
        text(
            (
                "One step in the paper's way: a patch of r1 x r2 results is a product of its own. "
                "The kernel makes 16"
            ),
            "results per product.",
        ),
        *_layouts(result["layouts"]),
        text(
            (
                "Below, the share of multiply-adds that is not with zeros for every layout, where "
                "what 2:4 sparsity leaves"
            ),
            (
                "out counts as none. By the model (equations 6 to 11, the paper's A100) the "
                "slowest of the 256 takes"
            ),
            *_slowest(result["model"]),
        ),
        f"![Compute density of every layout]({name}-layouts.svg)",
        "",
        "## What each stage adds (SparStencil's Figure 7)",
        "",
        *_stages(result["stages"]),
        "## Preparation (SparStencil's Figure 8)",
        "",
        text(
            (
                "Time from a stencil to its matrices, metadata and lookup tables, on one core of "
                "the host. Compiling all"
            ),
            (
                f"{n_kernels} kernels of this page took {result['compiling_all']:.0f} s on all "
                "cores; a kernel is"
            ),
            "compiled once and kept.",
        ),
        *table(
            ("stencil", "preparation [ms]", "steps that take as long"),
            [
                [each, f"{1e3 * time:.1f}", _steps(result, each, time)]
                for each, time in result["preparing"].items()
            ],
        ),
        "## Other formats",
        "",
        text(
            (
                "`python benchmarks/sparstencil_formats.py FILE.json` "
                f"([data]({formats_name}.json)),"
            ),
            (
                f"{formats['date']}, commit {formats['commit']}: kernels alone, 10240 x 10240, the "
                "fastest of several"
            ),
            (
                f"tiles each, GStencil/s, medians of {formats['rounds']} timings of "
                f"{formats['seconds']:g} s with their"
            ),
            (
                "range. FP16 is stored in 16 bits; BF16 and TF32 are made of float32 on their way "
                "from memory. In"
            ),
            "parentheses steps per launch.",
        ),
        *_formats(formats["formats"]),
        "## FP64 (SparStencil's Table 3)",
        "",
        text(
            (
                "There are no sparse tensor cores for FP64: the same layouts with dense products. "
                "Three steps per launch"
            ),
            (
                "for heat-2d and box-2d9p, one for the others, as in the paper, but in the row "
                "that says so."
            ),
        ),
        *_formats(formats["table_3"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _formats(rows: Rows) -> list[str]:
    names, words = (list(dict.fromkeys(row[key] for row in rows)) for key in ("stencil", "row"))
    found = {(row["stencil"], row["row"]): row for row in rows}
    lines = [[word, *(_range(found.get((name, word))) for name in names)] for word in words]
    return table(("GStencil/s", *names), lines)


def _range(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    low, middle, high = (f"{row[key] / 1e9:.4g}" for key in ("low", "median", "high"))
    return f"{middle} ({row['parameters'].get('steps_per_block', 1)}), {low} to {high}"


def _steps(result: dict[str, Any], name: str, seconds: float) -> str:
    (row,) = (
        r for r in result["catalogue"] if r["stencil"] == name and r["method"] == "gpu.sparse"
    )
    return f"{seconds * row['median'] / (1 << 26):.0f}" if "median" in row else ""


def _by_domain(measured: Rows) -> list[str]:
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in measured:
        found[catalogue()[row["stencil"]].domain][row["method"]].append(row["median"] / 1e9)
    rows = [
        [domain, *(_spread(rates.get(method, [])) for method in COLOURS)]
        for domain, rates in sorted(found.items())
    ]
    return table(("domain", *(f"{method}: median (range), stencils" for method in COLOURS)), rows)


def _spread(rates: list[float]) -> str:
    if not rates:
        return ""
    return f"{np.median(rates):.4g} ({min(rates):.3g} to {max(rates):.4g}), {len(rates)}"


def _dense(result: dict[str, Any]) -> list[str]:
    sparse = {row["stencil"]: row for row in result["catalogue"] if row["method"] == "gpu.sparse"}
    tensor = {
        row["stencil"]: row for row in result["catalogue"] if row["method"] == "gpu.tcstencil"
    }
    rows = []
    for name in STENCIL_NAMES:
        dense = [row for row in result["dense"] if row["stencil"] == name and "median" in row]
        best = max(dense, key=lambda row: row["median"], default=None)
        cells = [name, giga(sparse[name]) if name in sparse else "", ""]
        cells[1] += f" ({sparse[name]['parameters']['steps_per_block']})" if name in sparse else ""
        cells[2] = f"{giga(best)} ({best['parameters']['steps_per_block']})" if best else ""
        ratio = (
            f"{sparse[name]['median'] / best['median']:.2f}"
            if best and "median" in sparse.get(name, {})
            else ""
        )
        other = tensor.get(name)
        cells += [
            ratio,
            f"{giga(other)} ({other['parameters']['steps_per_block']})" if other else "",
        ]
        rows.append(cells)
    head = (
        "stencil",
        "gpu.sparse (steps per launch)",
        "its dense variant",
        "sparse / dense",
        "gpu.tcstencil",
    )
    return table(head, rows)


def _sizes(rows: Rows) -> list[str]:
    head = ("stencil, steps per launch", *dict.fromkeys(str(row["size"]) for row in rows))
    lines = []
    for name in dict.fromkeys(row["stencil"] for row in rows):
        own = [row for row in rows if row["stencil"] == name]
        lines += [
            [f"{name}, {own[0]['steps']}: {kind}", *(giga(row[kind]) for row in own)]
            for kind in ("sparse", "dense")
        ]
    return table(head, lines)


def _stages(stages: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    words = list(next(iter(stages.values())))
    return table(
        ("GStencil/s", *stages),
        [[word, *(giga(each[word]) for each in stages.values())] for word in words],
    )


def _slowest(model: dict[str, Rows]) -> list[str]:
    """How far apart the modelled times of all layouts are, and how many take the shortest."""
    words = []
    for name, rows in model.items():
        times = [row["seconds"] for row in rows]
        alike = sum(time < 1.01 * min(times) for time in times)
        words.append(
            f"{max(times) / min(times):.2f} times as long as the fastest for {name} ({alike} are "
            "as fast)"
        )
    return [" and ".join(words) + ": nearly all are bound by memory."]


def _layouts(rows: Rows) -> list[str]:
    names = list(dict.fromkeys(row["stencil"] for row in rows))
    widths = [row["parameters"]["merged_x"] for row in rows if row["stencil"] == names[0]]
    by_place = {(row["stencil"], row["parameters"]["merged_x"]): giga(row) for row in rows}
    head = ("GStencil/s, r1 x r2", *(f"{width} x {16 // width}" for width in widths))
    return table(head, [[name, *(by_place[name, width] for width in widths)] for name in names])


def draw_catalogue(measured: Rows) -> Figure:
    """One mark per stencil and method, fastest first within the number of axes."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 3, width_ratios=[1, 3, 2])
    for ndim, axis in enumerate(axes, 1):
        own = [row for row in measured if catalogue()[row["stencil"]].stencil.ndim == ndim]
        best: dict[str, float] = defaultdict(float)
        for row in own:
            best[row["stencil"]] = max(best[row["stencil"]], row["median"])
        place = {name: k for k, name in enumerate(sorted(best, key=lambda name: -best[name]))}
        for method, colour in COLOURS.items():
            mine = [row for row in own if row["method"] == method]
            rates = [row["median"] / 1e9 for row in mine]
            axis.plot(
                [place[row["stencil"]] for row in mine],
                rates,
                ".",
                color=colour,
                label=method,
                markersize=5,
            )
        axis.set_yscale("log")
        axis.set_title(f"{ndim}D: {len(place)} stencils")
        axis.set_xlabel("stencil, fastest first")
        axis.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("GStencil/s")
    axes[-1].legend()
    return figure


def density(widths: tuple[int, int], merged: tuple[int, int]) -> float:
    """Which share of the multiply-adds of a layout's sparse products is not with zeros.

    >>> density((7, 7), (2, 8))  # 49 of 64 in each row, as for a radius of 3 nothing is lost along x
    0.765625
    """
    layout, patches = Layout(widths, merged), SPARSE_F16.columns
    kept = SPARSE_F16.rows * SPARSE_F16.depth // 2 * SPARSE_F16.columns
    return (
        math.prod(widths) * layout.rows * patches / (kept * n_products(layout, patches, SPARSE_F16))
    )


def draw_layouts(names: Sequence[str]) -> Figure:
    """Compute density of every layout of up to 16 x 16 results."""
    figure = Figure(figsize=(8.6, 3.9), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        ry, rx = catalogue()[name].stencil.radii
        shares = [
            [density((2 * ry + 1, 2 * rx + 1), (r2, r1)) for r1 in range(1, 17)]
            for r2 in range(1, 17)
        ]
        image = axis.imshow(
            np.array(shares),
            origin="lower",
            extent=(0.5, 16.5, 0.5, 16.5),
            cmap="viridis",
            vmin=0,
            vmax=1,
        )
        axis.set_title(name)
        axis.set_xlabel("r1")
        axis.set_ylabel("r2")
        figure.colorbar(image, ax=axis, label="compute density")
    return figure


def write(path: Path, formats: Path) -> None:
    """The page and its pictures, beside the data."""
    result, others = (json.loads(each.read_text(encoding="utf-8")) for each in (path, formats))
    path.with_suffix(".md").write_text(
        page(result, path.stem, others, formats.stem), encoding="utf-8"
    )
    measured = [row for row in result["catalogue"] if "median" in row]
    save(draw_catalogue(measured), path.with_name(f"{path.stem}-catalogue.svg"))
    save(draw_layouts(list(result["model"])), path.with_name(f"{path.stem}-layouts.svg"))


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
