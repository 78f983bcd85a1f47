"""Cost: how long a step takes if a grid is cut in a certain way between certain workers.

The model, for a block of k steps. A worker starts, computes its points k times and those of its
halos k - 1, k - 2, ..., 0 times, as fast as its method is in blocks of that length, and gives its
edges away. When all have done so, it takes the halos of its neighbours. Each message takes latency
+ bytes / bandwidth of the worker's link (Tetris 5.3: k (alpha + n beta) against redundant work):

    block = max over workers (start + computing + giving) + max over workers (taking)

What of an exchange goes on beside the computation of points that need no halo is not waited for, as
far as there are such points: of messages along the last axis that is cut (`Exchange.begin`). Points
near those halos are then a part of their own, which takes longer; and nobody waits for all others:

    block = max over workers (start + computing + giving + taking)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from tetris_sim.scheduler.facts.domain import Capacity, Domain, Parts

# A step that does not fill the method's depth takes that many times as long: single sweeps beside
# the fastest fused method, 3 to 10 by stencil on an H200 (docs/benchmarks/gpu.md).
_LEFT_OVER = 4.0
# Methods on the CPU that make fewer steps at a time than they like go to memory more often. A step
# then takes about the cube root of (steps they like / steps they make) times as long: cpu.stream
# and cpu.tessellate on five grids in 2D and 3D with 1 to 16 of 8 to 32 steps took 0.63 to 1.4 times
# that, median 0.90, single steps of cpu.stream in 2D 2.5 times (two threads of an AMD EPYC,
# float64, 2026-11-22).
_SHORTER = 1 / 3

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WorkerTable:
    """Workers as columns, so that thousands of them are counted at once.

    Attributes:
        rates: points per second.
        starts: time of starting and ending a block [s].
        latencies: of a message [s].
        seconds_per_byte: of a message [s].
        depths: steps that the methods like to make at a time.
        fixed: whether they can make no others.
        one_way: whether giving is free.
        overlapped: share of the exchange that goes on beside the computation.
        splitting: how much longer rims take by themselves.
    """

    rates: Numbers
    starts: Numbers
    latencies: Numbers
    seconds_per_byte: Numbers
    depths: npt.NDArray[np.int64]
    fixed: npt.NDArray[np.bool_]
    one_way: npt.NDArray[np.bool_]
    overlapped: Numbers
    splitting: Numbers

    @classmethod
    def of(cls, workers: Sequence[Capacity]) -> Self:
        """The columns of what workers can do."""
        return cls(
            np.array([worker.points_per_second for worker in workers], np.float64),
            np.array([worker.start for worker in workers], np.float64),
            np.array([worker.link.latency for worker in workers], np.float64),
            np.array([worker.link.seconds_per_byte for worker in workers], np.float64),
            np.array([worker.depth for worker in workers], np.int64),
            np.array([worker.fixed for worker in workers]),
            np.array([worker.one_way for worker in workers]),
            np.array([worker.overlapped for worker in workers], np.float64),
            np.array([worker.splitting for worker in workers], np.float64),
        )

    @property
    def size(self) -> int:
        """Workers."""
        return len(self.rates)

    @property
    def together(self) -> bool:
        """Whether all begin a block together, since nobody can do so without halos."""
        return not self.overlapped.any()

    def slowness(self, block: int) -> Numbers:
        """Seconds per point and step in blocks of so many steps."""
        left_over = 1 + (_LEFT_OVER - 1) * (block % self.depths) / block
        shorter = np.maximum(1.0, self.depths / block) ** _SHORTER
        return np.where(self.fixed, left_over, shorter) / self.rates


@dataclass(frozen=True)
class Decomposition:
    """Where a grid is cut. Of each axis the lengths of its pieces and their sides with a neighbour,
    shaped so that together they are all.

    Attributes:
        domain: what is cut.
        lengths: of the pieces along each axis.
        sides: with a neighbour, 0 to 2, of the pieces along each axis.
    """

    domain: Domain
    lengths: tuple[Numbers, ...]
    sides: tuple[Numbers, ...]

    @classmethod
    def into(cls, domain: Domain, pieces: Sequence[Sequence[int]]) -> Self:
        """Cut into pieces of these lengths along each axis."""
        lengths, sides = [], []
        for axis, along in enumerate(pieces):
            shape = tuple(-1 if other == axis else 1 for other in range(len(pieces)))
            joined = np.full(len(along), 2.0 if len(along) > 1 else 0.0)
            if len(along) > 1 and not domain.periodic[axis]:
                joined[[0, -1]] = 1.0
            lengths.append(np.array(along, np.float64).reshape(shape))
            sides.append(joined.reshape(shape))
        return cls(domain, tuple(lengths), tuple(sides))

    @property
    def parts(self) -> Parts:
        """Into how many pieces each axis is cut."""
        return tuple(lengths.size for lengths in self.lengths)

    def computed(self, block: int) -> Numbers:
        """Values that each piece computes in a step, on average over a block."""
        values = np.array(float(self.domain.n_fields))
        for lengths, sides, radius in zip(self.lengths, self.sides, self.domain.radii, strict=True):
            values = values * (lengths + sides * radius * (block - 1) / 2)
        return values

    def inner(self, block: int) -> Numbers:
        """Values of each piece that need no halo during a block."""
        values = np.array(float(self.domain.n_fields))
        for lengths, sides, radius in zip(self.lengths, self.sides, self.domain.radii, strict=True):
            values = values * np.maximum(0.0, lengths - sides * radius * block)
        return values

    @property
    def last_sides(self) -> tuple[Numbers, ...]:
        """The sides along the last axis that is cut; none along others."""
        last = max((axis for axis, sides in enumerate(self.sides) if sides.any()), default=0)
        return tuple(sides * (axis == last) for axis, sides in enumerate(self.sides))

    def rims(self, block: int) -> Numbers:
        """Values of each piece that the halos of its last sides reach in a step, on average over a
        block.
        """
        values = np.array(float(self.domain.n_fields))
        width = np.zeros(())
        for axis, (sides, radius) in enumerate(
            zip(self.last_sides, self.domain.radii, strict=True)
        ):
            width = width + sides * radius * block / self.lengths[axis]
            values = values * self.lengths[axis]
        return values * width

    def received(
        self, block: int, sides: Sequence[Numbers] | None = None
    ) -> tuple[Numbers, Numbers]:
        """(messages, bytes) that each piece receives in one exchange, on all or some of its sides.

        Halos go axis by axis, including those just received.
        """
        messages, points = np.zeros(()), np.zeros(())
        radii = self.domain.radii
        for axis, count in enumerate(self.sides if sides is None else sides):
            plane = np.ones(())
            for other, lengths in enumerate(self.lengths):
                if other < axis:
                    plane = plane * (lengths + self.sides[other] * radii[other] * block)
                elif other > axis:
                    plane = plane * lengths
            messages = messages + count * (radii[axis] > 0)
            points = points + count * radii[axis] * block * plane
        return messages, points * self.domain.n_fields * self.domain.itemsize


@dataclass(frozen=True)
class Forecast:
    """What a block of steps should take.

    Attributes:
        busy: time that each worker starts and computes [s].
        giving: time of each worker for messages that nothing hides, before others go on [s].
        taking: the same after that [s].
        together: whether all give their messages away before somebody takes his.
    """

    busy: Numbers
    giving: Numbers
    taking: Numbers
    together: bool = True

    @property
    def seconds(self) -> float:
        """Of the block."""
        if not self.together:
            return float((self.busy + self.giving + self.taking).max())
        return float((self.busy + self.giving).max() + self.taking.max())


def forecast(cut: Decomposition, crew: WorkerTable, block: int) -> Forecast:
    """What a block of so many steps takes each worker, in the order of the pieces."""
    slowness = (crew.slowness(block)).reshape(cut.parts)
    computing = block * cut.computed(block) * slowness

    messages, n_bytes = cut.received(block)
    latencies, per_byte = (
        column.reshape(cut.parts) for column in (crew.latencies, crew.seconds_per_byte)
    )
    taking = messages * latencies + n_bytes * per_byte
    giving = np.where(crew.one_way.reshape(cut.parts), 0.0, taking)

    if crew.overlapped.any():
        computing = computing + crew.splitting.reshape(cut.parts) * (
            block * cut.rims(block) * slowness
        )
        late_messages, late_bytes = cut.received(block, cut.last_sides)
        late = late_messages * latencies + late_bytes * per_byte
        late = late + np.where(crew.one_way.reshape(cut.parts), 0.0, late)
        beside = block * cut.inner(block) * slowness
        hidden = np.minimum(crew.overlapped.reshape(cut.parts) * late, beside)
        given = np.minimum(hidden, giving)
        giving, taking = giving - given, taking - (hidden - given)
    starts = crew.starts.reshape(cut.parts)
    columns = ((starts + computing).ravel(), giving.ravel(), taking.ravel())
    return Forecast(*columns, together=crew.together)


def seconds_per_step(cut: Decomposition, crew: WorkerTable, block: int) -> float:
    """Predicted time of a step in blocks of so many [s]."""
    return forecast(cut, crew, block).seconds / block
