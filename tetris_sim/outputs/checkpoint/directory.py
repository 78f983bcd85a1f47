"""Checkpoints of a run: written so that a good one exists at any moment, whatever happens.

A checkpoint is `checkpoint_<step>.h5`. The newest good ones are kept, and one is removed only when
a newer one is safe on the disk. A state with NaN or infinity goes to `crash_<step>.h5`, which no
restart takes for a good one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tetris_sim.config.sections.schema import CheckpointSection
from tetris_sim.errors import CheckpointError, ConfigError, UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.outputs.checkpoint.file import (
    Checkpoint,
    CheckpointPart,
    open_checkpoint,
    parts_folder,
    remove_orphans,
    remove_parts_of,
    write_file,
)
from tetris_sim.outputs.checkpoint.seal import read_seal
from tetris_sim.outputs.checkpoint.state import RunState, problem_digest
from tetris_sim.outputs.output import Snapshot, StepSchedule
from tetris_sim.support.files import make_directory, remove_parts

if TYPE_CHECKING:
    from tetris_sim.config import Config

_NAME = re.compile(r"checkpoint_(\d{12,})\.h5")
_STEPS = ("dt", "cfl", "safety")  # keys of the time section that determine the time step
_OVERHEAD = 1 << 20  # bytes of a checkpoint beyond the field and the texts

log = logging.getLogger("tetris_sim")


def checkpoint_path(directory: Path, step: int) -> Path:
    """File of the checkpoint of a step."""
    return directory / f"checkpoint_{step:012d}.h5"


def make_room(directory: Path, state: RunState, problem: Problem) -> None:
    """Make the folders of a checkpoint in parts.

    Raises:
        UnsupportedError: a folder cannot be made, or the disk has no room for the checkpoint.
    """
    path = checkpoint_path(directory, state.step)
    make_directory(path.parent)
    _refuse_full_disk(path, state, problem)
    make_directory(parts_folder(path))


def write_checkpoint(
    directory: Path,
    state: RunState,
    problem: Problem,
    read: Callable[[Box], Field],
    *,
    keep: int,
    parts: Sequence[CheckpointPart] = (),
    ready: Callable[[], None] = lambda: None,
) -> Path:
    """Save a state, then remove the oldest checkpoints.

    Args:
        directory: folder of the run's checkpoints; made if it does not exist.
        state: the run state.
        problem: the problem of the field.
        read: function from a box to its values, (n_fields, ...); called block by block, so that the
            whole field need not be in memory.
        keep: number of good checkpoints that stay, this one included.
        parts: parts that have been written already, if any; `read` is then not called.
        ready: called when everything is written; returns once the checkpoint may become visible.

    Returns:
        The file.

    Raises:
        UnsupportedError: the disk is full or refuses the file; earlier checkpoints are unchanged.
    """
    path = checkpoint_path(directory, state.step)
    # Only after the new file is in place is anything removed.
    _write(path, state, problem, read, good=True, parts=parts, ready=ready)
    forget_later(directory, state.step)
    remove_older(directory, keep)
    return path


def remove_older(directory: Path, keep: int) -> None:
    """Remove all good checkpoints but the newest `keep`, of which at least one stays."""
    for older in good_checkpoints(directory)[max(keep, 1) :]:
        _remove(older)


def write_crash_dump(
    directory: Path, state: RunState, problem: Problem, read: Callable[[Box], Field]
) -> Path:
    """Save a state with NaN or infinity, for inspection and not for continuing."""
    path = directory / f"crash_{state.step:012d}.h5"
    _write(path, state, problem, read, good=False)
    return path


def find_checkpoint(
    directory: Path, *, tidy: bool = True
) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """Open the newest good checkpoint.

    Args:
        directory: folder of the run's checkpoints; it need not exist.
        tidy: whether to remove what a killed run left unfinished; only for callers that may write
            to the folder.

    Returns:
        The checkpoint, None if there is none, and a sentence for each newer file that cannot be
        used.
    """
    # What a kill left behind: parts without a checkpoint, and temporary files.
    if tidy:
        remove_parts(directory)
        remove_orphans(directory)

    # Newest first; a damaged file is passed over, and the one before it is tried.
    sentences = []
    for path in _newest_first(directory):
        try:
            checkpoint = open_checkpoint(path)
        except CheckpointError as error:
            if path.exists():  # else a running simulation has just removed it
                sentences.append(f"Skipped: {error}")
            continue

        if checkpoint.good:
            return checkpoint, tuple(sentences)
        checkpoint.close()
        sentences.append(f"Skipped: {_not_good(path)}.")

    return None, tuple(sentences)


def good_checkpoints(directory: Path) -> list[Path]:
    """The files with a good footer, newest first; cheap for files of any size."""
    return [path for path in _newest_first(directory) if _looks_good(path)]


def forget_later(directory: Path, step: int) -> None:
    """Remove good checkpoints of steps after `step`.

    A run that goes back to an earlier checkpoint rewrites its outputs from there. After a crash a
    later state would otherwise be found first, and the outputs in between would be missing.
    """
    for path in good_checkpoints(directory):
        if _step(path) > step:
            _remove(path)


def refuse_changed_problem(checkpoint: Checkpoint, config: Config, problem: Problem) -> None:
    """Raise unless `problem` is the one whose state `checkpoint` holds.

    Args:
        checkpoint: the checkpoint to continue from.
        config: the configuration to continue with.
        problem: the problem built from it, with the checkpoint's time step.

    Raises:
        CheckpointError: the problem differs, with all differences; or the checkpoint is a crash
            dump.
    """
    if not checkpoint.good:
        msg = (
            f"{_not_good(checkpoint.path)}, so that it cannot be continued. Take an earlier "
            "checkpoint"
        )
        earlier = good_checkpoints(checkpoint.path.parent)
        raise CheckpointError(msg + (f", such as {earlier[0]}." if earlier else "."))

    # Keys first, since a sentence about a key says more than a digest that differs.
    differences = _differences(checkpoint, config)

    # Equal keys may mean something else to another version; the digest of the problem shows it.
    if problem_digest(problem) != checkpoint.state.problem_digest and not differences:
        written = checkpoint.state.versions.get("tetris_sim", "another version")
        differences = [
            "the same configuration gives another grid, stencil, time step or boundary than in "
            f"tetris_sim {written}, which wrote it"
        ]

    if differences:
        msg = (
            f"{checkpoint.path} cannot be continued with this configuration, which describes "
            f"another problem: {'; '.join(differences)}. The end of the run, outputs and compute "
            "but for its precision may change, physics may not: restore these keys, or start a "
            "new run, which can begin with the state of this one: initial: {type: run, from: "
            f"{checkpoint.path.parent.parent}}}."
        )
        raise CheckpointError(msg)


def _differences(checkpoint: Checkpoint, config: Config) -> list[str]:
    from tetris_sim.config import read_config

    try:
        old = read_config(
            checkpoint.state.config, name=str(checkpoint.path), base=checkpoint.path.parent
        )
    except ConfigError:
        return []  # of an earlier version: the digest decides

    # `Config.physics` leaves the time section out, but these keys decide dt and so every bit.
    differences = config.difference(old)
    for key in _STEPS:
        now, before = getattr(config.time, key), getattr(old.time, key)
        if now != before:
            differences.append(
                f"time.{key} is {now or 'not given'}, and was {before or 'not given'}"
            )

    return differences


def _write(
    path: Path,
    state: RunState,
    problem: Problem,
    read: Callable[[Box], Field],
    *,
    good: bool,
    parts: Sequence[CheckpointPart] = (),
    ready: Callable[[], None] = lambda: None,
) -> None:
    make_directory(path.parent)
    # With parts the room was checked before they were written (`make_room`).
    needed = 0 if parts else _refuse_full_disk(path, state, problem)
    try:
        write_file(path, state, problem, read, good=good, parts=parts, ready=ready)
        remove_parts_of(path, but=parts)  # those of an earlier checkpoint of this step
    except UnsupportedError as error:
        if not path.exists():
            remove_parts_of(path)
        size = "" if parts else f" The checkpoint needs {needed} bytes."
        msg = f"{error}{size} {_last_good(path.parent)}"
        raise UnsupportedError(msg) from error


def _refuse_full_disk(path: Path, state: RunState, problem: Problem) -> int:
    """Raise `UnsupportedError` if there is no room for a checkpoint; returns its size [bytes]."""
    # The state dominates; texts and an allowance for the structure of HDF5 come on top.
    texts = sum(len(text.encode()) for text in (state.config, *state.config_history))
    needed = problem.state_bytes + texts + _OVERHEAD
    disk = shutil.disk_usage(path.parent)
    if needed > disk.free and disk.total:  # some network file systems report 0 of 0
        msg = (
            f"{path} needs {needed} bytes, and {disk.free} are free there. "
            f"{_last_good(path.parent)}"
        )
        raise UnsupportedError(msg)
    return needed


def _last_good(directory: Path) -> str:
    good = good_checkpoints(directory)
    return f"The last good checkpoint is {good[0]}." if good else "There is no earlier checkpoint."


def _not_good(path: Path) -> str:
    return f"{path} holds the state of a run that failed, with NaN or infinity in it"


def _newest_first(directory: Path) -> list[Path]:
    return sorted(
        (path for path in directory.glob("checkpoint_*.h5") if _NAME.fullmatch(path.name)),
        key=_step,
    )[::-1]


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def _looks_good(path: Path) -> bool:
    with contextlib.suppress(CheckpointError):
        return read_seal(path).good
    return False


def _remove(path: Path) -> None:
    # The checkpoint before its parts: parts without a checkpoint are removed by the next run.
    try:
        path.unlink(missing_ok=True)
        remove_parts_of(path)
    except OSError as error:
        log.warning("The old checkpoint %s cannot be removed: %s.", path, error.strerror)


# When a run saves its state, and how it handles a state that is not finite.


class Checkpoints:
    """The checkpoints of one run.

    Args:
        directory: their folder.
        make_state: function from a step to the run state.
        schedule: when to save by step or simulated time; None for never.
        wall_seconds: interval of saving in wall time [s]; None for never.
        keep: number of the newest checkpoints that stay.
        at_end: whether the last state is saved.
        settle: returns when pending calls of `save` in another thread have ended.
        saved_step: step of the checkpoint in `directory` that the run continues from, if any.
        divided: whether each slab is written into a separate file, by the rank that owns it.

    Attributes:
        divided: as above.
    """

    def __init__(
        self,
        directory: Path,
        make_state: Callable[[int], RunState],
        *,
        schedule: StepSchedule | None,
        wall_seconds: float | None,
        keep: int,
        at_end: bool,
        settle: Callable[[], None] = lambda: None,
        saved_step: int | None = None,
        divided: bool = False,
    ) -> None:
        self._directory = directory
        self._make_state = make_state
        self._schedule = schedule
        self._wall_seconds = wall_seconds
        self._keep = keep
        self._at_end = at_end
        self._settle = settle
        self._last_clock = time.perf_counter()
        self._saved_step = saved_step
        self._measured: dict[int, dict[str, Any]] = {}  # by step, until its checkpoint is written
        self.divided = divided

    @classmethod
    def of(
        cls,
        section: CheckpointSection,
        directory: Path,
        make_state: Callable[[int], RunState],
        *,
        problem: Problem,
        settle: Callable[[], None],
        saved_step: int | None,
        divided: bool,
    ) -> Checkpoints:
        """The checkpoints of a configuration's section; other arguments as for the class."""
        # Simulated time and steps are decided in advance, wall time by rank 0 between blocks.
        every = section.every
        by_clock = every is not None and every.unit == "wall"

        # The interval is either by the clock or by steps and simulated time, never both.
        return cls(
            directory,
            make_state,
            schedule=None
            if every is None or by_clock
            else StepSchedule(every, problem.dt, problem.steps, problem.start),
            wall_seconds=every.value if every is not None and by_clock else None,
            keep=section.keep,
            at_end=section.at_end,
            settle=settle,
            saved_step=saved_step,
            divided=divided,
        )

    def next_step(self, step: int) -> int | None:
        """The smallest step greater than `step` at which the schedule wants a checkpoint."""
        return None if self._schedule is None else self._schedule.next_step(step)

    def due_by_clock(self) -> bool:
        """Whether the interval in wall time has passed since the last checkpoint."""
        return (
            self._wall_seconds is not None
            and time.perf_counter() - self._last_clock > self._wall_seconds
        )

    def restart_clock(self) -> None:
        """Restart the interval in wall time: a checkpoint is being made."""
        self._last_clock = time.perf_counter()

    def remember(self, step: int, change: float) -> None:
        """Keep what was measured at a step for its checkpoint: the largest change since the step
        before [1/s].
        """
        self._measured.setdefault(step, {})["change"] = change

    def count(
        self, step: int, moved: Mapping[str, float], decided: Mapping[str, Any] | None = None
    ) -> None:
        """Keep for the same the heat that was moved until then, by surface [J], and what was
        decided.
        """
        kept = {"moved": dict(moved)} if moved else {}
        kept |= {"control": dict(decided)} if decided else {}
        self._measured.setdefault(step, {})["outputs"] = kept

    def save(self, snapshot: Snapshot) -> None:
        """Save the state.

        A failed checkpoint does no harm yet: the run continues with a warning.
        """
        try:
            self._write(snapshot)
        except UnsupportedError as error:
            log.warning("%s The run goes on without this checkpoint.", error)

    def begin(self, problem: Problem, step: int) -> Path:
        """Make room for a checkpoint whose parts others write; returns its future path.

        Raises:
            UnsupportedError: there is no room.
        """
        make_room(self._directory, self._make_state(step), problem)
        return checkpoint_path(self._directory, step)

    def publish(self, problem: Problem, step: int, parts: list[CheckpointPart] | str) -> None:
        """Make a checkpoint from the parts of this step.

        Raises:
            UnsupportedError: parts are missing, as the text `parts` says, or it could not be
                written.
        """
        # Text instead of parts says what failed; the parts that exist are then useless.
        if isinstance(parts, str):
            remove_orphans(self._directory)
            raise UnsupportedError(parts)
        state = self._state_at(step)
        write_checkpoint(self._directory, state, problem, _not_called, keep=self._keep, parts=parts)
        self._saved_step = step

    def wants_last(self, step: int, *, early: bool) -> bool:
        """Whether the last state, of this step, still has to be saved.

        Args:
            step: step at which the run ended.
            early: whether that is before its last step; then the state is saved in any case.
        """
        return (self._at_end or early) and self._saved_step != step

    def forget(self) -> None:
        """Forget which step was saved last: its state has been replaced since."""
        self._saved_step = None

    def finish(
        self,
        snapshot: Snapshot,
        *,
        early: bool,
        owed: bool = False,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Save the last state unless that is done or not wanted.

        Args:
            snapshot: the last state.
            early: see `wants_last`.
            owed: whether a checkpoint of this step was due and is still missing.
            ready: called when the file is written; returns once it may become visible.

        Raises:
            UnsupportedError: it could not be written; the exit code then says that the run cannot
                be continued here.
        """
        # A state that is saved already needs no second file, but old files may still have to go.
        if self.wants_last(snapshot.step, early=early or owed):
            self._write(snapshot, ready)
        else:
            self.tidy()

    def tidy(self) -> None:
        """Remove older checkpoints that a killed run had no time to remove."""
        remove_older(self._directory, self._keep)

    def dump(self, snapshot: Snapshot) -> str:
        """Write a state that is not finite to a crash dump; returns sentences for the user."""
        self._settle()  # a pending write may be that of the last good one
        good = good_checkpoints(self._directory)
        last = f"The last good checkpoint is {good[0]}." if good else "There is no checkpoint."

        # The dump may fail as well, for example on a full disk; the run ends anyhow.
        try:
            path = write_crash_dump(
                self._directory, self._make_state(snapshot.step), snapshot.problem, snapshot.box
            )
        except UnsupportedError as error:
            return f"{last} The bad state could not be kept: {error}"
        return f"{last} The bad state is in {path}, for `info` and `plot`."

    def newest(self) -> tuple[int, InitialField] | None:
        """(step, state) of the newest good checkpoint once all writes have ended, or None."""
        self._settle()
        checkpoint, _ = find_checkpoint(self._directory, tidy=False)
        return None if checkpoint is None else (checkpoint.state.step, checkpoint.initial)

    def _write(self, snapshot: Snapshot, ready: Callable[[], None] = lambda: None) -> None:
        state, problem = self._state_at(snapshot.step), snapshot.problem
        write_checkpoint(
            self._directory, state, problem, snapshot.box, keep=self._keep, ready=ready
        )
        self._saved_step = snapshot.step

    def _state_at(self, step: int) -> RunState:
        return dataclasses.replace(self._make_state(step), **self._measured.pop(step, {}))


def _not_called(box: Box) -> Field:
    msg = f"the points {box} lie in a part that was written"
    raise AssertionError(msg)
