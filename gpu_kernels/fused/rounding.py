"""Weights in FP16 whose sum is that of the weights.

Rounded one by one, the weights of a fused stencil add up to 1 give or take 2e-4 (heat-3d, three
steps), which would make or destroy that much heat with every launch. So what a weight loses is
given to the next smaller one, whose places are finer. Equal weights are rounded alike as long as
the sum allows; opposite ones are in any case, so a symmetric stencil stays symmetric. Weights
beside the middle that are smaller than what it loses become others by that: `weight_error` says by
how much.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from tetris_sim.model.stencil import Stencil


def round_weights(stencil: Stencil) -> Stencil:
    """The stencil with weights that FP16 has, and a sum as near theirs as it can be; zeros stay
    zeros.

    >>> mean = Stencil(((-1,), (0,), (1,)), (1 / 3, 1 / 3, 1 / 3))
    >>> left, centre, right = round_weights(mean).weights
    >>> left == right, left + centre + right
    (True, 1.0)
    """
    rounded = _round_alike(stencil)
    opposites = _opposites(stencil)

    while True:
        # One place up or down for opposite weights: what brings the sum nearest.
        lost = math.fsum(stencil.weights) - math.fsum(rounded)
        moved = [
            (abs(lost - len(pair) * step), pair, step)
            for pair in opposites
            for step in _steps(rounded[pair[0]])
        ]

        left, pair, step = min(moved, default=(math.inf, (), 0.0))
        if left >= abs(lost):
            return Stencil(stencil.offsets, tuple(rounded))

        for i in pair:
            rounded[i] += step


def weight_error(stencil: Stencil, rounded: Stencil) -> float:
    """What rounding changes of all weights together, relative to them, or of those beside the
    middle, if that is more.

    >>> slow = Stencil(((-1,), (0,), (1,)), (1e-5, 1 - 2e-5, 1e-5))
    >>> weight_error(slow, round_weights(slow))
    1.0

    Args:
        stencil: with its weights.
        rounded: the same points with others.
    """
    pairs = [
        (weight, new, any(offset))
        for offset, weight, new in zip(
            stencil.offsets, stencil.weights, rounded.weights, strict=True
        )
    ]
    errors = []
    for some in (pairs, [pair for pair in pairs if pair[2]]):
        size = math.fsum(abs(weight) for weight, _, _ in some)
        change = math.fsum(abs(new - weight) for weight, new, _ in some)
        errors.append(change / size if size > 0 else 0.0)
    return max(errors)


def _round_alike(stencil: Stencil) -> list[float]:
    """From the largest to the smallest but zeros, each with what those before it lost."""

    def size(index: int) -> tuple[float, float]:
        # Equal but for the roundings of `Stencil.power`.
        weight = float(np.float32(stencil.weights[index]))
        return -abs(weight), weight

    rounded, lost = [0.0] * stencil.n_points, 0.0
    points = [i for i in range(stencil.n_points) if stencil.weights[i] != 0]
    for _, group in itertools.groupby(sorted(points, key=size), key=size):
        alike = list(group)
        for i in alike:
            rounded[i] = float(np.float16(stencil.weights[i] + lost / len(alike)))
        lost += math.fsum(stencil.weights[i] - rounded[i] for i in alike)
    return rounded


def _opposites(stencil: Stencil) -> list[tuple[int, ...]]:
    """Points with the same weight on opposite sides; others alone; without those whose weight is
    zero.
    """
    index = {offset: i for i, offset in enumerate(stencil.offsets) if stencil.weights[i] != 0}
    groups = set()
    for offset, i in index.items():
        j = index.get(tuple(-c for c in offset), i)
        alike = math.isclose(stencil.weights[i], stencil.weights[j], rel_tol=1e-6)
        groups.add(tuple(sorted({i, j})) if alike else (i,))
    return sorted(groups)


def _steps(weight: float) -> tuple[float, float]:
    """To the numbers of FP16 above and below."""
    here = np.float16(weight)
    up, down = (float(np.nextafter(here, np.float16(to))) for to in (np.inf, -np.inf))
    return up - weight, down - weight
