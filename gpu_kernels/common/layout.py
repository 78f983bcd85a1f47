"""Layout of a slab in GPU memory: where each point lies in one array, with ghosts and halos around
the owned points.

Every problem is laid out along three axes, slowest first; the axes that a 1D or 2D problem lacks
come first, with one point and no ghosts. The first owned point of each row lies at the beginning of
a line of 128 bytes, the unit of coalesced memory access.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.deep_ghosts import lasting_sides
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.problem import PAIR, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import chain_order

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.common.device import GpuDevice

# Stencil terms for kernels: offsets on three axes as a macro, weights as an array.

# Types that kernels compute in without conversion.
REAL = {"float64": "double", "float32": "float", PAIR.name: "Pair"}
STORED = {**REAL, "float16": "Half"}  # that memory may hold


def term_defines(problem: Problem) -> dict[str, str | int]:
    """The macros TS_REAL, TS_TERMS and TS_OFFSETS."""
    offsets = problem.stencil.offsets
    places = [on_three(offsets[k], 0) for k in chain_order(offsets)]
    return {
        "TS_REAL": STORED[problem.dtype.name],
        "TS_TERMS": len(places),
        "TS_OFFSETS": ",".join("{" + ",".join(map(str, offset)) + "}" for offset in places),
    }


def term_weights(problem: Problem) -> npt.NDArray[Any]:
    """The weights in the order of TS_OFFSETS, in the type in which the problem is computed."""
    weights = [problem.stencil.weights[k] for k in chain_order(problem.stencil.offsets)]
    return stored_weights(weights, problem.arithmetic)


LINE = 128  # bytes
# (low, high) per axis, counted from the first owned point.
Box3 = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
FAR = 1 << 29  # farther than any point, and far from what an int holds
_PAGE = 4096  # bytes; rows at multiples of it map to the same cache sets


@dataclass(frozen=True)
class PitchedField:
    """The pitched layout of one slab: sizes, offsets and strides.

    Attributes:
        count: points owned, per axis of three.
        margin: points around them (low, high), ghosts or halo; along x also padding to whole lines.
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
        """Elements from one field to the next."""
        return math.prod(self.extent)

    @property
    def n_bytes(self) -> int:
        """Bytes of one array of this layout."""
        return self.n_fields * self.field_pitch * self.dtype.itemsize

    @property
    def origin(self) -> int:
        """Offset of a field's first owned point [elements]."""
        return sum(
            low * pitch for (low, _), pitch in zip(self.margin, (*self.pitches, 1), strict=True)
        )

    @property
    def pitches(self) -> tuple[int, int]:
        """Elements from plane to plane and from row to row."""
        return self.extent[1] * self.extent[2], self.extent[2]

    @property
    def within(self) -> Box3:
        """The box of all allocated points, counted from the first owned one."""
        z, y, x = ((-low, n + high) for n, (low, high) in zip(self.count, self.margin, strict=True))
        return z, y, x

    def planes(self, flat: Any, ranges: Ranges) -> tuple[Any, PlaneForm]:
        """Whole planes of the first axis as they lie in a flat array: a view of shape (n_fields,
        elements), and their form.
        """
        # Of the three axes of memory, the first one that the problem has.
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
        """A view of the points of a box, (n_fields, ...), of a flat array on any device."""
        box = [
            slice(low + start, low + stop)
            for (start, stop), (low, _) in zip(on_three(ranges, (0, 1)), self.margin, strict=True)
        ]
        # Drops the leading axes of length one that the problem lacks.
        array = flat.reshape(self.n_fields, *self.extent)[(slice(None), *box)]
        return array.reshape(self.n_fields, *array.shape[-len(ranges) :])


@dataclass(frozen=True)
class PlaneForm:
    """The form of consecutive planes of the first axis in memory, including the margins of the
    later axes.

    Slabs with planes of the same form can copy them with a single call; the margins that are copied
    along are overwritten before they are read.

    Attributes:
        planes: number of planes.
        extent: points of a plane along the later axes, margins included.
        low: points of the margin before the owned ones.
        count: owned points per axis.
    """

    planes: int
    extent: tuple[int, ...]
    low: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements of all planes of one field."""
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
        slab: the slab to lay out.
        depth: steps for which lasting ghosts are filled at once (`lasting_sides`); other ghosts are
            filled at every step.
    """
    dtype = np.dtype(problem.dtype)
    margin = on_three(margins_of(problem, slab, depth), (0, 0))
    count = on_three(slab.shape, 1)

    # At least one line before the first owned point of a row, and whole lines per row. One more
    # line where rows would otherwise collide in the cache.
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
    """Points around a slab per axis of the problem, ghosts or halo; arguments as in
    `pitch_slab`.
    """
    radii = problem.stencil.radii
    # Stages of equations may read farther than the radius of a whole step.
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
    """The ends of the domain, counted from the first owned point: (low, high, period) of each of
    three axes, (3, 3).

    An end without a face is far away. The period is the length of an axis whose ring lies within
    the slab, otherwise 0.
    """
    ends = np.zeros((3, 3), np.int32)
    ends[0], ends[1] = -FAR, FAR
    for axis, (n, halo) in enumerate(zip(slab.shape, slab.halo, strict=True)):
        # Position of the axis among the three of memory.
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
    """An array as a single value of as many bytes, the form in which CuPy passes a struct to a
    kernel.
    """
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
    """Copy the bytes of a host array to the GPU."""
    return device.cupy.asarray(np.ascontiguousarray(array).view(np.uint8).reshape(-1))


