"""A state on its way to and from a GPU: every number in its place, however few buffers there are."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels.steppers.planes import Transfer
from tetris_sim.model.slab import Ranges, batches, slices

WHOLE: Ranges = ((3, 40), (0, 5))


@pytest.fixture(params=[1, 3, 40], autouse=True)
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(request.param)))
    return int(request.param)


def transfer(n_fields: int = 2, points: int = 10) -> Transfer:
    gpu: Any = HostGpu()
    return Transfer(gpu, n_fields, np.dtype(np.float64), batches(WHOLE, points))


@pytest.mark.parametrize("points", [5, 12, 1000])
def test_numbers_arrive_where_they_belong(points: int, rng: np.random.Generator) -> None:
    state = rng.random((2, 37, 5))
    there = np.zeros_like(state)

    def make(part: Ranges) -> Any:
        time.sleep(0.002 * rng.random())  # so that parts are not made in their order
        return state[slices(part, WHOLE)]

    def put(part: Ranges, here: Any) -> None:
        there[slices(part, WHOLE)] = here

    transfer(points=points).bring(make, put)
    np.testing.assert_array_equal(there, state)

    back = np.zeros_like(state)

    def keep(part: Ranges, values: Any) -> None:
        time.sleep(0.002 * rng.random())
        back[slices(part, WHOLE)] = values

    transfer(points=points).fetch(
        lambda part: np.ascontiguousarray(there[slices(part, WHOLE)]), keep
    )
    np.testing.assert_array_equal(back, state)


def test_parts_are_made_by_all_threads_and_a_few_ahead(cores: int) -> None:
    names: set[str] = set()
    made, put = 0, 0
    lock = threading.Lock()
    most = 0

    def make(part: Ranges) -> Any:
        nonlocal made, most
        with lock:
            made += 1
            most = max(most, made - put)
            names.add(threading.current_thread().name)
        time.sleep(0.01)
        return np.zeros((2, part[0][1] - part[0][0], 5))

    def count(part: Ranges, here: Any) -> None:
        nonlocal put
        put += 1

    transfer().bring(make, count)
    assert (made, put) == (19, 19)
    # A pool that has an idle thread starts no other.
    assert min(cores, 2) <= len(names) <= min(cores, 16)
    assert most <= min(cores, 16) + 2


def test_what_is_wrong_with_a_part_is_told() -> None:
    def make(part: Ranges) -> Any:
        if part[0][0] == 13:
            msg = "no value there"
            raise ValueError(msg)
        return np.zeros((2, part[0][1] - part[0][0], 5))

    with pytest.raises(ValueError, match="no value there"):
        transfer().bring(make, lambda part, here: None)
    with pytest.raises(ValueError, match="no value there"):
        transfer().fetch(make, lambda part, values: make(part))


def test_nothing_travels_of_nothing() -> None:
    gpu: Any = HostGpu()
    empty = Transfer(gpu, 1, np.dtype(np.float64), batches(((2, 2), (0, 5)), 10))
    empty.bring(lambda part: pytest.fail("made"), lambda part, here: pytest.fail("put"))
