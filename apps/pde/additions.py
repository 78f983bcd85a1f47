"""Additions to the equations of a user: signals at points that lie anywhere, and absorbing layers.

A source of a signal s(t) at a place adds s(t) w/V to the equation of its field, with V the volume
of a cell and w the weights of the interpolation at that place, which sum to 1: the integral of what
is added is s(t). They are those of a probe, so where the operator is symmetric, as `laplace(u)` and
`div_grad(k, u)` are, a source and a probe may change places: what is recorded stays the same to
rounding (reciprocity).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from tetris_sim.apps.boundaries import find_face
from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.pde.complex import Part
from tetris_sim.apps.pde.language import Language, Mistake, read_constant
from tetris_sim.apps.pde.schemes import velocity_of
from tetris_sim.apps.pde.simplify import scalar_value
from tetris_sim.apps.time_functions import TIME, formula, names_in, substitute
from tetris_sim.config.sections.conditions import FaceCondition, PeriodicFace
from tetris_sim.config.sections.grid import AxisName, GridSection
from tetris_sim.config.sections.quantities import Position, Section
from tetris_sim.config.sections.schema import POINTS_AROUND, Interpolation
from tetris_sim.model.boundary import Boundary, Neumann, Periodic
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    ExpressionError,
    Node,
    Operation,
    Variable,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.slab import Ranges
from tetris_sim.support.wording import listed, suggestion

_SPREAD = "@source"  # before the number of an array of weights


class PointSource(Section):
    """A signal over time at a point, which may lie between those of the grid."""

    field: str
    """To whose equation it is added; of second_order to the second derivative by time."""
    at: Annotated[tuple[Position, ...], Field(min_length=1, max_length=3)]
    """Position along x, y, z, or along the axes of the grid [m]."""
    signal: str
    """A formula of t and constants: the integral over the grid of what is added."""
    interpolation: Interpolation = "linear"
    """How it is spread over the points around: with the weights of a probe, linear or cubic."""


def source_mistakes(
    sources: Sequence[PointSource],
    grid: GridSection,
    fields: Mapping[str, bool],
    language: Language,
) -> Iterator[Mistake]:
    """Yield what is wrong with the sources of some equations.

    Args:
        sources: as written.
        grid: whose box they lie in.
        fields: whether each is complex.
        language: of signals.
    """
    for number, it in enumerate(sources):
        path: KeyPath = ("model", "point_sources", number)
        if it.field not in fields:
            told = f"there is no field {it.field!r}{suggestion(it.field, fields)}; "
            yield (*path, "field"), f"{told}{listed(sorted(fields))} is there", None
        if len(it.at) != len(grid.names):
            told = f"it has {len(it.at)} entries; the grid has {len(grid.names)} axes"
            yield (*path, "at"), told, None

        for k, (axis, place, (low, high)) in enumerate(
            zip(grid.names, it.at, grid.bounds, strict=False)
        ):
            # Positions on faces may be off by a rounding.
            slack = 1e-9 * (high - low)
            if not low - slack <= place <= high + slack:
                unit = grid.system.unit(axis)
                told = f"the box of the grid reaches from {low:g} to {high:g} {unit} along {axis}"
                yield (*path, "at", k), told, None
        # Of a complex field both parts of a signal count, of any other one it has to be real.
        before = "real(" if fields.get(it.field) else ""
        try:
            names = names_in(language.read_face(f"{before}{it.signal}{')' if before else ''}"))
        except ExpressionError as error:
            yield (*path, "signal"), error.message, max(1, error.column - len(before))
            continue
        if others := sorted(names - {TIME, *language.numbers}):
            told = f"it has {others[0]}; a signal is a formula of t and constants"
            yield (*path, "signal"), told, None


def real_sources(
    sources: Sequence[PointSource], parts: Mapping[str, tuple[str, Part]]
) -> list[PointSource]:
    """The sources of fields of real numbers.

    Args:
        sources: as written.
        parts: which part of which complex field a name is.
    """
    found = [it for it in sources if it.field not in {of for of, _ in parts.values()}]
    for name, (of, which) in parts.items():
        found += [
            it.model_copy(update={"field": name, "signal": f"{which}({it.signal})"})
            for it in sources
            if it.field == of
        ]
    return found


def with_sources(
    trees: Mapping[str, Node],
    sources: Sequence[PointSource],
    grid: Grid,
    boundaries: Mapping[str, Boundary],
    language: Language,
) -> tuple[dict[str, Node], dict[str, Callable[[Ranges], Numbers]]]:
    """The right-hand sides with signals, and the arrays that these are multiplied by.

    Args:
        trees: by field.
        sources: of fields of real numbers.
        grid: the points.
        boundaries: by field.
        language: of signals.
    """
    # Sources of one signal share an array, whose length is that of the grid.
    alike: dict[tuple[str, Node], list[PointSource]] = {}
    for it in sources:
        alike.setdefault((it.field, language.read_face(it.signal)), []).append(it)

    # Each array is a coefficient like one of the user's, so no kernel knows of points.
    found = dict(trees)
    arrays: dict[str, Callable[[Ranges], Numbers]] = {}
    for number, ((of, signal), group) in enumerate(alike.items(), 1):
        name = f"{_SPREAD}{number}"
        arrays[name] = _spread(group, grid, boundaries[of])
        pushed = Operation("multiply", (signal, Variable(name)))
        found[of] = Operation("add", (found[of], pushed))
    return found, arrays


Weights = list[tuple[tuple[int, ...], tuple[float, ...]]]  # by axis, of one source


def _spread(
    sources: Sequence[PointSource], grid: Grid, boundary: Boundary
) -> Callable[[Ranges], Numbers]:
    """The weights of some sources at all points, by the volumes of cells."""
    every: list[Weights] = []
    for it in sources:
        count = POINTS_AROUND[it.interpolation]
        every.append(
            [
                grid.interpolation(axis, place, points=count, periodic=boundary.periodic(axis))
                for axis, place in enumerate(it.at[::-1])
            ]
        )
    return functools.partial(_weights_in, every, grid)


def _weights_in(every: Sequence[Weights], grid: Grid, box: Ranges) -> Numbers:
    found = np.zeros([high - low for low, high in box])
    for axes in every:
        product = np.ones(())
        for (indices, weights), (low, high) in zip(axes, box, strict=True):
            along = np.zeros(high - low)
            # Around a periodic seam of a short axis a point may be met twice.
            for index, weight in zip(indices, weights, strict=True):
                if low <= index < high:
                    along[index - low] += weight
            product = np.multiply.outer(product, along)
        found += product
    return found / (grid.cell_volume if grid.is_even else grid.volumes(box))


# Layers along faces that absorb waves.
#
# A sponge adds -z u to first derivatives by time and -2 z du/dt to second ones; z rises from 0 at
# the inner edge of the layer, so that a wave of speed c is damped by exp(-integral of z/c). In a
# perfectly matched layer derivatives along the axis are stretched instead, d/dx -> s/(s + z) d/dx
# for waves exp(s t), which reflects nothing but what differences make of it: with the fields q and
# r of
#     q' = -z (q + du/dx),  r' = -z (r + d2u/dx2 + dq/dx)
# du/dx becomes du/dx + q, and d2u/dx2 becomes d2u/dx2 + dq/dx + r (D. Komatitsch, R. Martin,
# Geophysics 72 (2007) SM155; D. Pasalic, R. McGarry, SEG Expanded Abstracts 29 (2010) 2925). They
# are 0 outside of layers.

_POWER = 3  # of the profile of z
_REFLECTION = {"sponge": 1e-4, "pml": 1e-8}


class AbsorbingLayer(Section):
    """A layer along a face that absorbs waves."""

    kind: Literal["pml", "sponge"] = "pml"
    """pml: a perfectly matched layer, with auxiliary fields, for `laplace`, `div_grad` and
    derivatives; sponge: damping, for all equations.
    """
    cells: Annotated[int, Field(ge=2, le=10_000)]
    """Its width in points of the grid."""
    speed: Annotated[float | str, BeforeValidator(read_constant)]
    """The largest speed of waves in it, a number or a formula of constants."""
    reflection: Annotated[float, Field(gt=0, lt=1)] | None = None
    """What should come back of a wave that goes straight through, by amplitude, if there were no
    differences; 1e-8 of a pml, 1e-4 of a sponge if not given.
    """


def layer_mistakes(
    layers: Mapping[str, AbsorbingLayer],
    grid: GridSection,
    boundaries: Mapping[str, FaceCondition],
    language: Language,
    trees: Mapping[str, Node],
) -> Iterator[Mistake]:
    """Yield what is wrong with absorbing layers."""
    path: KeyPath = ("model", "absorbing")
    if layers and grid.graded:
        yield path, "its layers are as wide as so many equal cells; leave grid.graded out", None
        return
    if layers and grid.system.is_curved:
        yield path, f"it is for straight axes, without grid.coordinates: {grid.coordinates}", None
        return
    for name, it in layers.items():
        if name != "*" and name.rstrip("+-") not in grid.names:
            yield (*path, name), f"the grid has no axis {name.rstrip('+-')}", None
        try:
            names = names_in(language.read_face(str(it.speed)))
        except ExpressionError as error:
            yield (*path, name, "speed"), str(error), error.column
            continue
        if names - language.numbers.keys():
            yield (*path, name, "speed"), "it is a number, or a formula of constants", None
        elif not scalar_value(language.read_face(str(it.speed)), language.numbers) > 0:
            yield (*path, name, "speed"), "a speed greater than 0 is wanted", None

    for axis, n in zip(grid.names, grid.shape, strict=True):
        keys = [key for sign in "-+" if (key := find_face(layers, axis + sign))]
        face = find_face(boundaries, f"{axis}-")
        if face is not None and isinstance(boundaries[face], PeriodicFace):
            # `*` means the faces that there are.
            told = f"{axis} is periodic, so it has no faces"
            yield from (((*path, key), told, None) for key in {*keys} - {"*"})
            continue
        if sum(layers[key].cells for key in keys) >= n:
            yield (*path, keys[0], "cells"), f"nothing is left of the {n} points along {axis}", None
    if any(it.kind == "pml" for it in layers.values()):
        known = {*_FIRST, *_SECOND, *_MIXED, "laplace", "div_grad"}
        for of, tree in trees.items():
            for part in walk(tree):
                if isinstance(part, Operation) and part.name not in {*known, *OPERATIONS}:
                    told = f"{part.name} of {of} is not known in a pml; take kind: sponge"
                    yield path, told, None


_FIRST = {f"d{axis}" for axis in AXIS_NAMES}
_SECOND = {f"d{axis}{axis}" for axis in AXIS_NAMES}
_MIXED = {f"d{a}{b}" for a, b in itertools.combinations(AXIS_NAMES, 2)}


@dataclass
class _Matched:
    """Stretches derivatives along axes with layers.

    Attributes:
        rates: z by axis.
        halves: of a spacing, by axis, where differences are of second order; else empty.
        fields: the right-hand sides of auxiliary fields, by name.
    """

    rates: Mapping[str, Node]
    halves: Mapping[str, Node]
    fields: dict[str, Node] = field(default_factory=dict)
    _known: dict[Node, Node] = field(default_factory=dict)

    def stretch(self, tree: Node) -> Node:
        """A formula with what layers add to its derivatives."""
        if isinstance(tree, Comparison):
            return replace(tree, operands=tuple(map(self.stretch, tree.operands)))
        if not isinstance(tree, Operation):
            return tree
        inner = replace(tree, arguments=tuple(map(self.stretch, tree.arguments)))
        if inner.name in OPERATIONS:
            return inner
        # Equal derivatives share their fields.
        if inner not in self._known:
            self._known[inner] = self._stretched(inner)
        return self._known[inner]

    def _stretched(self, tree: Operation) -> Node:
        *coefficient, of = tree.arguments
        if tree.name in _MIXED:
            inner = Operation(f"d{tree.name[2]}", (of,))
            return self.stretch(Operation(f"d{tree.name[1]}", (inner,)))
        if tree.name in _FIRST:
            axis = tree.name[1]
            return tree if axis not in self.rates else _plus(tree, self._memory(axis, tree))
        found: Node = tree
        for axis in self.rates if tree.name in ("laplace", "div_grad") else tree.name[1]:
            if axis not in self.rates:
                continue
            # Of second order everything lies where the differences of `laplace` have it, on faces.
            there, back = ("_plus", "_minus") if self.halves else ("", "")

            slope = Operation(f"d{axis}{there}", (of,))
            flow = self._memory(axis, slope, self.halves.get(axis))
            second: Node = Operation(f"d{axis}{axis}", (of,))
            for k in coefficient:
                rise = Operation(f"d{axis}{there}", (k,))
                if self.halves:
                    half = formula("k + s*h", k=k, s=rise, h=self.halves[axis])
                    second = Operation(f"d{axis}{back}", (formula("k*s", k=half, s=slope),))
                    flow = formula("k*q", k=half, q=flow)
                    continue
                second = formula("k*u + s*f", k=k, u=second, s=rise, f=slope)
                flow = formula("k*q", k=k, q=flow)
            more = Operation(f"d{axis}{back}", (flow,))
            found = _plus(found, _plus(more, self._memory(axis, _plus(second, more))))
        return found

    def _memory(self, axis: str, of: Node, beyond: Node | None = None) -> Node:
        """The field q of q' = -z (q + ...); at a distance beyond the points, if one is given."""
        name = f"pml_{axis}{1 + sum(it.startswith(f'pml_{axis}') for it in self.fields)}"
        own = Variable(name)
        rate = self.rates[axis]
        if beyond is not None:
            rate = substitute(rate, {axis: _plus(Variable(axis), beyond)})
        self.fields[name] = formula("-z*(q + u)", z=rate, q=own, u=of)
        return own


