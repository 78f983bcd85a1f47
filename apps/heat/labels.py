"""Files of other programs: label files, which are surfaces of regions, and sections that stand for
as many as a floorplan has blocks or a list has files.
"""

from __future__ import annotations

import copy
import functools
import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.heat.sections import SOLIDS, MaterialSection, RegionSection
from tetris_sim.apps.heat.sources import BeamSource, VolumeSource, left_over
from tetris_sim.apps.heat.surfaces import (
    Crossings,
    Mask,
    Numbers,
    Places,
    Surfaces,
    TriangleSurface,
    Voxels,
    aligned,
    crossings_of,
)
from tetris_sim.apps.initial import shape_of
from tetris_sim.apps.initial_file import (
    HDF5_SUFFIXES,
    Box,
    Reader,
    existing_file,
    open_hdf5,
    open_npy,
    read_grey,
)
from tetris_sim.apps.voxels import open_voxels
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.support.wording import first_line, listed

if TYPE_CHECKING:
    from tetris_sim.apps.heat.model import HeatModel

_SAGITTA = 1e-4  # of the size of a shape: how far straight parts may be off its arcs
_UNITS = {1: 0.0254, 2: 0.3048, 4: 1e-3, 5: 1e-2, 6: 1.0, 9: 2.54e-5, 13: 1e-6}  # of $INSUNITS [m]
_OUTLINES = ("LWPOLYLINE", "POLYLINE", "CIRCLE", "ELLIPSE", "SPLINE", "LINE", "ARC")


def with_blocks(model: HeatModel) -> HeatModel:
    """The model with a region or source for each block of each floorplan, and a region for each
    file of a list.

    Blocks whose heat capacity and resistivity a floorplan says are of materials of their own.
    """
    several = any(isinstance(it.labels, tuple) for it in model.regions)
    if not several and not any(
        getattr(it, "floorplan", None) for it in (*model.regions, *model.sources)
    ):
        return model
    materials = dict(model.materials)
    regions, sources = list[RegionSection](), list[VolumeSource | BeamSource]()
    for number, region in enumerate(model.regions):
        for block, box, name in region.blocks() if region.floorplan else ():
            own = {"floorplan": None, "at": None, "box": box, "name": name}
            if block.capacity is not None and block.resistivity is not None:
                # The file has the product of density and specific heat only, and no more counts.
                materials[name] = MaterialSection(
                    conductivity=1 / block.resistivity, density=1, specific_heat=block.capacity
                )
                own["material"] = name
            regions.append(region.model_copy(update=own))
            regions[-1]._written = (number, name)
        for name, one in region.of_files():
            regions.append(one)
            one._written = (number, name)
        if region.floorplan is None and not isinstance(region.labels, tuple):
            regions.append(region)
            region._written = (number, "")

    # Mistakes are told where the floorplan is, so every section knows where it was written.
    begins = list[int]()
    for number, given in enumerate(model.sources):
        begins.append(len(sources))
        if isinstance(given, BeamSource):
            sources.append(given)
            given._written = (number, "")
            continue
        for source in given.of_blocks():
            sources.append(source)
            source._written = (number, "" if source is given else str(source.name))
    # All parts have been checked, each by itself.
    changed = {"materials": materials, "regions": tuple(regions), "sources": tuple(sources)}
    whole = model.model_copy(update=changed)
    whole._left_over = tuple((begins[n], told) for n, told in left_over(model.sources))
    return whole


def as_in_file(model: HeatModel, path: KeyPath, told: str) -> tuple[KeyPath, str]:
    """The key path of a mistake, and what it says, with regions and sources as they were written:
    those of blocks are the one with the floorplan.
    """
    kind, number = path[1:3] if len(path) > 2 else ("", "")
    sections: Any = getattr(model, str(kind), ()) if kind in ("regions", "sources") else ()
    if not isinstance(number, int) or not number < len(sections):
        return path, told
    written = sections[number]._written
    if written is None:
        return path, told
    return (*path[:2], written[0], *path[3:]), f"{written[1]}: {told}" if written[1] else told


