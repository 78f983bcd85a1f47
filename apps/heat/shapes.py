"""Shapes of regions: boxes, conditions, label files and closed surfaces (STL).

A shape says which cells of a box of global indices it holds, by their centres, and where its
surface crosses the lines between neighbouring centres. From the latter follow areas and volumes
that do not depend on how the surface lies in the grid: cells are stairs, whose area on a sphere is
1.5 times too large on any grid. A face of a cell whose normal is the axis e, on a surface of normal
n, stands for |n e| times its own area: the sum over the faces of all axes of an inclined plane is
sum |n e| A |n e| = A.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.sections import BoxSection, Location, RegionSection
from tetris_sim.apps.initial import first_place, positions, shape_of
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
from tetris_sim.model.formula import (
    COMPARISONS,
    Comparison,
    ExpressionError,
    Operation,
    compile_expression,
    evaluate,
    walk,
)
from tetris_sim.model.grid import Grid

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]  # global indices of cells (n, ndim), array order

_STEP = 1e-3  # of a cell, for the gradient of a condition
_ALIGNED = 1e-9  # a share this close to 1 is that of a wall across the axis
_BALL = 4  # cells around a face in which stairs of labels are looked at as a whole
_REACH = 24  # cells along which a step of stairs of labels is followed


@dataclass(frozen=True, eq=False)
class Crossings:
    """Where a surface crosses the lines from cells to their upper neighbours along an axis.

    Attributes:
        share: |cosine| of the angle between the surface's normal and the axis, (n,): the area of
            the surface that the face between the cells stands for, per area of the face.
        place: coordinate along the axis [m], (n,); NaN where only cells are known.
    """

    share: Numbers
    place: Numbers

    def sharper(self, other: Crossings) -> Crossings:
        """Of two surfaces, on each line the one that is less across the axis."""
        own = self.share <= other.share
        return Crossings(
            np.where(own, self.share, other.share), np.where(own, self.place, other.place)
        )


def aligned(n: int) -> Crossings:
    """The crossings of n lines by walls across the axis, at the faces of cells."""
    return Crossings(np.ones(n), np.full(n, np.nan))


def _crossings(share: Numbers, place: Numbers) -> Crossings:
    """Snap walls across the axis, whose cells are not to be changed."""
    share = np.where(np.isfinite(share), share, 1.0)
    flat = share > 1 - _ALIGNED
    return Crossings(np.where(flat, 1.0, share), np.where(flat, np.nan, place))


class Surfaces(Protocol):
    """The cells of something, and the surface around them."""

    def __call__(self, box: Box) -> npt.NDArray[Any] | None:
        """The label, or whether it is inside, of each cell of a box; None if all are outside."""

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """Where the surface crosses the lines from some cells to the next along an axis; lines that
        do not cross it are as if a wall of cells did.

        Args:
            axis: array order.
            below: the lower cell of each line.
            label: of the inside; any but 0 if None.
        """


# Closed surfaces of triangles (STL).
#
# Every line of cell centres along an axis is cut with all triangles. A cut counts 1 where the line
# enters the body and -1 where it leaves, so that overlapping solids of one file are one body; where
# the file does not tell inside from outside by the order of corners, an odd number of cuts is
# inside. Whether a line meets a triangle is decided with the signs of three areas, and a line
# exactly through an edge that two triangles share counts for one of them, so that a closed surface
# has as many cuts in as out on every line. (trimesh, which reads and checks the file, tests points
# one by one; a body of 10^8 cells needs lines.)

_PAIRS = 1 << 20  # of a triangle and a line, tested at once


class Solid:
    """A closed surface of triangles: 1 inside, 0 outside.

    Args:
        path: the STL file.
        scale: unit of its coordinates [m].
        offset: where its origin lies, x, y, z [m].
        grid: of three axes.
        key: for messages.

    Raises:
        ConfigError: the file cannot be read, its surface is not closed, or trimesh is missing.
    """

    def __init__(
        self, path: Path, scale: float, offset: tuple[float, ...], grid: Grid, key: str
    ) -> None:
        if grid.ndim != 3:
            msg = (
                f"{key}: {path} is a body in space, and the grid has {grid.ndim} axes; it needs "
                "three"
            )
            raise ConfigError(msg)
        corners, self._ordered = _read(path, key)
        self._triangles, self._grid = corners * scale + np.array(offset), grid
        self._cuts_along = functools.cache(self._cut)

    def __call__(self, box: Box) -> npt.NDArray[np.uint8]:
        """Return 1 for the cells of a box inside the body and 0 for those outside."""
        cuts, n = self._cuts_along(2), self._grid.shape
        planes = np.searchsorted(cuts.line, (box[0][0] * n[1], box[0][1] * n[1]))
        here = slice(*planes)
        k, j = np.divmod(cuts.line[here], n[1])
        rows = (j >= box[1][0]) & (j < box[1][1])
        # Cuts below the first centre of the box count for all of its cells.
        first = np.maximum(cuts.above[here][rows] - box[2][0], 0)
        within = first < box[2][1] - box[2][0]
        turns = np.zeros(shape_of(box), np.int32)
        place = (k[rows] - box[0][0], j[rows] - box[1][0], first)
        np.add.at(turns, tuple(it[within] for it in place), cuts.turn[here][rows][within])
        around = np.cumsum(turns, axis=2)
        return np.asarray(around != 0 if self._ordered else around % 2, np.uint8)

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """See `Surfaces`."""
        cuts, n = self._cuts_along(axis), self._grid.shape
        slow, fast = (it for it in range(3) if it != axis)
        line = below[:, slow] * n[fast] + below[:, fast]
        keys = cuts.line * (n[axis] + 1) + cuts.above
        wanted = line * (n[axis] + 1) + below[:, axis] + 1
        found = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        if not len(keys):
            return aligned(len(below))
        met = keys[found] == wanted
        return _crossings(
            np.where(met, cuts.share[found], 1.0), np.where(met, cuts.at[found], np.nan)
        )

    def _cut(self, axis: int) -> _Cuts:
        """Intersect the lines of cell centres along an axis with all triangles."""
        grid = self._grid
        slow, fast = (it for it in range(3) if it != axis)
        along, rows, columns = (grid.coordinates(it) for it in (axis, slow, fast))
        # Corners as (along the line, fast, slow); the axes of arrays are z, y, x.
        corners = self._triangles[:, :, [2 - axis, 2 - fast, 2 - slow]]

        lines, at, turn, share = [], [], [], []
        for which, i, j in _pairs(corners, columns, rows):
            meets, place, area = _meets(corners[which], columns[j], rows[i])
            which, i, j = which[meets], i[meets], j[meets]
            lines.append(i * len(columns) + j)
            at.append(place[meets])
            turn.append(np.where((area[meets] > 0) & self._ordered, -1, 1))
            edges = corners[which, 1:] - corners[which, :1]
            normal = np.cross(edges[:, 0], edges[:, 1])
            share.append(np.abs(normal[:, 0]) / np.linalg.norm(normal, axis=1))
        line, place = np.concatenate([*lines, np.empty(0, np.int64)]), np.concatenate([*at, []])
        order = np.lexsort((place, line))
        return _Cuts(
            line[order],
            place[order],
            np.searchsorted(along, place[order], "right"),
            np.concatenate([*turn, np.empty(0, np.int64)])[order],
            np.concatenate([*share, []])[order],
        )


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Cuts of lines along an axis, sorted by line and place.

    Attributes:
        line: slower index * length of the faster axis + faster index.
        at: coordinate along the axis [m].
        above: index of the first cell centre beyond it.
        turn: along x, 1 into the body and -1 out of it; 1 where the file does not tell.
        share: see `Crossings`.
    """

    line: npt.NDArray[np.int64]
    at: Numbers
    above: npt.NDArray[np.int64]
    turn: npt.NDArray[np.int64]
    share: Numbers


