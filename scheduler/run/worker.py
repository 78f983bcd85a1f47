"""Worker: one device with the stepper of its slab."""

from __future__ import annotations

from typing import Any

from tetris_sim.model.method import Fits, Stepper
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.domain import Streaming
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.plan.streaming import largest_piece
from tetris_sim.scheduler.run.queued import QueuedStepper, told_as_failure
from tetris_sim.scheduler.run.simulated import SimulatedDevice, SimulatedStepper
from tetris_sim.scheduler.run.simulated_conveyor import SimulatedConveyor
from tetris_sim.scheduler.run.streamed import Conveyor, StreamedStepper


class Worker:
    """A device of this process, a team of threads or a GPU, that advances one slab in its memory.

    Attributes:
        name: what the worker is called.
        device: a `ThreadTeam`, a `GpuDevice` or a `SimulatedDevice`.
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
        return SimulatedDevice(share.worker, share.simulated, share.threads)
    device = Place(share.threads, share.method.device, share.number).open()
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
    if isinstance(device, SimulatedDevice):
        stepper = share.method.prepare(problem, share.slab, share.parameters, device.team)
        return SimulatedStepper(problem, stepper, device)
    method, parameters = share.method, share.parameters
    if isinstance(method, Fits):
        parameters = method.fitted(problem, share.slab, parameters, share.threads)
    return method.prepare(problem, share.slab, parameters, device)


def _make_conveyor(problem: Problem, share: Share, streaming: Streaming, device: Any) -> Conveyor:
    if isinstance(device, SimulatedDevice):
        return SimulatedConveyor(problem, share.method, share.parameters, device)

    from tetris_sim.gpu_kernels.steppers.passes import GpuMethod
    from tetris_sim.gpu_kernels.steppers.streamed import GpuConveyor

    assert isinstance(share.method, GpuMethod)
    largest = largest_piece(problem, share.slab, streaming)
    return GpuConveyor(problem, share.method, share.parameters, device, largest=largest)
