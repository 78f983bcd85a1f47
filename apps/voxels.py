"""Voxels: numbers on a regular grid of their own, as scanners and image programs write them.

VTK image data (.vti), NRRD (.nrrd, .nhdr) and stacks of pictures. Only the boxes that are asked for
are read where the format allows it: raw data, data compressed block by block, and slices.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import glob
import math
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial_file import Box, Reader, check_array
from tetris_sim.config.sections.quantities import LENGTH
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.support.hdf5 import DAMAGED
from tetris_sim.support.wording import first_line, listed

Bytes = Callable[[int, int], bytes]  # some bytes of data, from and to

_VTK_TYPES = {"Float32": "f4", "Float64": "f8"} | {
    f"{kind}{8 * size}": f"{kind[0].lower()}{size}"
    for kind in ("Int", "UInt")
    for size in (1, 2, 4, 8)
}
_NRRD_TYPES = {
    **dict.fromkeys(("signed char", "int8", "int8_t"), "i1"),
    **dict.fromkeys(("uchar", "unsigned char", "uint8", "uint8_t"), "u1"),
    **dict.fromkeys(("short", "short int", "signed short", "int16", "int16_t"), "i2"),
    **dict.fromkeys(("ushort", "unsigned short", "uint16", "uint16_t"), "u2"),
    **dict.fromkeys(("int", "signed int", "int32", "int32_t"), "i4"),
    **dict.fromkeys(("uint", "unsigned int", "uint32", "uint32_t"), "u4"),
    "float": "f4",
    "double": "f8",
}
_PICTURES = (".png", ".tif", ".tiff", ".bmp", ".jpg", ".jpeg")
_MOST_HEAD = 1 << 20  # bytes in front of the data of a file
_SAME = 1e-6  # of the grid: how far voxels may fall short of it by rounding
_ALIKE = 0.01  # of a cell: how much a voxel may differ from it, where there is one for each
_KEPT = 16  # decoded slices or blocks
_BROKEN = (*DAMAGED, ElementTree.ParseError, KeyError, struct.error, zlib.error, EOFError)


@dataclass(frozen=True, eq=False)
class VoxelGrid:
    """Numbers on a regular grid.

    Attributes:
        path: of the file, for messages.
        shape: array order.
        dtype: of the numbers.
        read: the numbers of any box.
        first: centre of the first one in array order, if the file says it.
        spacing: array order, if the file says it.
        unit: of these two, if the file says it [m].
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Reader
    first: tuple[float, ...] | None = None
    spacing: tuple[float, ...] | None = None
    unit: float | None = None

    def on(self, grid: Grid, scale: float | None, offset: Sequence[float], key: str) -> Reader:
        """A reader of the voxels that the centres of the cells of a grid lie in.

        Args:
            grid: whose cells are read.
            scale: unit of the file [m]; None for the one that it says, or 1 m.
            offset: where the origin of the file lies, x, y, z [m].
            key: beginning of messages.

        Raises:
            ConfigError: the file does not say where its voxels are and has another shape than the
                grid, or they do not cover the grid.
        """
        if self.first is None or self.spacing is None or grid.system.is_curved:
            check_array(Path(self.path), self.shape, self.dtype, grid, key)
            return self.read
        if len(self.shape) != grid.ndim:
            msg = f"{key}: {self.path} has {len(self.shape)} axes, and the grid has {grid.ndim}"
            raise ConfigError(msg)
        unit, places = scale or self.unit or 1.0, list[npt.NDArray[np.int64]]()
        for axis, (first, step) in enumerate(zip(self.first, self.spacing, strict=True)):
            begin = first * unit + offset[grid.ndim - 1 - axis]
            self._check(grid, axis, begin, step * unit, key)
            at = (grid.coordinates(axis) - begin) / (step * unit)
            # A centre on the face between two voxels is in the upper one, always.
            near = np.floor(at + 0.5 + _SAME).astype(np.int64)
            places.append(np.clip(near, 0, self.shape[axis] - 1))

        def read(box: Box) -> npt.NDArray[Any]:
            own = [it[low:high] for it, (low, high) in zip(places, box, strict=True)]
            spans = tuple((int(it[0]), int(it[-1]) + 1) for it in own)
            found = self.read(spans)
            return found[np.ix_(*(it - low for it, (low, _) in zip(own, spans, strict=True)))]

        return read

    def _check(self, grid: Grid, axis: int, begin: float, step: float, key: str) -> None:
        """Raise unless voxels of a width `step` from the centre `begin` on cover the grid [m]."""
        # A unit that was forgotten makes one voxel of the whole grid, or none at all.
        name, n, begins = grid.axis_names[axis], self.shape[axis], f"{key}: {self.path}: "
        (low, high), width = grid.bounds(axis), float(grid.widths(axis).mean())
        first, last = begin - step / 2, begin + (n - 0.5) * step

        if n == grid.shape[axis] > 1 and abs(width / step - 1) > _ALIKE:
            told = f"it has a voxel for each cell along {name}, of {step:g} m"
            msg = f"{begins}{told}, and cells are {width:g} m wide; give scale, or another size"
            raise ConfigError(msg)
        if n > 1 and step > high - low:
            told = f"a voxel of {step:g} m is longer than the grid along {name}"
            msg = f"{begins}{told}, {high - low:g} m; give scale"
            raise ConfigError(msg)
        if max(first - low, high - last) > _SAME * (high - low):
            told = f"its voxels reach from {first:g} m to {last:g} m along {name}"
            msg = f"{begins}{told}, and the grid from {low:g} m to {high:g} m; give scale or offset"
            raise ConfigError(msg)


