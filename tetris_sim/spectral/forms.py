"""What a step is, if it can be treated axis by axis: u' = A u + f."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import advance
from tetris_sim.spectral.axis import Axis, Ends, Numbers


class NotSpectralError(Exception):
    """Why a problem has no exact jump, as what is said of it."""


@dataclass(frozen=True, eq=False)
class Forcing:
    """f, what a step adds whatever the state is.

    Attributes:
        values: of the grid, with few points along the axes on which nothing but the distance from a
            face counts.
        places: per axis, of which of these the points of the grid are, (n,); None where each is its
            own.
    """

    values: Numbers
    places: tuple[npt.NDArray[np.int64] | None, ...]


@dataclass(frozen=True, eq=False)
class Separable:
    """A of constant coefficients: one function of the angles of all axes.

    Attributes:
        axes: of the grid.
        excess: by which the weights add up to more than 1.
        sums: eigenvalues of A - 1 per axis, (n,); the others are 0.
        products: (weight, order of the cosine per axis) of neighbours along several axes.
        forcing: None for none.
    """

    axes: tuple[Axis, ...]
    excess: float
    sums: tuple[Numbers, ...]
    products: tuple[tuple[float, tuple[int, ...]], ...]
    forcing: Forcing | None


@dataclass(frozen=True, eq=False)
class Layered:
    """A of layers across one axis.

    Attributes:
        place: of that axis.
        axes: of the grid; that of the layers is not used.
        between: dt K of the faces below points along it, and above the last one, (n + 1,)
            [J/(m^3 K)].
        ends: b of its faces; None if it is periodic.
        along: per axis dt K of the layers, (n,); of the layered axis zeros.
        capacity: rho c of the layers, (n,) [J/(m^3 K)].
        forcing: None for none.
    """

    place: int
    axes: tuple[Axis, ...]
    between: Numbers
    ends: Ends | None
    along: tuple[Numbers, ...]
    capacity: Numbers
    forcing: Forcing | None


Operator = Separable | Layered


def thin_forcing(problem: Problem, whole: int | None) -> Forcing | None:
    """What a step adds if nothing counts but how far faces are, and the place along one axis.

    Args:
        problem: what a step of zeros is made of.
        whole: the axis along which every point counts; None if there is none.
    """
    shape, places = [], list[npt.NDArray[np.int64] | None]()
    for axis, (n, radius) in enumerate(zip(problem.grid.shape, problem.stencil.radii, strict=True)):
        few = 2 * radius + 1
        thin = axis != whole and n > few
        i = np.arange(n)
        shape.append(few if thin else n)
        places.append(
            np.clip(i, None, radius) + np.clip(i - (n - radius) + 1, 0, None) if thin else None
        )
    small = problem.on_shape(shape)
    values = advance(np.zeros((1, *shape)), small, 1)[0]
    return Forcing(values, tuple(places)) if values.any() else None
