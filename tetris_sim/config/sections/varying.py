"""Varying numbers: a number, a formula in position and time, or a table over time or temperature.

A section stores them as written, in SI units: a number, the text of a formula, or a `TimeTable`.
Table files are read when the problem is built.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, GetCoreSchemaHandler
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
from tetris_sim.model.formula import UNKNOWN_NAME, ExpressionError, Operators, compile_expression
from tetris_sim.model.grid import PLACES
from tetris_sim.support.files import read_given, table_lines
from tetris_sim.support.wording import describe, listed, suggestion

Rows = npt.NDArray[np.float64]

# Of complex numbers in equations: a literal such as 2j, and functions. They become real ones in
# `apps/pde/complex.py`.
COMPLEX_FUNCTIONS: Operators = dict.fromkeys(("1j", "real", "imag", "conj", "arg"), (1, 1))
# "ambient [degC]": the unit of a column is the bracketed end of its name.
_UNIT = re.compile(r"\[([^\]]*)\]\s*$")  # at the end of the name of a column
_INTERVAL = Quantity("an interval", "s", ("3.33 us", "10 ms"), "positive")
_PERIOD = Quantity("a period", "s", ("24 h", "1 week"), "positive")
# Limits against files that are no tables: 64 bytes per row is ample for two numbers.
_MOST_ROWS = 1_000_000
_MOST_BYTES = 64 * _MOST_ROWS


class TimeTable(Section):
    """Values over time, linear between rows and constant before the first and after the last. Two
    rows of one time are a jump: the second of them holds from then on.
    """

    table: str | tuple[tuple[float, float], ...]
    """A CSV file of two columns, time [s] and value, whose first line may name them with their
    units: `time [h], ambient [degC]`; or a list of [time, value]. Times must ascend. Instead,
    `file`: a CSV file of any number of columns.
    """
    hold: bool = False
    """Whether each value holds until the time of the next one, as stairs."""
    column: str | None = None
    """Of a file: the name of the column of values, without its unit."""
    time: str | None = None
    """Of a file, with `column`: the name of the column of times; `time` if not given."""
    unit: str | None = None
    """Of a file: the unit of the values, where the name of the column has none."""
    interval: float | None = None
    """Of a file without times, as power traces are: how long each row holds, the first from 0 on
    [s]. Its columns are separated by blanks or commas, and its first line names them.
    """
    period: float | None = None
    """Time after which the table begins again, `24 h` or `1 week` [s]; its times are within it."""


Given = float | str | TimeTable
SURFACE = "T"  # of a face or a heated point, in formulas of what it takes up: temperature [degC]
OF_SURFACE = ("x", "y", "z", "t", SURFACE)


@dataclass(frozen=True)
class Varying:
    """The kind of a number that may vary; inside `Annotated` it reads and checks values.

    Attributes:
        quantity: kind and unit of the number.
        names: variables that a formula may use.
        more: whether equations know other names besides, which only they can check.
    """

    quantity: Quantity
    names: tuple[str, ...] = ("x", "y", "z", "t")
    more: bool = False

    @property
    def known(self) -> tuple[str, ...]:
        """The variables, with those of other axes than x, y and z: which a grid has is checked with
        the grid.
        """
        return tuple(dict.fromkeys((*self.names, *(PLACES if "x" in self.names else ()))))

    @property
    def wanted(self) -> str:
        """The allowed values, for messages."""
        return f"{self.quantity.wanted}, an expression of {listed(self.names, 'and')}, or a table"

    def read(self, value: object) -> Given:
        """The value in SI units, or as a formula or table.

        Raises:
            ValueError: a sentence saying what was found and what is wanted.
        """
        if isinstance(value, TimeTable):
            return value
        if isinstance(value, Mapping) and not value.keys().isdisjoint({"table", "file"}):
            return self._table(dict(value))
        # Text in the form of a quantity is read as one, so that a wrong unit is reported as such
        # and not as a syntax error of a formula.
        if not isinstance(value, str) or looks_like_quantity(value):
            return self.quantity.read(value)

        # Compiled only to report mistakes now; the problem compiles it again when it is built.
        told = self.mistake(value)
        if told is not None and not (self.more and UNKNOWN_NAME in told):
            raise ValueError(told)
        return value

    def mistake(self, text: str) -> str | None:
        """Return the mistake in a formula as a sentence; None if there is none."""
        try:
            compile_expression(text, self.known, COMPLEX_FUNCTIONS if self.more else {})
        except ExpressionError as error:
            return f"{describe(text)} was found; {self.wanted} is wanted ({error})"
        return None

    def _table(self, given: dict[str, Any]) -> TimeTable:
        table, *more = (given.pop(name) for name in ("file", "table") if name in given)
        hold = read_hold(given)
        names = {name: given.pop(name, None) for name in ("column", "time", "unit")}
        period = _PERIOD.read(given.pop("period")) if "period" in given else None
        interval = _INTERVAL.read(given.pop("interval")) if "interval" in given else None
        if given or more:
            found = describe(next(iter(given), "table and file"))
            msg = (
                f"{found} was found in a table; table or file is wanted, hold, period, and of a "
                "file column, time, unit and interval"
            )
            raise ValueError(msg)

        wrong = [name for name, it in names.items() if not isinstance(it, str | None)]
        if wrong or (names["time"] and not names["column"]):
            msg = (
                f"{wrong[0] if wrong else 'time'} of a table is the name of a column, beside column"
            )
            raise ValueError(msg)
        if interval is not None and names["time"]:
            msg = "interval is for a file without times, and time names their column"
            raise ValueError(msg)
        if isinstance(table, str):
            hold = hold or interval is not None
            return TimeTable(table=table, hold=hold, interval=interval, period=period, **names)
        if interval is not None or any(names.values()):
            msg = "column, time, unit and interval are for files, and rows were found"
            raise ValueError(msg)
        rows = _read_rows(table, TIME, self.quantity, "time")
        ascending([time for time, _ in rows])
        _within(rows, period)
        return TimeTable(table=tuple(rows), hold=hold, period=period)

    def rows(self, table: TimeTable) -> Rows:
        """The rows of a table: time [s] and value, (n_rows, 2).

        Raises:
            ValueError: the file cannot be read, or its rows are not a table.
        """
        if isinstance(table.table, str) and table.interval is not None:
            values = self._traced(Path(table.table), table.column, table.unit)
            rows = np.column_stack([table.interval * np.arange(len(values)), values])
        elif isinstance(table.table, str):
            names = table.time or "time", table.column
            rows = read_file(Path(table.table), (TIME, self.quantity), names, table.unit)
        else:
            rows = np.array(table.table, np.float64)
        _within(rows.tolist(), table.period)

        if table.period is not None:
            # Before its first row and after its last one, those of the periods beside count.
            apart = np.array([table.period, 0.0])
            beside = [rows[-1:] - apart] if rows[0, 0] > 0 else []
            rows = np.concatenate([*beside, rows, rows[:1] + apart])
        return stairs(rows) if table.hold else rows

    def _traced(self, path: Path, column: str | None, unit: str | None) -> Rows:
        """A column of a file without times, in SI units, (n_rows,)."""
        names, rows = read_trace(path)
        if column is None and len(names) > 1:
            msg = f"{path} has the columns {listed(names, 'and')}; say with column which one"
            raise ValueError(msg)
        if column is not None and column not in names:
            msg = f"{path}: no column is named {describe(column)}; there are {listed(names, 'and')}"
            raise ValueError(msg)
        return self.in_unit(rows[:, names.index(column) if column else 0], unit)

    def in_unit(self, values: Rows, unit: str | None) -> Rows:
        """Numbers of a unit, that of SI if None, in SI units."""
        # Units are linear, so two numbers say all about one.
        zero, one = self.quantity.read_column(["0", "1"], unit or "")
        return np.asarray(zero + (one - zero) * values)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: (
                    value.model_dump(mode="json", exclude_defaults=True)
                    if isinstance(value, TimeTable)
                    else value
                )
            ),
        )


class TemperatureTable(Section):
    """A property that depends on temperature, linear between rows and constant before the first and
    after the last.
    """

    table: tuple[tuple[float, float], ...]
    """A list of [temperature, value]; temperatures must ascend. Two rows of one temperature are a
    jump, as between solid and liquid. Or a CSV file of two columns, temperature [degC] and value,
    whose first line may name them with their units: `temperature [K], conductivity [W/(m K)]`; or
    instead, `file`: a CSV file of any number of columns, with `column`, the name of that of values,
    `temperature`, that of temperatures (`temperature` if not given), and `unit`, where the name of
    the column has none.
    """
    hold: bool = False
    """Whether each value holds up to the temperature of the next one, as stairs."""

    @property
    def rows(self) -> tuple[tuple[float, float], ...]:
        """The rows with jumps, those of stairs included."""
        rows = stairs(np.array(self.table, np.float64)) if self.hold else self.table
        return tuple((float(temperature), float(value)) for temperature, value in rows)

    def at(self, temperatures: Rows) -> Rows:
        """Return the values at temperatures; at a jump the second row counts."""
        t, values = np.array(self.rows).T
        after = np.searchsorted(t, temperatures, "right")
        low, high = np.maximum(after - 1, 0), np.minimum(after, len(t) - 1)
        width = np.where(high > low, t[high] - t[low], 1.0)
        share = np.where(high > low, (temperatures - t[low]) / width, 0.0)
        return np.asarray(values[low] + share * (values[high] - values[low]))


@dataclass(frozen=True)
class ByTemperature:
    """Marker inside `Annotated` that additionally allows a table over temperature.

    Attributes:
        quantity: kind and unit of the table's values.
    """

    quantity: Quantity

    def read(self, value: object, others: Callable[[object], Any]) -> Any:
        """The table in SI units, or `others(value)` if the value is no table.

        Raises:
            ValueError: the table is malformed; the sentence says what was found and what is wanted.
        """
        if isinstance(value, TemperatureTable):
            return value
        # Not a table: pydantic's own validator of the annotated type decides.
        if not (isinstance(value, Mapping) and not value.keys().isdisjoint({"table", "file"})):
            return others(value)
        given = dict(value)
        table, *more = (given.pop(name) for name in ("file", "table") if name in given)
        hold = read_hold(given)
        names = {name: given.pop(name, None) for name in ("column", "temperature", "unit")}
        if given or more or not all(isinstance(it, str | None) for it in names.values()):
            msg = (
                f"{describe(value)} was found; a table stands alone or beside hold, a file beside "
                "column, temperature and unit, which are names"
            )
            raise ValueError(msg)

        if isinstance(table, str):
            columns = names["temperature"] or "temperature", names["column"]
            kinds = TEMPERATURE, self.quantity
            found = read_file(Path(table), kinds, columns, names["unit"])
            rows = [(float(temperature), float(number)) for temperature, number in found]
        elif any(names.values()):
            msg = "column, temperature and unit are for the columns of a file, and rows were found"
            raise ValueError(msg)
        else:
            rows = _read_rows(table, TEMPERATURE, self.quantity, "temperature")
            ascending([temperature for temperature, _ in rows], "temperatures", "degC")
        return TemperatureTable(table=tuple(rows), hold=hold)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        # "wrap": unlike a plain validator it can hand values on to the annotated type.
        return core_schema.no_info_wrap_validator_function(
            self.read,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: (
                    value.model_dump(
                        mode="json", exclude_defaults=isinstance(value, TemperatureTable)
                    )
                    if isinstance(value, Section)
                    else value
                )
            ),
        )


def read_hold(given: dict[str, Any]) -> bool:
    """Take `hold` out of a table; `ValueError` if it is neither true nor false."""
    hold = given.pop("hold", False)
    hold = {"true": True, "false": False}.get(hold, hold) if isinstance(hold, str) else hold
    if not isinstance(hold, bool):
        msg = f"hold: {describe(hold)} was found; true or false is wanted"
        raise ValueError(msg)
    return hold


def _within(rows: Sequence[Sequence[float]], period: float | None) -> None:
    """Raise `ValueError` for a time of a table that its period does not reach."""
    for number, (time, _) in enumerate(rows if period is not None else (), 1):
        if not 0 <= time <= (period or 0.0):
            msg = f"row {number} of the table is at {time:g} s, outside the period of {period:g} s"
            raise ValueError(msg)


def stairs(rows: Rows) -> Rows:
    """Rows whose values hold until the next row: each of the later ones begins with a jump.

    >>> stairs(np.array([[0.0, 1.0], [2.0, 5.0]])).tolist()
    [[0.0, 1.0], [2.0, 1.0], [2.0, 5.0]]
    """
    jumps = np.column_stack([rows[1:, 0], rows[:-1, 1]])
    found = np.empty((2 * len(rows) - 1, 2))
    found[::2], found[1::2] = rows, jumps
    return found


def read_file(
    path: Path, kinds: tuple[Quantity, Quantity], names: tuple[str, str | None], unit: str | None
) -> Rows:
    """The rows of a table in a CSV file, in SI units, (n_rows, 2), not to be written to.

    Args:
        path: the file.
        kinds: of both columns.
        names: of both columns, without their units; without the second one, there are two columns.
        unit: of the values, where the name of their column has none.

    Raises:
        ValueError: the file cannot be read, or its rows are not a table.
    """
    try:
        seen = path.stat()
    except (OSError, ValueError) as error:  # the latter: a path with a zero byte
        raise _unreadable(path, kinds, error) from error
    # Every face and every check asks for the table; a file that changes is read again.
    stamp = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    return _kept_rows(path, kinds, names, unit, stamp)


@functools.lru_cache(maxsize=8)
def _kept_rows(
    path: Path,
    kinds: tuple[Quantity, Quantity],
    names: tuple[str, str | None],
    unit: str | None,
    stamp: object,
) -> Rows:
    rows = _read_columns(path, kinds, names, unit)
    rows.flags.writeable = False
    return rows


def read_trace(path: Path) -> tuple[list[str], Rows]:
    """The columns of a file without times, as power traces (.ptrace) are: their names, and their
    numbers (n_rows, n_columns), not to be written to.

    Raises:
        ValueError: the file cannot be read, or a row is none.
    """
    try:
        seen = path.stat()
        return _kept_trace(path, (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read ({error}); a file of names and rows of numbers is wanted"
        raise ValueError(msg) from error


@functools.lru_cache(maxsize=4)
def _kept_trace(path: Path, stamp: object) -> tuple[list[str], Rows]:
    # Line numbers are those of the file, whatever is left out.
    lines = read_given(path, _MOST_BYTES).decode("utf-8-sig").splitlines()
    numbered = [(k, it.replace(",", " ").split()) for k, it in enumerate(lines, 1)]
    numbered = [(k, words) for k, words in numbered if words and not words[0].startswith("#")]
    if len(numbered) < 2:
        msg = f"{path} has no rows; a line of names and rows of numbers are wanted"
        raise ValueError(msg)

    names = numbered[0][1]
    twice = next((it for it in names if names.count(it) > 1), None)
    if twice is not None or all(map(_is_number, names)):
        told = "numbers" if twice is None else f"{twice} twice"
        msg = f"{path}, line {numbered[0][0]}: {told}; the first line names the columns"
        raise ValueError(msg)
    rows = np.empty((len(numbered) - 1, len(names)))
    for row, (line, words) in zip(rows, numbered[1:], strict=True):
        if len(words) != len(names) or not all(map(_is_number, words)):
            told = f"{len(words)} words, of which {sum(map(_is_number, words))} are numbers"
            msg = f"{path}, line {line}: {told}; a number for each of {len(names)} names is wanted"
            raise ValueError(msg)
        row[:] = [float(it) for it in words]
    if not np.isfinite(rows).all():
        at = numbered[1 + int(np.argwhere(~np.isfinite(rows))[0, 0])][0]
        msg = f"{path}, line {at}: a number is not finite"
        raise ValueError(msg)
    rows.flags.writeable = False
    return names, rows


def _firsts(kinds: tuple[Quantity, Quantity]) -> str:
    return "times" if kinds[0] is TIME else "temperatures"


def _unreadable(path: Path, kinds: tuple[Quantity, Quantity], error: Exception) -> ValueError:
    # The error of the system would repeat the path.
    reason = error.strerror if isinstance(error, OSError) else error
    with contextlib.suppress(OSError, ValueError):
        reason = f"{reason}{suggestion(path.name, [it.name for it in path.parent.iterdir()])}"
    return ValueError(
        f"{path} cannot be read ({reason}); a CSV file of {_firsts(kinds)} and values is wanted"
    )


def _read_columns(
    path: Path, kinds: tuple[Quantity, Quantity], names: tuple[str, str | None], unit: str | None
) -> Rows:
    try:
        lines = table_lines(read_given(path, _MOST_BYTES))
    except (OSError, ValueError, csv.Error) as error:
        raise _unreadable(path, kinds, error) from error

    # A first line that does not begin with a number names the columns and their units.
    headings = lines.pop(0) if lines and not _is_number(lines[0][0]) else ["", ""]
    units = [match[1] if (match := _UNIT.search(name.strip())) else "" for name in headings]
    taken = _columns(path, headings, names)
    if unit is not None:
        if units[taken[1]] not in ("", unit):
            msg = f"{path}: the values are in {units[taken[1]]}, and unit says {unit}"
            raise ValueError(msg)
        units[taken[1]] = unit

    wrong = next((k for k, line in enumerate(lines) if len(line) != len(units)), None)
    if wrong is not None:
        many = "two" if len(units) == 2 else str(len(units))
        msg = (
            f"{path}, row {wrong + 1}: {describe(lines[wrong])} was found; {many} columns are "
            "wanted"
        )
        raise ValueError(msg)
    if not 0 < len(lines) <= _MOST_ROWS:
        msg = f"{path} has {len(lines)} rows; 1 to {_MOST_ROWS} are wanted"
        raise ValueError(msg)

    # The unit of a column's name belongs to each of its numbers.
    rows = np.empty((len(lines), 2))
    for column, (place, kind) in enumerate(zip(taken, kinds, strict=True)):
        try:
            rows[:, column] = kind.read_column([line[place] for line in lines], units[place])
        except ValueError as error:
            msg = f"{path}, row {error}"
            raise ValueError(msg) from None
    try:
        ascending(rows[:, 0], _firsts(kinds), "s" if kinds[0] is TIME else "degC")
    except ValueError as error:
        msg = f"{path}: {error}"
        raise ValueError(msg) from None
    return rows


def _columns(path: Path, headings: list[str], names: tuple[str, str | None]) -> tuple[int, int]:
    """The columns of some names in a file; `ValueError` if one is not there."""
    if names[1] is None:
        return 0, 1

    plain = [_UNIT.sub("", name.strip()).strip() for name in headings]
    found = []
    for wanted in names:
        whole = [name.strip() for name in headings]  # with its unit, as it stands in the file
        if wanted not in plain and whole.count(str(wanted)) == 1:
            found.append(whole.index(str(wanted)))
            continue
        if not any(plain):
            msg = f"{path}: its first line names no columns, and column is {describe(names[1])}"
            raise ValueError(msg)
        if plain.count(str(wanted)) != 1:
            many = "several columns are" if wanted in plain else "no column is"
            msg = f"{path}: {many} named {describe(wanted)}; there are {listed(plain, 'and')}"
            raise ValueError(msg)
        found.append(plain.index(str(wanted)))
    return found[0], found[1]


def _read_rows(
    table: object, first: Quantity, second: Quantity, name: str
) -> list[tuple[float, float]]:
    if not isinstance(table, list | tuple) or not table:
        msg = f"{describe(table)} was found; a file or a list of [{name}, value] is wanted"
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
    """Raise `ValueError` unless the entries [`unit`] ascend; two may be equal, for a jump."""
    values = np.asarray(times, np.float64)
    # NaN compares false and so counts as not ascending.
    above = values[1:] >= values[:-1]
    above[1:] &= values[2:] > values[:-2]
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


# Types of keys. Formulas see position and time; where only ("t",) is named, time alone.
def _share(given: Given) -> Given:
    if isinstance(given, float) and not 0 <= given <= 1:
        msg = f"{given:g} was found; a share of 0 to 1 is wanted"
        raise ValueError(msg)
    return given


VaryingTemperature = Annotated[float | str | TimeTable, Varying(TEMPERATURE)]
FaceTemperature = Annotated[float | str | TimeTable, Varying(TEMPERATURE, more=True)]
FaceFlux = Annotated[float | str | TimeTable, Varying(HEAT_FLUX, OF_SURFACE, more=True)]
FaceCoefficient = Annotated[
    float | str | TimeTable, Varying(HEAT_TRANSFER_COEFFICIENT, OF_SURFACE, more=True)
]
FaceNumber = Annotated[float | str | TimeTable, Varying(NUMBER, more=True)]
FaceEmissivity = Annotated[
    float | str | TimeTable, Varying(NUMBER, OF_SURFACE, more=True), AfterValidator(_share)
]
VaryingFlux = Annotated[float | str | TimeTable, Varying(HEAT_FLUX)]
VaryingCoefficient = Annotated[float | str | TimeTable, Varying(HEAT_TRANSFER_COEFFICIENT)]
VaryingDensity = Annotated[float | str | TimeTable, Varying(POWER_DENSITY, OF_SURFACE)]
VaryingPower = Annotated[float | str | TimeTable, Varying(POWER, ("t",))]
VaryingFactor = Annotated[float | str | TimeTable, Varying(NUMBER, ("t",))]
VaryingSetpoint = Annotated[float | str | TimeTable, Varying(TEMPERATURE, ("t",))]
VaryingLength = Annotated[float | str | TimeTable, Varying(LENGTH, ("t",))]


class PathSection(Section):
    """Path of a beam or a tool: numbers or expressions of t; the middle of the box along an axis
    that is not given.
    """

    x: VaryingLength | None = None
    y: VaryingLength | None = None
    z: VaryingLength | None = None
