"""Progress: a bar on a terminal, plain log lines elsewhere, nothing if it is not wanted."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from tetris_sim.model.problem import Problem

# PhaseClock: how much wall time went into what.

PHASES = ("plan", "prepare", "initial", "compute", "exchange", "check", "output", "checkpoint")


class PhaseClock:
    """Adds up the seconds spent in each phase; phases do not nest."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the block towards phase `name`, one of `PHASES`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begin

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.begin


_LINE_SECONDS = 10.0  # between two log lines
_DAY = 86400.0
_YEAR = 365.25 * _DAY
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


def format_time(seconds: float) -> str:
    """A simulated time with a fitting unit.

    >>> format_time(0.01922), format_time(0.0), format_time(86400.0), format_time(1.9e6)
    ('19.22 ms', '0 s', '86400 s', '21.99 days')
    """
    if 2 * _DAY <= seconds < math.inf:
        return f"{seconds / _DAY:.4g} days"
    if seconds >= 1e4:
        return f"{seconds:.5g} s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= factor:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds:.4g} s"


def format_duration(seconds: float) -> str:
    """A wall time for people.

    >>> format_duration(3.2), format_duration(75), format_duration(7384)
    ('3.2 s', '1:15 min', '2:03:04 h')
    >>> format_duration(1916665), format_duration(1e9)
    ('22 days', '32 years')
    """
    if not math.isfinite(seconds):
        return f"{seconds:g} s"
    for limit, length, unit in ((2 * _YEAR, _YEAR, "years"), (2 * _DAY, _DAY, "days")):
        if seconds >= limit:
            return f"{round(seconds / length, 1 if seconds < 10 * length else None):,} {unit}"

    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h"
