"""The results directory of a run: its files, the lock of its writer, and what may be replaced.

resolved.yaml          resolved configuration
fields.h5 fields.xdmf fields/     fields-<name>.h5 ...     probes/  statistics.csv      outputs
initial.png final.png difference.png overview.png
checkpoints/           the newest ones
report.json report.txt
live.jsonl live_state.npy              what was changed while it was seen, to replay it
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tetris_sim.config import Config
from tetris_sim.config.sections.schema import FieldsSection, PartSection
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.support.files import remove_file
from tetris_sim.support.wording import gib

CONFIG = "resolved.yaml"  # never the name of a file that a user writes
CHECKPOINTS = "checkpoints"
REPORT_JSON = "report.json"
REPORT_TEXT = "report.txt"
SCHEDULE = "live.jsonl"  # what was changed of a run while it was seen
SCHEDULED_STATE = "live_state.npy"  # that such a run began with, if it was another's
_PARTS = "fields-*"
# Patterns of exactly what a run writes, so that no other file in the folder is ever removed.
_OURS = (
    CONFIG,
    f"{CHECKPOINTS}/checkpoint_*.h5",
    f"{CHECKPOINTS}/crash_*.h5",
    f"{CHECKPOINTS}/parts_*/part_*.h5",
    REPORT_JSON,
    REPORT_TEXT,
    SCHEDULE,
    SCHEDULED_STATE,
    "fields/fields_*.h5",
    "fields.h5",
    "fields.xdmf",
    "fields/before.h5",
    "fields/geometry*.h5",
    f"{_PARTS}/fields_*.h5",
    f"{_PARTS}/before.h5",
    f"{_PARTS}/geometry*.h5",
    "probes/*.csv",
    "statistics.csv",
    "initial*.png",
    "final*.png",
    "difference*.png",
    "overview*.png",
)
# Inner folders first: a folder can be removed only when it is empty.
_FOLDERS = (f"{CHECKPOINTS}/parts_*", CHECKPOINTS, "fields", _PARTS, "probes")
_INDICES = (".h5", ".xdmf")
LOCK = ".lock"
_MOST_COUNTED = 80  # characters of the lock file
_DEFAULT = "results/run"  # for a configuration from no file that names no directory


def directory_of(config: Config) -> Path:
    """The results directory of a configuration."""
    return Path(config.output.directory or _DEFAULT)


def _files(directory: Path) -> list[Path]:
    files = [path for pattern in _OURS for path in directory.glob(pattern)]
    # The files next to a folder with records are its index; other files may have such a name too.
    folders = dict.fromkeys(path.parent for path in files if path.parent.match(_PARTS))
    indices = (folder.with_name(folder.name + end) for folder in folders for end in _INDICES)
    return files + [path for path in indices if path.exists()]


def has_results(directory: Path) -> bool:
    """Whether a run has written to the directory."""
    return bool(_files(directory))


def written_bytes(directory: Path) -> int:
    """Size of everything that earlier runs wrote to the directory [bytes]."""
    return sum(path.stat().st_size for path in _files(directory))


def refuse_to_overwrite(directory: Path) -> None:
    """Raise `ConfigError` if a run has written to the directory."""
    if has_results(directory):
        msg = (
            f"{directory} already holds the results of a run, and nothing was asked that may "
            "replace them. Use --overwrite to replace them, --resume auto to continue the run, or "
            "another output.directory."
        )
        raise ConfigError(msg)


def clear(directory: Path) -> None:
    """Remove everything that earlier runs wrote to the directory, and nothing else.

    Raises:
        ConfigError: a folder in it is a link, and what lies behind it may be of others.
    """
    files = _files(directory)
    for path in files:
        inside = [it for it in path.parents if directory in it.parents]
        if linked := [it for it in inside if it.is_symlink()]:
            msg = (
                f"{linked[0]} is a link to {os.path.realpath(linked[0])}, and --overwrite does not "
                "remove what lies behind links: remove the link, or the files yourself"
            )
            raise ConfigError(msg)
    for path in files:
        remove_file(path)
    for folder in [path for pattern in _FOLDERS for path in directory.glob(pattern)]:
        with contextlib.suppress(OSError):  # it contains other files
            folder.rmdir()


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Make the directory, and keep a second run from writing to it at the same time.

    Raises:
        ConfigError: another run is writing there, or the directory cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A link would lead to a file of somebody else, or make one.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(directory / LOCK, flags, 0o644)
    except OSError as error:
        raise _cannot_be_written_to(directory, error.strerror) from error

    # The kernel releases the lock when the process ends, however it ends.
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = (
                f"another run is writing to {directory}. Wait for it, stop it, or set another "
                "output.directory."
            )
            raise ConfigError(msg) from None
        except OSError:
            pass  # a file system without locks: better unprotected than unusable
        yield
    finally:
        os.close(descriptor)


def count_standstills(directory: Path, place: int | None) -> int:
    """How many runs in a row have been stopped at the step at which they began, this one included.
    The lock file keeps it, which other runs do not read; 0 if nothing can be kept.

    Args:
        directory: the results directory, locked.
        place: that step; None for a run that has made steps.
    """
    with contextlib.suppress(OSError, ValueError):
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(directory / LOCK, flags), "r+", encoding="ascii") as file:
            words = file.read(_MOST_COUNTED).split()
            before = int(words[1]) if words[:1] == [str(place)] and len(words) == 2 else 0
            if words or place is not None:
                file.seek(0)
                file.truncate()
                file.write("" if place is None else f"{place} {before + 1}\n")
            return before + 1
    return 0


def refuse_unusable(directory: Path) -> None:
    """Raise if `locked` could not make the directory or a file in it; makes nothing itself.

    Raises:
        ConfigError: as `locked` would.
    """
    # The nearest existing ancestor decides what can be made below it.
    place = _what_is_there(directory)
    if not place.is_dir():
        why = os.strerror(errno.ENOTDIR if place != directory.absolute() else errno.EEXIST)
    elif not os.access(place, os.W_OK | os.X_OK):
        why = os.strerror(errno.EACCES)
    else:
        return
    raise _cannot_be_written_to(directory, why)


def _cannot_be_written_to(directory: Path, why: str | None) -> ConfigError:
    return ConfigError(
        f"the results directory {directory} cannot be written to: {why}. Set output.directory."
    )


def _what_is_there(directory: Path) -> Path:
    """The directory, or its nearest ancestor that exists."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    return place


