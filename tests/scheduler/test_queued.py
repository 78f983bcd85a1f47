"""Workers with threads of their own, and simulated devices: at the same time, as slow as asked,
failing as asked.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.cases import make_problem
from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.method import LastingPlanes, Stepper
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.plan.partition import cut_along_axis_0
from tetris_sim.scheduler.workers.exchange import LocalExchange
from tetris_sim.scheduler.workers.queued import QueuedStepper, WorkerError
from tetris_sim.scheduler.workers.worker import Worker

FAST = SimulatedSection(speed=1e15, latency=0, bandwidth=1e15)


def plate(shape: tuple[int, ...] = (40, 30)) -> Problem:
    return make_problem(
        named_stencil("heat-2d").stencil, Boundary.everywhere(Neumann(), 2), shape=shape
    )[0]


def share_of(slab: Slab, settings: SimulatedSection | None, name: str = "simulated:0") -> Share:
    return Share(name, slab, CpuPlainMethod(), {}, 1, 1.0, 0, queued=True, simulated=settings)


@contextlib.contextmanager
def opened(problem: Problem, *shares: Share) -> Iterator[list[Worker]]:
    with contextlib.ExitStack() as stack:
        workers = []
        for share in shares:
            workers.append(Worker(problem, share))
            stack.callback(workers[-1].close)
            workers[-1].stepper.load(problem.initial)
        yield workers


def halves(problem: Problem, halo: int, *settings: SimulatedSection | None) -> list[Share]:
    n = problem.grid.shape[0]
    slabs = cut_along_axis_0(problem.grid, problem.boundary, ((0, n // 2), (n // 2, n)), halo=halo)
    return [
        share_of(slab, each, "cpu:0" if each is None else f"simulated:{k}")
        for k, (slab, each) in enumerate(zip(slabs, settings, strict=True))
    ]


def test_advance_returns_at_once_and_two_workers_take_as_long_as_one() -> None:
    problem = plate()
    slow = SimulatedSection(
        speed=20 * 30 * 10 / 0.4, latency=0, bandwidth=1e15
    )  # 10 steps of half a plate in 0.4 s
    with opened(problem, *halves(problem, 10, slow, slow)) as workers:
        LocalExchange(problem, [worker.stepper.slab for worker in workers]).swap(workers)
        begin = time.perf_counter()
        for worker in workers:
            worker.stepper.advance(10)
        assert time.perf_counter() - begin < 0.1
        for worker in workers:
            worker.stepper.wait()
        assert 0.4 < time.perf_counter() - begin < 0.79
        for worker in workers:
            assert isinstance(worker.stepper, QueuedStepper)
            assert 0.4 < worker.stepper.busy_s < 0.75
            assert [steps for steps, _ in worker.stepper.recent] == [10]


def test_a_link_has_latency_and_bandwidth() -> None:
    problem = plate()
    far = SimulatedSection(speed=1e15, latency=0.02, bandwidth=4 * 30 * 8 / 0.05)
    with opened(problem, *halves(problem, 4, far, None)) as workers:
        for worker in workers:
            worker.stepper.wait()
        begin = time.perf_counter()
        planes = workers[0].stepper.edge(0, "high")
        assert 0.07 < time.perf_counter() - begin < 0.2
        begin = time.perf_counter()
        workers[0].stepper.set_halo(0, "high", planes)
        assert time.perf_counter() - begin < 0.05
        workers[0].stepper.wait()
        assert 0.07 < time.perf_counter() - begin < 0.2


def test_edges_are_copied_before_anybody_asks_and_are_those_after_the_block() -> None:
    problem = plate()
    with opened(problem, *halves(problem, 4, FAST, None)) as workers:
        exchange = LocalExchange(problem, [worker.stepper.slab for worker in workers])
        for _ in range(3):
            exchange.swap(workers)
            for worker in workers:
                worker.stepper.advance(4)
        low = workers[0].stepper
        assert isinstance(low, QueuedStepper)
        low.wait()
        assert (0, "high") in low._edges
        np.testing.assert_array_equal(low.edge(0, "high"), low.interior(((16, 20), (0, 30))))
        np.testing.assert_array_equal(low.edge(0, "high"), low.interior(((16, 20), (0, 30))))


def test_a_device_fails_when_it_was_told_to_and_says_its_name() -> None:
    problem = plate()
    failing = FAST.model_copy(update={"fail_after": 3})
    with opened(problem, share_of(Slab.whole(problem.grid), failing)) as (worker,):
        for _ in range(2):
            worker.stepper.advance(5)
        worker.stepper.wait()
        worker.stepper.advance(5)
        with pytest.raises(
            WorkerError, match="simulated:0 failed: it was to fail in its time block number 3"
        ) as caught:
            worker.stepper.wait()
        assert caught.value.worker == "simulated:0"


class Far:
    """A stepper whose edges stay on its device; they become arrays in the thread that asks for
    them.
    """

    slab = Slab((0,), (4,), ((0, 1),))

    def __init__(self) -> None:
        self.fetched_by: list[str] = []

    def advance(self, steps: int) -> None:
        pass

    def wait(self) -> None:
        pass

    def edge(self, axis: int, side: str) -> Far:
        return self

    def __array__(self, dtype: object = None, copy: object = None) -> Field:
        self.fetched_by.append(threading.current_thread().name)
        return np.ones((1, 1))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("through_host", [False, True])
def test_edges_for_the_host_are_fetched_by_the_devices_own_thread(through_host: bool) -> None:
    far = Far()
    stepper = QueuedStepper("gpu:0", far, through_host=through_host)  # type: ignore[arg-type]
    stepper.advance(1)
    planes = stepper.edge(0, "high")
    assert isinstance(planes, np.ndarray) == through_host
    assert far.fetched_by == (["worker-gpu:0"] if through_host else [])
    stepper.close()


def test_edges_in_memory_that_lasts_stay_known_as_such() -> None:
    lasting = LastingPlanes(np.ones((1, 1)))
    far = Far()
    far.edge = lambda axis, side: lasting  # type: ignore[assignment, method-assign, return-value]
    stepper = QueuedStepper("cpu:0", far, through_host=True)  # type: ignore[arg-type]
    stepper.advance(1)
    assert stepper.edge(0, "high") is lasting
    stepper.close()


class Broken:
    """A stepper of a device whose driver raises."""

    slab = Slab((0,), (4,), ((0, 0),))

    def __init__(self, error: Exception) -> None:
        self.error = error

    def advance(self, steps: int) -> None:
        raise self.error

    def wait(self) -> None:
        pass

    def interior(self, box: object = None) -> None:
        raise self.error

    def close(self) -> None:
        pass


def test_errors_of_the_driver_are_failures_of_the_worker_and_mistakes_of_ours_are_not() -> None:
    driver = type(
        "CUDARuntimeError", (RuntimeError,), {"__module__": "cupy_backends.cuda.api.runtime"}
    )
    for error, seen in (
        (driver("cudaErrorECCUncorrectable"), WorkerError),
        (ValueError("a bug"), ValueError),
    ):
        broken: Stepper = Broken(error)  # type: ignore[assignment]
        stepper = QueuedStepper("gpu:0", broken)
        stepper.advance(1)
        with pytest.raises(seen, match=r"cudaErrorECC|a bug"):
            stepper.wait()
        with pytest.raises(seen):
            stepper.interior()
        stepper.close()


def test_what_is_queued_after_a_failure_is_not_done() -> None:
    stepper = QueuedStepper("gpu:0", Broken(ValueError("a bug")))  # type: ignore[arg-type]
    stepper.advance(1)
    stepper.advance(1)
    with pytest.raises(ValueError, match="a bug"):
        stepper.wait()
    assert stepper.busy_s == 0
    stepper.close()
    assert not any(thread.name == "worker-gpu:0" for thread in threading.enumerate())


def test_a_worker_keeps_its_device_when_its_slab_changes() -> None:
    problem = plate()
    first, second = halves(problem, 2, FAST, FAST)
    with opened(problem, first) as (worker,):
        device = worker.device
        worker.change(problem, second)
        assert worker.device is device
        worker.stepper.load(problem.initial)
        wanted = problem.initial(second.slab)
        np.testing.assert_array_equal(worker.stepper.interior(), wanted)
