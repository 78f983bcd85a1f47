"""Pictures of `bench devices`: what CPU, GPU and both do, and who gets how much against the number
of CPU threads.

The content of Figures 13 and 14 of the Tetris paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarks.panels import LONG_ENTRY, MARKED, finish, log_rates, panels
from tetris_sim.bench.result import SetCase, SetRow
from tetris_sim.bench.tables import billions, grid
from tetris_sim.outputs.drawing import CHANGE_LINE_COLOUR, LINE_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"cpu": "0.58", "gpu": LINE_COLOUR}
_TOGETHER = {
    False: "#e39a2d",
    True: CHANGE_LINE_COLOUR,
}  # by whether everybody was forced to take part
_BY_SPEED = ", shares by speed"
_AS_PLANNED = ", as planned"


def draw_devices(cases: Sequence[SetCase]) -> Figure:
    """A row of panels for each grid: all sets with the most CPU threads, their rates and shares
    against the threads.
    """
    groups = [_alike(case, cases) for case in cases]
    groups = [group for k, group in enumerate(groups) if group not in groups[:k]]
    titles = [
        title for group in groups for title in (_title(group[0]), "rates", "what the CPU gets")
    ]
    figure, places = panels(titles, entry=LONG_ENTRY, entries=4)
    for k, group in enumerate(groups):
        bars, rates, shares = places[3 * k : 3 * k + 3]
        _bars(bars, max(group, key=lambda case: case.threads or 0))
        _lines(rates, group, {"+", ""}, lambda row: row.rate / 1e9)
        log_rates(rates)
        rates.set_ylabel("GStencil/s")
        _lines(shares, group, {"+"}, lambda row: 100 * cpu_share(row))
        shares.set_ylabel("% of the points")
    finish(figure, places, ylabel="GStencil/s", entry=LONG_ENTRY)
    return figure


def cpu_share(row: SetRow) -> float:
    """Share of the points that CPU threads own, 0 to 1."""
    cpu = sum(share.points for share in row.shares if share.worker.startswith("cpu"))
    return cpu / sum(share.points for share in row.shares)


def _bars(axes: Axes, case: SetCase) -> None:
    rates = [row.rate / 1e9 for row in case.sets]
    colours = [_colour(row) for row in case.sets]
    bars = axes.bar(range(len(rates)), rates, color=colours, width=0.75)
    axes.bar_label(bars, [billions(1e9 * rate) for rate in rates], fontsize=8)
    for bar, row in zip(bars, case.sets, strict=True):
        bar.set_label(_label(row))
    axes.set_xticks([])
    axes.set_xlabel(f"{case.threads} CPU threads")
    axes.set_ylim(0.0, 1.12 * max(rates))


def _lines(
    axes: Axes, group: Sequence[SetCase], kinds: set[str], value: Callable[[SetRow], float]
) -> None:
    """A line per set of several devices ("+"), or of one ("")."""
    for row in group[0].sets:
        several = "+" in row.devices
        if ("+" if several else "") not in kinds:
            continue
        pairs = [
            (case.threads, value(same))
            for case in group
            for same in case.sets
            if _label(same) == _label(row)
        ]
        # Where the plan gives all to the GPU the two lines are one: both stay visible.
        style = {"linestyle": "--", "markerfacecolor": "white"} if _is_planned(row) else {}
        axes.plot(
            *zip(*pairs, strict=True),
            color=_colour(row),
            label=_label(row),
            **{**MARKED, **style},
        )

    counts = [case.threads for case in group if case.threads is not None]
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel("CPU threads")


def _is_planned(row: SetRow) -> bool:
    return "+" in row.devices and not row.forced


def _alike(case: SetCase, cases: Sequence[SetCase]) -> list[SetCase]:
    """The same grid with every number of threads."""
    return [other for other in cases if _title(other) == _title(case)]


def _title(case: SetCase) -> str:
    return f"{case.stencil}, {grid(case.shape)}"


def _label(row: SetRow) -> str:
    if "+" not in row.devices:
        return row.devices
    return f"{row.devices}{_BY_SPEED if row.forced else _AS_PLANNED}"


def _colour(row: SetRow) -> str:
    return _COLOURS.get(row.devices, _TOGETHER[row.forced])
