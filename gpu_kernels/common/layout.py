"""PitchedField: where each point of a slab lies in one array of GPU memory, ghosts and halos around
it.

Every problem is laid out along three axes, slowest first; the axes that a 1D or 2D problem lacks
come first, with one point and no ghosts. The first owned point of each row lies at the beginning of
a line of 128 bytes, the unit in which a GPU reads memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.pairs import stored_weights
from tetris_sim.model.deep_ghosts import lasting_sides
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.problem import PAIR, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import chain_order

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.common.device import GpuDevice

# The terms of a stencil as kernels want them: offsets on three axes as a definition, weights as an
# array.

# that are computed with as they are
REAL = {"float64": "double", "float32": "float", PAIR.name: "Pair"}
STORED = {**REAL, "float16": "Half"}  # that memory may hold


def term_defines(problem: Problem) -> dict[str, str | int]:
    """TS_REAL, TS_TERMS and TS_OFFSETS."""
    offsets = problem.stencil.offsets
    places = [on_three(offsets[k], 0) for k in chain_order(offsets)]
    return {
        "TS_REAL": STORED[problem.dtype.name],
        "TS_TERMS": len(places),
        "TS_OFFSETS": ",".join("{" + ",".join(map(str, offset)) + "}" for offset in places),
    }


def term_weights(problem: Problem) -> npt.NDArray[Any]:
    """The weights in that order, in what the problem is computed in."""
    weights = [problem.stencil.weights[k] for k in chain_order(problem.stencil.offsets)]
    return stored_weights(weights, problem.arithmetic)


LINE = 128  # bytes
# (low, high) per axis, counted from the first owned
Box3 = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
FAR = 1 << 29  # farther than any point, and far from what an int holds
_PAGE = 4096  # bytes; rows that many apart fall into the same sets of a cache


@dataclass(frozen=True)
class PitchedField:
    """The arithmetic of one slab's memory.

    Attributes:
        count: points owned, per axis of three.
        margin: points kept around them (low, high), ghosts or halo; along x what fills the lines.
        n_fields: number of fields.
        dtype: of the elements.
    """

    count: tuple[int, int, int]
    margin: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    n_fields: int
    dtype: np.dtype[Any]

    @property
    def extent(self) -> tuple[int, int, int]:
        """Points per axis, margins included."""
        z, y, x = (low + n + high for n, (low, high) in zip(self.count, self.margin, strict=True))
        return z, y, x

    @property
    def field_pitch(self) -> int:
        """Elements from field to field."""
        return math.prod(self.extent)

    @property
    def n_bytes(self) -> int:
        """Bytes of one array of this layout."""
        return self.n_fields * self.field_pitch * self.dtype.itemsize

    @property
    def origin(self) -> int:
        """Element of the first owned point of a field."""
        return sum(
            low * pitch for (low, _), pitch in zip(self.margin, (*self.pitches, 1), strict=True)
        )

    @property
    def pitches(self) -> tuple[int, int]:
        """Elements from plane to plane and from row to row."""
        return self.extent[1] * self.extent[2], self.extent[2]

    @property
    def within(self) -> Box3:
        """Everything that is allocated."""
        z, y, x = ((-low, n + high) for n, (low, high) in zip(self.count, self.margin, strict=True))
        return z, y, x

    def planes(self, flat: Any, ranges: Ranges) -> tuple[Any, PlaneForm]:
        """Whole planes of the first axis as they lie in a flat array: ((n_fields, elements), their
        form).
        """
        first = LAST[len(ranges)][0]
        low, high = ranges[0]
        form = PlaneForm(
            planes=high - low,
            extent=self.extent[first + 1 :],
            low=tuple(low for low, _ in self.margin[first + 1 :]),
            count=self.count[first + 1 :],
        )
        begin = (self.margin[first][0] + low) * math.prod(form.extent)
        return flat.reshape(self.n_fields, -1)[:, begin : begin + form.elements], form

    def view(self, flat: Any, ranges: Ranges) -> Any:
        """The points of a box, (n_fields, ...), of a flat array on any device."""
        box = [
            slice(low + start, low + stop)
            for (start, stop), (low, _) in zip(on_three(ranges, (0, 1)), self.margin, strict=True)
        ]
        array = flat.reshape(self.n_fields, *self.extent)[(slice(None), *box)]
        return array.reshape(self.n_fields, *array.shape[-len(ranges) :])


@dataclass(frozen=True)
class PlaneForm:
    """How planes of the first axis lie in one piece of memory, with all that is beside them in the
    slab.

    Slabs with planes of the same form can copy them byte by byte, which is one call; what lies
    beside the owned points is overwritten before anybody reads it.

    Attributes:
        planes: number of planes.
        extent: points of a plane along the later axes, margins included.
        low: points of the margin in front.
        count: points owned.
    """

    planes: int
    extent: tuple[int, ...]
    low: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Of all planes of a field."""
        return self.planes * math.prod(self.extent)

    def unpacked(self, flat: Any) -> Any:
        """The owned points, (n_fields, planes, ...), of planes (n_fields, elements) on any
        device.
        """
        owned = [slice(low, low + n) for low, n in zip(self.low, self.count, strict=True)]
        return flat.reshape(flat.shape[0], self.planes, *self.extent)[
            (slice(None), slice(None), *owned)
        ]