def refuse_full_disk(directory: Path, needed: int) -> None:
    """Raise `UnsupportedError` if fewer than `needed` bytes are free for `directory`."""
    free = free_bytes(directory)
    if needed > free:
        msg = (
            f"the run would write {gib(needed)} to {directory}, where {gib(free)} are free. Widen "
            "output.fields.every, lower checkpoint.keep, or set output.directory to a larger disk."
        )
        raise UnsupportedError(msg)


def predicted_bytes(config: Config, problem: Problem) -> int:
    """Upper limit of the bytes on disk at one time: fields and checkpoints, the rest is small."""
    # One checkpoint more than is kept: old ones are removed after a new one is complete.
    checkpoints = (config.checkpoint.keep + 1) * problem.state_bytes
    fields = count_fields(config, problem) * problem.field_bytes
    # Parts in proportion to their share of the points.
    parts = sum(
        count_records(part, problem) * _points(part, problem.grid) * problem.field_bytes
        for part in config.output.parts
    )
    return checkpoints + fields + parts // problem.grid.n_points


def count_fields(config: Config, problem: Problem) -> int:
    """Number of times the whole field will be written."""
    fields = config.output.fields
    return 0 if fields is None else count_records(fields, problem)


def count_records(section: FieldsSection, problem: Problem) -> int:
    """Number of times one output of fields will be written."""
    if section.every is None:
        return len(section.at)
    every = section.every
    # A period below the time step writes every step; -(-a // b) rounds up.
    period = every.value if every.unit == "steps" else max(every.value / problem.dt, 1.0)
    return 1 + int(-(-problem.steps // period)) + len(section.at)


def _points(part: PartSection, grid: Grid) -> int:
    """Number of points of the grid in a part."""
    n = 1
    # A cut axis contributes a single plane.
    for axis, name in enumerate(grid.axis_names):
        if name not in part.slice:
            start, stop = grid.within(axis, *part.box.get(name, (-math.inf, math.inf)))
            n *= stop - start
    return n


def free_bytes(directory: Path) -> int:
    """Free bytes on the file system where `directory` is or will be."""
    return shutil.disk_usage(_what_is_there(directory)).free
