"""SimulatedConveyor: pieces go through a simulated device: threads bring, compute and take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from tetris_sim.model.method import Method, Parameters, Stepper
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.scheduler.run.simulated import SimulatedDevice, updates

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


class SimulatedConveyor:
    """See the Protocol `Conveyor` of streamed.py for what the calls mean."""

    def __init__(
        self, problem: Problem, method: Method, parameters: Parameters, device: SimulatedDevice
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