def _read(path: Path, key: str) -> tuple[Numbers, bool]:
    """Read the corners of the triangles, (n, 3, 3), in the units of the file, and whether the order
    of corners tells inside from outside.
    """
    try:
        import trimesh
    except ImportError as error:
        msg = f"{key}: {path} needs trimesh, which is not installed: pip install 'tetris-sim[stl]'"
        raise ConfigError(msg) from error

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
    return corners, bool(mesh.is_winding_consistent)


def _pairs(
    corners: Numbers, columns: Numbers, rows: Numbers
) -> Iterator[tuple[npt.NDArray[np.int64], ...]]:
    """Yield (triangle, row, column) of lines within the bounding boxes of triangles, in parts."""
    low, high = corners[:, :, 1:].min(axis=1), corners[:, :, 1:].max(axis=1)
    first = np.stack([np.searchsorted(it, low[:, k]) for k, it in enumerate((columns, rows))])
    last = np.stack(
        [np.searchsorted(it, high[:, k], "right") for k, it in enumerate((columns, rows))]
    )
    counts = np.maximum(last - first, 0).prod(axis=0)
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = int(ends[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(ends, done + _PAIRS, "right")), begin + 1)
        n = counts[begin:end]
        which = np.repeat(np.arange(begin, end), n)
        number = np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n)
        width = (last - first)[0, which]
        yield which, first[1, which] + number // width, first[0, which] + number % width
        begin = end


