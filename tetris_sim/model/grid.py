"""Grid: the interior points, their positions, and the embedding of 1D and 2D grids into three
axes; coordinates that are straight, around an axis or around a centre.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

# Coordinates: lengths, areas and volumes of cells along straight axes, around an axis or a centre.
#
# A cell lies between two positions along every axis. Its volume is a product of one factor per
# axis, and so is the area of each of its faces; both are exact. Only distances between the centres
# of neighbours along theta depend on the place along another axis: they are arcs of radius r.
#
#     cylindrical   volume  (r2^2 - r1^2)/2  (theta2 - theta1)  (z2 - z1)
#                   faces   r (theta2 - theta1) (z2 - z1),  (r2 - r1) (z2 - z1),
#                           (r2^2 - r1^2)/2 (theta2 - theta1)
#     spherical     volume  (r2^3 - r1^3)/3  (cos theta1 - cos theta2)  2 pi
#                   faces   r^2 (cos theta1 - cos theta2) 2 pi,  sin theta (r2^2 - r1^2)/2 2 pi
#
# theta is the angle around the axis of a cylinder [rad], and the angle from the axis of a sphere.
# What a grid has no axis for is whole: a turn, or both angles; along z a cylinder without z counts
# per metre. With differences over these distances the Laplacian of r^2 is exact on equal cells.

Numbers = npt.NDArray[np.float64]
Kind = Literal["cartesian", "cylindrical", "spherical"]

# Everything that is called a coordinate somewhere.
PLACES = ("x", "y", "z", "r", "theta")

# By kind, the lists of axes that a grid may have, in the order of the configuration.
AXES: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "cartesian": (("x",), ("x", "y"), ("x", "y", "z")),
    "cylindrical": (("r",), ("r", "z"), ("r", "theta"), ("r", "theta", "z")),
    "spherical": (("r",), ("r", "theta")),
}

_POWER = {"cylindrical": 1, "spherical": 2}  # of r in the area of a face that r crosses
_CLOSED = 1e-9  # relative: by how much a full circle may miss 2 pi


@dataclass(frozen=True)
class Coordinates:
    """The meaning of the axes of a grid.

    Attributes:
        kind: of the coordinates.
        axes: their names in the order of the configuration, of a slice those of the whole grid.
    """

    kind: Kind = "cartesian"
    axes: tuple[str, ...] = ("x", "y", "z")

    @property
    def is_curved(self) -> bool:
        """Whether areas of faces depend on the place."""
        return self.kind != "cartesian"

    @property
    def around(self) -> float:
        """The angles for which there is no axis: of a cylinder [rad], of a sphere [sr or rad]."""
        if not self.is_curved or (self.kind == "cylindrical" and "theta" in self.axes):
            return 1.0
        return 2 * math.pi if self.kind == "cylindrical" or "theta" in self.axes else 4 * math.pi

    @property
    def dimensions(self) -> int:
        """The power of metres of a volume: 3 where nothing counts per metre."""
        if not self.is_curved:
            return len(self.axes)
        return 3 if self.kind == "spherical" or "z" in self.axes else 2

    def unit(self, name: str) -> str:
        """The unit of positions along an axis."""
        return "rad" if name == "theta" else "m"

    def extents(self, name: str, ends: Numbers) -> Numbers:
        """Factors of the volumes of cells between their ends along an axis, (n,)."""
        if name == "r":
            return _moments(ends, _POWER[self.kind])
        return self._angles(ends) if name == "theta" else np.diff(ends)

    def across(self, normal: str, name: str, ends: Numbers) -> Numbers:
        """Factors of the areas of faces that an axis crosses, along another one, (n,)."""
        if name == "r" and normal == "theta":
            return _moments(ends, _POWER[self.kind] - 1)
        return self.extents(name, ends)

    def through(self, normal: str, at: Numbers) -> Numbers:
        """Factors of the areas of faces by where they lie along the axis that crosses them."""
        if normal == "r":
            return np.asarray(at ** _POWER[self.kind])
        if normal == "theta" and self.kind == "spherical":
            # sin(pi) is 1e-16, and through the axis flows nothing at all.
            return np.where(np.isclose(at, math.pi), 0.0, np.sin(at))
        return np.ones_like(at)

    def _angles(self, ends: Numbers) -> Numbers:
        return -np.diff(np.cos(ends)) if self.kind == "spherical" else np.diff(ends)

    def is_pole(self, name: str, at: float) -> bool:
        """Whether faces at a position are only a line or a point, the axis or the centre."""
        if not self.is_curved or name == "z":
            return False
        if name == "r":
            return at == 0
        return self.kind == "spherical" and (at == 0 or math.isclose(at, math.pi))

    def is_ring(self, name: str, length: float) -> bool:
        """Whether an axis of some length closes by itself: a full circle."""
        closed = math.isclose(length, 2 * math.pi, rel_tol=_CLOSED)
        return self.kind == "cylindrical" and name == "theta" and closed


CARTESIAN = Coordinates()


def _moments(ends: Numbers, power: int) -> Numbers:
    """The integral of r^power between neighbouring ends, (n,).

    >>> _moments(np.array([0.0, 1.0, 2.0]), 1).tolist()
    [0.5, 1.5]
    """
    low, high = ends[:-1], ends[1:]
    # Factors instead of differences of powers: thin shells far outside lose no digits.
    if power == 0:
        return high - low
    if power == 1:
        return (high - low) * (high + low) / 2
    return (high - low) * (high * high + high * low + low * low) / 3


# Three axes: kernels and files always use three, whatever a problem has. Along a missing axis there
# is one point.
#
# The last axis of a problem is always the last of the three, so rows stay rows. The first axis of a
# 2D problem can take either of the two other positions:
#
# `LAST`: one plane of many rows. GPU kernels use it, whose threads lie side by side along the last
# two axes, and because CUDA allows only 65,535 blocks of threads, hence planes, along the first. So
# do files, in which (y, x) comes last.
# `OUTER`: many planes of one row. CPU kernels use it: they divide the first axis among threads, and
# stream along it.

T = TypeVar("T")
Places = Mapping[int, tuple[int, ...]]  # of so many axes: for each its number among the three

LAST: Places = {1: (2,), 2: (1, 2), 3: (0, 1, 2)}
OUTER: Places = {1: (2,), 2: (0, 2), 3: (0, 1, 2)}


def on_three(values: Sequence[T], missing: T, places: Places = LAST) -> tuple[T, T, T]:
    """Extend per-axis values of a problem to three axes.

    >>> on_three((5, 7), 1), on_three((5, 7), 1, OUTER)
    ((1, 5, 7), (5, 1, 7))

    Args:
        values: one per axis of the problem.
        missing: the value of an axis that the problem lacks.
        places: positions of its axes among the three.
    """
    three = [missing] * 3
    for axis, value in zip(places[len(values)], values, strict=True):
        three[axis] = value
    return three[0], three[1], three[2]


AXIS_NAMES = ("x", "y", "z")


@dataclass(frozen=True)
class Grid:
    """The interior points of a box; the ghost ring is outside it.

    Points are cell centres: along an axis of length `size` with n points the spacing is size / n,
    and the first point lies half a spacing inside the box. Everything here is in array order,
    slowest axis first: (z, y, x) in 3D, (y, x) in 2D, (x,) in 1D.

    Attributes:
        shape: interior points per axis, (n0, n1, ...).
        spacing: distance between neighbouring points per axis [m]; along a graded axis the smallest
            width of a cell.
        origin: position of the first interior point per axis [m].
        cut: of a slice through a grid of more axes: the names of the axes that it lacks, and its
            position on them [m].
        edges: per axis the ends of its cells [m], (n + 1), ascending, if it is graded, so that
            cells differ in width; None for an even one. Empty if all axes are even.

    Raises:
        ValueError: lengths disagree, an axis has no point, edges do not ascend, or a spacing is not
            positive and finite.
    """

    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    cut: tuple[tuple[str, float], ...] = ()
    edges: tuple[tuple[float, ...] | None, ...] = ()
    system: Coordinates = CARTESIAN

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 3:
            msg = f"a grid has 1, 2 or 3 axes, got shape {self.shape}"
            raise ValueError(msg)

        if not len(self.shape) == len(self.spacing) == len(self.origin):
            msg = (
                f"shape {self.shape}, spacing {self.spacing} and origin {self.origin} must be "
                "equally long"
            )
            raise ValueError(msg)

        if any(n < 1 for n in self.shape):
            msg = f"a grid has at least one point per axis, got shape {self.shape}"
            raise ValueError(msg)

        # `strict` holds only if there are edges: the empty tuple stands for all axes even.
        for n, ends in zip(self.shape, self.edges, strict=bool(self.edges)):
            if ends is not None and (len(ends) != n + 1 or not (np.diff(ends) > 0).all()):
                msg = f"{n} cells need {n + 1} ascending edges, got {len(ends)}"
                raise ValueError(msg)
        if any(not (h > 0 and math.isfinite(h)) for h in self.spacing):
            msg = f"spacing is positive and finite, got {self.spacing} m"
            raise ValueError(msg)

    @classmethod
    def box(cls, shape: tuple[int, ...], size: Sequence[float]) -> Grid:
        """Create the cell-centred grid of a box with one corner at zero.

        Args:
            shape: points per axis, array order.
            size: edge lengths of the box [m], array order.
        """
        spacing = tuple(length / n for length, n in zip(size, shape, strict=True))
        return cls(shape=shape, spacing=spacing, origin=tuple(h / 2 for h in spacing))

    @property
    def ndim(self) -> int:
        """Number of axes: 1, 2 or 3."""
        return len(self.shape)

    @property
    def n_points(self) -> int:
        """Number of interior points."""
        return math.prod(self.shape)

    @classmethod
    def graded(
        cls,
        shape: tuple[int, ...],
        size: Sequence[float],
        edges: Sequence[Sequence[float] | None],
        corner: Sequence[float] | None = None,
        system: Coordinates = CARTESIAN,
    ) -> Grid:
        """Create the grid of a box, some of whose axes are graded.

        Args:
            shape: points per axis, array order.
            size: edge lengths of the box [m], array order.
            edges: the ends of the cells of each graded axis [m], array order.
            corner: the lowest position along each axis [m]; 0 if not given.
            system: what the axes mean.
        """
        even = cls.box(shape, size)
        spacing = list(even.spacing)
        origin = [low + h for low, h in zip(corner or (0.0,) * len(size), even.origin, strict=True)]
        for axis, ends in enumerate(edges):
            if ends is not None:
                # By convention the `spacing` of a graded axis is its smallest cell width.
                spacing[axis] = float(np.diff(ends).min())
                origin[axis] = (ends[0] + ends[1]) / 2
        ends_of = tuple(None if ends is None else tuple(ends) for ends in edges)
        kept = ends_of if any(ends_of) else ()
        return cls(shape, tuple(spacing), tuple(origin), edges=kept, system=system)

    @property
    def is_graded(self) -> bool:
        """Whether cells differ in width along some axis."""
        return any(ends is not None for ends in self.edges)

    @property
    def dimensions(self) -> int:
        """The power of metres of a volume."""
        return self.system.dimensions if self.system.is_curved else self.ndim

    @property
    def is_even(self) -> bool:
        """Whether all cells have the same volume and the same areas."""
        return not self.is_graded and not self.system.is_curved

    @property
    def size(self) -> tuple[float, ...]:
        """Edge lengths of the box [m], array order."""
        return tuple(
            n * h if (ends := self._edges(axis)) is None else ends[-1] - ends[0]
            for axis, (n, h) in enumerate(zip(self.shape, self.spacing, strict=True))
        )

    @property
    def cell_volume(self) -> float:
        """Volume a point stands for [m^3]; an area [m^2] in 2D, a length [m] in 1D.

        The mean over all cells where they differ; `volumes` has them one by one.
        """
        # Sums of factors: no array of all cells is needed.
        if self.system.is_curved:
            spans = [self._extents(axis, 0, n).sum() for axis, n in enumerate(self.shape)]
            return float(self.system.around * math.prod(spans) / self.n_points)
        if self.is_graded:
            return math.prod(self.size) / self.n_points
        return math.prod(self.spacing)

    @property
    def widest(self) -> tuple[float, ...]:
        """Largest width of a cell per axis [m]; the spacing where the axis is even."""
        return tuple(
            h if self._edges(axis) is None else float(self.widths(axis).max())
            for axis, h in enumerate(self.spacing)
        )

    @property
    def narrowest(self) -> tuple[float, ...]:
        """Smallest width of a cell per axis [m]; along an angle the arc of the innermost cells."""
        # The first cell is one of the innermost: r ascends.
        first = np.zeros((1, self.ndim), np.int64)
        scales = (float(np.max(self.scale_at(axis, first))) for axis in range(self.ndim))
        return tuple(h * scale for h, scale in zip(self.spacing, scales, strict=True))

    def bounds(self, axis: int) -> tuple[float, float]:
        """Return both ends of the box along an axis [m]."""
        ends = self._edges(axis)
        low = self.origin[axis] - self.spacing[axis] / 2 if ends is None else ends[0]
        return low, low + self.size[axis] if ends is None else ends[-1]

    def ends(self, axis: int) -> npt.NDArray[np.float64]:
        """Return all cell boundaries of an axis [m], ascending, (n + 1,)."""
        if (ends := self._edges(axis)) is not None:
            return np.array(ends)
        return np.asarray(
            self.bounds(axis)[0] + np.arange(self.shape[axis] + 1) * self.spacing[axis]
        )

    def widths(self, axis: int, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float64]:
        """Return the widths of the cells start..stop-1 along `axis` [m], (stop - start,)."""
        ends = self._edges(axis)
        stop = self.shape[axis] if stop is None else stop
        if ends is None:
            return np.full(stop - start, self.spacing[axis])
        return np.diff(np.array(ends[start : stop + 1]))

    def volumes(self, box: Sequence[tuple[int, int]]) -> npt.NDArray[np.float64]:
        """Return the volumes of the cells of a box of global indices [m^3], of its shape."""
        found = np.full((), self.system.around)
        for axis, span in enumerate(box):
            found = np.multiply.outer(found, self._extents(axis, *span))
        return found

    def volumes_at(self, places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """Return the volumes of some cells [m^3], (n,), by their indices (n, ndim)."""
        found = np.full(len(places), self.system.around)
        for axis, n in enumerate(self.shape):
            found *= self._extents(axis, 0, n)[places[:, axis]]
        return found

    def _extents(self, axis: int, start: int, stop: int) -> npt.NDArray[np.float64]:
        if not self.system.is_curved:
            return self.widths(axis, start, stop)
        return self.system.extents(self.axis_names[axis], self.ends(axis)[start : stop + 1])

    def areas(self, axis: int, box: Sequence[tuple[int, int]]) -> npt.NDArray[np.float64]:
        """Return the areas of the upper faces of the cells of a box along an axis [m^2], of its
        shape; along that axis the box may begin at -1.
        """
        found = np.full((), self.system.around)
        for other, span in enumerate(box):
            found = np.multiply.outer(found, self._across(axis, other, *span))
        return found

    def areas_at(self, axis: int, places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """Return the areas of the upper faces of some cells along an axis [m^2], (n,), by their
        indices (n, ndim).
        """
        found = np.full(len(places), self.system.around)
        for other, n in enumerate(self.shape):
            found *= self._across(axis, other, 0, n)[places[:, other]]
        return found

    def _across(self, axis: int, other: int, start: int, stop: int) -> npt.NDArray[np.float64]:
        """Factors of the areas of the upper faces along an axis, by cell along another one."""
        system, names = self.system, self.axis_names
        if not system.is_curved:
            return np.ones(stop - start) if other == axis else self.widths(other, start, stop)
        if other == axis:
            return system.through(names[axis], self.ends(axis)[start + 1 : stop + 1])
        return system.across(names[axis], names[other], self.ends(other)[start : stop + 1])

    def scale_at(
        self, axis: int, places: npt.NDArray[np.integer[Any]]
    ) -> npt.NDArray[np.float64] | float:
        """Return the metres per unit of an axis at some cells, (n,) or one for all, by their
        indices (n, ndim): along an angle the radius.
        """
        names = self.axis_names
        if names[axis] != "theta":
            return 1.0
        place = names.index("r")
        return np.asarray(self.coordinates(place)[places[:, place]])

    def distances(self, axis: int, box: Sequence[tuple[int, int]]) -> npt.NDArray[np.float64]:
        """Return how far apart the faces of the cells of a box are along an axis [m], shaped to
        broadcast: along an angle arcs through the centres of the cells.
        """
        names = self.axis_names
        along = [-1 if other == axis else 1 for other in range(self.ndim)]
        found = self.widths(axis, *box[axis]).reshape(along)
        if names[axis] != "theta":
            return found
        # An arc as long as at the centre of the cell: the harmonic x = r cos(theta) stays harmonic.
        place = names.index("r")
        along = [-1 if other == place else 1 for other in range(self.ndim)]
        return found * self.coordinates(place, *box[place]).reshape(along)

    def point_in_words(self, point: Sequence[int]) -> str:
        """Return the indices of a point as text, x first.

        >>> Grid((4, 8), (1.0, 1.0), (0.0, 0.0)).point_in_words((1, 2))
        'x = 2, y = 1'
        """
        pairs = [*zip(self.axis_names, point, strict=True)]
        return ", ".join(f"{name} = {place}" for name, place in pairs[::-1])

    def on_shape(self, shape: Sequence[int]) -> Grid:
        """Change the numbers of points but keep spacing and first point; the cells of graded axes
        repeat beyond their end.
        """
        edges = tuple(
            None if ends is None else _continued(ends, n)
            for n, ends in zip(shape, self.edges, strict=bool(self.edges))
        )
        return Grid(tuple(shape), self.spacing, self.origin, edges=edges, system=self.system)

    def part(self, axes: Sequence[tuple[int, int] | None], cut: Mapping[str, float]) -> Grid:
        """Return the grid of some of its points.

        Args:
            axes: per axis the points start..stop-1, or None where a slice cuts it.
            cut: position of the slice, by the name of the axis [m].
        """
        kept = [(axis, *span) for axis, span in enumerate(axes) if span is not None]
        edges = tuple(
            None if (ends := self._edges(axis)) is None else ends[start : stop + 1]
            for axis, start, stop in kept
        )

        # A part of a graded axis has its own smallest width.
        return Grid(
            shape=tuple(stop - start for _, start, stop in kept),
            spacing=tuple(
                self.spacing[axis] if ends is None else float(np.diff(ends).min())
                for (axis, *_), ends in zip(kept, edges, strict=True)
            ),
            origin=tuple(float(self.positions(axis, start)) for axis, start, _ in kept),
            cut=tuple((name, cut[name]) for name in self.axis_names if name in cut),
            edges=edges if any(edges) else (),
            system=self.system,
        )

    def _edges(self, axis: int) -> tuple[float, ...] | None:
        return self.edges[axis] if self.edges else None

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of the axes in array order, the last one being x: ("z", "y", "x") in 3D, ("z", "x")
        for a slice normal to y.
        """
        lacking = dict(self.cut)
        whole = (
            self.system.axes if self.system.is_curved else AXIS_NAMES[: self.ndim + len(lacking)]
        )
        return tuple(name for name in reversed(whole) if name not in lacking)

    def within(self, axis: int, low: float, high: float) -> tuple[int, int]:
        """Return the points start..stop-1 of an axis between two positions [m], both included.

        >>> Grid.box((10,), (1.0,)).within(0, 0.25, 0.4)
        (2, 4)
        """
        n = self.shape[axis]
        slack = 1e-9 * n  # a point on a bound may be off by a rounding
        begin, end = (self.index_at(axis, place) for place in (low, high))
        # Clamp before rounding: positions may lie far outside the grid, or at infinity.
        start = math.ceil(min(max(begin - slack, 0), n))
        stop = math.floor(min(max(end + slack, -1), n - 1)) + 1
        return start, max(start, stop)

    def index_at(self, axis: int, position: float, *, periodic: bool = False) -> float:
        """Convert a position [m] to a fractional index, 0 at the first point, linear between
        points. Beyond the ends of an axis lie its mirror points, or its periodic images.

        >>> Grid.graded((2,), (6.0,), ((0.0, 2.0, 6.0),)).index_at(0, 3.0)
        0.6666666666666666
        """
        if self._edges(axis) is None:
            return (position - self.origin[axis]) / self.spacing[axis]

        # On a graded axis, add one ghost point at either end: the ghost cell is as wide as the cell
        # that it mirrors or repeats.
        points, widths = self.coordinates(axis), self.widths(axis)
        low, high = self.bounds(axis)
        before, after = (widths[-1], widths[0]) if periodic else (widths[0], widths[-1])
        points = np.concatenate([[low - before / 2], points, [high + after / 2]])
        below = int(np.clip(np.searchsorted(points, position, "right") - 1, 0, len(points) - 2))
        share = (position - points[below]) / (points[below + 1] - points[below])
        return float(below - 1 + share)

    def interpolation(
        self, axis: int, position: float, *, points: int, periodic: bool
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The points of an axis around a position [m], and their weights in the polynomial through
        them (Lagrange's): linear through 2 points, cubic through 4.

        Beside a face the outermost points serve, beyond which the polynomial goes on.

        >>> Grid((6,), (1.0,), (0.5,)).interpolation(0, 2.0, points=2, periodic=False)
        ((1, 2), (0.5, 0.5))

        Args:
            axis: array order.
            position: along it [m].
            points: how many, as far as the axis has them.
            periodic: whether the axis is.
        """
        n, place = self.shape[axis], self.index_at(axis, position, periodic=periodic)
        # As many to the left as to the right, where there are.
        count = min(points, n)
        first = math.floor(place) - (count // 2 - 1)
        if not periodic:
            first = min(max(first, 0), n - count)
        known = range(first, first + count)
        weights = [
            math.prod((place - other) / (one - other) for other in known if other != one)
            for one in known
        ]
        return tuple(it % n for it in known), tuple(weights)

    def cell_at(self, axis: int, position: float) -> int:
        """Return the cell that holds a position inside the box [m]; at a boundary of two, the upper
        one.
        """
        if (ends := self._edges(axis)) is not None:
            found = int(np.searchsorted(ends, position, "right")) - 1
        else:
            found = math.floor((position - self.bounds(axis)[0]) / self.spacing[axis])
        # The far end of the box belongs to the last cell.
        return min(found, self.shape[axis] - 1)

    def coordinates(
        self, axis: int, start: int = 0, stop: int | None = None
    ) -> npt.NDArray[np.float64]:
        """Positions of the points start..stop-1 along `axis` [m], (stop - start,).

        A position depends on the global index only, so every slab computes the same bits.
        """
        stop = self.shape[axis] if stop is None else stop
        return self.positions(axis, np.arange(start, stop))

    def positions(self, axis: int, indices: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Positions of any points along `axis` by their global indices [m], of the shape of
        `indices`.
        """
        index = np.asarray(indices)
        if (ends := self._edges(axis)) is None:
            return np.asarray(self.origin[axis] + index * self.spacing[axis])
        of_cells = np.array(ends)
        return np.asarray((of_cells[index + 1] + of_cells[index]) / 2)


def _continued(ends: tuple[float, ...], n: int) -> tuple[float, ...]:
    """The ends of n cells whose widths repeat.

    >>> _continued((0.0, 1.0, 3.0), 1), _continued((0.0, 1.0, 3.0), 3)
    ((0.0, 1.0), (0.0, 1.0, 3.0, 4.0))
    """
    more = np.resize(np.diff(ends), max(n + 1 - len(ends), 0))
    return (*ends[: n + 1], *(ends[-1] + np.cumsum(more)).tolist())