def mirrored(boundary: Boundary) -> Boundary:
    """The faces of auxiliary fields, which are periodic where others are."""
    return Boundary(
        tuple(
            (low, high) if isinstance(low, Periodic) else (Neumann(), Neumann())
            for low, high in boundary.faces
        )
    )


def _plus(a: Node, b: Node) -> Node:
    return Operation("add", (a, b))


def with_layers(
    trees: Mapping[str, Node],
    second: Collection[str],
    layers: Mapping[str, AbsorbingLayer],
    grid: Grid,
    language: Language,
    accuracy: int,
    boundary: Boundary,
) -> tuple[dict[str, Node], dict[str, Node]]:
    """The right-hand sides with layers, and those of their auxiliary fields.

    Args:
        trees: by field, of those that change with time.
        second: fields with equations of second order.
        layers: by face.
        grid: the points.
        language: of speeds.
        accuracy: order of the differences.
        boundary: of any field, for axes that are periodic.
    """
    halves = {axis: Constant(h / 2) for axis, h in zip(grid.axis_names, grid.spacing, strict=True)}
    periodic = [it for k, it in enumerate(grid.axis_names) if boundary.periodic(k)]
    rates = {kind: _rates(layers, kind, grid, language, periodic) for kind in _REFLECTION}
    matched, found = _Matched(rates["pml"], halves if accuracy == 2 else {}), dict(trees)
    if rates["pml"]:
        found = {name: matched.stretch(tree) for name, tree in found.items()}
    if not rates["sponge"]:
        return found, matched.fields

    z = functools.reduce(_plus, rates["sponge"].values())
    for name, tree in found.items():
        text = "f - 2*z*v" if name in second else "f - z*u"
        parts = {"f": tree, "z": z, "u": Variable(name), "v": Variable(velocity_of(name))}
        found[name] = formula(text, **{key: it for key, it in parts.items() if key in text})
    return found, matched.fields


