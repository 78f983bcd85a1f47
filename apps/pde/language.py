"""The language of equations: which names and operators a formula may have, and what these are.

Constants are numbers, or formulas of coordinates, time and other constants in any order; the latter
are put in where they are used.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.initial_file import open_file
from tetris_sim.apps.pde.complex import ComplexError, Pair, in_parts, real_tree
from tetris_sim.apps.pde.fluxes import LIMITERS, per_spacing
from tetris_sim.apps.pde.simplify import ONE, Offset, Weight, scalar_value, spacing_name
from tetris_sim.apps.time_functions import TIME, formula, names_in, substitute
from tetris_sim.config.sections.conditions import FileInitial
from tetris_sim.config.sections.quantities import Quantity, Section, looks_like_quantity
from tetris_sim.config.sections.units import UnitError, to_si
from tetris_sim.config.sections.varying import COMPLEX_FUNCTIONS
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import (
    Constant,
    ExpressionError,
    Node,
    Operation,
    Operators,
    Variable,
    compile_expression,
    usable_name,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES, CARTESIAN, Coordinates, Grid
from tetris_sim.model.slab import Ranges
from tetris_sim.model.stencils.catalogue import catalogue, named_stencil
from tetris_sim.model.stencils.entry import along, central, compose
from tetris_sim.model.stencils.entry import scaled as times_number
from tetris_sim.support.wording import describe, listed

# The differential operators: which neighbours with which weights, and what is made of others.
#
# Linear operators are weighted sums of neighbours, with weights in exact fractions and a power of
# the spacings before them (`linear`). `advect` and `grad_squared` are written with those
# (`rewritten`).

Advection = Literal["upwind", "central"]
Accuracy = Literal[2, 4]
Sums = list[tuple[Node, Mapping[Offset, Weight]]]  # a scalar before each
_PAIRS = ("xy", "xz", "yz")
# Of one formula they are numbers of the whole grid.
OF_THE_GRID: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("integral", "mean"), (1, 1)),
    **dict.fromkeys(("max", "min"), (1, math.inf)),
    "noise": (2, 2),
}


@functools.cache
def operators(ndim: int, axes: tuple[str, ...] = ()) -> Operators:
    """Return the operators that formulas on a grid of `ndim` axes may call.

    Args:
        ndim: number of axes.
        axes: their names, where they are not x, y and z.
    """
    if axes:
        return _around_operators(axes)
    axes = AXIS_NAMES[:ndim]
    known: dict[str, tuple[float, float] | str] = {
        **dict.fromkeys(("laplace", "grad_squared", "biharmonic"), (1, 1)),
        "div_grad": (2, 2),
        **{f"div_grad(mean={it})": (2, 2) for it in ("arithmetic", "harmonic")},
        "advect": (ndim + 1, ndim + 1),
        **dict.fromkeys(("flux", "div"), (ndim, ndim + 2)),
        **{f"{k}(limiter={it})": (ndim, ndim + 2) for k in ("flux", "div") for it in LIMITERS},
        **OF_THE_GRID,
        **COMPLEX_FUNCTIONS,
    }
    derivatives = (*AXIS_NAMES, *(name * 2 for name in AXIS_NAMES), *_PAIRS)
    for name in derivatives:
        missing = next((axis for axis in name if axis not in axes), None)
        known[f"d{name}"] = (1, 1) if missing is None else f"the grid has no axis {missing}"

    # One-sided differences, and a value some points away, for schemes of one's own.
    for axis, side in itertools.product(AXIS_NAMES, ("plus", "minus")):
        known[f"d{axis}_{side}"] = known[f"d{axis}"]
    known["shift"] = (ndim + 1, ndim + 1)

    for name, entry in catalogue().items():
        fits = entry.stencil.ndim == ndim
        known[name.replace("-", "_")] = (
            (1, 1)
            if fits
            else f"the stencil {name} has {entry.stencil.ndim} axes, but the grid has {ndim}"
        )
    return known


def _around_operators(axes: tuple[str, ...]) -> Operators:
    """Those around an axis or a centre."""
    known: dict[str, tuple[float, float] | str] = {
        **dict.fromkeys(("laplace", "grad_squared", "biharmonic"), (1, 1)),
        "div_grad": (2, 2),
        **{f"div_grad(mean={it})": (2, 2) for it in ("arithmetic", "harmonic")},
        "advect": (len(axes) + 1, len(axes) + 1),
        **OF_THE_GRID,
        **COMPLEX_FUNCTIONS,
    }
    every = (*axes, *(axis for axis in AXIS_NAMES if axis not in axes))
    for parts in derivatives(every):
        missing = next((axis for axis in parts if axis not in axes), None)
        fits: tuple[float, float] | str = (1, 1)
        if missing is not None:
            fits = f"the grid has no axis {missing}"
        known |= dict.fromkeys(("d" + "".join(parts), "d_" + "".join(parts)), fits)

    # All others add up what flows through equal faces, or read neighbours at equal distances.
    told = f"it is for straight axes, and the grid has {listed(axes, 'and')}"
    return {name: told for name in operators(len(axes))} | known


def derivatives(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The axes of all derivatives."""
    yield from ((axis,) for axis in axes)
    yield from itertools.combinations_with_replacement(axes, 2)


