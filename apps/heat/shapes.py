"""Shapes of regions: boxes, conditions and label files.

A shape says which cells of a box of global indices it holds, by their centres, and where its
surface crosses the lines between neighbouring centres (`surfaces.py`).
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.materials import FluidSection
from tetris_sim.apps.heat.sections import Substance
from tetris_sim.apps.heat.sources import BoxSection, Location
from tetris_sim.apps.heat.surfaces import (
    Crossings,
    Mask,
    Numbers,
    Places,
    aligned,
    crossings_of,
)
from tetris_sim.apps.initial import first_place, positions, shape_of, slices_in
from tetris_sim.apps.initial_file import (
    Box,
)
from tetris_sim.errors import ConfigError
from tetris_sim.model.formula import (
    COMPARISONS,
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
from tetris_sim.model.grid import Grid

ON_FACE = 1e-6  # of a cell: what is nearer to a face lies on it
_BENT = 0.2  # of how far its ends are apart: how far off a line a difference may be half-way
_HALVINGS = 50  # of the way between two cells: to the rounding of a place
_STEP = 1e-3  # of a cell, for the gradient of a condition
_TURN_ROUNDED = 1e-9  # relative: 360 deg in radians may be off by this
_EVALUATED = 1 << 13  # points of a box that is no longer divided
_INEXACT = 1e-13  # relative error of functions that are not rounded correctly, with room
Interval = tuple[float, float]


@dataclass(frozen=True)
class Filling:
    """Filling of a point: a substance, a fluid, or nothing.

    Attributes:
        name: shown to users.
        substance: if it belongs to the body.
        fluid: if it is a fluid around the body.
        is_cut: whether the surface of its substance cuts the cell, or one beside it.
    """

    name: str
    substance: Substance | None = None
    fluid: FluidSection | None = None
    is_cut: bool = False


@dataclass(frozen=True)
class Layer:
    """One region, or one label of it, with its filling.

    Attributes:
        region: its number.
        filling: number of its filling.
        label: of its points in the label file; None for all points of the region.
    """

    region: int
    filling: int
    label: int | None = None


class Place:
    """A location: the cells whose centres lie in a box and meet a condition.

    Args:
        place: the box and the condition.
        grid: where points lie.
        key: of the location, for messages.
        boxes: instead of its own one; no cell belongs to none of them.
        laid: instead of boxes, cells that belong: the box of each part, and which of it.

    Attributes:
        is_aligned: whether it is boxes or everything, whose walls are parallel to the axes.
        walls: by axis, where the low and high walls lie within the grid [m], NaN if they do not.
        is_whole: whether all of these are faces of cells.

    Raises:
        ConfigError: the condition is no expression of the grid's axes, or, when it is called, it is
            not finite somewhere.
    """

    def __init__(
        self,
        place: Location,
        grid: Grid,
        key: str,
        boxes: Sequence[BoxSection] | None = None,
        laid: Sequence[tuple[Box, Mask]] | None = None,
    ) -> None:
        if boxes is None:
            boxes = () if place.box is None or laid is not None else (place.box,)
            self._everywhere = place.box is None and laid is None
        else:
            self._everywhere = False
        boxes = [image for it in boxes for image in _around(it, grid)]
        self._grid, self._laid = grid, laid

        # Cells belong by their centres; where the walls are decides how they are cut.
        self._parts: list[tuple[Box, Mask | None]] = [*(laid or ())]
        nearest = bool(getattr(place, "nearest", False))
        self._parts += [(indices(it, grid, nearest=nearest), None) for it in boxes]
        if self._everywhere:
            self._parts = [(tuple((0, n) for n in grid.shape), None)]
        self.walls = [
            tuple(wall for it in boxes for wall in _walls(it, grid, axis))
            for axis in range(grid.ndim)
        ]
        self._condition = (
            None if place.where is None else Condition(place.where, grid, f"{key}.where")
        )
        is_there = bool(self._parts)
        self.is_aligned = not is_there or (self._condition is None and laid is None)
        self.is_whole = not is_there or (
            self._condition is None
            and not any(
                math.isfinite(wall) and not on_face(grid, axis, wall)
                for axis, walls in enumerate(self.walls)
                for wall in walls
            )
        )

    def __call__(self, box: Box) -> Mask | None:
        """Whether each cell of a box belongs; None if none does."""
        inside = np.zeros(shape_of(box), np.bool_)
        for spans, which in self._parts:
            # The overlap with each part, in global indices; a part without any is passed over.
            common = tuple(
                (max(a, low), min(b, high)) for (a, b), (low, high) in zip(spans, box, strict=True)
            )
            if all(low < high for low, high in common):
                part = inside[slices_in(common, box)]
                part |= True if which is None else which[slices_in(common, spans)]

        if not inside.any():
            return None
        if self._condition is not None:
            inside &= self._condition(box)
        return inside

    def on(self, axes: Sequence[npt.NDArray[np.int64]]) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        """Yield, of an aligned place, indices of an array of the points with some indices along
        each axis: those that belong, box by box.
        """
        assert self.is_aligned
        for spans, _ in self._parts:
            # An aligned box is a product of intervals, so each axis is compared by itself.
            marks = [(it >= low) & (it < high) for it, (low, high) in zip(axes, spans, strict=True)]
            if all(it.any() for it in marks):
                yield np.ix_(*marks)

    def span(self, axis: int) -> tuple[int, ...]:
        """Indices along an axis at which each box begins, or another place behind it."""
        if self._everywhere or self._laid is not None:
            return ()
        return tuple(it for spans, _ in self._parts for it in spans[axis])

    def at(self, places: Places) -> Mask:
        """Whether the centres of cells (n, ndim) belong."""
        inside = np.zeros(len(places), np.bool_)
        for spans, which in self._parts:
            low, high = np.array(spans).T
            here = ((places >= low) & (places < high)).all(axis=1)
            if which is not None:
                here[here] = which[tuple((places[here] - low).T)]
            inside |= here
        if self._condition is not None:
            inside[inside] = self._condition.at(places[inside])
        return inside

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """See `Surfaces`."""
        found = aligned(len(below))
        # The box cuts the condition, so that its walls are the surface where both meet.
        if self._condition is not None:
            found = self._condition.crossings(axis, below)
        for face, wall in zip(self.span(axis), self.walls[axis], strict=False):
            at_wall = replace(aligned(len(below)), place=np.full(len(below), wall))
            found = at_wall.where(below[:, axis] + 1 == face, found)
        return found


def _around(box: BoxSection, grid: Grid) -> list[BoxSection]:
    """A box, and where theta goes around its images a turn on and back that reach into the grid."""
    if box.theta is None or "theta" not in grid.axis_names:
        return [box]
    low, high = grid.bounds(grid.axis_names.index("theta"))
    if not grid.system.is_ring("theta", high - low):
        return [box]
    begin, end = box.theta
    if end - begin >= (1 - _TURN_ROUNDED) * math.tau:
        return [box.model_copy(update={"theta": None})]
    # All turns at which the box, moved by a multiple of 2 pi, still reaches into the grid.
    first, last = math.floor((low - end) / math.tau) + 1, math.ceil((high - begin) / math.tau)
    turns = [k * math.tau for k in range(first, last)]
    return [box.model_copy(update={"theta": (begin + it, end + it)}) for it in turns]


def on_face(grid: Grid, axis: int, place: float) -> bool:
    """Whether a place along an axis [m] is a face of cells, but for rounding."""
    ends = grid.ends(axis)
    near = int(np.argmin(np.abs(ends - place)))
    width = grid.widths(axis)[min(near, grid.shape[axis] - 1)]
    return bool(abs(ends[near] - place) < ON_FACE * width)


def _walls(box: BoxSection, grid: Grid, axis: int) -> tuple[float, float]:
    """Where the walls of a box across an axis lie, NaN if beyond the grid [m]."""
    span, (low, high) = getattr(box, grid.axis_names[axis]), grid.bounds(axis)
    if span is None:
        return math.nan, math.nan
    first, last = (float(it) if low < it < high else math.nan for it in span)
    return first, last


def indices(box: BoxSection, grid: Grid, *, nearest: bool = False) -> Box:
    """Global indices of the cells whose centres lie in a box, in array order; maybe none. With
    `nearest`, a box between two centres is in the cells in which its middle lies.
    """
    spans = []
    for axis, name in enumerate(grid.axis_names):
        span = getattr(box, name)
        if span is None:
            spans.append((0, grid.shape[axis]))
        else:
            low, high = (_first_beyond(grid, axis, place) for place in span)
            if nearest and low == high:
                ends = grid.ends(axis)
                low = int(np.searchsorted(ends, sum(span) / 2, "right")) - 1
                low = min(max(low, 0), grid.shape[axis] - 1)
                high = low + 1
            spans.append((low, high))
    return tuple(spans)


def _first_beyond(grid: Grid, axis: int, place: float) -> int:
    """Find the first point at or beyond a coordinate [m], by bisection."""

    def at(index: int) -> float:
        return float(grid.coordinates(axis, index, index + 1)[0])

    return bisect.bisect_left(range(grid.shape[axis]), place, key=at)


class Condition:
    """A condition in x, y, z: true where the value of its formula is not 0.

    Its surface is where one of its comparisons turns: there the difference of both sides is zero,
    and the gradient of that difference is the normal.

    Args:
        text: the formula.
        grid: where points lie.
        key: for messages.

    Raises:
        ConfigError: invalid expression, or, when it is called, the value is not finite.
    """

    def __init__(self, text: str, grid: Grid, key: str) -> None:
        try:
            self._expression = compile_expression(text, grid.axis_names)
        except ExpressionError as error:
            msg = f"{key}: {error}"
            raise ConfigError(msg) from error
        self._grid, self._key = grid, key
        self._coordinates = [grid.coordinates(axis) for axis in range(grid.ndim)]
        # a < b <= c turns where a - b or b - c does.
        self._differences = [
            (sign, Operation("subtract", pair))
            for node in walk(self._expression.tree)
            if isinstance(node, Comparison)
            for sign, pair in zip(node.signs, itertools.pairwise(node.operands), strict=True)
        ]

    def __call__(self, box: Box) -> Mask:
        """Whether it is true at the cell centres of a box."""
        found = np.empty(shape_of(box), np.bool_)
        if not self._decide(box, found):
            found[...] = self._at_points(box)  # raises for the first point of the box
        return found

    def _decide(self, box: Box, into: Mask) -> bool:
        """Fill in whether it is true. Boxes in which bounds of the formula decide are filled at
        once, others are halved, so that the work grows with the surface.

        Returns:
            Whether all values are finite.
        """
        ends = {
            name: (float(it[low]), float(it[high - 1]))
            for name, it, (low, high) in zip(
                self._grid.axis_names, self._coordinates, box, strict=True
            )
        }
        # If bounds exclude 0 (true) or are exactly 0 (false), the whole box is decided without
        # evaluating it.
        found = bounds_of(self._expression.tree, ends)
        if found is not None and (found[0] > 0 or found[1] < 0 or found == (0.0, 0.0)):
            into[...] = found != (0.0, 0.0)
            return True

        if into.size <= _EVALUATED:
            try:
                into[...] = self._at_points(box)
            except ConfigError:
                return False
            return True
        # Halve the longest axis, so that boxes stay compact and bounds tight.
        axis = int(np.argmax(into.shape))
        (low, _), half = box[axis], into.shape[axis] // 2
        parts = np.split(into, [half], axis)
        spans = ((low, low + half), (low + half, box[axis][1]))
        return all(
            self._decide((*box[:axis], span, *box[axis + 1 :]), part)
            for span, part in zip(spans, parts, strict=True)
        )

    def _at_points(self, box: Box) -> Mask:
        grid = self._grid
        at = dict(zip(grid.axis_names, positions(grid, box), strict=True))
        found = np.broadcast_to(np.asarray(self._expression(**at), np.float64), shape_of(box))
        if not np.isfinite(found).all():
            place, where = first_place(~np.isfinite(found), grid, box)
            msg = f"{self._key}: the expression is {found[place]} at {where}; it must be finite"
            raise ConfigError(msg)
        return np.not_equal(found, 0.0)

    def crossings(self, axis: int, below: Places) -> Crossings:
        """Where it turns on the lines from some cells to the next along an axis; see `Surfaces`."""
        low = [it[below[:, k]] for k, it in enumerate(self._coordinates)]
        high = [*low]
        high[axis] = self._coordinates[axis][below[:, axis] + 1]

        # Where several comparisons turn, on an edge, the mean of them stands for both.
        share, place, weight, turning = np.zeros((4, len(below)))
        for sign, difference in self._differences:
            with np.errstate(all="ignore"):
                # The difference at both centres; the surface lies where the line between them is 0.
                ends = [self._value(difference, at) for at in (low, high)]
                turns = np.not_equal(*(COMPARISONS[sign](it, 0.0) for it in ends))
                if not turns.any():
                    continue
                across = high[axis] - low[axis]
                at = low[axis] + across * np.clip(ends[0] / (ends[0] - ends[1]), 0.0, 1.0)
                point = [*low]
                point[axis] = at
                # A difference that jumps, as remainders do and whole numbers, is no line between.
                half = [*low]
                half[axis] = (low[axis] + high[axis]) / 2
                bent = abs(self._value(difference, half) - (ends[0] + ends[1]) / 2)
                if (jumps := turns & ~(bent <= _BENT * abs(ends[1] - ends[0]))).any():
                    ends_of = [it[jumps] for it in low], high[axis][jumps]
                    at[jumps] = self._turn(sign, difference, ends_of, axis)
                slopes = [
                    self._slope(difference, point, k) / self._grid.scale_at(k, below)
                    for k in range(len(low))
                ]
            # The gradient is the normal; its share along the axis is the true area per area of the
            # face.
            cut = crossings_of(np.stack(slopes), axis, at)
            share += np.where(turns, cut.share, 0.0)
            place += np.where(turns, cut.place, 0.0)
            weight += np.where(turns, cut.weight, 0.0)
            turning += turns
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = Crossings(share / turning, place / turning, weight / turning)
        return mean.where(turning > 0, aligned(len(below)))

    def at(self, places: Places) -> Mask:
        """Whether it is true at the centres of cells (n, ndim); not where it is not finite."""
        named = {
            name: it[places[:, k]]
            for k, (name, it) in enumerate(
                zip(self._grid.axis_names, self._coordinates, strict=True)
            )
        }
        with np.errstate(all="ignore"):
            found = np.asarray(self._expression(**named), np.float64)
        return np.broadcast_to(np.isfinite(found) & (found != 0), len(places))

    def _value(self, tree: Operation, at: list[Numbers]) -> Numbers:
        named = dict(zip(self._grid.axis_names, at, strict=True))
        return np.broadcast_to(np.asarray(evaluate(tree, named), np.float64), at[0].shape)

    def _turn(
        self, sign: str, tree: Operation, ends: tuple[list[Numbers], Numbers], axis: int
    ) -> Numbers:
        """Find where a comparison turns between two ends along an axis, by bisection."""
        # Invariant: the comparison holds at one end and not at the other.
        point, high = [*ends[0]], ends[1]
        low = point[axis]
        first = COMPARISONS[sign](self._value(tree, point), 0.0)
        for _ in range(_HALVINGS):
            point[axis] = (low + high) / 2
            same = np.equal(COMPARISONS[sign](self._value(tree, point), 0.0), first)
            low, high = np.where(same, point[axis], low), np.where(same, high, point[axis])
        return np.asarray((low + high) / 2)

    def _slope(self, tree: Operation, point: list[Numbers], axis: int) -> Numbers:
        step = _STEP * self._grid.spacing[axis]
        sides = []
        for sign in (1, -1):
            # Central difference with a step far below the spacing, so kinks nearby do not matter.
            moved = [*point]
            moved[axis] = point[axis] + sign * step
            sides.append(self._value(tree, moved))
        return np.asarray((sides[0] - sides[1]) / (2 * step))


def bounds_of(node: Node, ends: Mapping[str, Interval]) -> Interval | None:
    """Bounds of what a formula is at all points of a box, by interval arithmetic (R. E. Moore,
    Interval Analysis, 1966); None if a value may not be finite, or nothing is known.

    Sums, products and quotients are rounded correctly, so their bounds hold for rounded values too;
    those of other functions are widened.

    >>> tree = compile_expression("(x - 1)**2 + y < 4", ("x", "y")).tree
    >>> bounds_of(tree, {"x": (0.0, 2.0), "y": (1.0, 2.0)})
    (1.0, 1.0)
    >>> bounds_of(tree, {"x": (0.0, 3.0), "y": (1.0, 2.0)})
    (0.0, 1.0)

    Args:
        node: the formula.
        ends: of each variable.
    """
    match node:
        case Constant(value):
            return (value, value) if math.isfinite(value) else None
        case Variable(name):
            return ends[name]
        case Comparison(signs, operands):
            sides = [bounds_of(it, ends) for it in operands]
            links = (
                _bounds_of_comparison(sign, *pair)
                for sign, pair in zip(signs, itertools.pairwise(sides), strict=True)
            )
            return _both(*links)
        case Operation("and", arguments):
            return _both(*(_truth(bounds_of(it, ends)) for it in arguments))
        case Operation("or", arguments):
            return _turned(_both(*(_turned(_truth(bounds_of(it, ends))) for it in arguments)))
        case Operation("not", arguments):
            return _turned(_truth(bounds_of(arguments[0], ends)))

    given = [bounds_of(it, ends) for it in node.arguments]
    known = [it for it in given if it is not None]
    if len(known) < len(given) or node.name not in _BOUNDS:
        return None
    try:
        low, high = _BOUNDS[node.name](*known)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _bounds_of_comparison(sign: str, a: Interval | None, b: Interval | None) -> Interval:
    if a is None or b is None:
        return (0.0, 1.0)
    if sign in (">", ">="):
        sign, a, b = sign.replace(">", "<"), b, a
    if sign in ("<", "<="):
        # Rounding keeps order, so the corners decide.
        compare = COMPARISONS[sign]
        return float(compare(a[1], b[0])), float(compare(a[0], b[1]))
    # Equality is certain only between equal points, impossible only between disjoint intervals.
    same, apart = a[0] == a[1] == b[0] == b[1], a[1] < b[0] or b[1] < a[0]
    equal = (float(same), float(not apart))
    return equal if sign == "==" else _turned(equal)


def _truth(it: Interval | None) -> Interval:
    if it is None:
        return (0.0, 1.0)
    return (float(it[0] > 0 or it[1] < 0), float(it != (0.0, 0.0)))


def _both(*truths: Interval) -> Interval:
    return min(it[0] for it in truths), min(it[1] for it in truths)


def _turned(truth: Interval) -> Interval:
    return 1 - truth[1], 1 - truth[0]


def _widened(low: float, high: float) -> Interval:
    return low - _INEXACT * abs(low), high + _INEXACT * abs(high)


def _corners(of: Callable[[float, float], float]) -> Callable[[Interval, Interval], Interval]:
    """Bounds of what is monotone in each of two numbers."""

    def bounds(a: Interval, b: Interval) -> Interval:
        # A function that is monotone in each argument has its extremes at the corners.
        values = [of(x, y) for x in a for y in b]
        return min(values), max(values)

    return bounds


def _rising(of: Callable[[float], float]) -> Callable[[Interval], Interval]:
    return lambda a: _widened(of(a[0]), of(a[1]))


def _size(a: Interval) -> Interval:
    least = 0.0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))
    return least, max(abs(a[0]), abs(a[1]))


def _quotient(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        raise ZeroDivisionError
    return _corners(lambda x, y: x / y)(a, b)


def _power(a: Interval, b: Interval) -> Interval:
    if b[0] != b[1]:
        raise ValueError
    # A constant exponent: even powers by magnitude, roots of nonnegative numbers only, negative
    # ones as a quotient, which refuses intervals that hold 0.
    exponent = b[0]
    if exponent < 0:
        return _quotient((1.0, 1.0), _power(a, (-exponent, -exponent)))
    if exponent % 2 == 0:
        a = _size(a)
    elif exponent % 1 and a[0] < 0:
        raise ValueError
    return _widened(a[0] ** exponent, a[1] ** exponent)


def _distance(*given: Interval) -> Interval:
    sizes = [_size(it) for it in given]
    return _widened(math.hypot(*(it[0] for it in sizes)), math.hypot(*(it[1] for it in sizes)))


# What is missing here is not decided by bounds.
_BOUNDS: dict[str, Callable[..., Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _corners(lambda x, y: x * y),
    "divide": _quotient,
    "power": _power,
    "negative": lambda a: (-a[1], -a[0]),
    "positive": lambda a: a,
    "abs": _size,
    "hypot": _distance,
    "min": lambda *given: (min(it[0] for it in given), min(it[1] for it in given)),
    "max": lambda *given: (max(it[0] for it in given), max(it[1] for it in given)),
    "sqrt": _rising(math.sqrt),
    "exp": _rising(math.exp),
    "log": _rising(math.log),
    "log10": _rising(math.log10),
    "atan": _rising(math.atan),
    "tanh": _rising(math.tanh),
    "sinh": _rising(math.sinh),
    "floor": _rising(math.floor),
    "ceil": _rising(math.ceil),
    "sin": lambda _: (-1.0, 1.0),
    "cos": lambda _: (-1.0, 1.0),
    "atan2": lambda _, __: _widened(-math.pi, math.pi),
}
