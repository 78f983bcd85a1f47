"""What became of the runs of a sweep: a row for each, as CSV, pandas and xarray."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.config import Config
from tetris_sim.errors import CheckpointError
from tetris_sim.outputs import results, tables
from tetris_sim.outputs.tables import LEADING, read_table
from tetris_sim.simulation.report import read_report
from tetris_sim.support.files import atomic_text

TABLE = "table.csv"
ENDED, ERROR = "ended", "error"

Row = dict[str, Any]


@dataclass(frozen=True)
class SweepCase:
    """One run of a sweep.

    Attributes:
        number: counted from 1.
        chosen: the value of each key, as it was written.
        config: all of the configuration.
    """

    number: int
    chosen: dict[str, Any]
    config: Config

    @property
    def directory(self) -> Path:
        """Its results."""
        return results.directory_of(self.config)


@dataclass(frozen=True)
class SweepResult:
    """What came out of a sweep.

    Attributes:
        directory: where everything is.
        over: the values of each key.
        zipped: whether the keys went together instead of each with each.
        rows: of each run its number, values, how it ended, and the last record of its statistics
            and probes.
        exit_code: 0, or that of the first run that did not end as it should.
    """

    directory: Path
    over: dict[str, list[Any]]
    zipped: bool
    rows: tuple[Row, ...]
    exit_code: int

    @property
    def failed(self) -> tuple[Row, ...]:
        """The runs without a result; their `error` says why."""
        return tuple(row for row in self.rows if row[ERROR])

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row per run."""
        import pandas

        return pandas.DataFrame(list(self.rows))

    def to_xarray(self) -> Any:
        """An xarray Dataset with a dimension per key; with one, `run`, if keys went together."""
        import xarray

        sizes = {key: len(values) for key, values in self.over.items()}
        if self.zipped:
            sizes = {"run": len(self.rows)}
        names = [key for key in self.rows[0] if key not in ("run", "directory", *self.over)]
        coordinates = {
            key: (("run",) if self.zipped else (key,), _plain(values))
            for key, values in self.over.items()
        }
        shape = tuple(sizes.values())
        columns = {
            name: (
                tuple(sizes),
                _plain([row.get(name, math.nan) for row in self.rows]).reshape(shape),
            )
            for name in names
        }
        return xarray.Dataset(columns, coords=coordinates)


def read_row(case: SweepCase) -> Row | None:
    """What is in the results of a run that has ended as it should; None if it has not."""
    try:
        report = read_report(case.directory / results.REPORT_JSON)
    except CheckpointError:
        return None
    if report.exit_code != 0:
        return None

    row = {"wall_s": report.wall_s, "points_per_second": report.points_per_second}
    found = [("", case.directory / tables.FILE)]
    folder = case.directory / tables.FOLDER
    found += [(f"{path.stem}: ", path) for path in sorted(folder.glob("*.csv"))]
    for name, path in found:
        columns, rows = read_table(path)
        last = rows[-1] if rows else [float("nan")] * len(columns)
        row |= {
            name + column: value
            for column, value in zip(columns, last, strict=True)
            if column not in LEADING
        }
    return row


def row_of(case: SweepCase, told: Row | None) -> Row:
    """A run's row of the table."""
    found = read_row(case)
    error = "" if found is not None or told is None else str(told.get(ERROR, ""))
    ended = "Done" if found is not None else "failed" if error else "waiting"
    told_ended = ended if told is None or error else str(told.get(ENDED, ended))
    return {
        "run": case.number,
        **case.chosen,
        ENDED: told_ended,
        ERROR: error,
        **(found or {}),
        "directory": str(case.directory),
    }


def write_table(place: Path, rows: Sequence[Row]) -> None:
    """Write the table of all runs; what a run does not have is empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "directory"))
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [*columns, "directory"], restval="", lineterminator="\n", extrasaction="raise"
    )
    writer.writeheader()
    writer.writerows(rows)
    atomic_text(place / TABLE, text.getvalue())


def _plain(values: Sequence[Any]) -> Any:
    """Numbers as an array of numbers, all else as an array of objects."""
    if all(isinstance(it, int | float) for it in values):
        return np.asarray(values, dtype=float)
    array = np.empty(len(values), dtype=object)
    array[:] = [str(it) if isinstance(it, list | dict) else it for it in values]
    return array
