"""Operator: a step of a problem as u' = A u + f along axes that can be treated one by one.

`read_operator` finds it, or raises `NotSpectralError` with the reason. What a step adds to a state
of zeros, f, is asked of the reference. As the same holds along a whole face, a small grid says it
for any other (`Forcing`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from tetris_sim.model.boundary import SIDES
from tetris_sim.model.problem import Problem
from tetris_sim.spectral.axis import MOST_DENSE, Axis
from tetris_sim.spectral.body import of_conduction
from tetris_sim.spectral.forms import NotSpectralError, Operator, Separable, thin_forcing

_EVEN = ({1.0}, {-1.0})  # what b may be at a face beyond which a stencil reaches several points


def why_not_spectral(problem: Problem) -> str | None:
    """Why there is no exact jump, as a sentence; None if there is one."""
    try:
        read_operator(problem, with_forcing=False)
    except NotSpectralError as error:
        return str(error)
    return None


def read_operator(problem: Problem, *, with_forcing: bool = True) -> Operator:
    """A and f of a problem.

    Raises:
        NotSpectralError: there are none, or not along axes.
    """
    if problem.n_fields > 1 or problem.equations is not None:
        msg = "its step is made of formulas, or of several fields"
        raise NotSpectralError(msg)
    if problem.dtype == np.float16:
        msg = "float16 loses at every step what a jump keeps, so the result would be another one"
        raise NotSpectralError(msg)
    problem = dataclasses.replace(problem, dtype=np.dtype(np.float64))
    if problem.conduction is None:
        return _of_stencil(problem, with_forcing)
    return of_conduction(problem, problem.conduction, with_forcing)


def _of_stencil(problem: Problem, with_forcing: bool) -> Separable:
    terms = dict(zip(problem.stencil.offsets, problem.stencil.weights, strict=True))
    folded: dict[tuple[int, ...], float] = {}
    for offset, weight in terms.items():
        for signs in itertools.product((1, -1), repeat=len(offset)):
            mirrored = tuple(sign * k for sign, k in zip(signs, offset, strict=True))
            if terms.get(mirrored) != weight:
                msg = "the weights of its stencil are not the same on both sides of each axis"
                raise NotSpectralError(msg)
        order = tuple(map(abs, offset))
        folded[order] = folded.get(order, 0.0) + weight

    products = tuple((w, k) for k, w in folded.items() if sum(map(bool, k)) > 1)
    axes, sums, made = [], [], functools.cache(Axis)
    for place, radius in enumerate(problem.stencil.radii):
        own = [
            folded.get(tuple(k * (a == place) for a in range(problem.grid.ndim)), 0.0)
            for k in range(1, radius + 1)
        ]
        found = _axis_of_stencil(problem, place, own, crossed=bool(products))
        axis = found if found.given is not None else made(found.n, found.ends)
        axes.append(axis)
        sums.append(
            axis.given[0]
            if axis.given is not None
            else sum((w * axis.less_one(k) for k, w in enumerate(own, 1)), np.zeros(axis.n))
        )
    excess = math.fsum([*terms.values(), -1.0])
    forcing = thin_forcing(problem, None) if with_forcing else None
    return Separable(tuple(axes), excess, tuple(sums), products, forcing)


def _axis_of_stencil(problem: Problem, place: int, own: Sequence[float], *, crossed: bool) -> Axis:
    """An axis of a stencil.

    Args:
        problem: whose stencil.
        place: which axis.
        own: weights of both points so far along it alone, from 1 on.
        crossed: whether the stencil also has points off its axes.
    """
    n, name = problem.grid.shape[place], problem.grid.axis_names[place]
    radius = problem.stencil.radii[place]
    if problem.boundary.periodic(place) or radius == 0:
        return Axis(n, None)
    low, high = (
        [
            b
            for _, b in problem.boundary.reflections(
                place, side, spacing=problem.grid.spacing[place], width=radius
            )
        ]
        for side in SIDES
    )
    if radius == 1 or (set(low) in _EVEN and set(high) in _EVEN):
        return Axis(n, (low[0], high[0]))
    if crossed:
        msg = (
            f"its stencil reaches {radius} points beyond a face along {name} and has points off "
            "its axes: then a face must be periodic, or have a value, or no flow"
        )
        raise NotSpectralError(msg)

    if n > MOST_DENSE:
        msg = f"the eigenvectors along {name}, of {n} points with a held ring, would take too long"
        raise NotSpectralError(msg)

    matrix = np.zeros((n, n))
    for k, weight in enumerate(own, 1):
        for i in range(n):
            matrix[i, i] -= weight
            for m, beyond in ((i - k, low), (i + k, high)):
                j = -m if m < 0 else m - n + 1
                inside, b = (m, 1.0) if 0 <= m < n else (j - 1 if m < 0 else n - j, beyond[j - 1])
                matrix[i, inside] += weight / 2 * b
    if not np.array_equal(matrix, matrix.T):
        msg = (
            f"its stencil reaches {radius} points beyond a face along {name} that takes up heat "
            "by h, which makes its step unsymmetric"
        )
        raise NotSpectralError(msg)
    values, vectors = np.linalg.eigh(matrix)
    return Axis(n, None, (values, np.ascontiguousarray(vectors.T)))
