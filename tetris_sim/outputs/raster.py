"""Maps as pixels with Pillow alone: importing matplotlib takes longer than most small runs.

A figure of maps looks as matplotlib draws it (`drawing.py`), with the same panels, ticks and texts.
Rarer content is left to matplotlib: graphs, formulas in texts, scales with a power of ten.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tetris_sim.outputs.figure_layout import (
    CHANGE_COLOURS,
    FIELD_COLOURS,
    HEADING,
    TICK_STEPS,
    FigureLayout,
    Limits,
    Panel,
    PanelBox,
    pixels,
)
from tetris_sim.outputs.sampling import Plane, Values

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

# Borders of materials: lines between cells, long ones instead of many short ones.

# Share of cell faces between materials above which the lines would hide what they outline; maps of
# few cells are always outlined.
_MOST, _FEW = 0.15, 2500

Numbers = npt.NDArray[np.float64]


def borders(materials: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Indices of the points of a line after which another material begins, (n,).

    >>> borders(np.array([0, 0, 2, 2, 1])).tolist()
    [1, 3]
    """
    return np.flatnonzero(np.diff(materials))


def outlines(materials: npt.NDArray[np.int64], edges: tuple[Numbers, Numbers]) -> Numbers:
    """Lines around the materials of a map; none where they would cover the map.

    >>> corner = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    >>> outlines(corner, (np.arange(4.0), np.arange(5.0))).tolist()
    [[[0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]]

    Args:
        materials: numbers of materials, (rows, columns).
        edges: ends of the cells, (rows + 1,) and (columns + 1,).

    Returns:
        (n, 2, 2): two ends with (x, y) for each line.
    """
    below, beside = (np.diff(materials, axis=axis) != 0 for axis in (0, 1))
    share = (below.sum() + beside.sum()) / max(1, below.size + beside.size)
    if share > _MOST and materials.size > _FEW:
        return np.zeros((0, 2, 2))

    # Row k of `below` is the border between rows k and k + 1 of cells, at y[k + 1].
    y, x = edges
    row, columns = _runs(below)
    level = np.stack([x[columns], np.repeat(y[row + 1][:, None], 2, axis=1)], axis=-1)
    column, rows = _runs(beside.T)
    steep = np.stack([np.repeat(x[column + 1][:, None], 2, axis=1), y[rows]], axis=-1)
    return np.concatenate([level, steep])


