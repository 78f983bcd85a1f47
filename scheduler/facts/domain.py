"""Domain, Work and Streaming: the few numbers about a problem from which a plan is made, and how a
slab that is larger than a device's memory goes through it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from tetris_sim.model.problem import Problem

Parts = tuple[int, ...]  # per axis, into how many pieces it is cut


@dataclass(frozen=True)
class Domain:
    """What is cut, along any of its axes.

    Attributes:
        shape: points along each axis.
        radii: points that a step reaches along each axis.
        periodic: whether the first and the last point along each axis are neighbours.
        n_fields: values of a point.
        itemsize: bytes of a value in a message.
        alike: whether a step is the same at every point and time, so that one stepper can advance
            any piece.
    """

    shape: tuple[int, ...]
    radii: tuple[int, ...]
    periodic: tuple[bool, ...]
    n_fields: int
    itemsize: float
    alike: bool = True

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """That of a problem."""
        return cls(
            problem.grid.shape,
            problem.stencil.radii,
            tuple(problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)),
            problem.n_fields,
            problem.dtype.itemsize,
            problem.why_not_one_stencil is None,
        )

    @property
    def n_values(self) -> int:
        """Of all points."""
        return math.prod(self.shape) * self.n_fields

    @property
    def state_bytes(self) -> int:
        """Of all values."""
        return int(self.n_values * self.itemsize)

    @property
    def plane_bytes(self) -> int:
        """Of the values of a plane of axis 0."""
        return self.state_bytes // self.shape[0]


@dataclass(frozen=True)
class WorkEstimate:
    """What is divided along its first axis only.

    Attributes:
        n_planes: of axis 0.
        plane_points: points of a plane, all fields.
        plane_bytes: that a plane takes in a message.
        radius: planes that a step reaches.
        periodic: whether the first and the last plane are neighbours.
    """

    n_planes: int
    plane_points: int
    plane_bytes: int
    radius: int
    periodic: bool = False

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """That of a problem."""
        n = problem.grid.shape[0]
        points = problem.grid.n_points // n * problem.n_fields
        n_bytes = points * problem.dtype.itemsize
        return cls(n, points, n_bytes, problem.stencil.radii[0], problem.boundary.periodic(0))

    @property
    def domain(self) -> Domain:
        """The same with planes for points."""
        return Domain(
            (self.n_planes, self.plane_points),
            (self.radius, 0),
            (self.periodic, False),
            1,
            self.plane_bytes / self.plane_points,
        )

    def cuts(self, place: int, count: int) -> int:
        """Neighbours of worker number `place` of `count`."""
        if count == 1:
            return 0
        return 2 if self.periodic else (place > 0) + (place < count - 1)


def shortened(problem: Problem, planes: int) -> Problem:
    """The problem on another number of planes."""
    shape = (max(planes, problem.stencil.radii[0], 1), *problem.grid.shape[1:])
    return problem.on_shape(shape)


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


# Link, Capacity, Division and Profile: what messages cost, what workers can do, and who therefore
# gets what.


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

    work: WorkEstimate
    capacities: tuple[Capacity, ...]
    division: Division
    in_flight: int = 1
