"""Beside: what is written down from a copy of the state while the computation goes on."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable

from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field
from tetris_sim.snapshot import StateSnapshot


class _AbandonedError(Exception):
    """Ends work that nobody waits for any more."""


class Beside:
    """Does work in a thread of its own, in the order in which it is handed in.

    There is one copy of the state at a time: whoever asks for the next one waits until all work
    with this one is done. An error of the thread is raised, once, by the next call that waits;
    until then nothing more is done.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._abandoned = threading.Event()
        self._copy: StateSnapshot | None = None
        self._handed_in = self._dealt_with = 0

    @property
    def busy(self) -> bool:
        """Whether some work is neither done nor given up; asked by who hands it in."""
        return self._dealt_with < self._handed_in

    def copy(self, snapshot: StateSnapshot) -> StateSnapshot:
        """A copy that can be read from the thread; the last one, if that is of this step and in
        use. Devices that have memory for it keep it until the thread fetches it, so that nobody
        else waits for that.

        Raises:
            Exception: of the thread.
        """
        if self._copy is not None and self._copy.step == snapshot.step:
            return self._copy
        self.wait()
        whole = tuple((0, n) for n in snapshot.problem.grid.shape)
        fetch = snapshot.keep()
        if fetch is None:
            read = self.reader(snapshot.field(), whole)
        else:
            readers: list[Callable[[Box], Field]] = []
            self.submit(lambda: readers.append(self.reader(fetch(), whole)))

            def read(box: Box) -> Field:
                return readers[0](box)

        self._copy = StateSnapshot(snapshot.problem, snapshot.step, read)
        return self._copy

    def reader(self, state: Field, place: Box) -> Callable[[Box], Field]:
        """Reads boxes of a copy whose points are those of `place`, unless work is given up."""

        def read(box: Box) -> Field:
            if self._abandoned.is_set():
                raise _AbandonedError
            inside = (
                slice(low - start, high - start)
                for (low, high), (start, _) in zip(box, place, strict=True)
            )
            return state[(slice(None), *inside)]

        return read

    def submit(self, work: Callable[[], None]) -> None:
        """Do it after all that was handed in before; returns at once."""
        self._handed_in += 1
        self._work.put(work)
        if self._thread is None:
            # With what the caller has set in its context, such as numpy.errstate.
            run = contextvars.copy_context().run
            self._thread = threading.Thread(
                target=run, args=(self._run,), name="beside", daemon=True
            )
            self._thread.start()

    def settle(self) -> None:
        """Return when all work is done, or cannot be; an error is kept for `wait`."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._work.put(None)
            thread.join()
        self._copy = None

    def wait(self) -> None:
        """Return when all work is done.

        Raises:
            Exception: of the thread.
        """
        self.settle()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Give up what is being written; what was written before stays."""
        self._abandoned.set()
        self.settle()
        self._error = None

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                if self._error is None and not self._abandoned.is_set():
                    work()
            except _AbandonedError:
                pass
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                self._error = error
            self._dealt_with += 1
