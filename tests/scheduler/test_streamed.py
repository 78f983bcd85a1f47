"""A slab in host memory that goes through a device in pieces has the bits of one that stays
there.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.support.cases import (
    HALOS,
    SHAPES,
    boundary_of,
    make_problem,
    mixed_boundaries,
    run_with_halo,
    stencil_of,
)
from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Streaming
from tetris_sim.scheduler.workers.queued import WorkerError
from tetris_sim.scheduler.workers.simulated import EmulatedChunkPipeline, EmulatedDevice
from tetris_sim.scheduler.workers.worker import StreamedStepper

FAST = SimulatedSection(speed=1e15, latency=0, bandwidth=1e15)
METHOD = CpuPlainMethod()


def streaming(steps: int, planes: int) -> Streaming:
    return Streaming(steps, planes, 1, 1e9, 0.0, 0.0, 1.0, 3)


@dataclass
class Event:
    """Something that is done when somebody wants it."""

    work: Callable[[], None] | None
    after: Sequence[Event]

    def happen(self) -> None:
        if self.work is not None:
            work, self.work = self.work, None
            for each in self.after:
                each.happen()
            work()


class LateConveyor(EmulatedChunkPipeline):
    """Everything happens as late as its events allow, or in any order that they allow: what is not
    waited for is seen.

    Stands in for streams: the events say what must come before what, and within a stream order is
    kept.
    """

    def __init__(
        self, problem: Problem, device: EmulatedDevice, order: random.Random | None
    ) -> None:
        super().__init__(problem, METHOD, {}, device)
        self._order = order
        self._events: list[Event] = []
        self._last: dict[int, Event] = {}
        for number, belt in enumerate(self._belts):
            belt.put = self._putting(number)  # type: ignore[method-assign, assignment]
        self._room = _Boundless()  # type: ignore[assignment]

    def _putting(self, number: int) -> Callable[[Sequence[Any], Callable[[], None]], Event]:
        def put(after: Sequence[Any], work: Callable[[], None]) -> Event:
            before = [self._last[number]] if number in self._last else []
            event = Event(work, [*after, *before])
            self._last[number] = event
            self._events.append(event)
            if self._order is not None and self._order.random() < 0.5:
                self._order.choice(self._events[-6:]).happen()
            return event

        return put

    def finish(self, event: Any) -> None:
        event.happen()

    def wait(self) -> None:
        for event in reversed(self._events) if self._order is None else self._events:
            event.happen()
        self._events = []


class _Boundless:
    def acquire(self, timeout: float) -> bool:
        return True

    def release(self) -> None:
        pass


def advanced(stepper: StreamedStepper, problem: Problem, blocks: Sequence[int]) -> Field:
    try:
        stepper.load(problem.initial)
        for steps in blocks:
            stepper.advance(steps)
        return stepper.interior()
    finally:
        stepper.close()


def resident(problem: Problem, blocks: Sequence[int], team: ThreadTeam) -> Field:
    stepper = METHOD.prepare(problem, Slab.whole(problem.grid), {}, team)
    stepper.load(problem.initial)
    for steps in blocks:
        stepper.advance(steps)
    found: Field = stepper.interior()
    stepper.close()
    return found


@pytest.mark.parametrize("name", ["star-1d5p", "heat-2d", "box-2d25p", "heat-3d"])
def test_every_kind_of_face_has_the_bits_of_a_slab_that_stays(
    name: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(name)
    shape = tuple(2 * n + 1 for n in SHAPES[stencil.ndim])
    boundaries = [boundary for _, boundary in mixed_boundaries(stencil.ndim)]
    for number, boundary in enumerate(boundaries[:5] + boundaries[7:9]):
        problem, _ = make_problem(stencil, boundary, shape=shape, n_fields=1 + number % 2)
        wanted = resident(problem, (1, 5, 7), teams[1])
        for steps, planes in (
            ((1, 3), (2, 5), (3, 100))[k] for k in (number % 3, (number + 1) % 3)
        ):
            device = EmulatedDevice("simulated:0", FAST, 1)
            conveyor = EmulatedChunkPipeline(problem, METHOD, {}, device)
            stepper = StreamedStepper(
                problem, Slab.whole(problem.grid), conveyor, streaming(steps, planes)
            )
            np.testing.assert_array_equal(advanced(stepper, problem, (1, 5, 7)), wanted)
            assert conveyor.most_at_a_time <= 3
            device.close()


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_copies_that_come_as_late_as_they_may_or_in_any_order_change_nothing(
    seed: int | None, teams: dict[int, ThreadTeam]
) -> None:
    for name, boundary_name in itertools.product(("heat-1d", "heat-2d"), ("rings", "walls")):
        stencil = stencil_of(name)
        problem, _ = make_problem(
            stencil, boundary_of(boundary_name, stencil.ndim), shape=(61, 9)[: stencil.ndim]
        )
        wanted = resident(problem, (4, 9), teams[1])
        device = EmulatedDevice("simulated:0", FAST, 1)
        conveyor = LateConveyor(problem, device, None if seed is None else random.Random(seed))
        stepper = StreamedStepper(problem, Slab.whole(problem.grid), conveyor, streaming(3, 7))
        np.testing.assert_array_equal(advanced(stepper, problem, (4, 9)), wanted)
        device.close()


class _Streamed:
    """`cpu.plain` streamed, as a method."""

    def __init__(self, steps: int, planes: int) -> None:
        self.how = streaming(steps, planes)

    def prepare(
        self, problem: Problem, slab: Slab, parameters: Any, device: EmulatedDevice
    ) -> StreamedStepper:
        return StreamedStepper(
            problem, slab, EmulatedChunkPipeline(problem, METHOD, {}, device), self.how
        )


@pytest.mark.parametrize(
    ("name", "halo"), [HALOS[0], HALOS[1], HALOS[2], ("heat-2d", ((6, 0), (0, 0)))]
)
@pytest.mark.parametrize("steps", [1, 4, 6])
def test_a_slab_with_neighbours_gives_the_edges_and_takes_the_halos_of_one_that_stays(
    name: str, halo: tuple[tuple[int, int], ...], steps: int, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(name)
    shape = {1: (103,), 2: (45, 53)}[stencil.ndim]
    problem, _ = make_problem(stencil, boundary_of("walls", stencil.ndim), shape=shape, n_fields=2)
    device: Any = EmulatedDevice("simulated:0", FAST, 1)
    method: Any = _Streamed(steps, 9)
    for one, other in zip(
        run_with_halo(method, problem, halo, {}, device),
        run_with_halo(METHOD, problem, halo, {}, teams[1]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    device.close()


def test_copies_and_computation_overlap() -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(80, 50))
    # 8 pieces of 10 planes, 5 steps each: 10 ms to compute, 10 ms to bring and to take.
    settings = SimulatedSection(speed=15 * 50 * 5 / 0.01, latency=0, bandwidth=15 * 50 * 8 / 0.01)
    device = EmulatedDevice("simulated:0", settings, 1)
    conveyor = EmulatedChunkPipeline(problem, METHOD, {}, device)
    stepper = StreamedStepper(problem, Slab.whole(problem.grid), conveyor, streaming(5, 10))
    stepper.load(problem.initial)
    stepper.advance(5)
    stepper.wait()  # compiled, opened
    begin = time.perf_counter()
    stepper.advance(15)
    assert time.perf_counter() - begin < 0.1
    stepper.wait()
    assert 0.22 < time.perf_counter() - begin < 0.65  # one after the other would be 0.72
    assert conveyor.most_at_a_time == 3
    stepper.close()
    device.close()


def test_a_nan_is_named_and_a_failure_is_told() -> None:
    problem, state = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(80, 50))
    state[0, 41, 20] = np.nan
    device = EmulatedDevice("simulated:0", FAST.model_copy(update={"fail_after": 6}), 1)
    conveyor = EmulatedChunkPipeline(problem, METHOD, {}, device)
    stepper = StreamedStepper(problem, Slab.whole(problem.grid), conveyor, streaming(2, 10))
    stepper.load(problem.initial)
    assert stepper.find_nonfinite() == ((40, 48), (16, 24))
    stepper.advance(6)
    with pytest.raises(WorkerError, match=r"simulated:0 failed: .* number 6"):
        stepper.wait()
    stepper.close()
    device.close()
