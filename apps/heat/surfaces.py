"""Surfaces of regions: where they cross the lines between neighbouring cell centres.

From the crossings follow areas and volumes that do not depend on how a surface lies in the grid:
cells are stairs, whose area on a sphere is 1.5 times too large on any grid. A face of a cell whose
normal is the axis e, on a surface of normal n, stands for |n e| times its own area: the sum over
the faces of all axes of an inclined plane is sum |n e| A |n e| = A.

Two kinds are known by files alone: closed surfaces of triangles (STL), and labels of cells.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial import shape_of
from tetris_sim.apps.initial_file import Box, Reader
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]  # global indices of cells (n, ndim), array order

_ALIGNED = 1e-9  # a share this close to 1 is that of a wall across the axis
_BALL = 4  # cells around a face in which stairs of labels are looked at as a whole
_REACH = 24  # cells along which a step of stairs of labels is followed
_LEVELS = {1: 1, 2: 10, 3: 7}  # of directions from one axis to another, by number of axes


@dataclass(frozen=True, eq=False)
class Crossings:
    """Where a surface crosses the lines from cells to their upper neighbours along an axis.

    Attributes:
        share: |cosine| of the angle between the surface's normal and the axis, (n,): the area of
            the surface that the face between the cells stands for, per area of the face.
        place: coordinate along the axis [m], (n,); NaN where only cells are known.
        weight: area of the surface that a thin line stands for, per area across it, (n,), where
            lines along all axes share a surface: those that it hardly crosses count for little.
    """

    share: Numbers
    place: Numbers
    weight: Numbers

    def sharper(self, other: Crossings) -> Crossings:
        """Of two surfaces, on each line the one that is less across the axis, or the only one."""
        only = np.isnan(self.place) & np.isfinite(other.place) & (self.share == other.share)
        return other.where((self.share > other.share) | only, self)

    def where(self, chosen: Mask, other: Crossings) -> Crossings:
        """Take these crossings where they are chosen, and the other ones elsewhere."""
        pairs = zip(
            (self.share, self.place, self.weight),
            (other.share, other.place, other.weight),
            strict=True,
        )
        return Crossings(*(np.where(chosen, *pair) for pair in pairs))


def aligned(n: int) -> Crossings:
    """The crossings of n lines by walls across the axis, at the faces of cells."""
    return Crossings(np.ones(n), np.full(n, np.nan), np.ones(n))


def crossings_of(normal: Numbers, axis: int, place: Numbers) -> Crossings:
    """The crossings of lines along an axis by surfaces of some normals, (ndim, n), of any length;
    walls across the axis are so to the bit.

    The squares of the cosines would share a surface between the lines of all axes, too. Their
    fourth powers do it smoothly where the lines of one axis leave it, so that sums over lines
    converge to a higher order.
    """
    with np.errstate(all="ignore"):
        cosines = np.abs(normal) / np.sqrt((normal**2).sum(axis=0))
        share = np.where(np.isfinite(cosines[axis]), cosines[axis], 1.0)
        weight = share**3 / (cosines**4).sum(axis=0)
    # A normal that is not known is that of a wall.
    flat = (share > 1 - _ALIGNED) | ~np.isfinite(weight)
    return Crossings(np.where(flat, 1.0, share), place, np.where(flat, 1.0, weight))


class PlacedSurfaces(Protocol):
    """The surface around something, and single cells of it."""

    def at(self, places: Places) -> npt.NDArray[Any]:
        """The labels of cells (n, ndim), or whether they are inside."""

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """Where the surface crosses the lines from some cells to the next along an axis; lines that
        do not cross it are as if a wall of cells did.

        Args:
            axis: array order.
            below: the lower cell of each line.
            label: of the inside; any but 0 if None.
        """


class Surfaces(PlacedSurfaces, Protocol):
    """The same, with the cells of boxes."""

    def __call__(self, box: Box) -> npt.NDArray[Any] | None:
        """The label, or whether it is inside, of each cell of a box; None if all are outside."""


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


class TriangleSurface:
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
            msg = f"{key}: {path} is a body in space; the grid has {grid.ndim} axes and needs three"
            raise ConfigError(msg)
        corners, self._ordered = _read(path, key)
        self._triangles, self._grid = corners * scale + np.array(offset), grid
        self._cuts_along = functools.cache(self._cut)
        self._scale = functools.cache(self._true_per_lines)

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
        cut = crossings_of(cuts.normal[:, found], axis, cuts.at[found])
        cut = replace(cut, weight=cut.weight * self._scale())
        return cut.where(met, aligned(len(below)))

    def _true_per_lines(self) -> float:
        """The area of all triangles per the one that lines between centres find, 1 unless the grid
        holds them all.
        """
        grid, corners = self._grid, self._triangles
        ends = np.array([grid.bounds(axis) for axis in range(3)])[::-1]
        if (corners < ends[:, 0]).any() or (corners > ends[:, 1]).any():
            return 1.0
        edges = corners[:, 1:] - corners[:, :1]
        true = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1).sum() / 2

        found = 0.0
        for axis in range(3):
            cuts = self._cuts_along(axis)
            slow, fast = (it for it in range(3) if it != axis)
            rows, columns = np.divmod(cuts.line, grid.shape[fast])
            across = grid.widths(slow)[rows] * grid.widths(fast)[columns]
            weight = crossings_of(cuts.normal, axis, cuts.at).weight
            # A line that enters and leaves between two centres, at an edge, is not seen there.
            keys = cuts.line * (grid.shape[axis] + 1) + cuts.above
            _, first = np.unique(keys, return_index=True)
            turned = np.add.reduceat(cuts.turn, first) if len(first) else first
            seen = first[turned != 0 if self._ordered else turned % 2 != 0]
            found += float((weight * across)[seen].sum())
        # Lines through few triangles say too little.
        return float(true) / found if 0.5 < float(true) / max(found, 1e-300) < 2 else 1.0

    def on(self, grid: Grid) -> TriangleSurface:
        """The same surface on another grid."""
        other = copy.copy(self)
        other._grid = grid
        # What was found on the lines of one grid says nothing about those of another.
        other._cuts_along = functools.cache(other._cut)
        other._scale = functools.cache(other._true_per_lines)
        return other

    def at(self, places: Places) -> Mask:
        """Whether cells (n, ndim) are inside the body."""
        cuts, n = self._cuts_along(2), self._grid.shape
        width = n[2] + 1
        line = places[:, 0] * n[1] + places[:, 1]
        keys = cuts.line * width + cuts.above
        # Turns up to the centre of a cell, without those of the lines before.
        turned = np.append(0, np.cumsum(cuts.turn))
        around = turned[np.searchsorted(keys, line * width + places[:, 2], "right")]
        around = around - turned[np.searchsorted(keys, line * width)]
        return np.asarray(around != 0 if self._ordered else around % 2 != 0)

    def _cut(self, axis: int) -> _Cuts:
        """Intersect the lines of cell centres along an axis with all triangles."""
        grid = self._grid
        slow, fast = (it for it in range(3) if it != axis)
        along, rows, columns = (grid.coordinates(it) for it in (axis, slow, fast))
        # Corners as (along the line, fast, slow); the axes of arrays are z, y, x.
        corners = self._triangles[:, :, [2 - axis, 2 - fast, 2 - slow]]

        lines, at, turn, normals = [], [], [], []
        for which, i, j in _pairs(corners, columns, rows):
            meets, place, area = _meets(corners[which], columns[j], rows[i])
            which, i, j = which[meets], i[meets], j[meets]
            lines.append(i * len(columns) + j)
            at.append(place[meets])
            turn.append(np.where((area[meets] > 0) & self._ordered, -1, 1))
            edges = corners[which, 1:] - corners[which, :1]
            normals.append(np.cross(edges[:, 0], edges[:, 1]))
        line, place = np.concatenate([*lines, np.empty(0, np.int64)]), np.concatenate([*at, []])
        # From (along, fast, slow) to the order of arrays.
        parts = [0 if it == axis else 2 if it == slow else 1 for it in range(3)]
        order = np.lexsort((place, line))
        return _Cuts(
            line[order],
            place[order],
            np.searchsorted(along, place[order], "right"),
            np.concatenate([*turn, np.empty(0, np.int64)])[order],
            np.concatenate([*normals, np.empty((0, 3))])[order][:, parts].T,
        )


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Cuts of lines along an axis, sorted by line and place.

    Attributes:
        line: slower index * length of the faster axis + faster index.
        at: coordinate along the axis [m].
        above: index of the first cell centre beyond it.
        turn: along x, 1 into the body and -1 out of it; 1 where the file does not tell.
        normal: of the surface, of any length, array order (ndim, n).
    """

    line: npt.NDArray[np.int64]
    at: Numbers
    above: npt.NDArray[np.int64]
    turn: npt.NDArray[np.int64]
    normal: Numbers


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


