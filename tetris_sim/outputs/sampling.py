"""Samples for pictures, some 1500 points per axis of a line or of planes, and at the points of
meshes, read block by block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Coordinates, Grid
from tetris_sim.model.method import Box
from tetris_sim.outputs.regions import blocks
from tetris_sim.support.files import atomic_file
from tetris_sim.support.wording import first_line

if TYPE_CHECKING:
    from tetris_sim.outputs.series import Series

MOST_POINTS = 1500  # per axis: more than a screen shows
_ON_FACE = 1e-6  # of the box: how far points may lie beyond it by rounding
_ROUND_POINTS = 800  # of pictures that are made of squares
Values = npt.NDArray[np.floating[Any]]
Reader = Callable[[Box], Values]  # a box -> one variable's values in it, of the box's shape


@dataclass(frozen=True)
class Plane:
    """A field along one axis (a line) or on two (a plane), thinned out where the grid is fine.

    Attributes:
        axes: names of its axes in array order: ("x",), or (rows, columns) such as ("y", "x").
        positions: positions of the points per axis [m].
        edges: ends of the cells that the points represent per axis [m], (n + 1,).
        bounds: the box's extent per axis [m].
        values: (n,) or (rows, columns).
        place: name of the axis that is cut and position of the cut [m]; None without a cut.
        materials: numbers of the points' materials, of the shape of the values; None if there is
            only one.
    """

    axes: tuple[str, ...]
    positions: tuple[npt.NDArray[np.float64], ...]
    edges: tuple[npt.NDArray[np.float64], ...]
    bounds: tuple[tuple[float, float], ...]
    values: Values
    place: tuple[str, float] | None = None
    materials: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class CrossSection:
    """A cut through a grid: `index` along `axis`; `axis` is None if the grid is taken whole."""

    axis: int | None
    index: int = 0


def default_cuts(grid: Grid) -> tuple[CrossSection, ...]:
    """The whole of a line or plane; the three middle planes of a 3D grid, normal to z, y and x."""
    if grid.ndim < 3:
        return (CrossSection(None),)
    return tuple(CrossSection(axis, _middle(grid, axis)) for axis in range(grid.ndim))


def _middle(grid: Grid, axis: int) -> int:
    """The cell in the middle of the box; of two that meet there, the upper one."""
    low, high = grid.bounds(axis)
    # The small shift decides for the upper cell whatever the rounding.
    return grid.cell_at(axis, (low + high) / 2 + 1e-9 * (high - low))


def cuts_at(grid: Grid, places: Iterable[tuple[str, float]]) -> tuple[CrossSection, ...]:
    """Planes of a 3D grid through the cells at given positions.

    Args:
        grid: the points.
        places: name of an axis and position along it [m].

    Raises:
        ConfigError: the grid is not 3D, or a position lies outside it.
    """
    if grid.ndim < 3:
        msg = f"a slice is for 3D fields; this one has {grid.ndim} axes and is drawn whole"
        raise ConfigError(msg)

    cuts = []
    for name, position in places:
        axis = axis_of_slice(grid, name, position)
        cuts.append(CrossSection(axis, grid.cell_at(axis, position)))

    return tuple(cuts)


def sample(
    read: Reader,
    grid: Grid,
    cuts: Sequence[CrossSection],
    *,
    most: int = MOST_POINTS,
    turned: bool = True,
) -> tuple[Plane, ...]:
    """Read the points that pictures of these cuts need, block by block.

    Args:
        read: reads a box of the field.
        grid: its points.
        cuts: the cuts.
        most: upper limit of points per axis.
        turned: whether planes of a body of revolution look like it: mirrored at its axis, round
            where theta goes around.
    """
    planes = [_sample_cut(read, grid, cut, most) for cut in cuts]
    if not (turned and grid.system.is_curved):
        return tuple(planes)
    found = []
    for cut, plane in zip(cuts, planes, strict=True):
        there = _opposite(grid, cut)
        other = plane if there is None else _sample_cut(read, grid, there, most)
        is_whole = there is not None or "theta" not in grid.system.axes
        found.append(_turned(plane, other.values if is_whole else None, grid.system, most))
    return tuple(found)


def _opposite(grid: Grid, cut: CrossSection) -> CrossSection | None:
    """The cut on the other side of the axis of a body that goes around it; None if there is
    none.
    """
    if cut.axis is None or grid.axis_names[cut.axis] != "theta":
        return None
    low, high = grid.bounds(cut.axis)
    if not grid.system.is_ring("theta", high - low):
        return None
    at = float(grid.coordinates(cut.axis, cut.index, cut.index + 1)[0])
    # Of two cells at equal distances, the upper one.
    there = low + (at + math.pi - low + 1e-9) % math.tau
    return CrossSection(cut.axis, grid.cell_at(cut.axis, there))


def _sample_cut(read: Reader, grid: Grid, cut: CrossSection, most: int) -> Plane:
    # The axis of the cut keeps a single index, the others every stride-th one.
    kept = [axis for axis in range(grid.ndim) if axis != cut.axis]
    indices = [
        np.array([cut.index]) if axis == cut.axis else _thinned(n, most)
        for axis, n in enumerate(grid.shape)
    ]
    values = _read_points(
        read, [1 if axis == cut.axis else n for axis, n in enumerate(grid.shape)], indices, cut
    )

    # The cut is shown at the centre of its cells, not at the position that was asked for.
    place = None
    if cut.axis is not None:
        place = (
            grid.axis_names[cut.axis],
            float(grid.coordinates(cut.axis, cut.index, cut.index + 1)[0]),
        )

    return Plane(
        axes=tuple(grid.axis_names[axis] for axis in kept),
        positions=tuple(grid.positions(axis, indices[axis]) for axis in kept),
        edges=tuple(_edges(grid, axis, indices[axis], most) for axis in kept),
        bounds=tuple(grid.bounds(axis) for axis in kept),
        values=values.reshape([len(indices[axis]) for axis in kept]),
        place=place,
    )


def _turned(plane: Plane, other: Values | None, system: Coordinates, most: int) -> Plane:
    """A plane of r as it lies in space, with the values beyond the axis, if there are any."""
    if plane.axes == ("theta", "r"):
        return _in_space(plane, system, min(most, _ROUND_POINTS))
    if plane.axes[-1] != "r":
        # Unrolled: arcs of the radius at which the body is cut.
        assert plane.place is not None
        arcs = (plane.positions[1] * plane.place[1], plane.edges[1] * plane.place[1])
        low, high = (bound * plane.place[1] for bound in plane.bounds[1])
        return replace(
            plane,
            axes=(plane.axes[0], "r theta"),
            positions=(plane.positions[0], arcs[0]),
            edges=(plane.edges[0], arcs[1]),
            bounds=(plane.bounds[0], (low, high)),
        )

    # A half plane; the other half is alike, if the body is the same at all angles.
    low, high = plane.bounds[-1]
    if low != 0 or other is None:
        return plane
    places, ends = plane.positions[-1], plane.edges[-1]
    return replace(
        plane,
        positions=(*plane.positions[:-1], np.concatenate([-places[::-1], places])),
        edges=(*plane.edges[:-1], np.concatenate([-ends[:0:-1], [0.0], ends[1:]])),
        bounds=(*plane.bounds[:-1], (-high, high)),
        values=np.concatenate([other[..., ::-1], plane.values], axis=-1),
    )


def _in_space(plane: Plane, system: Coordinates, most: int) -> Plane:
    """A plane of theta and r on equal squares of two straight axes; NaN outside of the body."""
    (first, last), (_, radius) = plane.bounds
    ends = np.linspace(-radius, radius, most + 1)
    middles = (ends[1:] + ends[:-1]) / 2
    up, across = middles[:, None], middles[None, :]

    # Around a centre theta begins at the upper end of the axis, and both sides are alike.
    around = system.kind == "cylindrical"
    angle = np.arctan2(up, across) if around else np.arctan2(np.abs(across), up)
    angle = first + (angle - first) % (2 * np.pi) if around else angle
    r = np.hypot(up, across)
    rows, columns = (
        np.searchsorted(edges, it, "right") - 1
        for edges, it in zip(plane.edges, (angle, r), strict=True)
    )
    inside = (rows >= 0) & (rows < len(plane.values)) & (angle <= last)
    inside &= (columns >= 0) & (columns < plane.values.shape[1])
    values = np.full(inside.shape, np.nan)
    values[inside] = plane.values[rows[inside], columns[inside]]
    return replace(
        plane,
        axes=("y", "x") if around else ("z", "x"),
        positions=(middles, middles),
        edges=(ends, ends),
        bounds=((-radius, radius),) * 2,
        values=values,
    )


def _edges(
    grid: Grid, axis: int, indices: npt.NDArray[np.int64], most: int
) -> npt.NDArray[np.float64]:
    """The ends of the cells that sampled points represent, each point being central."""
    stride = _stride(grid.shape[axis], most)
    # Graded: true cell faces, clipped where the outermost samples reach beyond the box.
    if grid.edges and grid.edges[axis] is not None:
        first = np.append(indices, indices[-1] + stride) - (stride - 1) // 2
        return np.asarray(grid.ends(axis)[np.clip(first, 0, grid.shape[axis])])

    # Uniform: one stride of cells around each sample.
    middles, width = grid.positions(axis, indices), stride * grid.spacing[axis]
    return np.concatenate([middles - width / 2, [middles[-1] + width / 2]])


def _read_points(
    read: Reader, shape: Sequence[int], indices: Sequence[npt.NDArray[np.int64]], cut: CrossSection
) -> Values:
    """The values at the product of `indices`; `shape` is the grid's, with 1 along the axis cut."""
    values: Values = np.empty([len(index) for index in indices])
    for block in blocks(shape, values.itemsize):
        # The part of the result that this block fills, and the smallest box of it that is needed.
        place, box = [], []
        for axis, (low, high) in enumerate(block):
            # `shape` has length 1 along the axis cut, so shift its only plane to the cut.
            shift = cut.index if axis == cut.axis else 0
            first, last = np.searchsorted(indices[axis], (low + shift, high + shift))
            place.append(slice(int(first), int(last)))
            wanted = indices[axis][first:last]
            box.append((int(wanted[0]), int(wanted[-1]) + 1) if len(wanted) else (0, 0))

        if any(low == high for low, high in box):
            continue
        # The box is contiguous; the stride picks the samples out of it.
        steps = [
            slice(None, None, _step(index[part]))
            for index, part in zip(indices, place, strict=True)
        ]
        values[tuple(place)] = read(tuple(box))[tuple(steps)]

    return values


