"""Initial states from files: NumPy arrays, HDF5 datasets, greyscale pictures."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import tokenize
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config.sections.conditions import FileInitial
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.support.hdf5 import DAMAGED, refuse_outside
from tetris_sim.support.wording import first_line, listed

if TYPE_CHECKING:
    import h5py

# Formats that Pillow may open: others start external programs (EPS) or are of no use here.
_PICTURES = ("PNG", "TIFF", "JPEG", "BMP")

# Formats that users try in vain, and how to convert them.
_NO_FIELDS = {
    ".csv": "a table of text; read it with numpy.loadtxt and keep it with numpy.save",
    ".txt": "text; read it with numpy.loadtxt and keep it with numpy.save",
    ".npz": "an archive of several arrays; keep the one that is meant with numpy.save",
    ".nc": "NetCDF; one written by NetCDF 4 is HDF5 and can be read if its name ends with .h5",
}

Box = tuple[tuple[int, int], ...]  # per axis (start, stop), global indices, array order
Reader = Callable[[Box], npt.NDArray[Any]]

HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5")


def open_file(section: FileInitial, grid: Grid, of: str = "initial") -> Reader:
    """Open a file as a function that reads any box of the grid; shape and type are checked at once.

    Args:
        section: which file.
        grid: whose shape it has.
        of: the section of the configuration, for messages.

    Raises:
        ConfigError: the file is missing, cannot be read, or does not hold one real number per grid
            point.
    """
    key = f"{of}.path"
    path = existing_file(section.path, key)
    suffix = path.suffix.lower()
    if section.dataset is not None and suffix not in HDF5_SUFFIXES:
        msg = (
            f"{of}.dataset = {section.dataset!r} needs an HDF5 file "
            f"({', '.join(HDF5_SUFFIXES)}), and {path} is not"
        )
        raise ConfigError(msg)

    # Dispatch by suffix: anything that is neither an array nor HDF5 is tried as a picture.
    if suffix in _NO_FIELDS:
        msg = (
            f"{key}: {path} cannot be read: it is {_NO_FIELDS[suffix]}. What can "
            f"be read is a .npy array, an HDF5 file ({', '.join(HDF5_SUFFIXES)}) or a "
            f"greyscale picture ({listed(_PICTURES)})"
        )
        raise ConfigError(msg)
    if suffix == ".npy":
        return open_npy(path, grid, key)
    if suffix in HDF5_SUFFIXES:
        return open_hdf5(path, section.dataset, grid, key)
    return _open_picture(path, section, grid)


def existing_file(path: str, key: str) -> Path:
    """Return the path of a file that exists.

    Args:
        path: as written in the configuration.
        key: of the configuration, for messages.

    Raises:
        ConfigError: it does not exist, or is a folder.
    """
    file = Path(path)
    try:
        if file.is_file():
            return file
        what = f"{file} is a folder" if file.is_dir() else f"there is no file {file}"
    except OSError as error:  # a name that is too long, a folder that may not be entered
        what = f"{file} cannot be reached ({error.strerror})"
    msg = f"{key}: {what}; relative paths start at the configuration file"
    raise ConfigError(msg)


def open_npy(path: Path, grid: Grid, key: str) -> Reader:
    """Open a .npy array as a reader; messages begin with `key`."""
    try:
        # Memory-mapped: only the boxes that are read enter memory. Neither pickles, which could run
        # code, nor archives are opened.
        array = np.lib.format.open_memmap(path, mode="r")
        behind = path.stat().st_size - array.offset - array.nbytes
        if behind:
            msg = f"{behind} bytes lie behind the array of {array.shape}: is its shape right?"
            raise ValueError(msg)
    except (*DAMAGED, EOFError, SyntaxError, tokenize.TokenError) as error:
        msg = f"{key}: {path} cannot be read as a .npy array of numbers ({first_line(error)})"
        raise ConfigError(msg) from error
    check_array(path, array.shape, array.dtype, grid, key)
    return lambda box: np.asarray(array[_slices(box)])


def open_hdf5(path: Path, name: str | None, grid: Grid, key: str) -> Reader:
    """Open an HDF5 dataset as a reader; messages begin with `key`."""
    import h5py

    try:
        # External links could make the file read others.
        refuse_outside(path)
        with h5py.File(path, "r") as file:
            dataset = _find_dataset(file, path, name, key)
            name = str(dataset.name)
            shape, dtype = tuple(dataset.shape or ()), dataset.dtype
    except DAMAGED as error:
        msg = f"{key}: {path} cannot be read as HDF5 ({first_line(error)})"
        raise ConfigError(msg) from error

    # A file written per output time has a time axis of length 1 in front.
    leading = len(shape) - grid.ndim
    if leading > 0 and set(shape[:leading]) == {1}:
        shape = shape[leading:]
    check_array(path, shape, dtype, grid, key)

    def read(box: Box) -> npt.NDArray[Any]:
        try:
            # Opened for each read: workers and ranks read at any time.
            with h5py.File(path, "r") as file:
                return np.asarray(file[name][(0,) * max(leading, 0) + _slices(box)])
        except DAMAGED as error:
            msg = f"{key}: {path} cannot be read as HDF5 ({first_line(error)})"
            raise ConfigError(msg) from error

    return read


def _find_dataset(file: h5py.File, path: Path, name: str | None, key: str) -> Any:
    import h5py

    keys: list[str] = []
    file.visititems(
        lambda name, item: keys.append(name) if isinstance(item, h5py.Dataset) else None
    )

    # The only dataset of a file needs no name.
    if name is None and len(keys) == 1:
        name = keys[0]

    if name is None or not isinstance(file.get(name), h5py.Dataset):
        dataset = f"{key.rpartition('.')[0]}.dataset"
        asked = (
            f"{dataset} is not given" if name is None else f"{dataset} = {name!r} is not in {path}"
        )
        msg = (
            f"{asked}; {path} holds "
            f"{', '.join(keys[:12]) or 'no dataset'}{', ...' if len(keys) > 12 else ''}"
        )
        raise ConfigError(msg)
    return file[name]


def _open_picture(path: Path, section: FileInitial, grid: Grid) -> Reader:
    if grid.ndim != 2:
        msg = (
            f"initial.path: {path} is a picture and the grid has {grid.ndim} axes; pictures are "
            "for grids of x and y"
        )
        raise ConfigError(msg)
    grey = read_grey(path, grid, "initial.path")
    upright = grey[::-1]  # the first row of a picture is its top, where y is largest
    span = section.white - section.black
    return lambda box: section.black + span * upright[_slices(box)]


def read_grey(
    path: Path, grid: Grid, key: str, *, any_shape: bool = False
) -> npt.NDArray[np.float64]:
    """Read the brightness from 0 (black) to 1 (white), (rows, columns), the top row first.

    Args:
        path: the picture; one of another shape is not decoded.
        grid: of x and y, a point per pixel.
        key: beginning of messages.
        any_shape: whether it may have other pixels than points.
    """
    from PIL import Image, UnidentifiedImageError  # comes with matplotlib

    try:
        with warnings.catch_warnings():
            # Pillow warns of pictures above 89 million points; the paper's grid is larger, and
            # shapes are checked.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=_PICTURES) as picture:
                # The header suffices for the shape: a picture of another shape is refused before it
                # is decoded.
                if not any_shape:
                    check_array(path, (picture.height, picture.width), float, grid, key)
                if picture.mode.startswith("I"):  # 16 bits per point
                    return np.asarray(picture, dtype=np.float64) / 65535
                if picture.mode == "F":
                    msg = f"{key}: {path} is a picture of floating-point numbers; save it as .npy"
                    raise ConfigError(msg)
                if picture.mode in ("1", "L", "LA"):
                    return np.asarray(picture.convert("L"), dtype=np.float64) / 255
                colours = np.asarray(picture.convert("RGB"))
    except (
        UnidentifiedImageError,
        Image.DecompressionBombError,
        *DAMAGED,
        EOFError,
        SyntaxError,
        struct.error,
        zlib.error,
    ) as error:
        msg = (
            f"{key}: {path} cannot be read ({error}); give a .npy array, an HDF5 file or a "
            "greyscale picture"
        )
        raise ConfigError(msg) from error

    # A grey picture stored as RGB is accepted: its channels are equal.
    if (colours != colours[..., :1]).any():
        msg = (
            f"{key}: {path} is in colour, and which colour means which value is not known; "
            "save it in grey"
        )
        raise ConfigError(msg)
    return colours[..., 0].astype(np.float64) / 255


def check_array(path: Path, shape: tuple[int, ...], dtype: Any, grid: Grid, key: str) -> None:
    """Raise unless a file holds one real number per point."""
    if np.dtype(dtype).kind not in "fiub":
        msg = f"{key}: {path} holds {dtype}; real numbers are needed"
        raise ConfigError(msg)
    if tuple(shape) != grid.shape:
        msg = (
            f"{key}: {path} holds an array of shape {_words(tuple(shape))}, but grid.shape "
            f"makes {_words(grid.shape)}; arrays are in the order z, y, x, the configuration in x, "
            "y, z"
        )
        raise ConfigError(msg)


def _words(shape: tuple[int, ...]) -> str:
    """Describe a shape in array order together with its extent along x, y, z."""
    if not 1 <= len(shape) <= 3:
        return f"{shape} (no shape of a grid)"
    points = ", ".join(f"{n} along {name}" for name, n in zip("xyz", reversed(shape), strict=False))
    return f"{shape} ({points})"


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in box)


def stamps(paths: Iterable[str]) -> tuple[tuple[str, int, int], ...]:
    """Fingerprint files to detect changes: path, modification time and size of each that exists."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):  # most texts are no paths
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                found.append((path, status.st_mtime_ns, status.st_size))
    return tuple(found)


def texts_in(values: Any) -> Iterator[str]:
    """Yield every text in plain data, among them all file paths."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        for part in values.values():
            yield from texts_in(part)
    elif isinstance(values, list | tuple):
        for part in values:
            yield from texts_in(part)