def _runs(true: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Runs of true along the rows: the row of each, (n,), and its begin and end, (n, 2)."""
    # Padding makes runs at the ends of a row begin and end like any other.
    changes = np.diff(np.pad(true.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, begins = np.nonzero(changes == 1)
    return rows, np.stack([begins, np.nonzero(changes == -1)[1]], axis=1)


_SCALES = Path(__file__).with_name("colours.png")  # a row of 256 colours for each
_ROWS = (FIELD_COLOURS, CHANGE_COLOURS)

# Sizes in points, 72 to the inch, as in matplotlib.
_TEXT, _TITLE_TEXT, _TICK, _FRAME, _THIN = 10.0, 11.0, 3.5, 0.8, 0.6
_TICK_TO_TEXT, _TEXT_TO_TEXT, _TITLE_GAP = 3.5, 4.0, 6.0
_UP, _DOWN, _DIGIT, _LINE = 0.76, 0.21, 0.73, 1.2  # of a letter, per point of its size

_SHADE, _SHADE_WIDTH, _LINE_WIDTH = 140, 1.5, 0.6  # around outlines, of 255; points
_PLAIN = 3.0  # cells of so many pixels keep their edges; smaller ones are smoothed


def can_paint(sheet: FigureLayout) -> bool:
    """Whether a figure consists of maps with plain numbers and plain texts only."""
    return "$" not in sheet.heading + sheet.moment and all(
        panel.plane.values.ndim == 2
        and panel.colours in _ROWS
        and "$" not in panel.label + panel.title
        and (not panel.bar or _is_plain(panel.limits))
        and all(
            _is_plain((low / sheet.unit.metres, high / sheet.unit.metres))
            for low, high in panel.plane.bounds
        )
        for panel in sheet.panels
    )


def paint(sheet: FigureLayout, dpi: int) -> Image:
    """Rasterize a figure at so many pixels per inch."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (int(sheet.width * dpi), int(sheet.height * dpi)), "white")
    canvas = _Canvas(picture, ImageDraw.Draw(picture), dpi, sheet)
    for panel, place in zip(sheet.panels, sheet.places, strict=True):
        canvas.paint_map(panel, place)
        if panel.bar:
            canvas.paint_bar(panel, place)

    # Texts are anchored at the left end of their base line ("ls").
    text, size = sheet.fitted_heading
    canvas.write(text, 0.2, sheet.height - 0.12 - _UP * size / 72, size, "ls", bold=True)
    under = sheet.height - HEADING - _UP * _TITLE_TEXT / 72
    canvas.write(sheet.moment, 0.2, under, _TITLE_TEXT, "ls", fill="#404040")
    return picture


@dataclass(frozen=True)
class _Canvas:
    """Painter in inches from the lower left corner of the figure."""

    picture: Image
    pen: ImageDraw
    dpi: int
    sheet: FigureLayout

    def paint_map(self, panel: Panel, place: PanelBox) -> None:
        """Paint the values, the outlines of materials, and ticks and texts around them."""
        plane, unit = panel.plane, self.sheet.unit
        self._paint_cells(_coloured(pixels(plane), panel), plane, place)
        if plane.materials is not None:
            self._outline(plane, place)
        self._frame(place, _FRAME)

        (y_low, y_high), (x_low, x_high) = (
            (low / unit.metres, high / unit.metres) for low, high in plane.bounds
        )

        across, upwards = place.intervals
        # Labels hang below the ticks, at the distance that matplotlib leaves.
        step = (_TICK + _TICK_TO_TEXT) / 72
        for text, share in labelled_ticks((x_low, x_high), across):
            x = place.left + share * place.width
            self._line(x, place.bottom, x, place.bottom - _TICK / 72, _FRAME)
            self.write(text, x, place.bottom - step - _UP * _TEXT / 72, _TEXT, "ms")

        below = step + ((_UP + _DOWN + _UP) * _TEXT + _TEXT_TO_TEXT) / 72
        middle = place.left + place.width / 2
        self.write(f"{plane.axes[1]} [{unit.name}]", middle, place.bottom - below, _TEXT, "ms")
        self.write(panel.title, middle, place.top + _TITLE_GAP / 72, _TITLE_TEXT, "ms")

        # The axis label stands left of the widest number.
        widest = 0.0
        for text, share in labelled_ticks((y_low, y_high), upwards):
            y = place.bottom + share * place.height
            self._line(place.left, y, place.left - _TICK / 72, y, _FRAME)
            self.write(text, place.left - step, y - _DIGIT * _TEXT / 144, _TEXT, "rs")
            widest = max(widest, self._width(text))
        beside = place.left - step - widest - (_TEXT_TO_TEXT + _DOWN * _TEXT) / 72
        height = place.bottom + place.height / 2
        self._write_upwards(f"{plane.axes[0]} [{unit.name}]", beside, height)

    def paint_bar(self, panel: Panel, place: PanelBox) -> None:
        """Paint the colour bar to the right of a panel, with its numbers and its label."""
        from PIL import Image

        bar = place.bar
        # The scale is a column of 256 colours, the highest value on top.
        scale = Image.fromarray(np.ascontiguousarray(colour_scale(panel.colours)[::-1, None]))
        left, top, right, bottom = self._box(bar)
        self.picture.paste(
            scale.resize((right - left, bottom - top), Image.Resampling.NEAREST), (left, top)
        )
        self._frame(bar, _THIN)

        widest, step = 0.0, (_TICK + _TICK_TO_TEXT) / 72
        for text, share in labelled_ticks(panel.limits, place.intervals[1]):
            y = bar.bottom + share * bar.height
            self._line(bar.right, y, bar.right + _TICK / 72, y, _FRAME)
            self.write(text, bar.right + step, y - _DIGIT * _TEXT / 144, _TEXT, "ls")
            widest = max(widest, self._width(text))

        beside = bar.right + step + widest + (_TEXT_TO_TEXT + _UP * _TEXT) / 72
        for k, line in enumerate(panel.bar_label(bar.height).splitlines()):
            self._write_upwards(line, beside + k * _LINE * _TEXT / 72, bar.bottom + bar.height / 2)

    def write(
        self,
        text: str,
        x: float,
        y: float,
        size: float,
        anchor: str,
        *,
        bold: bool = False,
        fill: str = "black",
    ) -> None:
        """Write a text at a position of its base line [inches], which `anchor` refers to."""
        font = _font(size * self.dpi / 72, bold=bold)
        self.pen.text((x * self.dpi, self._row(y)), text, fill, font, anchor=anchor)

    def _write_upwards(self, text: str, x: float, y: float) -> None:
        """Write a text upwards, with its base line at x and its middle at y [inches]."""
        from PIL import Image, ImageDraw

        # Pillow writes horizontally only: write into a mask, turn it, paste black through it.
        font = _font(_TEXT * self.dpi / 72)
        width, height = math.ceil(font.getlength(text)) + 2, math.ceil(2 * _TEXT * self.dpi / 72)
        mask = Image.new("L", (width, height))
        base = round(height * 0.7)
        ImageDraw.Draw(mask).text((width / 2, base), text, 255, font, anchor="ms")
        turned = mask.transpose(Image.Transpose.ROTATE_90)
        corner = round(x * self.dpi) - base, round(self._row(y) - width / 2)
        self.picture.paste("black", corner, turned)

    def _width(self, text: str) -> float:
        return _font(_TEXT * self.dpi / 72).getlength(text) / self.dpi

    def _row(self, y: float) -> float:
        # Pixels count from the top.
        return self.picture.height - y * self.dpi

    def _box(self, place: PanelBox) -> tuple[int, int, int, int]:
        """Left, top, right and bottom in pixels; right and bottom are the first ones outside."""
        return (
            round(place.left * self.dpi),
            round(self._row(place.top)),
            round(place.right * self.dpi),
            round(self._row(place.bottom)),
        )

    def _line(self, x0: float, y0: float, x1: float, y1: float, width: float) -> None:
        ends = [(round(x * self.dpi), round(self._row(y))) for x, y in ((x0, y0), (x1, y1))]
        self.pen.line(ends, "black", self._pixels_of(width))

    def _frame(self, place: PanelBox, width: float) -> None:
        left, top, right, bottom = self._box(place)
        thick = self._pixels_of(width)
        # The frame straddles the edge of the box.
        out = thick // 2
        self.pen.rectangle(
            (left - out, top - out, right - 1 + out, bottom - 1 + out), None, "black", thick
        )

    def _pixels_of(self, points: float) -> int:
        return max(1, round(points * self.dpi / 72))

    def _paint_cells(self, colours: npt.NDArray[np.uint8], plane: Plane, place: PanelBox) -> None:
        """Paint cells, the last row on top; cells that extend beyond the box are clipped."""
        from PIL import Image

        left, top, right, bottom = self._box(place)
        source, target = [], []
        for axis, n_pixels in ((1, right - left), (0, bottom - top)):
            # The visible range of the cells: as a range of cells (source) and of pixels (target).
            (low, high), edges = plane.bounds[axis], plane.edges[axis]
            first, last = max(low, edges[0]), min(high, edges[-1])
            n = colours.shape[axis]
            source.append([(it - edges[0]) / (edges[-1] - edges[0]) * n for it in (first, last)])
            target.append([round((it - low) / (high - low) * n_pixels) for it in (first, last)])

        (x0, x1), (y0, y1) = source
        (u0, u1), (v0, v1) = target
        size = max(1, u1 - u0), max(1, v1 - v0)
        # Large cells keep sharp edges, small ones are averaged.
        wide = min(size[0] / (x1 - x0), size[1] / (y1 - y0))
        how = Image.Resampling.NEAREST if wide >= _PLAIN else Image.Resampling.HAMMING
        rows = colours.shape[0]
        cells = Image.fromarray(np.ascontiguousarray(colours[::-1]))
        box = (x0, max(0.0, rows - y1), x1, rows - y0)
        self.picture.paste(cells.resize(size, how, box), (left + u0, bottom - v1))

    def _outline(self, plane: Plane, place: PanelBox) -> None:
        """Paint white lines with a dark shade, visible on light and on dark colours."""
        from PIL import Image, ImageDraw

        assert plane.materials is not None
        y_edges, x_edges = plane.edges
        (y_low, y_high), (x_low, x_high) = plane.bounds
        ends = outlines(plane.materials, (y_edges, x_edges))
        columns = (place.left + (ends[..., 0] - x_low) / (x_high - x_low) * place.width) * self.dpi
        rows = (
            self._row(0)
            - (place.bottom + (ends[..., 1] - y_low) / (y_high - y_low) * place.height) * self.dpi
        )
        lines = np.rint(np.stack([columns, rows], axis=-1)).astype(int)

        # All shades first, so that none covers a line.
        shade = Image.new("L", self.picture.size)
        pen = ImageDraw.Draw(shade)
        for line in lines:
            pen.line([tuple(end) for end in line.tolist()], _SHADE, self._pixels_of(_SHADE_WIDTH))
        self.picture.paste("black", (0, 0), shade)
        for line in lines:
            self.pen.line(
                [tuple(end) for end in line.tolist()], "white", self._pixels_of(_LINE_WIDTH)
            )


def labelled_ticks(limits: Limits, intervals: int) -> list[tuple[str, float]]:
    """Round numbers on a scale as text, with their position on it from 0 to 1.

    >>> labelled_ticks((-2.0, 3.0), 3)
    [('−2', 0.0), ('0', 0.4), ('2', 0.8)]
    """
    low, high = limits
    places = _round_numbers(low, high, intervals)
    # Four significant digits of the range, less trailing zeros that all numbers share.
    decimals = max(0, 3 - math.floor(math.log10(np.ptp([*places, low, high]))))
    while decimals and all(
        abs(it - round(it, decimals - 1)) < 1e-6 * (high - low) for it in places
    ):
        decimals -= 1
    return [
        # A minus sign, not a hyphen; adding 0.0 turns -0.0 into 0.0.
        (f"{it:.{decimals}f}".replace("-", "−"), (it - low) / (high - low))
        for it in (round(place, decimals) + 0.0 for place in places)
    ]


def _round_numbers(low: float, high: float, intervals: int) -> list[float]:
    """Multiples of a round step inside a scale: the shortest step with at most `intervals`
    intervals, or a shorter one until there are two numbers, as in matplotlib's MaxNLocator.
    """
    raw = (high - low) / intervals
    power = 10.0 ** math.floor(math.log10(raw))
    steps = [step * scale for scale in (power / 10, power) for step in TICK_STEPS[:-1]]
    steps.append(10 * power)
    fitting = [step for step in steps if step < raw * (1 - 1e-12)]
    first = len(fitting)
    for step in steps[first::-1]:
        slack = 1e-9 * step
        numbers = range(math.ceil((low - slack) / step), math.floor((high + slack) / step) + 1)
        if len(numbers) > 1:
            break
    return [min(max(number * step, low), high) for number in numbers]


def _is_plain(limits: Limits) -> bool:
    """Whether numbers between the limits are short without a power of ten or an offset."""
    low, high = limits
    most = max(abs(low), abs(high))
    return 1e-3 <= most < 1e5 and high - low > 1e-2 * most


def _coloured(values: Values, panel: Panel) -> npt.NDArray[np.uint8]:
    """Red, green and blue of each value; white where it is not finite."""
    low, high = panel.limits
    share = (values - low) / (high - low)
    finite = np.isfinite(share)
    index = np.clip(np.where(finite, share, 0.0) * 256, 0, 255).astype(np.uint8)
    colours: npt.NDArray[np.uint8] = colour_scale(panel.colours)[index]
    colours[~finite] = 255
    return colours


@functools.cache
def colour_scale(name: str) -> npt.NDArray[np.uint8]:
    """The 256 colours of a map from the lowest to the highest value, (256, 3)."""
    from PIL import Image

    with Image.open(_SCALES) as rows:
        colours: npt.NDArray[np.uint8] = np.asarray(rows.convert("RGB"))[_ROWS.index(name)]
    return colours


@functools.cache
def _font(pixels: float, *, bold: bool = False) -> FreeTypeFont:
    """The font that matplotlib ships and writes with, found without importing matplotlib."""
    from PIL import ImageFont

    found = importlib.util.find_spec("matplotlib")
    assert found is not None
    assert found.origin is not None
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(
        Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / name, pixels
    )
