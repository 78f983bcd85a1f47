"""Cost model: the predicted time of a step for a certain decomposition of the grid and certain
workers, and the lengths of blocks (between two exchanges, between two looks at clock and signals).

A block has k steps. A worker starts, computes its own points k times and those of its halos k - 1,
k - 2, ..., 0 times, at the rate of its method in blocks of this length, and sends its edges. When
all workers have done so, it receives the halos of its neighbours. Each message takes latency +
bytes / bandwidth of the worker's link (Tetris 5.3: k (alpha + n beta) against redundant work):

    block = max over workers (start + computing + giving) + max over workers (taking)

The part of an exchange that overlaps the computation of points that need no halo is hidden, as far
as there are such points; this holds for messages along the last axis that is cut
(`Exchange.begin`). Points near those halos are then computed separately, which takes longer, and
workers do not wait for all others:

    block = max over workers (start + computing + giving + taking)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Capacity, Domain, Parts, Reason, Scheme, about

# Time of a step that does not fill the method's depth, relative to one that does: single sweeps
# instead of the fastest fused method, 3 to 10 depending on the stencil on an H200
# (docs/benchmarks/gpu.md).
_LEFT_OVER = 4.0
# CPU methods that make fewer steps at a time than their depth access memory more often. A step then
# takes about the cube root of (depth / steps made) times as long: cpu.stream and cpu.tessellate on
# five grids in 2D and 3D with 1 to 16 of 8 to 32 steps took 0.63 to 1.4 times that, median 0.90,
# single steps of cpu.stream in 2D 2.5 times (two threads of an AMD EPYC, float64, 2026-11-22).
_SHORTER = 1 / 3

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WorkerTable:
    """Capacities as columns of numbers, so that thousands of workers are evaluated at once.

    Attributes:
        rates: points per second.
        starts: time to start and end a block [s].
        latencies: latency of a message [s].
        seconds_per_byte: inverse bandwidth of a message [s/byte].
        depths: steps that the methods make at a time when they can.
        fixed: whether the methods make only that many, and single sweeps for the remainder.
        one_way: whether sending is free, because the link contains it.
        overlapped: share of the exchange that can overlap the computation.
        splitting: extra time of the halo-dependent region when it is computed separately, relative
            to its time as part of the whole.
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
        """The table of these capacities."""
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
        """Number of workers."""
        return len(self.rates)

    @property
    def together(self) -> bool:
        """Whether all workers start a block together, since none can start without halos."""
        return not self.overlapped.any()

    def slowness(self, block: int) -> Numbers:
        """Time per point and step in blocks of `block` steps [s]."""
        # GPU methods: of `block` steps, the remainder of the division by the depth are single
        # sweeps.
        left_over = 1 + (_LEFT_OVER - 1) * (block % self.depths) / block
        # CPU methods: all steps get slower if the block is shorter than the depth.
        shorter = np.maximum(1.0, self.depths / block) ** _SHORTER
        return np.where(self.fixed, left_over, shorter) / self.rates


