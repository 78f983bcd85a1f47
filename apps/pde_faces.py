"""Faces of fields that change with time: what beyond them is not a multiple of the mirror point.

A ghost is b * mirror + p(t) a, with a and b as of a face whose given number is 1. What is the same
multiple for all time, b, is the boundary of the field; a is a coefficient that is 0 at the points
of the grid. So wherever a formula reads a field beside its point, p(t) times that coefficient is
added, at the time of the stage that reads, and no kernel knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tetris_sim.apps.courses import TIME, Course, formula, names_in, read_course
from tetris_sim.apps.faces import make_boundary
from tetris_sim.config.sections.conditions import (
    FaceCondition,
    NeumannFace,
    RadiationFace,
    RobinFace,
)
from tetris_sim.config.sections.quantities import TEMPERATURE
from tetris_sim.config.sections.varying import Table, Varying
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import SIDES, Boundary, Dirichlet, Fixed
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import Constant, Node, Operation, Variable, compile_expression
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.slab import Ranges

_MOST_ROWS = 2000  # of a table that becomes a formula


@dataclass(frozen=True, eq=False)
class Drive:
    """What changes beyond a face of a field.

    Attributes:
        name: of its coefficient.
        axis: array order.
        side: 0 or 1.
        course: what the face is given, a formula of t; None where nobody knows it.
        unit: the boundary of the field with 1 given on this face.
    """

    name: str
    axis: int
    side: int
    course: Node | None
    unit: Boundary

    @property
    def holds(self) -> bool:
        """Whether the value itself is given."""
        return isinstance(self.unit.faces[self.axis][self.side], Dirichlet | Fixed)

    def beyond(self, grid: Grid) -> Callable[[Ranges], Numbers]:
        """The coefficient in any box of global indices: ghosts of a field that is 0, axis 0 first,
        later axes over the extended range.
        """

        def of_box(box: Ranges) -> Numbers:
            result = np.ones([high - low for low, high in box])
            for axis, (low, high) in enumerate(box):
                along = np.ones(high - low) * (axis != self.axis)
                for side in range(2):
                    own = axis == self.axis and side == self.side
                    n, spacing = grid.shape[axis], grid.spacing[axis]
                    width = -low if side == 0 else high - n
                    if width <= 0 or self.unit.periodic(axis) or not (own or axis > self.axis):
                        continue
                    pairs = self.unit.reflections(axis, SIDES[side], spacing=spacing, width=width)

                    numbers = np.array([pair[0 if own else 1] for pair in pairs])
                    near = max(0, low - n) if side else max(0, -high)
                    if side == 0:
                        along[: width - near] = numbers[::-1][: width - near]
                    else:
                        along[len(along) - (width - near) :] = numbers[near:]
                result *= along.reshape([-1 if k == axis else 1 for k in range(len(box))])
            return result

        return of_box


def changing_key(condition: FaceCondition) -> str | None:
    """Which number of a face changes with time and nothing else; None if it is another face."""
    if isinstance(condition, tuple | RadiationFace):
        return None
    if isinstance(condition, RobinFace):
        keys = ("ambient",) if isinstance(condition.h, float) else ()
    else:
        keys = ("flux",) if isinstance(condition, NeumannFace) else ("value",)
    for key in keys:
        given = getattr(condition, key, 0.0)
        if isinstance(given, Table):
            return key
        if isinstance(given, str):
            names = names_in(compile_expression(given, (*AXIS_NAMES, TIME)).tree)
            return key if names <= {TIME} else None
    return None


def with_number(condition: FaceCondition, number: float) -> FaceCondition:
    """The same face, with a number for what changes."""
    if isinstance(condition, tuple) or (key := changing_key(condition)) is None:
        return condition
    return condition.model_copy(update={key: number})


def drives_of(field: str, faces: Mapping[str, FaceCondition], ndim: int) -> list[Drive]:
    """What changes beyond the faces of a field.

    Args:
        field: its name.
        faces: the section of each face.
        ndim: number of axes.

    Raises:
        ConfigError: a table cannot be read.
    """
    found = []
    for axis, letter in enumerate(reversed(AXIS_NAMES[:ndim])):
        for side, sign in enumerate("-+"):
            condition = faces.get(letter + sign)
            if condition is None or (key := changing_key(condition)) is None:
                continue

            given = getattr(condition, key)
            course = read_course(given, Varying(TEMPERATURE, (TIME,)), f"boundaries.{key}")
            others = {face: with_number(it, 1.0) for face, it in faces.items()}
            unit = make_boundary(others, ndim, conductivity=1.0)
            name = f"{field} at {letter}{sign}"
            found.append(Drive(name, axis, side, _as_formula(course), unit))
    return found


def _as_formula(course: Course) -> Node:
    """A course as a formula of t; of a table the sum of its rises."""
    if course.rows is None:
        return course.tree
    if len(course.rows) > _MOST_ROWS:
        msg = f"boundaries: a table over time of equations has {_MOST_ROWS} rows at most"
        raise ConfigError(msg)
    parts: list[Node] = [Constant(float(course.rows[0, 1]))]
    for (t0, v0), (t1, v1) in zip(course.rows[:-1], course.rows[1:], strict=True):
        slope = Constant(float((v1 - v0) / (t1 - t0)))
        ends = {"a": Constant(float(t0)), "b": Constant(float(t1))}
        rise = formula("s*(clip(t, a, b) - a)", s=slope, t=Variable(TIME), **ends)
        parts.append(rise)

    while len(parts) > 1:  # no deeper than it has to be
        pairs = zip(parts[::2], parts[1::2], strict=False)
        rest = parts[-1:] if len(parts) % 2 else []
        parts = [*(Operation("add", pair) for pair in pairs), *rest]
    return parts[0]
