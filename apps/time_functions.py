"""Time functions: numbers that depend on time and location, as formulas and as values at many
times.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial import first_place
from tetris_sim.apps.initial_file import Box
from tetris_sim.config.sections.quantities import LENGTH
from tetris_sim.config.sections.varying import SURFACE, Given, PathSection, TimeTable, Varying
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.formula import (
    Comparison,
    Constant,
    ExpressionError,
    Node,
    Operation,
    Variable,
    compile_expression,
    evaluate,
    walk,
)
from tetris_sim.model.grid import PLACES, Grid
from tetris_sim.model.step_control import Signal

# Names reserved in formulas: time [s] and the coordinates [m].
TIME = "t"
PLACE = frozenset(PLACES)
_NOUGHT = Constant(0.0)
_PERIODS = 20_000  # of a remainder, in which times are known
_MILD = 20.0  # degC, at which formulas of temperature are tried


@dataclass(frozen=True, eq=False)
class TimeFunction:
    """A number that may depend on time, or on time and location.

    Attributes:
        tree: a formula of t and x, y, z, or a number.
        rows: a table (time [s], value) instead, (n, 2), interpolated linearly.
        period: after which the table begins again [s]; 0 for never.
        signals: decided while the run goes on; the number is multiplied by them.
    """

    tree: Node = _NOUGHT
    rows: Numbers | None = None
    period: float = 0.0
    signals: tuple[Signal, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Variables of the formula."""
        return names_in(self.tree)

    @property
    def value(self) -> float | None:
        """The number, if it is constant; None otherwise."""
        if self.rows is not None or self.names or self.signals:
            return None
        with np.errstate(all="ignore"):
            return float(evaluate(self.tree, {}))

    @property
    def knots(self) -> Numbers:
        """Times at which a table bends or jumps, or a formula does at a comparison of time with a
        number, ascending [s]: however short what lies between them is, no step misses it.
        """
        if self.rows is None:
            return switches(self.tree)
        known = np.unique(self.rows[:, 0])
        if not self.period:
            return known
        # The table begins again at the end of a period, which may be a jump.
        known = np.append(known[(known >= 0) & (known < self.period)], 0.0)
        begins = self.period * np.arange(_PERIODS)
        return np.unique(np.add.outer(begins, known))

    @property
    def in_space(self) -> bool:
        """Whether it varies from point to point."""
        return bool(self.names & PLACE)

    @property
    def by_temperature(self) -> bool:
        """Whether it depends on the temperature where it is."""
        return SURFACE in self.names

    @property
    def mild(self) -> TimeFunction:
        """The same at a mild temperature, if it depends on one: of all, as good as any to try."""
        if not self.by_temperature:
            return self
        return dataclasses.replace(self, tree=substitute(self.tree, {SURFACE: Constant(_MILD)}))

    def at(self, times: Numbers) -> Numbers:
        """Evaluate at some times [s], (n,); only for functions that are uniform in space."""
        if self.rows is not None:
            within = times % self.period if self.period else times
            values = np.interp(within, self.rows[:, 0], self.rows[:, 1])
        else:
            with np.errstate(all="ignore"):
                values = evaluate(self.tree, {TIME: times})
        for signal in self.signals:
            values = values * signal.at(times)
        return np.asarray(np.broadcast_to(values, times.shape), np.float64)

    def times(self, signals: Sequence[Signal]) -> TimeFunction:
        """Return the product with signals that are decided while the run goes on."""
        return dataclasses.replace(self, signals=(*self.signals, *signals)) if signals else self


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
            return TimeFunction(rows=kind.rows(given), period=given.period or 0.0)
        except ValueError as error:
            msg = f"{key}: {error}"
            raise ConfigError(msg) from error
    if isinstance(given, str):
        return TimeFunction(compile_expression(given, kind.known).tree)
    return TimeFunction(Constant(float(given)))


def course_along(path: PathSection, axis: str, grid: Grid, key: str) -> TimeFunction:
    """Return where a path is along an axis, by default in the middle of the box."""
    given = getattr(path, axis)
    if given is None:
        given = math.fsum(grid.bounds(grid.axis_names.index(axis))) / 2
    return read_course(given, Varying(LENGTH, (TIME,)), f"{key}.{axis}")


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


