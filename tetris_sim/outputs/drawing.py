"""Drawings of a field: figures built without touching matplotlib's global state.

A map is rasterized without matplotlib (`raster.py`) until its figure is asked for: importing
matplotlib takes longer than most small runs (docs/decisions/0040-maps-without-matplotlib.md).
"""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.outputs.figure_layout import (
    CHANGE_COLOURS,
    HEADING,
    TICK_STEPS,
    FigureLayout,
    LengthUnit,
    Panel,
    PanelBox,
    pixels,
)
from tetris_sim.outputs.raster import borders, can_paint, outlines, paint
from tetris_sim.outputs.sampling import Plane
from tetris_sim.support.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Settings (rc_context) and fonts of matplotlib belong to the process: one thread at a time.
_DRAWING = threading.Lock()
DPI = 150
_SCREEN = 90  # dots per inch in a notebook
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


@dataclass(frozen=True)
class Built:
    """A matplotlib figure and the parts of it that change from frame to frame.

    Attributes:
        figure: the figure.
        axes: one per panel, row by row.
        artists: the image or line of each panel.
        moment: the text below the heading.
    """

    figure: Figure
    axes: tuple[Axes, ...]
    artists: tuple[Any, ...]
    moment: Any


class Drawing:
    """A picture, as a file or as a matplotlib figure.

    Args:
        build: makes the figure on first use.
        sheet: the layout to rasterize as long as the figure has not been asked for; None if that
            is not possible.
    """

    def __init__(self, build: Callable[[], Built], sheet: FigureLayout | None = None) -> None:
        self._build = build
        self._sheet = sheet

    @functools.cached_property
    def _built(self) -> Built:
        self._sheet = None  # the caller may change the figure
        return self._build()

    @property
    def figure(self) -> Figure:
        """The matplotlib figure."""
        return self._built.figure

    @property
    def axes(self) -> tuple[Axes, ...]:
        """The axes, one per panel, row by row."""
        return self._built.axes

    @property
    def artists(self) -> tuple[Any, ...]:
        """The image or line of each panel."""
        return self._built.artists

    @property
    def moment(self) -> Any:
        """The text below the heading."""
        return self._built.moment

    def show(self, planes: Sequence[Plane], moment: str) -> None:
        """Replace the values in the panels, and the time."""
        for artist, plane in zip(self.artists, planes, strict=True):
            if plane.values.ndim == 1:
                artist.set_ydata(plane.values)
            else:
                artist.set_data(pixels(plane))
        self.moment.set_text(moment)

    def pixels(self, dpi: int) -> npt.NDArray[np.uint8]:
        """The figure in its present state, (rows, columns, 3): red, green, blue."""
        from matplotlib import rc_context

        with rc_context(STYLE):
            self.figure.set_dpi(dpi)
            canvas: Any = self.figure.canvas
            canvas.draw()
        return np.array(canvas.buffer_rgba(), dtype=np.uint8)[..., :3]

    def _repr_png_(self) -> bytes:
        return self.png(_SCREEN)

    def png(self, dpi: int) -> bytes:
        """The picture as a PNG file in memory."""
        file = io.BytesIO()
        self._write(file, dpi)
        return file.getvalue()

    def save(self, path: Path) -> None:
        """Write a PNG file atomically."""
        with atomic_file(path) as part:
            self._write(part, DPI)

    def _write(self, file: Path | io.BytesIO, dpi: int) -> None:
        # Once the figure exists it is authoritative, as the caller may have changed it.
        if self._sheet is not None:
            paint(self._sheet, dpi).save(file, format="PNG", dpi=(dpi, dpi))
            return

        from matplotlib import rc_context

        # Settings and fonts of matplotlib are global to the process.
        with _DRAWING, rc_context(STYLE):
            self.figure.savefig(file, format="png", dpi=dpi, metadata={"Software": "tetris_sim"})


def draw(sheet: FigureLayout) -> Drawing:
    """A figure of panels in rows, all on one length scale, with y (or z) upwards."""
    return Drawing(lambda: build_figure(sheet), sheet if can_paint(sheet) else None)


