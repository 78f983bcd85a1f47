"""What a page about a run shows, from the files of the run alone, as plain data."""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.commands import sources
from tetris_sim.config import Config, read_config
from tetris_sim.config.yaml import MOST_CHARACTERS
from tetris_sim.errors import CheckpointError, TetrisError
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import results, tables
from tetris_sim.outputs.drawing import LINE_COLOUR
from tetris_sim.outputs.figure_layout import FIELD_COLOURS, length_unit, moment
from tetris_sim.outputs.sampling import default_cuts, sample
from tetris_sim.outputs.series import Series
from tetris_sim.outputs.tables import LEADING, read_table
from tetris_sim.simulation.report import read_report
from tetris_sim.support.files import read_given

Facts = dict[str, Any]
_FRAMES = 40  # of the slider
_POINTS = 160  # per axis of a picture: what a page of a few MB holds
_VARIABLES = 4
_ROWS = 2000  # of a table; more than a screen has columns
_LEVELS = 65535  # a value is 16 bits between the lowest and the highest


def gather(directory: Path) -> Facts:
    """Everything about one run.

    Raises:
        CheckpointError: there are no results.
    """
    if not directory.is_dir() or not results.has_results(directory):
        msg = f"{directory} holds no results of tetris_sim; give the results directory of a run"
        raise CheckpointError(msg)

    text = _read(directory / results.CONFIG)
    config, problem = _rebuild(text)
    report = _read_report(directory / results.REPORT_JSON)
    return {
        "name": str(directory),
        "text": text,
        # Checked: nothing else of a text is taken apart.
        "config": {} if config is None else config.resolved(),
        "request": config,
        "problem": problem,
        "report": report,
        "fields": read_fields(directory),
        "tables": read_tables(directory, timeless=_timeless(config)),
    }


def _timeless(config: Config | None) -> bool:
    return config is not None and config.resolved()["model"]["type"] == "stencil"


def _read(path: Path) -> str:
    try:
        return read_given(path, 4 * MOST_CHARACTERS).decode()
    except (OSError, UnicodeError):
        return ""


def _read_report(path: Path) -> Facts:
    with contextlib.suppress(CheckpointError):
        return read_report(path).as_json()
    return {}


def _rebuild(text: str) -> tuple[Config | None, Problem | None]:
    """The configuration and its problem, as far as they can be had: input files may be gone."""
    config = None
    with contextlib.suppress(TetrisError, OSError):
        config = read_config(text, name=results.CONFIG, base=Path.cwd(), environ={})
        return config, config.build()
    return config, None


# ---- fields


def read_fields(directory: Path) -> list[Facts]:
    """Pictures of each variable over time; none if nothing was written."""
    try:
        with sources.open_series(directory) as series:
            chosen = _evenly(len(series.steps), _FRAMES)
            return [
                _frames(series, variable, chosen)
                for variable in range(min(_VARIABLES, len(series.variables)))
            ]
    except CheckpointError:
        return []


def _evenly(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(k) for k in np.linspace(0, count - 1, most)})


def _frames(series: Series, variable: int, chosen: Sequence[int]) -> Facts:
    """One variable at some records, as 16 bits per point."""
    caption = sources.caption(series, variable)
    cuts = default_cuts(series.grid)
    records = [
        sample(functools.partial(series.read, record, variable), series.grid, cuts, most=_POINTS)
        for record in chosen
    ]
    values = [np.asarray(plane.values, np.float64) for planes in records for plane in planes]
    finite = [it[np.isfinite(it)] for it in values]
    low = min((float(it.min()) for it in finite if it.size), default=0.0)
    high = max((float(it.max()) for it in finite if it.size), default=0.0)

    unit = length_unit([b - a for plane in records[0] for a, b in plane.bounds])
    return {
        "name": series.variables[variable].name,
        "label": caption.quantity,
        # The colours of the pictures that a run writes.
        "colours": FIELD_COLOURS.capitalize(),
        "line": LINE_COLOUR,
        "low": low,
        "high": high,
        "unit": unit.name,
        "moments": [
            moment(series.steps[record], series.times[record], timeless=series.timeless)
            for record in chosen
        ],
        "planes": [
            {
                "axes": list(plane.axes),
                "title": ""
                if plane.place is None
                else f"{plane.place[0]} = {unit.text(plane.place[1])}",
                "positions": [(it / unit.metres).round(9).tolist() for it in plane.positions],
                "frames": [encode(planes[k].values, low, high) for planes in records],
            }
            for k, plane in enumerate(records[0])
        ],
    }


def encode(values: npt.NDArray[Any], low: float, high: float) -> str:
    """Values as 16-bit numbers between two ends, little endian, in base 64.

    >>> encode(np.array([0.0, 1.0]), 0.0, 1.0)
    'AAD//w=='
    """
    scale = _LEVELS / (high - low) if high > low else 0.0
    levels = np.nan_to_num((np.asarray(values, np.float64) - low) * scale)
    return base64.b64encode(levels.round().clip(0, _LEVELS).astype("<u2").tobytes()).decode()


# ---- tables


def read_tables(directory: Path, *, timeless: bool) -> list[Facts]:
    """Probes and statistics: columns of one unit go into one plot."""
    found = {path.stem: path for path in sorted((directory / tables.FOLDER).glob("*.csv"))}
    plots = _plots({f"{name}: ": path for name, path in found.items()}, "Probes", timeless)
    if (path := directory / tables.FILE).exists():
        plots += _plots({"": path}, "Statistics", timeless)
    return plots


def _plots(paths: Mapping[str, Path], kind: str, timeless: bool) -> list[Facts]:
    units: dict[str, list[Facts]] = {}
    for prefix, path in paths.items():
        columns, rows = read_table(path)
        if not rows:
            continue
        array = np.asarray(rows)[_evenly(len(rows), _ROWS)]
        along = array[:, 0 if timeless else 1].tolist()
        for k, column in enumerate(columns):
            if column in LEADING:
                continue
            name, _, unit = column.rpartition(" [")
            line = {"name": f"{prefix}{name}", "x": along, "y": array[:, k].tolist()}
            units.setdefault(unit.rstrip("]"), []).append(line)

    return [
        {
            "title": kind,
            "unit": unit,
            "along": "step" if timeless else "time [s]",
            "lines": lines,
        }
        for unit, lines in units.items()
    ]
