"""What does a field look like? Builds figures without touching matplotlib's global state."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.files import atomic_file
from tetris_sim.outputs.labels import LengthUnit, length_unit
from tetris_sim.outputs.outlines import borders, outlines
from tetris_sim.outputs.sampling import MOST_POINTS, Plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Limits = tuple[float, float]

DPI = 150
_SCREEN = 90  # dots per inch in a notebook
FIELD_COLOURS = "inferno"
CHANGE_COLOURS = "RdBu_r"  # hotter red, colder blue, as in figure 16 of the Tetris paper
LINE_COLOUR = "#1f3b70"
CHANGE_LINE_COLOUR = "#b2182b"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.linewidth": 0.8,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
    "axes.formatter.limits": (-4, 5),
    "axes.formatter.use_mathtext": True,
}
# Everything in inches.
_SIDE = {1: 5.2, 2: 4.2, 3: 3.7}  # longest side of a panel, by the number of panels in a row
_SHORTEST = 0.7
_LEFT, _BOTTOM, _TITLE, _NO_TITLE, _BAR, _NO_BAR, _EDGE = 0.80, 0.62, 0.42, 0.14, 1.05, 0.12, 0.14
_HEADING, _MOMENT = 0.38, 0.24
_NARROWEST = 4.4
_LETTER = 0.0086  # width of a bold letter per point of its size, on average
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
        name: of the line, for the legend (graphs only).
        before: an earlier state and its name, drawn as a second, fainter line (graphs only).
    """

    plane: Plane
    label: str
    limits: Limits
    colours: str = FIELD_COLOURS
    title: str = ""
    bar: bool = True
    name: str = ""
    before: tuple[Plane, str] | None = None


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
                artist.set_data(_pixels(plane))
        self.moment.set_text(moment)

    def pixels(self, dpi: int) -> npt.NDArray[np.uint8]:
        """The figure as it is now, (rows, columns, 3) red, green, blue."""
        from matplotlib import rc_context

        with rc_context(STYLE):
            self.figure.set_dpi(dpi)
            canvas: Any = self.figure.canvas
            canvas.draw()
        return np.array(canvas.buffer_rgba(), dtype=np.uint8)[..., :3]

    def _repr_png_(self) -> bytes:
        return self.png(_SCREEN)

    def png(self, dpi: int) -> bytes:
        """The figure as a PNG file."""
        from matplotlib import rc_context

        file = io.BytesIO()
        with rc_context(STYLE):
            self.figure.savefig(file, format="png", dpi=dpi)
        return file.getvalue()

    def save(self, path: Path) -> None:
        """Write a PNG file atomically."""
        from matplotlib import rc_context

        with atomic_file(path) as part, rc_context(STYLE):
            self.figure.savefig(part, format="png", dpi=DPI, metadata={"Software": "tetris_sim"})


def extent(planes: Sequence[Plane]) -> Limits:
    """Lowest and highest finite value of all planes; (0, 0) if there is none."""
    finite = [plane.values[np.isfinite(plane.values)] for plane in planes]
    return (
        min((float(values.min()) for values in finite if values.size), default=0.0),
        max((float(values.max()) for values in finite if values.size), default=0.0),
    )


def widened(limits: Limits) -> Limits:
    """The limits, apart from each other by enough for a scale to show."""
    low, high = limits
    if high - low > 1e-12 * max(abs(low), abs(high)):
        return limits
    return low - max(0.5 * abs(low), 0.5), high + max(0.5 * abs(high), 0.5)


def field_limits(planes: Sequence[Plane]) -> Limits:
    """A scale that just holds every finite value."""
    return widened(extent(planes))


