"""What does a field look like? Builds figures from sampled planes, without touching matplotlib's global state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tetris_sim.files import atomic_file
from tetris_sim.outputs.labels import LengthUnit, length_unit
from tetris_sim.outputs.sampling import Plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Limits = tuple[float, float]

DPI = 150
FIELD_COLOURS = "inferno"
CHANGE_COLOURS = "RdBu_r"  # hotter red, colder blue, as in figure 16 of the Tetris paper
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.linewidth": 0.8,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-4, 5),
    "axes.formatter.use_mathtext": True,
}
# Everything in inches.
_SIDE = {1: 5.2, 2: 4.2, 3: 3.7}  # longest side of a panel, by the number of panels in a row
_SHORTEST = 0.7
_LEFT, _BOTTOM, _TITLE, _BAR, _NO_BAR, _EDGE = 0.80, 0.62, 0.36, 1.05, 0.12, 0.14
_HEADING = 0.62
_LINE_SIZE = (6.4, 3.4)


@dataclass(frozen=True)
class Panel:
    """One picture of a figure.

    Attributes:
        plane: what is shown; the lines of a graph share their axes.
        label: of the colour bar, or of the vertical axis of a graph.
        limits: lowest and highest value of the scale.
        colours: name of a colour map.
        title: above the panel.
        bar: whether it has a colour bar.
        before: an earlier state drawn as a second, fainter line (graphs only).
    """

    plane: Plane
    label: str
    limits: Limits
    colours: str = FIELD_COLOURS
    title: str = ""
    bar: bool = True
    before: Plane | None = None


@dataclass(frozen=True)
class Drawing:
    """A figure and what changes in it from frame to frame.

    Attributes:
        figure: the whole.
        axes: one per panel, row by row.
        artists: the image or line of each panel.
        moment: the text below the heading.
    """

    figure: Figure
    axes: tuple[Axes, ...]
    artists: tuple[Any, ...]
    moment: Any

    def show(self, planes: Sequence[Plane], moment: str) -> None:
        """Put other values into the panels."""
        for artist, plane in zip(self.artists, planes, strict=True):
            if plane.values.ndim == 1:
                artist.set_ydata(plane.values)
            else:
                artist.set_data(plane.values)
        self.moment.set_text(moment)

    def save(self, path: Path) -> None:
        """Write a PNG file atomically."""
        from matplotlib import rc_context

        with atomic_file(path) as part, rc_context(_STYLE):
            self.figure.savefig(part, format="png", dpi=DPI, metadata={"Software": "tetris_sim"})


def field_limits(planes: Sequence[Plane]) -> Limits:
    """Lowest and highest finite value of all planes; never equal."""
    finite = [plane.values[np.isfinite(plane.values)] for plane in planes]
    low = min((float(values.min()) for values in finite if values.size), default=0.0)
    high = max((float(values.max()) for values in finite if values.size), default=0.0)
    return widened((low, high))


def widened(limits: Limits) -> Limits:
    """The limits, apart from each other by enough for a scale to show."""
    low, high = limits
    least = 1e-9 * max(abs(low), abs(high), 1e-30)
    return limits if high - low > least else (low - max(0.5 * abs(low), 0.5), high + max(0.5 * abs(high), 0.5))


def change_limits(planes: Sequence[Plane]) -> Limits:
    """A scale around zero that holds every finite value."""
    low, high = field_limits(planes)
    most = max(abs(low), abs(high)) if any(np.any(plane.values) for plane in planes) else 1.0
    return -most, most


def draw(rows: Sequence[Sequence[Panel]], *, heading: str, moment: str = "") -> Drawing:
    """A figure of panels in rows; all of one length scale, y (or z) upwards.

    Args:
        rows: the panels.
        heading: above everything.
        moment: below the heading, for example the time.
    """
    from matplotlib import rc_context

    panels = [panel for row in rows for panel in row]
    with rc_context(_STYLE):
        graphs = panels[0].plane.values.ndim == 1
        sizes = _graph_sizes(rows) if graphs else _map_sizes(rows)
        unit = length_unit([high - low for panel in panels for low, high in panel.plane.bounds])
        figure, axes = _lay_out(rows, sizes)
        artists = tuple(
            (_draw_graph if graphs else _draw_map)(figure, place, panel, unit)
            for place, panel in zip(axes, panels, strict=True)
        )
        height = figure.get_figheight()
        left = _LEFT / 4 / figure.get_figwidth()
        figure.text(left, 1 - 0.10 / height, heading, fontsize=13, fontweight="bold", va="top")
        text = figure.text(left, 1 - 0.36 / height, moment, fontsize=11, va="top", color="0.25")
    return Drawing(figure, axes, artists, text)


def _map_sizes(rows: Sequence[Sequence[Panel]]) -> list[list[tuple[float, float]]]:
    """Width and height of each panel: true to scale unless one would be thinner than can be seen."""
    side = _SIDE[max(map(len, rows))]
    extents = [[tuple(high - low for low, high in panel.plane.bounds[::-1]) for panel in row] for row in rows]
    longest = max(length for row in extents for extent in row for length in extent)
    return [
        [(max(_SHORTEST, side * e[0] / longest), max(_SHORTEST, side * e[1] / longest)) for e in row] for row in extents
    ]


def _graph_sizes(rows: Sequence[Sequence[Panel]]) -> list[list[tuple[float, float]]]:
    return [[_LINE_SIZE for _ in row] for row in rows]


def _lay_out(
    rows: Sequence[Sequence[Panel]], sizes: Sequence[Sequence[tuple[float, float]]]
) -> tuple[Figure, tuple[Axes, ...]]:
    """Place the panels by hand: in inches, so that nothing overlaps whatever the shape of the box."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rights = [[_BAR if panel.bar and panel.plane.values.ndim == 2 else _NO_BAR for panel in row] for row in rows]
    widths = [
        sum(_LEFT + w + right for (w, _), right in zip(size, right_row, strict=True))
        for size, right_row in zip(sizes, rights, strict=True)
    ]
    heights = [_TITLE + max(h for _, h in size) + _BOTTOM for size in sizes]
    width, height = max(widths) + _EDGE, _HEADING + sum(heights) + _EDGE
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    axes = []
    top = height - _HEADING
    for size, right_row, row_height in zip(sizes, rights, heights, strict=True):
        left = 0.0
        for (w, h), right in zip(size, right_row, strict=True):
            bottom = top - row_height + _BOTTOM + (row_height - _TITLE - _BOTTOM - h)
            axes.append(figure.add_axes(((left + _LEFT) / width, bottom / height, w / width, h / height)))
            left += _LEFT + w + right
        top -= row_height
    return figure, tuple(axes)


