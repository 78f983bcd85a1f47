"""One checkpoint file: the whole field bit by bit and the run state, sealed, readable box by box.

    /fields/<variable>  (n0[, n1[, n2]])  the interior points in global order
    /fields/z y x       their positions, attached as dimension scales
    /meta               the run state
    seal                beyond the end of the HDF5 content, see `seal.py`

The datasets of fields are virtual where the values lie in separate files (parts, below).

A file has neither halos nor any trace of the domain decomposition, so that any number and kind of
devices can continue from it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tetris_sim.errors import CheckpointError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import PRECISIONS, Field, Problem, StateVariable, Total
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint.seal import FORMAT_VERSION, append_seal, check_content, read_seal
from tetris_sim.outputs.checkpoint.state import RunState, read_state, write_state
from tetris_sim.outputs.field_file import add_positions, read_grid
from tetris_sim.outputs.regions import blocks, slices
from tetris_sim.support.files import atomic_file, new_hdf5, remove_file
from tetris_sim.support.hdf5 import OutsideError, refuse_outside
from tetris_sim.support.wording import first_line
from tetris_sim.version import __version__

# Parts: the values of a checkpoint in one file per slab, written by their ranks at the same time.
#
#     checkpoint_<step>.h5           the run state, and virtual datasets that join all parts
#     parts_<step>/part_<slab>.h5    /fields/<variable>, the points of one slab
#
# Each file is sealed, and the first one lists the seals of the others, so that no part can be
# missing, damaged or exchanged unnoticed.

_FORMAT = "tetris_sim checkpoint part"
_META = "parts"  # the dataset of /meta that lists the parts


@dataclass(frozen=True)
class CheckpointPart:
    """One file of values.

    Attributes:
        name: path relative to the checkpoint.
        box: its points, global indices.
        table: the digest table's digest from its seal.
    """

    name: str
    box: Box
    table: str


def parts_folder(path: Path) -> Path:
    """Folder of the parts of a checkpoint."""
    return path.with_name(path.stem.replace("checkpoint_", "parts_"))


def write_part(
    number: int,
    box: Box,
    read: Callable[[Box], Field],
    *,
    path: Path,
    problem: Problem,
    step: int,
) -> CheckpointPart:
    """Write the points of one slab of the checkpoint `path`, whose folder exists.

    Args:
        number: number of the slab.
        box: its points, global indices.
        read: function from a box to its values, (n_fields, ...).
        path: the checkpoint.
        problem: the problem.
        step: step of the state.

    Raises:
        UnsupportedError: the disk is full or refuses the file.
    """
    own = parts_folder(path) / f"part_{number:06d}.h5"
    names, dtype = [variable.name for variable in problem.variables], problem.dtype
    shape = tuple(high - low for low, high in box)

    with atomic_file(own) as unfinished:
        with new_hdf5(unfinished) as file:
            file.attrs["format"] = _FORMAT
            fields = file.create_group("fields")
            # Never filled with zeros first: every value is written below.
            datasets = [
                fields.create_dataset(name, shape=shape, dtype=dtype, fill_time="never")
                for name in names
            ]
            for dataset in datasets:
                dataset.attrs["start"] = [low for low, _ in box]

            # Block by block, so that the slab need not be in memory twice.
            for part in blocks(shape, dtype.itemsize * len(names)):
                values = read(
                    tuple((low + a, low + b) for (low, _), (a, b) in zip(box, part, strict=True))
                )
                for dataset, field in zip(datasets, values, strict=True):
                    dataset[slices(part)] = field
        # A part with NaN is never written: such a state goes to a crash dump.
        append_seal(unfinished, step=step, good=True)

    return CheckpointPart(f"{own.parent.name}/{own.name}", box, read_seal(own).table)


def remove_parts_of(path: Path, *, but: Sequence[CheckpointPart] = ()) -> None:
    """Remove the files that are no parts of a checkpoint: all of them if it no longer exists."""
    folder = parts_folder(path)
    if not but:
        shutil.rmtree(folder, ignore_errors=True)
        return
    kept = {Path(part.name).name for part in but}
    for file in folder.iterdir():
        if file.name not in kept:
            remove_file(file)


def remove_orphans(directory: Path) -> None:
    """Remove parts whose checkpoint was never finished."""
    for folder in directory.glob("parts_*"):
        # parts_<step> belongs to checkpoint_<step>.h5.
        if not folder.with_name(folder.name.replace("parts_", "checkpoint_") + ".h5").exists():
            shutil.rmtree(folder, ignore_errors=True)


def write_list(meta: Any, parts: Sequence[CheckpointPart]) -> None:
    """Write the list of parts into the group /meta of a checkpoint."""
    meta.create_dataset(_META, data=json.dumps([asdict(part) for part in parts]))


def virtual_dataset(
    fields: Any, variable: StateVariable, problem: Problem, parts: Sequence[CheckpointPart]
) -> Any:
    """Create a dataset that joins all parts of one variable."""
    import h5py

    layout = h5py.VirtualLayout(shape=problem.grid.shape, dtype=problem.dtype)
    for part in parts:
        shape = tuple(high - low for low, high in part.box)
        source = h5py.VirtualSource(part.name, f"fields/{variable.name}", shape=shape)
        layout[slices(part.box)] = source
    # A part that is absent reads as NaN.
    return fields.create_virtual_dataset(variable.name, layout, fillvalue=np.nan)


def compare_parts(path: Path) -> None:
    """Compare every byte of a checkpoint's parts with their seals, before the HDF5 library sees
    them.

    Args:
        path: the checkpoint.

    Raises:
        CheckpointError: a part is damaged.
    """
    for file in sorted(parts_folder(path).glob("part_*.h5")):
        check_content(file, read_seal(file))


def check_parts(path: Path, meta: Any) -> None:
    """Compare the parts of a checkpoint with the list in it.

    Args:
        path: the checkpoint.
        meta: its group /meta.

    Raises:
        CheckpointError: a part is missing, cut off, or from another checkpoint.
        OutsideError: the checkpoint refers to files outside its folder.
    """
    if _META not in meta:
        return
    listed = meta[_META]
    if listed.external or listed.is_virtual:
        msg = "the list of its parts lies in another file"
        raise OutsideError(msg)

    # The list comes from a file, so its names must not lead out of the checkpoint's folder.
    for part in json.loads(listed.asstr()[()]):
        file = path.parent / part["name"]
        if not file.resolve().is_relative_to(path.parent.resolve()):
            msg = f"it refers to {part['name']}, which is not in its folder"
            raise OutsideError(msg)

        # Equal digest tables mean equal contents: an exchanged part is found without reading it.
        seal = read_seal(file)
        if seal.table != part["table"]:
            msg = (
                f"{file} does not belong to {path} any more. Continue from another checkpoint of "
                "the run."
            )
            raise CheckpointError(msg)


# The checkpoint file itself.
FORMAT = "tetris_sim checkpoint"
_BLOCK = 1 << 26  # bytes of the state in memory at one time while it is written
# Exceptions of h5py for unexpected contents.
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
        variables: names and units of the fields.
        dtype: type of the values.
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

        # Checked once here, so that `read` can rely on shapes and type.
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
        """The values inside `box`, (n_fields, ...); only these are read."""
        values = np.empty(
            (len(self._datasets), *(high - low for low, high in box)), dtype=self.dtype
        )
        with _reading(self.path):
            for field, dataset in zip(values, self._datasets, strict=True):
                dataset.read_direct(field, slices(box))
        return values

    def initial(self, slab: Slab) -> Field:
        """The owned points of a slab: `Problem.initial` of a run that continues."""
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
            file is inspected, and damage elsewhere may go unnoticed.

    Raises:
        CheckpointError: the file is missing, damaged, of another kind or of a later format.
    """
    import h5py

    path = Path(path)
    # Seals first, then a child inspects the file's references, and only then HDF5 opens it here.
    seal = read_seal(path)
    if verify:
        check_content(path, seal)
        compare_parts(path)

    with _reading(path):
        refuse_outside(path)
        file = h5py.File(path, "r", locking="best-effort")
        # On success the checkpoint owns the open file.
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
    parts: Sequence[CheckpointPart] = (),
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Write one checkpoint file, block by block, and rename it into place.

    Args:
        path: its name.
        state: the run state.
        problem: the problem of the field.
        read: function from a box to its values, (n_fields, ...), in the problem's dtype.
        good: whether the field is finite everywhere.
        parts: the files that hold the values, if they are not to be written into this one.
        ready: called before the file is renamed; returns once it may become visible.

    Raises:
        UnsupportedError: the disk is full or refuses the file.
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

        # The seal is the last write before the rename, so a file with its final name is sealed.
        append_seal(part, step=state.step, good=good)
        ready()


def _write_fields(
    fields: Any, problem: Problem, read: Callable[[Box], Field], parts: Sequence[CheckpointPart]
) -> None:
    grid, dtype = problem.grid, np.dtype(problem.dtype)
    scales = add_positions(fields, grid)
    datasets = []
    for variable in problem.variables:
        if parts:
            dataset = virtual_dataset(fields, variable, problem, parts)
        else:
            # Contiguous: a box is read in as few pieces as possible, and a block written in one.
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
        # Silent conversion would break bitwise identical restarts.
        if values.dtype != dtype:
            msg = f"a checkpoint of a {dtype} problem was given values of {values.dtype}"
            raise TypeError(msg)
        for dataset, field in zip(datasets, values, strict=True):
            dataset[slices(box)] = field


def _read_variable(dataset: Any) -> StateVariable:
    said = dataset.attrs
    total = Total(str(said["total_name"]), str(said["total_unit"]), float(said["total_density"]))
    return StateVariable(
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
