"""Building blocks of the catalogue: exact stencils, their Taylor expansions, and `NamedStencil`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from tetris_sim.model.stencil import Offset, Stencil, scale

# Stencils in exact fractions on unit spacing: finite-difference formulas, sums and products.

Weights = Mapping[Offset, Fraction]
Number = int | Fraction
Row = Mapping[int, Fraction]  # of a condition on a face: factors of derivatives by their order


def fornberg(derivative: int, nodes: Sequence[int], at: Number = 0) -> Weights:
    """Return the weights of the derivative of the polynomial through some nodes, on one axis.

    The recurrence of B. Fornberg, "Generation of finite difference formulas on arbitrarily spaced
    grids", Math. Comp. 51 (1988) 699: node after node is added, each derivative of the new
    polynomial following from those of the old.

    >>> list(map(str, fornberg(2, (-1, 0, 1)).values()))
    ['1', '-2', '1']

    Args:
        derivative: how often to differentiate; 0 interpolates.
        nodes: positions of the known values, all different, more than `derivative` of them.
        at: position of the derivative.
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

        # From the highest derivative down: each uses the next lower one of the previous node set.
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


@functools.cache
def _inverse(
    rows: tuple[tuple[tuple[int, Fraction], ...], ...], points: int
) -> list[list[Fraction]]:
    """From conditions and points to the coefficients of the polynomial."""
    n = len(rows) + points
    matrix: list[list[Fraction]] = []
    for row in rows:
        values = dict(row)
        matrix.append([math.factorial(k) * values.get(k, Fraction(0)) for k in range(n)])
    matrix += [[Fraction(2 * m + 1, 2) ** k for k in range(n)] for m in range(points)]

    # Gauss and Jordan, in fractions: the weights of a mirror come out exactly.
    whole = [[*row, *(Fraction(i == j) for j in range(n))] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = next(k for k in range(i, n) if whole[k][i] != 0)
        whole[i], whole[pivot] = whole[pivot], whole[i]
        whole[i] = [value / whole[i][i] for value in whole[i]]
        for k in range(n):
            if k != i and whole[k][i]:
                factor = whole[k][i]
                whole[k] = [a - factor * b for a, b in zip(whole[k], whole[i], strict=True)]
    return [row[n:] for row in whole]


def extended(
    rows: Sequence[Row], points: int, place: Fraction
) -> tuple[tuple[float, ...], dict[int, float]]:
    """The weights of conditions on a face, and of the points beside it, of the value at a place
    counted from the face in spacings.

    >>> extended(({0: Fraction(1)},), 1, Fraction(-1, 2))  # a mirror with its sign changed
    ((2.0,), {0: -1.0})
    """
    inverse = _inverse(tuple(tuple(sorted(row.items())) for row in rows), points)
    found = [
        sum((place**k * row[column] for k, row in enumerate(inverse)), Fraction(0))
        for column in range(len(inverse))
    ]
    weights = {number: float(it) for number, it in enumerate(found[len(rows) :]) if it}
    return tuple(map(float, found[: len(rows)])), weights


def line(nodes: Sequence[int], weights: Sequence[Number]) -> Weights:
    """Return a stencil of one axis; zero weights are left out."""
    return {
        (node,): Fraction(weight) for node, weight in zip(nodes, weights, strict=True) if weight
    }


def row(*weights: Number) -> Weights:
    """Return a stencil of one axis from an odd number of weights, centred on the point itself."""
    radius = len(weights) // 2
    return line(range(-radius, radius + 1), weights)


def mask(rows: Sequence[Sequence[Number]], divisor: Number = 1) -> Weights:
    """Return a stencil of two axes from a table as in image processing, centred on the point
    itself.
    """
    middle, centre = len(rows) // 2, len(rows[0]) // 2
    return {
        (i - middle, j - centre): Fraction(weight) / divisor
        for i, weights in enumerate(rows)
        for j, weight in enumerate(weights)
        if weight
    }


def identity(ndim: int) -> Weights:
    """Return the stencil that changes nothing."""
    return {(0,) * ndim: Fraction(1)}


def scaled(factor: Number, weights: Weights) -> Weights:
    """Multiply every weight by a factor."""
    return {offset: factor * weight for offset, weight in weights.items()}


def magnitude(weights: Weights) -> Fraction:
    """Return the sum of the magnitudes, a bound on the amplification of any wave."""
    return sum(map(abs, weights.values()), Fraction(0))


def add(*parts: Weights) -> Weights:
    """Add stencils; weights that cancel are left out."""
    total: dict[Offset, Fraction] = {}
    for part in parts:
        for offset, weight in part.items():
            total[offset] = total.get(offset, Fraction(0)) + weight
    return {offset: weight for offset, weight in sorted(total.items()) if weight}


def compose(*parts: Weights) -> Weights:
    """Return the stencil that applies one after the other."""

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
    """Return the tensor product of one single-axis stencil per axis, in array order."""
    terms: dict[Offset, Fraction] = {}
    for factors in itertools.product(*(part.items() for part in lines)):
        terms[tuple(offset[0] for offset, _ in factors)] = math.prod(
            (w for _, w in factors), start=Fraction(1)
        )
    return add(terms)


def along(part: Weights, axis: int, ndim: int) -> Weights:
    """Extend a stencil of one axis to `ndim` axes, along one of them."""
    return outer(*(part if k == axis else row(1) for k in range(ndim)))


def central(derivative: int, order: int) -> Weights:
    """Return the shortest central difference of one axis with this (even) order of accuracy."""
    # By symmetry, derivatives 2 m - 1 and 2 m of the same order share a radius.
    radius = (derivative + 1) // 2 - 1 + order // 2
    return fornberg(derivative, range(-radius, radius + 1))


def star(ndim: int, order: int = 2) -> Weights:
    """Return the Laplacian as the sum of central second derivatives of this order."""
    return add(*(along(central(2, order), axis, ndim) for axis in range(ndim)))


def compact(ndim: int, factor: Number = Fraction(1, 6)) -> Weights:
    """Return the sum of 3-point second derivatives D_i, plus `factor` times the sum of all D_i D_j.

    With 1/6 the leading error is isotropic: 9 points in 2D (Mehrstellen), 19 in 3D (L. Collatz, The
    Numerical Treatment of Differential Equations, 1960).
    """
    parts = [along(central(2, 2), axis, ndim) for axis in range(ndim)]
    pairs = (compose(first, second) for first, second in itertools.combinations(parts, 2))
    return add(*parts, *(scaled(factor, pair) for pair in pairs))


def diagonal() -> Weights:
    """Return the 2D Laplacian from the four diagonal neighbours."""
    return mask([[1, 0, 1], [0, -4, 0], [1, 0, 1]], 2)


def compact_27() -> Weights:
    """Return the 27-point Laplacian with weights -128, 14, 3, 1 over 30.

    M. Patra and M. Karttunen, "Stencils with isotropic discretization error for differential
    operators", Numer. Methods Partial Differ. Equ. 22 (2006) 936.
    """
    triple = outer(*[central(2, 2)] * 3)
    return add(compact(3), scaled(Fraction(1, 30), triple))


def polynomial(operator: Weights, coefficients: Sequence[Number]) -> Weights:
    """Return c0 + c1 A + c2 A^2 + ... of an operator A."""
    ndim = len(next(iter(operator)))
    powers = itertools.accumulate(
        [operator] * (len(coefficients) - 1), compose, initial=identity(ndim)
    )
    return add(*(scaled(c, power) for c, power in zip(coefficients, powers, strict=True)))


def binomial(n: int) -> Weights:
    """Return row n (even) of Pascal's triangle over its sum: the discrete Gaussian of variance n /
    4.
    """
    return row(*(Fraction(math.comb(n, k), 2**n) for k in range(n + 1)))


def b_spline(degree: int) -> Weights:
    """Return the centred B-spline of an odd degree at the integers.

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
                # From k = x + half on, the truncated power is zero.
                for k in range(x + half)
            ),
            math.factorial(degree),
        )
        for x in range(1 - half, half)
    }
    return add(values)


# Books and papers that are the source of several domains.
COLLATZ = "L. Collatz, The Numerical Treatment of Differential Equations (1960), appendix, table VI"
FORNBERG = "B. Fornberg, Math. Comp. 51 (1988) 699, table 1"
PATRA_KARTTUNEN = "M. Patra, M. Karttunen, Numer. Methods Partial Differ. Equ. 22 (2006) 936"

# full: invariant under any reflection and exchange of axes; axes: under any reflection; even, odd:
# opposite offsets have the same, or opposite, weights. An entry states the strongest that holds.
Symmetry = Literal["full", "axes", "even", "odd", "none"]
Powers = tuple[int, ...]


@dataclass(frozen=True)
class TaylorExpansion:
    """The effect of a stencil on polynomials, on unit spacing: its consistency.

    Applied to a polynomial u of a total degree up to `degree` it gives, at the point `about`,
    exactly the sum of coefficient * (derivative of u of these powers). For some polynomial of the
    next degree it does not.

    Attributes:
        coefficients: {powers of the derivative per axis, array order: coefficient}; those above
            `degree` are the values that exactness there would require.
        degree: up to which it is exact.
        about: location of the result, in spacings from the point written; None for the point
            itself.
        text: description in words; the coefficients if empty.
    """

    coefficients: Mapping[Powers, Fraction]
    degree: int
    about: tuple[Fraction, ...] | None = None
    text: str = ""

    def __str__(self) -> str:
        terms = [(p, c) for p, c in self.coefficients.items() if sum(p) <= self.degree and c]
        return f"{self.text or _formula(terms)}, exact to degree {self.degree}"


@dataclass(frozen=True)
class NamedStencil:
    """A stencil of the catalogue.

    Attributes:
        name: kind, dimension, then points or order.
        domain: field of application.
        exact: its weights in fractions.
        description: of the weights.
        source: book or paper of the formula.
        expansion: approximated operator.
        symmetry: the strongest that it has.
        factor: repeated application of `factor` times the stencil amplifies no wave. It is 1 for
            time steps and filters that are stable as they are, and smaller for operators, which are
            meant to be applied once.
    """

    name: str
    domain: str
    exact: Weights
    description: str
    source: str
    expansion: TaylorExpansion
    symmetry: Symmetry
    factor: Fraction

    @cached_property
    def stencil(self) -> Stencil:
        """Offsets and weights, each weight rounded once."""
        return Stencil.from_terms({offset: float(weight) for offset, weight in self.exact.items()})

    @property
    def stable(self) -> bool:
        """Whether repeated application amplifies no wave."""
        return self.factor == 1

    @cached_property
    def repeatable(self) -> Stencil:
        """`factor` times the stencil, which can be applied any number of times without
        amplification.
        """
        return self.stencil if self.stable else scale(self.stencil, float(self.factor))


def named(
    name: str,
    exact: Weights,
    expansion: TaylorExpansion,
    texts: tuple[str, str],
    *,
    symmetry: Symmetry = "full",
    factor: Number | None = 1,
) -> NamedStencil:
    """Return an entry without its domain, which `catalogue` fills in.

    Args:
        name: see `NamedStencil`.
        exact: weights.
        expansion: approximated operator.
        texts: description and source.
        symmetry: the strongest that it has.
        factor: see `NamedStencil`; None for 1 / (sum of the magnitudes), with which no stencil
            amplifies a wave.
    """
    ordered = dict(sorted(exact.items()))
    chosen = 1 / magnitude(ordered) if factor is None else Fraction(factor)
    return NamedStencil(name, "", ordered, *texts, expansion, symmetry, chosen)


def unit(axis: int, ndim: int, power: int = 1) -> Powers:
    """Return the powers of a pure derivative along one axis."""
    return tuple(power if k == axis else 0 for k in range(ndim))


def laplacian(ndim: int, degree: int, *, factor: Number = 1, value: Number = 0) -> TaylorExpansion:
    """Return the expansion value * u + factor * Laplacian of u."""
    terms = {unit(axis, ndim, 2): Fraction(factor) for axis in range(ndim)}
    return TaylorExpansion({(0,) * ndim: Fraction(value), **terms}, degree)


def biharmonic(
    ndim: int, degree: int, *, factor: Number = 1, second: Number = 0, value: Number = 0
) -> TaylorExpansion:
    """Return the expansion value * u + second * L u + factor * L L u, L being the Laplacian."""
    lower = laplacian(ndim, degree, factor=second, value=value).coefficients
    pure = {unit(axis, ndim, 4): Fraction(factor) for axis in range(ndim)}
    # (sum of d_i^2)^2 holds every mixed pair twice.
    mixed = {
        tuple(2 if k in pair else 0 for k in range(ndim)): 2 * Fraction(factor)
        for pair in itertools.combinations(range(ndim), 2)
    }
    return TaylorExpansion({**lower, **pure, **mixed}, degree)


def derivatives(
    terms: Mapping[Powers, Number], degree: int, about: tuple[Number, ...] | None = None
) -> TaylorExpansion:
    """Return the expansion of a sum of derivatives."""
    place = None if about is None else tuple(Fraction(c) for c in about)
    return TaylorExpansion({powers: Fraction(c) for powers, c in terms.items()}, degree, place)


def transport(velocity: tuple[Number, ...], degree: int, diffusion: Number = 0) -> TaylorExpansion:
    """Return the expansion of a field moved by `velocity` and spread by a Gaussian of variance
    `diffusion` per axis.

    The exponential series of exp(-velocity . grad + diffusion / 2 * Laplacian), whose factors
    belong to one axis each.
    """
    ndim = len(velocity)
    series = [_series(Fraction(v), Fraction(diffusion) / 2, degree + 1) for v in velocity]

    # One degree more than exact: the tests check that the stencil fails there.
    coefficients = {
        powers: math.prod(
            (part[p] for part, p in zip(series, powers, strict=True)), start=Fraction(1)
        )
        for powers in itertools.product(range(degree + 2), repeat=ndim)
        if sum(powers) <= degree + 1
    }

    moved = any(velocity)
    shift = (
        ", ".join(f"{axis} - {v}" for axis, v in zip("xyz", velocity[::-1], strict=False))
        if moved
        else ""
    )
    spread = f"a Gaussian of variance {diffusion} * " if diffusion else ""
    return TaylorExpansion(
        coefficients, degree, text=f"{spread}u({shift})" if moved else f"{spread}u"
    )


# Terms of exp(-v d + s d^2) by the power of d, s being half of the variance.
def _series(velocity: Fraction, half_variance: Fraction, last: int) -> list[Fraction]:
    series = [Fraction(0)] * (last + 1)

    for first in range(last + 1):
        for second in range((last - first) // 2 + 1):
            term = (
                (-velocity) ** first
                / math.factorial(first)
                * half_variance**second
                / math.factorial(second)
            )
            series[first + 2 * second] += term
    return series


def _formula(terms: list[tuple[Powers, Fraction]]) -> str:
    """Format an expansion, for example "u + 1/8 (u_xx + u_yy)"."""
    # Derivatives with the same coefficient share one pair of parentheses.
    groups: dict[Fraction, list[str]] = {}
    for powers, coefficient in terms:
        index = "".join(axis * power for axis, power in zip("xyz", powers[::-1], strict=False))
        groups.setdefault(coefficient, []).append(f"u_{index}" if index else "u")

    parts = []
    for coefficient, names in groups.items():
        joined = " + ".join(sorted(names))
        magnitude = "" if abs(coefficient) == 1 else f"{abs(coefficient)} "
        whole = magnitude + (
            f"({joined})" if len(names) > 1 and (magnitude or coefficient < 0) else joined
        )
        parts.append(("- " if coefficient < 0 else "+ ") + whole)

    text = " ".join(parts).removeprefix("+ ")
    return text or "0"


def symmetry_of(exact: Weights) -> Symmetry:
    """Return the strongest symmetry of some weights.

    >>> symmetry_of({(-1,): Fraction(1), (1,): Fraction(-1)})
    'odd'
    """

    def same(move: Mapping[Offset, Offset], sign: int = 1) -> bool:
        return all(exact.get(move[offset]) == sign * weight for offset, weight in exact.items())

    ndim = len(next(iter(exact)))
    opposite = {offset: tuple(-c for c in offset) for offset in exact}

    # Every map takes each offset to its image; the weights must agree.
    mirrors = [
        {offset: tuple(-c if k == axis else c for k, c in enumerate(offset)) for offset in exact}
        for axis in range(ndim)
    ]
    orders = [
        {offset: tuple(offset[k] for k in order) for offset in exact}
        for order in itertools.permutations(range(ndim))
    ]

    # The strongest symmetry first.
    if all(map(same, mirrors)):
        return "full" if all(map(same, orders)) else "axes"
    if same(opposite):
        return "even"
    return "odd" if same(opposite, -1) else "none"
