"""Hoist the parts of a formula that are the same at every point, and those that never change.

A scalar is a part of a formula without fields and coordinates: it becomes one parameter, a number
of the time step, however long it is. A part of coordinates and constants becomes a coefficient, an
array that is computed once. So changing a constant changes arguments of what was compiled.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial import positions
from tetris_sim.apps.time_functions import TIME, formula, names_in, substitute, switches
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    evaluate,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.slab import Ranges

ONE = Constant(1.0)
DT = Variable("dt")
NOISY = "@noise"  # before names of noise
BUILT = "#"  # before names of what is built already
Arrays = Mapping[str, Callable[[Ranges], Numbers]]  # by name, of a box of the grid
_NO_ARRAYS: Arrays = {}


def spacing_name(axis: str) -> str:
    """The variable that stands for the spacing along an axis in a scalar.

    >>> spacing_name("x")
    '@x'
    """
    return f"@{axis}"


class Dependence(enum.Enum):
    """Dependence of a part of a formula on fields, place and time."""

    SCALAR = "nothing but constants and time"
    PLACE = "coordinates and constants"
    MOVING = "coordinates and time"
    VALUE = "fields"


def has_operators(tree: Node) -> bool:
    """Whether something in a formula looks beside its point."""
    return any(isinstance(part, Operation) and part.name not in OPERATIONS for part in walk(tree))


def times(*factors: Node) -> Node:
    """The product of scalars; numbers among them are multiplied at once."""
    number, others = 1.0, []
    for factor in factors:
        if isinstance(factor, Constant):
            number *= factor.value
        else:
            others.append(factor)

    product: Node = Constant(number)
    for factor in others:
        product = factor if product == ONE else Operation("multiply", (product, factor))
    return product


def over(divided: Node, by: Node) -> Node:
    """The quotient of scalars."""
    return divided if by == ONE else Operation("divide", (divided, by))


def factors_of(node: Node, *, divides: bool = False) -> list[tuple[Node, bool]]:
    """Return the factors of a product, each with whether it divides; signs are factors of -1."""
    match node:
        case Operation("multiply", (a, b)):
            return [*factors_of(a, divides=divides), *factors_of(b, divides=divides)]
        case Operation("divide", (a, b)):
            return [*factors_of(a, divides=divides), *factors_of(b, divides=not divides)]
        case Operation("negative", (a,)):
            return [(Constant(-1.0), False), *factors_of(a, divides=divides)]
    return [(node, divides)]


class Hoist:
    """Collects parameters and coefficients.

    Args:
        fields: names of the state.
        taken: names that may not be given to anything else.
        axes: names of the coordinates.
        arrays: constants that are a number at every point, by name.
    """

    def __init__(
        self,
        fields: Collection[str],
        taken: Collection[str],
        axes: Sequence[str] = AXIS_NAMES,
        arrays: Arrays = _NO_ARRAYS,
    ) -> None:
        self._fields, self._axes = frozenset(fields), frozenset((*axes, *arrays))
        self._taken = {*fields, *taken, *AXIS_NAMES, *axes, *arrays, TIME, "dt"}
        self.given = arrays
        self.scalars: dict[Node, str] = {}
        self.coefficients: dict[Node, str] = {}
        self._kinds: dict[int, tuple[Node, Dependence]] = {}  # by identity, of trees that are kept

    def kind(self, tree: Node) -> Dependence:
        """Return the dependence of a formula."""
        if id(tree) not in self._kinds:
            self._kinds[id(tree)] = tree, self._find_kind(tree)
        return self._kinds[id(tree)][1]

    def _find_kind(self, tree: Node) -> Dependence:
        names = names_in(tree)
        built = any(name.startswith(BUILT) for name in names)
        # Names that begin so stand for numbers that are others at every point and step.
        built = built or any(name.startswith(NOISY) for name in names)
        if names & self._fields or built or has_operators(tree):
            return Dependence.VALUE
        if not names & self._axes:
            return Dependence.SCALAR
        return Dependence.MOVING if TIME in names else Dependence.PLACE

    def scalar(self, tree: Node) -> Node:
        """Return the node of a scalar in a program: a literal number or a parameter."""
        if not names_in(tree):
            with np.errstate(all="ignore"):
                return Constant(float(evaluate(tree, {})))
        if tree not in self.scalars:
            bare = isinstance(tree, Variable) and not tree.name.startswith("@")
            self.scalars[tree] = tree.name if bare else self._fresh("p")  # type: ignore[union-attr]
        return Variable(self.scalars[tree])

    def coefficient(self, tree: Node) -> str:
        """The name of the array of what a formula of coordinates gives."""
        if tree not in self.coefficients:
            self.coefficients[tree] = self._fresh("c")
        return self.coefficients[tree]

    def _fresh(self, letter: str) -> str:
        number = 1
        while (name := f"{letter}{number}") in self._taken:
            number += 1
        self._taken.add(name)
        return name

    def parameters(
        self, values: Mapping[str, float], changing: Collection[str] = (TIME,)
    ) -> tuple[Parameter, ...]:
        """The scalars as numbers by time step.

        Args:
            values: of constants, "dt" and spacings.
            changing: of what a number is made that may be another one at each step.
        """
        found = []
        for tree, name in self.scalars.items():
            if names_in(tree).intersection(changing):
                known = substitute(tree, {it: Constant(float(x)) for it, x in values.items()})
                times = switches(known) if TIME in names_in(tree) else np.empty(0)
                # What begins at time 0 is as it is then, as is the first kick of leapfrog.
                later = times[times > 0]
                knots = later if len(later) else None
                found.append(Parameter(name, _course(tree, values), knots, only_across=True))
            else:
                found.append(Parameter(name, np.array([scalar_value(tree, values)])))
        return tuple(found)

    def numbers(self, values: Mapping[str, float], time: float) -> Numbers:
        """The scalars at some time, in the order of `parameters`."""
        return np.array([scalar_value(tree, values, time) for tree in self.scalars])

    def arrays(
        self, values: Mapping[str, float], grid: Grid
    ) -> dict[str, Callable[[Ranges], Numbers]]:
        """The coefficients as functions of a box of the grid."""
        return {
            name: _field(tree, values, grid, self.given) for tree, name in self.coefficients.items()
        }

    def beyond(
        self,
        values: Mapping[str, float],
        grid: Grid,
        periodic: tuple[bool, ...],
        widths: Mapping[str, Sequence[int]],
    ) -> dict[str, Callable[[Ranges], Numbers]]:
        """The coefficients that are not mirrored beyond faces, as functions of any box.

        Args:
            values: of constants and spacings.
            grid: the points.
            periodic: per axis.
            widths: by name, how far beside its point a coefficient is read, per axis.
        """
        every = {
            name: Beyond(tree, values, grid, periodic, self.given)
            for tree, name in self.coefficients.items()
            if any(widths.get(name, ()))
        }
        return {name: it for name, it in every.items() if it.differs(widths[name])}


def scalar_value(tree: Node, values: Mapping[str, float], time: float = 0.0) -> float:
    """A scalar at some time, as a number."""
    with np.errstate(all="ignore"):
        given = {name: np.float64(value) for name, value in {**values, TIME: time}.items()}
        return float(evaluate(tree, given))  # type: ignore[arg-type]


def _course(tree: Node, values: Mapping[str, float]) -> Callable[[Numbers], Numbers]:
    def at(moments: Numbers) -> Numbers:
        given = {name: np.asarray(value) for name, value in values.items()} | {TIME: moments}
        with np.errstate(all="ignore"):
            found = np.broadcast_to(evaluate(tree, given), moments.shape)
        return np.asarray(found, np.float64)[:, np.newaxis]

    return at


def _field(
    tree: Node, values: Mapping[str, float], grid: Grid, arrays: Arrays
) -> Callable[[Ranges], Numbers]:
    names = sorted(names_in(tree) & arrays.keys())

    def of_box(box: Ranges) -> Numbers:
        return _at(tree, values, grid, positions(grid, box), {it: arrays[it](box) for it in names})

    return of_box


def _at(
    tree: Node,
    values: Mapping[str, float],
    grid: Grid,
    places: Sequence[Numbers],
    arrays: Mapping[str, Numbers],
) -> Numbers:
    """A formula of coordinates and arrays at any places, one array per axis that broadcast."""
    given = {name: np.asarray(value) for name, value in values.items()}
    given |= {**dict(zip(grid.axis_names, places, strict=True)), **arrays}
    with np.errstate(all="ignore"):
        found = evaluate(tree, given)
    return np.array(np.broadcast_to(found, np.broadcast_shapes(*map(np.shape, places))), np.float64)


# Coefficients beyond faces: so that the mean of a ghost and its mirror point is what the formula
# says on the face.
#
# A coefficient that is mirrored would be taken half a cell inside, which is an error of first
# order. Where the formula is singular on the face or jumps within the last quarter of a cell, as
# where(x > 0, 1, 2) does, it is mirrored all the same.

_STEEP = 4.0  # from face to quarter against from quarter to centre: more is no smooth formula


@dataclass(frozen=True)
class Beyond:
    """A coefficient on both sides of faces.

    Attributes:
        tree: the formula.
        values: of constants and spacings.
        grid: where the points lie.
        periodic: per axis.
        arrays: constants that are a number at every point; of those nothing is known between the
            points, so the nearest one stands for a face.
    """

    tree: Node
    values: Mapping[str, float]
    grid: Grid
    periodic: tuple[bool, ...]
    arrays: Arrays = field(default_factory=dict)

    def __call__(self, box: Ranges) -> Numbers:
        """In any box of global indices."""
        spans = zip(box, self.grid.shape, self.periodic, strict=True)
        inside = [_inside(np.arange(*span), n, ring) for span, n, ring in spans]
        result = self._near(inside)
        for axis, (low, high) in enumerate(box):
            if self.periodic[axis]:
                continue
            n = self.grid.shape[axis]
            for side, (first, last) in enumerate(((low, min(high, 0)), (max(low, n), high))):
                if first < last:
                    part = (slice(None),) * axis + (slice(first - low, last - low),)
                    ghosts = [*inside[:axis], inside[axis][part[-1]], *inside[axis + 1 :]]
                    result[part] += self.rise(axis, side, ghosts)
        return result

    def rise(self, axis: int, side: int, mirror: Sequence[npt.NDArray[np.int64]]) -> Numbers:
        """Return the difference between ghosts beyond a face and their mirror points, whose indices
        per axis are given.
        """
        centre = 0 if side == 0 else self.grid.shape[axis] - 1
        (h,) = self.grid.widths(axis, centre, centre + 1)
        at = self.grid.positions(axis, np.array([centre]))
        outwards = -h if side == 0 else h
        near, quarter, face = (
            self._near(mirror, axis, at + part * outwards) for part in (0.0, 0.25, 0.5)
        )
        here = self._near(mirror)
        away = np.abs(mirror[axis] - centre).reshape(
            [-1 if k == axis else 1 for k in range(len(mirror))]
        )
        with np.errstate(all="ignore"):
            slope = _STEEP * np.abs(quarter - near)
            smooth = np.isfinite(face) & (np.abs(face - quarter) <= slope)
            smooth = smooth & (np.abs(here - near) <= 4 * away * slope)
            return np.where(smooth, 2 * (face - here), 0.0)

    def differs(self, widths: Sequence[int]) -> bool:
        """Whether any ghost is not its mirror point, of so many per axis."""
        whole = [np.arange(n) for n in self.grid.shape]
        for axis, width in enumerate(widths):
            for side in range(0 if self.periodic[axis] else 2):
                layers = whole[axis][:width] if side == 0 else whole[axis][-width:]
                mirror = [*whole[:axis], layers, *whole[axis + 1 :]]
                if width and self.rise(axis, side, mirror).any():
                    return True
        return False

    def _near(
        self,
        indices: Sequence[npt.NDArray[np.int64]],
        axis: int | None = None,
        place: Numbers | None = None,
    ) -> Numbers:
        """The formula at points, or at places along one axis instead."""
        ndim = self.grid.ndim
        along = [
            place if k == axis and place is not None else self.grid.positions(k, it)
            for k, it in enumerate(indices)
        ]
        shaped = [
            it.reshape([-1 if k == j else 1 for j in range(ndim)]) for k, it in enumerate(along)
        ]
        names = sorted(names_in(self.tree) & self.arrays.keys())
        whole = tuple((int(it.min()), int(it.max()) + 1) for it in indices)
        inside = np.ix_(*(it - low for it, (low, _) in zip(indices, whole, strict=True)))
        arrays = {name: self.arrays[name](whole)[inside] for name in names}
        return _at(self.tree, self.values, self.grid, shaped, arrays)


def _inside(index: npt.NDArray[np.int64], n: int, ring: bool) -> npt.NDArray[np.int64]:
    """The mirror points of indices beyond the grid, or their images along a periodic axis."""
    if ring:
        return index % n
    index = np.where(index < 0, -1 - index, index)
    return np.where(index >= n, 2 * n - 1 - index, index)


# Sums of few operations: a right-hand side as scalars times bodies, and chains of neighbours.
#
# How a sum is written decides how long a step takes. A scalar in front of a sum is not distributed
# unless every part of it has one already; signs are part of the scalars; what is multiplied is
# added by one fused operation. Neighbours of equal weight are added up before they are multiplied,
# and the weights of a chain are whole numbers where they can be, with one factor for all of them.

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
    """Return the largest number of which all weights are whole multiples, with the sign of the
    smallest; 1 for weights that are not fractions.
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


