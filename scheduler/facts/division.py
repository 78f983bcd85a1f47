"""Link, Capacity, Division and Profile: what messages cost, what workers can do, and who therefore
gets what.
"""

from __future__ import annotations

from dataclasses import dataclass

from tetris_sim.scheduler.facts.domain import Work


@dataclass(frozen=True)
class Link:
    """A message of n bytes takes `latency + n * seconds_per_byte`.

    Attributes:
        latency: [s].
        seconds_per_byte: [s].
    """

    latency: float
    seconds_per_byte: float

    def seconds(self, n_bytes: float) -> float:
        """Of a message."""
        return self.latency + n_bytes * self.seconds_per_byte


FREE = Link(0.0, 0.0)


@dataclass(frozen=True)
class Capacity:
    """What a worker can do.

    Attributes:
        name: of the worker.
        points_per_second: as measured.
        start: time that starting and ending a block takes [s].
        link: to the others: what giving a message away, or taking one, costs.
        room: planes that its memory holds, halos included.
        depth: steps that its method likes to make at a time; 1 if a block can be of any length.
        fixed: whether it can make no other number at a time, so that steps left over are single
            sweeps: on GPUs.
        one_way: whether the link says what giving and taking cost together, so that giving is free.
        overlapped: share of the exchange that goes on beside the computation of points that need
            no halo, 0 to 1.
        copying: of the link, what its own copies of a message cost, giving or taking: its blocks
            contain them where it says so (`CopiesInBlocks`).
        splitting: how much longer points near halos take if they are a part of their own, in times
            of what they take with all others.
    """

    name: str
    points_per_second: float
    start: float = 0.0
    link: Link = FREE
    room: int = 1 << 62
    depth: int = 1
    fixed: bool = True
    one_way: bool = False
    overlapped: float = 0.0
    copying: Link = FREE
    splitting: float = 0.0


@dataclass(frozen=True)
class Division:
    """Who gets what, and what that should take.

    Attributes:
        planes: of each worker; 0 for one that is left out.
        time_block: steps between two exchanges.
        block_seconds: predicted time of a block, exchange included [s].
        busy: predicted time that each worker computes in a block [s].
        exchange_seconds: predicted part of a block in which nobody computes who should [s].
        replicated: points that are computed twice in a block.
        messages: of an exchange.
        message_bytes: of each of them.
    """

    planes: tuple[int, ...]
    time_block: int
    block_seconds: float
    busy: tuple[float, ...]
    exchange_seconds: float
    replicated: int
    messages: int
    message_bytes: int

    @property
    def seconds_per_step(self) -> float:
        """Predicted time of a step [s]."""
        return self.block_seconds / self.time_block

    def idle(self, worker: int) -> float:
        """Predicted share of the time in which a worker waits, for others or for the exchange; 0 to
        1.
        """
        return 1.0 - self.busy[worker] / self.block_seconds


@dataclass(frozen=True)
class Profile:
    """What a division was made from, and what it says (Tetris 5.2).

    Attributes:
        work: what is divided.
        capacities: of the workers that take part, as measured; in a run, those of its last blocks
            take their place.
        division: between them.
        in_flight: blocks, or pieces of one that is streamed, that are under way at a time.
    """

    work: Work
    capacities: tuple[Capacity, ...]
    division: Division
    in_flight: int = 1
