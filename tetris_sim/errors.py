"""Errors of the program, and the exit code that a job script sees for each.

Four kinds of error, one base. A message is a sentence with four parts: what was found, where, what
is allowed, what to do. Anything else that escapes is a bug of ours.
"""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any


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


# What the operating system, HDF5 and decoders raise, where no one nearer has said it better.

# Numbers of errors that say that a path is wrong, which the user can put right.
_ABOUT_PATHS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
    errno.EACCES,
    errno.EPERM,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
)
_DECODERS = (UnicodeError, zipfile.BadZipFile, zlib.error, struct.error, EOFError)
_HDF5 = (RuntimeError, KeyError, ValueError, TypeError)


def as_told(error: BaseException) -> TetrisError | None:
    """An error of the system, of HDF5 or of a decoder as a sentence with its exit code; None for
    what is a mistake of the program.

    >>> told = as_told(OSError(errno.EIO, "Input/output error", "state.h5"))
    >>> print(told, int(told.exit_code))
    state.h5: the system refuses (Input/output error); look at the disk and its mounts 3
    """
    if isinstance(error, TetrisError):
        return error
    if isinstance(error, MemoryError):
        said = f" ({error})" if str(error) else ""
        return UnsupportedError(
            f"memory ran out{said}: use a smaller grid, compute.precision: float32, or a machine "
            "with more memory"
        )
    if isinstance(error, ImportError):
        return UnsupportedError(f"a package or library cannot be loaded: {error}")

    if isinstance(error, OSError):
        place = "" if error.filename is None else f"{error.filename}: "
        said = error.strerror or str(error) or type(error).__name__
        if error.errno is None:  # of HDF5, about the content of a file
            return CheckpointError(f"a file cannot be read or written: {said}")
        if error.errno in _ABOUT_PATHS:
            return ConfigError(f"{place}the system refuses ({said}); give another path")
        return UnsupportedError(
            f"{place}the system refuses ({said}); look at the disk and its mounts"
        )
    if isinstance(error, _DECODERS) or (isinstance(error, _HDF5) and _comes_from(error, "h5py")):
        return CheckpointError(f"a file cannot be read: {error or type(error).__name__}")
    return None


def _comes_from(error: BaseException, package: str) -> bool:
    """Whether a function of a package has raised it."""
    trace, name = error.__traceback__, ""
    while trace is not None:
        name, trace = str(trace.tb_frame.f_globals.get("__name__", "")), trace.tb_next
    return name.split(".")[0] == package


# Mistakes in a configuration, with where they were written.

KeyPath = tuple[str | int, ...]  # ("output", "probes", 0, "at")

# A longer list helps no reader, and a file that is not a configuration may hold thousands.
_MOST_SHOWN = 100


@dataclass(frozen=True)
class SourcePosition:
    """Position at which a value was written.

    Attributes:
        source: a file, "--set time.t_end=2", the name of an environment variable; empty for values
            from Python.
        line: counted from 1; None if the source has no lines.
        column: in characters, counted from 1.
    """

    source: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        # Compiler style, "case.yaml:12:5"; unknown parts are left out.
        return ":".join(
            str(part) for part in (self.source, self.line, self.column) if part is not None
        )


@dataclass(frozen=True)
class Finding:
    """A mistake found by a check, before its position in the source is known.

    Attributes:
        path: the key concerned.
        message: what was found and what is allowed.
        at_key: whether the key itself is wrong, rather than its value.
        character: for text: the offending character, counted from 1.
        unknown: whether the key does not exist in the schema.
        meant: the existing key that was probably meant; empty if none is similar.
    """

    path: KeyPath
    message: str
    at_key: bool = False
    character: int | None = None
    unknown: bool = False
    meant: str = ""


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong in a configuration.

    Attributes:
        path: the key concerned; empty for the whole configuration.
        message: what was found and what is allowed.
        place: where the value was written.
    """

    path: KeyPath
    message: str
    place: SourcePosition = SourcePosition()

    def __str__(self) -> str:
        # A mistake of the whole configuration has no key, and one in Python data no position.
        return ": ".join(part for part in (str(self.place), self.key, self.message) if part)

    @property
    def key(self) -> str:
        """The path as written after --set: "output.probes.0.at"."""
        return ".".join(map(str, self.path))

    def as_json(self) -> dict[str, Any]:
        """The mistake as plain values, for --json."""
        return {"key": self.key, "message": self.message, **asdict(self.place)}


class ConfigMistakesError(ConfigError):
    """A configuration that cannot be used; the message lists its mistakes, one per line.

    Attributes:
        problems: the mistakes, in the order of the file.
    """

    def __init__(self, problems: Iterable[Mistake]) -> None:
        # File order; mistakes without a line (from --set or the environment) come last.
        self.problems = tuple(sorted(problems, key=_order))
        lines = [str(problem) for problem in self.problems[:_MOST_SHOWN]]
        if len(self.problems) > _MOST_SHOWN:
            lines.append(f"and {len(self.problems) - _MOST_SHOWN} more mistakes")
        super().__init__("\n".join(lines))


def _order(mistake: Mistake) -> tuple[bool, int, int]:
    place = mistake.place
    return place.line is None, place.line or 0, place.column or 0
