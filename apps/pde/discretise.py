"""Discretises: formulas with differential operators become sums over neighbours, level by level.

An operator of what has no operators itself reads it at the neighbours, as a formula of theirs:
beyond a face, of the ghosts of the fields. An operator of what has operators reads a name that is
computed at all points before, on a level of its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from tetris_sim.apps.pde.faces import (
    Closure,
    Wall,
    stopped,
)
from tetris_sim.apps.pde.fluxes import (
    HELD,
    Space,
    face_sums,
    flow_of,
    is_flux,
    oriented,
    per_spacing,
    with_carried,
)
from tetris_sim.apps.pde.operators import (
    FARTHEST,
    area_weight,
    as_plate,
    face_weight,
    linear,
    mean_at_face,
    order_of,
    rewritten,
    share_at_face,
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
    times,
)
from tetris_sim.apps.time_functions import formula, names_in
from tetris_sim.errors import ConfigError
from tetris_sim.model.equations import as_tap, tap
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.model.stencils.entry import central, extended

_MOST_PARTS = 50_000  # of what a right-hand side becomes; far more than any method can compute
_MOST_LEVELS = 16
_SMALL = 64  # powers up to it are products


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
        closures: by field, how it goes on beyond faces that are more than mirrors.
        walls: by field, the faces through which nothing flows.
    """

    space: Space
    hoist: Hoist
    names: Mapping[str, str]
    values: Mapping[str, float]
    prefix: str = "e"
    drives: Mapping[str, Sequence[tuple[Node | None, str]]] = field(default_factory=dict)
    closures: Mapping[str, Sequence[Closure]] = field(default_factory=dict)
    walls: Mapping[str, Sequence[Wall]] = field(default_factory=dict)
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
        sums = {
            name: stopped(tree, name, self.walls[name], self)
            if self.walls.get(name) and has_operators(tree)
            else self.terms(tree, nowhere)
            for name, tree in whole.items()
        }
        count = max((level for level, _ in self._formulas.values()), default=0)
        levels: list[dict[str, Node]] = [{} for _ in range(count)]
        for name, (level, tree) in self._formulas.items():
            levels[level - 1][name] = tree
        return Discretised(levels, {name: tree for tree, name in self._inner.items()}, sums)

    @property
    def _twice(self) -> set[str]:
        """Fields that have two conditions on a face."""
        every = self.closures.items()
        return {name for name, of in every for it in of if len(it.orders or ()) > 1}

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.space.ndim

    def is_field(self, name: str) -> bool:
        """Whether a name is that of a field."""
        return name in self.names

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
            return self.read(self._inner_name(node), offset)
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
        if node.name in self.hoist.given:
            return tap(self.hoist.coefficient(node), offset)
        if node.name not in self.space.system.axes:
            return self.read(node.name, offset)
        # Beyond a face lies what is mirrored, and a coefficient is.
        return tap(self.hoist.coefficient(node), offset) if any(offset) else node

    def read(self, name: str, offset: Offset, without: tuple[int, ...] = ()) -> Node:
        """A field or an inner name beside the point; within along the axes `without`."""
        # The first face that the offset crosses decides; points beside it see the other faces.
        for closure in self.closures.get(name, ()) if any(offset) else ():
            if closure.wall.axis not in without and closure.wall.beyond(offset):
                return closure.read(name, offset, self, without)
        return self._driven(name, tap(self.names.get(name, name), offset), offset)

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
        if "t" not in names_in(node):
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
        other = rewritten(node, space.ndim, space.advection, space.system, space.uneven)
        if other is not None or (other := as_plate(node, self._twice, self)) is not None:
            return self.terms(other, nowhere)
        name, _, option = node.name.partition("(")
        if is_flux(name):
            return self._flux(node)
        if name == "div_grad":
            return self._div_grad(*node.arguments, harmonic=option == "mean=harmonic)")

        scalar, point = self._point(node.arguments[0])
        if name == "shift":
            return [Term(scalar, point(self._shift(node.arguments[1:])))]
        found = []
        for before, weights in linear(node.name, space.spacing, space.accuracy):
            found += self._sum(times(scalar, before), weights, point)
        return found

    def _shift(self, given: Sequence[Node]) -> Offset:
        """How many points away `shift` reads, array order."""
        found = []
        for node in given:
            fixed = self.hoist.kind(node) is Dependence.SCALAR and "t" not in names_in(node)
            value = scalar_value(node, self.values) if fixed else 0.5
            if not value.is_integer() or abs(value) > FARTHEST:
                msg = (
                    "model: shift(u, dx, dy) reads u some whole points away, which are numbers of "
                    f"at most {FARTHEST}"
                )
                raise ConfigError(msg)
            found.append(int(value))
        return tuple(reversed(found))

    def _flux(self, node: Operation) -> list[Term]:
        """Differences of what flows through faces, by any flux."""
        found = []
        for axis in range(self.space.ndim - 1, -1, -1):
            if (flow := flow_of(node, axis, self)) is None:
                continue
            if self.space.frozen:
                change = self.weighed(area_weight, axis, 0, flow.frozen())
            else:
                sides = [
                    self.weighed(area_weight, axis, face, flow.through(face)) for face in (0, -1)
                ]
                change = Operation("subtract", (sides[0], sides[1]))
            found.append(Term(per_spacing((self._letter(axis),)), change))
        return found

    def _sum(
        self, scalar: Node, weights: Mapping[Offset, Weight], point: Callable[[Offset], Node]
    ) -> list[Term]:
        made = chain(weights, point)
        return [] if made is None else [Term(times(Constant(made[0]), scalar), made[1])]

    def _point(self, node: Node) -> tuple[Node, Callable[[Offset], Node]]:
        """Return the operand of an operator: a scalar factor, and a function of the offset."""
        if self.hoist.kind(node) is Dependence.SCALAR:
            return Constant(0.0), lambda offset: ONE  # derivatives of what is the same everywhere
        if has_operators(node):
            name = self._inner_name(node)
            return ONE, lambda offset: self.read(name, offset)
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
            # It has faces of its own where those of its fields say enough.
            if beyond := inner_closures(node, self.closures, self.space.accuracy):
                self.closures = {**self.closures, self._inner[node]: beyond}
            self._formulas[self._inner[node]] = level, tree
        return self._inner[node]

    def _div_grad(self, k: Node, u: Node, *, harmonic: bool = False) -> list[Term]:
        """Differences of what flows through faces: what one point gains the other loses.

        The arithmetic mean of k at a face is of the order of the operators where k is smooth. Where
        it jumps on the face, the harmonic one is that of two half cells in series, and of second
        order; the arithmetic one then is wrong at the jump, and of first order.
        """
        scalar, point = self._point(u)
        if self.hoist.kind(k) is Dependence.SCALAR and (
            self.space.system.is_curved or self.space.uneven
        ):
            even = Operation("laplace", (u,))
            return [term.scaled(k) for term in self.terms(even, (0,) * self.space.ndim)]
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
            """The flow towards the point through the face above `face`, without factors."""
            if harmonic:
                sides = [_along(axis, face + j, self.space.ndim) for j in (0, 1)]
                low, high = map(point, sides if sign > 0 else sides[::-1])
                ends = [*map(conductivity, sides)]
                series = self._between(axis, face, ends, harmonic=True)
                flow = Operation("multiply", (series, Operation("subtract", (high, low))))
                return self.weighed(face_weight, axis, face, flow)
            parts = [
                chain({_along(axis, face + j, self.space.ndim): w for j, w in it.items()}, read)
                for it, read in ((mean, conductivity), (_scaled(slope, sign), point))
            ]
            assert parts[0] is not None
            assert parts[1] is not None

            # Polynomials of ghosts may leave the bounds of k; without closures nothing changes.
            between = parts[0][1]
            if self._letter(axis) in self.space.uneven:
                ends = [conductivity(_along(axis, face + j, self.space.ndim)) for j in (0, 1)]
                between = self._between(axis, face, ends, harmonic=False)
            if len(mean) > 2 and names_in(k) & self.closures.keys():
                ends = [conductivity(_along(axis, face + j, self.space.ndim)) for j in (0, 1)]
                between = bounded_mean(between, ends[0], ends[1], 0.5 / parts[0][0])
            flow = Operation("multiply", (between, parts[1][1]))
            return self.weighed(face_weight, axis, face, flow)

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

    def _letter(self, axis: int) -> str:
        return AXIS_NAMES[self.space.ndim - 1 - axis]

    def _between(self, axis: int, face: int, ends: Sequence[Node], *, harmonic: bool) -> Node:
        """Twice the mean of both sides of a face."""
        share = share_at_face(self._letter(axis), face, self.space.uneven)
        if share is not None:
            share = tap(self.hoist.coefficient(share), (0,) * self.space.ndim)
        return mean_at_face((ends[0], ends[1]), share, harmonic=harmonic, scale=2.0)

    def weighed(self, weigh: Callable[..., Node], axis: int, face: int, flow: Node) -> Node:
        """Weigh a flow through the face above (0) or below (-1) a point by the area of the face."""
        space, side = self.space, 1 if face == 0 else -1
        name = space.system.axes[space.ndim - 1 - axis]
        weight = weigh(space.system, name, side, self._letter(axis), space.uneven)
        if weight == ONE:
            return flow
        factor = tap(self.hoist.coefficient(weight), (0,) * self.space.ndim)
        return Operation("multiply", (factor, flow))


