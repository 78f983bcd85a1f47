"""The whole field over time: an HDF5 file per output time, an index, and XDMF for ParaView."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tetris_sim.errors import CheckpointError
from tetris_sim.files import atomic_text, disk_errors, make_directory, remove_parts, sync_directory
from tetris_sim.outputs.field_file import (
    FOLDER,
    INDEX,
    Compression,
    record_name,
    recorded_steps,
    write_index,
    write_record,
)
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.provenance import Provenance
from tetris_sim.outputs.schedule import StepSchedule
from tetris_sim.outputs.series import open_fields
from tetris_sim.outputs.xdmf import Frame, Source, xdmf_text
from tetris_sim.problem import Problem

XDMF = "fields.xdmf"
# Up to so many records the index is written with each, then ever less often: linear cost in all.
_OFTEN = 100


class FieldsOutput:
    """Writes fields; see `docs/file-format.md`.

    Args:
        problem: what is simulated.
        directory: the results directory.
        schedule: when.
        provenance: what the files say about the run.
        compression: of the values.
    """

    def __init__(
        self,
        problem: Problem,
        directory: Path,
        schedule: StepSchedule,
        *,
        provenance: Provenance,
        compression: Compression = "none",
    ) -> None:
        self._problem = problem
        self._directory = directory
        self._schedule = schedule
        self._provenance = provenance
        self._compression: Compression = compression
        self._times: dict[int, float] = {}  # of each record, by its step
        self._index_is_old = False
        self._n_indexed = 0

    def next_step(self, step: int) -> int | None:
        """The schedule's next step."""
        return self._schedule.next_step(step)

    def start(self, step: int) -> None:
        """Remove the files of later steps and what a killed run left unfinished.

        Raises:
            CheckpointError: the files that stay belong to another grid.
        """
        folder = self._directory / FOLDER
        make_directory(folder)
        remove_parts(folder)
        remove_parts(self._directory, "fields.")

        recorded = recorded_steps(self._directory)
        # A run that starts at step 0 writes it again, so nothing of an earlier run can stay.
        kept = [earlier for earlier in recorded if 0 < step >= earlier]
        with disk_errors(folder):
            for late in recorded[len(kept) :]:
                (self._directory / record_name(late)).unlink()
            sync_directory(folder)

        self._times = {}
        if kept:
            self._refuse_other_grid(self._directory / record_name(kept[-1]))
            self._times = self._read_times(kept)
            self._write_index()
        else:
            self._index_is_old, self._n_indexed = False, 0
            (self._directory / INDEX).unlink(missing_ok=True)
            (self._directory / XDMF).unlink(missing_ok=True)

    def write(self, snapshot: Snapshot) -> None:
        """Write the file of the snapshot's step."""
        write_record(
            self._directory, snapshot, provenance=self._provenance, compression=self._compression
        )
        self._times = dict(sorted({**self._times, snapshot.step: snapshot.time}.items()))
        self._index_is_old = True
        if len(self._times) - self._n_indexed > len(self._times) // _OFTEN:
            self._write_index()

    def flush(self) -> None:
        """Bring the index up to date; the files themselves were flushed when they were written."""
        if self._index_is_old:
            self._write_index()

    def close(self) -> None:
        """Bring the index up to date."""
        self.flush()

    def _write_index(self) -> None:
        problem = self._problem
        write_index(self._directory, problem, self._times, self._provenance)
        shape = (1, *problem.grid.shape)
        frames = [
            Frame(
                time,
                {v.name: Source(record_name(step), v.name, shape) for v in problem.variables},
            )
            for step, time in self._times.items()
        ]
        atomic_text(self._directory / XDMF, xdmf_text(problem.grid, problem.arithmetic, frames))
        self._index_is_old, self._n_indexed = False, len(self._times)

    def _read_times(self, steps: Sequence[int]) -> dict[int, float]:
        """When the records of some steps are [s]: of the index, or of the file of a step."""
        known: dict[int, float] = {}
        with contextlib.suppress(CheckpointError), open_fields(self._directory / INDEX) as series:
            known = dict(zip(series.steps, series.times, strict=True))

        times = {}
        for step in steps:
            if step in known:
                times[step] = known[step]
                continue
            with open_fields(self._directory / record_name(step)) as series:
                times[step] = series.times[0]
        return times

    def _refuse_other_grid(self, path: Path) -> None:
        problem = self._problem
        names = [variable.name for variable in problem.variables]
        with open_fields(path) as series:
            grid, dtype = series.grid, series.dtype
            there = [variable.name for variable in series.variables]
        if (grid, dtype, there) != (problem.grid, problem.arithmetic, names):
            msg = (
                f"{path} holds {', '.join(there)} on {grid.shape} points as {dtype}, but "
                f"this run has {', '.join(names)} on {problem.grid.shape} points as "
                f"{problem.arithmetic}, on the same box; choose another output.directory, or start "
                "anew with --overwrite"
            )
            raise CheckpointError(msg)
