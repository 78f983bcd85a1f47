"""Discretises: formulas with differential operators become sums over neighbours, level by level.

An operator of what has no operators itself reads it at the neighbours, as a formula of theirs:
beyond a face, of the ghosts of the fields. An operator of what has operators reads a name that is
computed at all points before, on a level of its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from tetris_sim.apps.pde.fluxes import (
    HELD,
    LIMITERS,
    Flow,
    flows_of,
    is_flux,
    oriented,
    with_carried,
)
from tetris_sim.apps.pde.simplify import (
    BUILT,
    ONE,
    Dependence,
    Hoist,
    Offset,
    Term,
    Weight,
    chain,
    combine,
    factors_of,
    has_operators,
    multiplied,
    over,
    scalar_value,
    spacing_name,
    times,
)
from tetris_sim.apps.time_functions import formula
from tetris_sim.errors import ConfigError
from tetris_sim.model.equations import as_tap, tap
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Operators,
    Variable,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.model.stencils.catalogue import catalogue, named_stencil
from tetris_sim.model.stencils.entry import along, central, compose
from tetris_sim.model.stencils.entry import scaled as times_number

# The differential operators: which neighbours with which weights, and what is made of others.
#
# Linear operators are weighted sums of neighbours, with weights in exact fractions and a power of
# the spacings before them (`linear`). `advect` and `grad_squared` are written with those
# (`rewritten`).

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
        **{f"div_grad(mean={it})": (2, 2) for it in ("arithmetic", "harmonic")},
        "advect": (ndim + 1, ndim + 1),
        **dict.fromkeys(("flux", "div"), (ndim, ndim + 2)),
        **{f"{k}(limiter={it})": (ndim, ndim + 2) for k in ("flux", "div") for it in LIMITERS},
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


_MOST_PARTS = 50_000  # of what a right-hand side becomes; far more than any method can compute
_MOST_LEVELS = 16
# Twice the harmonic mean over 2 of what two cells let through; nothing, if one of them does.
_IN_SERIES = "where(a*b > 0, 4*a*b/(a + b), 0)"
_SMALL = 64  # powers up to it are products


@dataclass(frozen=True)
class Space:
    """On what grid, and how it is differentiated.

    Attributes:
        spacing: array order [m].
        accuracy: order of the operators.
        advection: how `advect` looks upstream.
        frozen: whether fluxes are those of waves on a uniform state, for the time step.
    """

    spacing: tuple[float, ...]
    accuracy: Accuracy = 2
    advection: Advection = "upwind"
    frozen: bool = False

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.spacing)


@dataclass(frozen=True, eq=False)
class Discretised:
    """Right-hand sides at one instant.

    Attributes:
        levels: what is computed before, by name; each reads what earlier ones gave.
        inner: what each of these names stands for, as it was written.
        sums: by field.
    """

    levels: list[dict[str, Node]]
    inner: dict[str, Node]
    sums: dict[str, list[Term]]


@dataclass
class Discretiser:
    """Makes sums of formulas.

    Attributes:
        space: the grid.
        hoist: takes scalars and coefficients.
        names: by field: the name that holds what is read.
        values: of constants, for exponents.
        prefix: of names of levels.
        drives: by field, (what a face is given now, the coefficient of its ghosts) of each face
            that changes; None where it is not known.
    """

    space: Space
    hoist: Hoist
    names: Mapping[str, str]
    values: Mapping[str, float]
    prefix: str = "e"
    drives: Mapping[str, Sequence[tuple[Node | None, str]]] = field(default_factory=dict)
    _inner: dict[Node, str] = field(default_factory=dict)
    _formulas: dict[str, tuple[int, Node]] = field(default_factory=dict)
    _parts: int = 0
    _built: dict[str, Node] = field(default_factory=dict)

    def run(self, formulas: Mapping[str, Node]) -> Discretised:
        """The right-hand sides of some fields.

        Raises:
            ConfigError: they are too large.
        """
        nowhere = (0,) * self.space.ndim
        whole = {it: self._carrying(tree, it) for it, tree in formulas.items()}
        sums = {name: self.terms(tree, nowhere) for name, tree in whole.items()}
        count = max((level for level, _ in self._formulas.values()), default=0)
        levels: list[dict[str, Node]] = [{} for _ in range(count)]
        for name, (level, tree) in self._formulas.items():
            levels[level - 1][name] = tree
        return Discretised(levels, {name: tree for tree, name in self._inner.items()}, sums)

    def _carrying(self, tree: Node, name: str) -> Node:
        """The right-hand side of a field with fluxes that say what they carry and where to."""
        if not any(isinstance(it, Operation) and is_flux(it.name) for it in walk(tree)):
            return tree
        return oriented(with_carried(tree, name, self.space.ndim), self.hoist, self.space.ndim)

    def terms(self, node: Node, offset: Offset) -> list[Term]:
        """A formula as a sum, at a point beside."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            msg = "the equations become too large; write them with fewer operators in operators"
            raise ConfigError(msg)
        kind = self.hoist.kind(node)
        if kind is Dependence.SCALAR:
            return [Term(node)]
        if isinstance(node, Variable):
            return [Term(ONE, self._read(node, offset))]
        if kind is Dependence.PLACE:
            return [Term(ONE, tap(self.hoist.coefficient(node), offset))]

        match node:
            case Operation("add", (a, b)):
                return [*self.terms(a, offset), *self.terms(b, offset)]
            case Operation("subtract", (a, b)):
                return [*self.terms(a, offset), *self._negative(b, offset)]
            case Operation("positive", (a,)):
                return self.terms(a, offset)
            case Operation("negative", (a,)):
                return self._negative(a, offset)
            case Operation("multiply" | "divide"):
                return self._product(node, offset)
            case Operation("power", (a, b)) if self.hoist.kind(b) is Dependence.SCALAR:
                return [Term(ONE, Operation("power", (self.build(a, offset), self._exponent(b))))]
            case Operation(name, arguments) if name in OPERATIONS:
                return [
                    Term(ONE, Operation(name, tuple(self.build(it, offset) for it in arguments)))
                ]
            case Comparison(signs, operands):
                return [
                    Term(ONE, Comparison(signs, tuple(self.build(it, offset) for it in operands)))
                ]
        assert isinstance(node, Operation)
        return self._operator(node)

    def build(self, node: Node, offset: Offset) -> Node:
        """A formula as a tree of what is read, at a point beside."""
        return combine(self.terms(node, offset), self.hoist)

    def leaf(self, node: Node, offset: Offset) -> Node:
        """A field, a coefficient or a part with operators, at a point beside."""
        if has_operators(node):
            return tap(self._inner_name(node), offset)
        if isinstance(node, Variable):
            return self._read(node, offset)
        return tap(self.hoist.coefficient(node), offset)

    def held(self, node: Node) -> Node:
        """The same at the point itself, as a number of which no derivative is taken."""
        read = self.leaf(node, (0,) * self.space.ndim)
        if self.hoist.kind(node) is not Dependence.VALUE:
            return read
        assert isinstance(read, Variable)
        name, offset = as_tap(read.name)  # type: ignore[misc]
        return tap(name + HELD, offset)

    def hold(self, node: Node) -> Variable:
        """A name for something that is built already, which formulas may have."""
        name = f"{BUILT}{len(self._built)}"
        self._built[name] = node
        return Variable(name)

    def _read(self, node: Variable, offset: Offset) -> Node:
        if node.name in self._built:
            return self._built[node.name]
        if node.name not in AXIS_NAMES:
            return self._driven(node.name, tap(self.names[node.name], offset), offset)
        # Beyond a face lies what is mirrored, and a coefficient is.
        return tap(self.hoist.coefficient(node), offset) if any(offset) else node

    def _driven(self, name: str, read: Node, offset: Offset) -> Node:
        """A value beside the point, with what faces that change with time add to it."""
        for course, coefficient in self.drives.get(name, ()) if any(offset) else ():
            if course is None:
                msg = f"boundaries: {name} is read beside a face whose value changes with time"
                raise ConfigError(msg)
            part = multiplied(self.hoist.scalar(course), tap(coefficient, offset))
            read = Operation("add", (part, read))
        return read

    def _negative(self, node: Node, offset: Offset) -> list[Term]:
        return [term.scaled(Constant(-1.0)) for term in self.terms(node, offset)]

    def _exponent(self, node: Node) -> Node:
        """An exponent; small whole numbers and a half are written out, as products and roots."""
        if "t" not in {part.name for part in walk(node) if isinstance(part, Variable)}:
            value = scalar_value(node, self.values)
            if value == 0.5 or (abs(value) <= _SMALL and value.is_integer()):
                return Constant(value)
        return self.hoist.scalar(node)

    def _product(self, node: Node, offset: Offset) -> list[Term]:
        """Scalars go before everything, parts of coordinates become one coefficient, and what is
        left is multiplied, before it is divided.
        """
        scalar: Node = ONE
        places: list[tuple[Node, bool]] = []
        above: list[list[Term]] = []
        below: list[Node] = []
        for factor, divides in factors_of(node):
            kind = self.hoist.kind(factor)
            if kind is Dependence.SCALAR:
                scalar = over(scalar, factor) if divides else times(scalar, factor)
            elif kind is Dependence.PLACE:
                places.append((factor, divides))
            elif divides:
                below.append(self.build(factor, offset))
            else:
                above.append(self.terms(factor, offset))

        # A scalar before every part of the only sum is multiplied by the one before the sum.
        only = above[0] if len(above) == 1 and not places and not below else []
        if only and all(term.scalar != ONE for term in only):
            return [term.scaled(scalar) for term in only]

        bodies = [self._place(places, offset)] if places else []
        for terms in above:
            if len(terms) == 1:
                scalar = times(scalar, terms[0].scalar)
                bodies += [terms[0].body] if terms[0].body is not None else []
            elif terms:
                bodies.append(combine(terms, self.hoist))
            else:
                return []
        body: Node | None = None
        for part in bodies:
            body = part if body is None else multiplied(body, part)
        for part in below:
            body = Operation("divide", (ONE if body is None else body, part))
        return [Term(scalar, body)]

    def _place(self, places: Sequence[tuple[Node, bool]], offset: Offset) -> Node:
        tree: Node = ONE
        for factor, divides in places:
            tree = over(tree, factor) if divides else times(tree, factor)
        if isinstance(tree, Variable):
            return self._read(tree, offset)
        return tap(self.hoist.coefficient(tree), offset)

    def _operator(self, node: Operation) -> list[Term]:
        """An operator, around the point itself: what an operator reads beside it is an inner
        name.
        """
        space, nowhere = self.space, (0,) * self.space.ndim
        if (other := rewritten(node, space.ndim, space.advection)) is not None:
            return self.terms(other, nowhere)
        name, _, option = node.name.partition("(")
        if is_flux(name):
            return self._flux(node)
        if name == "div_grad":
            return self._div_grad(*node.arguments, harmonic=option == "mean=harmonic)")

        scalar, point = self._point(node.arguments[0])
        found = []
        for before, weights in linear(node.name, space.spacing, space.accuracy):
            found += self._sum(times(scalar, before), weights, point)
        return found

    def _flux(self, node: Operation) -> list[Term]:
        """Differences of what flows through faces, by any flux."""
        ndim, limiter = flows_of(node.name, self.space.ndim)
        *fluxes, carried = node.arguments[: ndim + 1]
        if not isinstance(carried, Variable) or carried.name not in self.names:
            told = f"flux(..., {carried.name})" if isinstance(carried, Variable) else "it"
            msg = f"model: the last field of a flux is the one that it carries, but {told} has none"
            raise ConfigError(msg)

        # Flows are differences along each axis; one that is 0 has no waves to be followed either.
        speed = node.arguments[ndim + 1] if len(node.arguments) > ndim + 1 else None
        found = []
        for axis, formula_of_axis in zip(range(ndim - 1, -1, -1), fluxes, strict=True):
            if formula_of_axis == Constant(0.0):
                continue
            flow = Flow(formula_of_axis, carried, speed, limiter, axis, ndim, self)
            change = (
                flow.frozen()
                if self.space.frozen
                else Operation("subtract", (flow.through(0), flow.through(-1)))
            )
            found.append(Term(per_spacing((AXIS_NAMES[ndim - 1 - axis],)), change))
        return found

    def _sum(
        self, scalar: Node, weights: Mapping[Offset, Weight], point: Callable[[Offset], Node]
    ) -> list[Term]:
        made = chain(weights, point)
        return [] if made is None else [Term(times(Constant(made[0]), scalar), made[1])]

    def _point(self, node: Node) -> tuple[Node, Callable[[Offset], Node]]:
        """What an operator reads: a scalar before it, and a function of the offset."""
        if self.hoist.kind(node) is Dependence.SCALAR:
            return Constant(0.0), lambda offset: ONE  # derivatives of what is the same everywhere
        if has_operators(node):
            name = self._inner_name(node)
            return ONE, lambda offset: tap(name, offset)
        terms = self.terms(node, (0,) * self.space.ndim)
        if len(terms) != 1 or terms[0].body is None:
            return ONE, lambda offset: self.build(node, offset)

        def alone(offset: Offset) -> Node:
            body = self.terms(node, offset)[0].body
            assert body is not None
            return body

        return terms[0].scalar, alone

    def _inner_name(self, node: Node) -> str:
        if node not in self._inner:
            tree = self.build(node, (0,) * self.space.ndim)
            read = {
                it[0]
                for part in walk(tree)
                if isinstance(part, Variable) and (it := as_tap(part.name))
            }
            level = 1 + max(
                (self._formulas[name][0] for name in read & {*self._formulas}), default=0
            )
            if level > _MOST_LEVELS:
                msg = f"operators are nested more than {_MOST_LEVELS} deep in one another"
                raise ConfigError(msg)

            self._inner[node] = f"{self.prefix}{len(self._inner) + 1}"
            self._formulas[self._inner[node]] = level, tree
        return self._inner[node]

    def _div_grad(self, k: Node, u: Node, *, harmonic: bool = False) -> list[Term]:
        """Differences of what flows through faces: what one point gains the other loses.

        The arithmetic mean of k at a face is of the order of the operators where k is smooth. Where
        it jumps on the face, the harmonic one is that of two half cells in series, and of second
        order; the arithmetic one then is wrong at the jump, and of first order.
        """
        scalar, point = self._point(u)
        if self.hoist.kind(k) is Dependence.SCALAR:
            sums = linear("laplace", self.space.spacing, self.space.accuracy)
            return [
                term
                for before, weights in sums
                for term in self._sum(times(k, scalar, before), weights, point)
            ]
        factor, conductivity = self._point(k)
        slope, mean = face_sums(2 if harmonic else self.space.accuracy)

        def through(axis: int, face: int, sign: int) -> Node:
            """What flows towards the point, through the face between the points `face` and `face` +
            1, without factors.
            """
            if harmonic:
                sides = [_along(axis, face + j, self.space.ndim) for j in (0, 1)]
                low, high = map(point, sides if sign > 0 else sides[::-1])
                series = formula(_IN_SERIES, a=conductivity(sides[0]), b=conductivity(sides[1]))
                return Operation("multiply", (series, Operation("subtract", (high, low))))
            parts = [
                chain({_along(axis, face + j, self.space.ndim): w for j, w in it.items()}, read)
                for it, read in ((mean, conductivity), (_scaled(slope, sign), point))
            ]
            return Operation("multiply", (parts[0][1], parts[1][1]))  # type: ignore[index]

        terms: list[Term] = []
        groups: dict[float, list[tuple[str, int]]] = {}
        for number, axis in enumerate(AXIS_NAMES[: self.space.ndim]):
            place = self.space.ndim - 1 - number
            groups.setdefault(self.space.spacing[place], []).append((axis, place))
        before = [chain({(j,): w for j, w in it.items()}, lambda _: ONE) for it in (mean, slope)]
        whole = Constant(before[0][0] * before[1][0])  # type: ignore[index]
        for axes in groups.values():
            both = times(whole, factor, scalar, per_spacing((axes[0][0],) * 2))
            flows: dict[Offset, Weight] = {
                (place, j - 1, 1 if weight > 0 else -1): abs(weight)
                for (_, place), (j, weight) in itertools.product(axes, slope.items())
            }
            terms += self._sum(both, flows, lambda key: through(*key))
        return terms


def _scaled(weights: Mapping[int, Fraction], factor: int) -> dict[int, Fraction]:
    return {place: factor * weight for place, weight in weights.items()}


def _along(axis: int, shift: int, ndim: int) -> Offset:
    return tuple(shift if k == axis else 0 for k in range(ndim))