@functools.cache
def _catalogue_names() -> Mapping[str, str]:
    return {name.replace("-", "_"): name for name in catalogue()}


def rewritten(
    node: Operation, ndim: int, advection: Advection, system: Coordinates = CARTESIAN
) -> Node | None:
    """An operator written with others; None if it is one of those."""
    axes = AXIS_NAMES[:ndim]
    # Around an axis operators are written with derivatives along the axes, by their numbers.
    arcs = {axis for axis, name in zip(axes, system.axes, strict=False) if name == "theta"}
    if node.name == "grad_squared":
        first = [_slope(axis, axis in arcs, node.arguments) for axis in axes]
        squares: list[Node] = [Operation("multiply", (it, it)) for it in first]

    elif node.name == "advect":
        *velocity, field = node.arguments
        squares = []

        for axis, speed in zip(axes, velocity, strict=True):
            if advection == "central":
                slope = _slope(axis, axis in arcs, (field,))
                squares.append(Operation("multiply", (speed, slope)))
                continue
            for limit, side in (("max", "-"), ("min", "+")):
                part = Operation(limit, (speed, Constant(0.0)))
                slope = _slope(axis + side, axis in arcs, (field,))
                squares.append(Operation("multiply", (part, slope)))
    elif not system.is_curved:
        return None
    elif node.name == "laplace":
        squares = [
            _second(system, *it, node.arguments) for it in zip(axes, system.axes, strict=False)
        ]
    elif node.name == "biharmonic":
        return Operation("laplace", (Operation("laplace", node.arguments),))
    else:
        return _by_letters(node, axes, system.axes)
    return functools.reduce(lambda a, b: Operation("add", (a, b)), squares)


# Around an axis or a centre. The Laplacian is the difference of what flows through the faces of a
# cell by its volume, all exact (`grid.py`). With h the spacing along r, that is around an
# axis the same as central differences in d_rr u + d_r u / r; around a centre, where 3 r^2 + h^2/4
# is the volume of a shell by h, they get factors that are 1 for small h. Beyond the axis lies the
# mirror point with weight 0.

_SPACINGS = {"h": Variable(spacing_name("x")), "a": Variable(spacing_name("y"))}  # of r and theta
_PLACES = {name: Variable(name) for name in ("r", "theta")}


def _slope(axis: str, is_arc: bool, of: tuple[Node, ...]) -> Node:
    """A derivative; by an angle as one by the length of the arc."""
    slope = Operation(f"d{axis}", of)
    return formula("slope/r", slope=slope, r=Variable("r")) if is_arc else slope


def _by_letters(node: Operation, axes: Sequence[str], names: Sequence[str]) -> Node | None:
    """A derivative along r, theta and z as one along x, y and z."""
    word = node.name.removeprefix("d").removeprefix("_")
    letters = dict(zip(names, axes, strict=False))
    found = next((it for it in derivatives(names) if "".join(it) == word), None)
    if found is None or not node.name.startswith("d"):
        return None
    # What is written with letters already stays as it is.
    written = "d" + "".join(letters[name] for name in found)
    return None if written == node.name else Operation(written, node.arguments)


