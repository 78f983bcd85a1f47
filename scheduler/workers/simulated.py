"""EmulatedDevice: CPU threads made slow and far away, with little memory, and able to fail.

It computes with the CPU's methods, so its answer is right; its speed, its link and its end are
numbers in the configuration. So division, overlap, squeezing and failures are tried on any machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.model.boundary import Side
from tetris_sim.model.method import Box, EdgePlanes, Method, Parameters, Stepper, Substepper
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.scheduler.workers.queued import WorkerError


class EmulatedDevice:
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


class EmulatedStepper:
    """A slab of the CPU on a simulated device; see the Protocol `Stepper` for the calls."""

    def __init__(self, problem: Problem, stepper: Stepper, device: EmulatedDevice) -> None:
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


# EmulatedChunkPipeline: pieces go through a simulated device: threads bring, compute and take.

_PIECES = 3  # on the device at a time: of four arrays, one is the other one of an advance
_PATIENCE = 0.05  # seconds after which who waits for memory looks whether the device has failed


@dataclass
class _Cargo:
    slab: Slab
    values: Field  # of the piece and its halo, later of its owned planes
    ready: threading.Event


class HostArray:
    """A slab in host memory as one array, halos included; see the Protocol `HostSlab`."""

    def __init__(self, problem: Problem, slab: Slab) -> None:
        self._below = tuple(low for low, _ in slab.halo)
        shape = [low + n + high for n, (low, high) in zip(slab.shape, slab.halo, strict=True)]
        self._points: Field = np.zeros((problem.n_fields, *shape), problem.dtype)
        self._later = slab.shape[1:]

    def view(self, ranges: Ranges) -> Field:
        """A box of points, counted from the first owned one."""
        box = zip(ranges, self._below, strict=True)
        return self._points[(slice(None), *(slice(a + low, b + low) for (a, b), low in box))]

    def planes(self, first: int, count: int) -> Field:
        """Planes counted from the first owned one, owned points along later axes."""
        return self.view(((first, first + count), *((0, n) for n in self._later)))

    def spare(self, count: int) -> Field:
        """Memory for as many planes."""
        return np.zeros((len(self._points), count, *self._later), self._points.dtype)


# what must have happened before, what to do, and what has happened then
_Job = tuple[Sequence[threading.Event], Callable[[], None], threading.Event]


class _Belt:
    """A thread that does one job after the other, each when certain events have happened."""

    def __init__(self, name: str) -> None:
        self.failure: BaseException | None = None
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def put(self, after: Sequence[threading.Event], work: Callable[[], None]) -> threading.Event:
        event = threading.Event()
        self._queue.put((after, work, event))
        return event

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            after, work, event = job
            for event_before in after:
                event_before.wait()
            try:
                if self.failure is None:
                    work()
            except BaseException as failure:  # noqa: BLE001  handed to the caller by wait()
                self.failure = failure
            event.set()


class EmulatedChunkPipeline:
    """See the Protocol `Conveyor` of streamed.py for what the calls mean."""

    def __init__(
        self, problem: Problem, method: Method, parameters: Parameters, device: EmulatedDevice
    ) -> None:
        self._problem, self._device = problem, device
        self._method, self._parameters = method, parameters
        self._belts = [_Belt(f"{device.name} {what}") for what in ("brings", "computes", "takes")]
        self._room = threading.Semaphore(_PIECES)
        self._steppers: dict[Any, Stepper] = {}
        self.most_at_a_time = self._at_a_time = 0

    def hold(self, slab: Slab) -> HostArray:
        """Any layout would do."""
        return HostArray(self._problem, slab)

    def bring(
        self, slab: Slab, sources: Sequence[tuple[int, Field]], after: Sequence[threading.Event]
    ) -> tuple[_Cargo, threading.Event]:
        """When there is room for it."""
        cargo = _Cargo(slab, np.empty(0), threading.Event())

        def work() -> None:
            while not self._room.acquire(timeout=_PATIENCE):
                if any(belt.failure is not None for belt in self._belts):
                    return
            self._at_a_time += 1
            self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
            low, high = slab.halo[0]
            shape = (self._problem.n_fields, low + slab.shape[0] + high, *slab.shape[1:])
            cargo.values = np.empty(shape, self._problem.dtype)
            for first, planes in sources:
                cargo.values[:, low + first : low + first + planes.shape[1]] = planes
            self._device.transfer(cargo.values.nbytes)

        cargo.ready = self._belts[0].put(after, work)
        return cargo, cargo.ready

    def advance(self, cargo: _Cargo, steps: int, first: int) -> None:
        """By the CPU method, on a slab of the piece's shape."""

        def work() -> None:
            slab = cargo.slab
            low, high = slab.halo[0]
            stepper = self._stepper(slab)
            n = slab.shape[0]

            def initial(part: Slab) -> Field:
                box = (
                    slice(a - s, b - s)
                    for a, b, s in zip(part.start, part.stop, stepper.slab.start, strict=True)
                )
                return cargo.values[:, low : low + n][(slice(None), *box)]

            def compute() -> None:
                stepper.load(initial, first)
                if low:
                    stepper.set_halo(0, "low", cargo.values[:, :low])
                if high:
                    stepper.set_halo(0, "high", cargo.values[:, low + n :])
                stepper.advance(steps)
                cargo.values = stepper.interior()

            points = (
                updates(slab.shape, slab.halo, self._problem.stencil.radii, steps)
                * self._problem.n_fields
            )
            self._device.compute(points, compute)

        cargo.ready = self._belts[1].put([cargo.ready], work)

    def take(
        self, cargo: _Cargo, target: Field, after: Sequence[threading.Event]
    ) -> threading.Event:
        """Copy, and make room."""

        def work() -> None:
            target[...] = cargo.values
            self._device.transfer(cargo.values.nbytes)
            self._at_a_time -= 1
            self._room.release()

        return self._belts[2].put([*after, cargo.ready], work)

    def finish(self, event: threading.Event) -> None:
        """Return when it has happened."""
        event.wait()

    def wait(self) -> None:
        """Return when all threads are done; raise what one of them raised."""
        for belt in self._belts:
            belt.put([], lambda: None).wait()
        for belt in self._belts:
            if belt.failure is not None:
                failure, belt.failure = belt.failure, None
                raise failure

    def close(self) -> None:
        """End the threads."""
        for belt in self._belts:
            belt.close()
        for stepper in self._steppers.values():
            stepper.close()
        self._steppers.clear()

    def _stepper(self, slab: Slab) -> Stepper:
        # Of one stencil what matters is how large it is and where it has neighbours.
        where = () if self._problem.why_not_one_stencil is None else slab.start
        key = slab.shape, slab.halo, where
        if key not in self._steppers:
            self._steppers[key] = self._method.prepare(
                self._problem, slab, self._parameters, self._device.team
            )
        return self._steppers[key]