def _scaled(weights: Mapping[int, Fraction], factor: int) -> dict[int, Fraction]:
    return {place: factor * weight for place, weight in weights.items()}


def _along(axis: int, shift: int, ndim: int) -> Offset:
    return tuple(shift if k == axis else 0 for k in range(ndim))


def bounded_mean(mean: Node, a: Node, b: Node, weight: float) -> Node:
    """The mean of four points, or that of both sides of a face where the two differ by more than
    half: beside an edge in the data a polynomial may leave all bounds, and k its sign.
    """
    near = formula("k*(a + b)", k=Constant(weight), a=a, b=b)
    return formula("where(abs(m - n) <= 0.5*abs(n), m, n)", m=mean, n=near)


def inner_closures(
    tree: Node, closures: Mapping[str, Sequence[Closure]], accuracy: int
) -> tuple[Closure, ...]:
    """How a part of a formula that an operator reads goes on beyond faces that give derivatives.

    Of the conditions of a field, those remain that are derivatives of the part: where a beam is
    free, d2u/dx2 and its slope are 0; where it is clamped, nothing is known of them.
    """
    # Derivatives of the field of the order of the part and more are derivatives of the part.
    found: dict[tuple[int, int], Closure] = {}
    for name in sorted(names_in(tree) & closures.keys()):
        for it in closures[name]:
            if it.orders is None:
                continue
            order = order_of(tree, name)
            kept = [k for k, given in enumerate(it.orders) if given >= order]
            if not kept and len(it.orders) > 1:
                msg = (
                    f"boundaries: an operator reads a formula with operators of {name}, of which "
                    "nothing is known on its clamped face; write it as biharmonic(...)"
                )
                raise ConfigError(msg)

            if any(it.given[k] is not None for k in kept):
                msg = (
                    f"boundaries: an operator reads a formula with operators of {name}, of which a "
                    "face gives derivatives that are not 0; write it as one operator"
                )
                raise ConfigError(msg)
            # Of second order one point is enough, and has the accuracy of a mirror.
            points = accuracy if accuracy > 2 or not kept else 1
            rows = tuple({it.orders[k] - order: Fraction(1)} for k in kept)
            closure = replace(it, rows=rows, given=(None,) * len(rows), points=points)
            found[it.wall.axis, it.wall.side] = closure
    return tuple(found.values())


