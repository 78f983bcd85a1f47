"""Rows: what each worker was to do and what it did, for `plan` and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tetris_sim.scheduler.facts.shares import Plan


@dataclass(frozen=True)
class WorkerRow:
    """One worker of a plan for several devices.

    Attributes:
        worker: name of the worker.
        method: name of its method.
        share: part of the grid that it owns, 0 to 1.
        points_per_second: speed measured before the run, or when planes moved.
        predicted_idle: share of the time in which it waits for others, 0 to 1.
        busy_s: time that it computed [s].
        measured_idle: share of the time of all blocks and exchanges in which it did not compute, 0
            to 1.
    """

    worker: str
    method: str
    share: float
    points_per_second: float
    predicted_idle: float
    busy_s: float
    measured_idle: float

    def __str__(self) -> str:
        """The row for people.

        >>> str(WorkerRow("gpu:0", "gpu.stream", 0.9, 9e11, 0.02, 7.5, 0.04))
        'gpu:0: gpu.stream, 90.0% of the grid, 900 GStencil/s, idle 4.0% (2.0% predicted)'
        """
        return (
            f"{self.worker}: {self.method}, {self.share:.1%} of the grid, "
            f"{self.points_per_second / 1e9:.3g} GStencil/s, idle {self.measured_idle:.1%} "
            f"({self.predicted_idle:.1%} predicted)"
        )


def worker_rows(plan: Plan, busy_s: Mapping[str, float], seconds: float) -> tuple[WorkerRow, ...]:
    """The rows of a plan whose workers measure how long they compute; none for others.

    Args:
        plan: the one in force at the end of the run.
        busy_s: time that each worker computed [s].
        seconds: time of all blocks and exchanges [s].
    """
    if plan.profile is None or seconds <= 0:
        return ()

    points = sum(share.slab.n_points for share in plan.shares)
    return tuple(
        WorkerRow(
            worker=share.worker,
            method=share.method.name,
            share=share.slab.n_points / points,
            points_per_second=share.points_per_second,
            predicted_idle=plan.profile.division.idle(number),
            busy_s=busy_s.get(share.worker, 0.0),
            measured_idle=max(0.0, 1.0 - busy_s.get(share.worker, 0.0) / seconds),
        )
        for number, share in enumerate(plan.shares)
    )