def _meets(corners: Numbers, y: Numbers, z: Numbers) -> tuple[Mask, Numbers, Numbers]:
    """Test lines (y, z) along x against one triangle each: whether they meet, at which x [m], and
    the signed area of the triangle seen along x.
    """
    weights, left = [], []
    for n in range(3):
        a, b = corners[:, (n + 1) % 3, 1:], corners[:, (n + 2) % 3, 1:]
        # The two triangles of an edge see it in opposite directions: computed from the same end,
        # their areas are exactly opposite.
        swapped = (b[:, 0] < a[:, 0]) | ((b[:, 0] == a[:, 0]) & (b[:, 1] < a[:, 1]))
        first = np.where(swapped[:, None], b, a)
        step = np.where(swapped[:, None], a, b) - first
        area = step[:, 0] * (z - first[:, 1]) - step[:, 1] * (y - first[:, 0])
        area = np.where(swapped, -area, area)
        # A line on the edge belongs to the triangle that sees the edge this way round.
        left.append((area > 0) | ((area == 0) & ~swapped))
        weights.append(area)

    # Inside if all areas have the same sign; they are the barycentric weights of the intersection.
    total = weights[0] + weights[1] + weights[2]
    inside = (left[0] & left[1] & left[2]) | ~(left[0] | left[1] | left[2])
    with np.errstate(invalid="ignore", divide="ignore"):
        x = sum(weight * corners[:, n, 0] for n, weight in enumerate(weights)) / total
    return inside & (total != 0), np.asarray(x), total


# Boxes, conditions and label files as functions of a box of global indices.


class Place:
    """A location: the cells whose centres lie in a box and meet a condition.

    Args:
        place: the box and the condition.
        grid: where points lie.
        key: of the location, for messages.

    Attributes:
        is_aligned: whether it is a box or everything, whose walls are those of cells.

    Raises:
        ConfigError: the condition is no expression of the grid's axes, or, when it is called, it is
            not finite somewhere.
    """

    def __init__(self, place: Location, grid: Grid, key: str) -> None:
        self._spans = None if place.box is None else indices(place.box, grid)
        self._condition = (
            None if place.where is None else Condition(place.where, grid, f"{key}.where")
        )
        self.is_aligned = self._condition is None

    def __call__(self, box: Box) -> Mask | None:
        """Whether each cell of a box belongs; None if none does."""
        inside = np.ones(shape_of(box), np.bool_)

        # Cells outside the span are cleared, axis by axis.
        for axis, span in enumerate(self._spans or ()):
            low, high = (min(max(i - box[axis][0], 0), inside.shape[axis]) for i in span)
            if low >= high:
                return None
            along = np.moveaxis(inside, axis, 0)
            along[:low], along[high:] = False, False
        if self._condition is not None:
            inside &= self._condition(box)
        return inside

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """See `Surfaces`."""
        if self._condition is None:
            return aligned(len(below))
        found = self._condition.crossings(axis, below)
        low, high = (0, 0) if self._spans is None else self._spans[axis]
        wall = np.isin(below[:, axis] + 1, (low, high)) & (self._spans is not None)
        return Crossings(np.where(wall, 1.0, found.share), np.where(wall, np.nan, found.place))


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


