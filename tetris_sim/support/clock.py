"""Wall time of the phases of a run, and formats for simulated and wall times."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

PHASES = ("plan", "prepare", "initial", "compute", "exchange", "check", "output", "checkpoint")


class PhaseClock:
    """A clock that adds up the wall time of each phase; phases do not nest."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the `with` block to the phase `name`, one of `PHASES`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begin

    @property
    def elapsed(self) -> float:
        """Wall time since the clock was created [s]."""
        return time.perf_counter() - self.begin


_DAY = 86400.0
_YEAR = 365.25 * _DAY


def format_time(seconds: float) -> str:
    """A simulated time in a suitable unit.

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
    """A wall time for the user.

    >>> format_duration(3.2), format_duration(75), format_duration(7384)
    ('3.2 s', '1:15 min', '2:03:04 h')
    >>> format_duration(1916665), format_duration(1e9)
    ('22 days', '32 years')
    """
    if not math.isfinite(seconds):
        return f"{seconds:g} s"
    # Long durations in years or days, one decimal below ten units.
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
