"""Files of others may not lead to files elsewhere.

An HDF5 file may say that its numbers are those of another file: by an external link, by a virtual
dataset, or by external storage, which takes any bytes for numbers. What a run writes refers to
files beside and below it; a file that refers to others may come from somebody who would like to
see them, and is not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What h5py raises for a damaged file: whatever the piece leads to that cannot be read.
DAMAGED = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    RuntimeError,
    AttributeError,
    OverflowError,
    MemoryError,
)


class OutsideError(OSError):
    """A file refers to one that is neither in its folder nor below."""


def refuse_outside(file: Any) -> None:
    """Look at everything in an open HDF5 file, and in files beside it that it refers to.

    Raises:
        OutsideError: it refers to a file elsewhere.
    """
    _refuse(file, Path(file.filename), set())


def _refuse(file: Any, path: Path, seen: set[Path]) -> None:
    import h5py

    seen.add(path.resolve())
    for name in _referred(file):
        if name == ".":  # the same file
            continue
        other = path.parent / os.fsdecode(name)
        inside = path.parent.resolve()
        if "%" in str(other) or not other.resolve().is_relative_to(inside):
            msg = f"it refers to {os.fsdecode(name)}, which is not in its folder"
            raise OutsideError(msg)
        if other.resolve() in seen or not other.is_file() or not h5py.is_hdf5(other):
            continue
        with h5py.File(other, "r", locking="best-effort") as beside:
            _refuse(beside, other, seen)


def _referred(group: Any, seen: set[int] | None = None) -> Iterator[str | bytes]:
    """Names of files, as they are written in a group and those inside it."""
    import h5py

    seen = set() if seen is None else seen  # groups by address: links may go round in a circle
    if (address := h5py.h5o.get_info(group.id).addr) in seen:
        return
    seen.add(address)
    for name in group:
        link = group.get(name, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            yield link.filename
        if not isinstance(link, h5py.HardLink):
            continue
        item = group.get(name)
        if isinstance(item, h5py.Group):
            yield from _referred(item, seen)
        elif isinstance(item, h5py.Dataset):
            yield from (source for source, _, _ in item.external or ())
            if item.is_virtual:
                yield from (source.file_name for source in item.virtual_sources())
