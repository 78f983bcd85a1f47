"""When a run saves its state, and what it does with a state that is not worth saving."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from tetris_sim.checkpoint.directory import (
    checkpoint_path,
    find_checkpoint,
    good_checkpoints,
    make_room,
    remove_older,
    write_checkpoint,
    write_crash_dump,
)
from tetris_sim.checkpoint.parts import Part, remove_orphans
from tetris_sim.checkpoint.state import RunState
from tetris_sim.config.sections.schema import CheckpointSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.schedule import StepSchedule

log = logging.getLogger("tetris_sim")


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

    def publish(self, problem: Problem, step: int, parts: list[Part] | str) -> None:
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
