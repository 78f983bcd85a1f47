"""PaddedField: memory layout of a slab in one flat array, with ghosts and halos around it.

Every problem is laid out along three axes, slowest first (`OUTER` of `model/grid.py`); those that
it lacks have one point and no ghosts. The first owned point of each row lies on a cache line of its
own, so rows never share a line across threads. `Layout` is the interface through which a stepper
uses this and other layouts (`lifted.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import SIDES, Reflection
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Ranges, Slab, batches

_LINE = 64  # bytes of a cache line
_PAGE = 4096  # bytes; what lies a multiple of this apart falls into the same cache sets


class Layout(Protocol):
    """Memory layout of the points of a slab in a flat array."""

    @property
    def axis_of(self) -> tuple[int, ...]:
        """For each axis of the problem, its number among the three."""

    @property
    def first(self) -> tuple[int, int, int]:
        """Padded index of the first owned point, per padded axis."""

    @property
    def count(self) -> tuple[int, int, int]:
        """Points owned, or vectors, per padded axis."""

    @property
    def margin(self) -> tuple[tuple[int, int], ...]:
        """Units around them, (low, high) per padded axis."""

    @property
    def pitch(self) -> tuple[int, int, int]:
        """Elements between neighbours along each padded axis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""

    @property
    def n_fields(self) -> int:
        """Number of fields."""

    @property
    def field_pitch(self) -> int:
        """Elements between fields."""

    @property
    def n_bytes(self) -> int:
        """Bytes of one array of this layout."""

    def allocate(self, offset: int = 0) -> npt.NDArray[Any]:
        """Allocate a flat array `offset` bytes into a page; its pages have not been touched."""

    def geometry(self, problem: Problem, slab: Slab) -> Geometry:
        """The description of the layout for the compiled time loop."""

    def batches(self, part: int, parts: int, points: int) -> Iterator[Ranges]:
        """Boxes of about `points` points that together make up part `part` of `parts`, the one that
        a thread computes.
        """

    def read(self, flat: npt.NDArray[Any], ranges: Ranges) -> Field:
        """The values in a box, (n_fields, ...): a view or a copy, whichever is cheaper."""

    def write(self, flat: npt.NDArray[Any], ranges: Ranges, values: Field) -> None:
        """Store the values of a box."""


def allocate_aligned(n_bytes: int, dtype: np.dtype[Any], offset: int) -> npt.NDArray[Any]:
    """Allocate a flat array that begins `offset` bytes into a page; since it is untouched, the
    system has not placed its pages yet.

    Args:
        n_bytes: of the array.
        dtype: of its elements.
        offset: a multiple of a cache line. Source and target of a sweep should differ in it: a load
            waits for a recent store at the same place of another page.
    """
    # One page more than asked for leaves room to move the beginning to the wanted offset.
    raw = np.empty(n_bytes + _PAGE, dtype=np.uint8)
    shift = (offset - raw.ctypes.data) % _PAGE
    return raw[shift : shift + n_bytes].view(dtype)


