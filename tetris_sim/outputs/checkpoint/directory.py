"""The checkpoints of a run: saved so that there is always a good one, whatever happens.

A checkpoint is `checkpoint_<step>.h5`. The newest good ones are kept, and one is removed only when
a newer one is safe on the disk. A state that holds NaN or infinity goes to `crash_<step>.h5`, where
no restart takes it for good.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
_STEPS = ("dt", "cfl", "safety")  # keys of the time section that decide the time step
_OVERHEAD = 1 << 20  # bytes of a checkpoint beyond the field and the texts

log = logging.getLogger("tetris_sim")


def checkpoint_path(directory: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return directory / f"checkpoint_{step:012d}.h5"


def make_room(directory: Path, state: RunState, problem: Problem) -> None:
    """Make the folders of a checkpoint in parts.

    Raises:
        UnsupportedError: that cannot be, or the disk has no room for it.
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
        directory: where the run's checkpoints lie; made if it is not there.
        state: the run state.
        problem: whose field it is.
        read: the points inside a box, (n_fields, ...); called block by block, so that the whole
            field need not be in memory.
        keep: how many good checkpoints stay, this one included.
        parts: those that have been written, if they have; `read` is then not called.
        ready: called when all is written; returns once the checkpoint may be known.

    Returns:
        The file.

    Raises:
        UnsupportedError: the disk is full or does not let us write; earlier checkpoints are as they
            were.
    """
    path = checkpoint_path(directory, state.step)
    _write(path, state, problem, read, good=True, parts=parts, ready=ready)
    forget_later(directory, state.step)
    remove_older(directory, keep)
    return path


def remove_older(directory: Path, keep: int) -> None:
    """Remove all good checkpoints but the newest `keep`, at least one."""
    for older in good_checkpoints(directory)[max(keep, 1) :]:
        _remove(older)


def write_crash_dump(
    directory: Path, state: RunState, problem: Problem, read: Callable[[Box], Field]
) -> Path:
    """Save a state with NaN or infinity, to be looked at and not continued."""
    path = directory / f"crash_{state.step:012d}.h5"
    _write(path, state, problem, read, good=False)
    return path


def find_checkpoint(
    directory: Path, *, tidy: bool = True
) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """Open the newest checkpoint that is good.

    Args:
        directory: where the run's checkpoints lie; it need not exist.
        tidy: whether to remove what a killed run left unfinished. Only for who may write there.

    Returns:
        The checkpoint, None if there is none, and a sentence for each newer file that cannot be
        used.
    """
    if tidy:
        remove_parts(directory)
        remove_orphans(directory)

    sentences = []
    for path in _newest_first(directory):
        try:
            checkpoint = open_checkpoint(path)
        except CheckpointError as error:
            if path.exists():  # else a run that goes on has just removed it
                sentences.append(f"Skipped: {error}")
            continue

        if checkpoint.good:
            return checkpoint, tuple(sentences)
        checkpoint.close()
        sentences.append(f"Skipped: {_not_good(path)}.")

    return None, tuple(sentences)


def good_checkpoints(directory: Path) -> list[Path]:
    """The files that look good at their ends, newest first; cheap for files of any size."""
    return [path for path in _newest_first(directory) if _looks_good(path)]


def forget_later(directory: Path, step: int) -> None:
    """Remove good checkpoints of steps after `step`.

    A run that goes back to an earlier checkpoint writes its outputs anew from there. A later state
    would then be found first after a crash, and the outputs between would be missing.
    """
    for path in good_checkpoints(directory):
        if _step(path) > step:
            _remove(path)


def refuse_changed_problem(checkpoint: Checkpoint, config: Config, problem: Problem) -> None:
    """Raise unless `problem` is the one whose state `checkpoint` holds.

    Args:
        checkpoint: what is to be continued.
        config: the configuration with which.
        problem: what was built from it, with the checkpoint's time step.

    Raises:
        CheckpointError: with everything that differs; or the checkpoint is a crash dump.
    """
    if not checkpoint.good:
        msg = (
            f"{_not_good(checkpoint.path)}, so that it cannot be continued. Take an earlier "
            "checkpoint"
        )
        earlier = good_checkpoints(checkpoint.path.parent)
        raise CheckpointError(msg + (f", such as {earlier[0]}." if earlier else "."))

    differences = _differences(checkpoint, config)

    # Keys may be the same and mean something else to another version.
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
        return []  # of an earlier version; the digest decides

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
    needed = 0 if parts else _refuse_full_disk(path, state, problem)
    try:
        write_file(path, state, problem, read, good=good, parts=parts, ready=ready)
        remove_parts_of(path, but=parts)  # of an earlier checkpoint of this step
    except UnsupportedError as error:
        if not path.exists():
            remove_parts_of(path)
        size = "" if parts else f" The checkpoint needs {needed} bytes."
        msg = f"{error}{size} {_last_good(path.parent)}"
        raise UnsupportedError(msg) from error


def _refuse_full_disk(path: Path, state: RunState, problem: Problem) -> int:
    """Bytes of the checkpoint."""
    texts = sum(len(text.encode()) for text in (state.config, *state.config_history))
    needed = problem.state_bytes + texts + _OVERHEAD
    disk = shutil.disk_usage(path.parent)
    if needed > disk.free and disk.total:  # some network file systems say 0 of 0
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
    try:
        path.unlink(missing_ok=True)
        remove_parts_of(path)
    except OSError as error:
        log.warning("The old checkpoint %s cannot be removed: %s.", path, error.strerror)


# When a run saves its state, and what it does with a state that is not worth saving.


class Checkpoints:
    """The checkpoints of one run.

    Args:
        directory: where they lie.
        make_state: the run state at a step.
        schedule: when to save by step or simulated time; None for never.
        wall_seconds: how often to save by the clock; None for never.
        keep: how many of the newest stay.
        at_end: whether the last state is saved.
        settle: returns when calls of `save` that are under way in another thread have ended.
        saved_step: step of the checkpoint in `directory` that the run continues from, if it does.
        divided: whether each slab is written into a file of its own, by the rank that owns it.

    Attributes:
        divided: the same.
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
        """Those that a configuration asks for; other arguments as for the class."""
        every = section.every
        by_clock = every is not None and every.unit == "wall"

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
        """Smallest step greater than `step` at which the schedule wants a checkpoint."""
        return None if self._schedule is None else self._schedule.next_step(step)

    def due_by_clock(self) -> bool:
        """Whether the last checkpoint is too long ago."""
        return (
            self._wall_seconds is not None
            and time.perf_counter() - self._last_clock > self._wall_seconds
        )

    def restart_clock(self) -> None:
        """A checkpoint is made now, as far as the wall clock is concerned."""
        self._last_clock = time.perf_counter()

    def save(self, snapshot: Snapshot) -> None:
        """Save the state.

        A checkpoint that cannot be written costs nothing yet: the run goes on, with a warning.
        """
        try:
            self._write(snapshot)
        except UnsupportedError as error:
            log.warning("%s The run goes on without this checkpoint.", error)

    def begin(self, problem: Problem, step: int) -> Path:
        """Make room for a checkpoint in parts, which others write; where it is to lie.

        Raises:
            UnsupportedError: there is no room.
        """
        make_room(self._directory, self._make_state(step), problem)
        return checkpoint_path(self._directory, step)

    def publish(self, problem: Problem, step: int, parts: list[CheckpointPart] | str) -> None:
        """Make a checkpoint of the parts of this step.

        Raises:
            UnsupportedError: some are missing, as `parts` says, or it could not be written.
        """
        if isinstance(parts, str):
            remove_orphans(self._directory)
            raise UnsupportedError(parts)
        state = self._make_state(step)
        write_checkpoint(self._directory, state, problem, _not_called, keep=self._keep, parts=parts)
        self._saved_step = step

    def wants_last(self, step: int, *, early: bool) -> bool:
        """Whether the last state, of this step, is still to be saved.

        Args:
            step: where the run ended.
            early: whether that is before its last step; then the state is saved in any case.
        """
        return (self._at_end or early) and self._saved_step != step

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
            owed: whether a checkpoint of this step was due, and is still to be made.
            ready: called when it is written; returns once it may be known.

        Raises:
            UnsupportedError: it could not be written; the exit code then says that the run cannot
                be continued here.
        """
        if self.wants_last(snapshot.step, early=early or owed):
            self._write(snapshot, ready)
        else:
            self.tidy()

    def tidy(self) -> None:
        """Remove older checkpoints that a killed run had no time to remove."""
        remove_older(self._directory, self._keep)

    def dump(self, snapshot: Snapshot) -> str:
        """Write a state that is not finite to a file that no restart takes for a checkpoint."""
        self._settle()  # what is being written is the last good one
        good = good_checkpoints(self._directory)
        last = f"The last good checkpoint is {good[0]}." if good else "There is no checkpoint."

        try:
            path = write_crash_dump(
                self._directory, self._make_state(snapshot.step), snapshot.problem, snapshot.box
            )
        except UnsupportedError as error:
            return f"{last} The bad state could not be kept: {error}"
        return f"{last} The bad state is in {path}, for `info` and `plot`."

    def newest(self) -> tuple[int, InitialField] | None:
        """When all are on the disk: (step, state) of the newest good one, None if there is none."""
        self._settle()
        checkpoint, _ = find_checkpoint(self._directory, tidy=False)
        return None if checkpoint is None else (checkpoint.state.step, checkpoint.initial)

    def _write(self, snapshot: Snapshot, ready: Callable[[], None] = lambda: None) -> None:
        state, problem = self._make_state(snapshot.step), snapshot.problem
        write_checkpoint(
            self._directory, state, problem, snapshot.box, keep=self._keep, ready=ready
        )
        self._saved_step = snapshot.step


def _not_called(box: Box) -> Field:
    msg = f"the points {box} lie in a part that was written"
    raise AssertionError(msg)
