"""What is the field at a place that is no point? Linear between the points around it, axis by axis.

Between the outermost points and a face the value on the face takes the place of the next point: the
mean of the outermost point and its ghost, which is what the condition on the face is about. So a
place anywhere in the box, faces and corners included, has a value of second order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tetris_sim.model.boundary import Boundary, Side
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.reference import rise_to_face
from tetris_sim.outputs.output import Snapshot


@dataclass(frozen=True)
class Neighbours:
    """The points around a position along one axis, and their weights.

    The value there is offset + sum of weights * values.

    Attributes:
        indices: one or two global indices.
        weights: one per index; they sum to 1 but beyond the outermost points.
        offset: what a face adds.
        beyond: beyond the outermost points of a face with a rule: which of the two, and the share
            of the way to it; the rule adds to the values what it makes of them.
        fields: where faces differ from field to field: the weight and the offset of each, instead
            of those above.
    """

    indices: tuple[int, ...]
    weights: tuple[float, ...]
    offset: float = 0.0
    beyond: tuple[Side, float] | None = None
    fields: tuple[tuple[float, float], ...] = ()


Along = tuple[int, int] | Neighbours  # points start..stop-1 of an axis, or a position on it


def neighbours(place: float, *, n: int, periodic: bool) -> Neighbours:
    """Which points of an axis surround a place.

    Beyond the outermost points (between a cell centre and the face) the nearest one counts alone;
    on a periodic axis the first and the last point are neighbours there.

    >>> neighbours(0.75, n=4, periodic=False)
    Neighbours(indices=(0, 1), weights=(0.25, 0.75), offset=0.0, beyond=None, fields=())

    Args:
        place: in points from the first one, see `Grid.index_at`.
        n: number of points.
        periodic: whether the axis is.
    """
    low = math.floor(place)
    weight = place - low
    if periodic:
        pair = (low % n, (low + 1) % n)
    else:
        pair = (min(max(low, 0), n - 1), min(max(low + 1, 0), n - 1))
    if weight == 0 or pair[0] == pair[1]:
        return Neighbours(pair[:1], (1.0,))
    return Neighbours(pair, (1 - weight, weight))


def neighbours_of(problem: Problem, axis: int, position: float) -> Neighbours:
    """What the field at a position along an axis [m] is made of, faces included."""
    grid, periodic = problem.grid, problem.boundary.periodic(axis)
    n = grid.shape[axis]
    found = neighbours(grid.index_at(axis, position, periodic=periodic), n=n, periodic=periodic)

    side: Side = "low" if position < grid.origin[axis] else "high"
    last = 0 if side == "low" else n - 1
    outermost = float(grid.positions(axis, last))
    outside = (position < outermost) if side == "low" else (position > outermost)
    if periodic or not outside:
        return found

    width = float(grid.widths(axis, last, last + 1)[0])
    share = min(abs(position - outermost) / (width / 2), 1.0)  # of the way to the face
    if problem.conduction is not None:
        return replace(found, beyond=(side, share))
    pairs = []
    for boundary in _boundaries(problem):
        (a, b), *_ = boundary.reflections(axis, side, spacing=width, width=1)
        # On the face lies (u + a + b u) / 2.
        pairs.append(((1 - share) + share * (1 + b) / 2, share * a / 2))
    if len(pairs) > 1:
        return Neighbours(found.indices, (1.0,), fields=tuple(pairs))
    return Neighbours(found.indices, (pairs[0][0],), pairs[0][1])


def _boundaries(problem: Problem) -> tuple[Boundary, ...]:
    """Of every field."""
    if (equations := problem.equations) is None:
        return (problem.boundary,)
    return tuple(equations.boundaries.get(name, problem.boundary) for name in equations.fields)


def read_along(snapshot: Snapshot, axes: Sequence[Along]) -> Field:
    """The state at a product of points and positions.

    Only the points around the positions are read. Axis 0 comes first, as where ghosts are filled.

    Args:
        snapshot: the state.
        axes: per axis of the problem.

    Returns:
        (n_fields, one axis per range of points); float64 if there is a position.
    """
    ranges = [axis for axis in axes if not isinstance(axis, Neighbours)]
    if len(ranges) == len(axes):
        return snapshot.box(tuple(ranges))

    runs = [_runs(axis) for axis in axes]

    def gather(box: Box) -> Field:
        if len(box) == len(runs):
            return _lifted(snapshot, axes, box)
        parts = [gather((*box, run)) for run in runs[len(box)]]
        return np.concatenate(parts, axis=1 + len(box))

    state, kept = gather(()), 1
    for axis in axes:
        if isinstance(axis, Neighbours):
            state = np.tensordot(state, np.array(axis.weights), axes=(kept, 0)) + axis.offset
            for number, (weight, offset) in enumerate(axis.fields):
                state[number] = state[number] * weight + offset
        else:
            kept += 1
    return state


def _lifted(snapshot: Snapshot, axes: Sequence[Along], box: Box) -> Field:
    """The state in a box, in float64, carried on towards the faces with rules beyond it."""
    state = np.array(snapshot.box(box), np.float64)
    for number, axis in enumerate(axes):
        if isinstance(axis, Neighbours) and axis.beyond is not None:
            side, share = axis.beyond
            heat = snapshot.hidden(box)[0]
            state[0] += share * rise_to_face(
                snapshot.problem, snapshot.step, number, side, box, heat
            )
    return state


def _runs(axis: Along) -> list[tuple[int, int]]:
    """The points of an axis to be read at once; two runs around the seam of a periodic axis."""
    if not isinstance(axis, Neighbours):
        return [axis]
    first, last = axis.indices[0], axis.indices[-1]
    if last in (first, first + 1):
        return [(first, last + 1)]
    return [(index, index + 1) for index in axis.indices]
