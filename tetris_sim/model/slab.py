"""Slab: the part of the grid that one worker owns in the domain decomposition, and its halo."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.grid import Grid

# Per axis (start, stop), counted from the first owned point; halo indices are negative or beyond
# the last owned point.
Ranges = tuple[tuple[int, int], ...]
_NONFINITE_EDGE = 8  # points of the box in which a value that is not finite is reported


@dataclass(frozen=True, eq=False)
class PointLabels:
    """A number for every point that stands for a name, such as that of its region.

    Attributes:
        names: by number.
        read: the numbers of the points of a box of global indices.
    """

    names: tuple[str, ...]
    read: Callable[[Ranges], npt.NDArray[np.unsignedinteger[Any]]]


@dataclass(frozen=True)
class RandomNumbers:
    """Random numbers for the points of a grid, reproducible on any device and decomposition.

    The grid is cut into blocks, each with its own stream of NumPy's Philox generator; points of a
    block take its numbers in their order, as (1 - unit) low + unit high of units in [0, 1) with 53
    bits.

    Attributes:
        seed: of all streams.
        low: least value.
        high: upper bound of the values.
        shape: points of the grid, array order.
        block: points of a block along each axis; the last ones are smaller.
    """

    seed: int
    low: float
    high: float
    shape: tuple[int, ...]
    block: tuple[int, ...]

    def key(self, place: tuple[int, ...]) -> npt.NDArray[np.uint64]:
        """Return the two key words of the stream of a block, given its number along each axis."""
        # Blocks are numbered in C order; the number seeds an independent child sequence.
        counts = [-(-n // width) for n, width in zip(self.shape, self.block, strict=True)]
        number = int(np.ravel_multi_index(place, counts))
        seeds = np.random.SeedSequence(self.seed, spawn_key=(number,))
        return seeds.generate_state(2, np.uint64).astype(np.uint64, copy=False)

    def stream(self, place: tuple[int, ...]) -> np.random.Philox:
        """Return the generator of a block. NumPy's compatibility promise fixes its raw output (but
        not that of `uniform`).
        """
        return np.random.Philox(key=self.key(place))


@dataclass(frozen=True)
class Slab:
    """A box of global indices with the halo that its owner keeps.

    Attributes:
        start: first index owned, per axis.
        stop: one past the last index owned, per axis.
        halo: planes kept beyond the owned ones per axis, (low side, high side). Zero where the side
            is a face of the domain, or a periodic axis that is not cut: there the stepper fills the
            ghost ring itself.

    Raises:
        ValueError: lengths disagree, or an axis has no owned plane.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    halo: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not len(self.start) == len(self.stop) == len(self.halo):
            msg = f"start {self.start}, stop {self.stop} and halo {self.halo} must be equally long"
            raise ValueError(msg)
        if any(stop <= start for start, stop in zip(self.start, self.stop, strict=True)):
            msg = f"a slab owns at least one plane per axis, got {self.start} to {self.stop}"
            raise ValueError(msg)

    @classmethod
    def whole(cls, grid: Grid) -> Slab:
        """Return the slab that is the whole grid and needs no neighbour."""
        return cls(start=(0,) * grid.ndim, stop=grid.shape, halo=((0, 0),) * grid.ndim)

    @classmethod
    def box(cls, spans: Ranges) -> Slab:
        """Return the slab that owns a box of global indices and needs no neighbour."""
        start, stop = zip(*spans, strict=True)
        return cls(start, stop, halo=((0, 0),) * len(spans))

    @property
    def spans(self) -> Ranges:
        """The owned box, (start, stop) per axis in global indices."""
        return tuple(zip(self.start, self.stop, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """Points owned per axis."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    @property
    def n_points(self) -> int:
        """Points owned."""
        return math.prod(self.shape)

    def globally(self, ranges: Ranges) -> Ranges:
        """Convert ranges counted from the first owned point to global indices."""
        return tuple(
            (start + low, start + high)
            for start, (low, high) in zip(self.start, ranges, strict=True)
        )

    def local(self, box: Ranges | None = None) -> Ranges:
        """Return the owned points inside a box of global indices, all of them without a box.

        >>> Slab((10, 0), (20, 5), ((0, 0), (0, 0))).local(((0, 12), (3, 4)))
        ((0, 2), (3, 4))
        """
        return tuple(
            (max(low, start) - start, min(high, stop) - start)
            for (low, high), (start, stop) in zip(box or self.spans, self.spans, strict=True)
        )

    def part(self, ranges: Ranges) -> Slab:
        """Return the owned points in a box as a slab without neighbours, for `Problem.initial`."""
        return Slab.box(self.globally(ranges))

    def refuse_short_halo(self, steps: int, radii: tuple[int, ...]) -> None:
        """Raise if some halo is too narrow for so many steps of a stencil.

        Raises:
            ValueError: a halo is narrower than steps * radius.
        """
        for halo, radius in zip(self.halo, radii, strict=True):
            # Width 0 is a side without a neighbour, whose ghosts are filled at every step.
            if any(0 < width < steps * radius for width in halo):
                msg = f"a halo of {halo} planes does not last for {steps} steps of radius {radius}"
                raise ValueError(msg)

    def around(self, point: tuple[int, ...]) -> Ranges:
        """Return the small box in which a non-finite value is reported.

        Args:
            point: position of the value, counted from the first owned point.

        Returns:
            The box in global indices, anchored to the first owned point.
        """
        # Boxes of a fixed raster: the report does not depend on which point of a box was found
        # first.
        edge = _NONFINITE_EDGE
        return tuple(
            (start + i // edge * edge, min(start + (i // edge + 1) * edge, stop))
            for i, start, stop in zip(point, self.start, self.stop, strict=True)
        )

    def edge_ranges(self, axis: int, side: int) -> Ranges:
        """Return the owned planes of `axis` that the neighbour on a side (0 low, 1 high) needs; see
        `Stepper.edge`.
        """
        n, width = self.shape[axis], self.halo[axis][side]
        return self._planes(axis, (0, width) if side == 0 else (n - width, n))

    def halo_ranges(self, axis: int, side: int) -> Ranges:
        """Return the planes beyond a side that the neighbour there owns."""
        n, width = self.shape[axis], self.halo[axis][side]
        return self._planes(axis, (-width, 0) if side == 0 else (n, n + width))

    def _planes(self, axis: int, span: tuple[int, int]) -> Ranges:
        """Return planes of `axis`: owned points along later axes, owned points and halo along
        earlier ones.
        """
        # The exchange goes axis by axis. Including the halo of earlier axes carries corners along,
        # without messages between diagonal neighbours.
        ranges = []
        for other, n in enumerate(self.shape):
            halo = self.halo[other] if other < axis else (0, 0)
            ranges.append(span if other == axis else (-halo[0], n + halo[1]))
        return tuple(ranges)


def batches(ranges: Ranges, points: int) -> Iterator[Ranges]:
    """Cut a box along its first axis into boxes of about `points` points, one after the other.

    >>> list(batches(((0, 5), (2, 4)), 4))
    [((0, 2), (2, 4)), ((2, 4), (2, 4)), ((4, 5), (2, 4))]
    """
    (first, last), *rest = ranges
    # At least one plane per batch, however large a plane is.
    planes = max(1, points // max(1, math.prod(high - low for low, high in rest)))
    for low in range(first, last, planes):
        yield ((low, min(low + planes, last)), *rest)


def slices(ranges: Ranges, whole: Ranges) -> tuple[slice, ...]:
    """Return the index of a box's points in an array (n_fields, ...) that holds a larger box.

    >>> slices(((3, 5),), ((2, 9),))
    (slice(None, None, None), slice(1, 3, None))
    """
    inside = (
        slice(low - start, high - start)
        for (low, high), (start, _) in zip(ranges, whole, strict=True)
    )
    return (slice(None), *inside)


def with_span(box: Ranges, axis: int, span: tuple[int, int]) -> Ranges:
    """Return a box with another span of indices along an axis."""
    return (*box[:axis], span, *box[axis + 1 :])
