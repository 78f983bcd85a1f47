"""Varying numbers: what a configuration gives as a number, a formula of place and time, or a table
over time.

A section holds them as they were written, in SI units: a number, the text of a formula, or a
`TimeTable`; files of tables are read when the problem is built.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tetris_sim.config.sections.quantities import (
    HEAT_FLUX,
    HEAT_TRANSFER_COEFFICIENT,
    LENGTH,
    NUMBER,
    POWER,
    POWER_DENSITY,
    TEMPERATURE,
    TIME,
    Quantity,
    Section,
    looks_like_quantity,
)
from tetris_sim.model.formula import ExpressionError, compile_expression
from tetris_sim.support.files import read_given
from tetris_sim.support.wording import describe, listed

Rows = npt.NDArray[np.float64]

_UNIT = re.compile(r"\[([^\]]*)\]\s*$")  # at the end of the name of a column
_MOST_ROWS = 1_000_000
_MOST_BYTES = 64 * _MOST_ROWS


class TimeTable(Section):
    """Values over time, straight lines between them, the first and the last beyond their ends."""

    table: str | tuple[tuple[float, float], ...]
    """A CSV file of two columns, time [s] and value, whose first line may name them with their
    units: `time [h], ambient [degC]`; or a list of [time, value]. Times ascend.
    """


Given = float | str | TimeTable


@dataclass(frozen=True)
class Varying:
    """What kind of number may vary; within an `Annotated` it reads and checks it.

    Attributes:
        quantity: its kind and unit.
        names: of the variables that a formula may have.
    """

    quantity: Quantity
    names: tuple[str, ...] = ("x", "y", "z", "t")

    @property
    def wanted(self) -> str:
        """What is allowed, for messages."""
        return f"{self.quantity.wanted}, an expression of {listed(self.names, 'and')}, or a table"

    def read(self, value: object) -> Given:
        """What the value says, in SI units.

        Raises:
            ValueError: with a sentence saying what was found and what is wanted.
        """
        if isinstance(value, TimeTable):
            return value
        if isinstance(value, Mapping) and set(value) == {"table"}:
            return self._table(value["table"])
        if not isinstance(value, str) or looks_like_quantity(value):
            return self.quantity.read(value)

        try:
            compile_expression(value, self.names)
        except ExpressionError as error:
            msg = f"{describe(value)} was found; {self.wanted} is wanted ({error})"
            raise ValueError(msg) from None
        return value

    def _table(self, table: object) -> TimeTable:
        if isinstance(table, str):
            return TimeTable(table=table)
        rows = _read_rows(table, TIME, self.quantity, "time")
        ascending([time for time, _ in rows])
        return TimeTable(table=tuple(rows))

    def rows(self, table: TimeTable) -> Rows:
        """The rows of a table, (n_rows, 2): time [s] and value.

        Raises:
            ValueError: the file cannot be read, or its rows are no table.
        """
        if not isinstance(table.table, str):
            return np.array(table.table, np.float64)
        return self._read_file(Path(table.table))

    def _read_file(self, path: Path) -> Rows:
        try:
            text = read_given(path, _MOST_BYTES).decode("utf-8-sig")
            table = csv.reader(io.StringIO(text, newline=""))
            lines = [line for line in table if any(part.strip() for part in line)]
        except (OSError, ValueError, csv.Error) as error:
            msg = f"{path} cannot be read ({error}); a CSV file of times and values is wanted"
            raise ValueError(msg) from error

        names = lines.pop(0) if lines and not _is_number(lines[0][0]) else ["", ""]
        units = [match[1] if (match := _UNIT.search(name.strip())) else "" for name in names]
        rows = np.empty((len(lines), 2))
        for number, line in enumerate(lines):
            if len(line) != 2 or len(units) != 2:
                msg = (
                    f"{path}, row {number + 1}: {describe(line)} was found; two columns are wanted"
                )
                raise ValueError(msg)
            for column, kind in enumerate((TIME, self.quantity)):
                try:
                    rows[number, column] = kind.read(
                        f"{line[column].strip()} {units[column]}".strip()
                    )
                except ValueError as error:
                    msg = f"{path}, row {number + 1}: {error}"
                    raise ValueError(msg) from None

        if not 0 < len(rows) <= _MOST_ROWS:
            msg = f"{path} has {len(rows)} rows; 1 to {_MOST_ROWS} are wanted"
            raise ValueError(msg)
        try:
            ascending(rows[:, 0])
        except ValueError as error:
            msg = f"{path}: {error}"
            raise ValueError(msg) from None
        return rows

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: (
                    value.model_dump(mode="json") if isinstance(value, TimeTable) else value
                )
            ),
        )


class TemperatureTable(Section):
    """A property that depends on temperature: straight lines between rows, the first and the last
    value beyond their ends.
    """

    table: tuple[tuple[float, float], ...]
    """A list of [temperature, value]; temperatures ascend."""


@dataclass(frozen=True)
class ByTemperature:
    """Within an `Annotated` it allows a table over temperature besides.

    Attributes:
        quantity: what the table is of.
    """

    quantity: Quantity

    def read(self, value: object, others: Callable[[object], Any]) -> Any:
        """The table in SI units, or what the other types make of the value.

        Raises:
            ValueError: it is no table, with a sentence saying what was found and what is wanted.
        """
        if isinstance(value, TemperatureTable):
            return value
        if not (isinstance(value, Mapping) and "table" in value):
            return others(value)
        if set(value) != {"table"}:
            msg = f"{describe(value)} was found; a table stands alone"
            raise ValueError(msg)

        rows = _read_rows(value["table"], TEMPERATURE, self.quantity, "temperature")
        ascending([temperature for temperature, _ in rows], "temperatures", "degC")
        return TemperatureTable(table=tuple(rows))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            self.read,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value.model_dump(mode="json") if isinstance(value, Section) else value
            ),
        )


def _read_rows(
    table: object, first: Quantity, second: Quantity, name: str
) -> list[tuple[float, float]]:
    if not isinstance(table, list | tuple) or not table:
        file = "a file or " if first is TIME else ""
        msg = f"{describe(table)} was found; {file}a list of [{name}, value] is wanted"
        raise ValueError(msg)

    rows = []
    for number, row in enumerate(table, 1):
        if not isinstance(row, list | tuple) or len(row) != 2:
            msg = f"row {number} of the table is {describe(row)}; [{name}, value] is wanted"
            raise ValueError(msg)
        try:
            rows.append((first.read(row[0]), second.read(row[1])))
        except ValueError as error:
            msg = f"row {number} of the table: {error}"
            raise ValueError(msg) from None
    return rows


def ascending(times: Any, names: str = "times", unit: str = "s") -> None:
    """Raise where a time, or something else of a unit, is not above the one before it."""
    values = np.asarray(times, np.float64)
    above = values[1:] > values[:-1]
    if not above.all():
        row = int(np.argmin(above))
        msg = (
            f"the {names} of a table ascend, but {times[row]:g} {unit} of row {row + 1} is "
            f"followed by {times[row + 1]:g} {unit}"
        )
        raise ValueError(msg)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


VaryingTemperature = Annotated[float | str | TimeTable, Varying(TEMPERATURE)]
VaryingFlux = Annotated[float | str | TimeTable, Varying(HEAT_FLUX)]
VaryingCoefficient = Annotated[float | str | TimeTable, Varying(HEAT_TRANSFER_COEFFICIENT)]
VaryingDensity = Annotated[float | str | TimeTable, Varying(POWER_DENSITY)]
VaryingPower = Annotated[float | str | TimeTable, Varying(POWER, ("t",))]
VaryingFactor = Annotated[float | str | TimeTable, Varying(NUMBER, ("t",))]
VaryingLength = Annotated[float | str | TimeTable, Varying(LENGTH, ("t",))]