def change_limits(planes: Sequence[Plane]) -> Limits:
    """A scale around zero that just holds every finite value."""
    most = max(map(abs, extent(planes))) or 1.0
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
    with rc_context(STYLE):
        graphs = panels[0].plane.values.ndim == 1
        unit = length_unit([high - low for panel in panels for low, high in panel.plane.bounds])
        figure, axes = _lay_out(rows, _HEADING + (_MOMENT if moment else 0.0))
        artists = tuple(
            (_draw_graph if graphs else _draw_map)(figure, place, panel, unit)
            for place, panel in zip(axes, panels, strict=True)
        )

        height = figure.get_figheight()
        left = 0.2 / figure.get_figwidth()
        text, size = _fitted(heading, figure.get_figwidth() - 0.4)
        figure.text(left, 1 - 0.12 / height, text, fontsize=size, fontweight="bold", va="top")
        line = figure.text(left, 1 - _HEADING / height, moment, fontsize=11, va="top", color="0.25")
    return Drawing(figure, axes, artists, line)


def _fitted(heading: str, width: float) -> tuple[str, float]:
    """The heading and its size in points, made smaller, then shorter, until it fits."""
    size = max(8.0, min(13.0, width / (_LETTER * max(1, len(heading)))))
    most = int(width / (_LETTER * size))
    return (heading if len(heading) <= most else f"{heading[: most - 1]}…"), size


def _size(panel: Panel, side: float, longest: float) -> tuple[float, float]:
    """Width and height of a panel: true to scale unless it would be too thin to see."""
    if panel.plane.values.ndim == 1:
        return _LINE_SIZE
    width, height = (high - low for low, high in panel.plane.bounds[::-1])
    return max(_SHORTEST, side * width / longest), max(_SHORTEST, side * height / longest)


