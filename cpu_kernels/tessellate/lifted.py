"""LiftedField: rows stored so that x-neighbours are neighbouring vectors and no kernel moves a
value between lanes.

A row of n points is cut into as many chunks as a vector has lanes: point x = lane * stride + p lies
in lane `lane` of vector p. What was an unaligned load of x + 1 is the aligned load of vector p + 1.
This is the idea of the paper's Vector Skewed Swizzling (Tetris, section 3.1), carried out once per
run instead of once per load.

Where n is no multiple of the lanes the chunks overlap: stride = n // lanes, and each chunk has n %
lanes points more, which are the first of the next one. Both copies take the same values, since they
are computed from the same ones, so the two faces of a row are always the ends of the first and the
last lane. Before vector 0 and after the last one lie `radius` halo vectors each: all lanes but one
repeat the end of the lane beside them, and the outermost lane holds the ghosts of the face. The
halo of a slab along x is part of the row; it is computed with the rest while it lasts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import (
    COPY,
    GHOSTS,
    RIM,
    SEAM,
    SHRINK,
    Geometry,
    Links,
    allocate_aligned,
    face_links,
    geometry_of,
    least_margins,
    part_in_batches,
    row_pitch,
)
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Ranges, Slab

# points of a 1D piece: lifting takes it lane by lane, and it should stay in the L2 cache
_JOINED = 1 << 17


def _copies() -> ModuleType:
    # Planning asks layouts for their size and needs no compiler.
    from tetris_sim.cpu_kernels.compiled.generate import copied_module

    return copied_module("tessellate/recording.py")


@dataclass(frozen=True)
class LiftedField:
    """The arithmetic of one slab's memory, x-neighbours a vector apart. Units along the last axis
    are vectors.

    Attributes:
        axis_of: for each axis of the problem, its number among the three.
        first: padded index of the first owned point (of vector 0), per padded axis.
        count: points owned (vectors), per padded axis.
        margin: ghost or halo points (halo vectors) per padded axis.
        extent: padded points per axis; of the last one, elements from row to row.
        lanes: elements of a vector.
        stride: points of a row from one lane to the next.
        lead: points of a slab's halo before the first owned point of a row.
        shape: points owned, per axis of the problem.
        n_fields: number of fields.
        dtype: of the elements.
    """

    axis_of: tuple[int, ...]
    first: tuple[int, int, int]
    count: tuple[int, int, int]
    margin: tuple[tuple[int, int], ...]
    extent: tuple[int, int, int]
    lanes: int
    stride: int
    lead: int
    shape: tuple[int, ...]
    n_fields: int
    dtype: np.dtype[Any]

    @property
    def pitch(self) -> tuple[int, int, int]:
        """Elements between neighbours along each padded axis."""
        return self.extent[1] * self.extent[2], self.extent[2], self.lanes

    @property
    def field_pitch(self) -> int:
        """Elements between fields."""
        return math.prod(self.extent)

    @property
    def n_bytes(self) -> int:
        """Bytes of one array of this layout."""
        return self.n_fields * self.field_pitch * self.dtype.itemsize

    def allocate(self, offset: int = 0) -> npt.NDArray[Any]:
        """A flat array in which every vector is aligned; see `allocate_aligned`."""
        return allocate_aligned(self.n_bytes, self.dtype, offset)

    def geometry(self, problem: Problem, slab: Slab) -> Geometry:
        """See `layout.py`. Along the last axis every row is a ring of `stride` vectors, whatever
        its faces are.
        """
        last = len(self.axis_of) - 1
        radius = problem.stencil.radii[last]
        links: Links = []
        for side in (0, 1):
            outermost = self._face_ghosts(problem, slab, side)
            for j in range(radius):
                links += [outermost[j], *self._joints(side, j)]
        geometry = geometry_of(self, problem, slab, links)
        row = geometry.axes[2]
        row[SEAM], row[RIM] = 1, self.count[2] - self.stride
        row[SHRINK : SHRINK + 2] = 0
        row[GHOSTS : GHOSTS + 2] = radius
        return geometry

    def batches(self, part: int, parts: int, points: int) -> Iterator[Ranges]:
        """Planes one after the other; in 1D the same vectors of all lanes one after the other."""
        if len(self.shape) > 1:
            yield from part_in_batches(self.shape, part, parts, points)
            return
        wide = max(1, min(points, _JOINED) // self.lanes)

        # Ranges follow the lanes, since threads own vectors rather than points of a row.
        first, last = self.stride * part // parts, self.stride * (part + 1) // parts
        for p in range(first, last, wide):
            for lane in range(self.lanes):
                stop = min(p + wide, last)
                if lane == self.lanes - 1 and stop == self.stride:
                    stop = self.count[2]
                low = max(lane * self.stride + p - self.lead, 0)
                high = min(lane * self.stride + stop - self.lead, self.shape[0])
                if low < high:
                    yield ((low, high),)

    def read(self, flat: npt.NDArray[Any], ranges: Ranges) -> Field:
        """A copy."""
        first, counts, x = self._box(ranges)
        values = np.empty((self.n_fields, *counts, x[1] - x[0]), dtype=self.dtype)
        _copies().unlift(flat, self._pitches(), first, x[0], self.stride, self.lanes, values)
        return values.reshape(self.n_fields, *(stop - start for start, stop in ranges))

    def write(self, flat: npt.NDArray[Any], ranges: Ranges, values: Field) -> None:
        """Store the values, and the copies of those that lie in two lanes."""
        first, counts, x = self._box(ranges)
        box = np.ascontiguousarray(values, dtype=self.dtype).reshape(
            self.n_fields, *counts, x[1] - x[0]
        )
        _copies().lift(
            box, flat, self._pitches(), first, x[0], self.stride, self.lanes, self.count[2]
        )

    def _pitches(self) -> tuple[int, int, int]:
        return self.field_pitch, self.pitch[0], self.pitch[1]

    def _box(self, ranges: Ranges) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """Element of vector 0 in the first row of a box, its numbers of planes and rows, and its
        points of a row.
        """
        (z0, z1), (y0, y1), (x0, x1) = on_three(ranges, (0, 1), OUTER)
        pitch = self.pitch
        first = (
            (self.first[0] + z0) * pitch[0]
            + (self.first[1] + y0) * pitch[1]
            + self.first[2] * pitch[2]
        )
        return first, (z1 - z0, y1 - y0), (x0 + self.lead, x1 + self.lead)

    def _element(self, x: int) -> int:
        """Element of point x of a row, counted from the row's start; x counts from the start of
        lane 0.
        """
        lane = min(x // self.stride, self.lanes - 1)
        return (self.first[2] + x - lane * self.stride) * self.lanes + lane

    def _ghost(self, side: int, j: int) -> int:
        """First element of halo vector j beyond one end."""
        return (
            self.first[2] - 1 - j if side == 0 else self.first[2] + self.count[2] + j
        ) * self.lanes

    def _face_ghosts(self, problem: Problem, slab: Slab, side: int) -> Links:
        """The outermost lane of the halo vectors at one end: ghosts of the face, or nothing if the
        end is open.
        """
        axis = len(self.axis_of) - 1
        lane = 0 if side == 0 else self.lanes - 1
        radius = problem.stencil.radii[axis]
        ghosts = [self._ghost(side, j) + lane for j in range(radius)]
        if slab.halo[axis][side]:
            return [((ghost, ghost), COPY) for ghost in ghosts]
        # Along x the row includes the halo, so its length exceeds the owned points.
        length = (self.lanes - 1) * self.stride + self.count[2]
        points = face_links(problem, axis, side, (0, length - 1), radius)
        return [
            ((ghost, self._element(source)), pair)
            for ghost, ((_, source), pair) in zip(ghosts, points, strict=True)
        ]

    def _joints(self, side: int, j: int) -> Links:
        """The other lanes of halo vector j: the end of the lane before, or the beginning of the one
        after.
        """
        ghost = self._ghost(side, j)
        if side == 0:
            source = (self.first[2] + self.stride - 1 - j) * self.lanes
            return [((ghost + lane, source + lane - 1), COPY) for lane in range(1, self.lanes)]
        source = (self.first[2] + self.count[2] - self.stride + j) * self.lanes
        return [((ghost + lane, source + lane + 1), COPY) for lane in range(self.lanes - 1)]


def can_lift(problem: Problem, slab: Slab, lanes: int) -> bool:
    """Whether rows are long enough: a chunk must hold the radius, or a neighbour would lie two
    lanes away.
    """
    return _row_length(slab) // lanes >= max(1, problem.stencil.radii[-1])


def lift_slab(problem: Problem, slab: Slab, lanes: int) -> LiftedField:
    """The lifted layout of one slab.

    Args:
        problem: what is laid out.
        slab: which part of it; `can_lift` says whether its rows are long enough.
        lanes: elements of a vector.
    """
    radius = problem.stencil.radii[-1]
    # Lane l begins `stride` points after lane l - 1; what does not divide is computed twice.
    stride = _row_length(slab) // lanes
    vectors = _row_length(slab) - (lanes - 1) * stride

    count = on_three((*slab.shape[:-1], vectors), 1, OUTER)
    around = (*least_margins(problem, slab)[:-1], (radius, radius))
    margin = on_three(around, (0, 0), OUTER)
    planes = [low + n + high for n, (low, high) in zip(count, margin, strict=True)]

    return LiftedField(
        axis_of=OUTER[problem.grid.ndim],
        first=(margin[0][0], margin[1][0], radius),
        count=count,
        margin=margin,
        extent=(
            planes[0],
            planes[1],
            row_pitch((vectors + 2 * radius) * lanes, lanes, problem.dtype.itemsize),
        ),
        lanes=lanes,
        stride=stride,
        lead=slab.halo[-1][0],
        shape=slab.shape,
        n_fields=problem.n_fields,
        dtype=np.dtype(problem.dtype),
    )


def _row_length(slab: Slab) -> int:
    return slab.shape[-1] + sum(slab.halo[-1])
