"""Panels: figures of equal panels with one legend, as all pictures of measurements are; placed in
inches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tetris_sim.outputs.drawing import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKED: dict[str, Any] = {"linewidth": 1.5, "marker": "o", "markersize": 3.5}
MODEL: dict[str, Any] = {"color": "0.35", "linewidth": 0.9, "linestyle": "--"}
_PANEL = (2.9, 2.5)  # inches
_MARGINS = {"left": 0.75, "bottom": 0.55, "top": 0.35, "right": 0.15}  # inches
_ENTRY = (1.5, 0.22)  # inches, of the legend
LONG_ENTRY = 2.9  # inches: the width of one with many words
_ENTRIES = 8  # at most, if nothing else is said
FIGURE_STYLE = {
    **STYLE,
    "svg.hashsalt": "tetris_sim",
    "svg.fonttype": "path",
}  # the same data give the same file


def panels(
    titles: Sequence[str], columns: int = 3, entry: float = _ENTRY[0], entries: int = _ENTRIES
) -> tuple[Figure, tuple[Axes, ...]]:
    """Panels of one size, row by row, placed in inches, above a legend of so many entries, each so
    wide.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    w = _MARGINS["left"] + _PANEL[0] + _MARGINS["right"]
    h = _MARGINS["bottom"] + _PANEL[1] + _MARGINS["top"]
    width = columns * w
    legend = _ENTRY[1] * (1 + -(-entries // _legend_columns(width, entry)))
    height = rows * h + legend
    with rc_context(FIGURE_STYLE):
        figure = Figure(figsize=(width, height), facecolor="white")
        FigureCanvasAgg(figure)
        places = []
        for k, title in enumerate(titles):
            left = (k % columns) * w + _MARGINS["left"]
            bottom = (rows - 1 - k // columns) * h + _MARGINS["bottom"] + legend
            box = (left / width, bottom / height, _PANEL[0] / width, _PANEL[1] / height)
            axes = figure.add_axes(box)
            axes.set_title(title)
            axes.grid(color="0.93", linewidth=0.7, axis="both")
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            places.append(axes)
    return figure, tuple(places)


def finish(
    figure: Figure,
    places: Sequence[Axes],
    *,
    ylabel: str,
    columns: int = 3,
    entry: float = _ENTRY[0],
) -> None:
    """One legend for all panels, and the label of the vertical axis once per row."""
    handles: dict[str, Any] = {}
    for axes in places:
        handles.update(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    for axes in places[::columns]:
        axes.set_ylabel(ylabel)
    ncols = min(len(handles), _legend_columns(figure.get_figwidth(), entry))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="lower center",
        frameon=False,
        ncols=ncols,
        fontsize=9,
    )


def _legend_columns(width: float, entry: float) -> int:
    """Entries of a legend, each so wide, that fit beside each other."""
    return max(1, int(width / entry))


def log_rates(axes: Axes) -> None:
    """A logarithmic vertical axis with 1, 2 and 5 of every decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
