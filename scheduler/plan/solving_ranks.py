"""Who may solve, and whether ranks do it together: rank 0 alone, or every rank a slab of the linear
systems.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.division import Link
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.devices import Device
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.plan.partition import cut_along_axis_0, split_by_speed
from tetris_sim.solvers.distributed import GHOSTS, LEAST, TOGETHER
from tetris_sim.solvers.stepper import SolvingMethod

_SURELY = 0.9  # of the time of rank 0 alone: predictions are not surer than that
_SOFTWARE = 3e-5  # seconds of Python by message
_SUMS = 4  # of an iteration, over all ranks
_SINGLE = 4  # bytes of what a cycle sends


@dataclass(frozen=True)
class SolvingOffer:
    """A device that can solve.

    Attributes:
        device: which.
        place: where its work is done.
        method: how.
        needed: bytes for the whole grid.
        usable: bytes that can be had.
        seconds: predicted for the whole grid and run [s].
        iterations: expected in all.
        how: what is done until when, in words.
        described: what is known of it, a sentence.
        product: name of the GPU, if it is one.
    """

    device: Device
    place: Place
    method: SolvingMethod
    needed: int
    usable: int
    seconds: float
    iterations: float
    how: str
    described: str
    product: str

    @property
    def fits(self) -> bool:
        """Whether it holds the whole grid."""
        return self.needed <= self.usable


def share_of(offer: SolvingOffer, slab: Slab, points_per_second: float) -> Share:
    """What a device does that solves for some of the grid, or all of it."""
    return Share(
        worker=offer.device.name,
        slab=slab,
        method=offer.method,
        parameters={},
        threads=offer.place.threads,
        points_per_second=points_per_second,
        memory=offer.needed,
        product=offer.product,
        number=offer.device.number,
    )


def share_solution(
    problem: Problem, plan: Plan, offers: Sequence[SolvingOffer], link: Link | None
) -> Plan:
    """The plan of rank 0 alone, or that of all ranks if it is predicted to be faster.

    Args:
        problem: what is solved.
        plan: what rank 0 would do alone.
        offers: the device of each rank.
        link: what a message costs; None if there is one rank.
    """
    ranks = len(offers)
    if link is None:
        return plan
    waiting = f"One of {ranks} ranks solves for the whole grid; the others wait for it"
    if why_not := _why_not(problem, ranks):
        return _saying(plan, f"{waiting}: {why_not}.")

    grid, alone = problem.grid, offers[0].seconds
    speeds = [1 / it.seconds for it in offers]
    pieces = split_by_speed(grid.shape[0], speeds, min_planes=LEAST)
    shares_of_grid = [(stop - start) / grid.shape[0] for start, stop in pieces]
    talking = offers[0].iterations * _messages(grid.shape, ranks, link)
    working = max(part * it.seconds for part, it in zip(shares_of_grid, offers, strict=True))
    together = working + talking
    if together > _SURELY * alone:
        return _saying(
            plan, f"{waiting}: all together would take {together:.2g} s instead of {alone:.2g} s."
        )

    rate = sum(share.points_per_second for share in plan.shares) * alone / together
    slabs = cut_along_axis_0(grid, problem.boundary, pieces, halo=0)
    shares = tuple(
        dataclasses.replace(
            share_of(offer, slab, rate * part),
            memory=offer.needed if rank == 0 else math.ceil(offer.needed * part),
            rank=rank,
        )
        for rank, (offer, slab, part) in enumerate(zip(offers, slabs, shares_of_grid, strict=True))
    )
    said = (
        f"{ranks} ranks solve linear systems together, in slabs along {grid.axis_names[0]}, about "
        f"{together:.2g} s instead of {alone:.2g} s; rank 0 makes balances."
    )
    faster = dataclasses.replace(
        plan, shares=shares, seconds_per_step=plan.seconds_per_step * together / alone
    )
    return _saying(faster, said)


def _why_not(problem: Problem, ranks: int) -> str:
    """Why a grid cannot be shared."""
    shape = problem.grid.shape
    if len(shape) == 1 or problem.grid.n_points <= TOGETHER:
        return f"up to {TOGETHER} points, and lines, are not shared"
    if shape[0] < ranks * LEAST:
        return f"each needs at least {LEAST} planes"
    return ""


def _messages(shape: Sequence[int], ranks: int, link: Link) -> float:
    """Seconds of an iteration for messages: `PartArithmetic`, with every other plane kept along
    every axis.
    """
    latency = link.latency + _SOFTWARE
    n, across, visits, seconds = shape[0], math.prod(shape[1:]), 1, 0.0
    level = 0
    while n * across > TOGETHER and n // ranks >= LEAST:
        times = 1 if level == 0 else 2
        fills = visits * (1 + 3 * times)
        n_bytes = 2 * GHOSTS * across * _SINGLE
        seconds += fills * (2 * latency + n_bytes * link.seconds_per_byte)
        visits *= times
        n, level = -(-n // 2), level + 1
        across = math.prod(-(-each // 2**level) for each in shape[1:])
    gathering = latency * ranks + n * across * _SINGLE * link.seconds_per_byte
    return seconds + visits * gathering + _SUMS * 2 * ranks * latency


def _saying(plan: Plan, reason: str) -> Plan:
    return dataclasses.replace(plan, reasons=(*plan.reasons, reason))
