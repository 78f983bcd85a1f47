"""Geometry of a body: the rasterization of regions and sources onto the points of the grid.

Three parts: closed surfaces (STL) cut by lines of cell centres, locations (boxes, conditions, label
files) as masks of boxes, and `RasterizedBody`, which lays regions over one another.

A point's state is its filling and the set of sources over it. States are numbered in the order in
which the scan of the grid finds them, block by block (`survey.py`); afterwards the numbers are
fixed. Blocks are anchored to global indices, so a point's state does not depend on the domain
decomposition.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import make_each
from tetris_sim.apps.heat.sections import (
    BoxSection,
    FluidSection,
    Location,
    RegionSection,
    Substance,
    VolumeSource,
)
from tetris_sim.apps.initial import block_shape, first_place, positions, shape_of, slices_in
from tetris_sim.apps.initial_file import (
    HDF5_SUFFIXES,
    Box,
    Reader,
    existing_file,
    open_hdf5,
    open_npy,
    read_grey,
)
from tetris_sim.errors import ConfigError
from tetris_sim.model.formula import ExpressionError, compile_expression
from tetris_sim.model.grid import Grid
from tetris_sim.support.wording import listed

# Points inside a closed surface of triangles (STL).
#
# A line along x through every row of cell centres is cut with all triangles; between an odd cut and
# the next even one it is inside. Whether a line meets a triangle is decided with the signs of three
# areas, and a line exactly through an edge that two triangles share counts for one of them, so that
# a closed surface has an even number of cuts on every line. (trimesh, which reads and checks the
# file, tests points one by one; a body of 10^8 cells needs lines.)

Numbers = npt.NDArray[np.float64]


def open_solid(path: Path, scale: float, offset: tuple[float, ...], grid: Grid, key: str) -> Reader:
    """Open an STL file as a function that returns 1 for the points of a box inside the body and 0
    outside.

    Args:
        path: the STL file.
        scale: unit of its coordinates [m].
        offset: where its origin lies, x, y, z [m].
        grid: of three axes.
        key: for messages.

    Raises:
        ConfigError: the file cannot be read, its surface is not closed, or trimesh is missing.
    """
    if grid.ndim != 3:
        msg = f"{key}: {path} is a body in space, and the grid has {grid.ndim} axes; it needs three"
        raise ConfigError(msg)
    triangles = _read(path, key) * scale + np.array(offset)
    y, z = grid.coordinates(1), grid.coordinates(0)

    # Cuts sorted by line, then by x: `starts` delimits the cuts of each line (as in CSR).
    lines, cuts = _cuts(triangles, y, z)
    order = np.lexsort((cuts, lines))
    lines, cuts = lines[order], cuts[order]
    starts = np.searchsorted(lines, np.arange(len(y) * len(z) + 1))
    x = grid.coordinates(2)

    def read(box: Box) -> npt.NDArray[np.uint8]:
        inside = np.zeros([high - low for low, high in box], np.uint8)
        centres = x[slice(*box[2])]
        for k in range(*box[0]):
            for j in range(*box[1]):
                line = k * len(y) + j

                # A centre is inside if an odd number of cuts lies below it.
                found = cuts[starts[line] : starts[line + 1]]
                if len(found):
                    inside[k - box[0][0], j - box[1][0]] = np.searchsorted(found, centres) % 2
        return inside

    return read


def _refuse_cut_off(path: Path, key: str) -> None:
    """Raise unless an STL file is as long as it says itself.

    A binary file has 80 bytes of text, the number of its triangles as 4 bytes, and 50 bytes for
    each triangle; a file of text begins with `solid` and ends with `endsolid`.

    Raises:
        ConfigError: bytes are missing, or lie behind the last triangle.
    """
    if path.suffix.lower() != ".stl":
        return
    with path.open("rb") as file:
        head, size = file.read(84), path.stat().st_size
        file.seek(max(0, size - 400))
        tail = file.read()

    triangles = int.from_bytes(head[80:], "little")
    is_text = head.lstrip()[:5].lower() == b"solid" and size != 84 + 50 * triangles
    if is_text:
        why = "" if b"endsolid" in tail.lower() else "its last line, endsolid, is missing"
    elif len(head) < 84:
        why = f"it has {size} bytes, and its head alone takes 84"
    else:
        why = f"it has {size} bytes, and the {triangles} triangles of its head take "
        why = "" if size == 84 + 50 * triangles else f"{why}{84 + 50 * triangles}"
    if why:
        msg = f"{key}: {path} is cut off or damaged: {why}; write or copy it again"
        raise ConfigError(msg)


def _read(path: Path, key: str) -> Numbers:
    """Read the corners of the triangles, (n, 3, 3), in the units of the file."""
    try:
        import trimesh
    except ImportError as error:
        msg = f"{key}: {path} needs trimesh, which is not installed: pip install 'tetris-sim[stl]'"
        raise ConfigError(msg) from error

    _refuse_cut_off(path, key)
    try:
        mesh: Any = trimesh.load_mesh(path)
        corners = np.asarray(mesh.triangles, np.float64)
    except Exception as error:  # a damaged file makes it raise whatever comes
        msg = f"{key}: {path} cannot be read as a surface of triangles ({error})"
        raise ConfigError(msg) from error
    if not len(corners):
        msg = f"{key}: {path} holds no triangles"
        raise ConfigError(msg)
    if not mesh.is_watertight:
        msg = (
            f"{key}: the surface in {path} is not closed, so it has no inside; mend it in the "
            "program that wrote it"
        )
        raise ConfigError(msg)
    return corners


def _cuts(triangles: Numbers, y: Numbers, z: Numbers) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Intersect lines along x with triangles: returns the number of each line, k * len(y) + j, and
    x [m].
    """
    lines, cuts = [], []
    for corners in triangles:
        low, high = corners[:, 1:].min(axis=0), corners[:, 1:].max(axis=0)

        # Only lines within the bounding box of the triangle can meet it.
        columns = np.arange(*np.searchsorted(y, (low[0], high[0])) + np.array([0, 1]))
        rows = np.arange(*np.searchsorted(z, (low[1], high[1])) + np.array([0, 1]))
        columns, rows = columns[columns < len(y)], rows[rows < len(z)]
        if not len(columns) or not len(rows):
            continue

        meets, x = _meets(corners, y[columns][None, :], z[rows][:, None])
        k, j = np.nonzero(meets)
        lines.append(rows[k] * len(y) + columns[j])
        cuts.append(x[k, j])
    if not lines:
        return np.empty(0, np.int64), np.empty(0)
    return np.concatenate(lines), np.concatenate(cuts)


