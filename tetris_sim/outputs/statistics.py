"""Minimum, maximum, mean and total of every variable over time, and where heat flows, as CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.audit import AUDITED, Audit
from tetris_sim.outputs.blocks import blocks, exact_sum
from tetris_sim.outputs.heat_flows import has_heat, heat_column
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.schedule import StepSchedule
from tetris_sim.outputs.table import Table, TableOutput, read_table

FILE = "statistics.csv"


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
        # Exact up to one rounding, in any order: what comes before is the same for any partition.
        self.sums.append(exact_sum(block))

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
    """Writes `statistics.csv`: of each variable, and of a body with heat where that flows.

    Args:
        problem: what is simulated.
        directory: the results directory.
        schedule: when.
        implicit: whether steps are.
    """

    def __init__(
        self, problem: Problem, directory: Path, schedule: StepSchedule, *, implicit: bool = False
    ) -> None:
        self._path = directory / FILE
        self._audit = Audit(problem, implicit=implicit) if has_heat(problem) else None
        columns: list[str] = []
        for k, variable in enumerate(problem.variables):
            columns += [
                f"{variable.name} {what} [{variable.unit}]" for what in ("min", "max", "mean")
            ]
            prefix = f"{variable.name} " if problem.n_fields > 1 else ""
            name, unit = variable.total.name, variable.total.unit
            if k == 0 and self._audit is not None:
                name, unit = heat_column(problem)
            columns.append(f"{prefix}{name} [{unit}]")
        if self._audit is not None:
            columns += self._audit.columns
        super().__init__(Table(self._path, columns), schedule, self._summary, reads_all=True)

    def start(self, step: int) -> None:
        """Open the table, forget rows later than `step`, and go on from those before."""
        super().start(step)
        if self._audit is not None:
            self._audit.go_on(*read_table(self._path))

    def _summary(self, snapshot: Snapshot) -> Sequence[float]:
        audit, problem = self._audit, snapshot.problem
        if audit is not None and problem.conduction is not None:
            whole, rest = audit.look_at_body(snapshot)
            others = self._tallied(snapshot)[len(whole) :] if problem.n_fields > 1 else []
            return [*whole, *others, *rest]

        values = self._tallied(snapshot)
        return values if audit is None else [*values, *audit.look_at_faces(snapshot, values[-1])]

    def _tallied(self, snapshot: Snapshot) -> list[float]:
        problem, values = snapshot.problem, []
        for variable, one in zip(problem.variables, tally(snapshot), strict=True):
            factor = variable.total.density * problem.grid.cell_volume
            values += [one.low, one.high, one.sum / problem.grid.n_points, factor * one.sum]
        return values


def read_audit(directory: Path, step: int) -> dict[str, float]:
    """Flows of heat and the balance at a step, by column, if the last record is of that step."""
    if not (directory / FILE).exists():
        return {}
    header, rows = read_table(directory / FILE)
    if not rows or rows[-1][0] != step:
        return {}
    values = dict(zip(header, rows[-1], strict=True))
    return {name: value for name, value in values.items() if name.startswith(AUDITED)}
