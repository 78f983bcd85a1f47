"""A CSV file that grows by a row per record, and that a restarted run finds its way in again."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tetris_sim.errors import CheckpointError
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.schedule import StepSchedule
from tetris_sim.support.files import disk_errors, make_directory, open_given, sync_directory

LEADING = ("step", "time [s]")
_MOST_STEPS = 1 << 53


class Table:
    """Rows of step, time and values; numbers are written so that reading them gives the same bits.

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
        """Open the file, drop rows later than `step` and a torn last line; at step 0 every row.

        Raises:
            CheckpointError: the file has other columns.
        """
        make_directory(self._path.parent)
        new = step == 0 or not self._path.exists() or self._path.stat().st_size == 0
        with disk_errors(self._path):
            self._file = self._path.open("wb" if new else "rb+", buffering=0)
        if new:
            self._write(self._header)
            sync_directory(self._path.parent)
        else:
            self._keep(step)

    def append(self, step: int, time: float, values: Sequence[float]) -> None:
        """Add a row; rows of this step and of later ones, if there are any, are replaced."""
        if step <= self._last_step:
            self._keep(step - 1)
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
                while rest:  # a nearly full disk takes a part without an error
                    rest = rest[file.write(rest) :]
        except BaseException:
            self._cut(begin)
            raise

    def _keep(self, step: int) -> None:
        """Cut the file after the last whole row whose step is not later than `step`."""
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
    """An output that is a table: a row per snapshot that the schedule asks for.

    Args:
        table: where rows go.
        schedule: when.
        values: what a row says of a snapshot, besides step and time.
        reads_all: whether that is read from all of it.
    """

    def __init__(
        self,
        table: Table,
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
        """The schedule's next step."""
        return self._schedule.next_step(step)

    def start(self, step: int) -> None:
        """Open the table and forget rows later than `step`."""
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
        CheckpointError: the file is missing or no table of ours.
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
    """The step of a whole row; None for anything else."""
    words = line.rstrip(b"\r\n").split(b",")
    if not line.endswith(b"\n") or len(words) != n_columns:
        return None
    try:
        numbers = [float(word) for word in words[1:]]
        step = int(words[0])
    except ValueError:
        return None
    return step if 0 <= step < _MOST_STEPS and not math.isnan(numbers[0]) else None


def _line(words: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(words)
    return text.getvalue().encode()
