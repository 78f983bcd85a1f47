"""Worker: one device with the stepper of its slab."""

from __future__ import annotations

from typing import Protocol

from tetris_sim.method import Stepper
from tetris_sim.problem import Problem
from tetris_sim.scheduler.plan import Share


class Worker(Protocol):
    """A device and the stepper that it advances."""

    name: str
    stepper: Stepper

    def close(self) -> None:
        """Give the slab's memory and the device back."""


class LocalWorker:
    """A device of this process, a team of threads or a GPU, that advances one slab in its memory."""

    def __init__(self, problem: Problem, share: Share) -> None:
        self.name = share.worker
        self._device = share.place.open()
        try:
            self.stepper: Stepper = share.method.prepare(problem, share.slab, share.parameters, self._device)
        except BaseException:
            self._device.close()
            raise

    def close(self) -> None:
        """Give memory and device back."""
        try:
            self.stepper.close()
        finally:
            self._device.close()


def open_worker(problem: Problem, share: Share) -> Worker:
    """Take the memory of one share and compile for it."""
    return LocalWorker(problem, share)
