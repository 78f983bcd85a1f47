"""Fluxes: what flows through the face between two points, for conservation laws with shocks.

`flux(f, u)` is the divergence of f, where u is what f carries: the difference of what flows through
the two faces of a point, so what one point gains the other loses, and shocks have their right
speed. At a face the flow is that of local Lax-Friedrichs, also named after Rusanov,

    F = (f(l) + f(r))/2 - a/2 (r - l),      a = the largest |df/du| between l and r,

of the states l and r on its two sides: the points themselves (first order), or extrapolations with
limited slopes (B. van Leer, J. Comput. Phys. 32 (1979) 101; P. K. Sweby, SIAM J. Numer. Anal. 21
(1984) 995). With `limiter: weno5` f is split into f + a u and f - a u, each of which is
interpolated from its own side by weighted essentially non-oscillatory polynomials (G.-S. Jiang,
C.-W. Shu, J. Comput. Phys. 126 (1996) 202) with the weights of R. Borges, M. Carmona, B. Costa, W.
S. Don, J. Comput. Phys. 227 (2008) 3191, which are of fifth order at extrema too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol

from tetris_sim.apps.pde.simplify import (
    ONE,
    Dependence,
    Hoist,
    Offset,
    factors_of,
    has_operators,
    over,
    slope_of,
    spacing_name,
    times,
)
from tetris_sim.apps.time_functions import formula, names_in, substitute
from tetris_sim.errors import ConfigError
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    walk,
)
from tetris_sim.model.grid import CARTESIAN, Coordinates

Advection = Literal["upwind", "central"]
Accuracy = Literal[2, 4]
LIMITERS = ("none", "minmod", "van_leer", "superbee", "weno5")
HELD = ".held"  # after a name: its value, of which no derivative is taken
# How many times shorter than with the first order a step has to be: extrapolations with slopes of
# up to twice the difference keep the total variation up to half of that step (Sweby 1984), and
# Runge-Kutta methods follow waves of weno5 with about two thirds of it.
_SHORTER = {"none": 1.0, "weno5": 2.0}
_BETWEEN = (0.25, 0.5, 0.75)  # of two states, where a speed that bends is looked at besides

_MARGIN = 1.1  # by which f is split with more than the fastest wave (Jiang, Shu 1996)

# The slope of a cell from the differences a and b to both neighbours; 0 at an extremum.
SLOPES = {
    "minmod": "where(a*b > 0, where(abs(a) < abs(b), a, b), 0)",
    "van_leer": "where(a*b > 0, 2*a*b/(a + b), 0)",
    "superbee": "where(a*b > 0, where(abs(a) < abs(b), where(2*abs(a) < abs(b), 2*a, b), "
    "where(2*abs(b) < abs(a), 2*b, a)), 0)",
}
# Three parabolas at the face behind the third of five points, their roughness, ideal weights.
_PARABOLAS = (
    ("(2*a - 7*b + 11*c)/6", "13/12*(a - 2*b + c)**2 + (a - 4*b + 3*c)**2/4", 0.1),
    ("(5*c - b + 2*d)/6", "13/12*(b - 2*c + d)**2 + (b - d)**2/4", 0.6),
    ("(2*c + 5*d - e)/6", "13/12*(c - 2*d + e)**2 + (3*c - 4*d + e)**2/4", 0.3),
)


def face_sums(accuracy: int) -> tuple[Mapping[int, Fraction], Mapping[int, Fraction]]:
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


@dataclass(frozen=True)
class Space:
    """On what grid, and how it is differentiated.

    Attributes:
        spacing: array order [m].
        accuracy: order of the operators.
        advection: how `advect` looks upstream.
        system: what the axes mean.
        frozen: whether fluxes are those of waves on a uniform state, for the time step.
        uneven: letters of the axes whose cells differ in width.
    """

    spacing: tuple[float, ...]
    accuracy: Accuracy = 2
    advection: Advection = "upwind"
    frozen: bool = False
    system: Coordinates = CARTESIAN
    uneven: frozenset[str] = frozenset()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.spacing)


class Reader(Protocol):
    """Reads fields and coefficients for formulas of neighbours."""

    hoist: Hoist

    def leaf(self, node: Node, offset: Offset) -> Node:
        """A field, a coefficient or a part with operators, at a point beside."""

    def held(self, node: Node) -> Node:
        """The same at the point itself, as a number of which no derivative is taken."""

    def hold(self, node: Node) -> Variable:
        """A name for something that is built already, which formulas may have."""

    def build(self, node: Node, offset: Offset) -> Node:
        """A formula as a tree of what is read."""

    def is_field(self, name: str) -> bool:
        """Whether a name is that of a field."""

    @property
    def ndim(self) -> int:
        """Number of axes."""


def limiter_of(name: str) -> str:
    """The limiter of a flux by its whole name."""
    return name.partition("(limiter=")[2].removesuffix(")") or "none"


def with_carried(tree: Node, field: str, ndim: int) -> Node:
    """A formula in which fluxes that do not say what they carry carry a field.

    Raises:
        ConfigError: a flux does not have that field.
    """
    if not has_operators(tree):
        return tree

    # Only what is above an operator can hold a flux, so other parts stay as they are.
    match tree:
        case Operation(name, arguments):
            whole = tuple(with_carried(it, field, ndim) for it in arguments)
            if is_flux(name) and len(whole) == ndim:
                if not any(field in names_in(it) for it in whole):
                    msg = (
                        f"model: a flux in the equation of {field} does not have {field}; name the "
                        f"field that it carries as its last argument, as in flux(v*c, c)"
                    )
                    raise ConfigError(msg)
                whole = (*whole, Variable(field))
            return Operation(name, whole)
        case Comparison(signs, operands):
            return Comparison(signs, tuple(with_carried(it, field, ndim) for it in operands))
    return tree


def oriented(tree: Node, hoist: Hoist, ndim: int, before: Node = ONE) -> Node:
    """A scalar times a right-hand side, whose fluxes all leave what they carry, as in -flux(f, u):
    scalars before a flux are put into it, so that it looks where its waves come from.
    """
    if not any(isinstance(it, Operation) and is_flux(it.name) for it in walk(tree)):
        return _times(before, tree)
    assert isinstance(tree, Operation | Comparison)
    if isinstance(tree, Comparison):
        return _times(before, tree)
    parts, other = tree.arguments, times(Constant(-1.0), before)

    # s flux(f) = -flux(-s f), and the speed of waves has no sign.
    if is_flux(tree.name):
        fluxes = [_times(other, it) for it in parts[:ndim]]
        speed = [_times(Operation("abs", (before,)), it) for it in parts[ndim + 1 :]]
        return Operation("negative", (Operation(tree.name, (*fluxes, parts[ndim], *speed)),))
    if tree.name in ("positive", "negative"):
        return oriented(parts[0], hoist, ndim, before if tree.name == "positive" else other)
    if tree.name in ("add", "subtract"):
        second = before if tree.name == "add" else other
        sides = zip(parts, (before, second), strict=True)
        return Operation("add", tuple(oriented(a, hoist, ndim, by) for a, by in sides))
    if tree.name not in ("multiply", "divide"):
        return _times(before, tree)

    # Of a product the scalars go into the flux; what varies stays before it.
    whole, flowing = _times(before, tree), list[Node]()
    rest: Node = ONE
    for factor, divides in factors_of(tree):
        if has_operators(factor) and not divides:
            flowing.append(factor)
        elif hoist.kind(factor) is Dependence.SCALAR:
            before = over(before, factor) if divides else times(before, factor)
        else:
            rest = over(rest, factor) if divides else times(rest, factor)
    if len(flowing) != 1:
        return whole
    return _times(rest, oriented(flowing[0], hoist, ndim, before))


def parts_of(tree: Node, hoist: Hoist, before: Node = ONE) -> Iterator[tuple[Node, Node]]:
    """The parts of a sum, each with the scalar before it."""
    if not has_operators(tree):
        yield before, tree
        return

    # Scalars are distributed over sums, and nothing else is taken apart.
    match tree:
        case Operation("add" | "subtract", (a, b)):
            yield from parts_of(a, hoist, before)
            other = before if tree.name == "add" else times(Constant(-1.0), before)
            yield from parts_of(b, hoist, other)
        case Operation("negative" | "positive", (a,)):
            sign = Constant(-1.0 if tree.name == "negative" else 1.0)
            yield from parts_of(a, hoist, times(sign, before))
        case Operation("multiply" | "divide"):
            flowing, rest = only_flowing(tree, hoist)
            scalars = [it for it in rest if hoist.kind(it[0]) is Dependence.SCALAR]
            if flowing is None or len(scalars) < len(rest):
                yield before, tree
                return
            for factor, divides in scalars:
                before = over(before, factor) if divides else times(before, factor)
            yield from parts_of(flowing, hoist, before)
        case _:
            yield before, tree


def only_flowing(tree: Node, hoist: Hoist) -> tuple[Node | None, list[tuple[Node, bool]]]:
    """The only factor with operators, None if it is not the only one or divides, and the others."""
    every = factors_of(tree)
    flowing = [(it, divides) for it, divides in every if has_operators(it)]
    rest = [(it, divides) for it, divides in every if not has_operators(it)]
    alone = len(flowing) == 1 and not flowing[0][1]
    return (flowing[0][0] if alone else None), rest


def _times(factor: Node, tree: Node) -> Node:
    if factor in (ONE, Constant(-1.0)):
        return tree if factor == ONE else Operation("negative", (tree,))
    return Operation("multiply", (factor, tree))


def is_flux(name: str) -> bool:
    """Whether an operator is the divergence of a flux, by its whole name."""
    return name.partition("(")[0] in ("flux", "div")


def carried_by_themselves(tree: Node) -> list[str]:
    """Fields that `advect` carries at a speed that they have a part in."""
    found = []
    for it in walk(tree):
        if isinstance(it, Operation) and it.name == "advect":
            *speeds, carried = it.arguments
            own = frozenset().union(*map(names_in, speeds)) & names_in(carried)
            found += sorted(own) if isinstance(carried, Variable) else []
    return [*dict.fromkeys(found)]


def weno5_in(tree: Node) -> bool:
    """Whether a formula has a flux that only methods of high order in time can follow."""
    return any(isinstance(it, Operation) and it.name.endswith("=weno5)") for it in walk(tree))


def limited_in(tree: Node) -> bool:
    """Whether a formula has a flux of more than the first order."""
    return any(
        isinstance(it, Operation) and is_flux(it.name) and limiter_of(it.name) != "none"
        for it in walk(tree)
    )


@dataclass(frozen=True)
class Flow:
    """A flux along one axis.

    Attributes:
        flux: the formula of what flows.
        carried: the field.
        speed: the largest speed of a wave instead of df/du; None for that.
        limiter: of `LIMITERS`.
        axis: array order.
        ndim: number of axes.
        reader: of fields.
    """

    flux: Node
    carried: Variable
    speed: Node | None
    limiter: str
    axis: int
    ndim: int
    reader: Reader
    _known: dict[tuple[Node, int], Node] = field(default_factory=dict)

    @functools.cached_property
    def slope(self) -> Node:
        """How fast waves run: df/du, or what was said."""
        return slope_of(self.flux, self.carried.name) if self.speed is None else self.speed

    @functools.cached_property
    def _bends(self) -> bool:
        """Whether between two states waves may be faster than at both."""
        if self.speed is not None:
            return False
        return self.carried.name in names_in(slope_of(self.slope, self.carried.name))

    def through(self, face: int) -> Node:
        """The flow through the face between the points `face` and `face` + 1."""
        # Values at points are interpolated as flows, which keeps the order where f is not linear;
        # states at faces would be means of cells, and of second order.
        if self.limiter == "weno5":
            return self._split(face)
        low, high = (self._states(face, side) for side in (0, 1))
        ends = [self._with(self.flux, it) for it in (low, high)]
        parts = {"f": ends[0], "g": ends[1], "s": self._fastest([low, high], (low, high))}
        parts |= {"l": low(self.carried), "r": high(self.carried)}
        return self._built(formula("(f + g)/2 - s/2*(r - l)", **parts))

    def frozen(self) -> Node:
        """How waves on a uniform state change it, with all speeds kept: for the time step."""
        reader, factor = self.reader, Constant(_SHORTER.get(self.limiter, 2.0))

        def held(leaf: Node) -> Node:
            return reader.hold(reader.held(leaf))

        def beside(leaf: Node, shift: int) -> Node:
            return reader.hold(reader.leaf(leaf, self._along(shift)))

        # All that flows changes by central differences, and what is carried is smoothed by them: of
        # a flux of one field both together are the upwind difference.
        total: Node = Constant(0.0)
        for leaf in dict.fromkeys(self._leaves(self.flux)):
            change = slope_of(self._named(self.flux, leaf), "@leaf")
            slope = self._with(substitute(change, {"@leaf": leaf}), held)
            ends = {"a": beside(leaf, -1), "b": beside(leaf, 1)}
            total = formula("t + s*(b - a)/2", t=total, s=slope, **ends)
        parts = {k: beside(self.carried, shift) for k, shift in zip("abc", (-1, 0, 1), strict=True)}
        speed = self._with(self.slope, held)
        whole = formula("k*(t - abs(s)/2*(a - 2*b + c))", k=factor, t=total, s=speed, **parts)
        return self._built(whole)

    @staticmethod
    def _named(tree: Node, leaf: Node) -> Node:
        """A formula in which a name stands for one of its leaves."""
        if tree == leaf:
            return Variable("@leaf")
        match tree:
            case Operation(name, arguments):
                return Operation(name, tuple(Flow._named(it, leaf) for it in arguments))
            case Comparison(signs, operands):
                return Comparison(signs, tuple(Flow._named(it, leaf) for it in operands))
        return tree

    def _leaves(self, tree: Node) -> Iterator[Node]:
        """The fields of a formula, and its parts with operators."""
        if self.reader.hoist.kind(tree) is not Dependence.VALUE:
            return
        if isinstance(tree, Variable) or _is_operator(tree):
            yield tree
            return
        assert isinstance(tree, Operation | Comparison)
        for part in tree.arguments if isinstance(tree, Operation) else tree.operands:
            yield from self._leaves(part)

    def _along(self, shift: int) -> Offset:
        return tuple(shift if k == self.axis else 0 for k in range(self.ndim))

    def _built(self, tree: Node) -> Node:
        return self.reader.build(tree, (0,) * self.ndim)

    def _point(self, leaf: Node, shift: int) -> Node:
        """A leaf at a point."""
        if (leaf, shift) not in self._known:
            self._known[leaf, shift] = self.reader.leaf(leaf, self._along(shift))
        return self._known[leaf, shift]

    def _states(self, face: int, side: int) -> Callable[[Node], Node]:
        """Leaves on one side of a face, as names."""

        @functools.cache
        def state(leaf: Node) -> Node:
            # A coefficient is continued beyond faces of the domain so that this is its value there.
            if self.reader.hoist.kind(leaf) is not Dependence.VALUE:
                ends = {"a": self._point(leaf, face), "b": self._point(leaf, face + 1)}
                return self.reader.hold(formula("(a + b)/2", **ends))
            here = self._point(leaf, face + side)
            if self.limiter == "none":
                return self.reader.hold(here)
            # Half a cell towards the face, along the slope that both neighbours allow.
            below, above = (self._point(leaf, face + side + k) for k in (-1, 1))
            rises = {"a": formula("u - b", u=here, b=below), "b": formula("a - u", u=here, a=above)}
            slope = formula(SLOPES[self.limiter], **rises)
            sign = Constant(0.5 if side == 0 else -0.5)
            return self.reader.hold(formula("u + k*s", u=here, k=sign, s=slope))

        return state

    def _with(self, tree: Node, value: Callable[[Node], Node]) -> Node:
        """A formula with something put in for its fields, coefficients and parts with operators."""
        kind = self.reader.hoist.kind(tree)
        if kind is Dependence.SCALAR:
            return tree
        # A condition is asked at the place, not at both ends of a mean.
        if isinstance(tree, Comparison):
            return Comparison(tree.signs, tuple(self._with(it, value) for it in tree.operands))
        logical = isinstance(tree, Operation) and tree.name in ("and", "or", "not", "where")
        if isinstance(tree, Variable) or _is_operator(tree):
            return value(tree)
        if kind is Dependence.PLACE and not logical:
            return value(tree)
        assert isinstance(tree, Operation)
        return Operation(tree.name, tuple(self._with(it, value) for it in tree.arguments))

    def _fastest(
        self, states: Sequence[Callable[[Node], Node]], ends: Sequence[Callable[[Node], Node]]
    ) -> Node:
        """The largest speed at some states, and between two of them, of which it is a bound: what a
        parabola through three neighbouring speeds exceeds them by is at most an eighth of their
        second difference.
        """
        kind = self.reader.hoist.kind(self.slope)
        if kind is Dependence.SCALAR:
            return Operation("abs", (self.slope,))

        # States at the two points are seen in any case; where df/du bends, as that of
        # Buckley-Leverett, waves between them are faster than both.
        speeds = dict.fromkeys(self._with(self.slope, it) for it in states)
        fastest = [*(Operation("abs", (it,)) for it in speeds)]
        if self._bends:
            along = [ends[0], *(self._mixed(ends, share) for share in _BETWEEN), ends[1]]
            row = [self._name(self._with(self.slope, it)) for it in along]
            fastest += [Operation("abs", (it,)) for it in row]
            rises = [
                formula("abs(a - 2*b + c)", a=a, b=b, c=c)
                for a, b, c in zip(row, row[1:], row[2:], strict=False)
            ]
            more = Operation("max", tuple(rises))
            return self._name(formula("s + m/8", s=Operation("max", tuple(fastest)), m=more))
        return self._name(fastest[0] if len(fastest) == 1 else Operation("max", tuple(fastest)))

    def _name(self, tree: Node) -> Variable:
        """A name for a formula of names."""
        return self.reader.hold(self._built(tree))

    def _mixed(
        self, ends: Sequence[Callable[[Node], Node]], share: float
    ) -> Callable[[Node], Node]:
        """Leaves between two states, as names."""

        @functools.cache
        def state(leaf: Node) -> Node:
            parts = {"a": ends[0](leaf), "b": ends[1](leaf)}
            return self._name(formula("a + k*(b - a)", k=Constant(share), **parts))

        return state

    def _split(self, face: int) -> Node:
        """The flow by weno5, of the values at points: from below of f + a u, from above of the
        rest.
        """
        shifts = [face + k for k in range(-2, 4)]
        states = [self._at(shift) for shift in shifts]
        flows = [self._built(self._with(self.flux, it)) for it in states]
        # A little more, or what is left of f is flat everywhere that all waves run one way.
        parts_of = {"k": Constant(_MARGIN), "s": self._fastest(states, states[2:4])}
        fastest = self._built(formula("k*s", **parts_of))
        # From below the points in their order, from above those behind the face mirrored.
        carried = [self._point(self.carried, shift) for shift in shifts]

        parts: list[Node] = []
        for sign, order in (("+", (0, 1, 2, 3, 4)), ("-", (5, 4, 3, 2, 1))):
            split = [
                formula(f"(f {sign} s*u)/2", f=flows[k], s=fastest, u=carried[k]) for k in order
            ]
            parts.append(_interpolated(dict(zip("abcde", split, strict=True))))
        return Operation("add", (parts[0], parts[1]))

    def _at(self, shift: int) -> Callable[[Node], Node]:
        """Leaves at a point, as names."""

        @functools.cache
        def state(leaf: Node) -> Node:
            return self.reader.hold(self._point(leaf, shift))

        return state


def flow_of(node: Operation, axis: int, reader: Reader) -> Flow | None:
    """The flux of an operator along an axis; None if nothing flows there.

    Raises:
        ConfigError: it carries no field.
    """
    ndim = reader.ndim
    flux, carried = node.arguments[ndim - 1 - axis], node.arguments[ndim]
    if not isinstance(carried, Variable) or not reader.is_field(carried.name):
        msg = "model: the last field of a flux is the one that it carries, as in flux(v*c, c)"
        raise ConfigError(msg)
    # One that is 0 has no waves to be followed either.
    if flux == Constant(0.0):
        return None
    speed = node.arguments[ndim + 1] if len(node.arguments) > ndim + 1 else None
    return Flow(flux, carried, speed, limiter_of(node.name), axis, ndim, reader)


def _interpolated(points: Mapping[str, Node]) -> Node:
    """The value at the face behind the third of five points."""
    rough = [formula(text, **points) for _, text, _ in _PARABOLAS]
    # What the roughness is compared with; neither 0/0 where all points are equal, nor a square
    # that float32 cannot hold.
    whole = formula("abs(p - q)", p=rough[0], q=rough[2])
    weights = [
        formula("k*(1 + (t/(r + 1e-8*t + 1e-30))**2)", k=Constant(ideal), t=whole, r=it)
        for it, (*_, ideal) in zip(rough, _PARABOLAS, strict=True)
    ]

    # One division for all three weights: it is the dearest operation.
    total = functools.reduce(lambda a, b: Operation("add", (a, b)), weights)
    above = [
        Operation("multiply", (weight, formula(text, **points)))
        for weight, (text, *_) in zip(weights, _PARABOLAS, strict=True)
    ]
    return Operation(
        "divide", (functools.reduce(lambda a, b: Operation("add", (a, b)), above), total)
    )


def _is_operator(tree: Node) -> bool:
    return isinstance(tree, Operation) and tree.name not in OPERATIONS