@dataclass(frozen=True)
class Decomposition:
    """A rectilinear decomposition of a grid. Arrays per axis are shaped for broadcasting, so that
    their product covers all pieces.

    Attributes:
        domain: the grid that is cut.
        lengths: lengths of the pieces along each axis [points].
        sides: number of sides with a neighbour, 0 to 2, of the pieces along each axis.
    """

    domain: Domain
    lengths: tuple[Numbers, ...]
    sides: tuple[Numbers, ...]

    @classmethod
    def into(cls, domain: Domain, pieces: Sequence[Sequence[int]]) -> Self:
        """The decomposition into pieces of these lengths along each axis."""
        lengths, sides = [], []
        for axis, along in enumerate(pieces):
            shape = tuple(-1 if other == axis else 1 for other in range(len(pieces)))
            # Each piece has two neighbours along an axis that is cut; without periodicity, the end
            # pieces have one.
            joined = np.full(len(along), 2.0 if len(along) > 1 else 0.0)
            if len(along) > 1 and not domain.periodic[axis]:
                joined[[0, -1]] = 1.0
            lengths.append(np.array(along, np.float64).reshape(shape))
            sides.append(joined.reshape(shape))
        return cls(domain, tuple(lengths), tuple(sides))

    @property
    def parts(self) -> Parts:
        """Number of pieces along each axis."""
        return tuple(lengths.size for lengths in self.lengths)

    def computed(self, block: int) -> Numbers:
        """Values that each piece computes in a step, on average over a block."""
        # A halo of k radii shrinks by one radius per step, so (k - 1) / 2 radii per side are
        # computed on average.
        values = np.array(float(self.domain.n_fields))
        for lengths, sides, radius in zip(self.lengths, self.sides, self.domain.radii, strict=True):
            values = values * (lengths + sides * radius * (block - 1) / 2)
        return values

    def inner(self, block: int) -> Numbers:
        """Values of each piece that need no halo throughout a block."""
        # The region independent of halos shrinks by one radius per step and side.
        values = np.array(float(self.domain.n_fields))
        for lengths, sides, radius in zip(self.lengths, self.sides, self.domain.radii, strict=True):
            values = values * np.maximum(0.0, lengths - sides * radius * block)
        return values

    @property
    def last_sides(self) -> tuple[Numbers, ...]:
        """The sides with a neighbour along the last axis that is cut; 0 along the other axes."""
        last = max((axis for axis, sides in enumerate(self.sides) if sides.any()), default=0)
        return tuple(sides * (axis == last) for axis, sides in enumerate(self.sides))

    def rims(self, block: int) -> Numbers:
        """Values of each piece in its halo-dependent region along the last axis, per step, on
        average over a block.
        """
        values = np.array(float(self.domain.n_fields))
        # Fraction of the length along each axis that lies in the region; only the last cut axis
        # contributes.
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

        Halos are exchanged axis by axis and include those received before, which transports corners
        without extra messages.
        """
        messages, points = np.zeros(()), np.zeros(())
        radii = self.domain.radii
        for axis, count in enumerate(self.sides if sides is None else sides):
            plane = np.ones(())
            for other, lengths in enumerate(self.lengths):
                # Along axes exchanged before, a plane includes their halos.
                if other < axis:
                    plane = plane * (lengths + self.sides[other] * radii[other] * block)
                elif other > axis:
                    plane = plane * lengths
            messages = messages + count * (radii[axis] > 0)
            points = points + count * radii[axis] * block * plane
        return messages, points * self.domain.n_fields * self.domain.itemsize


@dataclass(frozen=True)
class Forecast:
    """Predicted times of a block.

    Attributes:
        busy: time of each worker to start and compute [s].
        giving: time of each worker for messages that are not hidden, before others can proceed [s].
        taking: time of each worker for messages that are not hidden, after all have sent theirs
            [s].
        together: whether all workers send before any receives.
    """

    busy: Numbers
    giving: Numbers
    taking: Numbers
    together: bool = True

    @property
    def seconds(self) -> float:
        """Time of the block [s]."""
        if not self.together:
            return float((self.busy + self.giving + self.taking).max())
        return float((self.busy + self.giving).max() + self.taking.max())


def forecast(cut: Decomposition, crew: WorkerTable, block: int) -> Forecast:
    """Predicted times of a block for each worker, in the order of the pieces."""
    slowness = (crew.slowness(block)).reshape(cut.parts)
    computing = block * cut.computed(block) * slowness

    messages, n_bytes = cut.received(block)
    latencies, per_byte = (
        column.reshape(cut.parts) for column in (crew.latencies, crew.seconds_per_byte)
    )
    taking = messages * latencies + n_bytes * per_byte
    # Sending costs as much as receiving, unless the link contains both.
    giving = np.where(crew.one_way.reshape(cut.parts), 0.0, taking)

    # Overlap: separate computation of the halo-dependent region costs extra, and messages along the
    # last axis are hidden behind at most the computation of the inner region.
    if crew.overlapped.any():
        computing = computing + crew.splitting.reshape(cut.parts) * (
            block * cut.rims(block) * slowness
        )
        late_messages, late_bytes = cut.received(block, cut.last_sides)
        late = late_messages * latencies + late_bytes * per_byte
        late = late + np.where(crew.one_way.reshape(cut.parts), 0.0, late)
        beside = block * cut.inner(block) * slowness
        hidden = np.minimum(crew.overlapped.reshape(cut.parts) * late, beside)
        # The hidden time is subtracted from sending first and the remainder from receiving.
        given = np.minimum(hidden, giving)
        giving, taking = giving - given, taking - (hidden - given)

    starts = crew.starts.reshape(cut.parts)
    columns = ((starts + computing).ravel(), giving.ravel(), taking.ravel())
    return Forecast(*columns, together=crew.together)


def seconds_per_step(cut: Decomposition, crew: WorkerTable, block: int) -> float:
    """Predicted time per step in blocks of `block` steps [s]."""
    return forecast(cut, crew, block).seconds / block


BLOCK_SECONDS = 0.2  # between two checks of signals, progress bar and clock
_MAX_BLOCK = 1 << 20
_MOST_STEPS = 64  # of a block whose steps are made of substeps, their number unknown
# Largest share of redundant work for which the block is rounded to the method's depth.
_REDUNDANT = 0.05


def responsive_block(
    n_values: int, points_per_second: float, seconds: float = BLOCK_SECONDS
) -> int:
    """Number of steps after which a run should check clock and signals again.

    Args:
        n_values: values of the grid, all fields.
        points_per_second: combined rate of all workers.
        seconds: time between two checks [s].
    """
    return min(_MAX_BLOCK, max(1, int(seconds * points_per_second / n_values)))


def block_alone(n_values: int, worker: Capacity, inner: int, asked: int | None) -> tuple[int, str]:
    """(steps per block of a worker without neighbours, the reason): short enough to stay
    responsive.

    Args:
        n_values: values of the grid, all fields.
        worker: capacity of the worker.
        inner: steps that its method makes at a time.
        asked: requested steps per block; None if open.
    """
    if asked is not None:
        rest = asked % inner
        odd = (
            f"; the method makes {inner} at a time, so each block ends with a shorter part"
            if rest
            else ""
        )
        return asked, f"Time block of {asked} steps, as asked{odd}."

    block = max(inner, responsive_block(n_values, worker.points_per_second) // inner * inner)
    times = block // inner
    whole = (
        ""
        if inner == 1
        else f", {times} times the method's {inner}"
        if times > 1
        else ", the method's own"
    )
    return block, (
        f"Time block of {block} steps{whole}: one worker needs no exchange, about {BLOCK_SECONDS} "
        "s keep it responsive."
    )


def block_of_teams(
    domain: Domain, team: Capacity, teams: int, asked: int | None
) -> tuple[int, str]:
    """(steps per block of equal teams of threads, the reason): redundant work balances latency.

    Messages between teams are copies within one memory and are not measured; an exchange costs what
    it takes all teams to end a block and start the next.

    Args:
        domain: grid that is cut along its first axis.
        team: capacity of the first team.
        teams: number of teams.
        asked: requested steps per block; None if open.

    Raises:
        ConfigError: the grid has too few planes for this many workers.
    """
    planes, radius, inner = domain.shape[0], domain.radii[0], team.depth
    room = planes // (teams * max(radius, 1))  # a halo must fit into the neighbour's slab
    if room < 1:
        msg = (
            f"{teams} workers cannot share {planes} planes along "
            f"{AXIS_NAMES[len(domain.shape) - 1]}: each needs at least {radius}. Name fewer "
            "devices."
        )
        raise ConfigError(msg)

    if asked is not None:
        block = min(asked, room)
        cut = ", cut to what fits" if block < asked else ""
        return block, f"Time block of {block} steps, as asked{cut}{_inner_cut(block, inner)}."

    # A block of k steps costs latency / k per step and (k - 1) * radius redundant planes per cut on
    # average; their sum is least at the square root below.
    plane_seconds = domain.n_values / team.points_per_second / planes
    latency = max(team.start, 1e-6)
    balanced = math.sqrt(latency / max(radius * plane_seconds, 1e-12))
    responsive = responsive_block(domain.n_values, team.points_per_second * teams)
    block = max(1, min(int(balanced), room, responsive))
    # Round to whole multiples of the method's depth, if the redundant planes of that many steps are
    # few.
    if inner <= room and teams * (inner - 1) * radius <= _REDUNDANT * planes:
        block = max(inner, block // inner * inner)
    return block, (
        f"Time block of {block} steps: an exchange costs {latency * 1e6:.0f} us, "
        f"a redundant plane {plane_seconds * 1e6:.2g} us a step{_inner_cut(block, inner)}."
    )


def divide_block(parameters: Parameters, block: int) -> Parameters:
    """The parameters with a number of steps at a time that divides the block, if a large enough
    divisor exists.

    >>> steps = (1, 8, 10, 16, 24, 40)
    >>> [divide_block({"steps_per_block": n}, 24)["steps_per_block"] for n in steps]
    [1, 8, 8, 12, 24, 24]
    """
    inner = parameters.get(STEPS_PER_BLOCK, 1)
    if STEPS_PER_BLOCK not in parameters or block % inner == 0:
        return parameters
    # If no divisor reaches half of the method's depth, the depth stays and the block ends with a
    # shorter part.
    divisor = max(n for n in range(1, min(inner, block) + 1) if block % n == 0)
    return {
        **parameters,
        STEPS_PER_BLOCK: divisor if 2 * divisor >= min(inner, block) else min(inner, block),
    }


def _inner_cut(block: int, inner: int) -> str:
    return f"; the method makes {block} at a time instead of {inner}" if block < inner else ""


# Adaptive steps, which consist of substeps: exceptions to the rules above.


def scheme_of(problem: Problem) -> Scheme:
    """Time-stepping scheme of workers that step through a problem."""
    return "explicit" if problem.substeps is None else "adaptive"


def asked_block(problem: Problem, compute: ComputeSection) -> int | None:
    """Steps between two exchanges if they do not follow from speeds: as requested, or 1 with
    substeps, whose errors all workers compare after each.
    """
    if problem.substeps is not None:
        return 1
    return None if compute.time_block == "auto" else compute.time_block


def block_of_substeps(problem: Problem, seconds_per_step: float) -> int:
    """Steps between two looks at clock and signals where one worker has all points and looks at
    errors by itself.

    Args:
        problem: whose steps may be made of substeps.
        seconds_per_step: of one substep [s].
    """
    substeps = problem.substeps
    if substeps is None or not substeps.adaptive or not problem.system.is_local:
        return 1
    # How many substeps there are is not known: as many as of the length that is tried first, and
    # four times as many for what is rejected or shorter.
    likely = 4 * max(1.0, problem.dt / substeps.first)
    return min(_MOST_STEPS, max(1, int(BLOCK_SECONDS / (likely * seconds_per_step))))


def why_adaptive(problem: Problem, block: int = 1) -> tuple[Reason, ...]:
    """Reason for the block of adaptive steps, whose number is unknown in advance; none for fixed
    steps.
    """
    if (substeps := problem.substeps) is None:
        return ()
    if not substeps.adaptive:
        sentence = (
            "model: equations read numbers of the whole grid (integral, mean, max, min), noise or "
            "0 = ..., which all workers make together between stages, so blocks have one step."
        )
        return about("block", (sentence,))
    sentence = (
        f"time.tolerance: each step of {problem.dt:.6g} s is made of substeps with errors of "
        f"{substeps.tolerance:g} at most; how many is known afterwards, and the times here are "
        "those of one each. "
    )

    if block > 1:
        sentence += f"One worker has all points, so a block has {block} steps."
    else:
        sentence += "All workers look at the errors after each, so blocks have one step."
    return about("block", (sentence,))
