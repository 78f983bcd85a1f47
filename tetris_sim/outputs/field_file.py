"""HDF5 files of fields: their structure, their metadata, and how one is written.

Two kinds of file have the same structure: `fields/fields_<step>.h5` holds one time, `fields.h5` all
of them as virtual datasets; those of a part of the field are called fields-<name>. Variables and
their dimension scales lie side by side in the root group, because that is where readers of netCDF
files look for coordinates:

    /time (time) /step (time) /z (z) /y (y) /x (x)      coordinates
    /x_bounds (x, 2), ...           ends of the cells along graded axes
    /<variable>  (time, z, y, x)    values at the points, cell centres; float16 as float32
    /material /region (z, y, x)     in the index of a body: what each cell is of
    /meta                           where the numbers come from
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.config.sections.schema import Request
from tetris_sim.config.yaml import write_yaml
from tetris_sim.model.grid import CARTESIAN, Coordinates, Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem, StateVariable
from tetris_sim.outputs.materials import CellMap, cell_maps
from tetris_sim.outputs.regions import WHOLE, OutputRegion, blocks, chunk_shape, slices, whole
from tetris_sim.support.files import (
    atomic_hdf5,
    disk_errors,
    new_hdf5,
    put_in_place,
    send_to_disk,
    unfinished_name,
    write_at,
)
from tetris_sim.support.hdf5 import packed
from tetris_sim.version import __version__

# Dimension scales: the datasets of an HDF5 file with the positions and times of its values.

_SYSTEM = "coordinate_system"  # attribute of a group whose axes are not x, y and z
_BOUNDS = "_bounds"
_BOUND = "bound"  # the axis along which the two ends of a cell lie
# The name that NetCDF-4 writes for a scale that is a dimension without a variable.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:9d}"


def add_positions(group: Any, grid: Grid, *, spacing: bool = True) -> list[Any]:
    """Add a scale per axis of the grid, named x, y or z: positions of the points [m], array order.

    A graded axis additionally gets the ends of its cells, by the CF conventions (1.12, section 7.1,
    "Cell Boundaries").

    Args:
        group: the group to add to.
        grid: the points.
        spacing: whether to store the spacing, which a single point does not show.
    """
    scales = []
    for axis, name in enumerate(grid.axis_names):
        scale = group.create_dataset(name, data=grid.coordinates(axis))
        scale.make_scale(name)
        scale.attrs.update(
            {
                "units": grid.system.unit(name),
                "long_name": f"position along {name}",
                "axis": name.upper(),
            }
        )
        if spacing:
            scale.attrs["spacing"] = np.float64(grid.spacing[axis])
        scales.append(scale)
        if grid.edges and (ends := grid.edges[axis]) is not None:
            _add_bounds(group, scale, name, ends)

    for name, position in grid.cut:  # a number, not an axis
        scalar = group.create_dataset(name, data=np.float64(position))
        unit = grid.system.unit(name)
        scalar.attrs.update({"units": unit, "long_name": f"position along {name}"})
    # With straight axes, files are what they always were.
    if grid.system.is_curved:
        group.attrs[_SYSTEM] = grid.system.kind
        group.attrs[f"{_SYSTEM}_axes"] = " ".join(grid.system.axes)
    return scales


def _add_bounds(group: Any, scale: Any, name: str, ends: Sequence[float]) -> None:
    """Add the ends of each cell along a graded axis [m], (n, 2)."""
    # One dimension of length 2 serves the bounds of all axes.
    if _BOUND not in group:
        both = group.create_dataset(_BOUND, data=np.zeros(2, np.float32))
        both.make_scale(_NO_VARIABLE.format(2))
    bounds = group.create_dataset(
        f"{name}{_BOUNDS}", data=np.stack([ends[:-1], ends[1:]], axis=1, dtype=np.float64)
    )
    bounds.attrs.update(
        {"units": scale.attrs["units"], "long_name": f"ends of the cells along {name}"}
    )
    for axis, along in enumerate((scale, group[_BOUND])):
        bounds.dims[axis].attach_scale(along)
    scale.attrs["bounds"] = f"{name}{_BOUNDS}"


def read_grid(group: Any) -> Grid:
    """The grid whose positions lie in a group, as `add_positions` wrote them with their spacing."""
    # A scalar position marks an axis that was cut away.
    system = CARTESIAN
    if (kind := group.attrs.get(_SYSTEM)) is not None:
        system = Coordinates(kind, tuple(group.attrs[f"{_SYSTEM}_axes"].split()))
    present = [name for name in reversed(system.axes) if name in group]
    names = [name for name in present if group[name].shape]

    # Bounds (n, 2) back to n + 1 cell faces.
    cells = [
        group[f"{name}{_BOUNDS}"][()] if f"{name}{_BOUNDS}" in group else None for name in names
    ]
    edges = tuple(
        None if both is None else (*both[:, 0].tolist(), float(both[-1, 1])) for both in cells
    )

    return Grid(
        shape=tuple(len(group[name]) for name in names),
        spacing=tuple(float(group[name].attrs["spacing"]) for name in names),
        origin=tuple(float(group[name][0]) for name in names),
        cut=tuple((name, float(group[name][()])) for name in present if name not in names),
        edges=edges if any(edges) else (),
        system=system,
    )


def auxiliary(grid: Grid, maps: Sequence[CellMap] = ()) -> str:
    """The attribute `coordinates` of a variable: its coordinates besides its axes."""
    return " ".join(("step", *(name for name, _ in grid.cut), *(it.name for it in maps)))


def add_map(group: Any, it: CellMap, shape: tuple[int, ...], **options: Any) -> Any:
    """Add the numbers of a map of cells as a dataset, block by block."""
    dataset = group.create_dataset(it.name, shape=shape, dtype=it.dtype, **options)
    dataset.attrs.update(it.attributes)
    for box in blocks(shape, 8, multiple=dataset.chunks):
        dataset[slices(box)] = it.read(box)
    return dataset


def add_times(group: Any, times: Sequence[float]) -> Any:
    """Add the scale `time` [s]."""
    scale = group.create_dataset("time", data=np.array(times, dtype=np.float64))
    scale.make_scale("time")
    scale.attrs.update({"units": "s", "long_name": "simulated time", "axis": "T"})
    return scale


def add_steps(group: Any, steps: Sequence[int], time: Any) -> None:
    """Add the dataset `step` along the scale `time`."""
    numbers = group.create_dataset("step", data=np.array(steps, dtype=np.int64))
    numbers.attrs.update({"units": "1", "long_name": "number of time steps"})
    numbers.dims[0].attach_scale(time)


# Metadata about the run that wrote a file, enough to reproduce its numbers years later.

CREATOR = f"tetris_sim {__version__}"
CONVENTIONS = "CF-1.12"  # of names, units, bounds and flags: cfconventions.org


@dataclass(frozen=True)
class Provenance:
    """Origin of the numbers in a file.

    Attributes:
        config: the resolved configuration as YAML; loading it again gives the same run.
        title: the configuration's title; may be empty.
        run_id: identifier of the run; empty if it has none.
        versions: versions of the packages that determine numbers and files.
    """

    config: str
    title: str
    run_id: str
    versions: dict[str, str]


def make_provenance(request: Request, run_id: str = "") -> Provenance:
    """The provenance that this run's files carry."""
    return Provenance(
        config=write_yaml(request.resolved()),
        title=request.title,
        run_id=run_id,
        versions={
            "tetris_sim": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "numba", "h5py")},
        },
    )


