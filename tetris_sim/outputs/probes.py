"""The value at a place over time, as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tetris_sim.model.problem import Problem
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.places import neighbours_of, read_along
from tetris_sim.outputs.schedule import StepSchedule
from tetris_sim.outputs.table import Table, TableOutput

FOLDER = "probes"


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
        self._axes = [
            neighbours_of(problem, axis, position[axis]) for axis in range(problem.grid.ndim)
        ]
        columns = [f"{variable.name} [{variable.unit}]" for variable in problem.variables]
        table = Table(directory / FOLDER / f"{name}.csv", columns)
        super().__init__(table, schedule, self._at_the_place, reads_all=False)

    def _at_the_place(self, snapshot: Snapshot) -> list[float]:
        """Every variable at the probe; only the points around it are read."""
        return [float(value) for value in read_along(snapshot, self._axes)]
