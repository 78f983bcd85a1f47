"""Output and Snapshot: the Protocols between the run loop and everything that is written down."""

from __future__ import annotations

from typing import Protocol

from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem


class Snapshot(Protocol):
    """The state at one step; what is asked for is fetched from the workers once and kept."""

    problem: Problem
    step: int

    @property
    def time(self) -> float:
        """Simulated time [s]."""

    def field(self) -> Field:
        """The whole state in global order, (n_fields, n0, ...); must not be changed."""

    def box(self, box: Box) -> Field:
        """The part of the state inside `box`, (n_fields, ...), without fetching the rest."""

    def hidden(self, box: Box) -> Field:
        """The same of the state itself, where what people see of it is something else."""


class Output(Protocol):
    """Something that wants the state from time to time.

    Attributes:
        reads_all: whether it reads much of the state: its calls then may come from another thread,
            which has a copy, but never from two at a time.
    """

    reads_all: bool

    def next_step(self, step: int) -> int | None:
        """Smallest step greater than `step` at which it wants a snapshot; None if never again.

        A function of the step alone, so that it is the same on every rank and after every restart.
        """

    def start(self, step: int) -> bool | None:
        """Called once before the loop: forget records later than `step` (of an earlier run).

        Returns:
            Whether it wants the snapshot of this step, which it gets in any case at step 0.
        """

    def write(self, snapshot: Snapshot) -> None:
        """Record the snapshot. A record that already exists for the step is replaced."""

    def flush(self) -> None:
        """Make every record so far survive a crash; called before a checkpoint is taken."""

    def close(self) -> None:
        """Finish the files."""
