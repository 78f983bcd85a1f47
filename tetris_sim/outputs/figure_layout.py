"""Layout of figures: panels in rows, in inches, before anything is drawn; captions and units."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.outputs.sampling import MOST_POINTS, Plane, Values
from tetris_sim.support.wording import format_time

# Words and numbers on pictures: lengths, units, times.

_UNITS = {"degC": "°C", "1": ""}
_DIFFERENCES = {"degC": "K", "1": ""}  # a difference of two temperatures


@dataclass(frozen=True)
class LengthUnit:
    """A unit in which the positions of a picture are short numbers.

    Attributes:
        name: name for axis labels.
        metres: its length [m].
    """

    name: str
    metres: float

    def text(self, position: float) -> str:
        """A position [m] as text in this unit."""
        return f"{position / self.metres:.4g} {self.name}"

    def place(self, at: tuple[str, float] | None) -> str:
        """Where a plane cuts an axis, in this unit or in degrees; empty without a cut."""
        if at is None:
            return ""
        name, position = at
        text = f"{math.degrees(position):.4g}°" if name == "theta" else self.text(position)
        return f"{name} = {text}"


_LENGTHS = (
    LengthUnit("nm", 1e-9),
    LengthUnit("µm", 1e-6),
    LengthUnit("mm", 1e-3),
    LengthUnit("cm", 1e-2),
    LengthUnit("m", 1.0),
    LengthUnit("km", 1e3),
)
# Upper end of a unit's range, in that unit; the others end at 1000, or where centimetres begin.
_LARGEST = {"cm": 100.0, "m": 1e4}


def length_unit(lengths: Iterable[float]) -> LengthUnit:
    """The unit for a picture whose longest edge is the longest of `lengths` [m].

    >>> [length_unit([size]).name for size in (0.015, 0.3, 2.0, 5e-5, 1e5)]
    ['mm', 'cm', 'm', 'µm', 'km']
    """
    longest = max(lengths)
    for unit, following in itertools.pairwise(_LENGTHS):
        limit = _LARGEST.get(unit.name, 100.0 if following.name == "cm" else 1000.0)
        # A length of exactly the limit, up to rounding, gets the larger unit.
        if longest < limit * unit.metres * (1 - 1e-9):
            return unit
    return _LENGTHS[-1]


@dataclass(frozen=True)
class Caption:
    """Caption of a picture, without its time.

    >>> caption = Caption("temperature", "degC", "Plate")
    >>> caption.quantity, caption.change
    ('temperature [°C]', 'change of temperature [K]')

    Attributes:
        long_name: name of the values.
        unit: unit of the values; "1" if they have none.
        heading: heading of the picture.
    """

    long_name: str
    unit: str
    heading: str

    @property
    def quantity(self) -> str:
        """Label of a colour bar or an axis that shows the values."""
        return _with_unit(self.long_name, _UNITS.get(self.unit, self.unit))

    @property
    def change(self) -> str:
        """Label for the difference of two states."""
        return _with_unit(f"change of {self.long_name}", _DIFFERENCES.get(self.unit, self.unit))


def _with_unit(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name


STEADY = "steady state"


def moment(step: int, time: float, *, timeless: bool) -> str:
    """The time of a state as text.

    >>> moment(1200, 0.01922, timeless=False), moment(1200, 1200.0, timeless=True)
    ('t = 19.22 ms', 'step 1200')
    >>> moment(1, 0.0, timeless=True)
    'steady state'
    """
    # The only step that takes no time is that to a steady state (`Problem.start`).
    if step and not time:
        return STEADY
    # Steps of a problem without physical time are counted instead.
    return f"step {step}" if timeless else f"t = {format_time(time)}"


Limits = tuple[float, float]

FIELD_COLOURS = "inferno"
CHANGE_COLOURS = "RdBu_r"  # hotter red, colder blue, as in figure 16 of the Tetris paper
# Sizes in inches.
_SIDE = {1: 5.2, 2: 4.2, 3: 3.7}  # longest side of a panel, by the number of panels in a row
_SHORTEST = 0.7
_LEFT, _BOTTOM, _TITLE, _NO_TITLE, _BAR, _NO_BAR, _EDGE = 0.80, 0.62, 0.42, 0.14, 1.05, 0.12, 0.14
HEADING, _MOMENT = 0.38, 0.24
_NARROWEST = 4.4
_LETTER = 0.0086  # width of a bold letter per point of its size, on average
_LINE_SIZE = (6.4, 3.4)
TICK_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # of ticks at round numbers


@dataclass(frozen=True)
class Panel:
    """One panel of a figure.

    Attributes:
        plane: the values; the lines of a graph share their axes.
        label: label of the colour bar, or of the vertical axis of a graph.
        limits: lowest and highest value of the scale.
        colours: name of a colour map.
        title: title above the panel.
        bar: whether it has a colour bar.
        name: name of the line, for the legend (graphs only).
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

    def bar_label(self, height: float) -> str:
        """The label, broken into lines no longer than a colour bar of this height [inches]."""
        # About 14 letters per inch.
        return textwrap.fill(self.label, max(12, int(14 * height)))


@dataclass(frozen=True)
class PanelBox:
    """A rectangle on a figure [inches], from the figure's lower left corner."""

    left: float
    bottom: float
    width: float
    height: float

    @property
    def top(self) -> float:
        """Its upper edge [inches]."""
        return self.bottom + self.height

    @property
    def right(self) -> float:
        """Its right edge [inches]."""
        return self.left + self.width

    @property
    def bar(self) -> PanelBox:
        """The rectangle of the panel's colour bar."""
        return PanelBox(self.right + 0.10, self.bottom, 0.14, self.height)

    @property
    def intervals(self) -> tuple[int, int]:
        """Number of intervals between ticks that fit, across and upwards."""
        return _intervals(self.width), _intervals(self.height)


