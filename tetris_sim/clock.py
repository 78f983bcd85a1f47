"""PhaseClock: how much wall time went into what."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

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
