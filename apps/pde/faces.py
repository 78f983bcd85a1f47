"""Faces of equations that are more than mirrors: walls that stop a flow, ghosts by polynomials.

A wall of type `no_flux` stops all that flows, whatever makes it flow. So a right-hand side is
written as the sum of the flows through the two faces of a point and of sources, and the flow
through a wall is left out: nothing is lost, to rounding. What is no divergence is refused.

Other faces give derivatives: the value and the slope of a clamped plate, the curvature, or nothing
at all. A field is then continued beyond its face by the polynomial that has these derivatives there
and goes through the nearest points, as many as the order of the operators. A formula that reads a
ghost reads this sum of points instead, so no kernel knows of it. The polynomials of a beam give
real and negative eigenvalues, whatever its ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn, Protocol

from tetris_sim.apps.pde.fluxes import (
    Reader,
    Space,
    flow_of,
    is_flux,
    only_flowing,
    parts_of,
    per_spacing,
)
from tetris_sim.apps.pde.operators import (
    area_weight,
    by_letters,
    mean_at_face,
    of_cell,
    share_at_face,
)
from tetris_sim.apps.pde.simplify import (
    ONE,
    Dependence,
    Hoist,
    Offset,
    Term,
    has_operators,
    over,
    scaled,
    spacing_name,
    times,
)
from tetris_sim.apps.time_functions import formula, names_in, substitute
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import (
    Boundary,
    Derivatives,
    Dirichlet,
    Face,
    Fixed,
    Neumann,
    NoFlux,
    Periodic,
    Robin,
)
from tetris_sim.model.conduction import RuledFace
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.stencils.entry import Row, extended

Givens = Mapping[tuple[int, int], tuple[Node | None, ...]]  # by axis and side


class Discretises(Reader, Protocol):
    """Also makes sums of formulas.

    Attributes:
        space: the grid, and how it is differentiated.
    """

    space: Space

    def terms(self, node: Node, offset: Offset) -> list[Term]:
        """A formula as a sum, at a point beside."""

    def read(self, name: str, offset: Offset, without: tuple[int, ...] = ()) -> Node:
        """A field beside the point; within the domain along the axes `without`."""

    def weighed(self, weigh: Callable[..., Node], axis: int, face: int, flow: Node) -> Node:
        """Weigh a flow through the face above (0) or below (-1) a point by the area of the face."""


@dataclass(frozen=True)
class Wall:
    """A face of the domain.

    Attributes:
        axis: array order.
        side: 0 or 1.
        ndim: number of axes.
        points: along the axis.
        low: where the axis begins [m].
        ends: the ends of the cells of a graded axis [m]; none of an even one.
        name: of the coordinate along the axis: r, theta or z, or that of the letter.
    """

    axis: int
    side: int
    ndim: int
    points: int
    low: float
    ends: tuple[float, ...] | None = None
    name: str = ""

    @staticmethod
    def of(grid: Grid, axis: int, side: int) -> Wall:
        """A face of a grid."""
        ends, name = grid.edges[axis] if grid.edges else None, grid.axis_names[axis]
        return Wall(axis, side, grid.ndim, grid.shape[axis], grid.bounds(axis)[0], ends, name)

    @property
    def letter(self) -> str:
        """The name of the axis."""
        return AXIS_NAMES[self.ndim - 1 - self.axis]

    def depths(self) -> tuple[float, float]:
        """How deep the centres of the two cells beside a face of a graded axis lie [m]."""
        assert self.ends is not None
        a, b, c = self.ends[:3] if self.side == 0 else self.ends[:-4:-1]
        return abs(b - a) / 2, abs((b + c) / 2 - a)

    def within(self, layers: int, hoist: Hoist) -> Comparison:
        """Whether a point is one of so many beside the face, in a program."""
        place = hoist.scalar(self.end(layers if self.side == 0 else self.points - layers))
        return Comparison(("<" if self.side == 0 else ">",), (Variable(self.name), place))

    def end(self, number: int) -> Node:
        """Where a cell along the axis begins [m], by its number."""
        if number == 0 or self.ends is not None:
            return Constant(self.ends[number] if self.ends is not None else self.low)
        # Points have the coordinates that the origin of the grid gives them.
        place = times(Constant(float(number)), Variable(spacing_name(self.letter)))
        return Operation("add", (Constant(self.low), place)) if self.low else place

    def beyond(self, offset: Offset) -> int:
        """How many layers of points see beyond the face at an offset."""
        return max(0, -offset[self.axis] if self.side == 0 else offset[self.axis])


def walls_of(boundary: Boundary, grid: Grid) -> tuple[Wall, ...]:
    """The faces through which nothing flows."""
    return tuple(
        Wall.of(grid, axis, side)
        for axis, pair in enumerate(boundary.faces)
        for side, face in enumerate(pair)
        if isinstance(face, NoFlux)
    )


def refuse_reading(right_sides: Mapping[str, Node], walls: Mapping[str, Sequence[Wall]]) -> None:
    """Raise where an equation reads a field beside a wall at which its own flow does not stop."""
    for name, tree in right_sides.items():
        for other, of_other in walls.items():
            if {*of_other} <= {*walls.get(name, ())} or not _reads_beside(tree, other):
                continue
            msg = (
                f"model.fields.{name}: an operator reads {other} beyond a face of type no_flux, "
                f"where it is not known; make this face no_flux for {name} too"
            )
            raise ConfigError(msg)


def _reads_beside(tree: Node, name: str) -> bool:
    """Whether an operator reads a field."""
    return any(
        isinstance(it, Operation) and it.name not in OPERATIONS and name in names_in(it)
        for it in walk(tree)
    )


# Flows: a right-hand side as what flows through the faces of a point.


def stopped(tree: Node, name: str, walls: Sequence[Wall], by: Discretises) -> list[Term]:
    """The right-hand side of a field, whose flows stop at walls.

    Raises:
        ConfigError: a part of it is no divergence.
    """
    ndim, made = walls[0].ndim, _Flows(name, walls, by)
    terms: list[Term] = []
    flows: dict[int, list[tuple[Node, Node, Node]]] = {}
    for before, part in parts_of(tree, by.hoist):
        # Frozen fluxes are changes already, and only ask for the step.
        frozen = by.space.frozen and isinstance(part, Operation) and is_flux(part.name)
        if not has_operators(part) or frozen or made.passes(part):
            terms += scaled(by.terms(part, (0,) * ndim), before)
            continue
        for axis in range(ndim):
            pair = [made.through(part, axis, face) for face in (-1, 0)]
            if pair[0] is not None and pair[1] is not None:
                flows.setdefault(axis, []).append((before, pair[0], pair[1]))

    # All that flows through a face is added up before the wall stops it, so what one point loses
    # the next one gains, to the last bit.
    for axis, found in flows.items():
        sides = []
        for side in (0, 1):
            trees = [Operation("multiply", (it[0], it[1 + side])) for it in found]
            total = functools.reduce(lambda a, b: Operation("add", (a, b)), trees)
            flow = by.build(total, (0,) * ndim)
            for wall in () if by.space.frozen else walls:
                if (wall.axis, wall.side) == (axis, side):
                    flow = Operation("where", (wall.within(1, by.hoist), Constant(0.0), flow))
            sides.append(flow)
        letter, curved = AXIS_NAMES[ndim - 1 - axis], by.space.system.is_curved
        # Around an axis it crosses the exact area of the face.
        if curved:
            sides = [by.weighed(area_weight, axis, k - 1, it) for k, it in enumerate(sides)]
        change: Node = Operation("subtract", (sides[1], sides[0]))
        if letter in by.space.uneven and not curved:
            width = by.build(of_cell(letter, "width"), (0,) * ndim)
            change = Operation("multiply", (width, change))
        terms.append(Term(per_spacing((letter,)), change))
    return terms


@dataclass(frozen=True)
class _Flows:
    """Flows along an axis, whose differences an operator is; as formulas of names.

    Attributes:
        name: of the field, for messages.
        walls: that stop it.
        by: builds formulas.
    """

    name: str
    walls: Sequence[Wall]
    by: Discretises

    def passes(self, part: Node) -> bool:
        """Whether a part is no divergence because its axes are round, and meets no wall."""
        if not self.by.space.system.is_curved or not isinstance(part, Operation):
            return False
        # Slopes along r and angles are divergences where the areas of faces are equal, not here.
        names = self.by.space.system.axes
        slope = by_letters(part, AXIS_NAMES[: len(names)], names)
        along = {it for it in names if it in part.name} if slope is not None else {*names}
        if not along - {"z"} or (slope is None and part.name != "advect"):
            return False
        if along & {wall.name for wall in self.walls}:
            self._refuse()
        return True

    def through(self, part: Node, axis: int, face: int) -> Node | None:
        """The flow through the face between the points `face` and `face` + 1; None for nothing.

        Raises:
            ConfigError: the part is no divergence.
        """
        ndim = self.walls[0].ndim
        letter = AXIS_NAMES[ndim - 1 - axis]
        if not isinstance(part, Operation) or part.name in OPERATIONS:
            self._refuse()
        if self.by.space.system.is_curved:
            part = by_letters(part, AXIS_NAMES[:ndim], self.by.space.system.axes) or part
        name, _, option = part.name.partition("(")
        of = part.arguments[0]

        # What flows through a face is known of divergences only; anything else is refused.
        if is_flux(name):
            flow = flow_of(part, axis, self.by)
            return None if flow is None else self.by.hold(flow.through(face))
        if name in ("laplace", "biharmonic"):
            inner = of if name != "biharmonic" else Operation("laplace", (of,))
            return self._slope(inner, axis, face)
        if name == "div_grad":
            mean, harmonic = self._mean(of, axis, face), option == "mean=harmonic)"
            share = share_at_face(letter, face, self.by.space.uneven)
            if harmonic or share is not None:
                ends = [self._at(of, axis, face + j) for j in (0, 1)]
                mean = mean_at_face((ends[0], ends[1]), share, harmonic=harmonic)
            slope = self._slope(part.arguments[1], axis, face)
            return Operation("multiply", (mean, slope))
        if name == "advect":
            return self._carried(part, axis, face)

        # dx, dxx and dxy: only those along the axis of the wall cross it.
        letters = name[1:]
        if name[0] != "d" or not {*letters} <= {*AXIS_NAMES[:ndim]}:
            self._refuse()
        if len(letters) == 1 or letters[0] == letters[1]:
            if letters[0] != letter:
                return None
            if len(letters) == 2:
                return self._slope(of, axis, face)
            return self._carried_on(of, axis, face, letter)
        return self._crossing(letters, of, axis, face)

    def _refuse(self) -> NoReturn:
        msg = (
            f"model.fields.{self.name}: its face of type no_flux stops flows, and a part of the "
            "equation with operators is not the divergence of one; write it as laplace(...), "
            "div_grad(...), dx(...) or flux(...), with constants alone before it (around an axis "
            "flux(...), not a slope along r)"
        )
        raise ConfigError(msg)

    def _carried_on(self, of: Node, axis: int, face: int, letter: str) -> Node:
        """The flow of dx(of): what is a slope itself is taken on the face."""
        hoist = self.by.hoist
        # A central difference of a central difference would read twice as far, and the ghosts of a
        # field whose slope on the wall is not known.
        total: Node = Constant(0.0)
        for before, part in parts_of(of, hoist):
            flow: Node

            if isinstance(part, Operation) and part.name == f"d{letter}":
                flow = self._slope(part.arguments[0], axis, face)
            else:
                flowing, rest = only_flowing(part, hoist) if has_operators(part) else (None, [])
                if isinstance(flowing, Operation) and flowing.name == f"d{letter}":
                    factor: Node = ONE
                    for it, divides in rest:
                        factor = over(factor, it) if divides else times(factor, it)
                    slope = self._slope(flowing.arguments[0], axis, face)
                    flow = Operation("multiply", (self._mean(factor, axis, face), slope))
                else:
                    flow = self._mean(part, axis, face)
            total = Operation("add", (total, Operation("multiply", (before, flow))))
        return total

    def _crossing(self, letters: str, of: Node, axis: int, face: int) -> Node | None:
        """The flow of a mixed derivative, along the axis that has a wall."""
        ndim = self.walls[0].ndim
        walled = {AXIS_NAMES[ndim - 1 - wall.axis] for wall in self.walls} & {*letters}
        if len(walled) > 1:
            msg = (
                f"model.fields.{self.name}: d{letters} flows along both axes, and both have faces "
                f"of type no_flux; write dx(...) + dy(...) of what flows along each"
            )
            raise ConfigError(msg)
        # The order of the derivatives does not matter; the outer one is along the wall's normal.
        along = next(iter(walled), letters[0])
        if AXIS_NAMES[ndim - 1 - axis] != along:
            return None
        other = letters.replace(along, "", 1)
        return self._mean(Operation(f"d{other}", (of,)), axis, face)

    def _carried(self, part: Operation, axis: int, face: int) -> Node:
        """The flow of advect at constant speeds."""
        *speeds, of = part.arguments
        speed = speeds[self.walls[0].ndim - 1 - axis]
        if any(self.by.hoist.kind(it) is not Dependence.SCALAR for it in speeds):
            msg = (
                f"model.fields.{self.name}: advect at speeds that vary is not the divergence of a "
                "flow, which a face of type no_flux could stop; write flux(v*c, c) for advect(v, c)"
            )
            raise ConfigError(msg)
        if self.by.space.advection == "central":
            return Operation("multiply", (speed, self._mean(of, axis, face)))
        ends = {k: self._at(of, axis, face + j) for j, k in enumerate("ab")}
        return formula("max(v, 0)*a + min(v, 0)*b", v=speed, **ends)

    def _at(self, node: Node, axis: int, shift: int) -> Node:
        """A formula at a point, as a name."""
        if self.by.hoist.kind(node) is Dependence.SCALAR:
            return node
        offset = tuple(shift if k == axis else 0 for k in range(self.walls[0].ndim))
        made = self.by.leaf(node, offset) if has_operators(node) else self.by.build(node, offset)
        return self.by.hold(made)

    def _slope(self, of: Node, axis: int, face: int) -> Node:
        letter = AXIS_NAMES[self.walls[0].ndim - 1 - axis]
        near, far = "(b - a)/h", "(27*(b - a) - (d - c))/(24*h)"
        h: Node = Variable(spacing_name(letter))
        # Along an angle it is one by the length of the arc.
        if self.by.space.system.axes[self.walls[0].ndim - 1 - axis] == "theta":
            h = times(h, Variable("r"))
        if letter not in self.by.space.uneven:
            return self._staggered(of, axis, face, near, far, h=h)
        g = of_cell(letter, "+" if face == 0 else "-")
        return self._staggered(of, axis, face, "g*(b - a)/h", "", h=h, g=g)

    def _mean(self, of: Node, axis: int, face: int) -> Node:
        # Of what is carried halves on unequal cells too: so its waves swing, and do not grow.
        return self._staggered(of, axis, face, "(a + b)/2", "(9*(a + b) - (c + d))/16")

    def _staggered(self, of: Node, axis: int, face: int, near: str, far: str, **more: Node) -> Node:
        """A slope or mean at a face; beside walls of the second order, which reads no ghost."""
        ends = {k: self._at(of, axis, face + j) for k, j in (("a", 0), ("b", 1))}
        first = formula(near, **ends, **more)
        if self.by.space.accuracy == 2:
            return first
        ends |= {k: self._at(of, axis, face + j) for k, j in (("c", -1), ("d", 2))}
        found = formula(far, **ends, **more)
        for wall in () if self.by.space.frozen else self.walls:
            if wall.axis == axis:
                layers = 1 - face if wall.side == 0 else 2 + face
                inside = self.by.hold(wall.within(layers, self.by.hoist))
                found = Operation("where", (inside, first, found))
        return found


# Closures: ghosts as sums of the points beside a face and of what is given there.


@dataclass(frozen=True, eq=False)
class Closure:
    """How a field goes on beyond a face.

    Attributes:
        wall: the face.
        rows: of each condition what it says of the derivatives, in units of the spacing.
        given: of each condition what that is; None for 0.
        points: how many beside the face the polynomial goes through.
        orders: of the derivatives that are given, of a face that gives nothing else.
        mirror: the face, where its ghosts are mirror images.
    """

    wall: Wall
    rows: tuple[Row, ...]
    given: tuple[Node | None, ...]
    points: int
    orders: tuple[int, ...] | None = None
    mirror: Dirichlet | Neumann | Robin | None = None
    spacing: float = 1.0

    @functools.cache  # noqa: B019  (one for each problem, and gone with it)
    def weights(self, ghost: int) -> tuple[tuple[float, ...], dict[int, float]]:
        """Of ghost number 1, 2, ...: the weights of what is given, and of points by number."""
        if self.mirror is not None:
            a, b = self.mirror.reflection((2 * ghost - 1) * self.spacing)
            return (a,), {ghost - 1: b}
        return extended(self.rows, self.points, Fraction(1 - 2 * ghost, 2))

    def read(
        self, name: str, offset: Offset, by: Discretises, without: tuple[int, ...] = ()
    ) -> Node:
        """A field at an offset that may lie beyond the face."""
        layers, without = self.wall.beyond(offset), (*without, self.wall.axis)
        found = by.read(name, offset, without)
        # From the layer that is farthest from the face to the first.
        for layer in range(layers - 1, -1, -1):
            inside = self.wall.within(layer + 1, by.hoist)
            ghost = self._ghost(name, offset, layer, by, without)
            found = Operation("where", (inside, ghost, found))
        return found

    def _ghost(
        self, name: str, offset: Offset, layer: int, by: Discretises, without: tuple[int, ...]
    ) -> Node:
        """A ghost, seen from a point of so many layers between itself and the face."""
        of_given, of_points = self.weights(self.wall.beyond(offset) - layer)
        sign = 1 if self.wall.side == 0 else -1

        def beside(number: int) -> Offset:
            moved = sign * (number - layer)
            return tuple(moved if k == self.wall.axis else shift for k, shift in enumerate(offset))

        # The polynomial through the conditions on the face and the points beside it.
        total: Node = Constant(0.0)
        for number, weight in of_points.items():
            read = by.hold(by.read(name, beside(number), without))
            total = formula("t + k*u", t=total, k=Constant(weight), u=read)
        for weight, given in zip(of_given, self.given, strict=True):
            if given is not None:
                there = by.hold(self._on_face(given, beside, by))
                total = formula("t + k*g", t=total, k=Constant(weight), g=there)
        return by.build(total, (0,) * self.wall.ndim)

    def _on_face(self, given: Node, beside: Callable[[int], Offset], by: Discretises) -> Node:
        """A formula on the face; of fields the polynomial through the points beside."""
        put: dict[str, Node] = {}
        for name in names_in(given):
            if by.is_field(name):
                _, weights = extended((), max(2, self.points), Fraction(0))
                if self.wall.ends is not None:
                    near, far = self.wall.depths()
                    weights = {0: far / (far - near), 1: near / (near - far)}
                parts = [
                    times(
                        Constant(weight),
                        by.hold(by.read(name, beside(number), (self.wall.axis,))),
                    )
                    for number, weight in weights.items()
                ]
                put[name] = functools.reduce(lambda a, b: Operation("add", (a, b)), parts)

        # On the face its own coordinate is a number, at which no point lies.
        put[self.wall.name] = self.wall.end(self.wall.side * self.wall.points)
        along = [0 if k == self.wall.axis else shift for k, shift in enumerate(beside(0))]
        return by.build(substitute(given, put), tuple(along))


def closures_of(
    name: str, boundary: Boundary, grid: Grid, accuracy: int, given: Givens
) -> tuple[Closure, ...]:
    """How a field goes on beyond those of its faces that are more than mirrors.

    Args:
        name: of the field, for messages.
        boundary: its faces.
        grid: the points.
        accuracy: order of the operators.
        given: formulas instead of the numbers of faces.

    Raises:
        ConfigError: the grid is too small.
    """
    # Faces of numbers at accuracy 2 are mirrors, which kernels fill themselves.
    found = []
    for axis, pair in enumerate(boundary.faces):
        for side, face in enumerate(pair):
            wall = Wall.of(grid, axis, side)
            formulas = given.get((axis, side))
            if isinstance(face, NoFlux | Periodic | Fixed | RuledFace):
                continue
            if not isinstance(face, Derivatives) and accuracy == 2 and formulas is None:
                continue

            # Both ends of an axis have points of their own.
            if wall.points < 2 * max(2, accuracy):
                msg = (
                    f"grid.shape: {wall.points} points along {wall.letter} are too few for the "
                    f"faces of {name}, whose ghosts follow from {max(2, accuracy)} of them; take "
                    f"{2 * max(2, accuracy)} or more"
                )
                raise ConfigError(msg)
            found.append(_closure(face, wall, grid.spacing[axis], accuracy, formulas))
    return tuple(found)


def _closure(
    face: Face, wall: Wall, spacing: float, accuracy: int, formulas: tuple[Node | None, ...] | None
) -> Closure:
    """How a field goes on beyond one face."""
    h = Variable(spacing_name(wall.letter))
    if isinstance(face, Derivatives):
        # Outwards is against the count of points: odd derivatives change their sign.
        values = formulas or tuple(Constant(it) if it else None for it in face.values)
        scaled_by = [times(*[h] * k, Constant((-1.0) ** k)) for k in face.orders]
        whole = zip(scaled_by, values, strict=True)
        given = tuple(it and times(by, it) for by, it in whole)
        rows = tuple({k: Fraction(1)} for k in face.orders)
        # One condition or none is for equations of second order, which see the curvature beside
        # the face; two are for those of fourth order.
        points = accuracy + 1 if len(face.orders) < 2 else accuracy
        return Closure(wall, rows, given, points, face.orders)

    if accuracy == 2:
        unit: Dirichlet | Neumann | Robin = Dirichlet(1.0)
        if isinstance(face, Neumann):
            unit = Neumann(1.0, face.conductivity)
        elif isinstance(face, Robin):
            unit = Robin(face.h, 1.0, face.conductivity)
        return Closure(wall, (), formulas or (), 1, mirror=unit, spacing=spacing)
    scale: Node
    match face:
        case Dirichlet(value=value):
            row, number, scale = {0: Fraction(1)}, value, ONE
        case Neumann(flux=value, conductivity=k):
            row, number, scale = {1: Fraction(1)}, value, times(h, Constant(-1 / k))
        case Robin(h=film, ambient=value, conductivity=k):
            row = {0: Fraction(film), 1: -Fraction(k) / Fraction(spacing)}
            number, scale = value, Constant(film)
        case _:
            raise TypeError(face)
    (there,) = formulas or (Constant(number) if number else None,)
    # An error of a value on the face weighs a spacing less than one of a slope.
    points = accuracy - 1 if isinstance(face, Dirichlet) else accuracy
    return Closure(wall, (row,), (there and times(scale, there),), points)
