"""Catalogue of named stencils: offsets, weights, and the source of each formula.

`named_stencil` looks up the weights for `model.type: stencil` when the configuration gives a name
instead of weights; `laplacian` makes the finite-difference Laplacian of a shape for physics, on any
spacing. `STENCIL_NAMES` lists the benchmark stencils of published papers; `catalogue()` holds all
stencils, domain after domain, from the modules of this package.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tetris_sim.model.stencil import Stencil, add, compose, scale
from tetris_sim.model.stencils import (
    advection,
    filters,
    finite_elements,
    heat,
    waves,
)
from tetris_sim.model.stencils.entry import NamedStencil, along, central


def second_derivative(ndim: int, axis: int, spacing: float, order: int = 2) -> Stencil:
    """Return the central second derivative along one axis [1/m^2].

    Args:
        ndim: number of axes of the grid.
        axis: along which to differentiate.
        spacing: distance between points [m].
        order: order of accuracy, even.
    """
    # Exact weights on unit spacing, rounded once and then scaled.
    weights = along(central(2, order), axis, ndim)
    return Stencil.from_terms(
        {offset: float(weight) / spacing**2 for offset, weight in weights.items()}
    )


def star_laplacian(spacing: tuple[float, ...], order: int = 2) -> Stencil:
    """Return the sum of the central second derivatives [1/m^2], accurate to `order`."""
    return add(*(second_derivative(len(spacing), axis, h, order) for axis, h in enumerate(spacing)))


def box_laplacian(spacing: tuple[float, ...]) -> Stencil:
    """Return the compact 9-point (2D) or 27-point (3D) Laplacian [1/m^2] whose leading error is
    isotropic.

    D_i being the 3-point second derivative: sum D_i + sum over pairs (h_i^2 + h_j^2)/12 D_i D_j,
    and in 3D + (h_1^2 h_2^2 + h_2^2 h_3^2 + h_1^2 h_3^2)/90 D_1 D_2 D_3. In 2D this is the
    Mehrstellen operator (L. Collatz, The Numerical Treatment of Differential Equations, 1960); in
    3D with equal spacing the weights are 1, 3, 14, -128 over 30 (R. C. O'Reilly and J. M. Beck, "A
    family of large-stencil discrete Laplacian approximations in three dimensions", 2006).
    """
    ndim = len(spacing)
    along_axes = [second_derivative(ndim, axis, h) for axis, h in enumerate(spacing)]

    # On a 1D grid neither loop adds a term, and the star remains.
    terms = list(along_axes)
    for i, j in itertools.combinations(range(ndim), 2):
        factor = (spacing[i] ** 2 + spacing[j] ** 2) / 12
        terms.append(scale(compose(along_axes[i], along_axes[j]), factor))

    if ndim == 3:
        squares = [h**2 for h in spacing]
        factor = sum(p * q for p, q in itertools.combinations(squares, 2)) / 90
        terms.append(scale(compose(compose(along_axes[0], along_axes[1]), along_axes[2]), factor))
    return add(*terms)


# Shapes that physics may choose: (number of axes, function of the spacing per axis).
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
    """Return the names that `laplacian` accepts for a grid of `ndim` axes, the default first."""
    return tuple(name for name, (dimension, _) in _LAPLACIANS.items() if dimension == ndim)


def laplacian(name: str, spacing: tuple[float, ...]) -> Stencil:
    """Return the finite-difference Laplacian of the named shape [1/m^2].

    Args:
        name: one of `laplacian_names`.
        spacing: distance between points per axis [m], array order.
    """
    _, make = _LAPLACIANS[name]
    return make(spacing)


# The benchmark stencils of the papers; most tests and all benchmarks use these.
STENCIL_NAMES: tuple[str, ...] = (
    "heat-1d",
    "star-1d5p",
    "heat-2d",
    "star-2d9p",
    "star-2d13p",
    "box-2d9p",
    "box-2d25p",
    "box-2d49p",
    "heat-3d",
    "box-3d27p",
)

# The catalogue lists the domains in this order.
_DOMAINS = (
    (heat.DOMAIN, heat.entries),
    (advection.DOMAIN, advection.entries),
    (waves.DOMAIN, waves.entries),
    (filters.OPERATORS, filters.operators),
    (finite_elements.SMOOTHERS, finite_elements.smoothers),
    (finite_elements.DOMAIN, finite_elements.entries),
    (heat.PHASE_FIELD, heat.phase_field),
    (advection.LATTICE_BOLTZMANN, advection.lattice_boltzmann),
    (waves.GEOPHYSICS, waves.geophysics),
    (filters.DOMAIN, filters.entries),
)


@functools.cache
def catalogue() -> Mapping[str, NamedStencil]:
    """Return every stencil by its name, domain after domain; computing the weights takes 0.2 s,
    once.
    """
    stencils = [
        dataclasses.replace(entry, domain=domain)
        for domain, entries in _DOMAINS
        for entry in entries()
    ]
    return MappingProxyType({entry.name: entry for entry in stencils})


def named_stencil(name: str) -> NamedStencil:
    """Look up a stencil of the catalogue by its name.

    Raises:
        KeyError: the catalogue has no stencil of this name.
    """
    return catalogue()[name]
