"""Additions to the equations of a user: signals at points that lie anywhere.

A source of a signal s(t) at a place adds s(t) w/V to the equation of its field, with V the volume
of a cell and w the weights of the interpolation at that place, which sum to 1: the integral of what
is added is s(t). They are those of a probe, so where the operator is symmetric, as `laplace(u)` and
`div_grad(k, u)` are, a source and a probe may change places: what is recorded stays the same to
rounding (reciprocity).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.pde.complex import Part
from tetris_sim.apps.pde.language import Language, Mistake
from tetris_sim.apps.time_functions import TIME, names_in
from tetris_sim.config.sections.grid import GridSection
from tetris_sim.config.sections.quantities import Position, Section
from tetris_sim.config.sections.schema import POINTS_AROUND, Interpolation
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import ExpressionError, Node, Operation, Variable
from tetris_sim.model.grid import Grid
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
    for number, ((field, signal), group) in enumerate(alike.items(), 1):
        name = f"{_SPREAD}{number}"
        arrays[name] = _spread(group, grid, boundaries[field])
        pushed = Operation("multiply", (signal, Variable(name)))
        found[field] = Operation("add", (found[field], pushed))
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
