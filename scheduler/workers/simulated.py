"""Emulated devices: CPU threads slowed down behind a slow link, with little memory, that can fail
on purpose.

They compute with CPU methods, so results are correct; rate, link, memory and failure come from the
configuration. Division, overlap, streaming and recovery can thus be tested on any machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model.boundary import Side
from tetris_sim.model.method import (
    NOTHING,
    Box,
    EdgePlanes,
    Method,
    Parameters,
    Stepper,
    Substepper,
)
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.scheduler.workers.queued import WorkerError


class EmulatedDevice:
    """An emulated device, which a worker keeps when its slab changes.

    Attributes:
        name: name of the worker.
        team: CPU threads that compute.
        speed: largest rate of point updates per second; may be changed during a run.
    """

    def __init__(self, name: str, settings: SimulatedSection, threads: int) -> None:
        self.name, self.team, self.speed = name, ThreadTeam(threads), settings.speed
        self._settings, self._blocks = settings, 0

    def compute(self, points: float, work: Any) -> None:
        """Run `work`, which makes `points` point updates, and take as long as the device would.

        Raises:
            WorkerError: the device fails in this block.
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
        """Sleep as long as a message over the link takes."""
        _sleep_until(
            time.perf_counter() + self._settings.latency + n_bytes / self._settings.bandwidth
        )

    def close(self) -> None:
        """End the threads."""
        self.team.close()