def pitch_slab(problem: Problem, slab: Slab, depth: int = 1) -> PitchedField:
    """The layout of one slab: halos where it has neighbours, ghosts elsewhere.

    Args:
        problem: gives the radius of the stencil, the number of fields and the dtype.
        slab: what is laid out.
        depth: steps for which ghosts that last are filled at once (see mirrors.py); other ghosts
            are filled at every step.
    """
    dtype = np.dtype(problem.dtype)
    margin = on_three(margins_of(problem, slab, depth), (0, 0))
    count = on_three(slab.shape, 1)

    line = LINE // dtype.itemsize
    lead = -(-max(margin[2][0], 1) // line) * line
    row = -(-(lead + count[2] + margin[2][1]) // line) * line
    if row * dtype.itemsize % _PAGE == 0:
        row += line

    return PitchedField(
        count=count,
        margin=(margin[0], margin[1], (lead, row - lead - count[2])),
        n_fields=problem.n_fields,
        dtype=dtype,
    )


def margins_of(problem: Problem, slab: Slab, depth: int = 1) -> list[tuple[int, int]]:
    """Points kept around a slab per axis of the problem, ghosts or halo; arguments as of
    `pitch_slab`.
    """
    radii = problem.stencil.radii
    reach = radii if problem.equations is None else problem.equations.reach
    return [
        (
            (halo[0] or radius * (depth if low else 1)) + farther,
            (halo[1] or radius * (depth if high else 1)) + farther,
        )
        for halo, radius, farther, (low, high) in zip(
            slab.halo,
            radii,
            (most - radius for most, radius in zip(reach, radii, strict=True)),
            lasting_sides(problem, slab),
            strict=True,
        )
    ]


def ends_of(problem: Problem, slab: Slab) -> npt.NDArray[np.int32]:
    """Where the domain ends, counted from the first owned point: (low, high, period) of each of
    three axes, (3, 3).

    An end that is no face is far away; the period is the length of an axis that is a ring within
    the slab, else 0.
    """
    ends = np.zeros((3, 3), np.int32)
    ends[0], ends[1] = -FAR, FAR
    for axis, (n, halo) in enumerate(zip(slab.shape, slab.halo, strict=True)):
        three = LAST[problem.grid.ndim][axis]
        if problem.boundary.periodic(axis):
            ends[2, three] = n if halo == (0, 0) else 0
            continue
        if not halo[0]:
            ends[0, three] = 0
        if not halo[1]:
            ends[1, three] = n
    return ends


def by_value(numbers: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    """An array as one value of as many bytes, which is how CuPy hands a struct to a kernel."""
    return np.ascontiguousarray(numbers).reshape(-1).view(f"V{numbers.nbytes}")


def box_argument(box: Box3) -> npt.NDArray[np.void]:
    """`struct Box` of common.cuh."""
    lows, highs = zip(*box, strict=True)
    return by_value(np.array([*lows, *highs], dtype=np.int32))


def boxes_argument(boxes: Sequence[Box3]) -> npt.NDArray[np.int32]:
    """An array of `struct Box`."""
    return np.array(
        [[*lows, *highs] for lows, highs in (zip(*box, strict=True) for box in boxes)], np.int32
    )


def to_device(device: GpuDevice, array: Any) -> Any:
    """The bytes of a host array on the GPU."""
    return device.cupy.asarray(np.ascontiguousarray(array).view(np.uint8).reshape(-1))


def memory_argument(plane: int, row: int, within: Box3) -> npt.NDArray[np.void]:
    """`struct Memory` of common.cuh."""
    kind = np.dtype(
        [("plane", np.int64), ("row", np.int64), ("low", np.int32, 3), ("high", np.int32, 3)]
    )
    lows, highs = zip(*within, strict=True)
    return np.array([(plane, row, lows, highs)], dtype=kind)