def build_figure(sheet: FigureLayout) -> Built:
    """Build the matplotlib figure of a layout; `rc_context(STYLE)` may be in force already."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Panels are placed in inches; matplotlib wants fractions of the figure.
    with rc_context(STYLE):
        width, height = sheet.width, sheet.height
        figure = Figure(figsize=(width, height), facecolor="white")
        FigureCanvasAgg(figure)
        axes = tuple(
            figure.add_axes(
                (at.left / width, at.bottom / height, at.width / width, at.height / height)
            )
            for at in sheet.places
        )
        artists = tuple(
            _draw_graph(it, panel, sheet.unit)
            if panel.plane.values.ndim == 1
            else _draw_map(it, panel, sheet, at)
            for it, panel, at in zip(axes, sheet.panels, sheet.places, strict=True)
        )

        left = 0.2 / width
        text, size = sheet.fitted_heading
        figure.text(left, 1 - 0.12 / height, text, fontsize=size, fontweight="bold", va="top")
        line = figure.text(
            left, 1 - HEADING / height, sheet.moment, fontsize=11, va="top", color="0.25"
        )
    return Built(figure, axes, artists, line)


def _draw_map(axes: Axes, panel: Panel, sheet: FigureLayout, at: PanelBox) -> Any:
    plane, unit, figure = panel.plane, sheet.unit, axes.figure
    # Both coordinates in the unit of the axis labels.
    y, x = (edges / unit.metres for edges in plane.edges)
    image = axes.imshow(
        pixels(plane),
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

    # As many ticks as there is room for, at round numbers.
    across, upwards = at.intervals
    axes.xaxis.set_major_locator(_locator(across))
    axes.yaxis.set_major_locator(_locator(upwards))
    write_numbers(axes)

    if panel.bar:
        # The bar has the height of the axes; its horizontal position is that of the layout.
        box, place = axes.get_position(), at.bar
        strip = figure.add_axes(
            (place.left / sheet.width, box.y0, place.width / sheet.width, box.height)
        )
        bar = figure.colorbar(image, cax=strip, ticks=_locator(upwards), format=_numbers())
        bar.set_label(panel.bar_label(place.height))
        bar.outline.set_linewidth(0.6)
    return image


def _make_outlines(lines: npt.NDArray[np.float64]) -> Any:
    """Lines that are visible on light and on dark colours."""
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import Normal, withStroke

    effects = [withStroke(linewidth=1.5, foreground="black", alpha=0.55), Normal()]
    return LineCollection(
        list(lines), colors="white", linewidths=0.6, capstyle="projecting", path_effects=effects
    )


def _draw_graph(axes: Axes, panel: Panel, unit: LengthUnit) -> Any:
    plane = panel.plane
    positions = plane.positions[0] / unit.metres
    # The earlier state lies below, fainter.
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

    # A zero line, where the values change sign.
    if panel.limits[0] < 0 < panel.limits[1]:
        axes.axhline(0.0, color="0.75", linewidth=0.8, zorder=0)

    # Dashed lines where one material ends and another begins.
    if plane.materials is not None:
        for after in borders(plane.materials):
            place = plane.edges[0][after + 1] / unit.metres
            axes.axvline(place, color="0.5", linewidth=0.9, linestyle=(0, (5, 3)), zorder=1.9)

    # A margin of 5 % keeps the line off the frame.
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
    """Format the ticks of both axes as plain text."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_numbers())


def _numbers() -> Any:
    """Tick formatter: numbers as text, and a common power of ten as a formula.

    A number set as a formula looks the same, but parsing formulas took a third of a picture's time.
    """
    from matplotlib.ticker import ScalarFormatter

    class Numbers(ScalarFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return super().__call__(x, pos).removeprefix(r"$\mathdefault{").removesuffix("}$")

    return Numbers()


def _locator(intervals: int) -> Any:
    """Locator of ticks at round numbers, as many as there is room for."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(intervals, steps=TICK_STEPS)