class Condition:
    """A condition in x, y, z: true where the value of its formula is not 0.

    Its surface is where one of its comparisons turns: there the difference of both sides is zero,
    and the gradient of that difference is the normal.

    Args:
        text: the formula.
        grid: where points lie.
        key: for messages.

    Raises:
        ConfigError: invalid expression, or, when it is called, the value is not finite.
    """

    def __init__(self, text: str, grid: Grid, key: str) -> None:
        try:
            self._expression = compile_expression(text, grid.axis_names)
        except ExpressionError as error:
            msg = f"{key}: {error}"
            raise ConfigError(msg) from error
        self._grid, self._key = grid, key
        self._coordinates = [grid.coordinates(axis) for axis in range(grid.ndim)]
        # a < b <= c turns where a - b or b - c does.
        self._differences = [
            (sign, Operation("subtract", pair))
            for node in walk(self._expression.tree)
            if isinstance(node, Comparison)
            for sign, pair in zip(node.signs, itertools.pairwise(node.operands), strict=True)
        ]

    def __call__(self, box: Box) -> Mask:
        """Whether it is true at the cell centres of a box."""
        grid = self._grid
        at = dict(zip(grid.axis_names, positions(grid, box), strict=True))
        found = np.broadcast_to(np.asarray(self._expression(**at), np.float64), shape_of(box))
        if not np.isfinite(found).all():
            place, where = first_place(~np.isfinite(found), grid, box)
            msg = f"{self._key}: the expression is {found[place]} at {where}; it must be finite"
            raise ConfigError(msg)
        return np.not_equal(found, 0.0)

    def crossings(self, axis: int, below: Places) -> Crossings:
        """Where it turns on the lines from some cells to the next along an axis; see `Surfaces`."""
        low = [it[below[:, k]] for k, it in enumerate(self._coordinates)]
        high = [*low]
        high[axis] = self._coordinates[axis][below[:, axis] + 1]

        # Where several comparisons turn, on an edge, the mean of them stands for both.
        share, place, turning = np.zeros((3, len(below)))
        for sign, difference in self._differences:
            with np.errstate(all="ignore"):
                ends = [self._value(difference, at) for at in (low, high)]
                turns = np.not_equal(*(COMPARISONS[sign](it, 0.0) for it in ends))
                if not turns.any():
                    continue
                across = high[axis] - low[axis]
                at = low[axis] + across * np.clip(ends[0] / (ends[0] - ends[1]), 0.0, 1.0)
                point = [*low]
                point[axis] = at
                slopes = [self._slope(difference, point, k) for k in range(len(low))]
                cosine = np.abs(slopes[axis]) / functools.reduce(np.hypot, slopes)
            share += np.where(turns, np.where(np.isfinite(cosine), cosine, 1.0), 0.0)
            place += np.where(turns, np.where(np.isfinite(cosine), at, np.nan), 0.0)
            turning += turns
        with np.errstate(invalid="ignore", divide="ignore"):
            return _crossings(share / turning, place / turning)

    def _value(self, tree: Operation, at: list[Numbers]) -> Numbers:
        named = dict(zip(self._grid.axis_names, at, strict=True))
        return np.broadcast_to(np.asarray(evaluate(tree, named), np.float64), at[0].shape)

    def _slope(self, tree: Operation, point: list[Numbers], axis: int) -> Numbers:
        step = _STEP * self._grid.spacing[axis]
        sides = []
        for sign in (1, -1):
            moved = [*point]
            moved[axis] = point[axis] + sign * step
            sides.append(self._value(tree, moved))
        return np.asarray((sides[0] - sides[1]) / (2 * step))


@dataclass(frozen=True, eq=False)
class Voxels:
    """Labels of cells, whose surfaces are known by their stairs only.

    How steep stairs are along another axis follows from the length of the step at a face and the
    heights of those at its ends; where all are short, from the centre of what is inside in a ball
    around the face. Stairs that do not go on in one direction are walls parallel to the axes.

    Attributes:
        labels: of the cells of a box.
        grid: where points lie.
    """

    labels: Reader
    grid: Grid

    def __call__(self, box: Box) -> npt.NDArray[Any]:
        """The labels of the cells of a box."""
        return self.labels(box)

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """See `Surfaces`."""
        near = _Neighbourhood(self, axis, below, label)
        moments = near.moments()
        square = np.zeros(len(below))
        for other in (it for it in range(self.grid.ndim) if it != axis):
            ratio = (
                self.grid.widths(axis)[below[:, axis]] / self.grid.widths(other)[below[:, other]]
            )
            with np.errstate(invalid="ignore", divide="ignore"):
                in_ball = np.abs(moments[other] / moments[axis])
            slope = near.slope(other, in_ball) * ratio
            square += np.where(np.isfinite(slope), slope, 0.0) ** 2
        share = np.where(near.turns, 1 / np.sqrt(1 + square), 1.0)
        return _crossings(share, np.full(len(below), np.nan))


