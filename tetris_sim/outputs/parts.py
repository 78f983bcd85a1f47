"""Which part of the field is written: all of it, a box, or a slice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.places import Along, Neighbours, neighbours_of, read_along

T = TypeVar("T")
WHOLE = "fields"  # the folder of all of the field; those of its parts are fields-<name>


@dataclass(frozen=True)
class Part:
    """A part of the field.

    Attributes:
        folder: of its files, beside an index of the same name.
        grid: its points.
        axes: what it takes of each axis of the problem.
    """

    folder: str
    grid: Grid
    axes: tuple[Along, ...]

    def read(self, snapshot: Snapshot, box: Box) -> Field:
        """The state in a box of the part, (n_fields, ...)."""
        wanted = iter(box)
        along: list[Along] = []
        for axis in self.axes:
            if isinstance(axis, Neighbours):
                along.append(axis)
            else:
                low, high = next(wanted)
                along.append((axis[0] + low, axis[0] + high))
        return read_along(snapshot, along)


def in_space(
    grid: Grid, values: Sequence[T], missing: T, cut: Iterable[tuple[str, T]] = ()
) -> tuple[T, ...]:
    """What is given per axis of a grid as three values, along z, y, x.

    >>> slice_of_y = Grid((3, 5), (1.0, 1.0), (0.5, 0.5), cut=(("y", 2.0),))
    >>> in_space(slice_of_y, (3, 5), 1), in_space(slice_of_y, (0.5, 0.5), 0.0, slice_of_y.cut)
    ((3, 1, 5), (0.5, 2.0, 0.5))

    Args:
        grid: the points.
        values: one per axis of the grid.
        missing: the value of an axis that it lacks.
        cut: values of axes that it lacks, by name.
    """
    known = dict((*zip(grid.axis_names, values, strict=True), *cut))
    return tuple(known.get(name, missing) for name in reversed(AXIS_NAMES))


def whole(problem: Problem) -> Part:
    """All of the field."""
    return Part(WHOLE, problem.grid, tuple((0, n) for n in problem.grid.shape))


def make_part(
    problem: Problem,
    name: str,
    *,
    box: Mapping[str, tuple[float, float]],
    slices: Mapping[str, float],
) -> Part:
    """The points in a box, on a slice, or both.

    Args:
        problem: what is computed.
        name: of the part; its files are fields-<name>.
        box: between which positions, by axis [m]; an axis without is taken whole.
        slices: at which position, by axis [m]; values there are linear between the points around.

    Raises:
        ConfigError: no axis or no point is left.
    """
    grid = problem.grid
    axes: list[Along] = []
    for axis, axis_name in enumerate(grid.axis_names):
        if axis_name in slices:
            axes.append(neighbours_of(problem, axis, slices[axis_name]))
        elif axis_name in box:
            axes.append(grid.within(axis, *box[axis_name]))
        else:
            axes.append((0, grid.shape[axis]))

    spans = [None if isinstance(axis, Neighbours) else axis for axis in axes]
    kept = [span for span in spans if span is not None]
    if not kept or any(start == stop for start, stop in kept):
        msg = f"output.parts: {name} holds no point of the grid; widen its box, or take a probe"
        raise ConfigError(msg)
    return Part(f"{WHOLE}-{name}", grid.part(spans, slices), tuple(axes))