def switches(tree: Node) -> Numbers:
    """Times at which parts of a formula that are linear in time meet: those that are compared, the
    arguments of `min`, `max`, `clip`, `abs`, `sign` and `heaviside`, and all of these in the first
    periods of a remainder; ascending [s].

    >>> pulse = compile_expression("5 if 300.3 < t < 300.35 else abs(2*t - 8)", ["t"])
    >>> switches(pulse.tree).tolist()
    [4.0, 300.3, 300.35]
    >>> switches(compile_expression("t % 10 < 0.02", ["t"]).tree)[:4].tolist()
    [0.0, 0.02, 10.0, 10.02]
    """
    found = [np.empty(0)]

    for part in walk(tree):
        match part:
            case Comparison(_, operands):
                pairs = list(itertools.pairwise(operands))
            case Operation("min" | "max", operands):
                pairs = list(itertools.combinations(operands, 2))
            case Operation("clip", (value, *ends)):
                pairs = [(value, end) for end in ends]
            case Operation("abs" | "sign" | "heaviside", (value,)):
                pairs = [(value, _NOUGHT)]
            case Operation("remainder", (_, period)):
                pairs = [(part, _NOUGHT), (part, period)]
            case _:
                continue
        found += [_meeting(*pair) for pair in pairs]
    return np.unique(np.concatenate(found))


def _meeting(one: Node, other: Node) -> Numbers:
    """Times at which two parts are equal, if both are linear in time; or one of them a number, and
    the other the remainder of such a part.
    """
    if isinstance(other, Operation) and other.name == "remainder":
        one, other = other, one
    period = None
    if isinstance(one, Operation) and one.name == "remainder":
        one, divisor = one.arguments
        period = _line(divisor)
    first, second = _line(one), _line(other)
    if first is None or second is None or first[0] == second[0]:
        return np.empty(0)
    slope, rest = first[0] - second[0], second[1] - first[1]
    if period is None:
        return np.array([rest / slope])

    # Of a remainder, in every period of the clock from 0 on.
    if period[0] or second[0] or not period[1]:
        return np.empty(0)
    length = abs(period[1] / slope)
    return np.asarray((rest / slope) % length + length * np.arange(_PERIODS), np.float64)


def _line(node: Node) -> tuple[float, float] | None:
    """Slope and value at 0 of a formula that is linear in time; None if it is another one."""
    match node:
        case Constant(value):
            return 0.0, value
        case Variable(name):
            return (1.0, 0.0) if name == TIME else None
        case Operation("negative" | "positive" | "add" | "subtract" | "multiply" | "divide"):
            lines = [_line(it) for it in node.arguments]
        case _:
            return None

    # NaN stands for what is not linear, and passes through sums and products.
    (a, b), *rest = ((math.nan, math.nan) if it is None else it for it in lines)
    if not rest:
        a, b = (-a, -b) if node.name == "negative" else (a, b)
        return None if math.isnan(a) else (a, b)
    c, d = rest[0]
    found = {
        "add": (a + c, b + d),
        "subtract": (a - c, b - d),
        "multiply": (a * d + b * c, b * d) if a == 0 or c == 0 else (math.nan, 0.0),
        "divide": (a / d, b / d) if c == 0 and d != 0 else (math.nan, 0.0),
    }[node.name]
    return None if any(map(math.isnan, found)) else found


def clock(knots: Numbers | None = None) -> Parameter:
    """The parameter of time itself [s], in a formula that bends or jumps at some times."""
    return Parameter(TIME, lambda times: times[:, None], np.empty(0) if knots is None else knots)


def knots_of(courses: Iterable[TimeFunction]) -> Numbers:
    """Times at which any of some functions bends or jumps, ascending [s]."""
    return np.unique(np.concatenate([np.empty(0), *(course.knots for course in courses)]))


def in_program(course: TimeFunction, name: str) -> tuple[Node, list[Parameter]]:
    """Split a function into its part of a program and the parameters that this reads.

    A function of location or temperature enters the program as its formula; any other becomes one
    parameter with one value per step.

    Args:
        course: the function of time.
        name: of the parameter.
    """
    if course.in_space or course.by_temperature:
        tree, parameters = course.tree, [clock(course.knots)] if TIME in course.names else []
        if course.signals:
            share = TimeFunction(Constant(1.0), signals=course.signals)
            tree = Operation("multiply", (tree, Variable(f"{name}_share")))
            parameters.append(
                Parameter(f"{name}_share", lambda t: share.at(t)[:, None], share.knots)
            )
        return tree, parameters
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