class _Neighbourhood:
    """The cells around faces of voxels.

    Attributes:
        turns: whether a face lies between inside and outside.
    """

    def __init__(self, voxels: Voxels, axis: int, below: Places, label: int | None) -> None:
        """Read the labels around faces; see `Voxels.crossings`."""
        self._shape = np.array(voxels.grid.shape)
        self._below, self._ndim, self._axis = below, voxels.grid.ndim, axis
        self._low = np.maximum(below.min(axis=0) - _REACH - 1, 0)
        high = np.minimum(below.max(axis=0) + _REACH + 2, self._shape)
        read = voxels.labels(tuple(zip(self._low.tolist(), high.tolist(), strict=True)))
        self._inside = np.asarray(read != 0 if label is None else read == label)
        self._first = self._at({})
        self.turns = self._first != self._at({axis: 1})

    def _at(self, offset: Mapping[int, int | Places]) -> Mask:
        """Whether the cells at distances from the lower ones, by axis, are inside; beyond the grid
        lies what lies at its edge.
        """
        at = []
        for axis, (n, low) in enumerate(zip(self._shape, self._low, strict=True)):
            at.append(np.clip(self._below[:, axis] + offset.get(axis, 0), 0, n - 1) - low)
        return np.asarray(self._inside[tuple(at)])

    def moments(self) -> Numbers:
        """Of what is inside a ball around each face, by axis, in units of those of the ball, (ndim,
        n); weights fall off smoothly, so that no cell at its rim decides.
        """
        found, whole = np.zeros((self._ndim, len(self._below))), np.zeros(self._ndim)
        for offset in itertools.product(range(-_BALL, _BALL + 2), repeat=self._ndim):
            arm = np.array(offset, np.float64)
            arm[self._axis] -= 0.5
            weight = max(1 - float(arm @ arm) / (_BALL + 1) ** 2, 0.0) ** 2
            inside = self._at(dict(enumerate(offset)))
            found += np.where(inside, weight * arm[:, None], 0.0)
            whole += weight * arm**2
        return found / whole[:, None]

    def slope(self, other: int, in_ball: Numbers) -> Numbers:
        """How many cells the stairs rise per cell along another axis, (n,)."""
        ends = [self._end(other, sign) for sign in (1, -1)]
        length = ends[0][0] + ends[1][0] - 1
        rises = [
            self._rise(other, (sign, distance), turn, length)
            for sign, (distance, turn) in zip((1, -1), ends, strict=True)
        ]
        least, most = np.minimum(*rises), np.maximum(*rises)
        # Long steps that meet are an edge of two walls.
        is_edge = (length >= _BALL) & (least >= _BALL)
        goes_on = (ends[0][1] * ends[1][1] == -1) & (most < _REACH) & ~is_edge
        mean = (least + most) / 2 / length
        return np.where(goes_on, np.where(np.maximum(length, most) >= _BALL, mean, in_ball), 0.0)

    def _end(self, other: int, sign: int) -> tuple[Places, Places]:
        """How far a step goes on along an axis, and whether the surface turns outward (1) or inward
        (-1) there; 0 if it goes on out of sight.
        """
        distance = np.full(len(self._below), _REACH)
        turn = np.zeros(len(self._below), np.int64)
        for step in range(1, _REACH):
            lower = self._at({other: sign * step})
            upper = self._at({other: sign * step, self._axis: 1})
            ends = (turn == 0) & ((lower != self._first) | (upper == self._first))
            distance[ends] = step
            turn[ends] = np.where(lower & upper, 1, np.where(lower | upper, 2, -1))[ends]
        return distance, turn

    def _rise(self, other: int, end: tuple[int, Places], turn: Places, length: Places) -> Numbers:
        """How many cells the surface moves along its own axis at the end of a step: half of what it
        does on the top of something round, and out of sight at the end of something straight.
        """
        sign, distance = end
        outward = np.where(self._first, 1, -1)
        # The outer one of the two cells of the face, if the surface turns outward, else the inner.
        start = np.where((outward > 0) == (turn > 0), 1, 0)
        within, beyond = (
            sign * np.where(turn * side > 0, distance, distance - 1) for side in (1, -1)
        )
        rise = np.full(len(distance), float(_REACH))
        goes_on = np.ones(len(distance), np.bool_)
        for step in range(1, _REACH):
            along = start + turn * outward * step
            filled = self._at({other: within, self._axis: along})
            bare = ~self._at({other: beyond, self._axis: along})
            stops = goes_on & ~(filled & bare)
            is_top = np.where(turn > 0, ~bare, ~filled)
            top = np.where(length < step, max(step / 2, 1.0), _REACH)
            rise[stops] = np.where(is_top, top, step)[stops]
            goes_on &= ~stops
        return rise


def open_labels(region: RegionSection, grid: Grid, key: str) -> Surfaces:
    """Open a label file, which gives the labels of any box of the grid.

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
        return Solid(path, region.scale, region.offset, grid, at)
    if suffix == ".npy":
        return Voxels(open_npy(path, grid, at), grid)
    if suffix in HDF5_SUFFIXES:
        return Voxels(open_hdf5(path, region.dataset, grid, at), grid)
    return Voxels(_open_picture(path, grid, at), grid)


def _open_picture(path: Path, grid: Grid, key: str) -> Reader:
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