def _lay_out(rows: Sequence[Sequence[Panel]], heading: float) -> tuple[Figure, tuple[Axes, ...]]:
    """Place the panels by hand, in inches: nothing overlaps whatever the shape of the box."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    side = _SIDE[max(map(len, rows))]
    longest = max(high - low for row in rows for panel in row for low, high in panel.plane.bounds)
    sizes = [[_size(panel, side, longest) for panel in row] for row in rows]
    rights = [
        [_BAR if panel.bar and panel.plane.values.ndim == 2 else _NO_BAR for panel in row]
        for row in rows
    ]

    titles = [_TITLE if any(panel.title for panel in row) else _NO_TITLE for row in rows]

    columns = [
        _LEFT + max(w for w, _ in size) + max(right)
        for size, right in zip(zip(*sizes, strict=True), zip(*rights, strict=True), strict=True)
    ]
    heights = [max(h for _, h in size) for size in sizes]
    width = max(sum(columns) + _EDGE, _NARROWEST)
    height = heading + sum(heights) + sum(titles) + len(rows) * _BOTTOM + _EDGE

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)

    axes, top = [], height - heading
    for size, title, row_height in zip(sizes, titles, heights, strict=True):
        left, top = _LEFT, top - title
        for (w, h), column in zip(size, columns, strict=True):
            axes.append(figure.add_axes((left / width, (top - h) / height, w / width, h / height)))
            left += column
        top -= row_height + _BOTTOM
    return figure, tuple(axes)


def _draw_map(figure: Figure, axes: Axes, panel: Panel, unit: LengthUnit) -> Any:
    plane = panel.plane
    y, x = (edges / unit.metres for edges in plane.edges)
    image = axes.imshow(
        _pixels(plane),
        origin="lower",
        extent=(x[0], x[-1], y[0], y[-1]),
        cmap=panel.colours,
        vmin=panel.limits[0],
        vmax=panel.limits[1],
        aspect="auto",  # the panel itself has the box's shape
    )

    if plane.materials is not None:
        axes.add_collection(_make_outlines(outlines(plane.materials, (y, x))))

    (y_low, y_high), (x_low, x_high) = plane.bounds
    axes.set_xlim(x_low / unit.metres, x_high / unit.metres)
    axes.set_ylim(y_low / unit.metres, y_high / unit.metres)
    axes.set_xlabel(f"{plane.axes[1]} [{unit.name}]")
    axes.set_ylabel(f"{plane.axes[0]} [{unit.name}]")
    axes.set_title(panel.title, y=1.0)  # to find room above ticks costs a sixth of a picture

    box, (w, h) = axes.get_position(), figure.get_size_inches()
    axes.xaxis.set_major_locator(_locator(box.width * w))
    axes.yaxis.set_major_locator(_locator(box.height * h))
    write_numbers(axes)

    if panel.bar:
        place = figure.add_axes((box.x1 + 0.10 / w, box.y0, 0.14 / w, box.height))
        ticks = _locator(box.height * h)
        bar = figure.colorbar(image, cax=place, ticks=ticks, format=_numbers())
        bar.set_label(textwrap.fill(panel.label, max(12, int(14 * box.height * h))))
        bar.outline.set_linewidth(0.6)
    return image


def _pixels(plane: Plane) -> npt.NDArray[np.floating[Any]]:
    """The values of a plane as those of cells of one width; where they differ in width along an
    axis, of as many as a picture shows, each with the value of the cell that it lies in.
    """
    values = plane.values
    for axis, edges in enumerate(plane.edges):
        widths = np.diff(edges)
        if np.ptp(widths) > 1e-6 * widths.max():
            places = edges[0] + (np.arange(MOST_POINTS) + 0.5) / MOST_POINTS * (
                edges[-1] - edges[0]
            )
            values = values.take(np.searchsorted(edges, places) - 1, axis)
    return values


def _make_outlines(lines: npt.NDArray[np.float64]) -> Any:
    """Lines that are seen on light and on dark colours."""
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import Normal, withStroke

    effects = [withStroke(linewidth=1.5, foreground="black", alpha=0.55), Normal()]
    return LineCollection(
        list(lines), colors="white", linewidths=0.6, capstyle="projecting", path_effects=effects
    )


def _draw_graph(figure: Figure, axes: Axes, panel: Panel, unit: LengthUnit) -> Any:
    plane = panel.plane
    positions = plane.positions[0] / unit.metres
    if panel.before is not None:
        axes.plot(
            positions, panel.before[0].values, color="0.6", linewidth=1.4, label=panel.before[1]
        )

    colour = CHANGE_LINE_COLOUR if panel.colours == CHANGE_COLOURS else LINE_COLOUR
    marker = "o" if len(positions) == 1 else ""
    (line,) = axes.plot(
        positions, plane.values, color=colour, linewidth=1.8, marker=marker, label=panel.name
    )
    if panel.before is not None:
        axes.legend(frameon=False)

    if panel.limits[0] < 0 < panel.limits[1]:
        axes.axhline(0.0, color="0.75", linewidth=0.8, zorder=0)

    if plane.materials is not None:
        for after in borders(plane.materials):
            place = plane.edges[0][after + 1] / unit.metres
            axes.axvline(place, color="0.5", linewidth=0.9, linestyle=(0, (5, 3)), zorder=1.9)

    margin = 0.05 * (panel.limits[1] - panel.limits[0])
    axes.set_ylim(panel.limits[0] - margin, panel.limits[1] + margin)
    axes.set_xlim(plane.bounds[0][0] / unit.metres, plane.bounds[0][1] / unit.metres)

    write_numbers(axes)
    axes.set_xlabel(f"{plane.axes[0]} [{unit.name}]")
    axes.set_ylabel(panel.label)
    axes.set_title(panel.title, y=1.0)  # to find room above ticks costs a sixth of a picture
    axes.grid(color="0.92", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return line


def write_numbers(axes: Axes) -> None:
    """Have the ticks of both axes written as text."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_numbers())


def _numbers() -> Any:
    """Numbers as text, and a power of ten that they share as a formula.

    A number that is set as a formula looks the same; parsing them took a third of a picture.
    """
    from matplotlib.ticker import ScalarFormatter

    class Numbers(ScalarFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return super().__call__(x, pos).removeprefix(r"$\mathdefault{").removesuffix("}$")

    return Numbers()


def _locator(inches: float) -> Any:
    """Ticks at round numbers, as many as there is room for."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(max(1, min(6, int(inches / 0.6))), steps=[1, 2, 2.5, 5, 10])
