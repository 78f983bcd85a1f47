"""StateSnapshot: the state between two time blocks, as outputs see it; and what saves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tetris_sim.model.method import Box, Fetch
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.checkpoint.file import Part
from tetris_sim.outputs.output import Snapshot
from tetris_sim.scheduler.run.exchange import Read


class Saving(Protocol):
    """What the run loop needs of checkpoints (see checkpoint/saving.py).

    Attributes:
        divided: whether each slab is written where it lies.
    """

    divided: bool

    def next_step(self, step: int) -> int | None:
        """Smallest step greater than `step` at which a checkpoint is wanted, if there is one."""

    def due_by_clock(self) -> bool:
        """Whether the wall clock asks for a checkpoint now."""

    def restart_clock(self) -> None:
        """A checkpoint is made now, as far as the wall clock is concerned."""

    def save(self, snapshot: Snapshot) -> None:
        """Save the state."""

    def tidy(self) -> None:
        """Remove older checkpoints that a killed run had no time to remove."""

    def finish(
        self,
        snapshot: Snapshot,
        *,
        early: bool,
        owed: bool = False,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Save the last state, unless it is there or not wanted, and wait for the disk; `ready` is
        called before it may be known.
        """

    def wants_last(self, step: int, *, early: bool) -> bool:
        """Whether the last state is still to be saved."""

    def begin(self, problem: Problem, step: int) -> Path:
        """Where a checkpoint in parts is to lie; `UnsupportedError` if there is no room."""

    def publish(self, problem: Problem, step: int, parts: list[Part] | str) -> None:
        """Write what shows the parts as one, or say why there is none, as `UnsupportedError`."""

    def dump(self, snapshot: Snapshot) -> str:
        """Keep a state that is not finite where no restart finds it, and say where, and which
        checkpoint is good.
        """


@dataclass
class StateSnapshot:
    """The state between two time blocks; see the Protocol `Snapshot`.

    Attributes:
        read: gives a box of it.
        origin: what it is a view of.
        keep: lets the devices keep it, if they can: what fetches it later, from any thread.
    """

    problem: Problem
    step: int
    read: Read
    origin: StateSnapshot | None = None
    keep: Callable[[], Fetch | None] = field(default=lambda: None, repr=False)
    _field: Field | None = field(default=None, repr=False)

    @property
    def time(self) -> float:
        """Simulated time [s]."""
        return self.problem.time(self.step)

    def field(self) -> Field:
        """The whole state, (n_fields, n0, ...)."""
        if self._field is None:
            self._field = self.read(tuple((0, n) for n in self.problem.grid.shape))
        return self._field

    def box(self, box: Box) -> Field:
        """The part of the state inside `box`, (n_fields, ...)."""
        if self._field is not None:
            return self._field[(slice(None), *(slice(low, high) for low, high in box))]
        return self.read(box)

    def hidden(self, box: Box) -> Field:
        """The state itself inside `box`."""
        return self.box(box) if self.origin is None else self.origin.box(box)

    def seen(self) -> StateSnapshot:
        """What people see of it; see `Problem.view`."""
        if (view := self.problem.view) is None:
            return self
        return StateSnapshot(
            self.problem.seen,
            self.step,
            lambda box: view.look(box, self.box(box)),
            origin=self,
        )
