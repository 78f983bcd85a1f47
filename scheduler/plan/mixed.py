"""Mixed plans: one grid between GPUs, CPU threads and made-up devices, or streamed through a GPU
that is too small.

Each device is tuned alone (`members.py`), then the planes are divided (`division.py`). What comes
out may be that the best set of workers is not all of them; then the plan says with numbers why
somebody gets nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tetris_sim.errors import ConfigError, TetrisError, UnsupportedError
from tetris_sim.problem import Problem
from tetris_sim.scheduler.facts.link import Link
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.block import choose_time_block, divide_block, responsive_block
from tetris_sim.scheduler.plan.cpu_plan import why_copy
from tetris_sim.scheduler.plan.division import FREE, Capacity, Division, Profile, divide, of_members
from tetris_sim.scheduler.plan.members import (
    Member,
    capacity_of,
    find_members,
    lane_of,
    measure_lane,
    measure_messages,
    work_of,
)
from tetris_sim.scheduler.plan.mixed_wording import (
    about_rounding,
    describe_device,
    describe_division,
    describe_streaming,
)
from tetris_sim.scheduler.plan.partition import cut_along_axis_0
from tetris_sim.scheduler.plan.pieces import (
    Lane,
    Streaming,
    choose_streaming,
    fewest_pieces,
    streaming_with,
)
from tetris_sim.scheduler.run.streamed import largest_piece
from tetris_sim.scheduler.tuning.candidates import RESERVE, Asked
from tetris_sim.schema import ComputeSection
from tetris_sim.slab import Slab
from tetris_sim.wording import gib, listed

# budgets of tuning: only for a run that takes longer is it worth to try the CPU beside GPUs
_PATIENCE = 10.0
_BLOCK_SECONDS = 2.0  # a run that is streamed looks at the clock and at signals this often


@dataclass(frozen=True)
class Option:
    """One way to use the members.

    Attributes:
        capacities: of each.
        lanes: of those that are streamed; None for those that keep their slab.
        streamings: of the same, for the whole grid.
        division: between them.
    """

    capacities: tuple[Capacity, ...]
    lanes: tuple[Lane | None, ...]
    streamings: tuple[Streaming | None, ...]
    division: Division


def plan_mixed(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    names: Sequence[str],
    *,
    begun_with: Asked | None,
    use_cache: bool,
) -> Plan:
    """Divide the grid between devices of several kinds.

    Args:
        problem: what to advance.
        machine: what there is.
        compute: what was asked for.
        names: of the devices, in the order in which their slabs lie.
        begun_with: as for `make_plan`.
        use_cache: as for `make_plan`.

    Raises:
        UnsupportedError: a device cannot be used, or all together have too little memory.
        ConfigError: what was asked for does not fit together.
    """
    found = find_members(
        problem, machine, compute, names, begun_with=begun_with, use_cache=use_cache
    )
    members, why_alone = _worth_trying(
        problem, compute, sum(name.startswith("gpu") for name in names), found
    )
    budget = compute.tuning_seconds
    hosts = any(member.gpu is None for member in members)
    alone = len(members) == 1
    links = [
        FREE if alone else measure_messages(problem, member, budget=budget, through_host=hosts)
        for member in members
    ]
    options = _options(problem, machine, compute, members, links)
    best = min(options, key=lambda option: option.division.seconds_per_step)
    plan = _carry_out(problem, machine, compute, members, best)
    reasons = (
        *(describe_device(member, machine) for member in members),
        *dict.fromkeys(
            reason for member in members for reason in (*member.choice.reasons, *member.notes)
        ),
        *why_alone,
        *describe_division(problem, best.capacities, best.division, asked=compute.shares != "auto"),
        *describe_streaming(plan.shares, [option.division for option in options], best.division),
        *plan.reasons,
        why_copy(copy=plan.copy_for_checkpoints),
    )
    notes = tuple(dict.fromkeys(note for member in members for note in member.notes))
    return dataclasses.replace(
        plan, reasons=reasons, notes=(*notes, *about_rounding(problem, plan))
    )


def _worth_trying(
    problem: Problem, compute: ComputeSection, n_gpus: int, found: Iterator[Member]
) -> tuple[list[Member], tuple[str, ...]]:
    """(members that are worth a share, why others were not looked at): short runs do not wait for
    the CPU's tuning.
    """
    members: list[Member] = []
    for member in found:
        members.append(member)
        if compute.devices != "auto" or len(members) < n_gpus:
            continue
        rate = sum(each.points_per_second for each in members)
        seconds = problem.steps * problem.grid.n_points * problem.n_fields / rate
        room = sum(each.planes_in(problem, each.usable) for each in members)
        if room >= problem.grid.shape[0] and seconds < _PATIENCE * compute.tuning_seconds:
            return members, (
                f"The CPU is not tried beside it: the run takes about {seconds:.2g} s.",
            )
    return members, ()


def _options(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    members: Sequence[Member],
    links: Sequence[Link],
) -> list[Option]:
    """The division with every slab in its device's memory, and the one that streams what does not
    fit.

    Raises:
        UnsupportedError: neither is possible.
    """
    work = work_of(problem)
    resident = [
        capacity_of(problem, member, link) for member, link in zip(members, links, strict=True)
    ]
    small = [
        member.remote and each.room < work.n_planes
        for member, each in zip(members, resident, strict=True)
    ]
    ways = [_Way(tuple(resident), (None,) * len(members), (None,) * len(members))]
    if any(small):
        streaming = _stream(problem, machine, compute, members, resident, small)
        ways += [] if streaming is None else [streaming]
    options: list[Option] = []
    failure: TetrisError | None = None
    for way in ways:
        try:
            options.append(Option(*way, _divide(problem, compute, way)))
        except (ConfigError, UnsupportedError) as error:
            failure = error
    if isinstance(failure, ConfigError) and not options:
        raise failure
    if not options:
        needs = ", ".join(f"{gib(member.usable)} of {member.name}" for member in members)
        msg = (
            f"the grid of {gib(2 * problem.state_bytes)} does not fit into {needs}, nor can it be "
            f"streamed: {failure}"
        )
        raise UnsupportedError(msg)
    return options


class _Way(NamedTuple):
    capacities: tuple[Capacity, ...]
    lanes: tuple[Lane | None, ...]
    streamings: tuple[Streaming | None, ...]


def _stream(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    members: Sequence[Member],
    resident: Sequence[Capacity],
    small: Sequence[bool],
) -> _Way | None:
    """What the members can do if those that are too small for the grid are streamed; None if one of
    them cannot be.
    """
    work = work_of(problem)
    capacities: list[Capacity] = list(resident)
    lanes: list[Lane | None] = [None] * len(members)
    streamings: list[Streaming | None] = [None] * len(members)
    for k in (k for k, is_small in enumerate(small) if is_small):
        lane = lane_of(problem, members[k], measure_lane(members[k], budget=compute.tuning_seconds))
        block = streamed_block(problem, compute, lane.points_per_second)
        streaming = choose_streaming(work, lane, most_steps=block, block_steps=block)
        if streaming is None:
            return None
        lanes[k], streamings[k] = lane, streaming
        capacities[k] = dataclasses.replace(
            resident[k],
            points_per_second=streaming.points_per_second,
            start=streaming.start,
            depth=streaming.steps,
            room=max(0, machine.memory - RESERVE) // (problem.state_bytes // work.n_planes + 1),
        )
    return _Way(tuple(capacities), tuple(lanes), tuple(streamings))


def _divide(problem: Problem, compute: ComputeSection, way: _Way) -> Division:
    if compute.shares != "auto" and len(compute.shares) != len(way.capacities):
        msg = (
            f"compute.shares lists {len(compute.shares)}, but the devices are "
            f"{listed(_names(way.capacities), 'and')}"
        )
        raise ConfigError(msg)
    total = sum(each.points_per_second for each in way.capacities)
    streams = any(streaming is not None for streaming in way.streamings)
    return divide(
        work_of(problem),
        way.capacities,
        most=streamed_block(problem, compute, total)
        if streams
        else responsive_block(problem, total),
        time_block=None if compute.time_block == "auto" else compute.time_block,
        shares=None if compute.shares == "auto" else compute.shares,
    )


def streamed_block(problem: Problem, compute: ComputeSection, points_per_second: float) -> int:
    """Steps of a block through which pieces are streamed: with short ones, the device would often
    wait for the first.

    Args:
        problem: what is advanced.
        compute: a block may be asked for.
        points_per_second: of the device.
    """
    step_seconds = problem.grid.n_points * problem.n_fields / points_per_second
    wanted = max(1, int(_BLOCK_SECONDS / step_seconds))
    asked = wanted if compute.time_block == "auto" else compute.time_block
    return max(1, min(wanted, asked, problem.steps))


def _carry_out(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    members: Sequence[Member],
    option: Option,
) -> Plan:
    """Slabs, parameters and memory of those who take part; the sentences come later."""
    division, work = option.division, work_of(problem)
    taking_part = [k for k, planes in enumerate(division.planes) if planes]
    alone = len(taking_part) == 1
    ends = list(itertools.accumulate(division.planes[k] for k in taking_part))
    pieces = list(zip([0, *ends[:-1]], ends, strict=True))
    block, why_block = division.time_block, list[str]()
    if alone and option.streamings[taking_part[0]] is None:
        choice = members[taking_part[0]].choice
        block, why = choose_time_block(
            problem, choice.speed, choice.parameters, workers=1, compute=compute
        )
        why_block.append(why)
    slabs = cut_along_axis_0(problem.grid, problem.boundary, pieces, halo=block * work.radius)
    shares = []
    for k, slab in zip(taking_part, slabs, strict=True):
        member, lane, streaming = members[k], option.lanes[k], option.streamings[k]
        parameters = member.choice.parameters
        if lane is not None and streaming is not None:
            own = dataclasses.replace(
                work, n_planes=slab.shape[0], periodic=work.periodic and alone
            )
            count = max(
                -(-slab.shape[0] // streaming.planes),
                fewest_pieces(own, lane, streaming.steps) or 1,
            )
            streaming = streaming_with(own, lane, streaming.steps, count) or streaming
            memory = _bytes_in_flight(problem, member, slab, streaming)
            share = dataclasses.replace(member.share(slab, parameters, memory), streamed=streaming)
            share = dataclasses.replace(share, points_per_second=streaming.points_per_second)
        else:
            if member.gpu is None and not alone:
                parameters = divide_block(parameters, block)
            share = member.share(
                slab, parameters, member.choice.method.memory(problem, slab, parameters)
            )
        shares.append(share)
    if not all(share.product and share.streamed is None for share in shares):
        shares = [dataclasses.replace(share, through_host=True) for share in shares]
    _refuse_what_does_not_fit(problem, machine, members, shares)
    host = _host_bytes(problem, shares)
    points = work.n_planes * work.plane_points * division.time_block
    streamed = max(
        (share.streamed.redundant for share in shares if share.streamed is not None), default=0.0
    )
    in_flight = max(
        (share.streamed.in_flight for share in shares if share.streamed is not None), default=1
    )
    capacities = tuple(option.capacities[k] for k in taking_part)
    return Plan(
        shares=tuple(shares),
        time_block=block,
        seconds_per_step=division.seconds_per_step,
        redundant=max(division.replicated / (division.replicated + points), streamed),
        copy_for_checkpoints=machine.memory - RESERVE - host > 2 * problem.state_bytes,
        reasons=tuple(why_block),
        profile=Profile(work, capacities, of_members(division), in_flight),
        copy_for_recovery=machine.memory - RESERVE - host > 4 * problem.state_bytes,
        shares_asked=compute.shares != "auto",
    )


def _bytes_in_flight(problem: Problem, member: Member, slab: Slab, streaming: Streaming) -> int:
    """Of the arrays between which pieces move: twice the two of a slab of the largest piece's
    size.
    """
    piece = largest_piece(problem, slab, streaming)
    return 2 * member.choice.method.memory(problem, piece, member.choice.parameters)


def _host_bytes(problem: Problem, shares: Sequence[Share]) -> int:
    """Memory of the host that the state takes: with two copies where CPU threads compute, with one
    where it passes.
    """
    resident = sum(
        share.memory for share in shares if share.method.device == "cpu" and share.streamed is None
    )
    plane = problem.state_bytes // problem.grid.shape[0]
    return resident + sum(
        plane * (share.slab.shape[0] + sum(share.slab.halo[0]))
        for share in shares
        if share.streamed is not None
    )


def _refuse_what_does_not_fit(
    problem: Problem, machine: Machine, members: Sequence[Member], shares: Sequence[Share]
) -> None:
    usable = {member.name: member.usable for member in members}
    for share in shares:
        if share.memory > usable[share.worker]:
            msg = (
                f"the part of {share.worker} needs {gib(share.memory)} of memory with its halos, "
                f"but {gib(usable[share.worker])} may be used. Make compute.time_block shorter, or "
                "give it a smaller share."
            )
            raise UnsupportedError(msg)
    if (host := _host_bytes(problem, shares)) > machine.memory - RESERVE:
        msg = (
            f"the parts that lie in the memory of the host need {gib(host)} and {gib(RESERVE)} "
            f"beside it, but {gib(machine.memory)} can be had ({machine.memory_reason})."
        )
        raise UnsupportedError(msg)


def _names(capacities: Sequence[Capacity]) -> list[str]:
    return [each.name for each in capacities]