def _draw_map(figure: Figure, axes: Axes, panel: Panel, unit: LengthUnit) -> Any:
    from matplotlib.ticker import MaxNLocator

    plane = panel.plane
    edges = [
        ((positions[0] - width / 2) / unit.metres, (positions[-1] + width / 2) / unit.metres)
        for positions, width in zip(plane.positions, plane.widths, strict=True)
    ]
    image = axes.imshow(
        plane.values,
        origin="lower",
        extent=(*edges[1], *edges[0]),
        cmap=panel.colours,
        vmin=panel.limits[0],
        vmax=panel.limits[1],
        aspect="auto",  # the panel itself has the box's shape
    )
    (y_low, y_high), (x_low, x_high) = plane.bounds
    axes.set_xlim(x_low / unit.metres, x_high / unit.metres)
    axes.set_ylim(y_low / unit.metres, y_high / unit.metres)
    axes.set_xlabel(f"{plane.axes[1]} [{unit.name}]")
    axes.set_ylabel(f"{plane.axes[0]} [{unit.name}]")
    axes.set_title(panel.title)
    box, (w, h) = axes.get_position(), figure.get_size_inches()
    axes.xaxis.set_major_locator(MaxNLocator(_ticks(box.width * w)))
    axes.yaxis.set_major_locator(MaxNLocator(_ticks(box.height * h)))
    if panel.bar:
        place = figure.add_axes((box.x1 + 0.10 / w, box.y0, 0.14 / w, box.height))
        bar = figure.colorbar(image, cax=place)
        bar.set_label(panel.label)
        bar.locator = MaxNLocator(_ticks(box.height * h) + 1)
        bar.update_ticks()
        bar.outline.set_linewidth(0.6)
    return image


def _draw_graph(figure: Figure, axes: Axes, panel: Panel, unit: LengthUnit) -> Any:
    plane = panel.plane
    if panel.before is not None:
        axes.plot(plane.positions[0] / unit.metres, panel.before.values, color="0.6", linewidth=1.4, label="before")
    colour = "#b2182b" if panel.colours == CHANGE_COLOURS else "#1f3b70"
    (line,) = axes.plot(plane.positions[0] / unit.metres, plane.values, color=colour, linewidth=1.8, label="after")
    if panel.before is not None:
        axes.legend(frameon=False)
    if panel.limits[0] < 0 < panel.limits[1]:
        axes.axhline(0.0, color="0.75", linewidth=0.8, zorder=0)
    margin = 0.05 * (panel.limits[1] - panel.limits[0])
    axes.set_ylim(panel.limits[0] - margin, panel.limits[1] + margin)
    axes.set_xlim(plane.bounds[0][0] / unit.metres, plane.bounds[0][1] / unit.metres)
    axes.set_xlabel(f"{plane.axes[0]} [{unit.name}]")
    axes.set_ylabel(panel.label)
    axes.set_title(panel.title)
    axes.grid(color="0.92", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return line


def _ticks(inches: float) -> int:
    return max(1, min(6, int(inches / 0.6)))
