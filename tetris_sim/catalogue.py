"""The named stencils: offsets, weights, and where each formula comes from.

A name says shape, dimension and number of points. `named_stencil` gives the weights used by `model.type: stencil`
when the configuration names none; `laplacian` gives the finite-difference Laplacian of that shape for physics.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from tetris_sim.stencil import Offset, Stencil, add, compose, euler_step, largest_stable_dt, scale

# Second derivative on unit spacing by order of accuracy, offsets 0, 1, 2, ...; B. Fornberg, "Generation of finite
# difference formulas on arbitrarily spaced grids", Math. Comp. 51 (1988) 699, table 1.
_SECOND_DERIVATIVE = {
    2: (-2.0, 1.0),
    4: (-5 / 2, 4 / 3, -1 / 12),
    6: (-49 / 18, 3 / 2, -3 / 20, 1 / 90),
}


def second_derivative(ndim: int, axis: int, spacing: float, order: int = 2) -> Stencil:
    """Central second derivative along one axis [1/m^2].

    Args:
        ndim: number of axes of the grid.
        axis: along which to differentiate.
        spacing: distance between points [m].
        order: order of accuracy, 2, 4 or 6.
    """
    terms: dict[Offset, float] = {}
    for distance, coefficient in enumerate(_SECOND_DERIVATIVE[order]):
        for step in {-distance, distance}:
            terms[tuple(step if k == axis else 0 for k in range(ndim))] = coefficient / spacing**2
    return Stencil.from_terms(terms)


def star_laplacian(spacing: tuple[float, ...], order: int = 2) -> Stencil:
    """Sum of the central second derivatives [1/m^2], accurate to `order`."""
    return add(*(second_derivative(len(spacing), axis, h, order) for axis, h in enumerate(spacing)))


def box_laplacian(spacing: tuple[float, ...]) -> Stencil:
    """Compact 9-point (2D) or 27-point (3D) Laplacian [1/m^2] whose leading error is isotropic.

    D_i being the 3-point second derivative: sum D_i + sum over pairs (h_i^2 + h_j^2)/12 D_i D_j, and in 3D
    + (h_1^2 h_2^2 + h_2^2 h_3^2 + h_1^2 h_3^2)/90 D_1 D_2 D_3. In 2D this is the Mehrstellen operator (L. Collatz,
    The Numerical Treatment of Differential Equations, 1960); in 3D with equal spacing the weights are 1, 3, 14, -128
    over 30 (R. C. O'Reilly and J. M. Beck, "A family of large-stencil discrete Laplacian approximations in three
    dimensions", 2006).
    """
    ndim = len(spacing)
    derivatives = [second_derivative(ndim, axis, h) for axis, h in enumerate(spacing)]
    terms = list(derivatives)
    for i, j in itertools.combinations(range(ndim), 2):
        factor = (spacing[i] ** 2 + spacing[j] ** 2) / 12
        terms.append(scale(compose(derivatives[i], derivatives[j]), factor))
    if ndim == 3:
        squares = [h**2 for h in spacing]
        factor = sum(p * q for p, q in itertools.combinations(squares, 2)) / 90
        terms.append(scale(compose(compose(derivatives[0], derivatives[1]), derivatives[2]), factor))
    return add(*terms)


_LAPLACIANS: dict[str, tuple[int, Callable[[tuple[float, ...]], Stencil]]] = {
    "heat-1d": (1, star_laplacian),
    "star-1d5p": (1, lambda spacing: star_laplacian(spacing, order=4)),
    "heat-2d": (2, star_laplacian),
    "star-2d9p": (2, lambda spacing: star_laplacian(spacing, order=4)),
    "star-2d13p": (2, lambda spacing: star_laplacian(spacing, order=6)),
    "box-2d9p": (2, box_laplacian),
    "heat-3d": (3, star_laplacian),
    "box-3d27p": (3, box_laplacian),
}


def laplacian_names(ndim: int) -> tuple[str, ...]:
    """The names `laplacian` knows for a grid of `ndim` axes, the usual one first."""
    return tuple(name for name, (dimension, _) in _LAPLACIANS.items() if dimension == ndim)


def laplacian(name: str, spacing: tuple[float, ...]) -> Stencil:
    """The finite-difference Laplacian of the named shape [1/m^2].

    Args:
        name: one of `laplacian_names`.
        spacing: distance between points per axis [m], array order.
    """
    _, make = _LAPLACIANS[name]
    return make(spacing)


@dataclass(frozen=True)
class NamedStencil:
    """A stencil of the catalogue.

    Attributes:
        name: shape, dimension, points.
        stencil: offsets and default weights; they sum to 1 and amplify no wave.
        description: what the weights are and where they come from.
    """

    name: str
    stencil: Stencil
    description: str


def _half_euler(operator: Stencil) -> Stencil:
    return euler_step(operator, largest_stable_dt(operator) / 2)


def _binomial(ndim: int, row: tuple[int, ...]) -> Stencil:
    """Tensor product of one row of Pascal's triangle: the discrete Gaussian."""
    radius, total = len(row) // 2, sum(row)
    terms: dict[Offset, float] = {}
    for offset in itertools.product(range(-radius, radius + 1), repeat=ndim):
        weight = 1.0
        for component in offset:
            weight *= row[component + radius] / total
        terms[offset] = weight
    return Stencil.from_terms(terms)


def _unit(ndim: int) -> tuple[float, ...]:
    return (1.0,) * ndim


_EULER = "forward Euler with the {} Laplacian at half of the largest stable step (Fornberg 1988)"
_BINOMIAL = "binomial smoothing, row {} of Pascal's triangle along each axis"

_BUILDERS: dict[str, tuple[Callable[[], Stencil], str]] = {
    "heat-1d": (lambda: _half_euler(star_laplacian(_unit(1))), _EULER.format("3-point")),
    "star-1d5p": (lambda: _half_euler(star_laplacian(_unit(1), 4)), _EULER.format("fourth-order")),
    "heat-2d": (lambda: _half_euler(star_laplacian(_unit(2))), _EULER.format("5-point")),
    "star-2d9p": (lambda: _half_euler(star_laplacian(_unit(2), 4)), _EULER.format("fourth-order")),
    "star-2d13p": (lambda: _half_euler(star_laplacian(_unit(2), 6)), _EULER.format("sixth-order")),
    "box-2d9p": (lambda: _binomial(2, (1, 2, 1)), _BINOMIAL.format(2)),
    "box-2d25p": (lambda: _binomial(2, (1, 4, 6, 4, 1)), _BINOMIAL.format(4)),
    "box-2d49p": (lambda: _binomial(2, (1, 6, 15, 20, 15, 6, 1)), _BINOMIAL.format(6)),
    "heat-3d": (lambda: _half_euler(star_laplacian(_unit(3))), _EULER.format("7-point")),
    "box-3d27p": (lambda: _binomial(3, (1, 2, 1)), _BINOMIAL.format(2)),
}

STENCIL_NAMES: tuple[str, ...] = tuple(_BUILDERS)


@functools.cache
def named_stencil(name: str) -> NamedStencil:
    """Look a stencil of the catalogue up by its name (one of `STENCIL_NAMES`)."""
    build, description = _BUILDERS[name]
    return NamedStencil(name=name, stencil=build(), description=description)