@dataclass(frozen=True)
class FigureLayout:
    """A complete figure: all panels, texts and their places.

    Attributes:
        panels: the panels, row by row.
        places: rectangles of the panels.
        width: width of the figure [inches].
        height: height of the figure [inches].
        heading: heading of the figure.
        moment: text below the heading, for example the time.
    """

    panels: tuple[Panel, ...]
    places: tuple[PanelBox, ...]
    width: float
    height: float
    heading: str
    moment: str

    @property
    def unit(self) -> LengthUnit:
        """The unit of all positions."""
        bounds = [bound for panel in self.panels for bound in panel.plane.bounds]
        return length_unit([high - low for low, high in bounds])

    @property
    def fitted_heading(self) -> tuple[str, float]:
        """The heading and its size in points, made smaller, then shorter, until it fits."""
        # A margin of 0.2 inches on either side.
        width = self.width - 0.4
        size = max(8.0, min(13.0, width / (_LETTER * max(1, len(self.heading)))))
        most = int(width / (_LETTER * size))
        # What is too long even at 8 points is cut off.
        fits = len(self.heading) <= most
        return (self.heading if fits else f"{self.heading[: most - 1]}…"), size


def extent(planes: Sequence[Plane]) -> Limits:
    """Lowest and highest finite value of all planes; (0, 0) if there is none."""
    finite = [plane.values[np.isfinite(plane.values)] for plane in planes]
    return (
        min((float(values.min()) for values in finite if values.size), default=0.0),
        max((float(values.max()) for values in finite if values.size), default=0.0),
    )


def widened(limits: Limits) -> Limits:
    """The limits, moved apart if they are too close for a scale."""
    low, high = limits
    # Equal up to rounding: then half of the magnitude, at least 0.5, on either side.
    if high - low > 1e-12 * max(abs(low), abs(high)):
        return limits
    return low - max(0.5 * abs(low), 0.5), high + max(0.5 * abs(high), 0.5)


def field_limits(planes: Sequence[Plane]) -> Limits:
    """A scale that just holds every finite value."""
    return widened(extent(planes))


def change_limits(planes: Sequence[Plane]) -> Limits:
    """A scale around zero that just holds every finite value."""
    # A change of zero everywhere needs a scale, too.
    most = max(map(abs, extent(planes))) or 1.0
    return -most, most


def lay_out(rows: Sequence[Sequence[Panel]], *, heading: str, moment: str = "") -> FigureLayout:
    """Compute the position of every panel, so that nothing overlaps whatever the shape of the box.

    Args:
        rows: the panels.
        heading: heading of the figure.
        moment: text below the heading, for example the time.
    """
    # One length scale for all panels: the longest edge of the box gets the side of a panel.
    side = _SIDE[max(map(len, rows))]
    longest = max(high - low for row in rows for panel in row for low, high in panel.plane.bounds)
    sizes = [[_size(panel, side, longest) for panel in row] for row in rows]
    rights = [
        [_BAR if panel.bar and panel.plane.values.ndim == 2 else _NO_BAR for panel in row]
        for row in rows
    ]
    titles = [_TITLE if any(panel.title for panel in row) else _NO_TITLE for row in rows]

    # Columns and rows are as wide and as high as their largest panel, with its decorations.
    # Rows may differ in length.
    columns = [
        _LEFT + max(w for w, _ in size) + max(right)
        for size, right in zip(
            itertools.zip_longest(*sizes, fillvalue=(0.0, 0.0)),
            itertools.zip_longest(*rights, fillvalue=0.0),
            strict=True,
        )
    ]
    heights = [max(h for _, h in size) for size in sizes]
    above = HEADING + (_MOMENT if moment else 0.0)
    width = max(sum(columns) + _EDGE, _NARROWEST)
    height = above + sum(heights) + sum(titles) + len(rows) * _BOTTOM + _EDGE

    # Place from the top left; rectangles are measured from the bottom.
    places, top = [], height - above
    for size, title, row_height in zip(sizes, titles, heights, strict=True):
        left, top = _LEFT, top - title
        for (w, h), column in zip(size, columns, strict=False):
            places.append(PanelBox(left, top - h, w, h))
            left += column
        top -= row_height + _BOTTOM

    panels = tuple(panel for row in rows for panel in row)
    return FigureLayout(panels, tuple(places), width, height, heading, moment)


def _size(panel: Panel, side: float, longest: float) -> tuple[float, float]:
    """Width and height of a panel: true to scale unless it would be too thin to see."""
    if panel.plane.values.ndim == 1:
        return _LINE_SIZE
    width, height = (high - low for low, high in panel.plane.bounds[::-1])
    return max(_SHORTEST, side * width / longest), max(_SHORTEST, side * height / longest)


def _intervals(inches: float) -> int:
    # One interval per 0.6 inches, at most six.
    return max(1, min(6, int(inches / 0.6)))


def pixels(plane: Plane) -> Values:
    """The values of a plane on cells of one width.

    Where cells differ in width along an axis, they are resampled to as many cells as a picture
    shows, each with the value of the cell that its centre lies in.
    """
    values = plane.values
    for axis, edges in enumerate(plane.edges):
        widths = np.diff(edges)
        # Axes of equal widths need no resampling.
        if np.ptp(widths) > 1e-6 * widths.max():
            places = edges[0] + (np.arange(MOST_POINTS) + 0.5) / MOST_POINTS * (
                edges[-1] - edges[0]
            )
            values = values.take(np.searchsorted(edges, places) - 1, axis)
    return values
