"""Share and Plan: which slab to which worker, which method, how many steps per block, and why.

A reason is kept together with what it is about, so that who decides something anew can leave out
what was said of it before.
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

# How the state gets to the next step that anybody wants: by all steps in between, by substeps whose
# length follows from their errors, by a jump, or as the solution of balances.
Scheme = Literal["explicit", "adaptive", "spectral", "steady", "implicit"]
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


# Between GPUs of different ranks: from memory to memory inside a computer, if that is possible, and
# else through the host; the same, but MPI is handed GPU memory; by NCCL.
GpuMessages = Literal["host", "mpi", "nccl"]


@dataclass(frozen=True)
class Reason:
    """Why something was decided as it was.

    Attributes:
        topic: what was decided.
        sentence: why, for people.
    """

    topic: Topic
    sentence: str


def about(topic: Topic, sentences: Iterable[str]) -> tuple[Reason, ...]:
    """Sentences about one thing."""
    return tuple(Reason(topic, sentence) for sentence in sentences)


def sentences_of(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """The sentences, each once."""
    return tuple(dict.fromkeys(reason.sentence for reason in reasons))


@dataclass(frozen=True)
class Share:
    """What one worker does.

    Attributes:
        worker: its name, "cpu:0" or "gpu:0".
        slab: the part of the grid it owns.
        method: how it advances.
        parameters: what the method was tuned to.
        threads: CPU threads it uses; a GPU is driven by one.
        points_per_second: measured, not promised.
        memory: bytes it takes.
        product: name of the GPU, if it is one.
        rank: the MPI process whose device it is.
        queued: whether it has a thread of its own, so that it works while others do.
        through_host: whether its neighbours want its edges in host memory, even if it is a GPU.
        simulated: what its device is like, if it is a made-up one.
        streamed: how it goes through its device in pieces, if it lies in host memory.
        number: of its GPU among those that its process sees.
        keeps: whether its GPU has memory to keep a copy of the slab that somebody writes down.
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
        """Its device for people: "2 threads" or the name of the GPU."""
        return self.product or count_threads(self.threads)


@dataclass(frozen=True)
class Plan:
    """Every decision about how a problem is advanced.

    Attributes:
        shares: one per worker.
        time_block: most steps between two exchanges of halos.
        seconds_per_step: predicted time of one step [s].
        redundant: share of point updates that two workers both make, 0 to 1.
        copy_for_checkpoints: whether there is memory for a second copy of the state, so that
            checkpoints are written while the computation goes on.
        reasons: one sentence per decision.
        notes: what a reader of the results must know of it.
        profile: what the division between several kinds of workers was made from; None without one.
        copy_for_recovery: whether there is memory to keep a state from which a run goes on when a
            device fails.
        shares_asked: whether the configuration says how large the slabs are; then they stay so.
        gpu_messages: how planes go between GPUs of different ranks.
        scheme: how the state gets to the next step that anybody wants.
        overlapped: whether halos travel while what needs none of them is computed.
        ahead: whether GPUs are told of a block while they compute the one before, though it waits
            for halos: others are done earlier, so they are there in time.
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
        """Bytes that all workers of this process take."""
        return sum(share.memory for share in self.shares)


@dataclass(frozen=True)
class Draft:
    """A plan and why it is so, as long as somebody may decide parts of it anew.

    Attributes:
        plan: without sentences.
        reasons: what would be said of it.
    """

    plan: Plan
    reasons: tuple[Reason, ...]

    def finished(self) -> Plan:
        """The plan with its sentences."""
        return dataclasses.replace(self.plan, reasons=sentences_of(self.reasons))


def names_of(plan: Plan) -> list[str]:
    """What each worker is called: "cpu:0", or with its rank in front, "3/cpu:0", where there are
    several.
    """
    if len({share.rank for share in plan.shares}) == 1:
        return [share.worker for share in plan.shares]
    return [f"{share.rank}/{share.worker}" for share in plan.shares]
