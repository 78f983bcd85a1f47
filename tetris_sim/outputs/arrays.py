"""A series as a plain array (.npy) or as a table (.csv)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tetris_sim.errors import ConfigError
from tetris_sim.outputs.blocks import blocks
from tetris_sim.outputs.series import Series
from tetris_sim.outputs.table import LEADING, read_table
from tetris_sim.support.files import atomic_file


def write_npy(series: Series, records: Sequence[int], path: Path, *, single: bool) -> None:
    """Write the first variable as a NumPy array.

    Args:
        series: where the values are.
        records: which of them, ascending.
        path: the file to write.
        single: whether the array is (z, y, x) of one record, instead of (time, z, y, x).
    """
    shape = series.grid.shape if single else (len(records), *series.grid.shape)

    with atomic_file(path) as part, part.open("wb") as file:
        header = {
            "descr": np.lib.format.dtype_to_descr(series.dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(file, header)
        for record in records:
            # Blocks come in storage order, and each is one piece of it.
            for box in blocks(series.grid.shape, series.dtype.itemsize):
                file.write(series.read(record, 0, box).tobytes())


def write_csv(series: Series, records: Sequence[int], path: Path) -> None:
    """Write every variable of a 1D series, a row per record and point.

    Args:
        series: where the values are.
        records: which of them, ascending.
        path: the file to write.

    Raises:
        ConfigError: the field is not 1D.
    """
    if series.grid.ndim > 1:
        msg = (
            f"{series.path} has {series.grid.ndim} axes, and a CSV file is for lines and probes: "
            "use .npy, .nc or .vtkhdf for fields, or export the folder of the probes"
        )
        raise ConfigError(msg)

    positions = series.grid.coordinates(0)
    with atomic_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            (
                *LEADING,
                f"{series.grid.axis_names[0]} [m]",
                *(f"{variable.name} [{variable.unit}]" for variable in series.variables),
            )
        )
        for record in records:
            for box in blocks(
                series.grid.shape, series.dtype.itemsize * len(series.variables), limit=1 << 20
            ):
                columns = [
                    series.read(record, k, box).astype(np.float64)
                    for k in range(len(series.variables))
                ]

                for place, *values in zip(positions[slice(*box[0])], *columns, strict=True):
                    numbers = (series.times[record], place, *values)
                    writer.writerow(
                        (series.steps[record], *(repr(float(number)) for number in numbers))
                    )


def write_probes(tables: Mapping[str, Path], path: Path) -> None:
    """Write the tables of several probes as one, with the probe's name in the first column.

    Args:
        tables: file of each probe by its name.
        path: the file to write.

    Raises:
        CheckpointError: a table is damaged.
    """
    with atomic_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        header: list[str] = []
        for name, table in tables.items():
            columns, rows = read_table(table)
            if not header:
                header = columns
                writer.writerow(("probe", *header))
            if columns != header:
                msg = (
                    f"{table} has the columns {', '.join(columns)}, and other probes have "
                    f"{', '.join(header)}"
                )
                raise ConfigError(msg)

            for step, *values in rows:
                writer.writerow((name, int(step), *(repr(value) for value in values)))