class EmulatedStepper:
    """A stepper on an emulated device; see the protocol `Stepper` for the calls."""

    def __init__(self, problem: Problem, stepper: Stepper, device: EmulatedDevice) -> None:
        self.slab = stepper.slab
        self._stepper, self._device = stepper, device
        self._n_fields, self._itemsize = problem.n_fields, problem.dtype.itemsize
        self._radii = problem.stencil.radii

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Set the owned points to the initial state."""
        self._stepper.load(initial, step)
        self._device.transfer(self.slab.n_points * self._n_fields * self._itemsize)

    def advance(self, steps: int) -> None:
        """Advance a block; returns when the device would be done."""

        def work() -> None:
            self._stepper.advance(steps)
            self._stepper.wait()

        self._device.compute(
            updates(self.slab.shape, self.slab.halo, self._radii, steps) * self._n_fields, work
        )

    def substep(
        self, time: float, length: float, part: int = 0, found: Mapping[str, float] = NOTHING
    ) -> None:
        """Make a substep; returns when the device would be done."""

        def work() -> None:
            self._substepper.substep(time, length, part, found)
            self._stepper.wait()

        points = updates(self.slab.shape, self.slab.halo, self._radii, 1)
        self._device.compute(points * self._n_fields, work)

    def undo(self) -> None:
        """Restore the state before the last substep."""
        self._substepper.undo()

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of the fields and of their errors; see `Substepper`."""
        return self._substepper.peaks()

    def extremes(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Largest and minus the smallest value of some arrays; see `Substepper`."""
        return self._substepper.extremes(names)

    def digits(self, name: str, exponent: int) -> tuple[int, ...]:
        """The sum of an array by digits; see `Substepper`."""
        return self._substepper.digits(name, exponent)

    def whole(self, name: str) -> Field:
        """The owned points of an array; see `Substepper`."""
        return self._substepper.whole(name)

    def give(self, name: str, values: Field) -> None:
        """Set a coefficient; see `Substepper`."""
        self._substepper.give(name, values)

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
        """Store the planes beyond `side`."""
        self._device.transfer(planes.nbytes)
        self._stepper.set_halo(axis, side, planes)

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box`."""
        values = self._stepper.interior(box)
        self._device.transfer(values.nbytes)
        return values

    def find_nonfinite(self) -> Box | None:
        """Box of a few points around the first non-finite value; None if there is none."""
        return self._stepper.find_nonfinite()

    def wait(self) -> None:
        """Wait for the CPU stepper; the emulation itself leaves nothing in progress."""
        self._stepper.wait()

    def close(self) -> None:
        """Release the memory."""
        self._stepper.close()


def updates(
    shape: tuple[int, ...], halo: tuple[tuple[int, int], ...], radii: tuple[int, ...], steps: int
) -> float:
    """Point updates of a block: those of owned points, and those of the halo as it shrinks.

    >>> updates((10, 5), ((2, 0), (0, 0)), (1, 1), 3)
    165.0

    Args:
        shape: number of owned points per axis.
        halo: planes beyond them, per axis and side.
        radii: reach of a step per axis.
        steps: number of steps of the block.
    """
    total = 0.0
    # A step with `later` steps to follow also computes `later` radii of the halo.
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


# Streaming through an emulated device: one thread each copies chunks in, computes, and copies them
# out.

_PIECES = 3  # chunks on the device: of its four arrays, an advance uses one as its second
_PATIENCE = 0.05  # seconds between checks for a failure while waiting for memory


@dataclass
class _Cargo:
    slab: Slab
    values: Field  # of the chunk and its halo, later of its owned planes
    ready: threading.Event


class HostArray:
    """A slab in host memory as one array, halos included; see the protocol `HostSlab`."""

    def __init__(self, problem: Problem, slab: Slab) -> None:
        self._below = tuple(low for low, _ in slab.halo)
        shape = [low + n + high for n, (low, high) in zip(slab.shape, slab.halo, strict=True)]
        self._points: Field = np.zeros((problem.n_fields, *shape), problem.dtype)
        self._later = slab.shape[1:]

    def view(self, ranges: Ranges) -> Field:
        """The points of a box, counted from the first owned one."""
        box = zip(ranges, self._below, strict=True)
        return self._points[(slice(None), *(slice(a + low, b + low) for (a, b), low in box))]

    def planes(self, first: int, count: int) -> Field:
        """Planes counted from the first owned one, owned points along later axes."""
        return self.view(((first, first + count), *((0, n) for n in self._later)))

    def spare(self, count: int) -> Field:
        """Memory for `count` planes."""
        return np.zeros((len(self._points), count, *self._later), self._points.dtype)


# (events to wait for, work, event that is set afterwards).
_Job = tuple[Sequence[threading.Event], Callable[[], None], threading.Event]


class _Belt:
    """A thread that runs jobs in order, each after certain events."""

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
            # Set after a failure as well: otherwise jobs on other threads would wait for ever.
            event.set()


class EmulatedChunkPipeline:
    """The pipeline of an emulated device; see the protocol `ChunkPipeline` for the calls."""

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
        """Allocate one array with halos; any layout will do."""
        return HostArray(self._problem, slab)

    def bring(
        self, slab: Slab, sources: Sequence[tuple[int, Field]], after: Sequence[threading.Event]
    ) -> tuple[_Cargo, threading.Event]:
        """Copy a chunk once there is room for it on the device."""
        cargo = _Cargo(slab, np.empty(0), threading.Event())

        def work() -> None:
            # A failed thread frees no more memory, so waiting for room must end then.
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
        """Advance by the CPU method, on a slab of the chunk's shape."""

        def work() -> None:
            slab = cargo.slab
            low, high = slab.halo[0]
            stepper = self._stepper(slab)
            n = slab.shape[0]

            # The stepper may have been prepared for another chunk of the same shape, so positions
            # are taken relative to its own slab.
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
        """Copy the chunk back and free its memory."""

        def work() -> None:
            target[...] = cargo.values
            self._device.transfer(cargo.values.nbytes)
            self._at_a_time -= 1
            self._room.release()

        return self._belts[2].put([*after, cargo.ready], work)

    def finish(self, event: threading.Event) -> None:
        """Wait for an event."""
        event.wait()

    def wait(self) -> None:
        """Wait for all threads; raise the first exception of one of them."""
        # An empty job at the end of each queue; in the order of the pipeline.
        for belt in self._belts:
            belt.put([], lambda: None).wait()
        for belt in self._belts:
            if belt.failure is not None:
                failure, belt.failure = belt.failure, None
                raise failure

    def close(self) -> None:
        """End the threads and release the memory."""
        for belt in self._belts:
            belt.close()
        for stepper in self._steppers.values():
            stepper.close()
        self._steppers.clear()

    def _stepper(self, slab: Slab) -> Stepper:
        # For homogeneous problems only shape and halos matter; otherwise the position does as well.
        where = () if self._problem.why_not_one_stencil is None else slab.start
        key = slab.shape, slab.halo, where
        if key not in self._steppers:
            self._steppers[key] = self._method.prepare(
                self._problem, slab, self._parameters, self._device.team
            )
        return self._steppers[key]
