"""Progress: a bar on a terminal, plain log lines elsewhere, nothing if it is not wanted."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from typing import Any

from tetris_sim.model.problem import Problem
from tetris_sim.support.clock import format_duration, format_time

_LINE_SECONDS = 10.0  # between two log lines
_RECENT_SECONDS = 5.0  # the rate and the time left come from the last seconds, not from the warm-up

log = logging.getLogger("tetris_sim")


class Progress:
    """Shows percent, simulated time, rate and time left.

    Args:
        problem: what is advanced.
        start: the step the run begins at; a restart shows the bar from there.
        bar: whether to draw a bar; otherwise log lines are written every ten seconds.
    """

    def __init__(self, problem: Problem, start: int, *, bar: bool) -> None:
        self._problem = problem
        self._recent: deque[tuple[float, int]] = deque()
        self._last_line = time.perf_counter()
        self._bar: Any = None
        if bar:
            # In a notebook its widget, where that is installed.
            from tqdm.auto import tqdm

            self._bar = tqdm(
                total=problem.steps,
                initial=start,
                file=sys.stderr,
                unit=" steps",
                dynamic_ncols=True,
                bar_format="{percentage:3.0f} %|{bar}| {desc}",
                mininterval=0.2,
            )

    def update(self, step: int) -> None:
        """Show that `step` was reached."""
        now = time.perf_counter()
        self._recent.append((now, step))
        while len(self._recent) > 2 and now - self._recent[1][0] > _RECENT_SECONDS:
            self._recent.popleft()
        if self._bar is not None:
            self._bar.set_description_str(self.describe(), refresh=False)
            self._bar.update(step - self._bar.n)
        elif now - self._last_line > _LINE_SECONDS:
            self._last_line = now
            log.info("%3.0f %%, %s", 100 * step / self._problem.steps, self.describe())

    def describe(self) -> str:
        """Simulated time, rate and time left as one line."""
        (begin, first), (now, step) = self._recent[0], self._recent[-1]
        problem = self._problem
        text = f"step {step}/{problem.steps}, t = {format_time(problem.time(step))}"
        if now > begin and step > first:
            steps_per_second = (step - first) / (now - begin)
            rate = steps_per_second * problem.grid.n_points * problem.n_fields / 1e9
            left = (problem.steps - step) / steps_per_second
            text += f", {rate:.3g} GStencil/s, {format_duration(left)} left"
        return text

    def close(self) -> None:
        """Leave the terminal in order."""
        if self._bar is not None:
            self._bar.close()
