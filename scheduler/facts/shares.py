"""Shares and plans: which worker owns which slab, with which method, how many steps per block, and
why.

Each reason is stored with its topic, so that code that revises a decision can drop the reasons
given for it before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.domain import Profile, Streaming
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
    if len({share.rank for share in plan.shares}) == 1:
        return [share.worker for share in plan.shares]
    return [f"{share.rank}/{share.worker}" for share in plan.shares]
