"""The language of equations: which names and operators a formula may have, and what its tree is.

Constants are numbers, or formulas of coordinates, time and other constants in any order; the latter
are put in where they are used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.pde.operators import operators
from tetris_sim.apps.pde.simplify import scalar_value
from tetris_sim.apps.time_functions import TIME, names_in, substitute
from tetris_sim.config.sections.quantities import Quantity, UnitError, looks_like_quantity, to_si
from tetris_sim.model.formula import (
    ExpressionError,
    Node,
    Operators,
    compile_expression,
    usable_name,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.support.wording import describe

Mistake = tuple[KeyPath, str, int | None]  # where, what, and at which character
_MOST_NODES = 5000  # of a formula with all constants put in
_NUMBER = Quantity("a number", "dimensionless", ("0.04",))


def read_constant(value: object) -> float | str:
    """A number in SI units, or a formula as it was written.

    >>> read_constant("2 mm^2/s"), read_constant("2*k")
    (2e-06, '2*k')

    Raises:
        ValueError: it is neither.
    """
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
    """What formulas may say.

    Attributes:
        ndim: of the grid.
        fields: that formulas may have, velocities among them.
        numbers: constants that are numbers.
        named: constants that are formulas, of numbers, coordinates and time alone.
        axes: of the grid, where they are not x, y and z.
    """

    ndim: int
    fields: tuple[str, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    axes: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The coordinates and time."""
        return (*(self.axes or AXIS_NAMES[: self.ndim]), TIME)

    @property
    def operators(self) -> Operators:
        """The functions that formulas may call besides the usual ones."""
        return operators(self.ndim, self.axes)

    def read(self, text: str) -> Node:
        """The tree of a right-hand side.

        Raises:
            ExpressionError: it cannot be used.
        """
        names = [*self.fields, *self.numbers, *self.named, *self.places]
        tree = compile_expression(text, names, self.operators).tree
        whole = substitute(tree, self.named)
        if sum(1 for _ in walk(whole)) > _MOST_NODES:
            msg = "the formula becomes too long with its constants put in"
            raise ExpressionError(msg, 1)
        return whole


def name_mistakes(
    names: Collection[str], ndim: int, what: str, axes: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Names that already mean something: (name, sentence)."""
    for name in names:
        why_not = usable_name(name)
        if name in (*AXIS_NAMES, *axes, TIME, "dt") or name in operators(ndim, axes):
            why_not = f"{name!r} already means something in equations; choose another name"
        if why_not is not None:
            yield name, f"{why_not} for the {what}"


def read_constants(
    given: Mapping[str, float | str],
    fields: tuple[str, ...],
    ndim: int,
    axes: tuple[str, ...] = (),
) -> tuple[Language, list[Mistake]]:
    """The language with some constants, and what is wrong with these."""
    path: KeyPath = ("model", "constants")
    numbers = {name: value for name, value in given.items() if not isinstance(value, str)}
    places = (*(axes or AXIS_NAMES[:ndim]), TIME)
    trees: dict[str, Node] = {}
    mistakes: list[Mistake] = []
    for name, text in given.items():
        if isinstance(text, str):
            try:
                trees[name] = compile_expression(text, [*places, *given]).tree
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

    for name, tree in named.items():
        if not names_in(tree) - numbers.keys():
            value = scalar_value(tree, numbers)
            if not abs(value) < float("inf"):
                told = f"it comes out as {value}; a finite number is wanted"
                mistakes.append(((*path, name), told, None))
    return Language(ndim, fields, numbers, named, axes), mistakes
