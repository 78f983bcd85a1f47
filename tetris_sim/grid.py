"""Grid: the points that are computed, and where they lie in space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

AXIS_NAMES = ("x", "y", "z")


@dataclass(frozen=True)
class Grid:
    """The interior points of a box; the ghost ring is outside it.

    Points are cell centres: along an axis of length `size` with n points the spacing is size / n,
    and the first point lies half a spacing inside the box. Everything here is in array order,
    slowest axis first: (z, y, x) in 3D, (y, x) in 2D, (x,) in 1D.

    Attributes:
        shape: interior points per axis, (n0, n1, ...).
        spacing: distance between neighbouring points per axis [m].
        origin: position of the first interior point per axis [m].
        cut: of a slice through a grid of more axes: those that it lacks, by name, and where it lies
            on them [m].
    """

    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    cut: tuple[tuple[str, float], ...] = ()

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
        if any(not (h > 0 and math.isfinite(h)) for h in self.spacing):
            msg = f"spacing is positive and finite, got {self.spacing} m"
            raise ValueError(msg)

    @classmethod
    def box(cls, shape: tuple[int, ...], size: tuple[float, ...]) -> Grid:
        """Cell-centred grid of a box with one corner at zero.

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

    @property
    def size(self) -> tuple[float, ...]:
        """Edge lengths of the box [m], array order."""
        return tuple(n * h for n, h in zip(self.shape, self.spacing, strict=True))

    @property
    def cell_volume(self) -> float:
        """Volume a point stands for [m^3]; an area [m^2] in 2D, a length [m] in 1D."""
        return math.prod(self.spacing)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of the axes in array order, the last one being x: ("z", "y", "x") in 3D; of a slice
        normal to y ("z", "x").
        """
        lacking = dict(self.cut)
        whole = AXIS_NAMES[: self.ndim + len(lacking)]
        return tuple(name for name in reversed(whole) if name not in lacking)

    def within(self, axis: int, low: float, high: float) -> tuple[int, int]:
        """The points start..stop-1 of an axis that lie between two positions [m], both included.

        >>> Grid.box((10,), (1.0,)).within(0, 0.25, 0.4)
        (2, 4)
        """
        n = self.shape[axis]
        slack = 1e-9 * n  # a point on a bound may be off by a rounding
        begin, end = ((place - self.origin[axis]) / self.spacing[axis] for place in (low, high))
        start = math.ceil(min(max(begin - slack, 0), n))
        stop = math.floor(min(max(end + slack, -1), n - 1)) + 1
        return start, max(start, stop)

    def coordinates(
        self, axis: int, start: int = 0, stop: int | None = None
    ) -> npt.NDArray[np.float64]:
        """Positions of the points start..stop-1 along `axis` [m], (stop - start,).

        A point's position depends on its global index only, so every slab sees the same bits.
        """
        index = np.arange(start, self.shape[axis] if stop is None else stop, dtype=np.float64)
        return np.asarray(self.origin[axis] + index * self.spacing[axis])
