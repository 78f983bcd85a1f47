"""Parts: the values of a checkpoint in a file per slab, written by their ranks at the same time.

    checkpoint_<step>.h5           the run state, and virtual datasets that show all parts as one
    parts_<step>/part_<slab>.h5    /fields/<variable>, the points of one slab

Each file is sealed, and the first one knows the seals of the others, so that none can be missing,
damaged or exchanged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.checkpoint.seal import append_seal, check_content, read_seal
from tetris_sim.errors import CheckpointError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem, Variable
from tetris_sim.outputs.blocks import blocks, slices
from tetris_sim.support.files import atomic_file, new_hdf5
from tetris_sim.support.hdf5 import OutsideError

_FORMAT = "tetris_sim checkpoint part"
_META = "parts"  # the dataset of /meta that lists them


@dataclass(frozen=True)
class Part:
    """One file of values.

    Attributes:
        name: path relative to the checkpoint.
        box: the points in it, global indices.
        table: what its seal says of its content.
    """

    name: str
    box: Box
    table: str


def parts_folder(path: Path) -> Path:
    """Where the parts of a checkpoint lie."""
    return path.with_name(path.stem.replace("checkpoint_", "parts_"))


def write_part(
    number: int,
    box: Box,
    read: Callable[[Box], Field],
    *,
    path: Path,
    problem: Problem,
    step: int,
) -> Part:
    """Write the points of one slab of the checkpoint `path`; its folder is there.

    Raises:
        UnsupportedError: a disk is full or does not let us write.
    """
    own = parts_folder(path) / f"part_{number:06d}.h5"
    names, dtype = [variable.name for variable in problem.variables], problem.dtype
    shape = tuple(high - low for low, high in box)

    with atomic_file(own) as unfinished:
        with new_hdf5(unfinished) as file:
            file.attrs["format"] = _FORMAT
            fields = file.create_group("fields")
            datasets = [
                fields.create_dataset(name, shape=shape, dtype=dtype, fill_time="never")
                for name in names
            ]
            for dataset in datasets:
                dataset.attrs["start"] = [low for low, _ in box]

            for part in blocks(shape, dtype.itemsize * len(names)):
                values = read(
                    tuple((low + a, low + b) for (low, _), (a, b) in zip(box, part, strict=True))
                )
                for dataset, field in zip(datasets, values, strict=True):
                    dataset[slices(part)] = field
        append_seal(unfinished, step=step, good=True)

    return Part(f"{own.parent.name}/{own.name}", box, read_seal(own).table)


def remove_parts_of(path: Path, *, but: Sequence[Part] = ()) -> None:
    """Remove the parts that a checkpoint does not consist of: all, if it is not there any more."""
    folder = parts_folder(path)
    if not but:
        shutil.rmtree(folder, ignore_errors=True)
        return
    kept = {Path(part.name).name for part in but}
    for file in folder.iterdir():
        if file.name not in kept:
            file.unlink(missing_ok=True)


def remove_orphans(directory: Path) -> None:
    """Remove parts whose checkpoint was never finished."""
    for folder in directory.glob("parts_*"):
        if not folder.with_name(folder.name.replace("parts_", "checkpoint_") + ".h5").exists():
            shutil.rmtree(folder, ignore_errors=True)


def write_list(meta: Any, parts: Sequence[Part]) -> None:
    """Write into the group /meta of a checkpoint what it consists of."""
    meta.create_dataset(_META, data=json.dumps([asdict(part) for part in parts]))


def virtual_dataset(
    fields: Any, variable: Variable, problem: Problem, parts: Sequence[Part]
) -> Any:
    """A dataset that shows all parts of one variable as one."""
    import h5py

    layout = h5py.VirtualLayout(shape=problem.grid.shape, dtype=problem.dtype)
    for part in parts:
        shape = tuple(high - low for low, high in part.box)
        source = h5py.VirtualSource(part.name, f"fields/{variable.name}", shape=shape)
        layout[slices(part.box)] = source
    return fields.create_virtual_dataset(variable.name, layout, fillvalue=np.nan)


def compare_parts(path: Path) -> None:
    """Compare every byte of the parts that lie beside a checkpoint with their seals; the HDF5
    library sees none before that.

    Args:
        path: the checkpoint.

    Raises:
        CheckpointError: one is damaged.
    """
    for file in sorted(parts_folder(path).glob("part_*.h5")):
        check_content(file, read_seal(file))


def check_parts(path: Path, meta: Any) -> None:
    """Compare the parts of a checkpoint with what it says of them.

    Args:
        path: the checkpoint.
        meta: its group /meta.

    Raises:
        CheckpointError: one is missing, cut off, or of another checkpoint.
    """
    if _META not in meta:
        return
    listed = meta[_META]
    if listed.external or listed.is_virtual:
        msg = "the list of its parts lies in another file"
        raise OutsideError(msg)

    for part in json.loads(listed.asstr()[()]):
        file = path.parent / part["name"]
        if not file.resolve().is_relative_to(path.parent.resolve()):
            msg = f"it refers to {part['name']}, which is not in its folder"
            raise OutsideError(msg)

        seal = read_seal(file)
        if seal.table != part["table"]:
            msg = (
                f"{file} does not belong to {path} any more. Continue from another checkpoint of "
                "the run."
            )
            raise CheckpointError(msg)