# Conditions that end a run: comparisons of a few numbers of a state.
#
# A condition is one answer for the whole state, so that a run ends at the same step however it is
# divided. What is over all points is computed first and put in as numbers; the rest is a formula
# like any other.

_OF_ALL_POINTS: dict[str, Callable[[Numbers], Any]] = {
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "integral": np.sum,
}


@dataclass(frozen=True, eq=False)
class StopCondition:
    """A comparison of largest, smallest, mean and integral values of a state.

    Attributes:
        text: as written by the user.
        tree: its meaning; max, min, mean and integral of one argument are over all points.
    """

    text: str
    tree: Node

    def holds(self, grid: Grid, time: float, fields: Mapping[str, Numbers]) -> bool:
        """Whether it holds for a state.

        Args:
            grid: of the whole domain.
            time: of the state [s].
            fields: at all points by name, (n0, ...); NaN where there is nothing.
        """
        values: dict[str, Any] = {TIME: np.float64(time)}
        for axis, name in enumerate(grid.axis_names):
            along = [-1 if k == axis else 1 for k in range(grid.ndim)]
            values[name] = grid.coordinates(axis).reshape(along)
        values |= {name: np.asarray(it, np.float64) for name, it in fields.items()}

        with np.errstate(all="ignore"):
            return bool(evaluate(_reduced(self.tree, grid, values), values))


def _reduced(node: Node, grid: Grid, values: Mapping[str, Any]) -> Node:
    """A tree with numbers in place of what is taken over all points."""
    if isinstance(node, Comparison):
        return Comparison(node.signs, tuple(_reduced(it, grid, values) for it in node.operands))
    if not isinstance(node, Operation):
        return node
    if not _over_all(node):
        parts = tuple(_reduced(it, grid, values) for it in node.arguments)
        return Operation(node.name, parts)

    of = np.broadcast_to(evaluate(_reduced(node.arguments[0], grid, values), values), grid.shape)
    # Voids of a body are NaN, and count for nothing; a state that is no number any more is found
    # by others.
    there = ~np.isnan(of)
    weights: Any = np.ones(())
    if node.name in ("mean", "integral"):
        # Cells count by their volumes, which differ along graded axes and around an axis.
        weights = grid.volumes([(0, n) for n in grid.shape])[there]
    chosen = of[there] * weights
    if not chosen.size:
        return Constant(math.nan)
    if node.name == "mean":
        return Constant(float(chosen.sum() / weights.sum()))
    return Constant(float(_OF_ALL_POINTS[node.name](chosen)))


def _over_all(node: Node) -> bool:
    """Whether an operation is over all points, as max(u) is and max(u, v) is not."""
    return isinstance(node, Operation) and node.name in _OF_ALL_POINTS and len(node.arguments) == 1


def read_condition(text: str, model: Any, axes: Sequence[str]) -> StopCondition:
    """The condition of `time.until.condition`.

    Args:
        text: as written.
        model: whose fields and constants it may name; without such attributes, temperature.
        axes: names of the grid's axes.

    Raises:
        ExpressionError: it is no formula, or one that has another value at every point.
    """
    fields = tuple(getattr(model, "seen_names", ("temperature",)))
    given = getattr(model, "constants", {}).items()
    numbers = {name: Constant(it) for name, it in given if isinstance(it, float)}
    arity: dict[str, tuple[float, float] | str] = {
        "max": (1, math.inf),
        "min": (1, math.inf),
        "mean": (1, 1),
        "integral": (1, 1),
    }
    tree = compile_expression(text, [*fields, *numbers, *axes, TIME], arity).tree

    # "u > 1" is ambiguous: it might mean anywhere or everywhere.
    if loose := sorted(loose_names(tree) & {*fields, *axes}):
        name = loose[0]
        msg = (
            f"{name} has a value at every point, and a condition holds or does not; write "
            f"max({name}), min({name}), mean({name}) or integral({name})"
        )
        raise ExpressionError(msg, text.find(name) + 1)
    return StopCondition(text, substitute(tree, numbers))


def loose_names(node: Node) -> frozenset[str]:
    """The names in a tree that are not inside of something over all points."""
    if isinstance(node, Variable):
        return frozenset((node.name,))
    if isinstance(node, Constant) or _over_all(node):
        return frozenset()
    parts = node.arguments if isinstance(node, Operation) else node.operands
    return frozenset().union(*map(loose_names, parts))
