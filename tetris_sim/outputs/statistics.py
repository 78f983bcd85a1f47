"""Minimum, maximum, mean and total of every variable over time, as CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tetris_sim.outputs.blocks import blocks
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.schedule import StepSchedule
from tetris_sim.outputs.table import Table, TableOutput
from tetris_sim.problem import Field, Problem

FILE = "statistics.csv"
_RUN = 4096  # points that NumPy adds up pairwise before the exact summation takes over


@dataclass
class Tally:
    """What is known of one variable after some blocks."""

    low: float = math.inf
    high: float = -math.inf
    sums: list[float] = field(default_factory=list)

    def add(self, block: Field) -> None:
        """Take in the points of a block, (n0, ...)."""
        self.low = float(np.minimum(self.low, block.min()))  # unlike min(), passes NaN on
        self.high = float(np.maximum(self.high, block.max()))
        flat = np.ravel(block)
        whole = len(flat) // _RUN * _RUN
        runs = flat[:whole].reshape(-1, _RUN).sum(axis=1, dtype=np.float64)
        # Exact up to one rounding, in any order: what comes before is the same for any partition.
        self.sums.append(math.fsum((*runs.tolist(), float(flat[whole:].sum(dtype=np.float64)))))

    @property
    def sum(self) -> float:
        """Sum over all points."""
        return math.fsum(self.sums)


def tally(snapshot: Snapshot) -> list[Tally]:
    """Look at the whole state once, block by block; one tally per variable.

    The blocks, and so every bit of the answer, depend on the grid alone.
    """
    problem = snapshot.problem
    tallies = [Tally() for _ in problem.variables]
    for box in blocks(problem.grid.shape, problem.dtype.itemsize * problem.n_fields):
        for one, values in zip(tallies, snapshot.box(box), strict=True):
            one.add(values)
    return tallies


class StatisticsOutput(TableOutput):
    """Writes `statistics.csv`.

    Args:
        problem: what is simulated.
        directory: the results directory.
        schedule: when.
    """

    def __init__(self, problem: Problem, directory: Path, schedule: StepSchedule) -> None:
        columns: list[str] = []
        for variable in problem.variables:
            columns += [
                f"{variable.name} {what} [{variable.unit}]" for what in ("min", "max", "mean")
            ]
            prefix = f"{variable.name} " if problem.n_fields > 1 else ""
            columns.append(f"{prefix}{variable.total.name} [{variable.total.unit}]")
        super().__init__(Table(directory / FILE, columns), schedule, _summary)


def _summary(snapshot: Snapshot) -> Sequence[float]:
    problem = snapshot.problem
    values: list[float] = []
    for variable, one in zip(problem.variables, tally(snapshot), strict=True):
        factor = variable.total.density * problem.grid.cell_volume
        values += [one.low, one.high, one.sum / problem.grid.n_points, factor * one.sum]
    return values
