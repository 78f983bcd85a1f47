"""Reasons to stop a run early or to save: signals, a wall-time limit, the end of a Slurm job.

SIGTERM, SIGUSR1 and the first Ctrl-C are noted and handled at the end of the time block: USR1 saves
a checkpoint and the run continues, TERM saves and stops with exit code 75, Ctrl-C saves and stops
with exit code 130. A second Ctrl-C aborts at once. While a run is planned there is nothing to save,
so TERM and Ctrl-C end it at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tetris_sim.errors import ExitCode, StopRequested


@dataclass(frozen=True)
class StopReason:
    """The reason why a run ended before its last step, with its exit code."""

    exit_code: ExitCode
    sentence: str

    @property
    def said(self) -> str:
        """The first line of the report."""
        begun = "Done" if self.exit_code == ExitCode.OK else "Stopped early"
        return f"{begun}: {self.sentence}"


_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
_AGAIN = 1.0  # seconds; longer than it takes to close what is open

NOTHING_DONE = "nothing was computed, and no file was changed"


class Stopping:
    """Collected reasons to stop, queried once per time block.

    Args:
        deadline: value of time.time() at which the run must have stopped, if there is one.
        margin: time before the deadline at which to stop, so that the last checkpoint can be
            written [s].
        speaks: whether to answer Ctrl-C on stderr, which one of several ranks does.
        aborts: whether a second Ctrl-C ends the process at once; otherwise it raises
            KeyboardInterrupt, as suits an interpreter that does other work as well.

    Attributes:
        deadline: as above.
    """

    def __init__(
        self,
        deadline: float | None = None,
        margin: float = 0.0,
        *,
        speaks: bool = True,
        aborts: bool = True,
    ) -> None:
        self.deadline = deadline
        self.margin = margin
        self._speaks = speaks
        self._aborts = aborts
        self._at_once = False
        self._so_far = ""
        self._alarm: Any = None  # previous handler of SIGALRM
        self._reason: StopReason | None = None
        self._save = False

    @contextlib.contextmanager
    def listening(self, *, deaf_after: bool = False) -> Iterator[None]:
        """Handle signals inside the block; outside of the main thread they are left as they are.

        An earlier `Stopping` that was handling signals raises no exceptions from then on: after the
        block, only the result remains to be reported.

        Args:
            deaf_after: whether to ignore signals after the block, because the process ends there;
                otherwise the previous handlers are restored.
        """
        # Python allows signal handlers to be set in the main thread only.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        earlier = getattr(before[signal.SIGTERM], "__self__", None)
        if isinstance(earlier, Stopping):
            earlier._at_once = False
        try:
            yield
        finally:
            for number, action in before.items():
                signal.signal(number, signal.SIG_IGN if deaf_after else action)

    @contextlib.contextmanager
    def at_once(self, so_far: str = "") -> Iterator[None]:
        """Inside the block, SIGTERM and Ctrl-C raise `StopRequested`.

        Args:
            so_far: work done until then, for the message.
        """
        with _hushed():
            self._at_once, self._so_far = True, so_far
            try:
                # A signal may have arrived before the block.
                self._end_now()
                yield
            finally:
                self._at_once = False
                if self._alarm is not None:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    signal.signal(signal.SIGALRM, self._alarm)
                    self._alarm = None

    @property
    def signalled(self) -> StopReason | None:
        """The reason to stop that has been noted; None if there is none."""
        return self._reason

    def reason(self, block_seconds: float = 0.0) -> StopReason | None:
        """The reason to stop now; None to continue.

        Args:
            block_seconds: expected time of the next block, which must end before the deadline [s].
        """
        if self._reason is None and self.deadline is not None:
            left = self.deadline - time.time()
            if left < self.margin + block_seconds:
                sentence = f"the wall-time limit is near ({max(left, 0):.0f} s left)"
                self._reason = StopReason(ExitCode.REQUEUE, sentence)
        return self._reason

    def forget(self) -> None:
        """Discard the signals received so far."""
        self._reason, self._save = None, False

    def seconds_left(self) -> float:
        """Time until the deadline [s]; infinite if there is none."""
        return math.inf if self.deadline is None else max(0.0, self.deadline - time.time())

    def save_requested(self) -> bool:
        """Whether SIGUSR1 asked for a checkpoint since the last call."""
        asked, self._save = self._save, False
        return asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self._save = True

        elif number == signal.SIGTERM:
            self._reason = self._reason or StopReason(ExitCode.REQUEUE, "SIGTERM arrived")
            self._end_now()

        # Ctrl-C, and not for the first time.
        elif self._reason is not None and self._reason.exit_code == ExitCode.INTERRUPTED:
            if not self._aborts:
                raise KeyboardInterrupt
            # No exception here: it would wait for threads at the end of the block. Files are
            # renamed into place when they are complete, so no earlier file is lost.
            os.write(2, b"\naborted\n")
            os._exit(ExitCode.INTERRUPTED)

        else:
            self._reason = StopReason(ExitCode.INTERRUPTED, "Ctrl-C was pressed")
            self._end_now()
            if self._speaks:  # not by a logger, which may be in the middle of another line
                os.write(
                    2,
                    b"\nCtrl-C: the run ends after this time block. "
                    b"Press it again to abort at once.\n",
                )

    def _end_now(self) -> None:
        if not self._at_once or self._reason is None:
            return
        # Repeat after a while: LLVM calls back into Python while it compiles, and such a callback
        # swallows the exception.
        if self._alarm is None:
            self._alarm = (
                signal.signal(signal.SIGALRM, lambda number, frame: self._end_now())
                or signal.SIG_DFL
            )
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        raise stop_request(self._reason, self._so_far)


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Inside the block, report nothing about a `StopRequested` that a callback swallowed."""
    before = sys.unraisablehook

    def say_others(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, StopRequested):
            before(unraisable)

    sys.unraisablehook = say_others
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def ending_quietly(*, whole_process: bool) -> Iterator[None]:
    """Before a run handles signals itself, let SIGTERM and Ctrl-C raise `StopRequested` and ignore
    SIGUSR1.

    Args:
        whole_process: whether the process ends with the block. Signals are then ignored afterwards:
            Python takes half a second to end, and the exit code already reports the result.
    """
    early = Stopping(speaks=False)
    with early.listening(deaf_after=whole_process), early.at_once():
        yield


def stop_request(reason: StopReason, so_far: str) -> StopRequested:
    """The exception that ends the program for this reason."""
    return StopRequested(
        f"{reason.sentence}; {so_far}" if so_far else reason.sentence, reason.exit_code
    )


def find_deadline(
    max_walltime: float | None, *, elapsed: float = 0.0, environ: Mapping[str, str] | None = None
) -> float | None:
    """The earlier of the wall-time limit and the end of the Slurm job, as time.time(); None if
    there is neither.

    Args:
        max_walltime: wall-time limit of this run [s].
        elapsed: wall time since the run began [s].
        environ: environment to read Slurm's variables from; that of the process if not given.
    """
    limits = [] if max_walltime is None else [time.time() - elapsed + max_walltime]
    slurm = (os.environ if environ is None else environ).get("SLURM_JOB_END_TIME", "")
    if slurm.isdigit():
        limits.append(float(slurm))
    return min(limits, default=None)