def _meets(corners: Numbers, y: Numbers, z: Numbers) -> tuple[npt.NDArray[np.bool_], Numbers]:
    """Whether lines (y, z) along x meet a triangle, and at which x [m]."""
    weights, left = [], []
    for n in range(3):
        a, b = corners[(n + 1) % 3], corners[(n + 2) % 3]
        # The two triangles of an edge see it in opposite directions: computed from the same end,
        # their areas are exactly opposite.
        swapped = tuple(b[1:]) < tuple(a[1:])
        first, last = (b, a) if swapped else (a, b)
        dy, dz = last[1] - first[1], last[2] - first[2]
        area = (dy * (z - first[2]) - dz * (y - first[1])) * (-1 if swapped else 1)
        # A line on the edge belongs to the triangle that sees the edge this way round.
        left.append((area > 0) | ((area == 0) & (not swapped)))
        weights.append(area)

    # Inside if all areas have the same sign; they are the barycentric weights of the intersection.
    total = sum(weights)
    inside = (left[0] & left[1] & left[2]) | ~(left[0] | left[1] | left[2])
    with np.errstate(invalid="ignore", divide="ignore"):
        x = sum(weight * corner[0] for weight, corner in zip(weights, corners, strict=True)) / total
    return inside & (total != 0), np.asarray(x)


# Points of a location: boxes, conditions and label files as functions of a box of global indices.

Mask = npt.NDArray[np.bool_]
Shape = Callable[[Box], Mask | None]  # None where no point of the box belongs
Labels = Callable[[Box], npt.NDArray[Any]]


