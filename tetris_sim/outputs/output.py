"""Output and Snapshot: the protocols between the run loop and everything that writes results.

`StepSchedule` and `OutputTimes` decide when an output is due; why outputs decide, and not the loop,
is in docs/decisions/0002-outputs-say-when.md.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tetris_sim.config.sections.quantities import Every
from tetris_sim.errors import ConfigError
from tetris_sim.model.method import Box, Fetch
from tetris_sim.model.problem import Field, Problem

# Due steps as arithmetic on the step number alone: every rank and every restart finds the same.


@dataclass(frozen=True)
class StepSchedule:
    """Schedule: every so many steps, or the first step at or after each multiple of a time.

    The last step is always due. No state is kept between calls, so a restart finds the same steps.

    Attributes:
        every: the interval, in steps or in seconds of simulated time.
        dt: time step [s].
        last: the last step of the run.
        start: a step and its time [s], from which on every step takes dt; see `Problem.start`.
    """

    every: Every
    dt: float
    last: int
    start: tuple[int, float] = (0, 0.0)

    def next_step(self, step: int) -> int | None:
        """The smallest due step greater than `step`; None after the last."""
        if step >= self.last:
            return None

        if self.every.unit == "steps":
            period = int(self.every.value)
            due = (step // period + 1) * period

        else:
            due = step + 1
            # The k-th multiple of the period falls on the first step whose time is not before it,
            # to within rounding.
            # The relative slack of 1e-12 absorbs the rounding of time and of the multiple.
            first, begun = self.start
            time = begun + (step - first) * self.dt
            periods = time / self.every.value * (1 + 1e-12)

            if math.isinf(periods):  # so short that every step is due
                return due
            multiple = (math.floor(periods) + 1) * self.every.value / self.dt * (1 - 1e-12)
            later = multiple - begun / self.dt
            due = self.last if later > self.last - first else max(due, first + math.ceil(later))

        return min(due, self.last)

    def is_due(self, step: int) -> bool:
        """Whether a step after the first is due."""
        return self.next_step(step - 1) == step


@dataclass(frozen=True)
class OutputTimes:
    """Output times that are hit exactly, whatever the time step.

    A time that is no whole number of steps is known at the step after it, by linear interpolation
    between the two steps around it. That differs from the solution by dt^2/8 times its second
    derivative, while a step of forward Euler errs by dt^2/2 times the same. The alternative, a dt
    that divides all times, would make a run's numbers depend on its output, be far shorter for
    times such as 1.2345 s, and be impossible in a run that is continued with its own dt.

    Attributes:
        times: the output times [s].
        dt: time step [s].
        last: the last step of the run.
        start: see `Problem.start`.
    """

    times: tuple[float, ...]
    dt: float
    last: int
    start: tuple[int, float] = (0, 0.0)

    def __post_init__(self) -> None:
        # `due` is ascending, so its last entry is the latest time.
        known = list(self.due.items())
        if known and known[-1][0] > self.last:
            end = self.start[1] + (self.last - self.start[0]) * self.dt
            msg = f"output: {known[-1][1][0]:g} s is asked for, but the run ends at {end:g} s"
            raise ConfigError(msg)

        # A step can hold one output time only, as each record is filed under its step.
        placed = [(self._place(time)[0], time) for time in self._future]
        for (step, time), (after, later) in itertools.pairwise(placed):
            if step == after:
                msg = (
                    f"output: {time:g} s and {later:g} s lie within one step of {self.dt:g} s; "
                    "leave one of them out, or choose a shorter time.dt"
                )
                raise ConfigError(msg)

    @functools.cached_property
    def due(self) -> dict[int, tuple[float, float]]:
        """The output time known at each step, and the weight of that step.

        The step before has the rest of the weight.
        """
        placed = ((time, *self._place(time)) for time in self._future)
        return {step: (time, share) for time, step, share in placed}

    @property
    def _future(self) -> list[float]:
        """The times that no earlier dt has reached, ascending."""
        times = sorted(set(self.times))
        # From the very start all times are ahead, time 0 included.
        if self.start == (0, 0.0):
            return times
        return [time for time in times if self._place(time)[0] > self.start[0]]

    @functools.cached_property
    def before(self) -> frozenset[int]:
        """The steps whose state is needed for interpolation at the step after them."""
        return frozenset(step - 1 for step, (_, share) in self.due.items() if share < 1)

    def next_step(self, step: int) -> int | None:
        """The smallest step greater than `step` whose state is needed; None after the last."""
        return min((wanted for wanted in (*self.due, *self.before) if wanted > step), default=None)

    def _place(self, time: float) -> tuple[int, float]:
        first, begun = self.start
        place = (time - begun) / self.dt
        whole = round(place)
        # Within rounding of a step the time is that step, without interpolation.
        if abs(place - whole) <= 1e-9 + 1e-12 * abs(place):  # but for rounding
            return first + whole, 1.0
        return first + math.ceil(place), place - math.floor(place)


class Snapshot(Protocol):
    """The state at one step; parts are fetched from the workers once, when asked for, and kept."""

    problem: Problem
    step: int
    moved: Mapping[str, float]  # by the steps so far, by surface [J]; empty where it is not counted

    @property
    def time(self) -> float:
        """Simulated time [s]."""

    def field(self) -> Field:
        """The whole state in global order, (n_fields, n0, ...); must not be changed."""

    def box(self, box: Box) -> Field:
        """The part of the state inside `box`, (n_fields, ...), without fetching the rest."""

    def hidden(self, box: Box) -> Field:
        """The stored state inside `box`, where users see a quantity derived from it instead."""


@dataclass
class StateSnapshot:
    """The state between two time blocks; see the Protocol `Snapshot`.

    Attributes:
        read: gives a box of it.
        origin: what it is a view of.
        moved: see `WorkerGroup.moved`.
        keep: lets the devices keep it, if they can: what fetches it later, from any thread.
    """

    problem: Problem
    step: int
    read: Callable[[Box], Field]
    origin: StateSnapshot | None = None
    moved: Mapping[str, float] = field(default_factory=dict)
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
        """Return the snapshot in the units of outputs; see `Problem.seen`."""
        if (seen := self.problem.seen) is self.problem:
            return self
        view = self.problem.view
        return StateSnapshot(
            seen,
            self.step,
            lambda box: self.box(box) if view is None else view.look(box, self.box(box)),
            origin=self,
            moved=self.moved,
        )


class Output(Protocol):
    """Something that needs the state from time to time.

    Attributes:
        reads_all: whether it reads much of the state. Its calls may then come from another thread,
            which has a copy, but never from two threads at a time.
    """

    reads_all: bool

    def next_step(self, step: int) -> int | None:
        """The smallest step greater than `step` at which it needs a snapshot; None if never again.

        A function of the step alone, so that it is the same on every rank and after every restart.
        """

    def start(self, step: int) -> bool | None:
        """Called once before the loop: discard records later than `step` (of an earlier run).

        Returns:
            Whether it needs the snapshot of this step, which it gets in any case at step 0.
        """

    def write(self, snapshot: Snapshot) -> None:
        """Record the snapshot; a record that exists for the step is replaced."""

    def flush(self) -> None:
        """Make every record so far survive a crash; called before a checkpoint is taken."""

    def close(self) -> None:
        """Finish the files."""