def row_pitch(n: int, unit: int, itemsize: int) -> int:
    """Elements from row to row for rows of `n` elements: whole units, and not a multiple of a page.

    Args:
        n: elements that a row needs.
        unit: elements that lie together, a cache line or a vector.
        itemsize: bytes of an element.
    """
    # Rows a page apart would fall into the same cache sets, so that few of them fit.
    row = -(-n // unit) * unit
    return row + unit if row * itemsize % _PAGE == 0 else row


def part_in_batches(shape: tuple[int, ...], part: int, parts: int, points: int) -> Iterator[Ranges]:
    """One of `parts` parts of a box, cut along its first axis, in batches of about `points`
    points.
    """
    first, last = shape[0] * part // parts, shape[0] * (part + 1) // parts
    return batches(((first, last), *((0, n) for n in shape[1:])), points)


@dataclass(frozen=True)
class PaddedField:
    """Memory layout of one slab with x-neighbours in adjacent elements.

    Attributes:
        axis_of: for each axis of the problem, its number among the three.
        first: padded index of the first owned point, per padded axis.
        count: points owned, per padded axis.
        margin: ghost or halo points (low, high) per padded axis.
        extent: padded points per axis, the last one being the row pitch.
        n_fields: number of fields.
        dtype: of the elements.
        tail: elements behind the last row that may be read, whatever they are.
    """

    axis_of: tuple[int, ...]
    first: tuple[int, int, int]
    count: tuple[int, int, int]
    margin: tuple[tuple[int, int], ...]
    extent: tuple[int, int, int]
    n_fields: int
    dtype: np.dtype[Any]
    tail: int = 0

    @property
    def pitch(self) -> tuple[int, int, int]:
        """Elements between neighbours along each padded axis."""
        return self.extent[1] * self.extent[2], self.extent[2], 1

    @property
    def field_pitch(self) -> int:
        """Elements between fields."""
        return math.prod(self.extent)

    @property
    def n_bytes(self) -> int:
        """Bytes of one array of this layout."""
        return (self.n_fields * self.field_pitch + self.tail) * self.dtype.itemsize

    def allocate(self, offset: int = 0) -> npt.NDArray[Any]:
        """A flat array with every row's first owned point on a cache line; see
        `allocate_aligned`.
        """
        return allocate_aligned(self.n_bytes, self.dtype, offset)

    def geometry(self, problem: Problem, slab: Slab) -> Geometry:
        """Describe the layout. A ring has as many ghosts as the margin has room for."""
        first, last = self.first[2], self.first[2] + self.count[2] - 1
        last_axis = len(self.axis_of) - 1
        links: Links = []
        for side in (0, 1):
            if not slab.halo[last_axis][side]:
                links += face_links(problem, last_axis, side, (first, last), self.margin[2][side])
        return geometry_of(self, problem, slab, links)

    def batches(self, part: int, parts: int, points: int) -> Iterator[Ranges]:
        """Consecutive planes."""
        return part_in_batches(
            tuple(self.count[axis] for axis in self.axis_of), part, parts, points
        )

    def read(self, flat: npt.NDArray[Any], ranges: Ranges) -> Field:
        """A view."""
        # Ranges count from the first owned point and may be negative in the margin.
        box = (
            slice(first + start, first + stop)
            for first, (start, stop) in zip(
                self.first, on_three(ranges, (0, 1), OUTER), strict=True
            )
        )
        whole = flat[: self.n_fields * self.field_pitch].reshape(self.n_fields, *self.extent)
        array = whole[(slice(None), *box)]
        return array.reshape(self.n_fields, *(array.shape[1 + axis] for axis in self.axis_of))

    def write(self, flat: npt.NDArray[Any], ranges: Ranges, values: Field) -> None:
        """Store through the view."""
        self.read(flat, ranges)[...] = values


def least_margins(problem: Problem, slab: Slab) -> tuple[tuple[int, int], ...]:
    """Per axis of the problem (low, high): the halo where a slab has neighbours, the radius
    elsewhere.
    """
    return tuple(
        (low or radius, high or radius)
        for (low, high), radius in zip(slab.halo, problem.stencil.radii, strict=True)
    )


def pad(
    problem: Problem, slab: Slab, margins: Sequence[tuple[int, int]] | None = None, *, tail: int = 0
) -> PaddedField:
    """The layout of one slab.

    Args:
        problem: what is laid out.
        slab: which part of it.
        margins: points kept around it, per axis of the problem; `least_margins` if not given. Where
            an axis is periodic and whole, all of them are ghosts; at other faces only those within
            the radius.
        tail: elements behind the last row that may be read.
    """
    count = on_three(slab.shape, 1, OUTER)
    margin = on_three(margins or least_margins(problem, slab), (0, 0), OUTER)

    # Whole cache lines in front of the first owned point keep every row aligned.
    dtype = problem.arithmetic  # wider than float16, of which each step rounds what it stores
    line = _LINE // dtype.itemsize
    lead = -(-margin[2][0] // line) * line
    row = row_pitch(lead + count[2] + margin[2][1], line, dtype.itemsize)
    planes = [low + n + high for n, (low, high) in zip(count, margin, strict=True)]

    return PaddedField(
        axis_of=OUTER[problem.grid.ndim],
        first=(margin[0][0], margin[1][0], lead),
        count=count,
        margin=margin,
        extent=(planes[0], planes[1], row),
        n_fields=problem.n_fields,
        dtype=dtype,
        tail=tail,
    )


# Geometry: numeric description of a slab for the compiled time loops.
#
# `axes` has a row per padded axis with the columns defined below. `links` names ghosts: along axes
# 0 and 1 the padded index of a ghost plane and of the plane it mirrors, along axis 2 the elements
# of a row; `faces` has (a, b) for each, and the ghost takes a + b * source.

Links = list[
    tuple[tuple[int, int], Reflection]
]  # ((ghost, source), (a, b)): the ghost takes a + b * source
COPY: Reflection = (-0.0, 1.0)  # adding -0.0 leaves every bit as it is
RULED: Reflection = (math.nan, math.nan)  # no two numbers, but what a program computes


def face_links(problem: Problem, axis: int, side: int, owned: tuple[int, int], width: int) -> Links:
    """The ghost planes beyond one side that has no neighbour.

    Args:
        problem: gives the face.
        axis: of the problem.
        side: 0 for low, 1 for high.
        owned: padded index of the first and of the last plane.
        width: how many ghosts a ring gets; a reflecting face gets as many as the radius.
    """
    first, last = owned
    n = last - first + 1

    # Around a ring narrower than the halo the source index wraps more than once, hence the modulus.
    if problem.boundary.periodic(axis):
        if side == 0:
            return [((first - 1 - j, last - j % n), COPY) for j in range(width)]
        return [((last + 1 + j, first + j % n), COPY) for j in range(width)]

    # Ghost j mirrors the j-th owned plane from the face; with conduction its value follows from the
    # program of a rule, for which `RULED` stands.
    radius = problem.stencil.radii[axis]
    pairs = (RULED,) * radius
    if problem.conduction is None:
        pairs = problem.boundary.reflections(
            axis, SIDES[side], spacing=problem.grid.spacing[axis], width=radius
        )
    if side == 0:
        return [((first - 1 - j, first + j), pair) for j, pair in enumerate(pairs)]
    return [((last + 1 + j, last - j), pair) for j, pair in enumerate(pairs)]


# Columns of the arrays that describe the memory layout of a slab to a compiled time loop.
#
# The host side reads them without compiling anything. `sweep.py` uses the first eight columns of
# `axes`, `tile_sweep.py` all of them.
#
# Of `axes`. FIRST, COUNT, PITCH: padded index of the first computed unit, their number, elements
# from one to the next. LINKS: number of rows of `links` that belong to the axis. SHRINK and GHOSTS:
# + side, planes of halo used up per step, planes of ghosts. REACH: radius of the stencil along the
# axis. SEAM: 1 if the axis is a ring, so that its two ends may be computed as one tile. RIM: units
# at either end that only that tile computes.
#
# Of `sides`, which has a row per side of a slab that has ghosts (`medium.py`). AXIS: padded axis.
# GHOST, MIRROR: padded index of the ghost plane and of the plane it follows from. KIND: number of
# its program, 0 for a copy. RULE: its row of `places`. CODES: where the code of padded index (0, 0,
# 0) would be in `codes`. CODE_PITCH: + axis, from code to code.

FIRST, COUNT, PITCH, LINKS, SHRINK, GHOSTS = 0, 1, 2, 3, 4, 6  # SHRINK and GHOSTS: + side
REACH, SEAM, RIM = 8, 9, 10
N_COLUMNS = 11
AXIS, GHOST, MIRROR, KIND, RULE, CODES, CODE_PITCH = 0, 1, 2, 3, 4, 5, 6  # CODE_PITCH: + axis
N_SIDE_COLUMNS = 9
RUN = 32  # points that lie one after the other and share an element of `alike`


@dataclass(frozen=True)
class Geometry:
    """The arrays `axes`, `links` and `faces` of `sweep.py` and `tile_sweep.py`."""

    axes: npt.NDArray[np.int64]
    links: npt.NDArray[np.int64]
    faces: npt.NDArray[Any]


def geometry_of(layout: Layout, problem: Problem, slab: Slab, row_links: Links) -> Geometry:
    """The geometry of a layout whose ghosts within a row are known.

    Args:
        layout: the padded axes.
        problem: gives faces and radii.
        slab: tells which sides have a halo.
        row_links: of the last axis, in elements from the start of a row.
    """
    axes = np.zeros((3, N_COLUMNS), dtype=np.int64)
    # A ring is a whole periodic axis of this slab; an axis cut by the domain decomposition has
    # halos instead.
    axes[:, FIRST], axes[:, COUNT] = layout.first, layout.count
    axes[:, PITCH] = layout.pitch

    links_of: list[Links] = [[], [], row_links]  # per padded axis
    for axis, padded in enumerate(layout.axis_of):
        radius = problem.stencil.radii[axis]
        axes[padded, REACH] = radius
        axes[padded, SEAM] = problem.boundary.periodic(axis) and slab.halo[axis] == (0, 0)

        first, last = layout.first[padded], layout.first[padded] + layout.count[padded] - 1
        for side in (0, 1):
            # A halo shrinks by the radius with every step, because its outermost points lack
            # neighbours.
            if slab.halo[axis][side]:
                axes[padded, SHRINK + side] = radius
                continue
            links = face_links(problem, axis, side, (first, last), layout.margin[padded][side])
            axes[padded, GHOSTS + side] = len(links)
            # Links within a row depend on the layout and come from the caller.
            if padded < 2:
                links_of[padded] += links

    # All axes share one rectangular array; LINKS says how many rows of it are in use.
    most = max(1, *map(len, links_of))
    links_array = np.zeros((3, most, 2), dtype=np.int64)
    faces = np.zeros((3, most, 2), dtype=problem.arithmetic)
    for padded, planes in enumerate(links_of):
        axes[padded, LINKS] = len(planes)
        for k, (link, reflection) in enumerate(planes):
            links_array[padded, k], faces[padded, k] = link, reflection
    return Geometry(axes, links_array, faces)
