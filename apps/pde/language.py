"""The language of equations: which names a formula may have, and what these are.

Constants are numbers, or formulas of coordinates, time and other constants in any order; the latter
are put in where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.initial_file import open_file
from tetris_sim.apps.pde.complex import ComplexError, Pair, in_parts, real_tree
from tetris_sim.apps.pde.operators import FARTHEST, operators
from tetris_sim.apps.pde.simplify import scalar_value
from tetris_sim.apps.time_functions import TIME, names_in, substitute
from tetris_sim.config.sections.conditions import FileInitial
from tetris_sim.config.sections.quantities import Quantity, Section, looks_like_quantity
from tetris_sim.config.sections.units import UnitError, to_si
from tetris_sim.config.sections.varying import COMPLEX_FUNCTIONS
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import (
    ExpressionError,
    Node,
    Operation,
    Operators,
    compile_expression,
    usable_name,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.slab import Ranges
from tetris_sim.support.wording import describe

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
    # A text like `2 k` might be a quantity or a product without its sign; a unit that does not
    # exist is refused with a hint to write `*`.
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
        # Definitions that use definitions multiply: a bound on nodes keeps a short text from
        # becoming a formula that no compiler finishes.
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

    # Substitute constants whose parts are known, round by round, until nothing new is ready; what
    # is left depends on itself.
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
        # Constants of numbers alone are evaluated now, so that a division by 0 has its key.
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


def number_mistakes(
    trees: Mapping[str, Node], first: Collection[str], numbers: Mapping[str, float]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield what numbers of equations cannot be: points of a shift that are none, and divisors 0.

    Args:
        trees: the right-hand sides by field.
        first: fields with equations of first order in time.
        numbers: constants.
    """
    for name, tree in trees.items():
        path: KeyPath = ("model", "fields", name, "equation" if name in first else "second_order")
        for part in walk(tree):
            if not isinstance(part, Operation):
                continue
            if part.name == "shift" and not all(is_near(it, numbers) for it in part.arguments[1:]):
                told = "shift(u, dx, dy) reads u some whole points away, which are numbers of"
                yield path, f"{told} at most {FARTHEST}"
            if part.name != "divide" or names_in(part.arguments[1]) - numbers.keys():
                continue
            # What is divided by is made one over itself, and that has to be a number.
            value = scalar_value(part.arguments[1], numbers)
            if value == 0 or not abs(1 / value) < float("inf"):
                of = ", ".join(sorted(names_in(part.arguments[1])))
                whose = f" of {of}" if of else ""
                told = f"a number{whose} in the equations comes out as inf; is something divided"
                yield path, f"{told} by 0?"


def is_near(node: Node, numbers: Mapping[str, float]) -> bool:
    """Whether a shift may be so many points."""
    value = scalar_value(node, numbers) if names_in(node) <= numbers.keys() else 0.5
    return value.is_integer() and abs(value) <= FARTHEST