def open_labels(region: RegionSection, grid: Grid, key: str) -> Surfaces:
    """Open a label file, which gives the labels of any box of the grid.

    Args:
        region: with `labels`.
        grid: where points lie.
        key: of the region, for messages.

    Raises:
        ConfigError: the file is missing, cannot be read, or does not fit the grid.
    """
    assert isinstance(region.labels, str)
    text, at = region.labels, f"{key}.labels"
    # Brackets and stars may be part of a name.
    is_file = Path(text).is_file()
    is_many = not is_file and (glob.has_magic(text) or Path(text).is_dir())
    path = Path(text) if is_many else existing_file(text, at)
    suffix = path.suffix.lower()
    if region.dataset is not None and suffix not in (*HDF5_SUFFIXES, ".vti"):
        msg = f"{key}.dataset: {path} is no HDF5 or .vti file, so it has no datasets"
        raise ConfigError(msg)
    if region.layer is not None and suffix != ".dxf":
        msg = f"{key}.layer: {path} is no drawing (.dxf), so it has no layers"
        raise ConfigError(msg)

    if suffix in (*SOLIDS, ".dxf"):
        if grid.system.is_curved:
            msg = (
                f"{at}: {path} is a surface in x, y and z, and the grid has the axes "
                f"{listed(grid.axis_names[::-1], 'and')}; write a condition of these (where)"
            )
            raise ConfigError(msg)
        if suffix != ".dxf":
            return TriangleSurface(path, region.scale or 1.0, region.offset, grid, at)
        rings = _read_drawing(path, region.layer, region.scale, at)
        return PolygonSurface([it + np.array(region.offset[:2]) for it in rings], grid, at)

    found = open_voxels(text, region.dataset, grid.ndim, at)
    if found is not None:
        read = found.on(grid, region.scale, region.offset, at)
    elif suffix == ".npy":
        read = open_npy(path, grid, at)
    elif suffix in HDF5_SUFFIXES:
        read = open_hdf5(path, region.dataset, grid, at)
    else:
        read = _open_picture(path, region, grid, at)
    return Voxels(_by_ranges(read, region.ranges), grid)


def _by_ranges(read: Reader, ranges: Sequence[tuple[int, int]]) -> Reader:
    """A reader of the lowest number of the range that a number is in; others are as they are."""
    if all(low == high for low, high in ranges):
        return read
    low, high = np.array(sorted(ranges)).T

    def of(box: Box) -> npt.NDArray[Any]:
        values = read(box)
        # Only as large as the box: a scan may be larger than what memory holds.
        at = np.searchsorted(low, values, "right") - 1
        inside = (at >= 0) & (values <= high[at])
        return np.where(inside, low[at], values)

    return of


def _open_picture(path: Path, region: RegionSection, grid: Grid, key: str) -> Reader:
    """Read brightness from 0 to 255 over x and y as labels, the same for all z: that of the cells
    of the grid, or over the box of the region.
    """
    if grid.ndim == 1:
        msg = f"{key}: {path} is a picture of x and y, and the grid has one axis"
        raise ConfigError(msg)
    spans = [getattr(region.box, name, None) for name in grid.axis_names[-2:]]
    plane = Grid(grid.shape[-2:], grid.spacing[-2:], grid.origin[-2:])
    wanted = None if None in spans or grid.system.is_curved else grid.shape[-2:]
    grey = np.rint(255 * read_grey(path, plane, key, any_shape=wanted is not None))
    upright = grey.astype(np.uint8)[::-1]  # the first row of a picture is its top

    if wanted is None or upright.shape == wanted:
        own = [np.arange(n) for n in grid.shape[-2:]]
    else:
        # A pixel is that share of the box, and a cell has the pixel that its centre is in.
        own = []
        for axis, span in enumerate(spans, grid.ndim - 2):
            low, high = span or grid.bounds(axis)
            n = upright.shape[axis - grid.ndim]
            at = np.floor((grid.coordinates(axis) - low) / (high - low) * n)
            own.append(np.clip(at, 0, n - 1).astype(np.int64))

    def read(box: Box) -> npt.NDArray[Any]:
        part = upright[np.ix_(*(it[a:b] for it, (a, b) in zip(own, box[-2:], strict=True)))]
        return np.broadcast_to(part, shape_of(box))

    return read


# Drawings: closed outlines of x and y. A place is inside where a line from it crosses an odd number
# of them, so that an outline within another one is a hole.


@dataclass(frozen=True, eq=False)
class _OutlineCuts:
    """Where outlines cut lines of cell centres, sorted by line and place.

    Attributes:
        line: which line.
        above: the first centre beyond.
        place: along the line [m].
        normal: of the outline in the plane, across the line and along it, (2, n).
    """

    line: Places
    above: Places
    place: Numbers
    normal: Numbers


