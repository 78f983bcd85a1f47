"""Sums of few operations: a right-hand side as scalars times bodies, and chains of neighbours.

How a sum is written decides how long a step takes. A scalar in front of a sum is not distributed
unless every part of it has one already; signs are part of the scalars; what is multiplied is added
by one fused operation. Neighbours of equal weight are added up before they are multiplied, and the
weights of a chain are whole numbers where they can be, with one factor for all of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tetris_sim.apps.pde_hoist import ONE, Hoist, times
from tetris_sim.model.formula import Constant, Node, Operation

Offset = tuple[int, ...]
Weight = Fraction | float


@dataclass(frozen=True)
class Term:
    """One part of a sum, scalar * body; the scalar alone without a body."""

    scalar: Node
    body: Node | None = None

    def scaled(self, factor: Node) -> Term:
        """The same times a scalar."""
        return Term(times(factor, self.scalar), self.body)


def scaled(terms: Sequence[Term], factor: Node) -> list[Term]:
    """A sum times a scalar."""
    return [term.scaled(factor) for term in terms]


def combine(terms: Sequence[Term], hoist: Hoist) -> Node:
    """A sum as a tree: what has no scalar first, then what is multiplied, then scalars."""
    alone = [term.scalar for term in terms if term.body is None]
    ones = [term.body for term in terms if term.body is not None and term.scalar == ONE]
    total = functools.reduce(_plus, ones) if ones else None
    for term in terms:
        if term.body is not None and term.scalar != ONE:
            part = multiplied(hoist.scalar(term.scalar), term.body)
            total = part if total is None else _plus(part, total)

    if alone and (total is None or any(it != Constant(0.0) for it in alone)):
        scalar = hoist.scalar(functools.reduce(_plus, alone))
        total = scalar if total is None else _plus(total, scalar)
    return Constant(0.0) if total is None else total


def multiplied(scalar: Node, body: Node) -> Node:
    """A product; of -1 and something, the sign."""
    if scalar == Constant(-1.0) and not _is_product(body):
        return Operation("negative", (body,))
    return Operation("multiply", (scalar, body))


def _is_product(node: Node) -> bool:
    return isinstance(node, Operation) and node.name == "multiply"


def _plus(a: Node, b: Node) -> Node:
    # What is added with a sign is subtracted.
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Operation) and one.name == "negative" and not _is_product(other):
            return Operation("subtract", (other, one.arguments[0]))
        if isinstance(one, Operation) and one.name == "negative":
            signed = Operation("multiply", (Constant(-1.0), *one.arguments))
            return Operation("add", (signed, other))
    return Operation("add", (a, b))


def chain(
    weights: Mapping[Offset, Weight], point: Callable[[Offset], Node]
) -> tuple[float, Node] | None:
    """A weighted sum of neighbours: its factor and the sum; None if there are none.

    Args:
        weights: by offset.
        point: what is read at an offset.
    """
    given = {offset: weight for offset, weight in weights.items() if weight}
    if not given:
        return None
    unit = _unit([*given.values()])
    groups: dict[Weight, list[tuple[Offset, bool]]] = {}
    for offset in sorted(given, key=lambda it: (sum(map(abs, it)), it)):
        weight = given[offset]
        exact = isinstance(weight, Fraction) and isinstance(unit, Fraction)
        share: Weight = Fraction(weight) / Fraction(unit) if exact else float(weight) / float(unit)
        groups.setdefault(share if share > 0 else -share, []).append((offset, share > 0))

    total: Node | None = None
    for size in sorted(groups):
        sign, group = _group(groups[size], point)
        number = Constant(sign * float(size))
        part = group if number == ONE else multiplied(number, group)
        total = part if total is None else _plus(part, total)
    assert total is not None
    return float(unit), total


def _unit(weights: Sequence[Weight]) -> Weight:
    """What all weights are whole multiples of, of the sign of the smallest; 1 for weights that are
    not fractions.
    """
    if not all(isinstance(weight, Fraction) for weight in weights):
        return weights[0] if len({abs(weight) for weight in weights}) == 1 else 1.0

    fractions = [Fraction(weight) for weight in weights]
    whole = math.lcm(*(weight.denominator for weight in fractions))
    common = Fraction(math.gcd(*(int(weight * whole) for weight in fractions)), whole)
    least = min(abs(weight) for weight in fractions)
    positive = any(weight == least for weight in fractions)
    return common if positive else -common


def _group(
    members: Sequence[tuple[Offset, bool]], point: Callable[[Offset], Node]
) -> tuple[float, Node]:
    """The sum of neighbours of weights 1 and -1, and a sign for all of it."""
    plus = [point(offset) for offset, positive in members if positive]
    minus = [point(offset) for offset, positive in members if not positive]
    if not plus:
        return -1.0, functools.reduce(_plus, minus)
    total = functools.reduce(_plus, plus)
    for node in minus:
        total = _plus(total, Operation("negative", (node,)))
    return 1.0, total
