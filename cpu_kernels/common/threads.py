"""ThreadTeam: a fixed number of persistent threads that all call the same function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Task = Callable[[int], None]  # called with the thread's number


class ThreadTeam:
    """`size` threads that wait for work, so that starting some costs microseconds and the caller
    stays free.

    The caller's own thread is not one of them: it must be free to see signals while the team
    computes.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            msg = f"a team has at least one thread, got {size}"
            raise ValueError(msg)
        self.size = size
        # Whether steppers should keep the threads in compiled code between their blocks.
        self.stays_ready = False

        self._queues: list[SimpleQueue[Task | None]] = [SimpleQueue() for _ in range(size)]
        self._finished = threading.Semaphore(0)
        self._outstanding = 0
        self._failure: BaseException | None = None
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
        self._outstanding = self.size
        for queue in self._queues:
            queue.put(task)

    def wait(self) -> None:
        """Return when all threads have finished; raise what one of them raised."""
        while self._outstanding:
            self._finished.acquire()
            self._outstanding -= 1
        if self._failure is not None:
            failure, self._failure = self._failure, None
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
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, number: int) -> None:
        while (task := self._queues[number].get()) is not None:
            try:
                task(number)
            except BaseException as failure:  # noqa: BLE001  handed to the caller by wait()
                self._failure = failure
            self._finished.release()
