"""Workers: one device each, with the stepper of its slab, and the rows that report what each worker
did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tetris_sim.model.method import SlabTuned, Stepper
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.domain import Streaming
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.plan.streaming import largest_piece
from tetris_sim.scheduler.workers.queued import QueuedStepper, told_as_failure
from tetris_sim.scheduler.workers.simulated import (
    EmulatedChunkPipeline,
    EmulatedDevice,
    EmulatedStepper,
)
from tetris_sim.scheduler.workers.streamed import ChunkPipeline, StreamedStepper

# Report rows: predicted and measured work of each worker, for `plan` and the report.


@dataclass(frozen=True)
class WorkerRow:
    """Predicted and measured figures of one worker in a plan with a profile.

    Attributes:
        worker: name of the worker.
        method: name of its method.
        share: part of the grid that it owns, 0 to 1.
        points_per_second: rate measured before the run, or when planes last moved.
        predicted_idle: predicted share of the time spent waiting for others, 0 to 1.
        busy_s: computing time [s].
        measured_idle: share of the time of all blocks and exchanges in which the worker did not
            compute, 0 to 1.
    """

    worker: str
    method: str
    share: float
    points_per_second: float
    predicted_idle: float
    busy_s: float
    measured_idle: float

    def __str__(self) -> str:
        """Return the row as a line of text.

        >>> str(WorkerRow("gpu:0", "gpu.stream", 0.9, 9e11, 0.02, 7.5, 0.04))
        'gpu:0: gpu.stream, 90.0% of the grid, 900 GStencil/s, idle 4.0% (2.0% predicted)'
        """
        return (
            f"{self.worker}: {self.method}, {self.share:.1%} of the grid, "
            f"{self.points_per_second / 1e9:.3g} GStencil/s, idle {self.measured_idle:.1%} "
            f"({self.predicted_idle:.1%} predicted)"
        )


def worker_rows(plan: Plan, busy_s: Mapping[str, float], seconds: float) -> tuple[WorkerRow, ...]:
    """The rows of a plan whose workers measure their computing time; empty for other plans.

    Args:
        plan: plan in force at the end of the run.
        busy_s: computing time by worker [s].
        seconds: time of all blocks and exchanges [s].
    """
    if plan.profile is None or seconds <= 0:
        return ()

    points = sum(share.slab.n_points for share in plan.shares)
    # Names identify workers in `busy_s`, since shares may have changed during the run.
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


class Worker:
    """A device of this process, CPU threads or a GPU, and the stepper that advances one slab on it.

    Attributes:
        name: name of the worker.
        device: a `ThreadTeam`, a `GpuDevice` or a `EmulatedDevice`.
        stepper: stepper that advances the slab.
        keeps: whether its device may keep a snapshot of the slab.
        closed: whether the device has been released.
    """

    def __init__(self, problem: Problem, share: Share) -> None:
        self.name, self.closed, self._busy_s = share.worker, False, 0.0
        self.keeps = share.keeps
        self.device: Any = _open_device(share)
        # An open device must not outlive a failed preparation.
        try:
            self.stepper: Stepper = _prepare(problem, share, self.device)
        except BaseException:
            self.device.close()
            raise

    @property
    def busy_s(self) -> float:
        """Computing time over all slabs that the worker had, if its stepper measures that;
        otherwise 0 [s].
        """
        return self._busy_s + (
            self.stepper.busy_s if isinstance(self.stepper, QueuedStepper) else 0.0
        )

    def change(self, problem: Problem, share: Share) -> None:
        """Release the memory of the slab and allocate that of another; its points are not
        loaded.
        """
        # The old memory is released first: both slabs together may not fit.
        self._busy_s = self.busy_s
        self.stepper.close()
        self.stepper, self.keeps = _prepare(problem, share, self.device), share.keeps

    def close(self) -> None:
        """Release memory and device; does nothing if they have been released."""
        if self.closed:
            return
        self.closed = True
        try:
            self.stepper.close()
        finally:
            self.device.close()


def open_worker(problem: Problem, share: Share) -> Worker:
    """Open the device of a share, allocate its slab and compile for it."""
    return Worker(problem, share)


def _open_device(share: Share) -> Any:
    if share.simulated is not None:
        return EmulatedDevice(share.worker, share.simulated, share.threads)
    device = ComputeResource(share.threads, share.method.device, share.number).open()
    if share.method.device == "cpu":
        device.stays_ready = share.through_host  # together with a GPU, blocks are short
    return device


def _prepare(problem: Problem, share: Share, device: Any) -> Stepper:
    # Unless all workers are teams of CPU threads, each runs in a thread of its own
    # (`Share.queued`).
    with told_as_failure(share.worker):
        stepper = _make_stepper(problem, share, device)
    return (
        QueuedStepper(share.worker, stepper, through_host=share.through_host)
        if share.queued
        else stepper
    )


def _make_stepper(problem: Problem, share: Share, device: Any) -> Stepper:
    if share.streamed is not None:
        conveyor = _make_conveyor(problem, share, share.streamed, device)
        return StreamedStepper(problem, share.slab, conveyor, share.streamed)
    if isinstance(device, EmulatedDevice):
        stepper = share.method.prepare(problem, share.slab, share.parameters, device.team)
        return EmulatedStepper(problem, stepper, device)
    method, parameters = share.method, share.parameters
    # Parameters were tuned on the whole grid; a thin slab may need others.
    if isinstance(method, SlabTuned):
        parameters = method.fitted(problem, share.slab, parameters, share.threads)
    return method.prepare(problem, share.slab, parameters, device)


def _make_conveyor(
    problem: Problem, share: Share, streaming: Streaming, device: Any
) -> ChunkPipeline:
    if isinstance(device, EmulatedDevice):
        return EmulatedChunkPipeline(problem, share.method, share.parameters, device)

    # CuPy is imported only where a GPU is used.
    from tetris_sim.gpu_kernels.steppers.passes import GpuMethod
    from tetris_sim.gpu_kernels.steppers.streamed import GpuChunkPipeline

    assert isinstance(share.method, GpuMethod)
    largest = largest_piece(problem, share.slab, streaming)
    return GpuChunkPipeline(problem, share.method, share.parameters, device, largest=largest)
