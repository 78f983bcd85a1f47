"""CheckpointWriter: writes a checkpoint from a copy of the state while the computation goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tetris_sim.checkpoint.directory import write_checkpoint
from tetris_sim.checkpoint.state import RunState
from tetris_sim.method import Box
from tetris_sim.problem import Field, Problem


class _AbandonedError(Exception):
    """Ends a write that nobody waits for any more."""


class CheckpointWriter:
    """Writes checkpoints in a thread of its own, one after the other.

    An error of the thread is raised, once, by the next call. Call `wait` before making a copy of
    the state: then no more than one copy exists at a time, and an earlier error does not stand in
    the way of the next checkpoint.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._abandoned = threading.Event()

    def submit(
        self,
        directory: Path,
        state: RunState,
        problem: Problem,
        read: Callable[[Box], Field],
        *,
        keep: int,
    ) -> None:
        """Begin to write; waits for an earlier write to end. Arguments as for `write_checkpoint`.

        Args:
            directory: where to.
            state: the run state.
            problem: whose field it is.
            read: the points inside a box, out of a copy: it is called from the thread while the
                computation goes on.
            keep: how many good checkpoints stay.

        Raises:
            UnsupportedError: the earlier write failed; nothing new was begun.
        """
        self.wait()

        def read_unless_abandoned(box: Box) -> Field:
            if self._abandoned.is_set():
                raise _AbandonedError
            return read(box)

        def write() -> None:
            try:
                write_checkpoint(directory, state, problem, read_unless_abandoned, keep=keep)
            except _AbandonedError:
                pass
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                self._error = error

        self._thread = threading.Thread(target=write, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Return when everything handed in is on the disk.

        Raises:
            UnsupportedError: it could not be written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Give up what is being written, after a second Ctrl-C; earlier checkpoints stay."""
        self._abandoned.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self._error = None
