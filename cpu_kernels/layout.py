"""PaddedField: where each point of a slab lies in one flat array, ghosts and halos around it.

Every problem is laid out along three axes, slowest first; the axes that a 1D or 2D problem lacks have one point and no
ghosts. The first owned point of each row lies on a cache line of its own, so rows never share a line across threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.problem import Field, Problem
from tetris_sim.slab import Slab

_LINE = 64  # bytes of a cache line
_PAGE = 4096  # bytes; what lies a multiple of this apart falls into the same cache sets


@dataclass(frozen=True)
class PaddedField:
    """The arithmetic of one slab's memory.

    Attributes:
        axis_of: for each axis of the problem, its number among the three.
        first: padded index of the first owned point, per padded axis.
        count: points owned, per padded axis.
        margin: ghost or halo points (low, high) per padded axis.
        extent: padded points per axis, the last one being the row pitch.
        n_fields: number of fields.
        dtype: of the elements.
    """

    axis_of: tuple[int, ...]
    first: tuple[int, int, int]
    count: tuple[int, int, int]
    margin: tuple[tuple[int, int], ...]
    extent: tuple[int, int, int]
    n_fields: int
    dtype: np.dtype[Any]

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
        return self.n_fields * self.field_pitch * self.dtype.itemsize + _PAGE

    def allocate(self, offset: int = 0) -> npt.NDArray[Any]:
        """A flat array with every row's first owned point on a cache line; not touched, so pages have no place yet.

        Args:
            offset: bytes from the start of a page, a multiple of a cache line. Source and target of a sweep should
                differ in it: a load waits for a recent store at the same place of another page.
        """
        raw = np.empty(self.n_bytes, dtype=np.uint8)
        shift = (offset - raw.ctypes.data) % _PAGE
        return raw[shift : shift + self.n_bytes - _PAGE].view(self.dtype)

    def view(self, flat: npt.NDArray[Any], ranges: tuple[tuple[int, int], ...]) -> Field:
        """A view of padded index ranges, one per axis of the problem: (n_fields, ...)."""
        box = [slice(None), slice(0, 1), slice(0, 1), slice(0, 1)]
        for axis, (start, stop) in enumerate(ranges):
            box[1 + self.axis_of[axis]] = slice(start, stop)
        array = flat.reshape(self.n_fields, *self.extent)[tuple(box)]
        return array.reshape(self.n_fields, *(array.shape[1 + axis] for axis in self.axis_of))

    def owned(self, axis: int) -> tuple[int, int]:
        """Padded index range of the owned points along an axis of the problem."""
        padded = self.axis_of[axis]
        return self.first[padded], self.first[padded] + self.count[padded]


def pad(problem: Problem, slab: Slab) -> PaddedField:
    """The layout of one slab: its halo where it has neighbours, the ghost ring elsewhere."""
    ndim = problem.grid.ndim
    axis_of = {1: (2,), 2: (0, 2), 3: (0, 1, 2)}[ndim]
    count, margin = [1, 1, 1], [(0, 0), (0, 0), (0, 0)]
    for axis, padded in enumerate(axis_of):
        radius = problem.stencil.radii[axis]
        low, high = slab.halo[axis]
        count[padded] = slab.shape[axis]
        margin[padded] = (low or radius, high or radius)
    line = _LINE // problem.dtype.itemsize
    lead = -(-margin[2][0] // line) * line
    row = -(-(lead + count[2] + margin[2][1]) // line) * line
    if row * problem.dtype.itemsize % _PAGE == 0:
        row += line
    planes = [low + n + high for n, (low, high) in zip(count, margin, strict=True)]
    return PaddedField(
        axis_of=axis_of,
        first=(margin[0][0], margin[1][0], lead),
        count=(count[0], count[1], count[2]),
        margin=tuple(margin),
        extent=(planes[0], planes[1], row),
        n_fields=problem.n_fields,
        dtype=np.dtype(problem.dtype),
    )
