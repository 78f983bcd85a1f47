"""Time functions: numbers that depend on time and location, as formulas and as values at many
times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial import first_place
from tetris_sim.apps.initial_file import Box
from tetris_sim.config.sections.varying import Given, TimeTable, Varying
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.coordinates import PLACES
from tetris_sim.model.formula import (
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    compile_expression,
    evaluate,
    walk,
)
from tetris_sim.model.grid import Grid

# Names reserved in formulas: time [s] and the coordinates [m].
TIME = "t"
PLACE = frozenset(PLACES)
_NOUGHT = Constant(0.0)


@dataclass(frozen=True, eq=False)
class TimeFunction:
    """A number that may depend on time, or on time and location.

    Attributes:
        tree: a formula of t and x, y, z, or a number.
        rows: a table (time [s], value) instead, (n, 2), interpolated linearly.
    """

    tree: Node = _NOUGHT
    rows: Numbers | None = None

    @property
    def names(self) -> frozenset[str]:
        """Variables of the formula."""
        return names_in(self.tree)

    @property
    def value(self) -> float | None:
        """The number, if it is constant; None otherwise."""
        if self.rows is not None or self.names:
            return None
        with np.errstate(all="ignore"):
            return float(evaluate(self.tree, {}))

    @property
    def knots(self) -> Numbers:
        """Times at which a table bends or jumps, ascending [s]."""
        return np.empty(0) if self.rows is None else np.unique(self.rows[:, 0])

    @property
    def in_space(self) -> bool:
        """Whether it varies from point to point."""
        return bool(self.names & PLACE)

    def at(self, times: Numbers) -> Numbers:
        """Evaluate at some times [s], (n,); only for functions that are uniform in space."""
        if self.rows is not None:
            return np.asarray(np.interp(times, self.rows[:, 0], self.rows[:, 1]))
        with np.errstate(all="ignore"):
            values = evaluate(self.tree, {TIME: times})
        return np.asarray(np.broadcast_to(values, times.shape), np.float64)


def read_course(given: Given, kind: Varying, key: str) -> TimeFunction:
    """Read a number, a formula or a table of the configuration as a function of time.

    Args:
        given: the value as configured.
        kind: quantity and variables that are allowed.
        key: for messages.

    Raises:
        ConfigError: a table cannot be read.
    """
    # Tables in files are read here, so that a missing file is reported with its key.
    if isinstance(given, TimeTable):
        try:
            return TimeFunction(rows=kind.rows(given))
        except ValueError as error:
            msg = f"{key}: {error}"
            raise ConfigError(msg) from error
    if isinstance(given, str):
        return TimeFunction(compile_expression(given, kind.known).tree)
    return TimeFunction(Constant(float(given)))


def names_in(node: Node) -> frozenset[str]:
    """Variables of a formula."""
    return frozenset(part.name for part in walk(node) if isinstance(part, Variable))


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """Replace some variables of a formula by formulas; shared subexpressions stay shared."""
    # Memoized by identity: a formula is a graph, and without this its size could grow
    # exponentially.
    known: dict[int, Node] = {}

    def visit(part: Node) -> Node:
        if id(part) not in known:
            known[id(part)] = changed(part)
        return known[id(part)]

    def changed(part: Node) -> Node:
        match part:
            case Variable(name):
                return values.get(name, part)
            case Operation(name, below):
                return Operation(name, tuple(map(visit, below)))
            case Comparison(signs, below):
                return Comparison(signs, tuple(map(visit, below)))
        return part

    return visit(node)


def formula(text: str, **parts: Node) -> Node:
    """Compile a text whose names stand for the given parts.

    >>> formula("2*a", a=Constant(3.0))
    Operation(name='multiply', arguments=(Constant(value=2.0), Constant(value=3.0)))
    """
    return substitute(compile_expression(text, parts).tree, parts)


def clock() -> Parameter:
    """The parameter of time itself [s]."""
    return Parameter(TIME, lambda times: times[:, None], np.empty(0))


def knots_of(courses: Iterable[TimeFunction]) -> Numbers:
    """Times at which any of some functions bends or jumps, ascending [s]."""
    return np.unique(np.concatenate([np.empty(0), *(course.knots for course in courses)]))


def in_program(course: TimeFunction, name: str) -> tuple[Node, list[Parameter]]:
    """Split a function into its part of a program and the parameters that this reads.

    A function of location enters the program as its formula; any other becomes one parameter
    with one value per step.

    Args:
        course: the function of time.
        name: of the parameter.
    """
    if course.in_space:
        return course.tree, [clock()] if TIME in course.names else []
    if course.value is not None:
        return Variable(name), [Parameter(name, np.array([course.value]))]
    return Variable(name), [Parameter(name, lambda times: course.at(times)[:, None], course.knots)]


def check_course(course: TimeFunction, times: Numbers, key: str, least: float = -math.inf) -> None:
    """Raise where a spatially uniform number is not finite, or below `least`, at some time."""
    values = course.at(times)
    bad = ~np.isfinite(values) | (values < least)
    if bad.any():
        first = int(np.argmax(bad))
        wanted = "it must be finite" if least == -math.inf else f"it must be {least:g} or more"
        msg = f"{key}: it is {values[first]:g} at t = {times[first]:g} s; {wanted}"
        raise ConfigError(msg)


def check_in_space(
    course: TimeFunction,
    points: tuple[Mapping[str, Any], Box, Grid],
    times: Numbers,
    key: str,
    marked: npt.NDArray[np.bool_],
) -> None:
    """Raise where a number that varies in space is not finite at the start or the end of the run.

    Args:
        course: the function of time and location.
        points: coordinates by name, their box, the grid.
        times: of the run [s].
        key: for messages.
        marked: mask of the points that matter.
    """
    coordinates, box, grid = points

    # Every point is evaluated, so only the first and the last time are tried.
    for time in times[[0, -1]]:
        with np.errstate(all="ignore"):
            values = evaluate(course.tree, {**coordinates, "t": np.asarray(time)})
        bad = ~np.isfinite(np.broadcast_to(values, marked.shape)) & marked
        if bad.any():
            _, where = first_place(bad, grid, box)
            msg = f"{key}: the expression is not finite at {where}, t = {time:g} s; it must be"
            raise ConfigError(msg)
