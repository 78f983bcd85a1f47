"""Pictures of what was measured: all candidates per stencil, cost against size, rate against
threads.

Made from the plain data of a result, so that a page can be drawn again from the file beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.device_pictures import draw_devices
from benchmarks.gpu_labels import CONVSTENCIL, ONE_STEP, TETRIS
from benchmarks.panels import FIGURE_STYLE, LONG_ENTRY, MARKED, MODEL, finish, log_rates, panels
from tetris_sim.bench.result import BenchCase, BenchResult, read_result
from tetris_sim.bench.tables import billions, bounds_of
from tetris_sim.outputs.drawing import CHANGE_LINE_COLOUR, LINE_COLOUR
from tetris_sim.support.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "prange indexed": "0.78",
    "prange slices": "0.58",
    "cpu.plain": "#7b93c4",
    "cpu.tessellate": LINE_COLOUR,
    "cpu.stream": CHANGE_LINE_COLOUR,
    "naive kernel": "0.78",
    "torch.compile slices": "0.58",
    "cuDNN convolution": "0.40",
    "gpu.plain": "#7b93c4",
    "gpu.stream": CHANGE_LINE_COLOUR,
    "gpu.resident": "#b5537a",
    "gpu.trapezoid": LINE_COLOUR,
    "gpu.dual_tessellation": "#4d8f6a",
    "gpu.tcstencil": "#3b7f8c",
    "gpu.sparse": "#e39a2d",
    "gpu.stream_pairs": "#c96f4a",
    "gpu.plain_pairs": "#a9a24f",
}
_OTHER = "#8a6fb0"  # a method that is not listed
_RUNGS = ("0.78", "0.62", "#b9c6e4", "#7b93c4", LINE_COLOUR, CHANGE_LINE_COLOUR)


def draw_comparison(result: BenchResult) -> Figure:
    """GStencil/s of every candidate, a panel per stencil and dtype, with the multiply-add bound
    where it fits in.
    """
    cases, limits = result.kernels or result.gpu_kernels, result.limits or result.gpu_limits
    figure, places = panels([_case_title(case) for case in cases], columns=5)
    for axes, case in zip(places, cases, strict=True):
        rates = {row.name: row.rate / 1e9 for row in case.rows}
        colours = [_colour(name) for name in rates]
        bars = axes.bar(range(len(rates)), list(rates.values()), color=colours, width=0.75)
        axes.bar_label(bars, [billions(1e9 * rate) for rate in rates.values()], fontsize=8)

        limit = bounds_of(case, limits).fma / 1e9
        axes.axhline(limit, color="0.3", linewidth=0.9, linestyle="--", label="FMA limit")
        axes.set_xticks([])
        axes.set_ylim(0.0, 1.12 * max(*rates.values(), limit))
        for bar, name in zip(bars, rates, strict=True):
            bar.set_label(name)
    finish(figure, places, ylabel="GStencil/s", columns=5)
    return figure


def draw_sizes(result: Mapping[str, Any]) -> Figure:
    """Cost against the size of the grid, with T_d of one sweep and the time of the
    multiply-adds.
    """
    sweeps = result["sizes"]
    figure, places = panels([_title(sweep) for sweep in sweeps])
    caches = result["limits"]["before"]["caches"]
    for axes, sweep in zip(places, sweeps, strict=True):
        size = [point["bytes"] / 2**20 for point in sweep["points"]]
        for name in _names(sweep["points"]):
            axes.plot(
                *_series(sweep["points"], size, name, "ns"),
                color=_colour(name),
                label=name,
                **MARKED,
            )
        one_sweep = [
            point["rows"][0] for point in sweep["points"]
        ]  # a prange loop: every step goes through the level
        axes.plot(
            size, [row["transfer_total_ns"] for row in one_sweep], label="T_d of one sweep", **MODEL
        )
        axes.plot(
            size,
            [row["fma_ns"] for row in one_sweep],
            label="multiply-adds",
            **{**MODEL, "linestyle": ":"},
        )
        for cache in caches:
            half = cache["capacity"] / 2 / 2**20  # two arrays share the cache
            if size[0] <= half <= size[-1]:
                axes.axvline(half, color="0.7", linewidth=0.8, zorder=0)
        axes.set_xscale("log", base=4)
        axes.xaxis.set_major_formatter("{x:g}")
        log_rates(axes)
        axes.set_xlabel("grid [MiB]")
    finish(figure, places, ylabel="ns per point update")
    return figure


def draw_threads(result: Mapping[str, Any]) -> Figure:
    """GStencil/s against threads; straight through the origin would be perfect scaling."""
    sweeps = result["threads_sweep"]
    figure, places = panels([_title(sweep) for sweep in sweeps])
    for axes, sweep in zip(places, sweeps, strict=True):
        counts = [point["threads"] for point in sweep["points"]]
        fastest = 0.0
        for name in _names(sweep["points"]):
            where, rates = _series(sweep["points"], counts, name, "rate")
            axes.plot(where, rates, color=_colour(name), label=name, **MARKED)
            fastest = max(fastest, rates[0] / where[0])
        axes.plot(
            [0, counts[-1]], [0.0, fastest * counts[-1]], label="one thread x threads", **MODEL
        )
        axes.set_xticks([0, *counts])
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("threads")
    finish(figure, places, ylabel="GStencil/s")
    return figure


def draw_gpu_sizes(sweeps: Sequence[Mapping[str, Any]]) -> Figure:
    """GStencil/s against points along an axis, dashed where every launch makes one step."""
    figure, places = panels([_title(sweep) for sweep in sweeps], columns=4, entry=LONG_ENTRY)
    for axes, sweep in zip(places, sweeps, strict=True):
        lengths = [point["shape"][0] for point in sweep["points"]]
        for name in _names(sweep["points"]):
            single = name.endswith(ONE_STEP)
            style = {
                **MARKED,
                **({"linestyle": "--", "markerfacecolor": "white"} if single else {}),
            }
            where, rates = _series(sweep["points"], lengths, name, "rate")
            axes.plot(where, rates, color=_colour(name.removesuffix(ONE_STEP)), label=name, **style)
        axes.set_xscale("log", base=10 if len(sweep["points"][0]["shape"]) == 1 else 2)
        log_rates(axes)
        if len(sweep["points"][0]["shape"]) > 1:
            axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("points along an axis")
    finish(figure, places, ylabel="GStencil/s", columns=4, entry=LONG_ENTRY)
    return figure


def draw_gpu_ladders(ladders: Sequence[Mapping[str, Any]]) -> Figure:
    """GStencil/s of every rung, a panel per stencil: marks, since bars on a logarithmic axis would
    begin nowhere.
    """
    columns = min(4, len(ladders))
    figure, places = panels(
        [_title(ladder) for ladder in ladders], columns=columns, entry=LONG_ENTRY
    )
    labels = list(dict.fromkeys(row["name"] for ladder in ladders for row in ladder["steps"]))
    for axes, ladder in zip(places, ladders, strict=True):
        rates = {row["name"]: row["steady"]["median"] / 1e9 for row in ladder["steps"]}
        for place, label in enumerate(labels):
            if label in rates:
                colour = _RUNGS[place % len(_RUNGS)]
                axes.plot([place], [rates[label]], "s", markersize=9, color=colour, label=label)
                axes.annotate(
                    billions(1e9 * rates[label]),
                    (place, rates[label]),
                    (0, 7),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
        axes.set_xticks([])
        axes.set_xlim(-0.6, len(labels) - 0.4)
        log_rates(axes)
        axes.set_ylim(0.7 * min(rates.values()), 1.6 * max(rates.values()))
    finish(figure, places, ylabel="GStencil/s", columns=columns, entry=LONG_ENTRY)
    return figure


def draw_all(study: Mapping[str, Any]) -> dict[str, Figure]:
    """Every picture that a result or a study has data for, by what ends its file name."""
    figures = {}
    result = read_result(study)
    if result.kernels or result.gpu_kernels:
        figures["comparison"] = draw_comparison(result)
    if "gpu_sizes" in study:
        figures["sizes"] = draw_gpu_sizes(study["gpu_sizes"])
    for name, figure in (("convstencil", CONVSTENCIL), ("tetris", TETRIS)):
        ladders = [
            ladder for ladder in study.get("gpu_breakdown", ()) if ladder["figure"] == figure
        ]
        if ladders:
            figures[name] = draw_gpu_ladders(ladders)
    if "sizes" in study:
        figures["sizes"] = draw_sizes(study)
        figures["threads"] = draw_threads(study)
    if len({case.threads for case in result.devices}) > 1:
        figures["shares"] = draw_devices(result.devices)
    return figures


def save(figure: Figure, path: Path) -> None:
    """Write an SVG file atomically; equal figures give equal files."""
    from matplotlib import rc_context

    with atomic_file(path) as part, rc_context(FIGURE_STYLE):
        figure.savefig(part, format="svg", metadata={"Date": None, "Creator": "tetris_sim"})


def _names(points: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["name"] for point in points for row in point["rows"]))


def _series(
    points: Sequence[Mapping[str, Any]], where: Sequence[float], name: str, what: str
) -> tuple[Any, Any]:
    """(places, values) of one candidate; it may have refused some of the grids."""
    pairs = [
        (place, row["ns"] if what == "ns" else row["steady"]["median"] / 1e9)
        for place, point in zip(where, points, strict=True)
        for row in point["rows"]
        if row["name"] == name
    ]
    return tuple(zip(*pairs, strict=True))  # type: ignore[return-value]


def _title(entry: Mapping[str, Any]) -> str:
    weights = f", {entry['weights']}" if entry.get("weights") == "symmetric" else ""
    return f"{entry['stencil']}{weights}, {entry['dtype']}"


def _case_title(case: BenchCase) -> str:
    weights = ", symmetric" if case.weights == "symmetric" else ""
    return f"{case.stencil}{weights}, {case.dtype}"


def _colour(name: str) -> str:
    return COLOURS.get(name, _OTHER)
