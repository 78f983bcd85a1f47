"""Boundary conditions on the faces of the domain, and the ghost points that follow from them.

Every face that is not periodic is one affine reflection: the ghost point number j = 1, 2, ...
beyond the face takes

    ghost_j = a_j + b_j * u_mirror(j),        u_mirror(j) = the j-th interior point counted from the
    face,

and the two lie a distance d_j = (2 j - 1) * spacing apart with the face halfway between them.
Kernels get only the numbers a and b (docs/decisions/0004). Axis 0 is filled first and each later
axis over the extended range, which defines the corners.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Literal

from tetris_sim.model.conduction import RuledFace

Side = Literal["low", "high"]  # towards smaller / larger index along an axis
SIDES: tuple[Side, Side] = ("low", "high")
Reflection = tuple[float, float]  # (a, b)


class _Numbers:
    """A face condition whose attributes must all be finite numbers."""

    def __post_init__(self) -> None:
        # All conditions hold finite numbers only; NaN would spread silently from the first step on.
        for name, value in vars(self).items():
            if not isinstance(value, numbers.Real) or not math.isfinite(value):
                msg = f"{type(self).__name__}({name}=) takes a finite number, got {value!r}"
                raise ValueError(msg)


@dataclass(frozen=True)
class Dirichlet(_Numbers):
    """A prescribed value on the face: the average of ghost and mirror point is `value`."""

    value: float

    def reflection(self, distance: float) -> Reflection:
        """Return (2 value, -1)."""
        return 2 * self.value, -1.0


@dataclass(frozen=True)
class Fixed(_Numbers):
    """A ghost ring held at a prescribed value, as in many published codes: only first-order
    accurate, but the simplest condition.
    """

    value: float

    def reflection(self, distance: float) -> Reflection:
        """Return (value, 0)."""
        return self.value, 0.0


@dataclass(frozen=True)
class Neumann(_Numbers):
    """A prescribed flux into the body: conductivity * du/dn = flux, n being the outward normal.

    Attributes:
        flux: into the body [W/m^2]; 0 is an insulated face (or a symmetry plane).
        conductivity: of the body [W/(m K)].
    """

    flux: float = 0.0
    conductivity: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.conductivity > 0:
            msg = f"conductivity must be positive, got {self.conductivity} W/(m K)"
            raise ValueError(msg)

    def reflection(self, distance: float) -> Reflection:
        """Return (distance * flux / conductivity, 1): the flux as a central difference over the
        face.
        """
        return distance * self.flux / self.conductivity, 1.0


@dataclass(frozen=True)
class Robin(_Numbers):
    """Convection: conductivity * du/dn = h * (ambient - u) on the face, n being the outward normal.

    Attributes:
        h: heat transfer coefficient [W/(m^2 K)], 0 or more.
        ambient: value far away from the face.
        conductivity: of the body [W/(m K)].
    """

    h: float
    ambient: float
    conductivity: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.h >= 0:
            msg = f"the heat transfer coefficient h must be 0 or more, got {self.h} W/(m^2 K)"
            raise ValueError(msg)
        if not self.conductivity > 0:
            msg = f"conductivity must be positive, got {self.conductivity} W/(m K)"
            raise ValueError(msg)

    def reflection(self, distance: float) -> Reflection:
        """Return (2 h d T / (2 k + h d), (2 k - h d) / (2 k + h d)): the flux is the central
        difference across the face, and the face value the average of ghost and mirror point.
        """
        # Solve k (ghost - u) / d = h (T - (ghost + u) / 2) for the ghost. |b| <= 1 for every h d >=
        # 0, so a ghost never amplifies the point that it mirrors.
        k, hd = self.conductivity, self.h * distance
        return 2 * hd * self.ambient / (2 * k + hd), (2 * k - hd) / (2 * k + hd)


@dataclass(frozen=True)
class NoFlux(Neumann):
    """Nothing flows through the face, whatever makes it flow: equations leave out the flow through
    it, and what else is read beyond it is mirrored.
    """


@dataclass(frozen=True)
class Derivatives(Neumann):
    """Derivatives along the outward normal on the face: equations continue a field beyond it by
    the polynomial that has them and goes through the points beside. Kernels, which do not know of
    it, mirror.

    Attributes:
        orders: of the derivatives, ascending, 0 for the value; none of them to extrapolate.
        values: of them.
    """

    orders: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.orders) != len(self.values) or not all(map(math.isfinite, self.values)):
            msg = f"each of the derivatives {self.orders} has a finite value, got {self.values}"
            raise ValueError(msg)


CLAMPED = Derivatives(orders=(0, 1), values=(0.0, 0.0))
SUPPORTED = Derivatives(orders=(0, 2), values=(0.0, 0.0))
FREE = Derivatives(orders=(2, 3), values=(0.0, 0.0))


@dataclass(frozen=True)
class Periodic:
    """A face joined to the opposite one: its ghosts are copies, not reflections."""


Face = Dirichlet | Fixed | Neumann | Robin | Periodic | RuledFace


@dataclass(frozen=True)
class Boundary:
    """One face condition per axis and side.

    Attributes:
        faces: per axis in array order, (low side, high side). An axis is periodic on both sides or
            on none.
    """

    faces: tuple[tuple[Face, Face], ...]

    def __post_init__(self) -> None:
        for axis, (low, high) in enumerate(self.faces):
            if isinstance(low, Periodic) != isinstance(high, Periodic):
                msg = f"axis {axis} is periodic on one side only: {low} and {high}"
                raise ValueError(msg)

    @classmethod
    def everywhere(cls, face: Face, ndim: int) -> Boundary:
        """Put the same condition on every face of a domain with `ndim` axes."""
        return cls(faces=((face, face),) * ndim)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.faces)

    def periodic(self, axis: int) -> bool:
        """Whether the two faces of `axis` are joined."""
        return isinstance(self.faces[axis][0], Periodic)

    def reflections(
        self, axis: int, side: Side, *, spacing: float, width: int
    ) -> tuple[Reflection, ...]:
        """(a_j, b_j) for the ghost points j = 1 .. width beyond one face.

        Args:
            axis: which axis, array order.
            side: which of its two faces; it must not be periodic.
            spacing: distance between points along the axis [m].
            width: ghost points wanted, the stencil's radius along the axis.
        """
        face = self.faces[axis][SIDES.index(side)]
        if isinstance(face, Periodic):
            msg = f"axis {axis} is periodic: its ghost points are copies, not reflections"
            raise TypeError(msg)
        if isinstance(face, RuledFace):
            msg = f"axis {axis}, {side}: ghosts follow from a rule, not from a reflection"
            raise TypeError(msg)

        # Ghost j and its mirror point lie (2 j - 1) spacings apart, the face halfway between them.
        reflections = tuple(face.reflection((2 * j - 1) * spacing) for j in range(1, width + 1))
        # Finite inputs can still overflow, as in 2 * value or distance * flux.
        if not all(math.isfinite(value) for pair in reflections for value in pair):
            msg = f"{face} gives ghost coefficients that are not finite: {reflections}"
            raise ValueError(msg)
        return reflections
