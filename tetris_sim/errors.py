"""What can go wrong, and the exit code a job script sees for it.

Four kinds of error, one base. A message is a sentence with four parts: what was found, where, what
is allowed, what to do. Anything else that escapes is a bug of ours.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line; a job script may requeue on `REQUEUE` only."""

    OK = 0
    INTERNAL = 1  # a bug of ours
    CONFIG = 2  # usage, configuration or input file: the user can fix it
    RESOURCES = 3  # not enough memory or disk, or a device or library is missing
    UNSTABLE = 4  # the time step was refused
    NOT_FINITE = 5  # NaN or infinity appeared
    VERIFICATION = 6  # `verify` found a case that fails
    # EX_TEMPFAIL: stopped by a signal or the wall-time limit, with a good checkpoint if it had
    # begun
    REQUEUE = 75
    INTERRUPTED = 130  # Ctrl-C, with a good checkpoint if the run had begun


class TetrisError(Exception):
    """Base of every error that is meant for the user."""

    exit_code = ExitCode.INTERNAL


class StopRequested(BaseException):
    """A signal asks the program to end now; no Exception, so that nothing is tried instead."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ConfigError(TetrisError):
    """The configuration or the command line is wrong; the user can fix it."""

    exit_code = ExitCode.CONFIG


class UnsupportedError(TetrisError):
    """This machine or this method cannot do what was asked."""

    exit_code = ExitCode.RESOURCES


class NumericsError(TetrisError):
    """The numbers are wrong: an unstable step, NaN or infinity."""

    exit_code = ExitCode.NOT_FINITE


class UnstableStepError(NumericsError):
    """The time step is larger than the stability limit."""

    exit_code = ExitCode.UNSTABLE


class CheckpointError(TetrisError):
    """A checkpoint or an output file is missing, damaged, or belongs to another problem."""

    exit_code = ExitCode.CONFIG


class ElsewhereError(TetrisError):
    """Another rank failed and says why; this one ends with the same exit code and says nothing."""

    def __init__(self, exit_code: ExitCode) -> None:
        super().__init__("another rank failed, and says why")
        self.exit_code = exit_code
