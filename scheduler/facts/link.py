"""Link: what a message costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A message of n bytes takes `latency + n * seconds_per_byte`.

    Attributes:
        latency: [s].
        seconds_per_byte: [s].
    """

    latency: float
    seconds_per_byte: float


FREE = Link(0.0, 0.0)