def _rates(
    layers: Mapping[str, AbsorbingLayer],
    kind: str,
    grid: Grid,
    language: Language,
    periodic: Collection[str],
) -> dict[str, Node]:
    """The rates z by axis, from the layers of a kind: they grow with the third power of depth."""
    found: dict[str, Node] = {}
    for number, axis in enumerate(grid.axis_names):
        for side, sign in enumerate("-+"):
            key = find_face(layers, axis + sign)
            if key is None or layers[key].kind != kind or axis in periodic:
                continue

            it = layers[key]
            width = it.cells * grid.spacing[number]
            # A wave is damped by exp(-integral of z/c) on each of its two ways.
            through = math.log(1 / (it.reflection or _REFLECTION[kind])) / 2
            speed = scalar_value(language.read_face(str(it.speed)), language.numbers)
            depth = "(low + w - x)/w" if side == 0 else "(x - low + w)/w"
            rate = formula(
                f"m*clip({depth}, 0, 1)**3",
                m=Constant((_POWER + 1) * speed * through / width),
                w=Constant(width),
                low=Constant(grid.bounds(number)[side]),
                x=Variable(axis),
            )
            found[axis] = rate if axis not in found else _plus(found[axis], rate)
    return found


# Grids that move.


class MovingFrame(Section):
    """A grid that moves at constant velocity; x, y and z are places on it."""

    velocity: dict[AxisName, Annotated[float | str, BeforeValidator(read_constant)]]
    """By axis [m/s]: numbers or formulas of constants."""