# Derivatives of formulas by one of their names.

_SLOPES = {
    "negative": ("-1",),
    "positive": ("1",),
    "add": ("1", "1"),
    "subtract": ("1", "-1"),
    "multiply": ("b", "a"),
    "divide": ("1/b", "-a/b**2"),
    "remainder": ("1", "-((a - a % b)/b)"),
    "power": ("b*a**(b - 1)", "a**b*log(a)"),
    "atan2": ("b/(a*a + b*b)", "-a/(a*a + b*b)"),
    "sin": ("cos(a)",),
    "cos": ("-sin(a)",),
    "tan": ("1/cos(a)**2",),
    "asin": ("1/sqrt(1 - a*a)",),
    "acos": ("-1/sqrt(1 - a*a)",),
    "atan": ("1/(1 + a*a)",),
    "sinh": ("cosh(a)",),
    "cosh": ("sinh(a)",),
    "tanh": ("1 - tanh(a)**2",),
    "exp": ("exp(a)",),
    "log": ("1/a",),
    "log10": (f"{1 / math.log(10)!r}/a",),
    "sqrt": ("1/(2*sqrt(a))",),
    "abs": ("sign(a)",),
    "erf": (f"{2 / math.sqrt(math.pi)!r}*exp(-(a*a))",),
}
_NOTHING = Constant(0.0)