def open_voxels(text: str, name: str | None, ndim: int, key: str) -> VoxelGrid | None:
    """Open a file of voxels, or slices; None if it is of none of these kinds.

    Args:
        text: path of a file, of a folder of slices, or a pattern of their names.
        name: of the array, of files that may have several.
        ndim: axes of the grid; what has further ones of length 1 has fewer.
        key: beginning of messages.

    Raises:
        ConfigError: it cannot be read.
    """
    path = Path(text)
    suffix = path.suffix.lower()
    try:
        if glob.has_magic(text) or path.is_dir():
            found = _open_slices(text)
        elif suffix == ".vti":
            found = _open_vti(path, name)
        elif suffix in (".nrrd", ".nhdr"):
            found = _open_nrrd(path)
        elif ndim == 3 and suffix in (".tif", ".tiff") and _frames(path) > 1:
            found = _open_frames(path)
        else:
            return None
    except _BROKEN as error:
        msg = f"{key}: {text} cannot be read as voxels ({first_line(error)})"
        raise ConfigError(msg) from error
    if np.dtype(found.dtype).kind not in "fiub":
        msg = f"{key}: {text} holds {found.dtype}; real numbers are needed"
        raise ConfigError(msg)

    # Programs of volumes write planes as one slice.
    while len(found.shape) > ndim and found.shape[0] == 1:
        found = _without_first_axis(found)
    return found


def _without_first_axis(of: VoxelGrid) -> VoxelGrid:
    def read(box: Box) -> npt.NDArray[Any]:
        return np.asarray(of.read(((0, 1), *box))[0])

    places = [None if it is None else it[1:] for it in (of.first, of.spacing)]
    first, spacing = places
    return dataclasses.replace(of, shape=of.shape[1:], read=read, first=first, spacing=spacing)


