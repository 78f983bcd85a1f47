"""Worker: one device with the stepper of its slab."""

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

# Rows: what each worker was to do and what it did, for `plan` and the report.


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


class Worker:
    """A device of this process, a team of threads or a GPU, that advances one slab in its memory.

    Attributes:
        name: what the worker is called.
        device: a `ThreadTeam`, a `GpuDevice` or a `EmulatedDevice`.
        stepper: what advances its slab.
        keeps: whether its device may keep a copy of the slab.
        closed: whether the device was given back.
    """

    def __init__(self, problem: Problem, share: Share) -> None:
        self.name, self.closed, self._busy_s = share.worker, False, 0.0
        self.keeps = share.keeps
        self.device: Any = _open_device(share)
        try:
            self.stepper: Stepper = _prepare(problem, share, self.device)
        except BaseException:
            self.device.close()
            raise

    @property
    def busy_s(self) -> float:
        """Time that it computed, whatever its slab was, if it measures that; 0 otherwise [s]."""
        return self._busy_s + (
            self.stepper.busy_s if isinstance(self.stepper, QueuedStepper) else 0.0
        )

    def change(self, problem: Problem, share: Share) -> None:
        """Give the slab's memory back and take that of another one; its points are not there."""
        self._busy_s = self.busy_s
        self.stepper.close()
        self.stepper, self.keeps = _prepare(problem, share, self.device), share.keeps

    def close(self) -> None:
        """Give memory and device back; nothing if that was done."""
        if self.closed:
            return
        self.closed = True
        try:
            self.stepper.close()
        finally:
            self.device.close()


def open_worker(problem: Problem, share: Share) -> Worker:
    """Take the memory of one share and compile for it."""
    return Worker(problem, share)


def _open_device(share: Share) -> Any:
    if share.simulated is not None:
        return EmulatedDevice(share.worker, share.simulated, share.threads)
    device = ComputeResource(share.threads, share.method.device, share.number).open()
    if share.method.device == "cpu":
        device.stays_ready = share.through_host  # beside a GPU blocks are short
    return device


def _prepare(problem: Problem, share: Share, device: Any) -> Stepper:
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
    if isinstance(method, SlabTuned):
        parameters = method.fitted(problem, share.slab, parameters, share.threads)
    return method.prepare(problem, share.slab, parameters, device)


def _make_conveyor(
    problem: Problem, share: Share, streaming: Streaming, device: Any
) -> ChunkPipeline:
    if isinstance(device, EmulatedDevice):
        return EmulatedChunkPipeline(problem, share.method, share.parameters, device)

    from tetris_sim.gpu_kernels.steppers.passes import GpuMethod
    from tetris_sim.gpu_kernels.steppers.streamed import GpuChunkPipeline

    assert isinstance(share.method, GpuMethod)
    largest = largest_piece(problem, share.slab, streaming)
    return GpuChunkPipeline(problem, share.method, share.parameters, device, largest=largest)
