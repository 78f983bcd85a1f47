"""SimulatedDevice: CPU threads made slow and far away, with little memory, and able to fail.

It computes with the CPU's methods, so its answer is right; its speed, its link and its end are
numbers in the configuration. So division, overlap, squeezing and failures are tried on any machine.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.model.boundary import Side
from tetris_sim.model.method import Box, EdgePlanes, Stepper, Substepper
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.scheduler.run.queued import WorkerError


class SimulatedDevice:
    """What a worker keeps when its slab changes.

    Attributes:
        name: what the worker is called.
        team: the threads that compute.
        speed: most point updates per second; may change during a run.
    """

    def __init__(self, name: str, settings: SimulatedSection, threads: int) -> None:
        self.name, self.team, self.speed = name, ThreadTeam(threads), settings.speed
        self._settings, self._blocks = settings, 0

    def compute(self, points: float, work: Any) -> None:
        """Call `work`, which makes so many point updates, and take as long as the device would.

        Raises:
            WorkerError: this was the block in which it fails.
        """
        begin = time.perf_counter()
        self._blocks += 1
        if self._settings.fail_after is not None and self._blocks >= self._settings.fail_after:
            raise WorkerError(
                self.name, f"it was to fail in its time block number {self._settings.fail_after}"
            )
        work()
        _sleep_until(begin + points / self.speed)

    def transfer(self, n_bytes: int) -> None:
        """Take as long as a message over the link."""
        _sleep_until(
            time.perf_counter() + self._settings.latency + n_bytes / self._settings.bandwidth
        )

    def close(self) -> None:
        """End the threads."""
        self.team.close()


class SimulatedStepper:
    """A slab of the CPU on a simulated device; see the Protocol `Stepper` for the calls."""

    def __init__(self, problem: Problem, stepper: Stepper, device: SimulatedDevice) -> None:
        self.slab = stepper.slab
        self._stepper, self._device = stepper, device
        self._n_fields, self._itemsize = problem.n_fields, problem.dtype.itemsize
        self._radii = problem.stencil.radii

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take the owned points."""
        self._stepper.load(initial, step)
        self._device.transfer(self.slab.n_points * self._n_fields * self._itemsize)

    def advance(self, steps: int) -> None:
        """Advance, and return when the device would be done."""

        def work() -> None:
            self._stepper.advance(steps)
            self._stepper.wait()

        self._device.compute(
            updates(self.slab.shape, self.slab.halo, self._radii, steps) * self._n_fields, work
        )

    def substep(self, time: float, length: float) -> None:
        """Make one, and return when the device would be done."""

        def work() -> None:
            self._substepper.substep(time, length)
            self._stepper.wait()

        points = updates(self.slab.shape, self.slab.halo, self._radii, 1)
        self._device.compute(points * self._n_fields, work)

    def undo(self) -> None:
        """Take the last substep back."""
        self._substepper.undo()

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of fields and errors."""
        return self._substepper.peaks()

    @property
    def _substepper(self) -> Substepper:
        assert isinstance(self._stepper, Substepper)
        return self._stepper

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """The owned planes that the neighbour on `side` needs."""
        planes = self._stepper.edge(axis, side)
        self._device.transfer(planes.nbytes)
        return planes

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Take the planes beyond `side`."""
        self._device.transfer(planes.nbytes)
        self._stepper.set_halo(axis, side, planes)

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box`."""
        values = self._stepper.interior(box)
        self._device.transfer(values.nbytes)
        return values

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite."""
        return self._stepper.find_nonfinite()

    def wait(self) -> None:
        """Nothing is under way."""
        self._stepper.wait()

    def close(self) -> None:
        """Give the memory back."""
        self._stepper.close()


def updates(
    shape: tuple[int, ...], halo: tuple[tuple[int, int], ...], radii: tuple[int, ...], steps: int
) -> float:
    """Point updates of a block: of the owned points, and of the halo as it shrinks.

    >>> updates((10, 5), ((2, 0), (0, 0)), (1, 1), 3)
    165.0

    Args:
        shape: owned points per axis.
        halo: planes beyond them, per axis and side.
        radii: what a step reaches.
        steps: number of steps of the block.
    """
    total = 0.0
    for later in range(steps):
        points = 1.0
        for n, widths, radius in zip(shape, halo, radii, strict=True):
            points *= n + sum(min(width, later * radius) for width in widths)
        total += points
    return total


def _sleep_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)
