"""One stencil of the catalogue: weights, source, what it does to polynomials, how it repeats."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from tetris_sim.stencil import Offset, Stencil, scale
from tetris_sim.stencils.exact import Number, Weights, magnitude

# Books and papers that several domains take formulas from.
COLLATZ = "L. Collatz, The Numerical Treatment of Differential Equations (1960), appendix, table VI"
FORNBERG = "B. Fornberg, Math. Comp. 51 (1988) 699, table 1"
PATRA_KARTTUNEN = "M. Patra, M. Karttunen, Numer. Methods Partial Differ. Equ. 22 (2006) 936"

# full: the same after any reflection and exchange of axes; axes: after any reflection; even, odd:
# opposite offsets have the same, or opposite, weights. The strongest that holds is stated.
Symmetry = Literal["full", "axes", "even", "odd", "none"]
Powers = tuple[int, ...]


@dataclass(frozen=True)
class Expansion:
    """What a stencil makes of polynomials, on unit spacing: its consistency.

    Applied to a polynomial u of a total degree up to `degree` it gives, at the point `about`,
    exactly the sum of coefficient * (derivative of u of these powers). For some polynomial of the
    next degree it does not.

    Attributes:
        coefficients: {powers of the derivative per axis, array order: coefficient}; those above
            `degree` say what the stencil would have to do to be exact there.
        degree: up to which it is exact.
        about: where the result belongs, in spacings from the point written; None for the point
            itself.
        text: in words; the coefficients if empty.
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
        name: what it is, dimension, then points or order.
        domain: the field it comes from.
        exact: its weights in fractions.
        description: what the weights are.
        source: book or paper of the formula.
        expansion: what it approximates.
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
    expansion: Expansion
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
        """`factor` times the stencil: what can be applied any number of times."""
        return self.stencil if self.stable else scale(self.stencil, float(self.factor))


def named(
    name: str,
    exact: Weights,
    expansion: Expansion,
    texts: tuple[str, str],
    *,
    symmetry: Symmetry = "full",
    factor: Number | None = 1,
) -> NamedStencil:
    """An entry without its domain, which `of_domain` fills in.

    Args:
        name: see `NamedStencil`.
        exact: weights.
        expansion: what it approximates.
        texts: description and source.
        symmetry: the strongest that it has.
        factor: see `NamedStencil`; None for 1 / (sum of the magnitudes), with which no stencil
            amplifies a wave.
    """
    ordered = dict(sorted(exact.items()))
    chosen = 1 / magnitude(ordered) if factor is None else Fraction(factor)
    return NamedStencil(name, "", ordered, *texts, expansion, symmetry, chosen)


def unit(axis: int, ndim: int, power: int = 1) -> Powers:
    """The powers of a pure derivative along one axis."""
    return tuple(power if k == axis else 0 for k in range(ndim))


def laplacian(ndim: int, degree: int, *, factor: Number = 1, value: Number = 0) -> Expansion:
    """The expansion value * u + factor * Laplacian of u."""
    terms = {unit(axis, ndim, 2): Fraction(factor) for axis in range(ndim)}
    return Expansion({(0,) * ndim: Fraction(value), **terms}, degree)


def biharmonic(
    ndim: int, degree: int, *, factor: Number = 1, second: Number = 0, value: Number = 0
) -> Expansion:
    """The expansion value * u + second * L u + factor * L L u, L being the Laplacian."""
    lower = laplacian(ndim, degree, factor=second, value=value).coefficients
    pure = {unit(axis, ndim, 4): Fraction(factor) for axis in range(ndim)}
    mixed = {
        tuple(2 if k in pair else 0 for k in range(ndim)): 2 * Fraction(factor)
        for pair in itertools.combinations(range(ndim), 2)
    }
    return Expansion({**lower, **pure, **mixed}, degree)


def derivatives(
    terms: Mapping[Powers, Number], degree: int, about: tuple[Number, ...] | None = None
) -> Expansion:
    """A sum of derivatives."""
    place = None if about is None else tuple(Fraction(c) for c in about)
    return Expansion({powers: Fraction(c) for powers, c in terms.items()}, degree, place)


def transport(velocity: tuple[Number, ...], degree: int, diffusion: Number = 0) -> Expansion:
    """The field moved by `velocity` and spread by a Gaussian of variance `diffusion` per axis.

    The exponential series of exp(-velocity . grad + diffusion / 2 * Laplacian), whose factors
    belong to one axis each.
    """
    ndim = len(velocity)
    series = [_series(Fraction(v), Fraction(diffusion) / 2, degree + 1) for v in velocity]

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
    return Expansion(coefficients, degree, text=f"{spread}u({shift})" if moved else f"{spread}u")


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
    """For example "u + 1/8 (u_xx + u_yy)"."""
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
    """The strongest symmetry of some weights.

    >>> symmetry_of({(-1,): Fraction(1), (1,): Fraction(-1)})
    'odd'
    """

    def same(move: Mapping[Offset, Offset], sign: int = 1) -> bool:
        return all(exact.get(move[offset]) == sign * weight for offset, weight in exact.items())

    ndim = len(next(iter(exact)))
    opposite = {offset: tuple(-c for c in offset) for offset in exact}

    mirrors = [
        {offset: tuple(-c if k == axis else c for k, c in enumerate(offset)) for offset in exact}
        for axis in range(ndim)
    ]
    orders = [
        {offset: tuple(offset[k] for k in order) for offset in exact}
        for order in itertools.permutations(range(ndim))
    ]

    # The strongest first.
    if all(map(same, mirrors)):
        return "full" if all(map(same, orders)) else "axes"
    if same(opposite):
        return "even"
    return "odd" if same(opposite, -1) else "none"
