"""ThreadTeam: a fixed number of persistent threads that all call the same function."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

Task = Callable[[int], None]  # called with the thread's number


@dataclass
class _Round:
    """A task of all threads.

    Waiting changes no counter: an interrupt (Ctrl-C) may come between any two operations of the
    caller, and the next call of `wait` must still know what is in progress.

    Attributes:
        task: what each thread calls.
        given: an item for each thread that was told.
        ended: an item for each that is done.
        failures: what they raised.
    """

    task: Task
    given: deque[None] = field(default_factory=deque)
    ended: deque[None] = field(default_factory=deque)
    failures: deque[BaseException] = field(default_factory=deque)


class ThreadTeam:
    """A team of `size` threads that wait for work, so that starting a task costs microseconds and
    leaves the caller free.

    The caller's own thread is not one of them: it must be free to receive signals while the team
    computes.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            msg = f"a team has at least one thread, got {size}"
            raise ValueError(msg)
        self.size = size
        # Whether steppers should keep the threads in compiled code between their blocks.
        self.stays_ready = False

        self._queues: list[SimpleQueue[_Round | None]] = [SimpleQueue() for _ in range(size)]
        self._round = _Round(lambda thread: None)
        self._ends: SimpleQueue[None] = SimpleQueue()  # wakes who waits: some thread is done
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"team-{number}", daemon=True)
            for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, task: Task) -> None:
        """Let every thread call `task(its number)`; return at once. Waits for an earlier task
        first.
        """
        self.wait()
        while not self._ends.empty():  # of those who were done before anybody waited
            self._ends.get()
        self._round = begun = _Round(task)
        # One call, which no interrupt divides: who is told is counted.
        begun.given.extend(map(SimpleQueue.put, self._queues, itertools.repeat(begun)))

    def wait(self) -> None:
        """Return when all threads have finished; raise what one of them raised."""
        # Items of `_ends` only wake the caller; the lengths of the two deques decide.
        while len(self._round.ended) < len(self._round.given):
            self._ends.get()
        # One failure is raised, and the others are dropped with it.
        if failures := self._round.failures:
            failure = failures[-1]
            failures.clear()
            raise failure

    def run(self, task: Task) -> None:
        """`start` and `wait`."""
        self.start(task)
        self.wait()

    def split(self, n: int, thread: int) -> range:
        """The part of range(n) that belongs to one thread."""
        return range(n * thread // self.size, n * (thread + 1) // self.size)

    def close(self) -> None:
        """End the threads."""
        self.wait()
        # None ends a thread's loop.
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, number: int) -> None:
        while (told := self._queues[number].get()) is not None:
            try:
                told.task(number)
            except BaseException as failure:  # noqa: BLE001  handed to the caller by wait()
                told.failures.append(failure)
            # Recorded before the wake-up, so that a woken caller always finds it.
            told.ended.append(None)
            self._ends.put(None)