def memory_argument(plane: int, row: int, within: Box3) -> npt.NDArray[np.void]:
    """`struct Memory` of common.cuh."""
    kind = np.dtype(
        [("plane", np.int64), ("row", np.int64), ("low", np.int32, 3), ("high", np.int32, 3)]
    )
    # The fields of the struct in their order, without padding: 8-byte integers come first.
    lows, highs = zip(*within, strict=True)
    return np.array([(plane, row, lows, highs)], dtype=kind)


BITS = 48  # precision of a pair: it rounds a number by at most one part in 2^49


def in_pairs(problem: Problem) -> Problem:
    """A float64 problem as kernels that compute in pairs see it; everything outside kernels, such
    as the initial field, stays as it is.
    """
    return replace(problem, dtype=PAIR)


def to_pairs(values: Any) -> Any:
    """Convert float64 to pairs, on the device where the values are.

    Values that `from_pairs` made of normalized pairs come back as the same pairs.
    """
    # Values beyond the range of float become infinite, as in a step; the check for non-finite
    # values finds them.
    with np.errstate(over="ignore", invalid="ignore"):
        high = values.astype(np.float32)
        # Rounding the sum and splitting it once more makes hi the nearest float of the pair's
        # value.
        rounded = high + (values - high).astype(np.float32).astype(np.float64)
        high = rounded.astype(np.float32)
        pairs = high.astype(PAIR)
        pairs.imag = (rounded - high).astype(np.float32)
    return pairs


def from_pairs(pairs: Any) -> Any:
    """Convert pairs to float64, on the device where they are."""
    with np.errstate(invalid="ignore"):
        return pairs.real.astype(np.float64) + pairs.imag


def stored_numbers(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Numbers in the form in which kernels that compute in `dtype` read them.

    >>> stored_numbers([0.25, 1 + 2.0**-30], PAIR).imag.tolist() == [0.0, 2.0**-30]
    True
    """
    if np.dtype(dtype) != PAIR:
        return np.array(values, dtype=dtype)
    pairs: npt.NDArray[Any] = to_pairs(np.asarray(values, np.float64))
    return pairs


def exactly(number: Any) -> Fraction:
    """The exact value of a stored number."""
    if isinstance(number, np.complex64):
        return Fraction(float(number.real)) + Fraction(float(number.imag))
    return Fraction(float(number))


def stored_weights(
    weights: Sequence[float], dtype: npt.DTypeLike, counts: Sequence[int] | None = None
) -> npt.NDArray[Any]:
    """The weights of a sum, stored as by `stored_numbers`; as pairs, they add up to the sum of the
    given weights to 48 bits.

    Otherwise the rounding of the weights would shift the mean of the field in the same direction at
    every step. The pairs are multiples of the last place of the largest weight, and the largest
    weight that belongs to a single point absorbs the remainder. `counts` says how many points share
    each weight; one each by default.

    >>> sum(exactly(it) for it in stored_weights([0.1] * 8 + [0.2], PAIR)) == 1
    True
    """
    counts = counts or [1] * len(weights)
    alone = [k for k, count in enumerate(counts) if count == 1]
    if np.dtype(dtype) != PAIR or not any(weights) or not alone:
        return stored_numbers(weights, dtype)

    # The unit in the last place of a 48-bit significand, in exact arithmetic.
    place = Fraction(2) ** (math.frexp(max(map(abs, weights)))[1] - BITS)
    multiples = [round(Fraction(weight) / place) for weight in weights]
    total = sum(count * Fraction(weight) for count, weight in zip(counts, weights, strict=True))
    found = sum(count * multiple for count, multiple in zip(counts, multiples, strict=True))
    multiples[max(alone, key=lambda k: abs(weights[k]))] += round(total / place) - found

    # A multiple has 48 bits, so hi takes the upper ones and the rest is exact in lo.
    pairs = np.zeros(len(weights), PAIR)
    for k, multiple in enumerate(multiples):
        high = np.float32(float(multiple * place))
        pairs[k] = complex(high, float(multiple * place - Fraction(float(high))))
    return pairs