def make_shape(place: Location, grid: Grid, key: str) -> Shape:
    """Build the mask of a location as a function of a box; None if the box has no point in it.

    Args:
        place: the box and the condition.
        grid: where points lie.
        key: of the location, for messages.

    Raises:
        ConfigError: the condition is no expression of the grid's axes. The function raises it where
            the condition is not finite.
    """
    spans = None if place.box is None else indices(place.box, grid)
    condition = None if place.where is None else make_condition(place.where, grid, f"{key}.where")

    def shape(box: Box) -> Mask | None:
        inside = np.ones(shape_of(box), np.bool_)

        # Cells outside the span are cleared, axis by axis.
        for axis, span in enumerate(spans or ()):
            low, high = (min(max(i - box[axis][0], 0), inside.shape[axis]) for i in span)
            if low >= high:
                return None
            along = np.moveaxis(inside, axis, 0)
            along[:low], along[high:] = False, False
        if condition is not None:
            inside &= condition(box)
        return inside

    return shape


def indices(box: BoxSection, grid: Grid) -> Box:
    """Global indices of the cells whose centres lie in a box, in array order; maybe none."""
    spans = []
    for axis, name in enumerate(grid.axis_names):
        span = getattr(box, name)
        if span is None:
            spans.append((0, grid.shape[axis]))
        else:
            low, high = (_first_beyond(grid, axis, place) for place in span)
            spans.append((low, high))
    return tuple(spans)


def _first_beyond(grid: Grid, axis: int, place: float) -> int:
    """Find the first point at or beyond a coordinate [m], by bisection."""

    def at(index: int) -> float:
        return float(grid.coordinates(axis, index, index + 1)[0])

    return bisect.bisect_left(range(grid.shape[axis]), place, key=at)


def make_condition(text: str, grid: Grid, key: str) -> Callable[[Box], Mask]:
    """Compile a condition in x, y, z as a function of a box.

    Raises:
        ConfigError: invalid expression; the function raises it where the value is not finite.
    """
    try:
        expression = compile_expression(text, grid.axis_names)
    except ExpressionError as error:
        msg = f"{key}: {error}"
        raise ConfigError(msg) from error

    def condition(box: Box) -> Mask:
        values = expression(**dict(zip(grid.axis_names, positions(grid, box), strict=True)))
        found = np.broadcast_to(np.asarray(values, np.float64), shape_of(box))
        if not np.isfinite(found).all():
            place, where = first_place(~np.isfinite(found), grid, box)
            msg = f"{key}: the expression is {found[place]} at {where}; it must be finite"
            raise ConfigError(msg)
        return np.not_equal(found, 0.0)

    return condition


def open_labels(region: RegionSection, grid: Grid, key: str) -> Labels:
    """Open a label file as a function that reads the labels of any box of the grid.

    Args:
        region: with `labels`.
        grid: where points lie.
        key: of the region, for messages.

    Raises:
        ConfigError: the file is missing, cannot be read, or does not fit the grid.
    """
    assert region.labels is not None
    path, at = existing_file(region.labels, f"{key}.labels"), f"{key}.labels"
    suffix = path.suffix.lower()
    if region.dataset is not None and suffix not in HDF5_SUFFIXES:
        msg = f"{key}.dataset: {path} is no HDF5 file, so it has no datasets"
        raise ConfigError(msg)

    if suffix == ".stl":
        return open_solid(path, region.scale, region.offset, grid, at)
    if suffix == ".npy":
        return open_npy(path, grid, at)
    if suffix in HDF5_SUFFIXES:
        return open_hdf5(path, region.dataset, grid, at)
    return _open_picture(path, grid, at)


def _open_picture(path: Path, grid: Grid, key: str) -> Labels:
    """Read brightness from 0 to 255 over x and y as labels, the same for all z."""
    if grid.ndim == 1:
        msg = f"{key}: {path} is a picture of x and y, and the grid has one axis"
        raise ConfigError(msg)
    plane = Grid(grid.shape[-2:], grid.spacing[-2:], grid.origin[-2:])
    grey = np.rint(255 * read_grey(path, plane, key)).astype(np.uint8)
    upright = grey[::-1]  # the first row of a picture is its top, where y is largest

    def read(box: Box) -> npt.NDArray[Any]:
        part = upright[tuple(slice(*span) for span in box[-2:])]
        return np.broadcast_to(part, shape_of(box))

    return read