def slope_of(tree: Node, name: str) -> Node:
    """The derivative of a formula without operators by one of its names.

    What jumps (sign, floor, a condition) has slope 0 beside its jumps.

    >>> from tetris_sim.model.formula import evaluate
    >>> slope = slope_of(formula("a**3/(1 + a)", a=Variable("u")), "u")
    >>> float(evaluate(slope, {"u": np.float64(2.0)}))  # (3 a^2 (1 + a) - a^3)/(1 + a)^2
    3.111111111111111
    """
    if name not in names_in(tree) or isinstance(tree, Comparison):
        return _NOTHING
    if isinstance(tree, Variable):
        return ONE
    # Operations by the chain rule, with a and b for their arguments.
    assert isinstance(tree, Operation)
    parts = tree.arguments
    slopes = [slope_of(it, name) for it in parts]

    if tree.name in ("where", "min", "max", "clip"):
        return _slope_of_choice(tree.name, parts, slopes)
    if tree.name == "hypot":
        products = [_product_of(a, slope) for a, slope in zip(parts, slopes, strict=True)]
        return Operation("divide", (functools.reduce(_sum_of, products), tree))
    total: Node = _NOTHING
    texts = _SLOPES.get(tree.name, ("0",) * len(parts))
    given = dict(zip("ab", parts, strict=False))
    for text, slope in zip(texts, slopes, strict=True):
        if slope != _NOTHING:
            total = _sum_of(total, _product_of(_short(formula(text, **given)), slope))
    return total


