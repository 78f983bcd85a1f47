"""Slab: the part of the grid that one worker owns, and the halo it keeps around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tetris_sim.grid import Grid

Ranges = tuple[
    tuple[int, int], ...
]  # per axis (start, stop), counted from the first owned point; halos are below 0


@dataclass(frozen=True)
class Slab:
    """A box of global indices.

    Attributes:
        start: first index owned, per axis.
        stop: one past the last index owned, per axis.
        halo: planes kept beyond the owned ones per axis, (low side, high side). Zero where the side
            is a face of the domain, or a periodic axis that is not cut: there the stepper fills the
            ghost ring itself.
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
        """The slab that is the whole grid and needs no neighbour."""
        return cls(start=(0,) * grid.ndim, stop=grid.shape, halo=((0, 0),) * grid.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """Points owned per axis."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    @property
    def n_points(self) -> int:
        """Points owned."""
        return math.prod(self.shape)

    def globally(self, ranges: Ranges) -> Ranges:
        """The same points in global indices."""
        return tuple(
            (start + low, start + high)
            for start, (low, high) in zip(self.start, ranges, strict=True)
        )

    def around(self, point: tuple[int, ...], edge: int) -> Ranges:
        """The box of at most `edge` points along each axis, in global indices, with a point
        (counted as ranges are).
        """
        return tuple(
            (start + i // edge * edge, min(start + (i // edge + 1) * edge, stop))
            for i, start, stop in zip(point, self.start, self.stop, strict=True)
        )

    def edge_ranges(self, axis: int, side: int) -> Ranges:
        """The owned planes of `axis` that the neighbour on a side (0 low, 1 high) needs, see
        `Stepper.edge`.
        """
        n, width = self.shape[axis], self.halo[axis][side]
        return self._planes(axis, (0, width) if side == 0 else (n - width, n))

    def halo_ranges(self, axis: int, side: int) -> Ranges:
        """The planes beyond a side that the neighbour there owns."""
        n, width = self.shape[axis], self.halo[axis][side]
        return self._planes(axis, (-width, 0) if side == 0 else (n, n + width))

    def _planes(self, axis: int, span: tuple[int, int]) -> Ranges:
        """Planes of `axis`: owned points along later axes, owned points and halo along earlier
        ones.
        """
        ranges = []
        for other, n in enumerate(self.shape):
            halo = self.halo[other] if other < axis else (0, 0)
            ranges.append(span if other == axis else (-halo[0], n + halo[1]))
        return tuple(ranges)
