"""What do the HDF5 files of the fields look like, and how is one written?

Two kinds of file have the same structure: `fields/fields_<step>.h5` holds one time, `fields.h5` all
of them as virtual datasets; those of a part of the field are called fields-<name>. Variables and
their dimension scales lie side by side in the root group, because that is where readers of netCDF
files look for coordinates:

    /time (time) /step (time) /z (z) /y (y) /x (x)      coordinates
    /x_bounds (x, 2), ...           ends of the cells along graded axes
    /<variable>  (time, z, y, x)    values at the points, cell centres; float16 as float32
    /meta                           where the numbers come from
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem, Variable
from tetris_sim.outputs.blocks import blocks, chunk_shape, slices
from tetris_sim.outputs.field_slabs import Unfinished
from tetris_sim.outputs.parts import WHOLE, Part, whole
from tetris_sim.outputs.provenance import CREATOR, Provenance, write_meta
from tetris_sim.outputs.scales import add_positions, add_steps, add_times, auxiliary
from tetris_sim.support.files import atomic_hdf5, disk_errors, new_hdf5, unfinished_name
from tetris_sim.support.hdf5 import packed

FORMAT = "tetris_sim fields"
FORMAT_VERSION = 1
FOLDER = WHOLE
INDEX = f"{WHOLE}.h5"

Compression = Literal["none", "gzip", "lz4", "zstd"]
_RECORD = re.compile(r"fields_(\d{12,})\.h5")


@dataclass(frozen=True)
class Record:
    """One time of a part of the field.

    Attributes:
        step: number of time steps; of a time between two steps, the later one.
        time: simulated time [s].
        read: a box of the part -> its values, (n_fields, ...).
    """

    step: int
    time: float
    read: Callable[[Box], Field]


def record_name(step: int, folder: str = FOLDER) -> str:
    """Path of the file of one step, relative to the index beside its folder."""
    return f"{folder}/fields_{step:012d}.h5"


def recorded_steps(directory: Path, folder: str = FOLDER) -> list[int]:
    """Steps that have a file below the results directory, ascending."""
    matches = (_RECORD.fullmatch(path.name) for path in (directory / folder).glob("fields_*.h5"))
    return sorted(int(match[1]) for match in matches if match is not None)


def is_field_file(file: Any) -> bool:
    """Whether an open HDF5 file holds fields of ours."""
    return bool(file.attrs.get("format") == FORMAT)


def write_record(
    path: Path,
    record: Record,
    problem: Problem,
    part: Part,
    *,
    provenance: Provenance,
    compression: Compression = "none",
) -> Path:
    """Write the file of one step, block by block, and rename it into place."""
    with atomic_hdf5(path) as file:
        _write_frame(file, problem, part, {record.step: record.time}, provenance)
        _write_values(file, problem, part, record, compression)
    return path


def begin_record(
    path: Path, record: Record, problem: Problem, part: Part, provenance: Provenance
) -> Unfinished:
    """Write all of the file of one step but its values, under a temporary name beside `path`.

    Raises:
        UnsupportedError: the disk is full or does not let us write.
    """
    name = unfinished_name(path)
    with disk_errors(name), new_hdf5(name) as file:
        _write_frame(file, problem, part, {record.step: record.time}, provenance)
        datasets = _make_datasets(file, problem, part, "none")
        for dataset in datasets:
            # The first value brings about the memory of all, where it lies in any other file.
            dataset[(0,) * dataset.ndim] = 0
        offsets = tuple(dataset.id.get_offset() for dataset in datasets)
    shape, dtype = part.grid.shape, problem.arithmetic
    return Unfinished(record.step, record.time, path, name, shape, dtype, offsets)


def write_index(
    directory: Path,
    problem: Problem,
    records: Mapping[int, float],
    provenance: Provenance,
    part: Part | None = None,
) -> Path:
    """Write `fields.h5`: the files of all steps seen as one, by relative names.

    Args:
        directory: where they lie.
        problem: what they are about.
        records: time [s] of each by its step, ascending.
        provenance: what they say about the run.
        part: of the field; all of it if not given.
    """
    import h5py

    part = part or whole(problem)
    path, shape = directory / f"{part.folder}.h5", part.grid.shape
    with atomic_hdf5(path) as file:
        _write_frame(file, problem, part, records, provenance)

        for variable in problem.variables:
            layout = h5py.VirtualLayout(shape=(len(records), *shape), dtype=problem.arithmetic)
            for i, step in enumerate(records):
                layout[i : i + 1] = h5py.VirtualSource(
                    record_name(step, part.folder), variable.name, shape=(1, *shape)
                )
            # A file that somebody deleted reads as NaN.
            _describe(
                file,
                file.create_virtual_dataset(variable.name, layout, fillvalue=np.nan),
                variable,
                part.grid,
            )
    return path


def _write_frame(
    file: Any,
    problem: Problem,
    part: Part,
    records: Mapping[int, float],
    provenance: Provenance,
) -> None:
    """Everything but the variables."""
    file.attrs["format"] = FORMAT
    file.attrs["format_version"] = FORMAT_VERSION
    file.attrs["creator"] = CREATOR
    file.attrs["folder"] = part.folder

    meta = write_meta(file, provenance)
    meta.attrs["dt"] = problem.dt
    meta.attrs["dt_limit"] = problem.dt_limit
    meta.attrs["steps"] = problem.steps
    meta.attrs["variables"] = json.dumps([variable.name for variable in problem.variables])

    time = add_times(file, list(records.values()))
    add_steps(file, list(records), time)
    add_positions(file, part.grid)


def _write_values(
    file: Any, problem: Problem, part: Part, record: Record, compression: Compression
) -> None:
    datasets = _make_datasets(file, problem, part, compression)
    shape, itemsize = part.grid.shape, problem.arithmetic.itemsize
    chunk = None if datasets[0].chunks is None else datasets[0].chunks[1:]
    for box in blocks(shape, itemsize * problem.n_fields, multiple=chunk):
        values = record.read(box)
        for dataset, field in zip(datasets, values, strict=True):
            dataset[(0, *slices(box))] = field


def _make_datasets(file: Any, problem: Problem, part: Part, compression: Compression) -> list[Any]:
    """A dataset for each variable, without values."""
    shape = part.grid.shape
    options: dict[str, Any] = {}
    if compression != "none":
        options = packed(compression, (1, *chunk_shape(shape, problem.arithmetic.itemsize)))

    datasets = [
        file.create_dataset(variable.name, shape=(1, *shape), dtype=problem.arithmetic, **options)
        for variable in problem.variables
    ]
    for dataset, variable in zip(datasets, problem.variables, strict=True):
        _describe(file, dataset, variable, part.grid)
    return datasets


def _describe(file: Any, dataset: Any, variable: Variable, grid: Grid) -> None:
    dataset.attrs["units"] = variable.unit
    dataset.attrs["long_name"] = variable.long_name
    dataset.attrs["coordinates"] = auxiliary(grid)
    for axis, name in enumerate(("time", *grid.axis_names)):
        dataset.dims[axis].attach_scale(file[name])
