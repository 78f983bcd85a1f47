"""Exports of a series: arrays, tables, NetCDF, VTKHDF, and animations (GIF, MP4)."""

from __future__ import annotations

import contextlib
import csv
import functools
import itertools
import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import arithmetic_of
from tetris_sim.outputs.drawing import LINE_COLOUR, Drawing
from tetris_sim.outputs.field_file import (
    CONVENTIONS,
    CREATOR,
    add_map,
    add_positions,
    add_steps,
    add_times,
    auxiliary,
)
from tetris_sim.outputs.figure_layout import FIELD_COLOURS, Caption, Limits, extent, moment, widened
from tetris_sim.outputs.materials import CellMap, sample_materials, show_body
from tetris_sim.outputs.pictures import draw_state
from tetris_sim.outputs.regions import blocks, chunk_shape, in_space, slices
from tetris_sim.outputs.sampling import CrossSection, Plane, sample
from tetris_sim.outputs.series import Series
from tetris_sim.outputs.tables import LEADING, read_table
from tetris_sim.support.files import atomic_file, atomic_hdf5

# A series as a plain array (.npy) or as a table (.csv).


def write_npy(series: Series, records: Sequence[int], path: Path, *, single: bool) -> None:
    """Write the first variable as a NumPy array.

    Args:
        series: the fields.
        records: numbers of the records to write, ascending.
        path: the file to write.
        single: whether the array is (z, y, x) of one record, instead of (time, z, y, x).
    """
    shape = series.grid.shape if single else (len(records), *series.grid.shape)

    # The header first, then the values as they are read: the array is never in memory as a whole.
    with atomic_file(path) as part, part.open("wb") as file:
        header = {
            "descr": np.lib.format.dtype_to_descr(series.dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(file, header)
        for record in records:
            # Blocks come in storage order, and each is contiguous in the file.
            for box in blocks(series.grid.shape, series.dtype.itemsize):
                file.write(series.read(record, 0, box).tobytes())


def write_csv(series: Series, records: Sequence[int], path: Path) -> None:
    """Write every variable of a 1D series, one row per record and point.

    Args:
        series: the fields.
        records: numbers of the records to write, ascending.
        path: the file to write.

    Raises:
        ConfigError: the field is not 1D.
    """
    if series.grid.ndim > 1:
        msg = (
            f"{series.path} has {series.grid.ndim} axes, and a CSV file is for lines and probes: "
            "use .npy, .nc or .vtkhdf for fields, or export the folder of the probes"
        )
        raise ConfigError(msg)

    positions = series.grid.coordinates(0)
    with atomic_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            (
                *LEADING,
                f"{series.grid.axis_names[0]} [m]",
                *(f"{variable.name} [{variable.unit}]" for variable in series.variables),
            )
        )
        for record in records:
            # Blocks of 1 MiB, since their rows are Python objects meanwhile.
            for box in blocks(
                series.grid.shape, series.dtype.itemsize * len(series.variables), limit=1 << 20
            ):
                columns = [
                    series.read(record, k, box).astype(np.float64)
                    for k in range(len(series.variables))
                ]

                for place, *values in zip(positions[slice(*box[0])], *columns, strict=True):
                    numbers = (series.times[record], place, *values)
                    writer.writerow(
                        (series.steps[record], *(repr(float(number)) for number in numbers))
                    )


def write_probes(tables: Mapping[str, Path], path: Path) -> None:
    """Write the tables of several probes as one, with the probe's name in the first column.

    Args:
        tables: file of each probe by its name.
        path: the file to write.

    Raises:
        CheckpointError: a table is damaged.
        ConfigError: the tables have different columns.
    """
    with atomic_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        header: list[str] = []
        for name, table in tables.items():
            columns, rows = read_table(table)
            if not header:
                header = columns
                writer.writerow(("probe", *header))
            if columns != header:
                msg = (
                    f"{table} has the columns {', '.join(columns)}, and other probes have "
                    f"{', '.join(header)}"
                )
                raise ConfigError(msg)

            for step, *values in rows:
                writer.writerow((name, int(step), *(repr(value) for value in values)))


# A series as one NetCDF-4 file, for xarray, Panoply, CDO and other readers of NetCDF.
#
# NetCDF-4 is HDF5 with dimension scales, in the order of creation. Writing it needs no NetCDF
# library, has no size limit, and works block by block; the classic format would need the whole
# series in memory.


def write_netcdf(series: Series, records: Sequence[int], path: Path) -> None:
    """Write records of a series as NetCDF-4, deflated as NetCDF tools do.

    Args:
        series: the fields.
        records: numbers of the records to write, ascending.
        path: the file to write.
    """
    grid, dtype = series.grid, arithmetic_of(series.dtype)  # NetCDF has no float16
    itemsize = dtype.itemsize
    chunk = chunk_shape(grid.shape, itemsize)
    with atomic_hdf5(path) as file:
        file.attrs["Conventions"] = CONVENTIONS
        file.attrs["creator"] = CREATOR
        file.attrs["source"] = series.path.name
        file.attrs["title"] = str(series.meta.get("title", ""))
        file.attrs["history"] = json.dumps({"versions": series.meta.get("versions", {})})

        # Readers take the order of dimensions from the order of creation.
        time = add_times(file, [series.times[record] for record in records])
        add_positions(file, grid, spacing=False)
        add_steps(file, [series.steps[record] for record in records], time)

        for it in series.maps:
            flags = add_map(file, it, grid.shape, compression="gzip", shuffle=True)
            for axis, name in enumerate(grid.axis_names):
                flags.dims[axis].attach_scale(file[name])

        for k, variable in enumerate(series.variables):
            dataset = file.create_dataset(
                variable.name,
                shape=(len(records), *grid.shape),
                dtype=dtype,
                chunks=(1, *chunk),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
            )
            dataset.attrs.update(
                {
                    "units": variable.unit,
                    "long_name": variable.long_name,
                    "coordinates": auxiliary(grid, series.maps),
                }
            )
            for axis, name in enumerate(("time", *grid.axis_names)):
                dataset.dims[axis].attach_scale(file[name])

            # One chunk is compressed once, so blocks are whole chunks.
            for i, record in enumerate(records):
                for box in blocks(grid.shape, itemsize, multiple=chunk):
                    dataset[(i, *slices(box))] = series.read(record, k, box)


# A series as one VTKHDF file (ImageData, format 2), which ParaView 5.12 and newer read.
#
# Where an axis is graded it is a RectilinearGrid, which the format has since 2.7 (VTK 9.7 reads
# it). Points are cell centres, so values are cell data, and the box has its true size. The axes
# that a 1D or 2D field lacks have no thickness here, unlike in XDMF. One record is a file without
# steps: readers take a time axis for one of space where there is a single step.

VERSION = (2, 0)  # the first with time steps
_GRADED_VERSION = (2, 7)  # the first with a RectilinearGrid


def write_vtkhdf(series: Series, records: Sequence[int], path: Path) -> None:
    """Write records of a series as VTKHDF.

    Args:
        series: the fields.
        records: numbers of the records to write, ascending.
        path: the file to write.
    """
    grid = series.grid
    with atomic_hdf5(path) as file:
        root = file.create_group("VTKHDF")
        is_revolved = _is_revolved(grid)
        if is_revolved:
            _write_revolved(root, grid)
        else:
            (_write_rectilinear if grid.is_graded else _write_image)(root, grid)
        values = root.create_group("CellData")
        for k in range(len(series.variables)):
            (_write_revolved_values if is_revolved else _write_values)(values, series, records, k)

        # Maps do not change: all steps share one array.
        leading = (1,) if len(records) > 1 else ()
        for it in () if is_revolved else series.maps:
            found = replace(it, read=functools.partial(_last_axes, it.read, len(leading)))
            add_map(values, found, (*leading, *grid.shape))
        for it in series.maps if is_revolved else ():
            state = it.read(tuple((0, n) for n in grid.shape))
            values.create_dataset(it.name, data=_revolved(grid, state)).attrs.update(it.attributes)

        times = np.array([series.times[record] for record in records])
        if len(records) == 1:
            root.create_group("FieldData")["TimeValue"] = times  # VTK's name for it
        else:
            _write_steps(root, series, times)


def _last_axes(read: Callable[[Box], npt.NDArray[Any]], leading: int, box: Box) -> npt.NDArray[Any]:
    """The values of a box with leading axes that the field lacks."""
    return np.asarray(read(box[leading:])).reshape([high - low for low, high in box])


def _write_steps(root: Any, series: Series, times: npt.NDArray[np.float64]) -> None:
    """Write the times [s], and the offset of each step in each array: one entry per step."""
    steps = root.create_group("Steps")
    steps.attrs["NSteps"] = len(times)
    steps["Values"] = times

    offsets = steps.create_group("CellDataOffsets")
    cells = math.prod(_revolved_shape(series.grid)) if _is_revolved(series.grid) else 1
    for variable in series.variables:
        offsets[variable.name] = cells * np.arange(len(times), dtype=np.int64)
    for it in series.maps:
        offsets[it.name] = np.zeros(len(times), dtype=np.int64)
    # All steps share the nodes.
    if _is_revolved(series.grid):
        for name in ("PartOffsets", "PointOffsets"):
            steps[name] = np.zeros(len(times), dtype=np.int64)
        steps["NumberOfParts"] = np.ones(len(times), dtype=np.int64)
        for name in ("CellOffsets", "ConnectivityIdOffsets"):
            steps[name] = np.zeros((len(times), 1), dtype=np.int64)
    elif series.grid.is_graded:
        for name in "XYZ":
            steps[f"{name}CoordinatesOffsets"] = np.zeros(len(times), dtype=np.int64)


def _write_image(root: Any, grid: Grid) -> None:
    """Write the mesh: cells of one width per axis."""
    root.attrs["Version"] = np.array(VERSION, dtype=np.int64)
    # A string of fixed length; VTK does not find any other.
    root.attrs["Type"] = np.bytes_("ImageData")

    # VTK orders axes x, y, z; the extent counts cells, hence nodes 0 to n.
    cells = in_space(grid, grid.shape, 0)[::-1]
    root.attrs["WholeExtent"] = np.array([bound for n in cells for bound in (0, n)], dtype=np.int64)
    corner = [p - h / 2 for p, h in zip(grid.origin, grid.spacing, strict=True)]
    root.attrs["Origin"] = np.array(in_space(grid, corner, 0.0, grid.cut)[::-1])
    root.attrs["Spacing"] = np.array(in_space(grid, grid.spacing, min(grid.spacing))[::-1])
    root.attrs["Direction"] = np.eye(3).ravel()


def _write_rectilinear(root: Any, grid: Grid) -> None:
    """Write the mesh: the ends of the cells along each axis, which all records share."""
    root.attrs["Version"] = np.array(_GRADED_VERSION, dtype=np.int64)
    root.attrs["Type"] = np.bytes_("RectilinearGrid")

    cut = [(name, np.array([place])) for name, place in grid.cut]
    ends = in_space(grid, [grid.ends(axis) for axis in range(grid.ndim)], np.zeros(1), cut)[::-1]
    root.attrs["Dimensions"] = np.array([len(nodes) for nodes in ends], dtype=np.int32)
    for name, nodes in zip("XYZ", ends, strict=True):
        root[f"{name}Coordinates"] = nodes


# Around an axis or a centre cells are hexahedra in space (an UnstructuredGrid). Where the body is
# the same at all angles it is turned by three quarters, so that one sees into it.
_TURN = np.linspace(0, 1.5 * np.pi, 37)
_POLAR = np.linspace(0, np.pi, 25)  # angles from the axis, where a ball is the same at all
_HEXAHEDRON = 12  # the number that VTK has for it


def _is_revolved(grid: Grid) -> bool:
    return grid.system.is_curved and not grid.cut


def _revolved_shape(grid: Grid) -> list[int]:
    return [len(ends) - 1 for ends in _whole_ends(grid)]


def _revolved(grid: Grid, state: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values of all cells in space, (n,); angles that the grid lacks have one value."""
    order = ("", "theta", "r") if grid.system.kind == "spherical" else ("z", "theta", "r")
    given = tuple(slice(None) if name in grid.axis_names else None for name in order)
    return np.broadcast_to(np.asarray(state)[given], _revolved_shape(grid)).reshape(-1)


def _whole_ends(grid: Grid) -> list[Numbers]:
    """Ends of cells along z, theta and r, or of a ball along its longitude, theta and r."""
    ends = {name: grid.ends(axis) for axis, name in enumerate(grid.axis_names)}
    if grid.system.kind == "spherical":
        return [_TURN, ends.get("theta", _POLAR), ends["r"]]
    thickness = np.array([0.0, grid.spacing[-1]])  # along r, the last axis
    return [ends.get("z", thickness), ends.get("theta", _TURN), ends["r"]]


def _write_revolved(root: Any, grid: Grid) -> None:
    """Write the mesh of a body of revolution, which all records share."""
    first, theta, r = np.meshgrid(*_whole_ends(grid), indexing="ij")
    if grid.system.kind == "spherical":
        across = r * np.sin(theta)
        places = (across * np.cos(first), across * np.sin(first), r * np.cos(theta))
    else:
        places = (r * np.cos(theta), r * np.sin(theta), first)

    # The corners of a cell: a quadrangle, and the one above it in the same direction.
    number = np.arange(r.size, dtype=np.int64).reshape(r.shape)
    corners = [
        number[k : k - 1 or None, j : j - 1 or None, i : i - 1 or None]
        for k in (0, 1)
        for j, i in ((0, 0), (0, 1), (1, 1), (1, 0))
    ]
    cells = np.stack(corners, axis=-1).reshape(-1, 8)

    root.attrs["Version"] = np.array(VERSION, dtype=np.int64)
    root.attrs["Type"] = np.bytes_("UnstructuredGrid")
    counts = {"Points": r.size, "Cells": len(cells), "ConnectivityIds": cells.size}
    for name, count in counts.items():
        root[f"NumberOf{name}"] = np.array([count], dtype=np.int64)
    root["Points"] = np.stack(places, axis=-1).reshape(-1, 3)
    root["Connectivity"] = cells.reshape(-1)
    root["Offsets"] = 8 * np.arange(len(cells) + 1, dtype=np.int64)
    root["Types"] = np.full(len(cells), _HEXAHEDRON, dtype=np.uint8)


def _write_revolved_values(
    group: Any, series: Series, records: Sequence[int], variable: int
) -> None:
    grid = series.grid
    n = math.prod(_revolved_shape(grid))
    dataset = group.create_dataset(
        series.variables[variable].name,
        shape=(len(records) * n,),
        dtype=arithmetic_of(series.dtype),
        chunks=(min(n, 1 << 16),),
        compression="gzip",
        compression_opts=1,
    )

    for i, record in enumerate(records):
        state = series.read(record, variable, tuple((0, n) for n in grid.shape))
        dataset[i * n : (i + 1) * n] = _revolved(grid, state)


def _write_values(group: Any, series: Series, records: Sequence[int], variable: int) -> None:
    shape, dtype = series.grid.shape, arithmetic_of(series.dtype)  # VTK has no float16
    itemsize = dtype.itemsize
    # VTK expects as many axes as the box has thickness along, and before them that of the steps.
    leading = (len(records),) if len(records) > 1 else ()
    chunk = chunk_shape(shape, itemsize)
    dataset = group.create_dataset(
        series.variables[variable].name,
        shape=(*leading, *shape),
        dtype=dtype,
        chunks=((1,) if leading else ()) + chunk,
    )
    for i, record in enumerate(records):
        for box in blocks(shape, itemsize, multiple=chunk):
            dataset[(*((i,) if leading else ()), *slices(box))] = series.read(record, variable, box)


# Animations.
Pixels = npt.NDArray[np.uint8]  # (rows, columns, 3)
_MOST_POINTS = 600  # per axis: a film is smaller than a picture
_DPI = 100


@dataclass(frozen=True)
class Film:
    """Content of an animation.

    Attributes:
        series: the fields.
        records: numbers of the records to show, ascending.
        variable: number of the variable.
        cuts: the planes to show.
        caption: caption of the pictures.
    """

    series: Series
    records: Sequence[int]
    variable: int
    cuts: Sequence[CrossSection]
    caption: Caption

    def planes(self, record: int) -> tuple[Plane, ...]:
        """The values of one frame."""
        read = functools.partial(self.series.read, record, self.variable)
        planes = sample(read, self.series.grid, self.cuts, most=_MOST_POINTS)
        passes = self.series.find_maps_at is not None
        maps = self.series.maps_at(record)
        return show_body(planes, self._sampled(maps) if passes else self._materials)

    @functools.cached_property
    def _materials(self) -> tuple[Plane, ...]:
        return self._sampled(self.series.maps)

    def _sampled(self, maps: Sequence[CellMap]) -> tuple[Plane, ...]:
        return sample_materials(maps, self.series.grid, self.cuts, most=_MOST_POINTS)

    def moment(self, record: int) -> str:
        """The time of one frame as text."""
        return moment(
            self.series.steps[record], self.series.times[record], timeless=self.series.timeless
        )

    def limits(self) -> Limits:
        """Lowest and highest value of all frames, so that one scale serves them all."""
        both = [extent(self.planes(record)) for record in self.records]
        return widened((min(low for low, _ in both), max(high for _, high in both)))

    def first(self) -> Drawing:
        """The drawing of the first frame, in which later frames replace the values."""
        record = self.records[0]
        return draw_state(
            self.planes(record), self.caption, moment=self.moment(record), limits=self.limits()
        )


def write_gif(film: Film, path: Path, *, frames_per_second: float) -> None:
    """Write an animated GIF that repeats for ever."""
    from PIL import Image

    # One palette for all frames: per-frame palettes would flicker.
    palette = _palette()

    def indexed(pixels: Pixels) -> Image.Image:
        frame = Image.fromarray(_nearest(pixels, palette))
        frame.putpalette(palette.tobytes())
        return frame

    # A generator: frames are drawn while the file is written, one at a time.
    frames = (indexed(pixels) for pixels in _frames(film, film.first()))
    first = next(frames)
    with atomic_file(path) as part:
        first.save(
            part,
            format="GIF",
            save_all=True,
            append_images=frames,
            # Browsers slow frames below 20 ms down to 100 ms.
            duration=max(20, round(1000 / frames_per_second)),
            loop=0,
            optimize=False,
        )


def write_mp4(film: Film, path: Path, *, frames_per_second: float) -> None:
    """Write an MP4 film with the program ffmpeg.

    Raises:
        UnsupportedError: ffmpeg is not installed, or fails.
    """
    program = shutil.which("ffmpeg")
    if program is None:
        msg = (
            f"{path} needs the program ffmpeg, which was not found; install it, or write a .gif, "
            "which needs nothing"
        )
        raise UnsupportedError(msg)

    # ffmpeg needs the size before the first frame, so draw that one now.
    frames = (_even(pixels) for pixels in _frames(film, film.first()))
    first = next(frames)
    size = f"{first.shape[1]}x{first.shape[0]}"
    rate = f"{frames_per_second:g}"
    source = f"-f rawvideo -pix_fmt rgb24 -s {size} -r {rate} -i -".split()

    # Raw frames go through a pipe; yuv420p is the pixel format that players generally support.
    with atomic_file(path) as part:
        target = ["-an", "-pix_fmt", "yuv420p", "-f", "mp4", str(part)]
        with subprocess.Popen(
            [program, "-y", "-loglevel", "error", *source, *target],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as encoder:
            said = _feed(encoder, itertools.chain([first], frames))

        if encoder.returncode != 0:
            msg = (
                f"{path} cannot be written: ffmpeg says {said.strip() or encoder.returncode}; "
                "write a .gif instead"
            )
            raise UnsupportedError(msg)


def _palette() -> Pixels:
    """256 colours for every frame: those of the scale, of text and of lines, (256, 3)."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    scale = colormaps[FIELD_COLOURS](np.linspace(0, 1, 192))[:, :3]
    greys = np.linspace(0, 1, 48)[:, None].repeat(3, axis=1)
    share = np.linspace(0, 1, 16)[:, None]
    lines = share * to_rgb(LINE_COLOUR) + (1 - share)
    return np.round(255 * np.concatenate([scale, greys, lines])).astype(np.uint8)


def _nearest(pixels: Pixels, palette: Pixels) -> Pixels:
    """Index of the palette colour nearest to each pixel; Pillow's own search rounds colours."""
    # A picture has few distinct colours: search once for each, then look all pixels up.
    packed = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    numbers, place = np.unique(packed, return_inverse=True)
    colours = np.stack([numbers >> 16, numbers >> 8 & 255, numbers & 255], axis=1).astype(np.int32)
    nearest = np.empty(len(colours), dtype=np.uint8)
    # In batches, because the differences are (batch, 256, 3).
    for start in range(0, len(colours), 1024):
        differences = colours[start : start + 1024, None, :] - palette[None].astype(np.int32)
        nearest[start : start + 1024] = (differences**2).sum(axis=2).argmin(axis=1)
    return nearest[place].reshape(pixels.shape[:2])


def _frames(film: Film, drawing: Drawing) -> Iterator[Pixels]:
    for record in film.records:
        drawing.show(film.planes(record), film.moment(record))
        yield drawing.pixels(_DPI)


def _feed(encoder: subprocess.Popen[bytes], frames: Iterable[Pixels]) -> str:
    """Send frames to the encoder until it exits or they end; returns its error output."""
    assert encoder.stdin is not None
    # A broken pipe means that the encoder has exited; its error output says why.
    with contextlib.suppress(BrokenPipeError):
        for frame in frames:
            encoder.stdin.write(frame.tobytes())
    with contextlib.suppress(BrokenPipeError):
        encoder.stdin.close()
    encoder.stdin = None  # communicate() would close it again
    return encoder.communicate()[1].decode(errors="replace")


def _even(pixels: Pixels) -> Pixels:
    """The picture with an even number of rows and columns, which video codecs need."""
    rows, columns = pixels.shape[0] % 2, pixels.shape[1] % 2
    return np.pad(pixels, ((0, rows), (0, columns), (0, 0)), mode="edge")