def write_meta(file: Any, provenance: Provenance) -> Any:
    """Write the group `/meta` of an HDF5 file; returns it for further entries."""
    meta = file.create_group("meta")
    # A dataset, as HDF5 limits attributes to 64 KiB.
    meta.create_dataset("config", data=provenance.config)
    meta.attrs["title"] = provenance.title
    meta.attrs["run_id"] = provenance.run_id
    meta.attrs["versions"] = json.dumps(provenance.versions)
    return meta


# Slabs of a file of fields, written by several ranks at the same time.
#
# One process makes the file without its values, under a temporary name, and reports the offsets of
# the values; each rank writes the points of its slab there, bypassing the HDF5 library. When all
# have reported that theirs are on the disk, the first process renames the file
# (docs/decisions/0045-fields-where-they-are.md).


@dataclass(frozen=True)
class Unfinished:
    """A file that still lacks its values.

    Attributes:
        step: step of the record.
        time: time of the record [s].
        path: final name of the file.
        part: its name until then.
        shape: points per axis.
        dtype: type of the values.
        offsets: offset in the file of the first value of each variable [bytes].
    """

    step: int
    time: float
    path: Path
    part: Path
    shape: tuple[int, ...]
    dtype: np.dtype[np.floating]
    offsets: tuple[int, ...]

    def is_here(self) -> bool:
        """Whether this process sees the file and may write to it."""
        # Opening tells what no path can: another computer may not see this file system.
        try:
            os.close(os.open(self.part, os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def write(self, box: Box, read: Callable[[Box], Field]) -> None:
        """Write the values in a box.

        Args:
            box: global indices.
            read: function from a part of the box to its values, (n_variables, ...).

        Raises:
            UnsupportedError: the disk is full or refuses the file.
        """
        extent = tuple(high - low for low, high in box)
        bytes_of_point = self.dtype.itemsize * len(self.offsets)
        with disk_errors(self.part), self._opened() as descriptor:
            # Block by block, so that the slab need not be in memory twice.
            for inside in blocks(extent, bytes_of_point):
                piece = tuple(
                    (low + a, low + b) for (low, _), (a, b) in zip(box, inside, strict=True)
                )
                values = read(piece)
                for offset, field in zip(self.offsets, values, strict=True):
                    packed = np.ascontiguousarray(field, dtype=self.dtype)
                    self._write_runs(descriptor, packed, piece, offset)
            # Only then may the rank report its slab as written.
            os.fsync(descriptor)

    def put_in_place(self) -> None:
        """Rename the file once all values are on the disk.

        Raises:
            UnsupportedError: the disk refuses.
        """
        with disk_errors(self.part):
            put_in_place(self.part, self.path)

    def drop(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self.part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self.part, os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _write_runs(self, descriptor: int, values: Field, box: Box, offset: int) -> None:
        # Ranks write disjoint runs of the same file, so no lock is needed.
        firsts, length = runs(self.shape, box)
        places = offset + firsts * self.dtype.itemsize
        for place, run in zip(places.tolist(), values.reshape(-1, length), strict=True):
            write_at(descriptor, run, place)
        # Start the transfer to the disk now, over the whole range that the runs span.
        begin, end = int(places[0]), int(places[-1]) + length * self.dtype.itemsize
        send_to_disk(descriptor, begin, end - begin)


def runs(shape: tuple[int, ...], box: Box) -> tuple[npt.NDArray[np.int64], int]:
    """Location of the points of a box in an array, as contiguous runs.

    >>> runs((4, 5), ((1, 3), (0, 5))), runs((4, 5), ((1, 3), (2, 4)))
    ((array([5]), 10), (array([ 7, 12]), 2))

    Args:
        shape: shape of the array.
        box: global indices.

    Returns:
        (index of the first point of each run, points per run), in the order of the box.
    """
    # Trailing axes that are taken whole are contiguous with the axis before them.
    axis = len(shape) - 1
    while axis > 0 and box[axis] == (0, shape[axis]):
        axis -= 1
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    # Broadcast the starts over the leading axes, the slowest outermost.
    firsts = np.array(box[axis][0] * strides[axis])
    for k in reversed(range(axis)):
        along = np.arange(*box[k]) * strides[k]
        firsts = along.reshape(-1, *(1,) * firsts.ndim) + firsts
    length = (box[axis][1] - box[axis][0]) * strides[axis]
    return firsts.ravel(), length


# Layout of the files of one step, and of their index.
FORMAT = "tetris_sim fields"
FORMAT_VERSION = 1
FOLDER = WHOLE
INDEX = f"{WHOLE}.h5"
GEOMETRY = "geometry.h5"  # the maps of cells, in the folder of the records
PASSING_PATTERN = "geometry_*.h5"
PASSING = "geometry_{:08d}.h5"  # those of a phase, by the step of its first record

Compression = Literal["none", "gzip", "lz4", "zstd"]
_RECORD = re.compile(r"fields_(\d{12,})\.h5")


@dataclass(frozen=True)
class Record:
    """One time of a part of the field.

    Attributes:
        step: number of time steps; the later one for a time between two steps.
        time: simulated time [s].
        read: function from a box of the part to its values, (n_fields, ...).
    """

    step: int
    time: float
    read: Callable[[Box], Field]


def record_name(step: int, folder: str = FOLDER) -> str:
    """Path of the file of one step, relative to the index next to its folder."""
    return f"{folder}/fields_{step:012d}.h5"


def recorded_steps(directory: Path, folder: str = FOLDER) -> list[int]:
    """Steps that have a file below the results directory, ascending."""
    matches = (_RECORD.fullmatch(path.name) for path in (directory / folder).glob("fields_*.h5"))
    return sorted(int(match[1]) for match in matches if match is not None)


def is_field_file(file: Any) -> bool:
    """Whether an open HDF5 file holds fields of tetris_sim."""
    return bool(file.attrs.get("format") == FORMAT)


def write_record(
    path: Path,
    record: Record,
    problem: Problem,
    part: OutputRegion,
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
    path: Path, record: Record, problem: Problem, part: OutputRegion, provenance: Provenance
) -> Unfinished:
    """Write the file of one step except for its values, under a temporary name next to `path`.

    Raises:
        UnsupportedError: the disk is full or refuses the file.
    """
    name = unfinished_name(path)
    with disk_errors(name), new_hdf5(name) as file:
        _write_frame(file, problem, part, {record.step: record.time}, provenance)
        datasets = _make_datasets(file, problem, part, "none")
        for dataset in datasets:
            # The first value makes HDF5 allocate the storage of all, where it lies in any other
            # file.
            dataset[(0,) * dataset.ndim] = 0
        offsets = tuple(dataset.id.get_offset() for dataset in datasets)
    shape, dtype = part.grid.shape, problem.arithmetic
    return Unfinished(record.step, record.time, path, name, shape, dtype, offsets)


def write_geometry(
    directory: Path, problem: Problem, part: OutputRegion, name: str = GEOMETRY
) -> tuple[CellMap, ...]:
    """Write the maps of the cells of a body beside its records, if there are any; returns them."""
    maps = cell_maps(problem, part)
    if maps:
        with atomic_hdf5(directory / part.folder / name) as file:
            file.attrs.update({"Conventions": CONVENTIONS, "creator": CREATOR})
            add_positions(file, part.grid)
            for it in maps:
                packing = packed("gzip", chunk_shape(part.grid.shape, it.dtype.itemsize))
                dataset = add_map(file, it, part.grid.shape, **packing)
                for axis, name in enumerate(part.grid.axis_names):
                    dataset.dims[axis].attach_scale(file[name])
    return maps


def write_index(
    directory: Path,
    problem: Problem,
    records: Mapping[int, float],
    provenance: Provenance,
    part: OutputRegion | None = None,
    maps: Sequence[CellMap] = (),
) -> Path:
    """Write `fields.h5`: the files of all steps presented as one, by relative names.

    Args:
        directory: folder of the index.
        problem: the problem.
        records: time [s] of each record by its step, ascending.
        provenance: metadata about the run.
        part: part of the field; all of it if not given.
        maps: those that `write_geometry` has written.
    """
    import h5py

    part = part or whole(problem)
    path, shape = directory / f"{part.folder}.h5", part.grid.shape
    with atomic_hdf5(path) as file:
        _write_frame(file, problem, part, records, provenance)

        # A virtual dataset per variable: record i maps to the file of its step.
        for variable in problem.variables:
            layout = h5py.VirtualLayout(shape=(len(records), *shape), dtype=problem.arithmetic)
            for i, step in enumerate(records):
                layout[i : i + 1] = h5py.VirtualSource(
                    record_name(step, part.folder), variable.name, shape=(1, *shape)
                )
            # A file that was deleted reads as NaN.
            _describe(
                file,
                file.create_virtual_dataset(variable.name, layout, fillvalue=np.nan),
                variable,
                part.grid,
                maps,
            )
        for it in maps:
            layout = h5py.VirtualLayout(shape=shape, dtype=it.dtype)
            layout[...] = h5py.VirtualSource(f"{part.folder}/{GEOMETRY}", it.name, shape=shape)
            dataset = file.create_virtual_dataset(it.name, layout)
            dataset.attrs.update(it.attributes)
            for axis, name in enumerate(part.grid.axis_names):
                dataset.dims[axis].attach_scale(file[name])
    return path


def _write_frame(
    file: Any,
    problem: Problem,
    part: OutputRegion,
    records: Mapping[int, float],
    provenance: Provenance,
) -> None:
    """Write everything but the variables."""
    file.attrs["format"] = FORMAT
    file.attrs["format_version"] = FORMAT_VERSION
    file.attrs["Conventions"] = CONVENTIONS
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
    file: Any, problem: Problem, part: OutputRegion, record: Record, compression: Compression
) -> None:
    datasets = _make_datasets(file, problem, part, compression)
    shape, itemsize = part.grid.shape, problem.arithmetic.itemsize
    # Whole chunks per block: a chunk written in pieces would be compressed more than once.
    chunk = None if datasets[0].chunks is None else datasets[0].chunks[1:]
    for box in blocks(shape, itemsize * problem.n_fields, multiple=chunk):
        values = record.read(box)
        for dataset, field in zip(datasets, values, strict=True):
            dataset[(0, *slices(box))] = field


def _make_datasets(
    file: Any, problem: Problem, part: OutputRegion, compression: Compression
) -> list[Any]:
    """Create a dataset for each variable, without values."""
    shape = part.grid.shape
    options: dict[str, Any] = {}
    # Only compressed datasets are chunked; plain ones are contiguous, with one offset each.
    if compression != "none":
        options = packed(compression, (1, *chunk_shape(shape, problem.arithmetic.itemsize)))

    datasets = [
        file.create_dataset(variable.name, shape=(1, *shape), dtype=problem.arithmetic, **options)
        for variable in problem.variables
    ]
    for dataset, variable in zip(datasets, problem.variables, strict=True):
        _describe(file, dataset, variable, part.grid)
    return datasets


def _describe(
    file: Any, dataset: Any, variable: StateVariable, grid: Grid, maps: Sequence[CellMap] = ()
) -> None:
    dataset.attrs["units"] = variable.unit
    dataset.attrs["long_name"] = variable.long_name
    dataset.attrs["coordinates"] = auxiliary(grid, maps)
    for axis, name in enumerate(("time", *grid.axis_names)):
        dataset.dims[axis].attach_scale(file[name])
