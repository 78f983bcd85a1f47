"""When an output is due, as arithmetic on the step number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tetris_sim.quantities import Every


@dataclass(frozen=True)
class StepSchedule:
    """Due every so many steps, or at the first step at or after each multiple of a time.

    The last step is always due. Nothing is remembered between calls, so a restart finds the same
    steps.

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
        """Smallest due step greater than `step`; None after the last."""
        if step >= self.last:
            return None
        if self.every.unit == "steps":
            period = int(self.every.value)
            due = (step // period + 1) * period
        else:
            due = step + 1
            # The k-th multiple of the period falls on the first step whose time is not before it,
            # to within rounding.
            first, begun = self.start
            time = begun + (step - first) * self.dt
            k = math.floor(time / self.every.value * (1 + 1e-12)) + 1
            multiple = k * self.every.value / self.dt * (1 - 1e-12)
            due = max(due, first + math.ceil(multiple - begun / self.dt))
        return min(due, self.last)