def _second(system: Coordinates, letter: str, axis: str, of: tuple[Node, ...]) -> Node:
    """The part of the Laplacian along an axis."""
    first, second = Operation(f"d{letter}", of), Operation(f"d{letter}{letter}", of)
    if axis == "z":
        return second

    # Both factors of a sphere are those of exact areas and volumes.
    text = {
        ("cylindrical", "r"): "second + first/r",
        ("cylindrical", "theta"): "second/r**2",
        ("spherical", "r"): (
            "(r**2 + h**2/4)/(r**2 + h**2/12)*second + 2*r/(r**2 + h**2/12)*first"
        ),
        ("spherical", "theta"): (
            "(a/2)/tan(a/2)/(r**2 + h**2/12)*second + 1/tan(theta)/(r**2 + h**2/12)*first"
        ),
    }[system.kind, axis]
    return formula(text, **_SPACINGS, **_PLACES, first=first, second=second)


def face_weight(system: Coordinates, axis: str, side: int) -> Node:
    """By how much more flows through the upper (1) or lower (-1) face of a cell along an axis, per
    volume, than between straight ones.
    """
    if not system.is_curved or axis == "z":
        return ONE

    text = {
        ("cylindrical", "r"): "1 + s*h/r",
        ("cylindrical", "theta"): "1/r**2",
        ("spherical", "r"): "(r + s*h)**2/(r**2 + h**2/12)",
        ("spherical", "theta"): "sin(theta + s*a)*a/(2*sin(a/2)*sin(theta))/(r**2 + h**2/12)",
    }[system.kind, axis]
    return formula(text, **_SPACINGS, **_PLACES, s=Constant(side / 2))


def linear(name: str, spacing: Sequence[float], accuracy: Accuracy) -> Sums:
    """The weighted sums of a linear operator.

    Args:
        name: of the operator; `dx_minus` or `dx-` and `dx_plus` or `dx+` are one-sided, of first
            order.
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

    letters = name[1:].replace("_plus", "+").replace("_minus", "-")
    if letters[-1] in "+-":
        axis, ends = letters[0], (0, 1) if letters[-1] == "+" else (-1, 0)
        one_sided: Mapping[Offset, Fraction] = {(ends[0],): Fraction(-1), (ends[1],): Fraction(1)}
        return _merged([((axis,), along(one_sided, axes[axis], ndim))], axes, spacing)
    if len(letters) == 2 and letters[0] == letters[1]:
        return _merged([((letters[0],) * 2, second[letters[0]])], axes, spacing)
    first = [along(central(1, accuracy), axes[axis], ndim) for axis in letters]
    weights = first[0] if len(first) == 1 else compose(first[0], first[1])
    return _merged([(tuple(letters), weights)], axes, spacing)


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


Mistake = tuple[KeyPath, str, int | None]  # where, what, and at which character
_MOST_NODES = 5000  # of a formula with all constants put in
_NUMBER = Quantity("a number", "dimensionless", ("0.04",))


class FileConstant(Section):
    """A constant that is a number at every point of the grid, from a file."""

    path: str
    """A .npy array or an HDF5 file of the grid's shape (z, y, x), in SI units; relative paths start
    at the folder of the configuration file.
    """
    dataset: str | None = None
    """For HDF5: the name of the dataset; needed if the file has more than one."""

    def open(self, grid: Grid, name: str) -> Callable[[Ranges], Numbers]:
        """Open it as a function of a box of the grid.

        Args:
            grid: whose shape the array has.
            name: of the constant, for messages.

        Raises:
            ConfigError: it cannot be read, or has another shape.
        """
        key = f"model.constants.{name}"
        section = FileInitial(type="file", path=self.path, dataset=self.dataset)
        read = open_file(section, grid, key)

        def of_box(box: Ranges) -> Numbers:
            found = np.asarray(read(box), np.float64)
            if not np.isfinite(found).all():
                msg = f"{key}: {self.path} holds NaN or infinity; every number must be finite"
                raise ConfigError(msg)
            return found

        return of_box


def read_constant(value: object) -> float | str | FileConstant:
    """A number in SI units, a formula as it was written, or a file of numbers.

    >>> read_constant("2 mm^2/s"), read_constant("2*k")
    (2e-06, '2*k')

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, Mapping):
        return FileConstant.model_validate(value)
    if isinstance(value, FileConstant):
        return value
    if not isinstance(value, str):
        return _NUMBER.read(value)
    if not looks_like_quantity(value):
        return value
    number, _, unit = value.strip().partition(" ")
    if not unit:
        try:
            return _NUMBER.read(value)
        except ValueError:
            return value

    try:
        return _NUMBER.read(to_si(number, unit.strip()))
    except (UnitError, ArithmeticError) as error:
        msg = f"{describe(value)} was found: {error}; write a product with *"
        raise ValueError(msg) from error


