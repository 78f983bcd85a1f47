"""The table of a sweep: read from its folder, and drawn over the keys that were varied.

One key makes curves, two make heat maps, more make parallel axes: a line per run through the values
of all keys and of what came out, coloured by the last of these.
"""

from __future__ import annotations

import csv
import json
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import CheckpointError, ConfigError
from tetris_sim.outputs.drawing import STYLE, Built, Drawing, write_numbers
from tetris_sim.outputs.figure_layout import FIELD_COLOURS
from tetris_sim.support.wording import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLAN, TABLE = "sweep.json", "table.csv"
ENDED, ERROR = "ended", "error"
_BESIDE = ("run", ENDED, ERROR, "wall_s", "points_per_second", "directory")
_WIDTH, _HEIGHT = 8.0, 2.8  # inches of a row of panels
_MOST_MAPS = 6
_LONGEST = 16  # letters of a value on parallel axes
_PARALLEL = 3  # results on parallel axes, beside the keys
NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*")  # with a unit


@dataclass(frozen=True)
class SweepAxis:
    """The values of one key along an axis of a picture.

    Attributes:
        key: of the configuration.
        unit: that all values have; "" for none.
        places: the coordinate of each value: itself where all are numbers, else 0, 1, 2, ...
        names: the values as text where they are no numbers, else none.
    """

    key: str
    unit: str
    places: tuple[float, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, key: str, values: Sequence[Any]) -> SweepAxis:
        """Numbers keep their distances if all have the same unit; anything else stands in order."""
        found = [NUMBER.fullmatch(str(it)) for it in values]
        units = {it[2] for it in found if it}
        if all(found) and len(units) == 1:
            return cls(key, units.pop(), tuple(float(it[1]) for it in found if it), ())
        names = tuple(map(str, values))
        return cls(key, "", tuple(map(float, range(len(names)))), names)

    @property
    def label(self) -> str:
        """The key with its unit."""
        return f"{self.key} [{self.unit}]" if self.unit else self.key

    @property
    def geometric(self) -> bool:
        """Whether the values grow by one factor, so that a logarithmic axis spaces them evenly."""
        values = np.array(sorted(self.places))
        if self.names or len(values) < 3 or values[0] <= 0:
            return False
        return bool(np.ptp(np.diff(np.log(values))) < 1e-3 * np.log(values[-1] / values[0]))

    def show(self, axes: Axes, *, upright: bool = False) -> None:
        """Scale and label an axis, and name values that are no numbers."""
        axis = axes.yaxis if upright else axes.xaxis
        if self.geometric:
            (axes.set_yscale if upright else axes.set_xscale)("log")
        axis.set_label_text(self.label)
        if self.names:
            axis.set_ticks(self.places, labels=list(self.names))


@dataclass(frozen=True)
class SweepTable:
    """The results of a sweep, as its folder has them.

    Attributes:
        name: of the folder.
        axes: one for each key, in the order in which they vary (the last one fastest).
        zipped: whether the values of all keys went together, one run for each.
        rows: as in table.csv, as text.
        results: the columns that hold numbers that came out.
    """

    name: str
    axes: tuple[SweepAxis, ...]
    zipped: bool
    rows: tuple[dict[str, str], ...]
    results: tuple[str, ...]

    def values(self, column: str) -> npt.NDArray[np.float64]:
        """A column; NaN where a run has none."""
        return np.array([_as_number(row.get(column, "")) for row in self.rows])

    def choose(self, variable: str | None) -> tuple[str, ...]:
        """The results to draw: those of a name, with or without unit; else all that differ.

        Raises:
            ConfigError: no column has this name.
            CheckpointError: no run has ended.
        """
        if not self.results:
            msg = f"no run of the sweep {self.name} has ended: there is nothing to draw yet"
            raise CheckpointError(msg)
        if variable is not None:
            # With or without its unit; of a probe its name alone is enough.
            names = [
                it
                for it in self.results
                if variable in (it, it.rpartition(" [")[0], it.partition(": ")[0])
            ]
            if not names:
                msg = f"--variable {variable}: the table of {self.name} has {listed(self.results)}"
                raise ConfigError(msg)
            return tuple(names)
        # Results that are the same in all runs would make empty panels.
        spread = [it for it in self.results if len(_distinct(self.values(it))) > 1]
        return tuple(spread) or self.results


def is_sweep(path: Path) -> bool:
    """Whether a folder, or a table in it, is that of a sweep."""
    folder = path.parent if path.name == TABLE else path
    return (folder / PLAN).is_file()


def read_sweep(path: Path) -> SweepTable:
    """Read the folder of a sweep, or the table in it.

    Raises:
        CheckpointError: the files are not those of a sweep, or there is no table yet.
    """
    folder = path.parent if path.name == TABLE else path
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        over, zipped = dict(plan["over"]), bool(plan["zipped"])
        with (folder / TABLE).open(encoding="utf-8", newline="") as file:
            rows = tuple(csv.DictReader(file))
    except FileNotFoundError as error:
        msg = f"{folder} has no {TABLE} yet: no run of the sweep has ended"
        raise CheckpointError(msg) from error
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        msg = f"{folder} does not hold a sweep that can be read ({error})"
        raise CheckpointError(msg) from error

    axes = tuple(SweepAxis.of(key, values) for key, values in over.items())
    columns = list(dict.fromkeys(name for row in rows for name in row))
    results = [
        name
        for name in columns
        if name not in (*_BESIDE, *over) and any(row.get(name) for row in rows)
    ]
    return SweepTable(folder.resolve().name, axes, zipped, rows, tuple(results))


