"""CSV tables over time: probes and statistics, one row per record, continued after a restart."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import CheckpointError, ConfigError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.audit import AUDITED, Audit
from tetris_sim.outputs.heat_flows import has_heat, heat_column
from tetris_sim.outputs.materials import BodyMaterials, Warmth
from tetris_sim.outputs.meter import Meter
from tetris_sim.outputs.output import Snapshot, StepSchedule
from tetris_sim.outputs.regions import blocks, exact_sum, neighbours_of, read_along
from tetris_sim.support.files import disk_errors, make_directory, open_given, sync_directory

LEADING = ("step", "time [s]")
_MOST_STEPS = 1 << 53


class CsvTable:
    """A table of step, time and values; numbers are written so that reading gives the same bits.

    Args:
        path: the file.
        columns: names of the columns after step and time.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._header = _line((*LEADING, *columns))
        self._n_columns = len(LEADING) + len(columns)
        self._file: io.FileIO | None = None
        self._last_step = -1

    def start(self, step: int) -> None:
        """Open the file and drop rows later than `step` and a torn last line; at step 0 every row.

        Raises:
            CheckpointError: the file has other columns.
        """
        make_directory(self._path.parent)
        new = step == 0 or not self._path.exists() or self._path.stat().st_size == 0
        with disk_errors(self._path):
            # Unbuffered: each row is in the file as soon as it is written.
            self._file = self._path.open("wb" if new else "rb+", buffering=0)
        if new:
            self._write(self._header)
            sync_directory(self._path.parent)
        else:
            self._keep(step)

    def append(self, step: int, time: float, values: Sequence[float]) -> None:
        """Add a row; existing rows of this step and of later ones are replaced."""
        if step <= self._last_step:
            self._keep(step - 1)
        # repr() of a float is the shortest text that reads back as the same bits.
        self._write(_line((str(step), *(repr(float(value)) for value in (time, *values)))))
        self._last_step = step

    def sync(self) -> None:
        """Make every row survive a power cut."""
        if self._file is not None:
            with disk_errors(self._path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def _write(self, line: bytes) -> None:
        file = self._open_file()
        begin, rest = file.tell(), memoryview(line)
        try:
            with disk_errors(self._path):
                while rest:  # a nearly full disk accepts a part without an error
                    rest = rest[file.write(rest) :]
        except BaseException:
            # Never leave half a row behind: a later reader would take it for damage.
            self._cut(begin)
            raise

    def _keep(self, step: int) -> None:
        """Cut the file after the last complete row whose step is not later than `step`."""
        with self._path.open("rb") as reader:
            if reader.readline() != self._header:
                msg = (
                    f"{self._path} has other columns than this run would write "
                    f"({self._header.decode().strip()}); choose another output.directory, or start "
                    "anew with --overwrite"
                )
                raise CheckpointError(msg)

            end, self._last_step = len(self._header), -1
            for line in reader:
                # Steps ascend; the first row that does not parse or ascend ends what can be
                # trusted.
                recorded = _step_of(line, self._n_columns)
                if recorded is None or not self._last_step < recorded <= step:
                    break
                end, self._last_step = end + len(line), recorded
        self._cut(end)

    def _cut(self, end: int) -> None:
        file = self._open_file()
        file.truncate(end)
        file.seek(end)

    def _open_file(self) -> io.FileIO:
        if self._file is None:
            msg = f"{self._path} is not open: start() comes first"
            raise RuntimeError(msg)
        return self._file


class TableOutput:
    """An output that is a table: a row for each snapshot that the schedule asks for.

    Args:
        table: the table.
        schedule: when to add a row.
        values: the values of a row besides step and time, from a snapshot.
        reads_all: whether `values` reads all of the state.
    """

    def __init__(
        self,
        table: CsvTable,
        schedule: StepSchedule,
        values: Callable[[Snapshot], Sequence[float]],
        *,
        reads_all: bool,
    ) -> None:
        self.reads_all = reads_all
        self._table = table
        self._schedule = schedule
        self._values = values

    def next_step(self, step: int) -> int | None:
        """The next step of the schedule."""
        return self._schedule.next_step(step)

    def start(self, step: int) -> None:
        """Open the table and drop rows later than `step`."""
        self._table.start(step)

    def write(self, snapshot: Snapshot) -> None:
        """Add a row."""
        self._table.append(snapshot.step, snapshot.time, self._values(snapshot))

    def flush(self) -> None:
        """Make the rows survive a crash."""
        self._table.sync()

    def close(self) -> None:
        """Close the table."""
        self._table.close()


def read_table(path: Path) -> tuple[list[str], list[list[float]]]:
    """Column names and rows of a table; a torn last line is left out.

    Raises:
        CheckpointError: the file is missing, or not a table of tetris_sim.
    """
    try:
        with open_given(path) as file:
            header = next(csv.reader([file.readline().decode()]), [])
            if tuple(header[: len(LEADING)]) != LEADING:
                msg = (
                    f"{path} is no table written by tetris_sim: its first columns are not "
                    f"{', '.join(LEADING)}"
                )
                raise CheckpointError(msg)
            lines = [line for line in file if _step_of(line, len(header)) is not None]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        msg = f"{path} cannot be read: {error}"
        raise CheckpointError(msg) from error

    return header, [[float(word) for word in line.split(b",")] for line in lines]


def _step_of(line: bytes, n_columns: int) -> int | None:
    """The step of a complete row; None for anything else."""
    words = line.rstrip(b"\r\n").split(b",")
    if not line.endswith(b"\n") or len(words) != n_columns:
        return None
    try:
        numbers = [float(word) for word in words[1:]]
        step = int(words[0])
    except ValueError:
        return None
    # Up to 2**53 a step is exact as a float, which is what rows are read as.
    return step if 0 <= step < _MOST_STEPS and not math.isnan(numbers[0]) else None


def _line(words: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(words)
    return text.getvalue().encode()


# Probes: values at a position over time.

FOLDER = "probes"


class ProbeOutput(TableOutput):
    """Writer of `probes/<name>.csv`: every variable over time, linear between the points around.

    Args:
        problem: the problem.
        directory: the results directory.
        name: name of the file.
        position: position of the probe [m], array order.
        schedule: when to add a row.
        points: along each axis around it: 2 for linear, 4 for cubic.

    Raises:
        ConfigError: a cubic one in a body, whose materials it would look across.
    """

    def __init__(
        self,
        problem: Problem,
        directory: Path,
        name: str,
        *,
        position: Sequence[float],
        schedule: StepSchedule,
        points: int = 2,
    ) -> None:
        # Between materials a field has kinks, through which no polynomial goes.
        if points > 2 and problem.conduction:
            msg = f"output.probes: {name} is cubic, and in a body probes are linear; leave it out"
            raise ConfigError(msg)
        self._axes = [
            neighbours_of(problem, axis, position[axis], points=points)
            for axis in range(problem.grid.ndim)
        ]
        columns = [f"{variable.name} [{variable.unit}]" for variable in problem.variables]
        table = CsvTable(directory / FOLDER / f"{name}.csv", columns)
        super().__init__(table, schedule, self._at_the_place, reads_all=False)

    def _at_the_place(self, snapshot: Snapshot) -> list[float]:
        """Every variable at the probe; only the points around it are read."""
        return [float(value) for value in read_along(snapshot, self._axes)]


# Statistics: minimum, maximum, mean and total of every variable, and heat flows, over time.

FILE = "statistics.csv"


@dataclass
class Tally:
    """Running statistics of one variable, block by block."""

    low: float = math.inf
    high: float = -math.inf
    counts: list[float] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)

    def add(self, block: Field, shares: Numbers | None = None) -> None:
        """Add the points of a block, (n0, ...), with what they count by, their volumes per mean
        volume, if these differ from point to point.
        """
        self.counts.append(block.size if shares is None else exact_sum(shares))
        self.low = float(np.minimum(self.low, block.min()))  # unlike min(), passes NaN on
        self.high = float(np.maximum(self.high, block.max()))
        # Exact up to one rounding in any order: blocks are the same for any partition.
        self.sums.append(exact_sum(block if shares is None else block * shares))

    @property
    def sum(self) -> float:
        """Sum over all points, by their volumes."""
        return math.fsum(self.sums)

    @property
    def mean(self) -> float:
        """Mean over all points, by their volumes; 0 of none."""
        return self.sum / (math.fsum(self.counts) or 1)


def tally(snapshot: Snapshot) -> list[Tally]:
    """Statistics of the whole state in one pass, block by block; one tally per variable. Fluids
    and voids are left out.

    The blocks, and hence every bit of the result, depend on the grid alone.
    """
    problem = snapshot.problem
    tallies = [Tally() for _ in problem.variables]
    conduction, cell = problem.conduction, problem.grid.cell_volume
    holding = BodyMaterials(problem) if conduction and conduction.enthalpy else None
    for box in blocks(problem.grid.shape, problem.dtype.itemsize * problem.n_fields):
        state = snapshot.box(box)

        shares = None if problem.grid.is_even else problem.grid.volumes(box) / cell
        # Heat contents are of what cells hold.
        if holding:
            shares = np.broadcast_to(holding.capacity(box, holding.ids(box)) / cell, state[0].shape)
        if conduction:
            held = conduction.held(box)
            if held.all():
                continue
            if held.any():
                state, shares = state[:, ~held], None if shares is None else shares[~held]
        for one, values in zip(tallies, state, strict=True):
            one.add(values, shares)
    return tallies


@dataclass(frozen=True, eq=False)
class Selection:
    """A part of the points, which has statistics of its own.

    Attributes:
        problem: whose points.
        name: begins the names of its columns.
        box: around it, global indices.
        marks: which points of a box belong to it in a problem; None for all.
        held: whether those count that are held at a temperature, and no others.
    """

    problem: Problem
    name: str
    box: Box
    marks: Callable[[Problem, Box], npt.NDArray[np.bool_]] | None = None
    held: bool = False

    @property
    def columns(self) -> list[str]:
        """Names with units: minimum, maximum and mean of each variable, and the total of the
        first one.
        """
        problem, found = self.problem, list[str]()
        for variable in problem.variables:
            its = f"{self.name} {variable.name}" if problem.n_fields > 1 else self.name
            found += [f"{its} {what} [{variable.unit}]" for what in ("min", "max", "mean")]
        # Of a body the total is heat, with the unit that the audit uses.
        total = problem.variables[0].total
        name, unit = heat_column(problem) if has_heat(problem) else (total.name, total.unit)
        return [*found, f"{self.name} {name} [{unit}]"]

    def inside(self, box: Box, problem: Problem | None = None) -> npt.NDArray[np.bool_]:
        """Mask of its points in a box, of another phase of its problem if that is given; voids
        belong to none.
        """
        problem = problem or self.problem
        marked = np.ones([high - low for low, high in box], np.bool_)
        if self.marks is not None:
            marked &= self.marks(problem, box)
        if problem.conduction:
            held = problem.conduction.held(box)
            marked &= held if self.held else ~held
        void = problem.voids(box)
        return marked if void is None else marked & ~void

    def values(self, snapshot: Snapshot) -> list[float]:
        """The values of its columns; NaN for the heat of what is held."""
        problem = snapshot.problem
        body = BodyMaterials(problem) if problem.conduction else None
        warmth = [Warmth() for _ in problem.variables]
        density = problem.variables[0].total.density * problem.grid.cell_volume

        # Blocks of the grid, so that sums are the same for any partition.
        for box in blocks_within(problem, self.box):
            at = self.inside(box, problem)
            if not at.any():
                continue

            # One number for all points, or of each with coefficients per cell.
            volume = np.array(problem.grid.cell_volume) if body is None else body.volume(box)
            capacity = np.array(density) if body is None else body.capacity(box, body.ids(box))
            if body is None and not problem.grid.is_even:
                volume = problem.grid.volumes(box)
                capacity = problem.variables[0].total.density * volume
            weights = [it[at] if it.ndim else it for it in (capacity, volume)]
            state = snapshot.hidden(box)[0].astype(np.float64)[at]
            for one, seen in zip(warmth, snapshot.box(box), strict=True):
                one.add(seen.astype(np.float64)[at], state, *weights)

        found = list[float]()
        for one in warmth:
            # Weighted by volume: cells of graded axes differ.
            whole = math.fsum(one.volume)
            mean = math.fsum(one.integral) / whole if whole else math.nan
            found += [one.low, one.high, mean] if whole else [math.nan] * 3
        return [*found, math.nan if self.held else math.fsum(warmth[0].heat)]


def blocks_within(problem: Problem, box: Box) -> Iterator[Box]:
    """The blocks of a box, in storage order."""
    shape = [high - low for low, high in box]
    for block in blocks(shape, problem.dtype.itemsize * problem.n_fields):
        yield tuple(
            (low + start, high + start) for (low, high), (start, _) in zip(block, box, strict=True)
        )


Measured = Callable[[Snapshot], Sequence[float]]


def _nothing(_: Snapshot) -> Sequence[float]:
    return ()


class StatisticsOutput(TableOutput):
    """Writer of `statistics.csv`: statistics of each variable, and the audit of a body with heat.

    Args:
        problem: the problem.
        directory: the results directory.
        schedule: when to add a row.
        implicit: whether steps are implicit.
        meter: what counts heat from record to record.
        over: parts with statistics of their own.
        measured: columns of formulas, and their values at a state.

    Raises:
        ConfigError: a part or a formula would have the columns of another one.
    """

    def __init__(
        self,
        problem: Problem,
        directory: Path,
        schedule: StepSchedule,
        *,
        implicit: bool = False,
        meter: Meter | None = None,
        over: Sequence[Selection] = (),
        measured: tuple[Sequence[str], Measured] = ((), _nothing),
    ) -> None:
        self._path = directory / FILE
        self._audit = None
        if has_heat(problem):
            self._audit = Audit(problem, implicit=implicit, meter=meter)

        columns: list[str] = []
        for k, variable in enumerate(problem.variables):
            columns += [
                f"{variable.name} {what} [{variable.unit}]" for what in ("min", "max", "mean")
            ]
            prefix = f"{variable.name} " if problem.n_fields > 1 else ""
            name, unit = variable.total.name, variable.total.unit
            # Of a body the first total is heat, with the unit that the audit uses.
            if k == 0 and self._audit is not None:
                name, unit = heat_column(problem)
            columns.append(f"{prefix}{name} [{unit}]")

        if self._audit is not None:
            columns += self._audit.columns

        # Last, so that the columns before them are those of a run without parts.
        self._over = tuple(over)
        for part in over:
            if taken := [it for it in part.columns if it in columns]:
                msg = (
                    f"output.statistics.over.{part.name} would have the column {taken[0]}, which "
                    "there is already; give it another name"
                )
                raise ConfigError(msg)
            columns += part.columns
        # Behind all others, which are the same without formulas.
        names, self._measured = measured
        if known := [it for it in names if it in columns]:
            msg = (
                f"output.statistics.formulas would have the column {known[0]}, which there is "
                "already; give it another name"
            )
            raise ConfigError(msg)
        columns += names
        super().__init__(CsvTable(self._path, columns), schedule, self._summary, reads_all=True)

    def start(self, step: int) -> None:
        """Open the table, drop rows later than `step`, and continue from those before."""
        super().start(step)
        if self._audit is not None:
            # The balance is a running sum: the table itself is its memory across restarts.
            self._audit.go_on(*read_table(self._path))

    def end_phase(self, snapshot: Snapshot) -> None:
        """Take the last state of a phase into account, before cells come or go."""
        if self._audit is not None:
            self._of_whole(snapshot)

    def _summary(self, snapshot: Snapshot) -> Sequence[float]:
        parts = [value for part in self._over for value in part.values(snapshot)]
        return [*self._of_whole(snapshot), *parts, *self._measured(snapshot)]

    def _of_whole(self, snapshot: Snapshot) -> Sequence[float]:
        audit, problem = self._audit, snapshot.problem
        if audit is not None and problem.conduction is not None:
            # The audit has statistics of the first variable without held points; take the others
            # here.
            whole, rest = audit.look_at_body(snapshot)
            others = self._tallied(snapshot)[len(whole) :] if problem.n_fields > 1 else []
            return [*whole, *others, *rest]

        values = self._tallied(snapshot)
        return values if audit is None else [*values, *audit.look_at_faces(snapshot, values[-1])]

    def _tallied(self, snapshot: Snapshot) -> list[float]:
        problem, values = snapshot.problem, []
        for variable, one in zip(problem.variables, tally(snapshot), strict=True):
            # density * cell volume turns the sum over points into the total, for example heat [J].
            factor = variable.total.density * problem.grid.cell_volume
            values += [one.low, one.high, one.mean, factor * one.sum]
        return values


def read_audit(directory: Path, step: int, over: Collection[str] = ()) -> dict[str, float]:
    """Heat flows, the balance and what was asked of parts at a step, by column; empty if the last
    record is not of that step.
    """
    if not (directory / FILE).exists():
        return {}
    header, rows = read_table(directory / FILE)
    if not rows or rows[-1][0] != step:
        return {}
    values = dict(zip(header, rows[-1], strict=True))
    of_parts = tuple(f"{name} " for name in over)
    return {name: value for name, value in values.items() if name.startswith((*AUDITED, *of_parts))}
