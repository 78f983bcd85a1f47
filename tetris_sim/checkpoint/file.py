"""One checkpoint file: the whole field bit for bit and the run state, sealed, read back box by box.

    /fields/<variable>  (n0[, n1[, n2]])  the interior points in global order, whoever computed them
    /fields/z y x       their positions, attached as dimension scales
    /meta               the run state
    seal                behind the end of HDF5, see seal.py

The datasets of fields are virtual where the values lie in files of their own, see parts.py.

There are no halos and no trace of the partition, so that any number and kind of devices can go on
from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tetris_sim.checkpoint.parts import (
    Part,
    check_parts,
    compare_parts,
    virtual_dataset,
    write_list,
)
from tetris_sim.checkpoint.seal import FORMAT_VERSION, append_seal, check_content, read_seal
from tetris_sim.checkpoint.state import RunState, read_state, write_state
from tetris_sim.errors import CheckpointError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import PRECISIONS, Field, Problem, Total, Variable
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.blocks import blocks, slices
from tetris_sim.outputs.scales import add_positions, read_grid
from tetris_sim.support.files import atomic_file, new_hdf5
from tetris_sim.support.hdf5 import refuse_outside
from tetris_sim.support.wording import first_line
from tetris_sim.version import __version__

FORMAT = "tetris_sim checkpoint"
_BLOCK = 1 << 26  # bytes of the state in memory at one time while it is written
# What h5py raises for contents it did not expect.
_READING = (
    OSError,
    KeyError,
    ValueError,
    TypeError,
    RuntimeError,
    AttributeError,
    IndexError,
    MemoryError,
)


class Checkpoint:
    """An open checkpoint; made by `open_checkpoint`.

    Attributes:
        path: the file.
        state: the run state.
        good: whether the field is finite everywhere; False for a crash dump.
        grid: the points.
        variables: what the fields are.
        dtype: of the values.
    """

    def __init__(self, path: Path, file: Any, *, good: bool) -> None:
        self.path = path
        self.good = good
        self._file = file

        meta, fields = file["meta"], file["fields"]
        self.state: RunState = read_state(meta)
        self.grid = read_grid(fields)
        self._datasets = [fields[name] for name in json.loads(meta.attrs["variables"])]
        self.variables = tuple(_read_variable(dataset) for dataset in self._datasets)
        self.dtype = np.dtype(self._datasets[0].dtype)

        for dataset in self._datasets:
            if (
                dataset.shape != self.grid.shape
                or dataset.dtype != self.dtype
                or self.dtype.name not in PRECISIONS
            ):
                msg = (
                    f"{dataset.name} is {dataset.shape} of {dataset.dtype} on a grid of "
                    f"{self.grid.shape}"
                )
                raise ValueError(msg)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole field, (n_fields, n0, ...)."""
        return (len(self.variables), *self.grid.shape)

    def read(self, box: Box) -> Field:
        """The points inside `box`, (n_fields, ...); only these are read."""
        values = np.empty(
            (len(self._datasets), *(high - low for low, high in box)), dtype=self.dtype
        )
        with _reading(self.path):
            for field, dataset in zip(values, self._datasets, strict=True):
                dataset.read_direct(field, slices(box))
        return values

    def initial(self, slab: Slab) -> Field:
        """The owned points of a slab: what `Problem.initial` is when a run goes on."""
        return self.read(tuple(zip(slab.start, slab.stop, strict=True)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_checkpoint(path: Path, *, verify: bool = True) -> Checkpoint:
    """Open a checkpoint or a crash dump.

    Args:
        path: the file.
        verify: whether to compare every byte with its digest first. Without it only the end of the
            file is looked at, and damage elsewhere may go unseen.

    Raises:
        CheckpointError: the file is missing, damaged, of another kind or of a later format.
    """
    import h5py

    path = Path(path)
    seal = read_seal(path)
    if verify:
        check_content(path, seal)
        compare_parts(path)

    with _reading(path):
        refuse_outside(path)
        file = h5py.File(path, "r", locking="best-effort")
        try:
            check_parts(path, file["meta"])
            return Checkpoint(path, file, good=seal.good)
        except BaseException:
            file.close()
            raise


def write_file(
    path: Path,
    state: RunState,
    problem: Problem,
    read: Callable[[Box], Field],
    *,
    good: bool,
    parts: Sequence[Part] = (),
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Write one checkpoint file, block by block, and rename it into place.

    Args:
        path: its name.
        state: the run state.
        problem: whose field it is.
        read: the points inside a box, (n_fields, ...), in the problem's dtype.
        good: whether the field is finite everywhere.
        parts: where the values lie, if they are not to be written into this file.
        ready: called before the file gets its name; returns once it may.

    Raises:
        UnsupportedError: the disk is full or does not let us write.
    """
    with atomic_file(path) as part:
        with new_hdf5(part) as file:
            file.attrs["format"] = FORMAT
            file.attrs["format_version"] = FORMAT_VERSION
            file.attrs["creator"] = f"tetris_sim {__version__}"
            file.attrs["good"] = np.bool_(good)
            meta = file.create_group("meta")
            write_state(meta, state)
            meta.attrs["variables"] = json.dumps([variable.name for variable in problem.variables])
            if parts:
                write_list(meta, parts)
            _write_fields(file.create_group("fields"), problem, read, parts)
        append_seal(part, step=state.step, good=good)
        ready()


def _write_fields(
    fields: Any, problem: Problem, read: Callable[[Box], Field], parts: Sequence[Part]
) -> None:
    grid, dtype = problem.grid, np.dtype(problem.dtype)
    scales = add_positions(fields, grid)
    datasets = []
    for variable in problem.variables:
        if parts:
            dataset = virtual_dataset(fields, variable, problem, parts)
        else:
            # Contiguous: a box is read in as few pieces as possible, and a block is written in one.
            dataset = fields.create_dataset(
                variable.name, shape=grid.shape, dtype=dtype, fill_time="never"
            )
        dataset.attrs.update({"units": variable.unit, "long_name": variable.long_name})
        total = variable.total
        dataset.attrs.update(
            {"total_name": total.name, "total_unit": total.unit, "total_density": total.density}
        )
        for axis, scale in enumerate(scales):
            dataset.dims[axis].attach_scale(scale)
        datasets.append(dataset)
    if parts:
        return

    for box in blocks(grid.shape, dtype.itemsize * problem.n_fields, limit=_BLOCK):
        values = read(box)
        if values.dtype != dtype:
            msg = f"a checkpoint of a {dtype} problem was given values of {values.dtype}"
            raise TypeError(msg)
        for dataset, field in zip(datasets, values, strict=True):
            dataset[slices(box)] = field


def _read_variable(dataset: Any) -> Variable:
    said = dataset.attrs
    total = Total(str(said["total_name"]), str(said["total_unit"]), float(said["total_density"]))
    return Variable(
        dataset.name.rpartition("/")[2], str(said["units"]), str(said["long_name"]), total
    )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _READING as error:
        msg = (
            f"{path} cannot be read ({first_line(error)}): it is damaged. Continue from another "
            "checkpoint of the run."
        )
        raise CheckpointError(msg) from error