@dataclass(frozen=True)
class Language:
    """Names that formulas may use, and their meaning.

    Attributes:
        ndim: of the grid.
        fields: that formulas may have, velocities among them.
        numbers: constants that are numbers.
        named: constants that are formulas, of numbers, coordinates and time alone.
        defined: formulas of fields too, with operators.
        arrays: constants that are a number at every point.
        round_axes: of the grid, where they are not x, y and z.
        pairs: real and imaginary part of complex fields and constants.
    """

    ndim: int
    fields: tuple[str, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    defined: Mapping[str, Node] = field(default_factory=dict)
    arrays: tuple[str, ...] = ()
    round_axes: tuple[str, ...] = ()
    pairs: Mapping[str, Pair] = field(default_factory=dict)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the grid, in the order of the configuration."""
        return self.round_axes or AXIS_NAMES[: self.ndim]

    @property
    def places(self) -> tuple[str, ...]:
        """The coordinates and time."""
        return (*self.axes, TIME)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that formulas may use besides definitions."""
        known = (*self.fields, *self.numbers, *self.named, *self.arrays, *self.places)
        return (*known, *(name for name in self.pairs if name not in known))

    @property
    def operators(self) -> Operators:
        """The functions that formulas may call besides the usual ones."""
        return operators(self.ndim, self.round_axes)

    def read_face(self, text: str) -> Node:
        """The tree of what a face is given: a formula without operators.

        Raises:
            ExpressionError: it cannot be used.
        """
        # Of an array nothing is known on a face, half a cell beyond its last number.
        named = {it: tree for it, tree in self.named.items() if not names_in(tree) & {*self.arrays}}
        names = [*self.fields, *self.numbers, *named, *self.places, *self.pairs]
        tree = substitute(compile_expression(text, names, COMPLEX_FUNCTIONS).tree, named)
        return self._real(tree, text)

    def read(self, text: str) -> Node:
        """The tree of a right-hand side, of real numbers.

        Raises:
            ExpressionError: it cannot be used.
        """
        whole = self._real(self.compiled(text), text)
        if sum(1 for _ in walk(whole)) > _MOST_NODES:
            msg = "the formula becomes too long with its parts put in"
            raise ExpressionError(msg, 1)
        return whole

    def _real(self, tree: Node, text: str) -> Node:
        try:
            return real_tree(tree, self.pairs)
        except ComplexError as error:
            raise ExpressionError(str(error), text.find(error.name) + 1 or 1) from error

    def compiled(self, text: str) -> Node:
        """The tree of a formula as it is written, with constants and definitions put in.

        Raises:
            ExpressionError: it cannot be used.
        """
        tree = compile_expression(text, [*self.names, *self.defined], self.operators).tree
        return substitute(tree, {**self.named, **self.defined})


_CONSTRAINT = re.compile(r"\s*0\s*=(?!=)\s*")


def constraint_in(text: str) -> str | None:
    """F of an equation 0 = F; None of any other one.

    >>> constraint_in("0 = laplace(p) + w"), constraint_in("laplace(w)")
    ('laplace(p) + w', None)
    """
    found = _CONSTRAINT.match(text)
    return None if found is None else text[found.end() :]


def name_mistakes(
    names: Collection[str], ndim: int, what: str, axes: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Names that already mean something: (name, sentence)."""
    for name in names:
        why_not = usable_name(name)
        # Names had these meanings before there were such functions.
        known = operators(ndim, axes).keys() - {"integral", "mean", "noise", *COMPLEX_FUNCTIONS}
        if name in (*AXIS_NAMES, *axes, TIME, "dt") or name in known:
            why_not = f"{name!r} already means something in equations; choose another name"
        if why_not is not None:
            yield name, f"{why_not} for the {what}"


def read_constants(
    given: Mapping[str, float | str | FileConstant | Numbers],
    fields: tuple[str, ...],
    ndim: int,
    axes: tuple[str, ...] = (),
    pairs: Mapping[str, Pair] | None = None,
) -> tuple[Language, list[Mistake]]:
    """The language with some constants, and what is wrong with these.

    Args:
        given: numbers, formulas and arrays by name.
        fields: that formulas may have.
        ndim: number of axes.
        axes: their names, where they are not x, y and z.
        pairs: complex fields.
    """
    path: KeyPath = ("model", "constants")
    numbers = {name: float(it) for name, it in given.items() if isinstance(it, int | float)}
    places = (*(axes or AXIS_NAMES[:ndim]), TIME)
    trees: dict[str, Node] = {}
    mistakes: list[Mistake] = []
    for name, text in given.items():
        if isinstance(text, str):
            try:
                trees[name] = compile_expression(text, [*places, *given], COMPLEX_FUNCTIONS).tree
            except ExpressionError as error:
                mistakes.append(((*path, name), str(error), error.column))

    named: dict[str, Node] = {}
    while ready := [
        name
        for name, tree in trees.items()
        if name not in named and not (names_in(tree) & trees.keys()) - named.keys()
    ]:
        for name in ready:
            named[name] = substitute(trees[name], named)
    for name in trees.keys() - named.keys():
        others = sorted(names_in(trees[name]) & (trees.keys() - named.keys()))
        told = f"it needs {', '.join(others)}, which needs it in turn; give one of them a number"
        mistakes.append(((*path, name), told, None))

    # Complex constants are known by their parts, like complex fields.
    known = dict(pairs or {})
    for name, tree in list(named.items()):
        try:
            real, imaginary = in_parts(tree, {})
        except ComplexError as error:
            mistakes.append(((*path, name), str(error), None))
            continue
        named[name] = real
        if imaginary is not None:
            known[name] = named.pop(name), imaginary

    for name, tree in named.items():
        if not names_in(tree) - numbers.keys():
            value = scalar_value(tree, numbers)
            if not abs(value) < float("inf"):
                told = f"it comes out as {value}; a finite number is wanted"
                mistakes.append(((*path, name), told, None))
    arrays = tuple(name for name in given if name not in numbers and name not in trees)
    language = Language(ndim, fields, numbers, named, arrays=arrays, round_axes=axes, pairs=known)
    return language, mistakes


def with_definitions(
    language: Language, given: Mapping[str, str]
) -> tuple[Language, list[Mistake]]:
    """The language with names for formulas that equations share, in any order, and what is wrong
    with these.
    """
    path: KeyPath = ("model", "definitions")
    known = [*language.names, *given]
    trees: dict[str, Node] = {}
    mistakes: list[Mistake] = []
    for name, text in given.items():
        try:
            tree = compile_expression(text, known, language.operators).tree
            trees[name] = substitute(tree, language.named)
        except ExpressionError as error:
            mistakes.append(((*path, name), str(error), error.column))

    # Those whose parts are all known are put into the others, until none is left.
    defined: dict[str, Node] = {}
    waiting = set(trees)
    while ready := {it for it in waiting if not names_in(trees[it]) & waiting}:
        defined |= {it: substitute(trees[it], defined) for it in sorted(ready)}
        waiting -= ready
    for name in sorted(waiting):
        others = ", ".join(sorted(names_in(trees[name]) & waiting))
        told = f"it needs {others}, which needs it in turn; make one of them a field"
        mistakes.append(((*path, name), told, None))
    return replace(language, defined=defined), mistakes
