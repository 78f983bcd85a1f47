"""The differential operators: which neighbours with which weights, and what is made of others.

Linear operators are weighted sums of neighbours, with weights in exact fractions and a power of the
spacings before them (`linear`). `advect` and `grad_squared` are written with those (`rewritten`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

from tetris_sim.apps.pde_hoist import ONE, over, spacing_name, times
from tetris_sim.apps.pde_sums import Offset, Weight
from tetris_sim.model.formula import Constant, Node, Operation, Operators, Variable
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.model.stencils.catalogue import catalogue, named_stencil
from tetris_sim.model.stencils.entry import along, central, compose
from tetris_sim.model.stencils.entry import scaled as times_number

Advection = Literal["upwind", "central"]
Accuracy = Literal[2, 4]
Sums = list[tuple[Node, Mapping[Offset, Weight]]]  # a scalar before each
_PAIRS = ("xy", "xz", "yz")


@functools.cache
def operators(ndim: int) -> Operators:
    """What formulas on a grid of so many axes may call."""
    axes = AXIS_NAMES[:ndim]
    known: dict[str, tuple[float, float] | str] = {
        **dict.fromkeys(("laplace", "grad_squared", "biharmonic"), (1, 1)),
        "div_grad": (2, 2),
        "advect": (ndim + 1, ndim + 1),
    }
    derivatives = (*AXIS_NAMES, *(name * 2 for name in AXIS_NAMES), *_PAIRS)
    for name in derivatives:
        missing = next((axis for axis in name if axis not in axes), None)
        known[f"d{name}"] = (1, 1) if missing is None else f"the grid has no axis {missing}"

    for name, entry in catalogue().items():
        fits = entry.stencil.ndim == ndim
        known[name.replace("-", "_")] = (
            (1, 1)
            if fits
            else f"the stencil {name} has {entry.stencil.ndim} axes, but the grid has {ndim}"
        )
    return known


@functools.cache
def _catalogue_names() -> Mapping[str, str]:
    return {name.replace("-", "_"): name for name in catalogue()}


def rewritten(node: Operation, ndim: int, advection: Advection) -> Node | None:
    """An operator written with others; None if it is one of those."""
    axes = AXIS_NAMES[:ndim]
    if node.name == "grad_squared":
        first = [Operation(f"d{axis}", node.arguments) for axis in axes]
        squares: list[Node] = [Operation("multiply", (it, it)) for it in first]
    elif node.name == "advect":
        *velocity, field = node.arguments
        squares = []
        for axis, speed in zip(axes, velocity, strict=True):
            if advection == "central":
                squares.append(Operation("multiply", (speed, Operation(f"d{axis}", (field,)))))
                continue
            for limit, side in (("max", "-"), ("min", "+")):
                part = Operation(limit, (speed, Constant(0.0)))
                slope = Operation(f"d{axis}{side}", (field,))
                squares.append(Operation("multiply", (part, slope)))
    else:
        return None
    return functools.reduce(lambda a, b: Operation("add", (a, b)), squares)


def linear(name: str, spacing: Sequence[float], accuracy: Accuracy) -> Sums:
    """The weighted sums of a linear operator.

    Args:
        name: of the operator; `dx-` and `dx+` are one-sided, of first order.
        spacing: of the grid, array order [m].
        accuracy: order of the others.
    """
    ndim = len(spacing)
    if name in _catalogue_names():
        stencil = named_stencil(_catalogue_names()[name]).stencil
        return [(ONE, dict(zip(stencil.offsets, stencil.weights, strict=True)))]

    axes = {axis: ndim - 1 - number for number, axis in enumerate(AXIS_NAMES[:ndim])}
    second = {axis: along(central(2, accuracy), axes[axis], ndim) for axis in axes}
    if name == "laplace":
        return _merged([((axis, axis), second[axis]) for axis in axes], axes, spacing)
    if name == "biharmonic":
        pairs = [
            ((a, a, b, b), times_number(1 if a == b else 2, compose(second[a], second[b])))
            for a, b in itertools.combinations_with_replacement(axes, 2)
        ]
        return _merged(pairs, axes, spacing)

    letters = name[1:]
    if letters[-1] in "+-":
        axis, ends = letters[0], (0, 1) if letters[-1] == "+" else (-1, 0)
        one_sided: Mapping[Offset, Fraction] = {(ends[0],): Fraction(-1), (ends[1],): Fraction(1)}
        return _merged([((axis,), along(one_sided, axes[axis], ndim))], axes, spacing)
    if len(letters) == 2 and letters[0] == letters[1]:
        return _merged([((letters[0],) * 2, second[letters[0]])], axes, spacing)
    first = [along(central(1, accuracy), axes[axis], ndim) for axis in letters]
    weights = first[0] if len(first) == 1 else compose(first[0], first[1])
    return _merged([(tuple(letters), weights)], axes, spacing)


def face_sums(accuracy: Accuracy) -> tuple[Mapping[int, Fraction], Mapping[int, Fraction]]:
    """Slope and mean at the face between the points 0 and 1, on unit spacing: staggered formulas
    of `accuracy`. The difference of what flows through faces has the weights of the slope.
    """
    half = Fraction(1, 2)
    if accuracy == 2:
        return {0: Fraction(-1), 1: Fraction(1)}, {0: half, 1: half}
    slope, mean = (Fraction(1, 24), Fraction(-27, 24)), (Fraction(-1, 16), Fraction(9, 16))
    return (
        {-1: slope[0], 0: slope[1], 1: -slope[1], 2: -slope[0]},
        {-1: mean[0], 0: mean[1], 1: mean[1], 2: mean[0]},
    )


def per_spacing(axes: Sequence[str]) -> Node:
    """One over the product of the spacings along some axes."""
    return over(ONE, times(*(Variable(spacing_name(axis)) for axis in axes)))


def _merged(
    parts: Sequence[tuple[tuple[str, ...], Mapping[Offset, Fraction]]],
    axes: Mapping[str, int],
    spacing: Sequence[float],
) -> Sums:
    """Sums before which the same power of spacings stands, as one."""
    found: dict[tuple[float, ...], tuple[Node, dict[Offset, Weight]]] = {}
    for names, weights in parts:
        key = tuple(sorted(spacing[axes[name]] for name in names))
        _, total = found.setdefault(key, (per_spacing(names), {}))
        for offset, weight in weights.items():
            total[offset] = total.get(offset, Fraction(0)) + weight
    return [*found.values()]
