"""The plain NumPy answer: the oracle of every kernel test, short enough to be believed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tetris_sim.boundary import SIDES, Boundary
from tetris_sim.problem import Field, Problem, arithmetic_of
from tetris_sim.stencil import Stencil

# by which a number changes, relative to itself, when it is rounded to float16
HALF_PLACE = 2.0**-11
_SMALLEST_HALF = 2.0**-24  # the smallest float16 above 0, and the distance of its neighbours


def with_ghosts(
    u: Field, boundary: Boundary, spacing: tuple[float, ...], radii: tuple[int, ...]
) -> Field:
    """Surround (n_fields, n0, ...) by its ghost ring of `radii` points per axis: axis 0 first,
    corners by the last.
    """
    kind = arithmetic_of(u.dtype).type
    for axis, radius in enumerate(radii):
        along = np.moveaxis(u, axis + 1, 0)
        if boundary.periodic(axis):
            low, high = [along[-j] for j in range(radius, 0, -1)], [along[j] for j in range(radius)]

        else:
            ghosts = {}
            for side in SIDES:
                pairs = boundary.reflections(axis, side, spacing=spacing[axis], width=radius)
                mirrors = [along[j] if side == "low" else along[-1 - j] for j in range(radius)]
                ghosts[side] = [
                    (kind(a) + kind(b) * mirror.astype(kind, copy=False)).astype(
                        u.dtype, copy=False
                    )
                    for (a, b), mirror in zip(pairs, mirrors, strict=True)
                ]
            low, high = ghosts["low"][::-1], ghosts["high"]

        rings = [[np.stack(ghosts)] if ghosts else [] for ghosts in (low, high)]
        u = np.moveaxis(np.concatenate([*rings[0], along, *rings[1]]), 0, axis + 1)
    return u


def step(u: Field, stencil: Stencil, boundary: Boundary, spacing: tuple[float, ...]) -> Field:
    """One time step of (n_fields, n0, ...); float16 is computed in float32 and rounded at the
    end.
    """
    kind = arithmetic_of(u.dtype).type
    padded = with_ghosts(u, boundary, spacing, stencil.radii).astype(kind, copy=False)
    new = np.zeros(u.shape, kind)
    for offset, weight in zip(stencil.offsets, stencil.weights, strict=True):
        window = tuple(
            slice(radius + shift, radius + shift + n)
            for radius, shift, n in zip(stencil.radii, offset, u.shape[1:], strict=True)
        )
        new += kind(weight) * padded[(slice(None), *window)]
    return new.astype(u.dtype, copy=False)


def advance(u: Field, problem: Problem, steps: int) -> Field:
    """`steps` time steps of the whole state (n_fields, n0, ...), in the dtype of `problem`."""
    u = np.asarray(u, dtype=problem.dtype)
    for _ in range(steps):
        u = step(u, problem.stencil, problem.boundary, problem.grid.spacing)
    return u


def tolerance(
    problem: Problem, steps: int, largest: float, dtype: np.dtype[Any] | None = None
) -> float:
    """How far two correct implementations may differ after `steps` steps: each as far from the
    truth as it may be.

    Args:
        problem: what was advanced.
        steps: by how many steps.
        largest: largest magnitude of the field and its ghosts during these steps.
        dtype: the coarser type of the two, if it is not the problem's.
    """
    return 2 * rounding_error(problem, max(steps, 1), largest, dtype)


def rounding_error(
    problem: Problem, launches: int, largest: float, dtype: np.dtype[Any] | None = None
) -> float:
    """How far from exact arithmetic a method may be that passes over all points so often, one step
    or several each.

    A step rounds once per product, once per sum and twice in a ghost value, each time by at most
    eps times the largest partial result; a stable step does not amplify what was there before.

    float16 is summed in float32 and rounded to nearest when it is stored, by at most u = 2^-11 of
    the value. A step by itself rounds its result and the ghosts that it reads, u (1 + gain). Steps
    that are fused round once together, but their weights are float16 too; they are rounded so that
    their sum stays, and their errors add up to at most 3 u times the sum of their magnitudes
    (`gpu_kernels/fused/rounding.py`). So no launch adds more than u (1 + 4 gain). Magnitudes of
    fused weights can add up to gain to the power of the steps; those of a stable stencil hardly
    exceed gain, which is taken for them.

    Args:
        problem: what was advanced.
        launches: passes over the points.
        largest: largest magnitude of the field and its ghosts.
        dtype: computed in; the problem's if not given.
    """
    stored = np.dtype(dtype or problem.dtype)
    eps = float(np.finfo(arithmetic_of(stored)).eps)
    gain = max(1.0, sum(abs(weight) for weight in problem.stencil.weights))
    launch = (2 * problem.stencil.n_points + 2) * eps * gain * largest
    if stored == np.float16:
        launch += (1 + 4 * gain) * max(HALF_PLACE * largest, _SMALLEST_HALF / 2)
    return launches * launch


def largest_magnitude(u: Field, problem: Problem) -> float:
    """Largest magnitude of a state and of the ghost values it leads to, for `tolerance`."""
    bound = float(np.abs(u).max(initial=0.0))
    ghosts = 0.0
    for axis, side in itertools.product(range(problem.grid.ndim), SIDES):
        if not problem.boundary.periodic(axis):
            pairs = problem.boundary.reflections(
                axis, side, spacing=problem.grid.spacing[axis], width=problem.stencil.radii[axis]
            )
            ghosts = max([ghosts, *(abs(a) + abs(b) * bound for a, b in pairs)])
    return max(bound, ghosts)