def frame_mistakes(
    frame: MovingFrame | None,
    grid: GridSection,
    language: Language,
    second: Sequence[str],
    *,
    matched: bool,
) -> Iterator[Mistake]:
    """Yield what is wrong with a moving grid.

    Args:
        frame: as written.
        grid: the section.
        language: of velocities.
        second: fields with equations of second order.
        matched: whether there is a pml.
    """
    path: KeyPath = ("model", "frame")
    if frame is None:
        return
    if grid.system.is_curved:
        yield path, f"it is for straight axes, without grid.coordinates: {grid.coordinates}", None
    if second:
        told = (
            f"{second[0]} has second_order, whose velocity would be that seen from the grid; "
            "write it as two equations of first order"
        )
        yield path, told, None
    if matched:
        yield path, "a pml is for grids that do not move; take kind: sponge", None

    for axis, it in frame.velocity.items():
        if axis not in grid.names:
            yield (*path, "velocity", axis), f"the grid has no axis {axis}", None
        try:
            names = names_in(language.read_face(str(it)))
        except ExpressionError as error:
            yield (*path, "velocity", axis), str(error), error.column
            continue
        if names - language.numbers.keys():
            yield (*path, "velocity", axis), "it is a number, or a formula of constants", None


def seen_from(
    trees: Mapping[str, Node], frame: MovingFrame | None, language: Language
) -> dict[str, Node]:
    """The right-hand sides as a moving grid sees them: with v . grad u more.

    Args:
        trees: by field, of equations of first order.
        frame: the grid, if it moves.
        language: of velocities.
    """
    found = dict(trees)
    for axis, it in ({} if frame is None else frame.velocity).items():
        speed = language.read_face(str(it))
        for name, tree in found.items():
            carried = Operation("multiply", (speed, Operation(f"d{axis}", (Variable(name),))))
            found[name] = _plus(tree, carried)
    return found