def _boxes_of(data: Bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Reader:
    """A reader of boxes of an array from its bytes: those of the planes that a box touches."""
    plane = math.prod(shape[1:]) * dtype.itemsize

    # Neighbouring boxes are of the same planes.
    @functools.lru_cache(maxsize=2)
    def planes(low: int, high: int) -> npt.NDArray[Any]:
        found = np.frombuffer(data(low * plane, high * plane), dtype)
        return found.reshape((high - low, *shape[1:]))

    def read(box: Box) -> npt.NDArray[Any]:
        part = planes(*box[0])
        return part[(slice(None), *(slice(*it) for it in box[1:]))]

    return read


def _bytes_of(path: Path, begin: int, size: int) -> Bytes:
    """The bytes of a file from a place on, of which there are `size`."""
    there = path.stat().st_size - begin
    if there < size:
        msg = f"{size} bytes of numbers are missing or cut off: there are {max(there, 0)}"
        raise ValueError(msg)

    def data(low: int, high: int) -> bytes:
        # Opened for each read: workers and ranks read at any time.
        with path.open("rb") as file:
            file.seek(begin + low)
            return file.read(high - low)

    return data


# VTK image data: XML, with numbers as text, in base64, or raw behind it; in blocks if compressed.


def _open_vti(path: Path, name: str | None) -> VoxelGrid:
    with path.open("rb") as file:
        head = file.read(_MOST_HEAD)
    mark = head.find(b"<AppendedData")
    # Raw data are no XML, so what stands in front of them is closed.
    text = head[:mark] + b"</VTKFile>" if mark >= 0 else path.read_bytes()
    root = ElementTree.fromstring(text)
    image = root.find("ImageData")
    pieces = [] if image is None else image.findall("Piece")
    if image is None or len(pieces) != 1:
        msg = f"it is {root.get('type')} of {len(pieces)} pieces; ImageData of one is wanted"
        raise ValueError(msg)
    turned = [float(it) for it in image.get("Direction", "1 0 0 0 1 0 0 0 1").split()]
    if turned != [1, 0, 0, 0, 1, 0, 0, 0, 1]:
        msg = "its axes are turned (Direction); write it along x, y and z"
        raise ValueError(msg)

    arrays = {
        array.get("Name", ""): (array, kind)
        for kind in ("PointData", "CellData")
        for array in pieces[0].findall(f"{kind}/DataArray")
    }
    name = next(iter(arrays)) if name is None and len(arrays) == 1 else name
    if name is None or name not in arrays:
        msg = f"it holds {listed(list(arrays), 'and') or 'no array'}; say with dataset which one"
        raise ValueError(msg)
    array, kind = arrays[name]
    if array.get("NumberOfComponents", "1") != "1":
        msg = f"{name} has several numbers at each place; one is wanted"
        raise ValueError(msg)

    extent = [int(it) for it in pieces[0].attrib["Extent"].split()]
    spacing, origin = (
        [float(it) for it in image.attrib[key].split()] for key in ("Spacing", "Origin")
    )
    corner = [o + low * h for o, low, h in zip(origin, extent[::2], spacing, strict=True)]
    lengths = [high - low for low, high in zip(extent[::2], extent[1::2], strict=True)]
    # Numbers of points are those of voxels around them; those of cells lie between points.
    if kind == "PointData":
        counts, first = [it + 1 for it in lengths], corner
    else:
        counts = [max(it, 1) for it in lengths]
        first = [o + h / 2 for o, h in zip(corner, spacing, strict=True)]

    shape = tuple(counts[::-1])
    order = "<" if root.get("byte_order", "LittleEndian") == "LittleEndian" else ">"
    dtype = np.dtype(order + _VTK_TYPES[array.attrib["type"]])
    data = _vtk_bytes(path, root, array, head, math.prod(shape) * dtype.itemsize, dtype)
    read = _boxes_of(data, shape, dtype)
    places = tuple(first[::-1]), tuple(spacing[::-1])
    return VoxelGrid(str(path), shape, dtype, read, *places)


def _vtk_bytes(
    path: Path,
    root: ElementTree.Element,
    array: ElementTree.Element,
    head: bytes,
    size: int,
    dtype: np.dtype[Any],
) -> Bytes:
    """The bytes of an array of a file of VTK, whichever way they are kept."""
    compressor, how = root.get("compressor"), array.get("format")
    if compressor not in (None, "", "vtkZLibDataCompressor"):
        msg = f"it is compressed by {compressor}; write it with zlib, or uncompressed"
        raise ValueError(msg)
    if how == "ascii":
        content = np.array((array.text or "").split(), dtype).tobytes()
        if len(content) != size:
            msg = f"{len(content)} bytes of numbers were found; {size} are wanted"
            raise ValueError(msg)
        return lambda low, high: content[low:high]

    order = ">" if root.get("byte_order") == "BigEndian" else "<"
    integer = np.dtype(order + ("u8" if root.get("header_type") == "UInt64" else "u4"))
    if how == "binary":
        encoded: bytes | None = (array.text or "").strip().encode()
        begin = 0
    else:
        mark = head.find(b"<AppendedData")
        begin = head.find(b"_", mark) + 1 + int(array.attrib["offset"])
        is_raw = b'encoding="raw"' in head[mark:begin]
        encoded = None if is_raw else path.read_bytes()[begin:].split(b"<")[0].strip()

    # Places are those of the numbers' own bytes, however these are written.
    def take(at: int, count: int) -> bytes:
        if encoded is None:
            with path.open("rb") as file:
                file.seek(begin + at)
                found = file.read(count)
        else:
            # Three bytes are four letters; a part that was encoded by itself ends with padding.
            found = base64.b64decode(encoded[at // 3 * 4 : (at + count + 2) // 3 * 4])
            found = found[at % 3 : at % 3 + count]
        if len(found) != count:
            msg = "the numbers are cut off"
            raise ValueError(msg)
        return found

    if not compressor:
        told = int(np.frombuffer(take(0, integer.itemsize), integer)[0])
        if told != size:
            msg = f"{told} bytes of numbers were found; {size} are wanted"
            raise ValueError(msg)
        return lambda low, high: take(integer.itemsize + low, high - low)

    # How many blocks, their length, that of the last one, and the compressed length of each.
    n, length, _ = (int(it) for it in np.frombuffer(take(0, 3 * integer.itemsize), integer))
    header = (3 + n) * integer.itemsize
    lengths = np.frombuffer(take(0, header), integer)[3:].astype(np.int64)
    ends = np.cumsum(lengths)
    # In base64 the header is encoded by itself, so the blocks begin with letters of their own.
    if encoded is not None:
        encoded = encoded[-(-header // 3) * 4 :]
        header = 0

    @functools.lru_cache(maxsize=_KEPT)
    def block(number: int) -> bytes:
        low = int(ends[number - 1]) if number else 0
        return zlib.decompress(take(header + low, int(ends[number]) - low))

    def data(low: int, high: int) -> bytes:
        blocks = range(low // length, min(-(-high // length), n))
        found = b"".join(block(it) for it in blocks)[low - blocks.start * length :]
        return found[: high - low]

    return data


# NRRD: lines of text, an empty one, and the numbers, which may be in a file of their own.


def _open_nrrd(path: Path) -> VoxelGrid:
    with path.open("rb") as file:
        head = file.read(_MOST_HEAD)
    if not head.startswith(b"NRRD"):
        msg = "it does not begin with NRRD"
        raise ValueError(msg)
    ends = [at for mark in (b"\n\n", b"\r\n\r\n") if (at := head.find(mark)) >= 0]
    end = min(ends, default=len(head))
    fields = dict[str, str]()
    for line in head[:end].decode("ascii", "replace").splitlines()[1:]:
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#") and not value.startswith("="):
            fields[name.strip().lower()] = value.strip()

    # The fastest axis comes first, which is the last one of arrays.
    sizes = [int(it) for it in fields["sizes"].split()]
    shape = tuple(sizes[::-1])
    order = {"big": ">", "little": "<"}.get(fields.get("endian", "little").lower(), "<")
    dtype = np.dtype(order + _NRRD_TYPES[fields["type"].lower()])
    detached = fields.get("data file", fields.get("datafile"))
    if detached is not None and (detached.startswith("LIST") or "%" in detached):
        msg = "its numbers are in several files; write them into one"
        raise ValueError(msg)
    begin = 0 if detached else end + (4 if head[end : end + 1] == b"\r" else 2)
    source = path if detached is None else path.parent / detached
    begin += int(fields.get("byte skip", fields.get("byteskip", "0")))

    size, encoding = math.prod(shape) * dtype.itemsize, fields.get("encoding", "raw").lower()
    if encoding == "raw":
        data = _bytes_of(source, begin, size)
    elif encoding in ("gzip", "gz"):
        # A stream has no places to begin at: it is kept, as small as the file's own numbers are.
        content = zlib.decompress(source.read_bytes()[begin:], 31)
        data = lambda low, high: content[low:high]  # noqa: E731
        if len(content) != size:
            msg = f"{len(content)} bytes of numbers were found; {size} are wanted"
            raise ValueError(msg)
    else:
        msg = f"its encoding is {encoding}; raw or gzip is wanted"
        raise ValueError(msg)
    first, spacing = _nrrd_places(fields, len(sizes))
    read = _boxes_of(data, shape, dtype)
    return VoxelGrid(str(path), shape, dtype, read, first, spacing, _nrrd_unit(fields))


def _nrrd_places(
    fields: Mapping[str, str], ndim: int
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Where the first voxel is and how far they are apart, array order; None if it is not said."""
    if "space directions" in fields:
        vectors = re.findall(r"\(([^)]*)\)", fields["space directions"])
        ways = np.array([[float(it) for it in vector.split(",")] for vector in vectors])
        if ways.shape != (ndim, ndim) or (ways - np.diag(np.diag(ways))).any():
            msg = "its axes are turned (space directions); write it along x, y and z"
            raise ValueError(msg)
        spacing = np.diag(ways)
    elif "spacings" in fields:
        spacing = np.array([float(it) for it in fields["spacings"].split()])
    else:
        return None, None
    if len(spacing) != ndim or not (np.isfinite(spacing).all() and (spacing > 0).all()):
        msg = f"its spacings are {spacing.tolist()}; {ndim} above 0 are wanted"
        raise ValueError(msg)

    # The origin of the space is the first sample itself; without one, voxels begin at 0.
    origin = spacing / 2
    if "space origin" in fields:
        origin = np.array([float(it) for it in fields["space origin"].strip("() ").split(",")])
    return tuple(origin[::-1].tolist()), tuple(spacing[::-1].tolist())


def _nrrd_unit(fields: Mapping[str, str]) -> float | None:
    units = {it.lower() for it in re.findall(r'"([^"]+)"', fields.get("space units", ""))}
    units = {"um" if it in ("microns", "micron", "\u00b5m") else it for it in units}
    if not units:
        return None
    if len(units) > 1:
        msg = f"its units differ: {listed(sorted(units), 'and')}"
        raise ValueError(msg)
    return float(LENGTH.read(f"1 {units.pop()}"))


# Slices of a scan: pictures of x and y, whose first row is the top, in the order of their numbers.


def _open_slices(text: str) -> VoxelGrid:
    path = Path(text)
    names = [str(it) for it in path.iterdir()] if path.is_dir() else glob.glob(text)
    files = [Path(it) for it in names if Path(it).suffix.lower() in _PICTURES]
    # slice_2 comes before slice_10.
    files.sort(key=lambda it: [int(s) if s.isdigit() else s for s in re.split(r"(\d+)", it.name)])
    if not files:
        msg = f"no pictures ({', '.join(_PICTURES)}) are there"
        raise ValueError(msg)

    first = _grey(files[0], 0)
    slices = functools.lru_cache(maxsize=_KEPT)(lambda number: _grey(files[number], 0))
    return _stack(text, len(files), first, slices)


def _open_frames(path: Path) -> VoxelGrid:
    slices = functools.lru_cache(maxsize=_KEPT)(functools.partial(_grey, path))
    return _stack(str(path), _frames(path), slices(0), slices)


def _stack(
    text: str, n: int, first: npt.NDArray[Any], slices: Callable[[int], npt.NDArray[Any]]
) -> VoxelGrid:
    def read(box: Box) -> npt.NDArray[Any]:
        found = np.empty(tuple(high - low for low, high in box), first.dtype)
        for k, number in enumerate(range(*box[0])):
            own = slices(number)
            if own.shape != first.shape or own.dtype != first.dtype:
                told = f"slice {number + 1} of {text} is {own.shape[::-1]} of {own.dtype}"
                msg = f"{told}, and the first one {first.shape[::-1]} of {first.dtype}"
                raise ConfigError(msg)
            found[k] = own[tuple(slice(*it) for it in box[1:])]
        return found

    return VoxelGrid(text, (n, *first.shape), first.dtype, read)


def _frames(path: Path) -> int:
    from PIL import Image

    with Image.open(path, formats=("TIFF",)) as picture:
        return int(getattr(picture, "n_frames", 1))


def _grey(path: Path, frame: int) -> npt.NDArray[Any]:
    """The numbers of a greyscale picture as they are, upright: the row of the lowest y first."""
    from PIL import Image

    # Slices of scans are larger than what Pillow takes for an attack.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with Image.open(path, formats=("PNG", "TIFF", "JPEG", "BMP")) as picture:
            picture.seek(frame)
            if picture.mode not in ("1", "L", "F", "I") and not picture.mode.startswith("I;16"):
                msg = f"{path} is in colour ({picture.mode}); save it in grey"
                raise ValueError(msg)
            return np.asarray(picture)[::-1].copy()