def _stride(n: int, most: int) -> int:
    return math.ceil(n / most)


def _thinned(n: int, most: int) -> npt.NDArray[np.int64]:
    """Every stride-th index, centred: as far from one end as from the other."""
    stride = _stride(n, most)
    count = math.ceil(n / stride)
    return np.arange(count) * stride + (n - 1 - (count - 1) * stride) // 2


def _step(indices: npt.NDArray[np.int64]) -> int:
    return int(indices[1] - indices[0]) if len(indices) > 1 else 1


def axis_of_slice(grid: Grid, name: str, position: float) -> int:
    """The axis normal to a slice.

    Raises:
        ConfigError: the position [m] lies outside the box.
    """
    axis = grid.axis_names.index(name)
    low, high = grid.bounds(axis)
    if not low <= position <= high:
        msg = (
            f"the slice {name} = {position:g} m lies outside the box, which is from {low:g} m "
            f"to {high:g} m"
        )
        raise ConfigError(msg)
    return axis


# Meshes of other programs: values at their points.


def at_points(
    read: Reader, inside: Callable[[Box], npt.NDArray[np.bool_]], grid: Grid, points: Values
) -> Values:
    """Values at some points, linear between the centres of the cells around them that are inside;
    beyond the outermost centres those of these. NaN where no cell around is inside.

    Args:
        read: reads a box of the field.
        inside: which cells of a box count; those whose value is not finite never do.
        grid: its points.
        points: (n, ndim), array order [m].
    """
    # A place between two centres, as a number of cells, whatever their widths are.
    place = np.stack(
        [
            np.interp(points[:, axis], grid.coordinates(axis), np.arange(n))
            for axis, n in enumerate(grid.shape)
        ],
        axis=1,
    )
    low = np.clip(np.floor(place), 0, np.maximum(np.array(grid.shape) - 2, 0)).astype(np.int64)
    share = place - low

    found: Values = np.full(len(points), np.nan)
    for first in np.unique(low[:, 0]):
        chosen = np.flatnonzero(low[:, 0] == first)
        begin = low[chosen].min(axis=0)
        end = np.minimum(low[chosen].max(axis=0) + 2, grid.shape)
        box = tuple(zip(begin.tolist(), end.tolist(), strict=True))
        values = np.asarray(read(box), np.float64)
        counts = inside(box) & np.isfinite(values)

        # What does not count leaves its weight to the others.
        total, weights = np.zeros((2, len(chosen)))
        for corner in itertools.product((0, 1), repeat=grid.ndim):
            at = np.minimum(low[chosen] + corner, np.array(grid.shape) - 1) - begin
            each = np.where(corner, share[chosen], 1 - share[chosen]).prod(axis=1)
            each = np.where(counts[tuple(at.T)], each, 0.0)
            total += each * np.where(each > 0, values[tuple(at.T)], 0.0)
            weights += each
        with np.errstate(invalid="ignore"):
            found[chosen] = total / weights
    return found


