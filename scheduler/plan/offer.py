"""Offer: a worker that may get a share, and what is known of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.division import Capacity, Link
from tetris_sim.scheduler.facts.domain import Streaming, Work, shortened
from tetris_sim.scheduler.facts.shares import Reason, Share
from tetris_sim.scheduler.machine.devices import Kind
from tetris_sim.scheduler.plan.streaming import Lane
from tetris_sim.scheduler.tuning.measure import steps_per_block


@dataclass(frozen=True)
class Measures:
    """What measures on real devices, handed in by who may open them.

    Attributes:
        messages: what giving or taking a message costs the worker of a share, through the memory of
            the host or not.
        copies: seconds per byte to the memory of a share's device, and back.
    """

    messages: Callable[[Share, bool], Link]
    copies: Callable[[Share], tuple[float, float]]


# where nothing may be measured: a message, and copies over PCIe 4 x16
GUESSES = Measures(
    messages=lambda share, through_host: Link(3e-5, 1 / 5e9),
    copies=lambda share: (1 / 25e9, 1 / 25e9),
)


@dataclass(frozen=True)
class Offer:
    """A worker that may get a share, and what is known of it.

    Attributes:
        share: what it would do alone; of which rank it is.
        capacity: how fast it is, what its messages cost, and how many planes it holds.
        usable: bytes of its memory that the state may take.
        kind: of its device.
        host: name of its computer.
        host_memory: bytes of the memory of that computer that all its slabs there may take.
        memory_reason: what limits that.
        product: name of its GPU or CPU.
        piece_room: planes that each of four arrays in its memory can have, between which pieces of
            a slab in host memory move.
        lane: how pieces go through it, if its slab lies in host memory.
        reasons: why it does what it does.
        notes: what must be said about a run that does not go on as it was begun.
    """

    share: Share
    capacity: Capacity
    usable: int
    kind: Kind
    host: str
    host_memory: int
    memory_reason: str
    product: str
    piece_room: int = 0
    lane: Lane | None = None
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the worker."""
        return self.share.worker

    @property
    def remote(self) -> bool:
        """Whether it has a memory of its own."""
        return self.kind != "cpu"

    @property
    def steps(self) -> int:
        """That its method makes at a time."""
        return steps_per_block(self.share.parameters)

    def bytes_for(self, problem: Problem, slab: Slab) -> int:
        """Memory that its method takes for a slab."""
        return self.share.method.memory(problem, slab, self.share.parameters)

    def streamed(self, lane: Lane, streaming: Streaming, room: int) -> Offer:
        """The same with a slab in host memory, which has room for so many planes."""
        capacity = dataclasses.replace(
            self.capacity,
            points_per_second=streaming.points_per_second,
            start=streaming.start,
            depth=streaming.steps,
            fixed=True,
            room=room,
            overlapped=0.0,
            splitting=0.0,
        )
        share = dataclasses.replace(self.share, streamed=streaming)
        return dataclasses.replace(self, share=share, capacity=capacity, lane=lane)


def planes_in(problem: Problem, share: Share, n_bytes: int) -> int:
    """Planes along axis 0 that so many bytes hold with the method of a share."""

    def needed(planes: int) -> int:
        longer = shortened(problem, planes)
        return share.method.memory(longer, Slab.whole(longer.grid), share.parameters)

    few = max(1, problem.grid.shape[0] // 2)
    one, two = needed(few), needed(2 * few)
    # Rows are padded: on a short axis, more planes may take no more memory.
    per_plane = max((two - one) / few, Work.of(problem).plane_bytes)
    return max(0, int((n_bytes - max(0.0, one - few * per_plane)) / per_plane))
