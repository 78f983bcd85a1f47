"""Shares and plans: which worker owns which slab, with which method, how many steps per block, and
why.

Each reason is stored with its topic, so that code that revises a decision can drop the reasons
given for it before.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.support.wording import count_threads, listing, table

# How the state reaches the next output step: by explicit steps, by substeps whose length follows
# from an error estimate, by spectral propagation, as the solution of systems, or with the linear
# part of equations treated apart.
Scheme = Literal["explicit", "adaptive", "spectral", "steady", "implicit", "etdrk4", "imex"]
Topic = Literal[
    "scheme",
    "device",
    "method",
    "shares",
    "left out",
    "block",
    "messages",
    "streaming",
    "checkpoints",
]


# Transport of planes between GPUs of different ranks. "host": from GPU to GPU inside a computer
# where that is possible, otherwise through host memory. "mpi": the same, but MPI gets pointers to
# GPU memory. "nccl": by NCCL.
GpuMessages = Literal["host", "mpi", "nccl"]


@dataclass(frozen=True)
class Reason:
    """One decision, and why it was made.

    Attributes:
        topic: the decision that the sentence is about.
        sentence: the explanation for the user.
    """

    topic: Topic
    sentence: str


def about(topic: Topic, sentences: Iterable[str]) -> tuple[Reason, ...]:
    """Reasons that share one topic."""
    return tuple(Reason(topic, sentence) for sentence in sentences)


def sentences_of(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """The distinct sentences, in their first order."""
    return tuple(dict.fromkeys(reason.sentence for reason in reasons))


@dataclass(frozen=True)
class Share:
    """The slab of one worker and how it advances it.

    Attributes:
        worker: name of the worker, "cpu:0" or "gpu:0".
        slab: the part of the grid that it owns.
        method: method that advances the slab.
        parameters: tuned parameters of the method.
        threads: CPU threads that it uses; 1 for a GPU, which one thread drives.
        points_per_second: measured rate of point updates.
        memory: bytes that the method takes for the slab.
        product: product name of the GPU; empty for CPU threads.
        rank: MPI rank that drives the device.
        queued: whether the worker has its own thread, so that it computes while other workers do.
        through_host: whether its neighbours expect its edges in host memory, even if it is a GPU.
        simulated: settings of the emulated device; None for a real one.
        streamed: out-of-core streaming if the slab lies in host memory; None if the device holds
            it.
        number: number of its GPU among those that the process sees.
        keeps: whether the GPU has memory for a snapshot of the slab, which is written in the
            background.
    """

    worker: str
    slab: Slab
    method: Method
    parameters: Parameters
    threads: int
    points_per_second: float
    memory: int
    product: str = ""
    rank: int = 0
    queued: bool = False
    through_host: bool = False
    simulated: SimulatedSection | None = None
    streamed: Streaming | None = None
    number: int = 0
    keeps: bool = False

    @property
    def described(self) -> str:
        """The device for the user: "2 threads" or the name of the GPU."""
        return self.product or count_threads(self.threads)


@dataclass(frozen=True)
class Plan:
    """Every decision about how a problem is advanced.

    Attributes:
        shares: one share per worker.
        time_block: largest number of steps between two halo exchanges.
        seconds_per_step: predicted time of one step [s].
        redundant: share of the point updates that two workers both make, 0 to 1.
        copy_for_checkpoints: whether memory suffices for a second copy of the state, so that
            checkpoints are written in the background.
        reasons: explanations of the decisions.
        notes: sentences that a reader of the results must know.
        profile: capacities and division of workers of several kinds; None without such a division.
        copy_for_recovery: whether memory suffices to keep a state from which the run continues if a
            device fails.
        shares_asked: whether the configuration sets the sizes of the slabs, which load balancing
            then leaves as they are.
        gpu_messages: transport of planes between GPUs of different ranks.
        scheme: how the state reaches the next output step.
        overlapped: whether the halo exchange overlaps the computation of points that need no halo.
        ahead: whether blocks are enqueued on GPUs while these compute the block before, although a
            block needs halos of CPU workers: CPU workers finish earlier, so the halos arrive in
            time.
    """

    shares: tuple[Share, ...]
    time_block: int
    seconds_per_step: float
    redundant: float
    copy_for_checkpoints: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    profile: Profile | None = None
    copy_for_recovery: bool = False
    shares_asked: bool = False
    gpu_messages: GpuMessages = "host"
    scheme: Scheme = "explicit"
    overlapped: bool = False
    ahead: bool = False

    def _repr_html_(self) -> str:
        rows = [
            (
                share.worker,
                f"{share.method.name}, {share.described}, "
                f"{share.slab.n_points:,} points, {share.points_per_second / 1e9:.3g} GStencil/s",
            )
            for share in self.shares
        ]

        # What holds for all workers.
        rows += [
            ("scheme", self.scheme),
            ("steps between exchanges", f"{self.time_block:,}"),
            ("memory", f"{self.memory / 2**20:,.3g} MiB"),
        ]
        return table("Plan", rows) + listing((*self.reasons, *self.notes))

    @property
    def memory(self) -> int:
        """Memory that all workers in this plan take together [bytes]."""
        return sum(share.memory for share in self.shares)


@dataclass(frozen=True)
class Draft:
    """A plan whose reasons are kept apart, as long as parts of it may still be revised.

    Attributes:
        plan: the plan, without its `reasons`.
        reasons: reasons by topic, from which the sentences are made.
    """

    plan: Plan
    reasons: tuple[Reason, ...]

    def finished(self) -> Plan:
        """The plan, with the sentences of its reasons."""
        return dataclasses.replace(self.plan, reasons=sentences_of(self.reasons))


def names_of(plan: Plan) -> list[str]:
    """Names of the workers: "cpu:0", or with the rank in front, "3/cpu:0", where a plan spans
    several ranks.
    """
    # The rank is left out where it says nothing.
    if len({share.rank for share in plan.shares}) == 1:
        return [share.worker for share in plan.shares]
    return [f"{share.rank}/{share.worker}" for share in plan.shares]


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
        # Fields count as points: a plane of two fields takes twice the work and twice the message.
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
        # A single worker has no neighbour, not even itself: periodic ghosts are filled within the
        # slab.
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
