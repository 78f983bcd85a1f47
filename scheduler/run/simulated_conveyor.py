"""SimulatedConveyor: pieces go through a simulated device, with a thread for each direction and one
that computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from tetris_sim.gpu_kernels.common.layout import PitchedField, pitch_slab
from tetris_sim.gpu_kernels.steppers.streamed import ARRAYS, Flat, Planes, plane_pitch
from tetris_sim.method import Method, Parameters, Stepper
from tetris_sim.problem import Field, Problem
from tetris_sim.scheduler.run.simulated import SimulatedDevice, updates
from tetris_sim.slab import Slab

_PATIENCE = (
    0.05  # seconds after which a thread that waits for memory looks whether the device has failed
)


@dataclass
class _Cargo:
    slab: Slab
    values: Field  # of the piece and its halo, later of its owned planes
    ready: threading.Event


class _Lane:
    """A thread that carries out what it is given, one after the other, each when certain events
    have happened.
    """

    def __init__(self, name: str) -> None:
        self.failure: BaseException | None = None
        self._queue: SimpleQueue[
            tuple[Sequence[threading.Event], Callable[[], None], threading.Event] | None
        ]
        self._queue = SimpleQueue()
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
            for each in after:
                each.wait()
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
        self._problem, self._method, self._parameters, self._device = (
            problem,
            method,
            parameters,
            device,
        )
        self._lanes = [_Lane(f"{device.name} {what}") for what in ("brings", "computes", "takes")]
        self._room = threading.Semaphore(
            ARRAYS - 1
        )  # pieces; the fourth array is the other one of an advance
        self._steppers: dict[Any, Stepper] = {}
        self.most_at_a_time = self._at_a_time = 0

    def layout(self, slab: Slab) -> PitchedField:
        """Any layout would do."""
        return pitch_slab(self._problem, slab)

    def host_array(self, elements: int) -> Flat:
        """Zeros."""
        return np.zeros(elements, dtype=self._problem.dtype)

    def bring(
        self, slab: Slab, sources: Sequence[Planes], after: Sequence[threading.Event]
    ) -> tuple[_Cargo, threading.Event]:
        """When there is room for it."""
        cargo = _Cargo(slab, np.empty(0), threading.Event())

        def work() -> None:
            while not self._room.acquire(timeout=_PATIENCE):
                if any(lane.failure is not None for lane in self._lanes):
                    return
            self._at_a_time += 1
            self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
            low, high = slab.halo[0]
            shape = (self._problem.n_fields, low + slab.shape[0] + high, *slab.shape[1:])
            cargo.values = np.empty(shape, self._problem.dtype)
            for planes in sources:
                place = slice(low + planes.place, low + planes.place + planes.count)
                for values, field in zip(cargo.values, self._fields(slab, planes), strict=True):
                    values[place] = field
            self._device.transfer(cargo.values.nbytes)

        cargo.ready = self._lanes[0].put(after, work)
        return cargo, cargo.ready

    def advance(self, cargo: _Cargo, steps: int) -> None:
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
                stepper.load(initial)
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

        cargo.ready = self._lanes[1].put([cargo.ready], work)

    def take(
        self, cargo: _Cargo, target: Planes, after: Sequence[threading.Event]
    ) -> threading.Event:
        """Copy, and make room."""

        def work() -> None:
            for values, field in zip(cargo.values, self._fields(cargo.slab, target), strict=True):
                field[...] = values
            self._device.transfer(cargo.values.nbytes)
            self._at_a_time -= 1
            self._room.release()

        return self._lanes[2].put([*after, cargo.ready], work)

    def finish(self, event: threading.Event) -> None:
        """Return when it has happened."""
        event.wait()

    def wait(self) -> None:
        """Return when all threads are done; raise what one of them raised."""
        for lane in self._lanes:
            lane.put([], lambda: None).wait()
        for lane in self._lanes:
            if lane.failure is not None:
                failure, lane.failure = lane.failure, None
                raise failure

    def close(self) -> None:
        """End the threads."""
        for lane in self._lanes:
            lane.close()
        for stepper in self._steppers.values():
            stepper.close()
        self._steppers.clear()

    def _stepper(self, slab: Slab) -> Stepper:
        key = slab.shape, slab.halo
        if key not in self._steppers:
            self._steppers[key] = self._method.prepare(
                self._problem, slab, self._parameters, self._device.team
            )
        return self._steppers[key]

    def _fields(self, slab: Slab, planes: Planes) -> list[Field]:
        """Planes in host memory without their ghosts, (planes, ...) of each field."""
        layout, ndim = self.layout(slab), self._problem.grid.ndim
        length = planes.count * plane_pitch(layout, ndim)
        later = range(4 - ndim, 3)
        inside = [slice(layout.margin[k][0], layout.margin[k][0] + layout.count[k]) for k in later]
        found = []
        for field in range(layout.n_fields):
            begin = planes.element + field * planes.field_pitch
            shaped = planes.array[begin : begin + length].reshape(
                planes.count, *(layout.extent[k] for k in later)
            )
            found.append(shaped[(slice(None), *inside)])
        return found
