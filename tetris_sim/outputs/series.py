"""Series: fields over time as a reader sees them, whatever files they lie in."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import CheckpointError
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.outputs.field_file import (
    FOLDER,
    FORMAT_VERSION,
    GEOMETRY,
    PASSING,
    PASSING_PATTERN,
    is_field_file,
    read_grid,
    record_name,
)
from tetris_sim.outputs.materials import CellMap
from tetris_sim.outputs.regions import slices
from tetris_sim.support.hdf5 import DAMAGED, OutsideError, refuse_outside
from tetris_sim.support.wording import first_line

Values = npt.NDArray[np.floating[Any]]
Place = tuple[Path, str, tuple[int, ...]]  # file, dataset, shape of the dataset


@dataclass(frozen=True)
class SeriesVariable:
    """Name and unit of one field.

    Attributes:
        name: identifier.
        unit: "1" if it has none.
        long_name: name for axis labels.
    """

    name: str
    unit: str
    long_name: str


@dataclass(frozen=True)
class Series:
    """Fields at one or several times.

    Attributes:
        path: the file they come from.
        grid: the points.
        dtype: type of the values.
        variables: names and units of the fields.
        steps: number of time steps, per record.
        times: simulated time [s], per record.
        read: (record, variable, box) -> the values in the box, of its shape.
        place: (record, variable) -> the dataset that holds the values, its earlier axes having
            length 1; for XDMF.
        meta: metadata about the run: title, config (YAML), versions, ...
        timeless: whether time steps stand for no physical time.
        find_maps: finds the maps of the cells: materials and regions.
        geometry: the file that holds them, for XDMF; None if none does.
        find_maps_at: finds those of a record, where cells come and go; `find_maps` are then those
            of the last record.
    """

    path: Path
    grid: Grid
    dtype: np.dtype[Any]
    variables: tuple[SeriesVariable, ...]
    steps: tuple[int, ...]
    times: tuple[float, ...]
    read: Callable[[int, int, Box], Values]
    place: Callable[[int, int], Place]
    meta: dict[str, Any] = field(default_factory=dict)
    timeless: bool = False
    find_maps: Callable[[], tuple[CellMap, ...]] = tuple
    geometry: Path | None = None
    find_maps_at: Callable[[int], tuple[CellMap, ...]] | None = None

    @functools.cached_property
    def maps(self) -> tuple[CellMap, ...]:
        """The maps of the cells, found when somebody first asks for them."""
        return self.find_maps()

    def maps_at(self, record: int) -> tuple[CellMap, ...]:
        """The maps of the cells at a record."""
        return self.maps if self.find_maps_at is None else self.find_maps_at(record)


@contextlib.contextmanager
def open_hdf5(path: Path, *, ours: bool = False) -> Iterator[Any]:
    """Open an HDF5 file for reading.

    Args:
        path: the file.
        ours: whether this very process has written it.

    Raises:
        CheckpointError: it is missing, damaged, or not an HDF5 file.
    """
    import h5py

    if not path.is_file():
        msg = f"{path} is not there; give an HDF5 file that a run has written"
        raise CheckpointError(msg)

    # A foreign file may crash the HDF5 library, so a child process inspects it first.
    try:
        if not ours:
            refuse_outside(path)
    except OutsideError as error:
        msg = f"{path} is damaged: {error}"
        raise CheckpointError(msg) from error
    try:
        file = h5py.File(path, "r", locking="best-effort")
    except DAMAGED as error:
        msg = (
            f"{path} cannot be opened as HDF5 ({first_line(error)}): it is damaged or another "
            "kind of file"
        )
        raise CheckpointError(msg) from error
    with file:
        yield file


@contextlib.contextmanager
def open_fields(path: Path, *, ours: bool = False) -> Iterator[Series]:
    """The fields in `fields.h5` or in the file of one step, readable until the block ends.

    Args:
        path: the file.
        ours: whether this very process has written it.

    Raises:
        CheckpointError: the file is missing, damaged, or not a file of fields.
    """
    with open_hdf5(path, ours=ours) as file:
        try:
            _refuse_others(path, file)
            series = _read_frame(path, file, ours=ours)
        except DAMAGED as error:
            msg = f"{path} is damaged: {first_line(error)}"
            raise CheckpointError(msg) from error
        yield series


def _refuse_others(path: Path, file: Any) -> None:
    """Raise `CheckpointError` unless a file has fields in a known format."""
    if not is_field_file(file):
        msg = f"{path} is an HDF5 file, but not one of fields written by tetris_sim"
        raise CheckpointError(msg)
    version = int(file.attrs.get("format_version", 0))
    # A later format may mean something else: refuse it rather than guess.
    if version > FORMAT_VERSION:
        msg = (
            f"{path} has format version {version}, this program reads up to {FORMAT_VERSION}; "
            "use a newer one"
        )
        raise CheckpointError(msg)


def read_meta(file: Any) -> dict[str, Any]:
    """The content of the group /meta as plain data."""
    meta = file["meta"]
    # NumPy scalars to Python ones, so that the result can be written as JSON.
    said: dict[str, Any] = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in meta.attrs.items()
    }
    said["versions"] = json.loads(said["versions"])
    said["variables"] = json.loads(said["variables"])
    said["config"] = meta["config"].asstr()[()]
    said["creator"] = str(file.attrs["creator"])
    said["format_version"] = int(file.attrs["format_version"])
    return said


def _read_frame(path: Path, file: Any, *, ours: bool) -> Series:
    import h5py

    meta = read_meta(file)
    grid = read_grid(file)
    # A damaged file may have a group in the place of a dataset.
    datasets = [file[name] for name in meta["variables"]]
    for dataset in datasets:
        if not isinstance(dataset, h5py.Dataset):
            msg = f"{dataset.name} is not a dataset"
            raise TypeError(msg)
    steps = tuple(map(int, file["step"][:]))
    folder = str(file.attrs.get("folder", FOLDER))

    # In the index the values lie in the file of their step, next to the index.
    def place(record: int, variable: int) -> Place:
        one_time = (1, *grid.shape)
        name = datasets[variable].name
        return (
            path.parent / record_name(steps[record], folder)
            if datasets[variable].is_virtual
            else path,
            name,
            one_time,
        )

    def read(record: int, variable: int, box: Box) -> Values:
        # HDF5 would silently read fill values for a missing source of a virtual dataset.
        source = place(record, variable)[0]
        if not source.is_file():
            msg = (
                f"{source} is not there, but {path} refers to it; move {path.name} and its folder "
                "together"
            )
            raise CheckpointError(msg)
        try:
            return np.asarray(datasets[variable][(record, *slices(box))])
        except DAMAGED as error:
            msg = f"{source} is damaged: {first_line(error)}"
            raise CheckpointError(msg) from error

    here = path.parent / (record_name(0, folder) if datasets[0].is_virtual else path.name)
    geometry = here.with_name(GEOMETRY)
    passing = sorted(here.parent.glob(PASSING_PATTERN))

    def maps_at(record: int) -> tuple[CellMap, ...]:
        before = [it for it in passing if it.name <= PASSING.format(steps[record])]
        return _read_maps(before[-1] if before else geometry, grid, ours=ours)

    return Series(
        path=path,
        grid=grid,
        dtype=np.dtype(datasets[0].dtype),
        # Dataset names are absolute paths; their leading slash is no part of the variable's name.
        variables=tuple(
            SeriesVariable(
                dataset.name[1:], str(dataset.attrs["units"]), str(dataset.attrs["long_name"])
            )
            for dataset in datasets
        ),
        steps=steps,
        times=tuple(map(float, file["time"][:])),
        read=read,
        place=place,
        meta=meta,
        # An infinite stability limit marks problems whose steps stand for no physical time.
        timeless=not np.isfinite(meta["dt_limit"]),
        find_maps=functools.partial(_read_maps, geometry, grid, ours=ours),
        geometry=geometry if geometry.is_file() else None,
        find_maps_at=maps_at if passing else None,
    )


def _read_maps(path: Path, grid: Grid, *, ours: bool) -> tuple[CellMap, ...]:
    """The maps in a file beside the records; none if there is no such file.

    Raises:
        CheckpointError: the file is damaged, or of another grid.
    """
    if not path.is_file():
        return ()

    def read(name: str, box: Box) -> npt.NDArray[np.integer[Any]]:
        with open_hdf5(path, ours=True) as file:  # looked at below
            return np.asarray(file[name][slices(box)])

    # The layout is checked here, once; `read` opens the file again for the values.
    with open_hdf5(path, ours=ours) as file:
        try:
            found = []
            for name in ("material", "region"):
                if name not in file:
                    continue
                if file[name].shape != grid.shape:
                    msg = f"{path} is of a grid of {file[name].shape} cells, not of {grid.shape}"
                    raise CheckpointError(msg)
                attributes = file[name].attrs
                meanings = tuple(str(attributes["flag_meanings"]).split())
                outside = tuple(int(it) for it in attributes["outside"])
                found.append(CellMap(name, meanings, outside, functools.partial(read, name)))
        except DAMAGED as error:
            msg = f"{path} is damaged: {first_line(error)}"
            raise CheckpointError(msg) from error
    return tuple(found)
