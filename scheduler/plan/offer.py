"""Worker candidates, the shares that they get, the check of these against the memory of each
device, and the sentences of a plan with the numbers behind each decision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.cpu_kernels.common import stepper
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import (
    Capacity,
    Division,
    GpuMessages,
    Link,
    Reason,
    Share,
    Streaming,
    WorkEstimate,
    about,
    shortened,
)
from tetris_sim.scheduler.machine.machine import Gpu, Kind
from tetris_sim.scheduler.plan.cost import divide_block, responsive_block
from tetris_sim.scheduler.plan.partition import (
    Lane,
    fewest_pieces,
    halo_points,
    is_slabs,
    largest_piece,
    streaming_with,
)
from tetris_sim.scheduler.plan.search import ProcessGrid, without
from tetris_sim.scheduler.tuning.candidates import RESERVE
from tetris_sim.scheduler.tuning.choice import giga
from tetris_sim.scheduler.tuning.measure import steps_per_block
from tetris_sim.support.wording import gib, listed


@dataclass(frozen=True)
class Measures:
    """Functions that measure on real devices, passed in by a caller that may open them.

    Attributes:
        messages: cost of sending or receiving a message for the worker of a share, through host
            memory or not.
        copies: inverse bandwidth to the memory of a share's device, and back [s/byte].
    """

    messages: Callable[[Share, bool], Link]
    copies: Callable[[Share], tuple[float, float]]


# Assumed costs where nothing may be measured: a message, and copies over PCIe 4 x16.
GUESSES = Measures(
    messages=lambda share, through_host: Link(3e-5, 1 / 5e9),
    copies=lambda share: (1 / 25e9, 1 / 25e9),
)


@dataclass(frozen=True)
class WorkerCandidate:
    """A worker that may get a share, with its speed, memory and costs.

    Attributes:
        share: share of the whole grid that it would have alone, with its rank.
        capacity: speed, message costs and room of the worker.
        usable: bytes of its memory that the state may take.
        kind: kind of its device.
        host: name of its computer.
        host_memory: bytes of host memory that all slabs of the process may take together.
        memory_reason: limit that determines the host memory.
        product: product name of its GPU or CPU.
        piece_room: planes that fit into each of the four device arrays between which chunks of a
            streamed slab move.
        lane: streaming model of the device, if its slab lies in host memory.
        reasons: explanations of its device and method.
        notes: sentences about a continued run that cannot keep its method.
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
        """Name of the worker."""
        return self.share.worker

    @property
    def remote(self) -> bool:
        """Whether the device has its own memory."""
        return self.kind != "cpu"

    @property
    def steps(self) -> int:
        """Steps that its method makes at a time."""
        return steps_per_block(self.share.parameters)

    def bytes_for(self, problem: Problem, slab: Slab) -> int:
        """Memory that its method takes for a slab [bytes]."""
        return self.share.method.memory(problem, slab, self.share.parameters)

    def streamed(self, lane: Lane, streaming: Streaming, room: int) -> WorkerCandidate:
        """The candidate with its slab in host memory, where there is room for `room` planes."""
        # The pipeline, not the kernel, now determines rate, start and steps at a time; it does not
        # overlap the halo exchange.
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
    """Number of planes along axis 0 that fit into `n_bytes` with the method of a share."""

    def needed(planes: int) -> int:
        longer = shortened(problem, planes)
        return share.method.memory(longer, Slab.whole(longer.grid), share.parameters)

    few = max(1, problem.grid.shape[0] // 2)
    one, two = needed(few), needed(2 * few)
    # Rows are padded: on a short axis, more planes may take no more memory.
    # Two sizes determine the linear estimate: memory per plane, and the fixed remainder.
    per_plane = max((two - one) / few, WorkEstimate.of(problem).plane_bytes)
    return max(0, int((n_bytes - max(0.0, one - few * per_plane)) / per_plane))


# Assignment: candidates get their slabs, and the memory that these need is checked.


def give(
    problem: Problem, offers: Sequence[WorkerCandidate], slabs: Sequence[Slab], block: int
) -> tuple[Share, ...]:
    """The shares of workers, with parameters that suit the block, and with their memory.

    Args:
        problem: problem to advance.
        offers: candidates that get a slab.
        slabs: one slab for each candidate.
        block: steps between two exchanges.
    """
    alone = len(offers) == 1
    shares = [
        _give_one(problem, offer, slab, block, alone=alone)
        for offer, slab in zip(offers, slabs, strict=True)
    ]
    # Halos stay in GPU memory only where all workers of the process are GPUs that hold their slabs.
    mixed = {share.rank for share in shares if not share.product or share.streamed is not None}
    return tuple(
        dataclasses.replace(share, through_host=share.queued and share.rank in mixed)
        for share in shares
    )


def _give_one(
    problem: Problem, offer: WorkerCandidate, slab: Slab, block: int, *, alone: bool
) -> Share:
    share, parameters = dataclasses.replace(offer.share, slab=slab), offer.share.parameters
    if share.streamed is not None:
        streaming = _streaming_of(problem, offer, slab, share.streamed, alone=alone)
        # Chunks move between arrays: twice the two that a slab of the size of the largest chunk
        # takes.
        piece = largest_piece(problem, slab, streaming)
        return dataclasses.replace(
            share,
            memory=2 * offer.bytes_for(problem, piece),
            streamed=streaming,
            points_per_second=streaming.points_per_second,
        )

    # With neighbours, the method should make whole blocks between two exchanges.
    if share.method.device == "cpu" and not alone:
        parameters = divide_block(parameters, block)
    memory = share.method.memory(problem, slab, parameters)
    # A snapshot takes as much as one of the two or more arrays, so at most half of the memory.
    keeps = offer.kind == "gpu" and memory + memory // 2 <= offer.usable
    return dataclasses.replace(share, parameters=parameters, memory=memory, keeps=keeps)


def _streaming_of(
    problem: Problem, offer: WorkerCandidate, slab: Slab, streaming: Streaming, *, alone: bool
) -> Streaming:
    """The streaming that was chosen for the whole grid, adapted to the slab that the worker got."""
    assert offer.lane is not None
    # A slab of one worker keeps the grid's periodic ends only if there is no other worker.
    whole, planes = WorkEstimate.of(problem), slab.shape[0]
    own = dataclasses.replace(whole, n_planes=planes, periodic=whole.periodic and alone)
    fewest = fewest_pieces(own, offer.lane, streaming.steps) or 1
    count = max(-(-planes // streaming.planes), fewest)
    return streaming_with(own, offer.lane, streaming.steps, count) or streaming


def begins_early(problem: Problem, share: Share, axis: int, block: int) -> bool:
    """Whether a worker can start a block before the halos along an axis have arrived."""
    if share.streamed is not None or share.simulated is not None:
        return False
    if share.method.device == "cpu":
        return stepper.begins_inside(problem, share.slab, axis, block, share.threads)
    from tetris_sim.gpu_kernels.boundary import extents

    return extents.begins_inside(problem, share.slab, axis, block)


def host_bytes(plane_bytes: int, shares: Sequence[Share]) -> int:
    """Host memory that the state takes: the arrays of slabs that CPU threads compute, and one copy
    of slabs that are streamed [bytes].

    Args:
        plane_bytes: bytes of a plane of axis 0.
        shares: shares of the workers in one process.
    """
    resident = sum(
        share.memory for share in shares if share.method.device == "cpu" and share.streamed is None
    )
    return resident + sum(
        plane_bytes * (share.slab.shape[0] + sum(share.slab.halo[0]))
        for share in shares
        if share.streamed is not None
    )


@dataclass(frozen=True)
class Shortage:
    """A memory that is too small for its slabs.

    Attributes:
        offer: worker whose device it is; for host memory, the first worker of the process.
        own: whether it is the memory of a device, not of the host.
        needed: required bytes.
        free: usable bytes.
    """

    offer: WorkerCandidate
    own: bool
    needed: int
    free: int

    @property
    def place(self) -> str:
        """Name of the memory for the user."""
        gpu = self.own and self.offer.kind == "gpu"
        return f"GPU {self.offer.share.number}" if gpu else "memory"


def shortages(
    plane_bytes: int, offers: Sequence[WorkerCandidate], shares: Sequence[Share]
) -> Iterator[Shortage]:
    """Each memory that is too small for the slabs assigned to it."""
    by_rank: dict[int, list[tuple[WorkerCandidate, Share]]] = {}
    for offer, share in zip(offers, shares, strict=True):
        by_rank.setdefault(share.rank, []).append((offer, share))

    # Devices have their own memory; the workers of one rank share that of the host.
    for together in by_rank.values():
        for offer, share in together:
            if offer.remote and share.memory > offer.usable:
                yield Shortage(offer, True, share.memory, offer.usable)
        first = together[0][0]
        needed = host_bytes(plane_bytes, [share for _, share in together])
        if needed > first.host_memory:
            yield Shortage(first, False, needed, first.host_memory)


def refuse_shortages(
    plane_bytes: int, offers: Sequence[WorkerCandidate], shares: Sequence[Share]
) -> None:
    """Raise if a memory is too small for the slabs assigned to it.

    Raises:
        UnsupportedError: with the required and the available memory.
    """
    shortage = next(shortages(plane_bytes, offers, shares), None)
    if shortage is None:
        return
    offer, needed, free = shortage.offer, gib(shortage.needed), gib(shortage.free)
    there = f"{gib(RESERVE)} beside it, but {gib(shortage.free + RESERVE)} can be had"

    many = len({share.rank for share in shares}) > 1
    # The memory of an emulated device is exactly as large as configured: no reserve is kept free.
    # Four messages, for what the user can change: ranks, one device's share, teams on one memory,
    # or host memory in general.
    if many and not (shortage.own and offer.kind == "simulated"):
        msg = (
            f"the part of rank {offer.share.rank} on {offer.host} needs {needed} of "
            f"{shortage.place} and {there}. Start more ranks on other computers, or use "
            "compute.precision: float32."
        )
    elif shortage.own:
        msg = (
            f"the part of {offer.name} needs {needed} of memory with its halos, but {free} may be "
            "used. Make compute.time_block shorter, or give it a smaller share."
        )
    elif all(other.kind == "cpu" for other in offers):
        msg = (
            f"the slabs of {len(offers)} workers with their halos need {needed} of memory and "
            f"{there} ({offer.memory_reason}). Name fewer devices, or make compute.time_block "
            "shorter."
        )
    else:
        msg = (
            f"the parts that lie in the memory of the host need {needed} and {there} "
            f"({offer.memory_reason})."
        )
    raise UnsupportedError(msg)


# Ends of the sentence "Halos go between GPUs ...".
_CARRIED_BY: dict[GpuMessages, str] = {
    "host": "through host memory, or straight from GPU to GPU inside of a computer",
    "mpi": "by the MPI library, which reads their memory",
    "nccl": "by NCCL",
}


def describe_gpu(gpu: Gpu, usable: int) -> str:
    """The GPU, its free memory and the limit for the state."""
    limit = "" if usable >= gpu.memory // 2 else f", at most {gib(usable)} for the state"
    return f"GPU {gpu.number}: {gpu.name}, {gib(gpu.memory)} free{limit}."


def describe_simulated(name: str, made_up: SimulatedSection, usable: int) -> str:
    """The settings of an emulated device."""
    return (
        f"{name}: made up, at most {giga(made_up.speed)}, {made_up.latency * 1e6:.3g} "
        f"us and {made_up.bandwidth / 1e9:.3g} GB/s away, {gib(usable)} of memory."
    )


def describe_copy(*, copy: bool) -> Reason:
    """Whether writing files interrupts the computation."""
    sentence = "Fields and checkpoints are written from a copy while the computation goes on."
    if not copy:
        sentence = (
            "Fields and checkpoints stop the computation while they are written: there is no "
            "memory for a copy of the state."
        )
    return Reason("checkpoints", sentence)


def describe_teams(slabs: Sequence[Share], *, asked: bool) -> list[Reason]:
    """Sizes of the slabs of equal teams; nothing for a single team."""
    if len(slabs) == 1:
        return []
    total = sum(share.slab.n_points for share in slabs)
    parts = ", ".join(f"{share.worker} {share.slab.n_points / total:.1%}" for share in slabs)
    return [Reason("shares", f"Shares {'as asked' if asked else 'by speed'}: {parts}.")]


def describe_division(
    work: WorkEstimate, capacities: Sequence[Capacity], division: Division, *, asked: bool
) -> list[Reason]:
    """Shares of the workers, the cost of an exchange, and why workers are left out."""
    if len(capacities) == 1:
        return []
    members = [k for k, planes in enumerate(division.planes) if planes]
    parts = ", ".join(
        f"{capacities[k].name} {division.planes[k] / work.n_planes:.1%} "
        f"({giga(capacities[k].points_per_second)})"
        for k in members
    )
    how = "as asked" if asked else "by predicted time"
    reasons = [Reason("shares", f"Shares {how}: {parts}.")]

    if len(members) > 1:
        idle = ", ".join(f"{capacities[k].name} {division.idle(k):.1%}" for k in members)
        sentence = (
            f"Time block of {division.time_block} steps: an exchange is {division.messages} "
            f"messages of {gib(division.message_bytes)}, {division.exchange_seconds * 1e3:.3g} ms "
            f"after {max(division.busy) * 1e3:.3g} ms of computing; {division.replicated} points "
            f"of a block are computed twice. Predicted idle: {idle}."
        )
        reasons.append(Reason("block", sentence))
    return [*reasons, *about("left out", _left_out(work, capacities, division))]


def _left_out(work: WorkEstimate, capacities: Sequence[Capacity], division: Division) -> list[str]:
    total = sum(worker.points_per_second for worker in capacities)
    most = responsive_block(work.n_planes * work.plane_points, total)

    sentences = []
    for k, (worker, planes) in enumerate(zip(capacities, division.planes, strict=True)):
        if planes:
            continue
        rate = (
            f"{worker.name} gets nothing: it makes {giga(worker.points_per_second)} of "
            f"{giga(total)}"
        )
        # The alternative is predicted anew, so that the sentence can compare step times.
        seconds = without(work, capacities, k, division, most=most)
        if seconds is None:
            sentences.append(f"{rate}, and the grid cannot be cut so that it takes part.")
        else:
            sentences.append(
                f"{rate}, and with it a step would take {seconds * 1e6:.4g} us instead of "
                f"{division.seconds_per_step * 1e6:.4g} us, exchanges and planes that are computed "
                "twice included."
            )
    return sentences


def describe_streaming(
    shares: Sequence[Share], divisions: Sequence[Division], best: Division
) -> tuple[Reason, ...]:
    """Chunks of the slabs that are streamed, and the time of the alternative that was not
    chosen.
    """
    sentences = [
        f"{share.worker} is too small for its part, which lies in host memory and is streamed: "
        f"{share.streamed.pieces} pieces of at most {share.streamed.planes} planes, "
        f"{share.streamed.steps} steps each time, {share.streamed.redundant:.1%} of the work done "
        f"twice; copies take {share.streamed.hidden:.2f} of the time of computing, "
        f"{share.streamed.in_flight} pieces are under way at a time."
        for share in shares
        if share.streamed is not None
    ]

    if others := [division for division in divisions if division is not best]:
        other = min(division.seconds_per_step for division in others)
        streamed = any(share.streamed is not None for share in shares)
        way = "Filling the memory of each device" if streamed else "Streaming"
        sentences.append(
            f"{way} would take {other * 1e3:.3g} ms a step instead of "
            f"{best.seconds_per_step * 1e3:.3g} ms."
        )
    return about("streaming", sentences)


def about_rounding(shares: Sequence[Share], steps: int, allowed: float) -> tuple[str, ...]:
    """A note if the result depends on where several methods compute it; nothing if all of them are
    bitwise identical.

    Args:
        shares: shares of all workers.
        steps: steps of the run.
        allowed: bound of the difference after all steps, relative to the largest value.
    """
    methods = list(dict.fromkeys(share.method.name for share in shares))
    if len(shares) == 1 or all(share.method.exact for share in shares):
        return ()
    return (
        f"Workers compute with {listed(methods, 'and')}: where a point lies decides how it is "
        f"rounded. Results of different shares differ by at most {allowed:.2g} of the largest "
        f"value after {steps} steps.",
    )


def describe_parts(parts: Sequence[int]) -> str:
    """The cuts of a process grid, for example "3 x 2 along z and y"."""
    # The last axis is x: 2D grids have axes y and x.
    names = ("z", "y", "x")[-len(parts) :]
    axes = [(count, name) for count, name in zip(parts, names, strict=True) if count > 1] or [
        (1, names[0])
    ]
    counts = " x ".join(str(count) for count, _ in axes)
    return f"{counts} along {listed([name for _, name in axes], 'and')}"


def describe_choice(grid: ProcessGrid, other: ProcessGrid | None) -> str:
    """Comparison of a process grid with the alternative from `fastest_grid`; empty if there was no
    choice.

    >>> describe_choice(ProcessGrid((8, 8, 1), 6, 1.0), ProcessGrid((64, 1, 1), 3, 2.5))
    'slabs are predicted to take 2.5 times as long'
    >>> describe_choice(ProcessGrid((4, 1), 8, 1.0), ProcessGrid((2, 2), 12, 0.98))
    '2 x 2 along y and x is predicted to take 0.98 times as long, too little of a difference'
    """
    if other is None:
        return "" if is_slabs(grid.parts) else "slabs would be too thin for their halos"
    name = "slabs are" if is_slabs(other.parts) else f"{describe_parts(other.parts)} is"
    ratio = other.seconds / grid.seconds
    # The alternative may even be predicted to be faster, but not clearly.
    doubt = ", too little of a difference" if ratio < 1 else ""
    return f"{name} predicted to take {ratio:.3g} times as long{doubt}"


def describe_grid(grid: ProcessGrid, shares: Sequence[Share], why: str) -> Reason:
    """The process grid of the ranks, the sizes of their pieces, and the reason."""
    if not is_slabs(grid.parts):
        sentence = f"Process grid {describe_parts(grid.parts)}, even: {why}."
        return Reason("shares", sentence)
    points = [share.slab.n_points for share in shares]
    portions = [100 * n / sum(points) for n in points]
    sizes = f"{min(portions):.3g}% to {max(portions):.3g}% of the grid each, by speed"
    sentence = f"Process grid {describe_parts(grid.parts)}: {sizes}{f'; {why}' * bool(why)}."
    return Reason("shares", sentence)


def describe_messages(
    chosen: GpuMessages, links: Mapping[GpuMessages, Link], n_bytes: int
) -> tuple[Reason, ...]:
    """The transport of halos between GPUs, and the times of all transports that were tried."""
    if list(links) == ["host"]:
        return ()
    tried = ", ".join(
        f"{link.seconds(n_bytes) * 1e3:.3g} ms with {way}" for way, link in links.items()
    )
    sentence = f"Halos go between GPUs {_CARRIED_BY[chosen]}: {n_bytes / 1e6:.3g} MB took {tried}."
    return about("messages", (sentence,))


def describe_unopened(saved: float, opening: float) -> tuple[Reason, ...]:
    """Why NCCL is not tried, from the time it could save and the time to open it [s]."""
    sentence = (
        f"NCCL is not opened, which takes about {opening:.2g} s: halos that cost nothing would "
        f"save {max(saved, 0.0):.2g} s of the run."
    )
    return about("messages", (sentence,))


def describe_exchange(block: int, asked: int | None, shares: Sequence[Share], link: Link) -> Reason:
    """The number of steps between two exchanges of ranks, and the reason."""
    if asked is not None:
        cut = ", cut to what fits" * (block < asked)
        return Reason("block", f"Time block of {block} steps, as asked{cut}.")
    messages = max(halo_points(share.slab)[0] for share in shares)
    speed = f", {1e-9 / link.seconds_per_byte:.3g} GB/s" if link.seconds_per_byte > 0 else ""
    sentence = (
        f"Time block of {block} steps: an exchange is up to {messages} messages of "
        f"{link.latency * 1e6:.3g} us{speed}, as measured."
    )
    return Reason("block", sentence)
