"""A GPU keeps the state of a step while it goes on, and gives it to whoever writes it down."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.cases import boundary_of, make_problem, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.model.method import Stepper
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.output import StateSnapshot
from tetris_sim.scheduler.facts.shares import Domain
from tetris_sim.scheduler.plan.partition import cut
from tetris_sim.scheduler.workers.exchange import LocalExchange, keep
from tetris_sim.scheduler.workers.queued import QueuedStepper
from tetris_sim.simulation.background import AsyncWriter

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
LONG = 30.0  # seconds; never waited for unless the test fails


def plate(shape: tuple[int, int] = (40, 31), dtype: str = "float64") -> Problem:
    boundary = boundary_of("rings", 2)
    return make_problem(stencil_of("heat-2d"), boundary, shape=shape, dtype=dtype, n_fields=2)[0]


def on_gpus(problem: Problem, gpus: list[Any], *, queued: bool) -> list[Any]:
    """Workers on slabs of equal size, loaded."""
    slabs = cut(Domain.of(problem), (len(gpus), 1), [1.0] * len(gpus), 3)
    workers = []
    for gpu, slab in zip(gpus, slabs, strict=True):
        stepper: Stepper = GpuPlainMethod().prepare(problem, slab, {}, gpu)
        if queued:
            stepper = QueuedStepper("gpu:0", stepper)
        stepper.load(problem.initial)
        workers.append(SimpleNamespace(stepper=stepper, keeps=True))
    return workers


@emulated
@pytest.mark.parametrize("queued", [False, True], ids=["alone", "behind queues"])
@pytest.mark.parametrize("count", [1, 2])
def test_what_is_kept_is_the_state_of_then(count: int, queued: bool) -> None:
    problem = plate()
    workers = on_gpus(problem, [HostGpu() for _ in range(count)], queued=queued)
    exchange = LocalExchange(problem, [worker.stepper.slab for worker in workers])
    whole = tuple((0, n) for n in problem.grid.shape)
    fetches, states = [], []
    for _ in range(3):
        fetches.append(keep(problem, workers))
        states.append(exchange.gather(workers, whole))
        exchange.swap(workers)
        for worker in workers:
            worker.stepper.advance(3)
    for fetch, state in zip(fetches[::-1], states[::-1], strict=True):
        assert fetch is not None
        np.testing.assert_array_equal(fetch(), state)
    assert not np.array_equal(states[0], states[1])
    for worker in workers:
        worker.stepper.close()


@emulated
def test_without_memory_for_it_nothing_is_kept() -> None:
    problem, gpus = plate(), [HostGpu(), HostGpu()]
    workers = on_gpus(problem, gpus, queued=True)
    stepper: Any = workers[1].stepper
    needed = stepper._stepper._state.now.nbytes
    gpus[1].free = needed
    assert keep(problem, workers) is not None
    gpus[1].free = needed - 1
    assert keep(problem, workers) is None
    gpus[1].free = needed
    workers[0].keeps = False  # as the plan says
    assert keep(problem, workers) is None
    for worker in workers:
        worker.stepper.close()
    threads: Any = SimpleNamespace(
        stepper=SimpleNamespace(slab=Slab.whole(problem.grid)), keeps=True
    )
    assert keep(problem, [threads]) is None


def test_who_asks_for_a_copy_does_not_wait_until_it_is_fetched() -> None:
    problem, gate = plate(), threading.Event()
    state = problem.initial(Slab.whole(problem.grid))
    fetched: list[str] = []

    def fetch() -> Any:
        assert gate.wait(LONG)
        fetched.append(threading.current_thread().name)
        return state

    def not_now(box: Any) -> Any:
        msg = "the state is to be fetched later"
        raise AssertionError(msg)

    beside, found = AsyncWriter(), list[Any]()
    copy = beside.copy(StateSnapshot(problem, 5, not_now, keep=lambda: fetch))
    beside.submit(lambda: found.append(copy.box(((3, 9), (0, 31)))))
    beside.submit(lambda: found.append(copy.field()))
    assert fetched == []
    gate.set()
    beside.wait()
    assert fetched == ["beside"]
    np.testing.assert_array_equal(found[0], state[:, 3:9])
    np.testing.assert_array_equal(found[1], state)


def test_a_copy_that_cannot_be_fetched_is_an_error_of_who_waits_next() -> None:
    def fetch() -> Any:
        msg = "the GPU has gone"
        raise OSError(msg)

    problem, beside, written = plate(), AsyncWriter(), list[int]()
    copy = beside.copy(StateSnapshot(problem, 5, lambda _: fetch(), keep=lambda: fetch))
    beside.submit(lambda: written.append(copy.step))
    with pytest.raises(OSError, match="the GPU has gone"):
        beside.wait()
    assert written == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_a_gpu_goes_on_while_what_it_kept_is_fetched(gpu: Any, dtype: str) -> None:
    problem = plate((3001, 4003), dtype)
    (worker,) = on_gpus(problem, [gpu], queued=False)
    stepper, kept = worker.stepper, list[Any]()
    for _ in range(4):
        before, fetch = stepper.interior(), stepper.kept()
        assert fetch is not None
        thread = threading.Thread(target=lambda fetch=fetch: kept.append(fetch()))
        stepper.advance(50)
        thread.start()
        stepper.advance(50)
        thread.join()
        np.testing.assert_array_equal(kept.pop(), before)
        assert not np.array_equal(stepper.interior(), before)
    stepper.close()
