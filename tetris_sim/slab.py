"""Slab: the part of the grid that one worker owns, and the halo it keeps around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tetris_sim.grid import Grid


@dataclass(frozen=True)
class Slab:
    """A box of global indices.

    Attributes:
        start: first index owned, per axis.
        stop: one past the last index owned, per axis.
        halo: planes kept beyond the owned ones per axis, (low side, high side). Zero where the side is a face of the
            domain, or a periodic axis that is not cut: there the stepper fills the ghost ring itself.
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
