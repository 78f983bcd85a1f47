"""Coordinates: lengths, areas and volumes of cells along straight axes, around an axis or a centre.

A cell lies between two positions along every axis. Its volume is a product of one factor per axis,
and so is the area of each of its faces; both are exact. Only distances between the centres of
neighbours along theta depend on the place along another axis: they are arcs of radius r.

    cylindrical   volume  (r2^2 - r1^2)/2  (theta2 - theta1)  (z2 - z1)
                  faces   r (theta2 - theta1) (z2 - z1),  (r2 - r1) (z2 - z1),
                          (r2^2 - r1^2)/2 (theta2 - theta1)
    spherical     volume  (r2^3 - r1^3)/3  (cos theta1 - cos theta2)  2 pi
                  faces   r^2 (cos theta1 - cos theta2) 2 pi,  sin theta (r2^2 - r1^2)/2 2 pi

theta is the angle around the axis of a cylinder [rad], and the angle from the axis of a sphere.
What a grid has no axis for is whole: a turn, or both angles; along z a cylinder without z counts
per metre. With differences over these distances the Laplacian of r^2 is exact on equal cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Kind = Literal["cartesian", "cylindrical", "spherical"]

# Everything that is called a coordinate somewhere.
PLACES = ("x", "y", "z", "r", "theta")

# By kind, the lists of axes that a grid may have, in the order of the configuration.
AXES: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "cartesian": (("x",), ("x", "y"), ("x", "y", "z")),
    "cylindrical": (("r",), ("r", "z"), ("r", "theta"), ("r", "theta", "z")),
    "spherical": (("r",), ("r", "theta")),
}

_POWER = {"cylindrical": 1, "spherical": 2}  # of r in the area of a face that r crosses
_CLOSED = 1e-9  # relative: by how much a full circle may miss 2 pi


@dataclass(frozen=True)
class Coordinates:
    """The meaning of the axes of a grid.

    Attributes:
        kind: of the coordinates.
        axes: their names in the order of the configuration, of a slice those of the whole grid.
    """

    kind: Kind = "cartesian"
    axes: tuple[str, ...] = ("x", "y", "z")

    @property
    def is_curved(self) -> bool:
        """Whether areas of faces depend on the place."""
        return self.kind != "cartesian"

    @property
    def around(self) -> float:
        """The angles for which there is no axis: of a cylinder [rad], of a sphere [sr or rad]."""
        if not self.is_curved or (self.kind == "cylindrical" and "theta" in self.axes):
            return 1.0
        return 2 * math.pi if self.kind == "cylindrical" or "theta" in self.axes else 4 * math.pi

    @property
    def dimensions(self) -> int:
        """The power of metres of a volume: 3 where nothing counts per metre."""
        if not self.is_curved:
            return len(self.axes)
        return 3 if self.kind == "spherical" or "z" in self.axes else 2

    def unit(self, name: str) -> str:
        """The unit of positions along an axis."""
        return "rad" if name == "theta" else "m"

    def extents(self, name: str, ends: Numbers) -> Numbers:
        """Factors of the volumes of cells between their ends along an axis, (n,)."""
        if name == "r":
            return _moments(ends, _POWER[self.kind])
        return self._angles(ends) if name == "theta" else np.diff(ends)

    def across(self, normal: str, name: str, ends: Numbers) -> Numbers:
        """Factors of the areas of faces that an axis crosses, along another one, (n,)."""
        if name == "r" and normal == "theta":
            return _moments(ends, _POWER[self.kind] - 1)
        return self.extents(name, ends)

    def through(self, normal: str, at: Numbers) -> Numbers:
        """Factors of the areas of faces by where they lie along the axis that crosses them."""
        if normal == "r":
            return np.asarray(at ** _POWER[self.kind])
        if normal == "theta" and self.kind == "spherical":
            # sin(pi) is 1e-16, and through the axis flows nothing at all.
            return np.where(np.isclose(at, math.pi), 0.0, np.sin(at))
        return np.ones_like(at)

    def _angles(self, ends: Numbers) -> Numbers:
        return -np.diff(np.cos(ends)) if self.kind == "spherical" else np.diff(ends)

    def is_pole(self, name: str, at: float) -> bool:
        """Whether faces at a position are only a line or a point, the axis or the centre."""
        if not self.is_curved or name == "z":
            return False
        if name == "r":
            return at == 0
        return self.kind == "spherical" and (at == 0 or math.isclose(at, math.pi))

    def is_ring(self, name: str, length: float) -> bool:
        """Whether an axis of some length closes by itself: a full circle."""
        closed = math.isclose(length, 2 * math.pi, rel_tol=_CLOSED)
        return self.kind == "cylindrical" and name == "theta" and closed


CARTESIAN = Coordinates()


def _moments(ends: Numbers, power: int) -> Numbers:
    """The integral of r^power between neighbouring ends, (n,).

    >>> _moments(np.array([0.0, 1.0, 2.0]), 1).tolist()
    [0.5, 1.5]
    """
    low, high = ends[:-1], ends[1:]
    # Factors instead of differences of powers: thin shells far outside lose no digits.
    if power == 0:
        return high - low
    if power == 1:
        return (high - low) * (high + low) / 2
    return (high - low) * (high * high + high * low + low * low) / 3