States = npt.NDArray[np.int32]
_KEPT_BLOCKS = 8  # of 2^18 states each: a block and those that touch it
_NOTHING = -1


@dataclass(frozen=True)
class Filling:
    """Filling of a point: a substance, a fluid, or nothing.

    Attributes:
        name: shown to users.
        substance: if it belongs to the body.
        fluid: if it is a fluid around the body.
    """

    name: str
    substance: Substance | None = None
    fluid: FluidSection | None = None


@dataclass(frozen=True)
class Layer:
    """One region, or one label of it, with its filling.

    Attributes:
        region: its number.
        filling: number of its filling.
        label: of its points in the label file; None for all points of the region.
    """

    region: int
    filling: int
    label: int | None = None


class RasterizedBody:
    """The state of every point, computed block by block and cached.

    Attributes:
        fillings: of the points, by number.
        states: (filling, numbers of the sources) by number.
        covered: numbers of the regions and of the sources found at some point so far.
        mistakes: found so far, by key.
    """

    def __init__(
        self,
        grid: Grid,
        regions: Sequence[RegionSection],
        sources: Sequence[tuple[int, VolumeSource]],
        substances: Sequence[Substance],
    ) -> None:
        """Open all files and compile all conditions.

        Args:
            grid: where points lie.
            regions: later ones over earlier ones.
            sources: with their number in the configuration.
            substances: known materials; regions may name them.

        Raises:
            ConfigError: a file or a condition cannot be used.
        """
        self.grid, self.regions = grid, regions
        self.fillings: list[Filling] = [Filling(it.name, substance=it) for it in substances]
        self.layers: list[Layer] = []
        self.covered: tuple[set[int], set[int]] = (set(), set())
        self.mistakes: dict[str, str] = {}

        # Making the painters appends to `layers` and `fillings`; the table below needs all of them.
        self._painters = make_each(
            functools.partial(self._painter, n, region) for n, region in enumerate(regions)
        )
        self._filling_of_layer = np.array([it.filling for it in self.layers], np.int32)
        shapes = make_each(
            functools.partial(make_shape, source, grid, f"model.sources.{number}")
            for number, source in sources
        )
        self._sources = [
            (number, shape, self._layers_of(source))
            for (number, source), shape in zip(sources, shapes, strict=True)
        ]

        # The first states are the fillings without sources, so their numbers coincide.
        self.states: list[tuple[int, tuple[int, ...]]] = [
            (n, ()) for n in range(len(self.fillings))
        ]
        self._numbers = {state: n for n, state in enumerate(self.states)}

        # Neighbouring boxes read the same blocks.
        self._block = functools.lru_cache(maxsize=_KEPT_BLOCKS)(self._compute_block)

    def __call__(self, box: Box) -> States:
        """Return the states of the points of a box."""
        found = np.empty(shape_of(box), np.int32)
        for index, inside in blocks_of(self.grid.shape, box):
            block = block_box(self.grid.shape, index)
            found[slices_in(inside, box)] = self._block(index)[slices_in(inside, block)]
        return found

    def blocks(self) -> Iterator[Box]:
        """Iterate over the anchored blocks of the whole grid."""
        whole = tuple((0, n) for n in self.grid.shape)
        return (inside for _, inside in blocks_of(self.grid.shape, whole))

    def _painter(self, number: int, region: RegionSection) -> Callable[[Box, States], None]:
        """Build the function that rasterizes a region into the layers of a box."""
        key = f"model.regions.{number}"
        shape = make_shape(region, self.grid, key)
        labels = None if region.labels is None else open_labels(region, self.grid, key)
        names = {None: region.material} if region.materials is None else region.materials

        layers: dict[int | None, int] = {}
        for label, name in names.items():
            layers[label] = len(self.layers)
            self.layers.append(Layer(number, self._filling(region, name), label))
        return functools.partial(self._paint, number, shape, labels, layers)

    def _paint(
        self,
        number: int,
        shape: Shape,
        labels: Labels | None,
        layers: dict[int | None, int],
        box: Box,
        found: States,
    ) -> None:
        inside = shape(box)
        if inside is None:
            return

        if labels is None:
            found[inside] = layers[None]
        # A single material: every label but 0 belongs to the region.
        elif None in layers:
            inside = inside & (labels(box) != 0)
            found[inside] = layers[None]
        else:
            self._paint_labels(number, inside, labels(box), layers, (box, found))

        if inside.any():
            self.covered[0].add(number)

    def _paint_labels(
        self,
        number: int,
        inside: npt.NDArray[np.bool_],
        labels: npt.NDArray[np.generic],
        layers: dict[int | None, int],
        into: tuple[Box, States],
    ) -> None:
        box, found = into
        for value in np.unique(labels[inside]):
            here = inside & (labels == value)

            # Labels are whole numbers; a fractional value matches none.
            if (layer := layers.get(int(value) if value == int(value) else None)) is not None:
                found[here] = layer
                continue
            key = f"model.regions.{number}.materials"
            if key not in self.mistakes:
                _, where = first_place(here, self.grid, box)
                known = listed([str(label) for label in layers], "and")
                self.mistakes[key] = (
                    f"{value} is in the file, at {where}, and has no material; known are {known}"
                )

    def _filling(self, region: RegionSection, name: str | None) -> int:
        """Return the number of the filling of a region, adding fluids and voids as they appear."""
        if name is not None:
            return next(n for n, it in enumerate(self.fillings) if it.name == name)
        kind = "fluid" if region.fluid is not None else "void"
        filling = Filling(region.name or kind, fluid=region.fluid)
        if filling not in self.fillings:
            self.fillings.append(filling)
        return self.fillings.index(filling)

    def _layers_of(self, source: VolumeSource) -> npt.NDArray[np.bool_]:
        """Mask of the layers that a source can heat: those of the body, of its material and its
        region.
        """
        return np.array(
            [
                (filling := self.fillings[layer.filling]).substance is not None
                and source.material in (None, filling.name)
                and source.region in (None, self.regions[layer.region].name)
                for layer in self.layers
            ],
            np.bool_,
        )

    def _compute_block(self, index: tuple[int, ...]) -> States:
        box = block_box(self.grid.shape, index)

        # Later regions overwrite earlier ones: the painter's algorithm.
        layers = np.full(shape_of(box), _NOTHING, np.int32)
        for paint in self._painters:
            paint(box, layers)

        bare = layers == _NOTHING
        if bare.any() and "model.regions" not in self.mistakes:
            _, where = first_place(bare, self.grid, box)
            self.mistakes["model.regions"] = (
                f"no region covers {where}; let the first region be the whole box, or say what "
                "is there, {void: true} for nothing"
            )

        # Sources refer to the layer seen at a point, which knows its region and material.
        states = self._filling_of_layer[layers]
        for number, shape, heated in self._sources:
            inside = shape(box)
            if inside is None:
                continue
            inside &= heated[layers]
            if inside.any():
                self.covered[1].add(number)
                states[inside] = self._with_source(states[inside], number)
        return states

    def _with_source(self, states: States, source: int) -> States:
        """Return the states of points with one more source, numbering new states."""
        # A table from old to new state: far fewer states than points are translated one by one.
        new = np.zeros(len(self.states), np.int32)
        for state in np.unique(states):
            filling, sources = self.states[state]
            wanted = (filling, (*sources, source))
            if wanted not in self._numbers:
                self._numbers[wanted] = len(self.states)
                self.states.append(wanted)
            new[state] = self._numbers[wanted]
        return new[states]


def blocks_of(shape: tuple[int, ...], box: Box) -> list[tuple[tuple[int, ...], Box]]:
    """List the anchored blocks that share points with a box: number along each axis, and shared
    points.
    """
    ranges = [
        range(low // width, -(-high // width))
        for (low, high), width in zip(box, block_shape(shape), strict=True)
    ]
    found = []
    for index in itertools.product(*ranges):
        block = block_box(shape, index)
        inside = tuple(
            (max(b[0], own[0]), min(b[1], own[1])) for b, own in zip(block, box, strict=True)
        )
        found.append((index, inside))
    return found


def block_box(shape: tuple[int, ...], index: tuple[int, ...]) -> Box:
    """The points of an anchored block."""
    return tuple(
        (i * width, min((i + 1) * width, n))
        for i, width, n in zip(index, block_shape(shape), shape, strict=True)
    )
