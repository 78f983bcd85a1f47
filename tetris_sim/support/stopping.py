"""Why a run should stop or save before its end: signals, a wall-time limit, the end of a Slurm job.

SIGTERM, SIGUSR1 and the first Ctrl-C are noted and seen at the end of the time block: USR1 saves a
checkpoint and goes on, TERM saves and stops with exit code 75, Ctrl-C saves and stops with exit
code 130. A second Ctrl-C aborts at once. While a run is planned there is nothing to save: TERM and
Ctrl-C end it where it is.
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
    """Why a run ended before its last step, and the exit code that says so."""

    exit_code: ExitCode
    sentence: str

    @property
    def said(self) -> str:
        """How the report begins."""
        begun = "Done" if self.exit_code == ExitCode.OK else "Stopped early"
        return f"{begun}: {self.sentence}"


_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
_AGAIN = 1.0  # seconds; longer than it takes to close what is open

NOTHING_DONE = "nothing was computed, and no file was changed"


class Stopping:
    """Collects reasons to stop; asked once per time block.

    Args:
        deadline: value of time.time() at which the run must have stopped, if there is one.
        margin: seconds before the deadline at which to stop, so that the last checkpoint can be
            written.
        speaks: whether Ctrl-C is answered on stderr: by one rank of several.
        aborts: whether a second Ctrl-C ends the program at once; else it raises KeyboardInterrupt,
            as is right where the program is an interpreter with other things in it.

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
        self._alarm: Any = None  # what SIGALRM did before
        self._reason: StopReason | None = None
        self._save = False

    @contextlib.contextmanager
    def listening(self, *, deaf_after: bool = False) -> Iterator[None]:
        """Handle signals inside the block; outside of the main thread leave them as they are.

        Whoever listened before ends nothing from then on: what is left to do after the block is to
        say how it ended.

        Args:
            deaf_after: ignore signals after the block, because the process ends there; otherwise
                they do what they did before.
        """
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
        """Inside the block SIGTERM and Ctrl-C raise `StopRequested`.

        Args:
            so_far: what was done until then, for its message.
        """
        with _hushed():
            self._at_once, self._so_far = True, so_far
            try:
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
        """Which signal asked to stop, if one did."""
        return self._reason

    def reason(self, block_seconds: float = 0.0) -> StopReason | None:
        """Why to stop now; None to go on.

        Args:
            block_seconds: how long the next block will take: it must end before the deadline.
        """
        if self._reason is None and self.deadline is not None:
            left = self.deadline - time.time()
            if left < self.margin + block_seconds:
                sentence = f"the wall-time limit is near ({max(left, 0):.0f} s left)"
                self._reason = StopReason(ExitCode.REQUEUE, sentence)
        return self._reason

    def forget(self) -> None:
        """Go on as if no signal had asked to stop."""
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

        elif self._reason is not None and self._reason.exit_code == ExitCode.INTERRUPTED:
            if not self._aborts:
                raise KeyboardInterrupt
            # Not by an exception: closing the threads would wait for the end of the block. Every
            # file is renamed into place when it is whole, so nothing is lost that was there before.
            os.write(2, b"\naborted\n")
            os._exit(ExitCode.INTERRUPTED)

        else:
            self._reason = StopReason(ExitCode.INTERRUPTED, "Ctrl-C was pressed")
            self._end_now()
            if self._speaks:  # not by a logger, which may be at work on another line
                os.write(
                    2,
                    b"\nCtrl-C: the run ends after this time block. "
                    b"Press it again to abort at once.\n",
                )

    def _end_now(self) -> None:
        if not self._at_once or self._reason is None:
            return
        # Again after a while: LLVM calls back while it compiles, and such a callback swallows the
        # exception.
        if self._alarm is None:
            self._alarm = (
                signal.signal(signal.SIGALRM, lambda number, frame: self._end_now())
                or signal.SIG_DFL
            )
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        raise stop_request(self._reason, self._so_far)


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Inside the block nothing is said of a `StopRequested` that a callback swallowed."""
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
    """Before a run listens SIGTERM and Ctrl-C raise `StopRequested`, SIGUSR1 does nothing.

    Args:
        whole_process: whether the process ends with the block. Then a signal changes nothing any
            more: Python takes half a second to end, and what a run did is said by its exit code.
    """
    early = Stopping(speaks=False)
    with early.listening(deaf_after=whole_process), early.at_once():
        yield


def stop_request(reason: StopReason, so_far: str) -> StopRequested:
    """The exception that ends the program for a reason."""
    return StopRequested(
        f"{reason.sentence}; {so_far}" if so_far else reason.sentence, reason.exit_code
    )


def find_deadline(
    max_walltime: float | None, *, elapsed: float = 0.0, environ: Mapping[str, str] | None = None
) -> float | None:
    """The earlier of wall-time limit and end of the Slurm job, as time.time(), if there are any.

    Args:
        max_walltime: of this run [s].
        elapsed: how long the run has been going on [s].
        environ: the environment to read Slurm's variables from; the process's own if not given.
    """
    limits = [] if max_walltime is None else [time.time() - elapsed + max_walltime]
    slurm = (os.environ if environ is None else environ).get("SLURM_JOB_END_TIME", "")
    if slurm.isdigit():
        limits.append(float(slurm))
    return min(limits, default=None)
