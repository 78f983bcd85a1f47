"""Streaming: how a slab that is larger than a device's memory goes through it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Streaming:
    """How a slab is streamed through a device.

    Attributes:
        steps: of a pass.
        planes: most of a piece, its surroundings not counted.
        pieces: of a pass.
        points_per_second: predicted, with copies and redundant work.
        start: what it takes to bring the first piece of a block and to take the last one [s].
        redundant: share of the point updates that are made twice, 0 to 1.
        hidden: time of the copies of a piece over that of its computation; at most 1 if they are
            hidden.
        in_flight: pieces that are under way at a time.
    """

    steps: int
    planes: int
    pieces: int
    points_per_second: float
    start: float
    redundant: float
    hidden: float
    in_flight: int