class PolygonSurface:
    """Outlines in x and y, upright along z: 1 inside, 0 outside.

    Args:
        rings: corners of each, (n, 2), x and y [m].
        grid: of two or three axes.
        key: for messages.

    Raises:
        ConfigError: the grid has one axis.
    """

    def __init__(self, rings: Sequence[Numbers], grid: Grid, key: str) -> None:
        if grid.ndim == 1:
            msg = f"{key}: a drawing is one of x and y, and the grid has one axis"
            raise ConfigError(msg)
        ends = [(it, np.roll(it, -1, axis=0)) for it in rings]
        self._ends = tuple(np.concatenate(it) for it in zip(*ends, strict=True))
        self._place(grid)

    def _place(self, grid: Grid) -> None:
        self._grid = grid
        self._cuts = functools.cache(self._cut)
        self._inside = functools.cache(self._fill)

    def on(self, grid: Grid) -> PolygonSurface:
        """The same outlines on another grid."""
        other = copy.copy(self)
        other._place(grid)
        return other

    def __call__(self, box: Box) -> npt.NDArray[np.uint8]:
        """Return 1 for the cells of a box inside and 0 for those outside."""
        part = self._inside()[tuple(slice(*it) for it in box[-2:])]
        return np.broadcast_to(part.astype(np.uint8), shape_of(box))

    def at(self, places: Places) -> Mask:
        """Whether cells (n, ndim) are inside."""
        return np.asarray(self._inside()[tuple(places[:, -2:].T)], np.bool_)

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """See `Surfaces`."""
        which = axis - self._grid.ndim + 2  # 0 is y, 1 is x
        if which < 0 or not len(below):
            return aligned(len(below))
        cuts, n = self._cuts(which), self._grid.shape[axis]
        keys = cuts.line * (n + 1) + cuts.above
        wanted = below[:, self._grid.ndim - 1 - which] * (n + 1) + below[:, axis] + 1
        if not len(keys):
            return aligned(len(below))
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        normal = np.zeros((self._grid.ndim, len(below)))
        normal[axis], normal[-1 - which] = cuts.normal[1, found], cuts.normal[0, found]
        cut = crossings_of(normal, axis, cuts.place[found])
        return cut.where(keys[found] == wanted, aligned(len(below)))

    def _cut(self, which: int) -> _OutlineCuts:
        """Intersect lines of centres along y (0) or x (1) with all edges."""
        along, across = (
            self._grid.coordinates(self._grid.ndim - 2 + it) for it in (which, 1 - which)
        )
        # Columns are x and y: along x they are as they stand.
        first, last = (it if which else it[:, ::-1] for it in self._ends)
        low, high = (
            np.searchsorted(across, find(first[:, 1], last[:, 1]))
            for find in (np.minimum, np.maximum)
        )

        # A corner on a line belongs to the edge above it, so that every outline cuts in and out.
        counts = high - low
        edge = np.repeat(np.arange(len(counts)), counts)
        line = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts) + low[edge]
        step = last[edge] - first[edge]
        # An edge along the lines cuts none of them: it ends on two others that do.
        share = (across[line] - first[edge, 1]) / step[:, 1]
        place = first[edge, 0] + share * step[:, 0]
        order = np.lexsort((place, line))
        above = np.searchsorted(along, place)
        normal = np.stack([-step[:, 0], step[:, 1]])
        return _OutlineCuts(line[order], above[order], place[order], normal[:, order])

    def _fill(self) -> Mask:
        """Which cells of the plane are inside, (ny, nx)."""
        cuts, (ny, nx) = self._cuts(1), self._grid.shape[-2:]
        turns = np.zeros((ny, nx + 1), np.int32)
        np.add.at(turns, (cuts.line, cuts.above), 1)
        return np.asarray(np.cumsum(turns, axis=1)[:, :nx] % 2 == 1)


def _read_drawing(path: Path, layer: str | None, scale: float | None, key: str) -> list[Numbers]:
    """The closed outlines of a layer of a DXF file, (n, 2) each [m]."""
    try:
        import ezdxf
        from ezdxf.disassemble import recursive_decompose
        from ezdxf.path import make_path
    except ImportError as error:
        msg = f"{key}: {path} needs ezdxf, which is not installed: pip install 'tetris-sim[dxf]'"
        raise ConfigError(msg) from error

    try:
        drawing = ezdxf.readfile(path)
        # What is drawn in blocks is drawn wherever these are inserted.
        shapes = [
            it
            for it in recursive_decompose(drawing.modelspace())
            if it.dxftype() in _OUTLINES and (layer is None or it.dxf.layer == layer)
        ]
        names = sorted({it.dxf.layer for it in recursive_decompose(drawing.modelspace())})
        unit = scale or _UNITS.get(int(drawing.header.get("$INSUNITS", 0)), 1.0)
        outlines = [(it, make_path(it)) for it in shapes]
    except Exception as error:  # a damaged file makes it raise whatever comes
        msg = f"{key}: {path} cannot be read as a drawing ({first_line(error)})"
        raise ConfigError(msg) from error

    layers = sorted({it.dxf.layer for it in shapes})
    if not shapes or len(layers) > 1:
        asked = f"layer {layer}" if layer is not None else "it"
        told = f"{asked} has outlines in {len(layers)} layers"
        msg = f"{key}: {path}: {told}; give layer, one of {listed(names, 'and') or 'none'}"
        raise ConfigError(msg)
    # What is open would be closed in a way that nobody has drawn.
    rings = []
    for shape, outline in outlines:
        if not outline.is_closed:
            told = f"a {shape.dxftype()} of layer {shape.dxf.layer} is open, so it has no inside"
            msg = f"{key}: {path}: {told}; join what belongs together to closed polylines"
            raise ConfigError(msg)
        corners = np.array([(it.x, it.y) for it in outline.control_vertices()])
        fine = _SAGITTA * float(np.ptp(corners, axis=0).max())
        points = np.array([(it.x, it.y) for it in outline.flattening(fine)])
        rings.append(points[:-1] * unit)
    return rings
