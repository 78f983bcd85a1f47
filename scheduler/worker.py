"""Worker: one device with the stepper of its slab."""

from __future__ import annotations

from typing import Protocol

from tetris_sim.cpu_kernels.threads import ThreadTeam
from tetris_sim.method import Stepper
from tetris_sim.problem import Problem
from tetris_sim.scheduler.plan import Share


class Worker(Protocol):
    """A device and the stepper that it advances."""

    name: str
    stepper: Stepper

    def close(self) -> None:
        """Give the slab's memory and the device back."""


class CpuWorker:
    """A team of threads that advances one slab in host memory."""

    def __init__(self, problem: Problem, share: Share) -> None:
        self.name = share.worker
        self._team = ThreadTeam(share.threads)
        try:
            self.stepper: Stepper = share.method.prepare(problem, share.slab, share.parameters, self._team)
        except BaseException:
            self._team.close()
            raise

    def close(self) -> None:
        """End the threads."""
        self.stepper.close()
        self._team.close()


def open_worker(problem: Problem, share: Share) -> Worker:
    """Take the memory of one share and compile for it."""
    return CpuWorker(problem, share)
