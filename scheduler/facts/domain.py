"""Problem sizes, links and capacities: the few numbers from which a plan is made, and the division
that comes out of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from tetris_sim.model.problem import Problem

Parts = tuple[int, ...]  # number of pieces along each axis


@dataclass(frozen=True)
class Domain:
    """A grid that may be cut along any of its axes.

    Attributes:
        shape: points along each axis.
        radii: reach of a step along each axis [points].
        periodic: whether the first and the last point along each axis are neighbours.
        n_fields: values per point.
        itemsize: bytes of a value in a message.
        alike: whether the problem is homogeneous: a step is the same at every point and time, so
            that one stepper can advance any piece.
    """

    shape: tuple[int, ...]
    radii: tuple[int, ...]
    periodic: tuple[bool, ...]
    n_fields: int
    itemsize: float
    alike: bool = True

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The domain of a problem."""
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
        """Number of values at all points, all fields together."""
        return math.prod(self.shape) * self.n_fields

    @property
    def state_bytes(self) -> int:
        """Size of the state [bytes]."""
        return int(self.n_values * self.itemsize)

    @property
    def plane_bytes(self) -> int:
        """Size of one plane of axis 0, all fields [bytes]."""
        return self.state_bytes // self.shape[0]


@dataclass(frozen=True)
class WorkEstimate:
    """A grid that is divided along its first axis only.

    Attributes:
        n_planes: planes along axis 0.
        plane_points: values of a plane: its points times the fields.
        plane_bytes: bytes of a plane in a message.
        radius: reach of a step along axis 0 [planes].
        periodic: whether the first and the last plane are neighbours.
    """

    n_planes: int
    plane_points: int
    plane_bytes: int
    radius: int
    periodic: bool = False

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The estimate for a problem."""
        n = problem.grid.shape[0]
        points = problem.grid.n_points // n * problem.n_fields
        n_bytes = points * problem.dtype.itemsize
        return cls(n, points, n_bytes, problem.stencil.radii[0], problem.boundary.periodic(0))

    @property
    def domain(self) -> Domain:
        """A `Domain` of the same size: one axis of planes, and one of the points in a plane."""
        # The second axis is never cut, so its radius is 0. A plane counts as `plane_points` points
        # with one field; the item size is what gives a plane its bytes.
        return Domain(
            (self.n_planes, self.plane_points),
            (self.radius, 0),
            (self.periodic, False),
            1,
            self.plane_bytes / self.plane_points,
        )

    def cuts(self, place: int, count: int) -> int:
        """Number of neighbours of worker `place` among `count` workers in a row."""
        if count == 1:
            return 0
        return 2 if self.periodic else (place > 0) + (place < count - 1)


def shortened(problem: Problem, planes: int) -> Problem:
    """The problem on another number of planes along axis 0, never fewer than a step reaches."""
    shape = (max(planes, problem.stencil.radii[0], 1), *problem.grid.shape[1:])
    return problem.on_shape(shape)


@dataclass(frozen=True)
class Streaming:
    """Out-of-core streaming of a slab through a device, chunk by chunk.

    Attributes:
        steps: time steps per pass over the slab.
        planes: planes of the largest chunk, without its surroundings.
        pieces: chunks per pass.
        points_per_second: predicted rate, copies and redundant work included.
        start: time to fill and drain the pipeline once per block: first chunk in, last chunk out
            [s].
        redundant: share of the point updates that are computed twice, 0 to 1.
        hidden: time to copy a chunk over the time to compute it; copies are hidden if it is at most
            1.
        in_flight: chunks in the pipeline at a time.
    """

    steps: int
    planes: int
    pieces: int
    points_per_second: float
    start: float
    redundant: float
    hidden: float
    in_flight: int


# Costs and results of a division: what messages cost (`Link`), what workers can do (`Capacity`),
# and which planes they therefore get (`Division`, `Profile`).


@dataclass(frozen=True)
class Link:
    """Linear cost model of a message: n bytes take `latency + n * seconds_per_byte`.

    Attributes:
        latency: fixed time per message [s].
        seconds_per_byte: inverse bandwidth [s/byte].
    """

    latency: float
    seconds_per_byte: float

    def seconds(self, n_bytes: float) -> float:
        """Time of a message of `n_bytes` [s]."""
        return self.latency + n_bytes * self.seconds_per_byte


FREE = Link(0.0, 0.0)


@dataclass(frozen=True)
class Capacity:
    """Speed, memory and message costs of a worker, as the cost model uses them.

    Attributes:
        name: of the worker.
        points_per_second: measured rate of point updates.
        start: time to start and end a block [s].
        link: cost of a message to or from another worker, charged to the one that sends it and
            again to the one that receives it.
        room: planes that its memory holds, halos included.
        depth: steps that its method makes at a time when it can; 1 if a block of any length is as
            good.
        fixed: whether the method makes only `depth` steps at a time and single sweeps for the
            remainder, as GPU methods do.
        one_way: whether `link` already contains sending and receiving, so that sending costs
            nothing extra.
        overlapped: share of the halo exchange that can overlap the computation of points that need
            no halo, 0 to 1.
        copying: part of `link` that is the worker's own copying of a message, in either direction;
            its blocks contain these copies if it is a `CopiesInBlocks`.
        splitting: extra time of the halo-dependent region when it is computed separately, relative
            to its time as part of the whole.
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
    """Planes of each worker and the predicted times that follow.

    Attributes:
        planes: planes of each worker; 0 for a worker that is left out.
        time_block: steps between two exchanges.
        block_seconds: predicted time of a block, exchange included [s].
        busy: predicted computing time of each worker in a block [s].
        exchange_seconds: predicted part of a block beyond the computing time of the slowest worker
            [s].
        replicated: point updates that two workers both make in a block.
        messages: messages of an exchange.
        message_bytes: bytes of each message.
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
        """Predicted share of the time that a worker spends waiting, for other workers or for the
        exchange; 0 to 1.
        """
        return 1.0 - self.busy[worker] / self.block_seconds


@dataclass(frozen=True)
class Profile:
    """A division together with the measurements that it was made from (Tetris 5.2).

    Attributes:
        work: the grid that is divided.
        capacities: measured capacities of the workers that take part; load balancing replaces them
            with the rates of the last blocks.
        division: planes of these workers and their predicted times.
        in_flight: blocks, or chunks of a streamed slab, that are in progress at a time.
    """

    work: WorkEstimate
    capacities: tuple[Capacity, ...]
    division: Division
    in_flight: int = 1