def write_on_mesh(series: Series, record: int, mesh: Path, unit: float, target: Path) -> int:
    """Write a mesh with the values of a record at its points, and return how many points it has.

    Args:
        series: the fields.
        record: number of the record.
        mesh: a file that meshio reads; its cells and all that it says go into the target.
        unit: of its coordinates [m].
        target: a .vtu file.

    Raises:
        ConfigError: the mesh cannot be read, or has points outside of the body.
    """
    try:
        import meshio
    except ImportError as error:
        msg = f"{mesh} needs meshio, which is not installed: pip install 'tetris-sim[mesh]'"
        raise ConfigError(msg) from error

    grid = series.grid
    if grid.system.is_curved:
        msg = f"{mesh} is a mesh of x, y and z, and the grid goes around an axis or a centre"
        raise ConfigError(msg)
    try:
        given: Any = meshio.read(mesh)
    except (Exception, SystemExit) as error:  # it ends the program for what it does not know
        msg = f"{mesh} cannot be read as a mesh ({first_line(error)})"
        raise ConfigError(msg) from error
    points = np.zeros((len(given.points), max(grid.ndim, given.points.shape[1])))
    points[:, : given.points.shape[1]] = given.points * unit
    points = points[:, : grid.ndim][:, ::-1]

    ends = np.array([grid.bounds(axis) for axis in range(grid.ndim)])
    room = _ON_FACE * (ends[:, 1] - ends[:, 0])
    beyond = ((points < ends[:, 0] - room) | (points > ends[:, 1] + room)).any(axis=1)
    _refuse_points(mesh, points, beyond, "outside of the box; say the unit with --mesh-unit")

    maps = [it for it in series.maps_at(record) if it.name == "material"]

    def inside(box: Box) -> npt.NDArray[np.bool_]:
        own = np.ones(tuple(high - low for low, high in box), np.bool_)
        return own & ~np.isin(maps[0].read(box), maps[0].outside) if maps else own

    for number, variable in enumerate(series.variables):
        values = at_points(partial(series.read, record, number), inside, grid, points)
        _refuse_points(mesh, points, np.isnan(values), "in fluids and voids, not in the body")
        given.point_data[variable.name] = values
    with atomic_file(target) as part:
        meshio.write(part, given, file_format="vtu")
    return len(points)


def _refuse_points(mesh: Path, points: Values, wrong: npt.NDArray[np.bool_], where: str) -> None:
    if wrong.any():
        first = ", ".join(f"{it:g}" for it in points[np.argmax(wrong)][::-1])
        told = f"{wrong.sum()} of {len(points)} points are {where}"
        msg = f"{mesh}: {told}; the first one is at {first} m"
        raise ConfigError(msg)
