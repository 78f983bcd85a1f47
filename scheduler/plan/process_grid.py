"""Process grids: how is a grid cut between ranks, and how many steps go between two exchanges?

All ranks take part. Every way to cut the first two axes is tried, and of those along three the ones
with the least surface. Slabs are as long as their workers are fast, other pieces are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.scheduler.facts.domain import Domain, Parts
from tetris_sim.scheduler.plan.block import responsive_block
from tetris_sim.scheduler.plan.cost import Crew, Cut, seconds_per_step
from tetris_sim.scheduler.plan.partition import (
    axis_pieces,
    has_whole_rows,
    is_slabs,
    longest_block,
    possible_parts,
)

# Share of a step below which predictions cannot tell cuts apart: what was measured on two GPUs is
# up to 2.3 % off (docs/scaling.md), and planes of later axes, which do not lie together in memory,
# cost 3 % (4096 x 4096) and 7 % (256^3) more on two ranks with a core each (AMD EPYC, cpu.stream,
# stars of radius 1, medians of 7, 2026-11-22). Slabs have the fewest messages, and they alone
# follow the speeds of their workers.
_SURE = 0.05


@dataclass(frozen=True)
class ProcessGrid:
    """How a grid is cut between ranks, and what is expected of it.

    Attributes:
        parts: into how many pieces each axis is cut.
        time_block: steps between two exchanges.
        seconds: predicted, of a step.
    """

    parts: Parts
    time_block: int
    seconds: float


def fastest_grid(
    domain: Domain,
    crew: Crew,
    time_block: int | None = None,
    *,
    slabs_only: bool = False,
    computers: Sequence[int] = (),
) -> tuple[ProcessGrid, ProcessGrid | None]:
    """(what to do, what else was thought of): slabs, unless something else is clearly faster; and
    whole rows, unless pieces of rows are clearly faster than that. Edges along rows are many short
    runs in memory, which takes longer to copy than is predicted.

    Of other cuts between which predictions cannot tell, that is taken which sends the least from
    computer to computer: all messages are predicted to be as slow as the slowest. What else was
    thought of is slabs, if they are not taken, or else the best of the others; None if there is
    none.

    Args:
        domain: what is cut; `possible_parts` must find something.
        crew: who computes.
        time_block: steps between two exchanges if they are asked for: the cuts that come closest to
            it are tried.
        slabs_only: take slabs if they are possible at all.
        computers: a number for the computer of each worker; none if all are in one.
    """
    grids = [
        with_best_block(domain, crew, parts, time_block)
        for parts in possible_parts(domain, crew.size)
    ]
    if time_block is not None:
        longest = max(grid.time_block for grid in grids)
        grids = [grid for grid in grids if grid.time_block == longest]

    whole = [grid for grid in grids if has_whole_rows(grid.parts)]
    chosen, other = (None, None)
    if whole:
        chosen, other = _of_whole_rows(domain, crew, whole, computers, slabs_only=slabs_only)
    rows = [grid for grid in grids if grid not in whole]
    if not rows or (slabs_only and chosen is not None and is_slabs(chosen.parts)):
        assert chosen is not None
        return chosen, other

    best = _nearest(domain, crew, rows, computers)
    if chosen is None:
        return best, None
    if best.seconds < (1 - _SURE) * chosen.seconds:
        return best, next((grid for grid in whole if is_slabs(grid.parts)), chosen)
    return chosen, other or best


def _of_whole_rows(
    domain: Domain,
    crew: Crew,
    grids: Sequence[ProcessGrid],
    computers: Sequence[int],
    *,
    slabs_only: bool,
) -> tuple[ProcessGrid, ProcessGrid | None]:
    """See `fastest_grid`, of those whose pieces have whole rows, or are of two dimensions."""
    slabs = next((grid for grid in grids if is_slabs(grid.parts)), None)
    others = [grid for grid in grids if grid is not slabs]
    if slabs is not None and (slabs_only or not others):
        return slabs, None

    best = _nearest(domain, crew, others, computers)
    if slabs is None:
        return best, None
    least = min(grid.seconds for grid in others)
    return (best, slabs) if least < (1 - _SURE) * slabs.seconds else (slabs, best)


def _nearest(
    domain: Domain, crew: Crew, grids: Sequence[ProcessGrid], computers: Sequence[int]
) -> ProcessGrid:
    """Of those that are about as fast as the fastest the one that sends the least far."""
    least = min(grid.seconds for grid in grids)
    alike = [grid for grid in grids if (1 - _SURE) * grid.seconds <= least]
    return min(alike, key=lambda grid: (_crossing(domain, crew, grid, computers), grid.seconds))


def with_best_block(
    domain: Domain, crew: Crew, parts: Parts, time_block: int | None = None
) -> ProcessGrid:
    """A process grid with the steps between two exchanges that were asked for, or those with the
    shortest step.
    """
    room = longest_block(domain, parts)
    if time_block is not None:
        blocks = [min(time_block, room)]
    else:
        longest = min(room, responsive_block(domain.n_values, float(crew.rates.sum())))
        blocks = _round_numbers(longest, {1, *map(int, np.unique(crew.depths))})

    def seconds(block: int) -> float:
        return seconds_per_step(cut_into(domain, crew, parts, block), crew, block)

    timed = [(seconds(block), block) for block in blocks]
    fastest, block = min(timed)
    return ProcessGrid(parts, block, fastest)


def cut_into(domain: Domain, crew: Crew, parts: Parts, block: int) -> Cut:
    """A process grid with halos for so many steps."""
    pieces = axis_pieces(domain, parts, crew.rates.tolist(), block)
    return Cut.into(domain, [[stop - start for start, stop in along] for along in pieces])


def _crossing(domain: Domain, crew: Crew, grid: ProcessGrid, computers: Sequence[int]) -> float:
    """Bytes per step of the worker that receives the most from other computers."""
    if not computers:
        return 0.0
    hosts = np.asarray(computers).reshape(grid.parts)
    cut = cut_into(domain, crew, grid.parts, grid.time_block)

    away = []
    for axis, joined in enumerate(cut.sides):
        # As if every axis were periodic: the first and the last piece are no dearer than those
        # between them.
        strangers = sum(
            (np.roll(hosts, shift, axis) != hosts).astype(np.float64) for shift in (1, -1)
        )
        away.append(np.minimum(strangers, joined))
    return float(cut.received(grid.time_block, away)[1].max()) / grid.time_block


def _round_numbers(longest: int, units: set[int]) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ..., so many times what methods like to make at a time, and the
    longest.
    """
    blocks = {1, longest}
    for power in range(longest.bit_length()):
        for times in (1 << power, 3 << power):
            blocks |= {times * unit for unit in units if times * unit <= longest}
    return sorted(blocks)