def _read(path: Path, key: str) -> tuple[Numbers, bool]:
    """Read the corners of the triangles, (n, 3, 3), in the units of the file, and whether the order
    of corners tells inside from outside.
    """
    extra = "stl" if path.suffix.lower() == ".stl" else "step"
    try:
        import trimesh

        if extra == "step":
            import cascadio  # noqa: F401
    except ImportError as error:
        msg = f"{key}: {path} needs {error.name}: pip install 'tetris-sim[{extra}]'"
        raise ConfigError(msg) from error

    _refuse_cut_off(path, key)
    try:
        mesh: Any = trimesh.load_mesh(path)
        if extra == "step":  # its faces come one by one, in metres
            mesh.merge_vertices(merge_tex=True, merge_norm=True)
        corners = np.asarray(mesh.triangles, np.float64)
    except Exception as error:  # a damaged file makes it raise whatever comes
        msg = f"{key}: {path} cannot be read as a surface of triangles ({error})"
        raise ConfigError(msg) from error
    if not len(corners):
        msg = f"{key}: {path} holds no triangles"
        raise ConfigError(msg)
    if not mesh.is_watertight:
        told = "is not closed, so it has no inside; mend it in the program that wrote it"
        msg = f"{key}: the surface in {path} {told}"
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

    # Parts of at most `_PAIRS`, or of one triangle.
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

    def at(self, places: Places) -> npt.NDArray[Any]:
        """The labels of cells (n, ndim)."""
        if not len(places):
            return np.zeros(0, np.int32)
        low, high = places.min(axis=0), places.max(axis=0) + 1
        read = self.labels(tuple(zip(low.tolist(), high.tolist(), strict=True)))
        return np.asarray(read[tuple((places - low).T)])

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """See `Surfaces`."""
        near = _Neighbourhood(self, axis, below, label)
        moments = near.moments()
        square = np.zeros(len(below))
        for other in (it for it in range(self.grid.ndim) if it != axis):
            heights, lengths = (
                self.grid.widths(it)[below[:, it]] * self.grid.scale_at(it, below)
                for it in (axis, other)
            )
            ratio = heights / lengths

            with np.errstate(invalid="ignore", divide="ignore"):
                in_ball = np.abs(moments[other] / moments[axis])
            slope = near.slope(other, in_ball) * ratio
            square += np.where(np.isfinite(slope), slope, 0.0) ** 2
        share = np.where(near.turns, 1 / np.sqrt(1 + square), 1.0)
        share = np.where(share > 1 - _ALIGNED, 1.0, share)
        return Crossings(share, np.full(len(below), np.nan), share)


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