def draw_sweep(table: SweepTable, names: Sequence[str]) -> Drawing:
    """Draw columns of the table over the keys of the sweep.

    Args:
        table: what came out.
        names: the columns, at least one.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure((_WIDTH, _HEIGHT + 0.3), layout="constrained")
        FigureCanvasAgg(figure)
        if len(table.axes) == 1 or table.zipped:
            panels = _draw_curves(figure, table, names)
        elif len(table.axes) == 2:
            panels = _draw_maps(figure, table, names[:_MOST_MAPS])
        else:
            panels = _draw_parallel(figure, table, names[:_PARALLEL])
        heading = figure.suptitle(table.name, fontweight="bold", x=0.01, ha="left")
    built = Built(figure, tuple(panels), (), heading)
    return Drawing(lambda: built)


def _draw_curves(figure: Any, table: SweepTable, names: Sequence[str]) -> list[Any]:
    """Columns of one unit in one panel, over the first key."""
    units: dict[str, list[str]] = {}
    for name in names:
        units.setdefault(name.rpartition(" [")[2].rstrip("]"), []).append(name)
    figure.set_size_inches(_WIDTH, _HEIGHT * len(units) + 0.3)
    panels: list[Any] = list(figure.subplots(len(units), 1, sharex=True, squeeze=False)[:, 0])

    along = table.axes[0]
    for axes, (unit, shown) in zip(panels, units.items(), strict=True):
        for name in shown:
            axes.plot(
                along.places, table.values(name), marker="o", label=name.rpartition(" [")[0] or name
            )
        write_numbers(axes)
        axes.set_ylabel(unit.replace("degC", "°C"))
        axes.grid(color="0.92", linewidth=0.8)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.spines[["top", "right"]].set_visible(False)
    along.show(panels[-1])
    if table.zipped and len(table.axes) > 1:
        others = listed([it.key for it in table.axes[1:]], "and")
        panels[-1].set_xlabel(f"{along.label}, together with {others}")
    return panels


def _draw_maps(figure: Any, table: SweepTable, names: Sequence[str]) -> list[Any]:
    """A heat map for each column: the first key upwards, the second across."""
    up, across = table.axes
    columns = min(2, len(names))
    lines = math.ceil(len(names) / columns)
    figure.set_size_inches(_WIDTH, _HEIGHT * lines + 0.3)
    panels: list[Any] = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in panels[len(names) :]:
        axes.remove()

    for axes, name in zip(panels, names, strict=False):
        values = table.values(name).reshape(len(up.places), len(across.places))
        x, y = np.argsort(across.places), np.argsort(up.places)
        drawn = axes.pcolormesh(
            np.array(across.places)[x],
            np.array(up.places)[y],
            values[np.ix_(y, x)],
            cmap=FIELD_COLOURS,
            shading="nearest",
        )
        write_numbers(axes)
        across.show(axes)
        up.show(axes, upright=True)
        figure.colorbar(drawn, ax=axes, label=name.replace("degC", "°C"))
    return panels[: len(names)]


def _draw_parallel(figure: Any, table: SweepTable, names: Sequence[str]) -> list[Any]:
    """A line per run through the values of all keys and results, coloured by the last result."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    columns = [
        (it.label, np.array([_place(it, row[it.key]) for row in table.rows])) for it in table.axes
    ]
    columns += [(name.replace("degC", "°C"), table.values(name)) for name in names]
    figure.set_size_inches(max(_WIDTH, 1.5 * len(columns)), 1.5 * _HEIGHT)
    axes = figure.subplots()
    shares = [_between_ends(values) for _, values in columns]
    last = columns[-1][1]
    norm = Normalize(np.nanmin(last), np.nanmax(last))

    for number, colour in enumerate(last):
        if math.isfinite(colour):
            line = [share[number] for share in shares]
            axes.plot(line, color=colormaps[FIELD_COLOURS](norm(colour)), linewidth=1.2)
    for k, (it, (_, values)) in enumerate(zip([*table.axes, *names], columns, strict=True)):
        axes.axvline(k, color="0.3", linewidth=0.8)
        ends = {0.0: np.nanmin(values), 1.0: np.nanmax(values)}
        if isinstance(it, SweepAxis) and it.names:
            texts = dict(zip(_between_ends(np.array(it.places)), it.names, strict=True))
        else:
            texts = {share: f"{end:.4g}" for share, end in ends.items()}
        for share, text in texts.items():
            axes.annotate(
                textwrap.shorten(text, _LONGEST, placeholder="..."),
                *((k, share), (4, 0)),
                textcoords="offset points",
                va="center",
                fontsize=8,
                backgroundcolor=(1, 1, 1, 0.7),
            )

    axes.set_xticks(range(len(columns)), labels=[label for label, _ in columns], rotation=12)
    axes.set_yticks([])
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    figure.colorbar(ScalarMappable(norm, FIELD_COLOURS), ax=axes, label=columns[-1][0])
    return [axes]


def _place(axis: SweepAxis, text: str) -> float:
    """Where a value stands on its axis."""
    return axis.places[axis.names.index(text)] if axis.names else _as_number(text, unit=axis.unit)


def _between_ends(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Values as shares of the way from the lowest to the highest; half of it if all are equal."""
    low, high = np.nanmin(values), np.nanmax(values)
    return np.full(len(values), 0.5) if low == high else (values - low) / (high - low)


def _distinct(values: npt.NDArray[np.float64]) -> set[float]:
    return set(values[np.isfinite(values)].tolist())


def _as_number(text: str, unit: str = "") -> float:
    try:
        return float(text.removesuffix(unit))
    except ValueError:
        return math.nan
