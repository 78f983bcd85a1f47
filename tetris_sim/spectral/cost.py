"""Cost: how much work a jump is, for who predicts how long it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tetris_sim.spectral.axis import Axis
from tetris_sim.spectral.jump import lasting_modes
from tetris_sim.spectral.operator import Operator, Separable

_DECOMPOSED = 25  # operations of all eigenvectors of a symmetric matrix, by its size cubed


@dataclass(frozen=True)
class Work:
    """What a jump does.

    Attributes:
        transformed: numbers that go through a transform, once per axis and direction.
        multiplied: operations of products of large matrices.
        grown: coefficients.
        decomposed: operations on many small matrices.
        once: operations before the first jump, to find eigenvectors.
    """

    transformed: float = 0.0
    multiplied: float = 0.0
    grown: float = 0.0
    decomposed: float = 0.0
    once: float = 0.0


def jump_work(operator: Operator, steps: int, types: frozenset[int]) -> Work:
    """The work of a jump over some steps where there are transforms of some types."""
    axes = dict(enumerate(operator.axes))
    n_points = math.prod(axis.n for axis in operator.axes)
    once = float(sum(axis.n**2 for axis in operator.axes if axis.transform(types) is None))
    if not isinstance(operator, Separable):
        layers = axes.pop(operator.place).n
        transformed, multiplied, _ = _both_ways(axes, {}, n_points, types)
        decomposed = _DECOMPOSED * n_points * layers**2
        return Work(2 * transformed, 2 * multiplied, n_points, float(decomposed), once)

    kept = {place: len(lasting_modes(operator, place, steps)) for place in axes}
    few = {place: m for place, m in kept.items() if axes[place].worth_picking(types, m)}
    transformed, multiplied, left = _both_ways(axes, few, n_points, types)
    if operator.forcing is None or not few:
        return Work(2 * transformed, 2 * multiplied, left, once=once)
    back, product, _ = _both_ways(axes, {}, n_points, types)
    return Work(transformed + back, multiplied + product, n_points, once=once)


def _both_ways(
    axes: dict[int, Axis], few: dict[int, int], n_points: int, types: frozenset[int]
) -> tuple[float, float, float]:
    """(numbers transformed, operations of products, coefficients that are left) of one direction.

    Args:
        axes: by place.
        few: how many coefficients are made, where not all.
        n_points: of the grid.
        types: of transforms.
    """
    transformed, multiplied, points = 0.0, 0.0, float(n_points)
    for place, modes in few.items():
        multiplied += 2.0 * points * modes
        points *= modes / axes[place].n
    for place, axis in axes.items():
        if place in few:
            continue
        if axis.transform(types) is None:
            multiplied += 2.0 * points * axis.n
        else:
            transformed += points
    return transformed, multiplied, float(np.ceil(points))
