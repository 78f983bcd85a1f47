"""The value at a place over time, as CSV."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.schedule import StepSchedule
from tetris_sim.outputs.table import Table, TableOutput
from tetris_sim.problem import Problem

FOLDER = "probes"


@dataclass(frozen=True)
class Neighbours:
    """The points around a position along one axis, and their weights.

    Attributes:
        indices: one or two global indices.
        weights: one per index; they sum to 1.
    """

    indices: tuple[int, ...]
    weights: tuple[float, ...]


def neighbours(
    position: float, *, origin: float, spacing: float, n: int, periodic: bool
) -> Neighbours:
    """Which points of an axis surround `position`.

    Beyond the outermost points (between a cell centre and the face) the nearest one counts alone;
    on a periodic axis the first and the last point are neighbours there.

    >>> neighbours(1.25, origin=0.5, spacing=1.0, n=4, periodic=False)
    Neighbours(indices=(0, 1), weights=(0.25, 0.75))

    Args:
        position: [m].
        origin: of the first point [m].
        spacing: between points [m].
        n: number of points.
        periodic: whether the axis is.
    """
    place = (position - origin) / spacing
    low = math.floor(place)
    weight = place - low
    if periodic:
        pair = (low % n, (low + 1) % n)
    else:
        pair = (min(max(low, 0), n - 1), min(max(low + 1, 0), n - 1))
    if weight == 0 or pair[0] == pair[1]:
        return Neighbours(pair[:1], (1.0,))
    return Neighbours(pair, (1 - weight, weight))


class ProbeOutput(TableOutput):
    """Writes `probes/<name>.csv`: every variable over time, linear between the points around.

    Args:
        problem: what is simulated.
        directory: the results directory.
        name: of the file.
        position: of the probe [m], array order.
        schedule: when.
    """

    def __init__(
        self,
        problem: Problem,
        directory: Path,
        name: str,
        *,
        position: Sequence[float],
        schedule: StepSchedule,
    ) -> None:
        grid = problem.grid
        self._axes = [
            neighbours(
                position[axis],
                origin=grid.origin[axis],
                spacing=grid.spacing[axis],
                n=grid.shape[axis],
                periodic=problem.boundary.periodic(axis),
            )
            for axis in range(grid.ndim)
        ]
        self._n_fields = problem.n_fields

        columns = [f"{variable.name} [{variable.unit}]" for variable in problem.variables]
        table = Table(directory / FOLDER / f"{name}.csv", columns)
        super().__init__(table, schedule, self._at_the_place)

    def _at_the_place(self, snapshot: Snapshot) -> list[float]:
        """Every variable at the probe; only the points around it are read."""
        values = np.zeros(self._n_fields)
        # Points next to each other are read at once; around the seam of a periodic axis they are
        # not.
        parts = [_parts(axis) for axis in self._axes]

        for corner in itertools.product(*parts):
            box = tuple((part.indices[0], part.indices[-1] + 1) for part in corner)
            state = snapshot.box(box).astype(np.float64)
            for part in corner:
                state = np.tensordot(state, np.array(part.weights), axes=(1, 0))
            values += state
        return [float(value) for value in values]


def _parts(axis: Neighbours) -> list[Neighbours]:
    if len(axis.indices) == 1 or axis.indices[1] == axis.indices[0] + 1:
        return [axis]
    return [
        Neighbours((index,), (weight,))
        for index, weight in zip(axis.indices, axis.weights, strict=True)
    ]