def changes(values: npt.NDArray[Any], axis: int) -> tuple[Places, npt.NDArray[np.int64]]:
    """Cells of a box whose upper neighbour along an axis has another value, (n, ndim), and the step
    from one to the other.
    """
    flat, stride = values.reshape(-1), math.prod(values.shape[axis + 1 :])
    changed = np.flatnonzero(flat[stride:] != flat[:-stride])
    places = np.stack(np.unravel_index(changed, values.shape), axis=1)
    # The last cells along the axis have no neighbour in the box.
    places = places[places[:, axis] < values.shape[axis] - 1]
    return places, np.eye(values.ndim, dtype=np.int64)[axis]


def unique_rows(columns: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], Places]:
    """The different rows of some columns of small whole numbers, sorted, and the number of each."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        code = code * 64 + column + 1  # all but the first are below 63
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    return np.column_stack(columns)[first], number.reshape(-1)


@dataclass(frozen=True, eq=False)
class CrossedFaces:
    """Faces between cells of a box and their upper neighbours along an axis that surfaces cross.

    Attributes:
        below: the cell below each face, global (n, ndim).
        crossings: of the surface.
        area: of each face [m^2].
        gain: by how much the true surface lies beyond the face, times the area it stands for [m^3].
        floats: of walls across the axis, whether they belong to something off the faces of cells.
    """

    below: Places
    crossings: Crossings
    area: Numbers
    gain: Numbers
    floats: Mask

    def chosen(self, these: Mask) -> CrossedFaces:
        """Some of them."""
        own = self.crossings
        return CrossedFaces(
            self.below[these],
            Crossings(own.share[these], own.place[these], own.weight[these]),
            self.area[these],
            self.gain[these],
            self.floats[these],
        )


def direction_of(sums: Numbers, counts: Numbers) -> npt.NDArray[np.int64]:
    """Round the direction of the surface beside cells, (ndim, n), from the shares of its faces."""
    known = counts > 0
    share = np.divide(sums, counts, out=np.zeros_like(sums), where=known)
    # Axes that show no face take what is left of a normal of length 1.
    left = np.clip(1 - (share**2).sum(axis=0), 0.0, None) / np.maximum((~known).sum(axis=0), 1)
    share = np.where(known, share, np.sqrt(left))
    return np.asarray(np.rint(_LEVELS[len(share)] * share / share.sum(axis=0)), np.int64)
