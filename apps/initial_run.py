"""What did another run leave as its state? A time of its fields, or its newest checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial_file import Box, Reader, check_array
from tetris_sim.config.sections.conditions import RunInitial
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.support.hdf5 import DAMAGED, refuse_outside
from tetris_sim.support.wording import first_line

_CLOSE = 1e-9  # times that differ by less, relative to the larger one, are the same
_KEY = "initial.from"
# Files of fields and checkpoints below a results directory, and where a variable lies in them.
_PLACES = (("fields/fields_*.h5", ""), ("checkpoints/checkpoint_*.h5", "fields/"))


@dataclass(frozen=True)
class _Record:
    """A state in a file.

    Attributes:
        step: it is of.
        time: likewise [s].
        path: the file.
        dataset: its name in the file.
    """

    step: int
    time: float
    path: Path
    dataset: str


def open_run(section: RunInitial, grid: Grid, variable: str = "temperature") -> Reader:
    """A function that reads any box of the grid.

    Args:
        section: which run, and when.
        grid: of the new run; it has as many points.
        variable: which field.

    Raises:
        ConfigError: there is no such run or time, or its grid has another shape.
    """
    directory = Path(section.directory)
    if not directory.is_dir():
        msg = f"{_KEY}: there is no folder {directory}; a results directory of a run is wanted"
        raise ConfigError(msg)
    records = sorted(_records(directory, variable), key=lambda it: it.step)
    if not records:
        msg = (
            f"{_KEY}: {directory} holds neither fields nor a checkpoint with {variable}; let the "
            "run write output.fields, or checkpoint.at_end"
        )
        raise ConfigError(msg)

    record = records[-1] if section.at == "last" else _at(section.at, records, directory)
    import h5py

    with _reading(record.path), h5py.File(record.path, "r") as file:
        shape, dtype = tuple(file[record.dataset].shape), file[record.dataset].dtype
    leading = max(len(shape) - grid.ndim, 0) if record.dataset == variable else 0
    check_array(record.path, shape[leading:], dtype, grid, _KEY)

    def read(box: Box) -> npt.NDArray[Any]:
        part = tuple(slice(*span) for span in box)
        # Not kept open: workers read when they like.
        with _reading(record.path), h5py.File(record.path, "r") as file:
            return np.asarray(file[record.dataset][(0,) * leading + part])

    return read


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        msg = f"{_KEY}: {path} cannot be read as HDF5 ({first_line(error)})"
        raise ConfigError(msg) from error


def _at(time: float, records: list[_Record], directory: Path) -> _Record:
    nearest = min(records, key=lambda it: abs(it.time - time))
    if abs(nearest.time - time) > _CLOSE * max(abs(time), nearest.time):
        msg = (
            f"initial.at: {directory} has nothing of t = {time:g} s; the nearest is of "
            f"{nearest.time!r} s, and the times are from {records[0].time:g} s to "
            f"{records[-1].time:g} s"
        )
        raise ConfigError(msg)
    return nearest


def _records(directory: Path, variable: str) -> Iterator[_Record]:
    """Every state of a run; files that cannot be read are left out, as a run that goes on does."""
    import h5py

    for pattern, group in _PLACES:
        for path in directory.glob(pattern):
            try:
                refuse_outside(path)
                with h5py.File(path, "r", locking="best-effort") as file:
                    if not isinstance(file.get(group + variable), h5py.Dataset):
                        continue
                    if group:
                        state = file["meta"].attrs
                        step, time = int(state["step"]), float(state["time"])
                    else:
                        step, time = int(file["step"][0]), float(file["time"][0])
            except DAMAGED:
                continue
            yield _Record(step, time, path, group + variable)