def _slope_of_choice(name: str, parts: Sequence[Node], slopes: Sequence[Node]) -> Node:
    """The slope of what is one of several formulas."""
    if name == "where":
        return Operation("where", (parts[0], slopes[1], slopes[2]))
    if name == "clip":
        a, low, high = parts
        inner = _slope_of_choice("max", (a, low), slopes[:2])
        return _slope_of_choice("min", (Operation("max", (a, low)), high), (inner, slopes[2]))
    # The smallest so far against the next one, from left to right as they are evaluated.
    sign, taken, slope = ("<=" if name == "min" else ">="), parts[0], slopes[0]
    for other, its in zip(parts[1:], slopes[1:], strict=True):
        slope = Operation("where", (Comparison((sign,), (taken, other)), slope, its))
        taken = Operation(name, (taken, other))
    return slope


def _short(tree: Node) -> Node:
    """a**(k - 1) with its number as the exponent, and what is multiplied by 1 without it."""
    match tree:
        case Operation("multiply", (b, Operation("power", (a, Operation("subtract", (k, _)))))) if (
            isinstance(k, Constant)
        ):
            power = a if k.value == 2 else Operation("power", (a, Constant(k.value - 1)))
            return b if k.value == 1 else _product_of(b, power)
    return tree


def _product_of(a: Node, b: Node) -> Node:
    if ONE in (a, b):
        return b if a == ONE else a
    return Operation("multiply", (a, b))


def _sum_of(a: Node, b: Node) -> Node:
    if _NOTHING in (a, b):
        return b if a == _NOTHING else a
    return Operation("add", (a, b))
