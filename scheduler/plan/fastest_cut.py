"""Fastest cut: which process grid, with how many steps between two exchanges, has the shortest
predicted step?

Every way to cut the first two axes is tried, each with the block that suits it best. A step takes
as long as the slowest worker computes, with what it does twice, and as the dearest exchange, k
(alpha + n beta) (Tetris 5.3), divided by the steps of a block. Slabs are as long as their workers
are fast, other pieces are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.problem import Problem
from tetris_sim.scheduler.facts.link import Link
from tetris_sim.scheduler.plan.division import stretched
from tetris_sim.scheduler.plan.process_grid import (
    Parts,
    axis_pieces,
    describe_parts,
    is_slabs,
    longest_block,
    possible_parts,
)

_BLOCK_SECONDS = 0.2  # signals and the clock are looked at this often
_START_SECONDS = 2e-5  # of starting and ending a block of steps on a team of threads
# Methods on the CPU that make fewer steps at a time than they like go to memory more often. A step
# then takes about the cube root of (steps they like / steps they make) times as long: cpu.stream
# and cpu.tessellate on five grids in 2D and 3D with 1 to 16 of 8 to 32 steps took 0.63 to 1.4 times
# that, median 0.90, single steps of cpu.stream in 2D 2.5 times (two threads of an AMD EPYC,
# float64, 2026-11-22).
_SHORTER = 1 / 3
# Share of a step below which predictions cannot tell cuts apart: what was measured on two GPUs is
# up to 2.3 % off (docs/scaling.md), and planes of later axes, which do not lie together in memory,
# cost 3 % (4096 x 4096) and 7 % (256^3) more on two ranks with a core each (AMD EPYC, cpu.stream,
# stars of radius 1, medians of 7, 2026-11-22). Slabs have the fewest messages, and they alone
# follow the speeds of their workers.
_SURE = 0.05

TimeBlock = int | Literal["auto"]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Crew:
    """What is known of the workers before anything is cut.

    Attributes:
        speeds: points per second of each, in the order of their pieces.
        link: what a message costs, wherever it goes.
        computers: a number for the computer of each; none if all are in one.
        steps: that the method of each likes to make at a time; one if none are given.
        fixed: whether it can make no others at a time, so that those left over are single sweeps:
            on GPUs.
    """

    speeds: Sequence[float]
    link: Link
    computers: Sequence[int] = ()
    steps: Sequence[int] = ()
    fixed: Sequence[bool] = ()

    def slowness(self, block: int) -> Numbers:
        """How many times as long the points of each worker take in blocks of so many steps."""
        workers = len(self.speeds)
        steps = np.asarray(self.steps or (1,) * workers, np.float64)
        fixed = np.asarray(self.fixed or (False,) * workers)
        return np.where(
            fixed, stretched(block, block % steps), np.maximum(1.0, steps / block) ** _SHORTER
        )


@dataclass(frozen=True)
class Cut:
    """A process grid and what is expected of it.

    Attributes:
        parts: into how many pieces each axis is cut.
        time_block: steps between two exchanges.
        seconds: predicted, of a step.
    """

    parts: Parts
    time_block: int
    seconds: float


def fastest_cut(
    problem: Problem, crew: Crew, time_block: TimeBlock = "auto", *, slabs_only: bool = False
) -> tuple[Cut, Cut | None]:
    """(what to do, what else was thought of): slabs, unless something else is clearly faster.

    Of other cuts between which predictions cannot tell, that is taken which sends the least from
    computer to computer: all messages are predicted to be as slow as the slowest. What else was
    thought of is slabs, if they are not taken, or else the best of the others; None if there is
    none.

    Args:
        problem: what is cut; `possible_parts` must find something.
        crew: who computes.
        time_block: steps between two exchanges if they are asked for: the cuts that come closest to
            it are tried.
        slabs_only: take slabs if they are possible at all.
    """
    cuts = [
        with_best_block(problem, crew, parts, time_block)
        for parts in possible_parts(problem, len(crew.speeds))
    ]
    if time_block != "auto":
        longest = max(cut.time_block for cut in cuts)
        cuts = [cut for cut in cuts if cut.time_block == longest]
    slabs = next((cut for cut in cuts if is_slabs(cut.parts)), None)
    others = [cut for cut in cuts if cut is not slabs]
    if slabs is not None and (slabs_only or not others):
        return slabs, None
    least = min(cut.seconds for cut in others)
    alike = [cut for cut in others if (1 - _SURE) * cut.seconds <= least]
    best = min(alike, key=lambda cut: (_crossing(problem, crew, cut), cut.seconds))
    if slabs is None:
        return best, None
    return (best, slabs) if least < (1 - _SURE) * slabs.seconds else (slabs, best)


def with_best_block(
    problem: Problem, crew: Crew, parts: Parts, time_block: TimeBlock = "auto"
) -> Cut:
    """A process grid with the steps between two exchanges that were asked for, or those with the
    shortest step.
    """
    room = longest_block(problem, parts)
    if time_block != "auto":
        block = min(time_block, room)
    else:
        step = problem.grid.n_points * problem.n_fields / sum(crew.speeds)
        longest = max(1, min(room, int(_BLOCK_SECONDS / step)))
        block = min(
            _candidates(longest, crew),
            key=lambda block: predict_seconds(problem, crew, parts, block),
        )
    return Cut(parts, block, predict_seconds(problem, crew, parts, block))


def predict_seconds(problem: Problem, crew: Crew, parts: Parts, block: int) -> float:
    """Predicted time of a step in blocks of so many [s]."""
    pieces = _cut(problem, crew, parts, block)
    slowness = (crew.slowness(block) / np.asarray(crew.speeds)).reshape(parts)
    working = pieces.computed(block) * problem.n_fields * slowness
    messages, points = pieces.received(block, pieces.sides)
    n_bytes = points * problem.n_fields * problem.dtype.itemsize
    exchanging = messages * crew.link.latency + n_bytes * crew.link.seconds_per_byte
    return float(working.max() + (exchanging.max() + _START_SECONDS) / block)


def describe_choice(found: Cut, other: Cut | None) -> str:
    """Why this one: what `fastest_cut` gives, in words; nothing if there was no choice.

    >>> describe_choice(Cut((8, 8, 1), 6, 1.0), Cut((64, 1, 1), 3, 2.5))
    'slabs are predicted to take 2.5 times as long'
    >>> describe_choice(Cut((4, 1), 8, 1.0), Cut((2, 2), 12, 0.98))
    '2 x 2 along y and x is predicted to take 0.98 times as long, too little of a difference'
    """
    if other is None:
        return "" if is_slabs(found.parts) else "slabs would be too thin for their halos"
    name = "slabs are" if is_slabs(other.parts) else f"{describe_parts(other.parts)} is"
    ratio = other.seconds / found.seconds
    doubt = ", too little of a difference" if ratio < 1 else ""
    return f"{name} predicted to take {ratio:.3g} times as long{doubt}"


@dataclass(frozen=True)
class _Pieces:
    """Of each axis the lengths of its pieces and their sides with a neighbour, shaped so that
    together they are all.
    """

    lengths: tuple[Numbers, ...]
    sides: tuple[Numbers, ...]
    radii: tuple[int, ...]

    def computed(self, block: int) -> Numbers:
        """Points that each piece computes in a step, on average over a block; see
        `redundant_points`.
        """
        found = np.ones(())
        for length, sides, radius in zip(self.lengths, self.sides, self.radii, strict=True):
            found = found * (length + sides * radius * (block - 1) / 2)
        return found

    def received(self, block: int, sides: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
        """(messages, points) that each piece receives in one exchange, on some of its sides; see
        `halo_points`.
        """
        messages, points = np.zeros(()), np.zeros(())
        for axis, (count, radius) in enumerate(zip(sides, self.radii, strict=True)):
            plane = np.ones(())
            for other, length in enumerate(self.lengths):
                if other < axis:
                    plane = plane * (length + self.sides[other] * self.radii[other] * block)
                elif other > axis:
                    plane = plane * length
            messages = messages + count * (radius > 0)
            points = points + count * radius * block * plane
        return messages, points


def _cut(problem: Problem, crew: Crew, parts: Parts, block: int) -> _Pieces:
    lengths, sides = [], []
    for axis, ranges in enumerate(axis_pieces(problem, parts, crew.speeds, block)):
        along = tuple(-1 if other == axis else 1 for other in range(len(parts)))
        lengths.append(
            np.array([stop - start for start, stop in ranges], dtype=np.float64).reshape(along)
        )
        joined = np.full(len(ranges), 2.0 if len(ranges) > 1 else 0.0)
        if len(ranges) > 1 and not problem.boundary.periodic(axis):
            joined[[0, -1]] = 1.0
        sides.append(joined.reshape(along))
    return _Pieces(tuple(lengths), tuple(sides), problem.stencil.radii)


def _crossing(problem: Problem, crew: Crew, cut: Cut) -> float:
    """Points per step of the worker that receives the most from other computers."""
    if not crew.computers:
        return 0.0
    computers, pieces = (
        np.asarray(crew.computers).reshape(cut.parts),
        _cut(problem, crew, cut.parts, cut.time_block),
    )
    away = []
    for axis, joined in enumerate(pieces.sides):
        # As if every axis were periodic: the first and the last piece are no dearer than those
        # between them.
        strangers = sum(
            (np.roll(computers, shift, axis) != computers).astype(np.float64) for shift in (1, -1)
        )
        away.append(np.minimum(strangers, joined))
    return float(pieces.received(cut.time_block, away)[1].max()) / cut.time_block


def _candidates(longest: int, crew: Crew) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ..., so many times what methods like to make at a time, and the
    longest.
    """
    found = {1, longest}
    for power in range(longest.bit_length()):
        for times in (1 << power, 3 << power):
            found |= {times * unit for unit in {1, *crew.steps} if times * unit <= longest}
    return sorted(found)
