"""Sentences of a plan, with the numbers behind each decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.scheduler.facts.shares import (
    Capacity,
    Division,
    GpuMessages,
    Link,
    Reason,
    Share,
    WorkEstimate,
    about,
)
from tetris_sim.scheduler.machine.machine import Gpu
from tetris_sim.scheduler.plan.cost import responsive_block
from tetris_sim.scheduler.plan.partition import halo_points, is_slabs
from tetris_sim.scheduler.plan.search import ProcessGrid, without
from tetris_sim.scheduler.tuning.choice import giga
from tetris_sim.support.wording import gib, listed

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
