"""Ranks that are threads of one process: everything that MPI does for a run, fast, without MPI, and
with a debugger.

What is sent is copied when it is sent and checked when it arrives, and objects are pickled, as
between processes.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ElsewhereError
from tetris_sim.scheduler.comm.communicator import Communicator, Pending

T = TypeVar("T")
_PATIENCE = 60.0  # seconds without an answer after which a test has hung


class AbortedError(BaseException):
    """Another rank has aborted all."""


class World:
    """What the ranks have in common."""

    def __init__(self, size: int, computers: Sequence[int] | None = None) -> None:
        self.size = size
        self.computers = tuple(computers or (0,) * size)
        self.changed = threading.Condition()
        self.messages: dict[
            tuple[int, int, int, int], npt.NDArray[Any]
        ] = {}  # source, to, tag, number
        self.objects: dict[tuple[int, int], bytes] = {}  # number of the call, rank
        self.aborted: int | None = None

    def wait_for(self, key: Any, place: dict[Any, Any]) -> Any:
        """Take what will lie at a key, unless somebody aborts."""
        deadline = time.monotonic() + _PATIENCE
        with self.changed:
            while key not in place:
                if self.aborted is not None:
                    raise AbortedError
                assert time.monotonic() < deadline, f"nothing arrives at {key}"
                self.changed.wait(0.1)
            return place[key]


class ThreadCommunicator:
    """One rank; see the Protocol `Communicator`."""

    def __init__(self, world: World, rank: int) -> None:
        self.rank, self.size = rank, world.size
        self.ending = False
        self.timeout = _PATIENCE
        self._world = world
        self._calls = 0
        self._sent: dict[tuple[int, int], int] = defaultdict(int)
        self._expected: dict[tuple[int, int], int] = defaultdict(int)

    def tell(self, value: T) -> T:
        return self.collect(value if self.rank == 0 else None)[0]  # type: ignore[return-value]

    def collect(self, value: T) -> list[T]:
        world = self._world
        self._calls += 1
        with world.changed:
            world.objects[self._calls, self.rank] = pickle.dumps(value)
            world.changed.notify_all()
        found = [
            pickle.loads(world.wait_for((self._calls, rank), world.objects))
            for rank in range(self.size)
        ]
        found[self.rank] = value
        return found

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        return tuple(
            max(column) for column in zip(*self.collect(tuple(map(float, numbers))), strict=True)
        )

    def neighbours(self) -> tuple[int, ...]:
        mine = self._world.computers[self.rank]
        return tuple(
            rank for rank, computer in enumerate(self._world.computers) if computer == mine
        )

    def takes_gpu_memory(self) -> bool:
        return False

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> Pending:
        assert array.flags.c_contiguous
        assert 0 <= to < self.size
        assert to != self.rank or self.size == 1
        number = self._sent[to, tag] = self._sent[to, tag] + 1
        with self._world.changed:
            self._world.messages[self.rank, to, tag, number] = array.copy()
            self._world.changed.notify_all()
        return _Nothing()

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> Pending:
        assert array.flags.c_contiguous
        number = self._expected[source, tag] = self._expected[source, tag] + 1
        return _Arrival(self._world, (source, self.rank, tag, number), array)

    def abort(self, code: int) -> None:
        with self._world.changed:
            self._world.aborted = code
            self._world.changed.notify_all()


class _Nothing:
    def wait(self) -> None:
        pass


class _Arrival:
    def __init__(
        self, world: World, key: tuple[int, int, int, int], array: npt.NDArray[Any]
    ) -> None:
        self._world, self._key, self._array = world, key, array
        array.view(np.uint8)[...] = 0xFF  # NaN: nobody may read it before it has arrived

    def wait(self) -> None:
        values = self._world.wait_for(self._key, self._world.messages)
        assert (values.shape, values.dtype) == (self._array.shape, self._array.dtype)
        self._array[...] = values
        del self._world.messages[self._key]


def run_ranks(
    size: int, work: Callable[[Communicator], T], *, computers: Sequence[int] | None = None
) -> list[T]:
    """Call `work` on every rank: the results in the order of ranks, or the error of the first that
    has one of its own.

    Args:
        size: number of ranks.
        work: what each does.
        computers: the computer of each rank; the same for all if not given.
    """
    world = World(size, computers)
    results: dict[int, T] = {}
    failures: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        ranks = ThreadCommunicator(world, rank)
        try:
            results[rank] = work(ranks)
        except BaseException as error:  # noqa: BLE001  raised below
            failures[rank] = error
            if not ranks.ending:
                ranks.abort(1)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank-{rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * _PATIENCE)
        assert not thread.is_alive(), f"{thread.name} hangs"
    for error in sorted(
        failures.values(), key=lambda each: isinstance(each, ElsewhereError | AbortedError)
    ):
        raise error
    assert not world.messages, f"not received: {list(world.messages)}"
    return [results[rank] for rank in range(size)]