# Ghosts that follow from several points make the largest eigenvalue of an operator larger.


def stiffening(closures: Mapping[str, Sequence[Closure]], accuracy: Literal[2, 4]) -> float:
    """By how much the largest eigenvalue of an operator exceeds that without faces."""
    kinds = {
        (tuple(tuple(sorted(row.items())) for row in it.rows), it.points)
        for every in closures.values()
        for it in every
        if it.mirror is None
    }
    return max((_stiffer(*kind, accuracy) for kind in kinds), default=1.0)


@functools.cache
def _stiffer(
    rows: tuple[tuple[tuple[int, Fraction], ...], ...], points: int, accuracy: Literal[2, 4]
) -> float:
    """The same for one kind of face, by the operator of the order that its conditions are for."""
    second = central(2, accuracy)
    reach = max(abs(shift) for (shift,) in second)
    weights = np.array([float(second[(k,)]) for k in range(-reach, reach + 1)])
    if len(rows) == 2:
        weights = np.convolve(weights, weights)
    radius, n = len(weights) // 2, 24

    # A line of points is enough, with both ends alike: the eigenvectors that matter live at one.
    matrix = np.zeros((n, n))
    for i in range(n):
        for shift, weight in zip(range(-radius, radius + 1), weights, strict=True):
            k = i + shift
            if 0 <= k < n:
                matrix[i, k] += weight
                continue
            ghost = -k if k < 0 else k - n + 1
            _, beside = extended([dict(row) for row in rows], points, Fraction(1 - 2 * ghost, 2))
            for number, share in beside.items():
                matrix[i, number if k < 0 else n - 1 - number] += weight * share
    waves = np.abs(np.fft.fft(np.pad(weights, (0, 64)))).max()
    return max(1.0, float(np.abs(np.linalg.eigvals(matrix)).max() / waves))
