"""Stencils in exact fractions on unit spacing: formulas from their nodes, sums and products."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from tetris_sim.stencil import Offset

Weights = Mapping[Offset, Fraction]
Number = int | Fraction


def fornberg(derivative: int, nodes: Sequence[int], at: Number = 0) -> Weights:
    """Weights of the derivative of the polynomial through some nodes, on one axis.

    The recurrence of B. Fornberg, "Generation of finite difference formulas on arbitrarily spaced
    grids", Math. Comp. 51 (1988) 699: node after node is added, each derivative of the new
    polynomial following from those of the old.

    >>> list(map(str, fornberg(2, (-1, 0, 1)).values()))
    ['1', '-2', '1']

    Args:
        derivative: how often to differentiate; 0 interpolates.
        nodes: where the function is known, all different, more than `derivative` of them.
        at: where the derivative is wanted.
    """
    # rows[m][k]: weight of node k in derivative m, for the nodes so far.
    rows = [[Fraction(0)] * len(nodes) for _ in range(derivative + 1)]
    rows[0][0] = Fraction(1)
    before = Fraction(1)  # product of the distances of the newest node to the older ones

    # Each new node changes the weights of all older ones, in every derivative.
    for new in range(1, len(nodes)):
        distances = math.prod(
            (Fraction(nodes[new] - nodes[old]) for old in range(new)), start=Fraction(1)
        )

        for m in range(derivative, -1, -1):
            lower = rows[m - 1][new - 1] if m else Fraction(0)
            rows[m][new] = (
                before / distances * (m * lower - (nodes[new - 1] - at) * rows[m][new - 1])
            )
            for old in range(new):
                lower = rows[m - 1][old] if m else Fraction(0)
                rows[m][old] = ((nodes[new] - at) * rows[m][old] - m * lower) / (
                    nodes[new] - nodes[old]
                )
        before = distances

    return line(nodes, rows[derivative])


def line(nodes: Sequence[int], weights: Sequence[Number]) -> Weights:
    """A stencil of one axis; weights that are zero are left out."""
    return {
        (node,): Fraction(weight) for node, weight in zip(nodes, weights, strict=True) if weight
    }


def row(*weights: Number) -> Weights:
    """A stencil of one axis with an odd number of weights, around the point itself."""
    radius = len(weights) // 2
    return line(range(-radius, radius + 1), weights)


def mask(rows: Sequence[Sequence[Number]], divisor: Number = 1) -> Weights:
    """A stencil of two axes as image processing writes it: a table around the point itself."""
    middle, centre = len(rows) // 2, len(rows[0]) // 2
    return {
        (i - middle, j - centre): Fraction(weight) / divisor
        for i, weights in enumerate(rows)
        for j, weight in enumerate(weights)
        if weight
    }


def identity(ndim: int) -> Weights:
    """The stencil that changes nothing."""
    return {(0,) * ndim: Fraction(1)}


def scaled(factor: Number, weights: Weights) -> Weights:
    """Every weight times a factor."""
    return {offset: factor * weight for offset, weight in weights.items()}


def magnitude(weights: Weights) -> Fraction:
    """The sum of the magnitudes: no wave grows by more."""
    return sum(map(abs, weights.values()), Fraction(0))


def add(*parts: Weights) -> Weights:
    """The sum of stencils; weights that cancel are left out."""
    total: dict[Offset, Fraction] = {}
    for part in parts:
        for offset, weight in part.items():
            total[offset] = total.get(offset, Fraction(0)) + weight
    return {offset: weight for offset, weight in sorted(total.items()) if weight}


def compose(*parts: Weights) -> Weights:
    """The stencil that applies one after the other."""

    def both(first: Weights, second: Weights) -> Weights:
        return add(
            *(
                {tuple(a + b for a, b in zip(offset, shift, strict=True)): weight * factor}
                for offset, weight in first.items()
                for shift, factor in second.items()
            )
        )

    return functools.reduce(both, parts)


def outer(*lines: Weights) -> Weights:
    """The product of one stencil of one axis per axis, in array order."""
    terms: dict[Offset, Fraction] = {}
    for factors in itertools.product(*(part.items() for part in lines)):
        terms[tuple(offset[0] for offset, _ in factors)] = math.prod(
            (w for _, w in factors), start=Fraction(1)
        )
    return add(terms)


def along(part: Weights, axis: int, ndim: int) -> Weights:
    """A stencil of one axis along one of `ndim` axes."""
    return outer(*(part if k == axis else row(1) for k in range(ndim)))


def central(derivative: int, order: int) -> Weights:
    """The shortest central difference of one axis with this (even) order of accuracy."""
    radius = (derivative + 1) // 2 - 1 + order // 2
    return fornberg(derivative, range(-radius, radius + 1))


def star(ndim: int, order: int = 2) -> Weights:
    """The Laplacian as the sum of central second derivatives of this order."""
    return add(*(along(central(2, order), axis, ndim) for axis in range(ndim)))


def compact(ndim: int, factor: Number = Fraction(1, 6)) -> Weights:
    """Sum of 3-point second derivatives D_i, plus `factor` times the sum of all D_i D_j.

    With 1/6 the leading error is isotropic: 9 points in 2D (Mehrstellen), 19 in 3D (L. Collatz, The
    Numerical Treatment of Differential Equations, 1960).
    """
    parts = [along(central(2, 2), axis, ndim) for axis in range(ndim)]
    pairs = (compose(first, second) for first, second in itertools.combinations(parts, 2))
    return add(*parts, *(scaled(factor, pair) for pair in pairs))


def diagonal() -> Weights:
    """The Laplacian in 2D out of the four diagonal neighbours."""
    return mask([[1, 0, 1], [0, -4, 0], [1, 0, 1]], 2)


def compact_27() -> Weights:
    """The 27-point Laplacian with weights -128, 14, 3, 1 over 30.

    M. Patra and M. Karttunen, "Stencils with isotropic discretization error for differential
    operators", Numer. Methods Partial Differ. Equ. 22 (2006) 936.
    """
    triple = outer(*[central(2, 2)] * 3)
    return add(compact(3), scaled(Fraction(1, 30), triple))


def polynomial(operator: Weights, coefficients: Sequence[Number]) -> Weights:
    """c0 + c1 A + c2 A^2 + ... of an operator A."""
    ndim = len(next(iter(operator)))
    powers = itertools.accumulate(
        [operator] * (len(coefficients) - 1), compose, initial=identity(ndim)
    )
    return add(*(scaled(c, power) for c, power in zip(coefficients, powers, strict=True)))


def binomial(n: int) -> Weights:
    """Row n (even) of Pascal's triangle over its sum: the discrete Gaussian of variance n / 4."""
    return row(*(Fraction(math.comb(n, k), 2**n) for k in range(n + 1)))


def b_spline(degree: int) -> Weights:
    """The centred B-spline of an odd degree at the integers.

    I. J. Schoenberg (1946): sum over k of (-1)^k C(n + 1, k) (x + (n + 1)/2 - k)_+^n / n!. Its
    variance is (n + 1)/12.

    >>> {offset[0]: str(weight) for offset, weight in b_spline(3).items()}
    {-1: '1/6', 0: '2/3', 1: '1/6'}
    """
    half = (degree + 1) // 2
    values: dict[Offset, Fraction] = {
        (x,): Fraction(
            sum(
                (-1) ** k * math.comb(degree + 1, k) * (x + half - k) ** degree
                for k in range(x + half)
            ),
            math.factorial(degree),
        )
        for x in range(1 - half, half)
    }
    return add(values)
