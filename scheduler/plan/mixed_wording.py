"""What a plan for several devices says: sentences with the numbers behind each decision."""

from __future__ import annotations

from collections.abc import Sequence

from tetris_sim.problem import Problem
from tetris_sim.reference import tolerance
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.block import responsive_block
from tetris_sim.scheduler.plan.division import Capacity, Division, without
from tetris_sim.scheduler.plan.members import Member, work_of
from tetris_sim.scheduler.tuning.choice import giga
from tetris_sim.wording import count_threads, gib, listed


def describe_device(member: Member, machine: Machine) -> str:
    """What a member is."""
    if member.gpu is not None:
        free = f"{gib(member.gpu.memory)} free"
        limit = (
            ""
            if member.usable >= member.gpu.memory // 2
            else f", at most {gib(member.usable)} for the state"
        )
        return f"GPU {member.gpu.number}: {member.gpu.name}, {free}{limit}."
    if member.simulated is not None:
        made_up = member.simulated
        return (
            f"{member.name}: made up, at most {giga(made_up.speed)}, {made_up.latency * 1e6:.3g} "
            f"us and {made_up.bandwidth / 1e9:.3g} GB/s away, {gib(member.usable)} of memory."
        )
    return (
        f"{member.name}: {count_threads(member.choice.threads)} of {machine.threads}; "
        f"{machine.threads_reason}."
    )


def describe_division(
    problem: Problem, capacities: Sequence[Capacity], division: Division, *, asked: bool
) -> list[str]:
    """Who gets what, what an exchange costs, and why somebody gets nothing."""
    if len(capacities) == 1:
        return []
    n = problem.grid.shape[0]
    members = [k for k, planes in enumerate(division.planes) if planes]
    parts = ", ".join(
        f"{capacities[k].name} {division.planes[k] / n:.1%} "
        f"({giga(capacities[k].points_per_second)})"
        for k in members
    )
    sentences = [f"Shares {'as asked' if asked else 'by predicted time'}: {parts}."]
    if len(members) > 1:
        idle = ", ".join(f"{capacities[k].name} {division.idle(k):.1%}" for k in members)
        sentences.append(
            f"Time block of {division.time_block} steps: an exchange is {division.messages} "
            f"messages of {gib(division.message_bytes)}, {division.exchange_seconds * 1e3:.3g} ms "
            f"after {max(division.busy) * 1e3:.3g} ms of computing; {division.replicated} points "
            f"of a block are computed twice. Predicted idle: {idle}."
        )
    return [*sentences, *_left_out(problem, capacities, division)]


def describe_streaming(
    shares: Sequence[Share], divisions: Sequence[Division], best: Division
) -> list[str]:
    """How slabs go through their devices, or why they do not."""
    sentences = [
        f"{share.worker} is too small for its part, which lies in host memory and is streamed: "
        f"{share.streamed.pieces} pieces of at most {share.streamed.planes} planes, "
        f"{share.streamed.steps} steps each time, {share.streamed.redundant:.1%} of the work done "
        f"twice; copies take {share.streamed.hidden:.2f} of the time of computing, "
        f"{share.streamed.in_flight} pieces are under way at a time."
        for share in shares
        if share.streamed is not None
    ]
    others = [division for division in divisions if division is not best]
    if others:
        other = min(division.seconds_per_step for division in others)
        streamed = any(share.streamed is not None for share in shares)
        way = "Filling the memory of each device" if streamed else "Streaming"
        sentences.append(
            f"{way} would take {other * 1e3:.3g} ms a step instead of "
            f"{best.seconds_per_step * 1e3:.3g} ms."
        )
    return sentences


def about_rounding(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """What the result depends on where several methods compute it; nothing if all of them have the
    same bits.
    """
    methods = list(dict.fromkeys(share.method.name for share in plan.shares))
    if len(plan.shares) == 1 or all(share.method.exact for share in plan.shares):
        return ()
    allowed = tolerance(problem, problem.steps, 1.0)
    return (
        f"Workers compute with {listed(methods, 'and')}: where a point lies decides how it is "
        f"rounded. Results of different shares differ by at most {allowed:.2g} of the largest "
        f"value after {problem.steps} steps.",
    )


def _left_out(problem: Problem, capacities: Sequence[Capacity], division: Division) -> list[str]:
    total = sum(each.points_per_second for each in capacities)
    most = responsive_block(problem, total)
    sentences = []
    for k, planes in enumerate(division.planes):
        if planes:
            continue
        each = capacities[k]
        rate = f"{each.name} gets nothing: it makes {giga(each.points_per_second)} of {giga(total)}"
        seconds = without(work_of(problem), capacities, k, division, most=most)
        if seconds is None:
            sentences.append(f"{rate}, and the grid cannot be cut so that it takes part.")
        else:
            sentences.append(
                f"{rate}, and with it a step would take {seconds * 1e6:.4g} us instead of "
                f"{division.seconds_per_step * 1e6:.4g} us, exchanges and planes that are computed "
                "twice included."
            )
    return sentences
