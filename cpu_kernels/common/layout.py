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

from tetris_sim.cpu_kernels.common.geometry import Geometry, Links, face_links, geometry_of
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
        """Describe the layout; see `geometry.py`. A ring has as many ghosts as the margin has room
        for.
        """
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
