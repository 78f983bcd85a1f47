"""gpu.stream for equations in 3D: several steps of all fields per launch, with planes in shared
memory (`equations_3d.cu`).

The first part assigns stages to levels and their inputs to queues and rings (`struct Level`); the
second part has the tiles and the kernel.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.gpu_kernels.boundary.extents import has_frame
from tetris_sim.gpu_kernels.common.given import constants_of, equations_of, given_defines, names_of
from tetris_sim.gpu_kernels.fused.kernel import (
    MOST_SHARED,
    OF_SM,
    FusedKernel,
    StreamedAxis,
    round_up,
)
from tetris_sim.gpu_kernels.stream.equations_2d import beside, choose_tiles, print_structure
from tetris_sim.model.equations import Equations, Offset
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Problem

# Levels of a step: the stages that are computed in one turn of the loop over planes, and where
# their inputs wait for it (`struct Level` of equations_3d.cu).


@dataclass(frozen=True)
class Queue:
    """The planes of a name that a level reads, counted from the plane that it computes.

    Attributes:
        low: the lowest plane.
        high: the highest plane.
        beside: the lowest plane of its ring in shared memory, that of the point or below; from
            there on, neighbours within the plane may be read. None if they never are.
    """

    low: int
    high: int
    beside: int | None

    def top(self, last: int, held: int) -> int:
        """The highest plane of which threads keep their own points in registers: at most `held`,
        unless there is no ring with the planes up to `last`.
        """
        return last if self.beside is None else min(last, held)

    def slots_of_state(self, ahead: int) -> int:
        """Planes of the ring into which the state is copied: all planes pass through it."""
        lowest = self.high if self.beside is None else self.beside
        return self.high - lowest + 1 + ahead


@dataclass(frozen=True)
class Level3:
    """The stages that are computed in one turn.

    Attributes:
        stages: numbers of the stages.
        queues: queues of the names that they read or pass on.
        given: numbers of the names that they compute.
        following: for each name that is live afterwards, its name in the next level.
    """

    stages: range
    queues: dict[str, Queue]
    given: dict[str, int]
    following: dict[str, str]

    @property
    def reach(self) -> int:
        """Planes that the stages read above and below a point."""
        return max((max(-it.low, it.high) for it in self.queues.values()), default=0)

    @property
    def slots(self) -> dict[str, int]:
        """Planes of each ring: up to the newest one, and one that arrives while these are read."""
        return {
            name: self.reach - queue.beside + 2
            for name, queue in self.queues.items()
            if queue.beside is not None
        }

    def kept(self, held: int) -> int:
        """Numbers per point that stay in registers for this level, unless it is the first
        of all.
        """
        return sum(
            queue.top(self.reach, held) - queue.low + (queue.beside is None)
            for queue in self.queues.values()
        )


def levels_3d(equations: Equations) -> tuple[Level3, ...]:
    """The levels of a step."""
    groups = _groups(equations)
    levels = []
    names = list(equations.fields)
    # After the last level, results become the fields of the next step.
    fields = {result: name for name, result in equations.results.items()}

    for number, group in enumerate(groups):
        stages = [equations.stages[k] for k in group]
        given = [name for stage in stages for name in stage.formulas]
        later = {name for it in equations.stages[group.stop :] for name in it.taps}
        is_last = number == len(groups) - 1
        # Live names: read by a later level, or a result of the step.
        alive = [name for name in (*names, *given) if name in later or name in fields]
        read = {name: _taps(equations, group, name) for name in names}
        levels.append(
            Level3(
                group,
                {name: _queue(taps) for name, taps in read.items() if taps or name in alive},
                {name: k for k, name in enumerate(given)},
                {name: fields[name] for name in alive if name in fields}
                if is_last
                else {name: name for name in alive},
            )
        )
        names = alive
    return tuple(levels)


def _groups(equations: Equations) -> list[range]:
    """Runs of consecutive stages of which none reads a result of another beyond its own point."""
    groups: list[range] = []
    given: set[str] = set()
    for number, stage in enumerate(equations.stages):
        # Joins the running group unless it reads one of its results at another point.
        if groups and not any(any(stage.radii(name)) for name in given & {*stage.taps}):
            groups[-1] = range(groups[-1].start, number + 1)
        else:
            groups.append(range(number, number + 1))
            given = set()
        given |= {*stage.formulas}
    return groups


def _taps(equations: Equations, group: range, name: str) -> list[Offset]:
    return [offset for k in group for offset in equations.stages[k].taps.get(name, ())]


def _queue(taps: Sequence[Offset]) -> Queue:
    """The queue for the offsets at which a name is read; its own point may be passed on."""
    planes = [0, *(offset[0] for offset in taps)]
    beside = [offset[0] for offset in taps if any(offset[1:])]
    return Queue(min(planes), max(planes), min(0, *beside) if beside else None)


def n_planes(equations: Equations, steps: int, ahead: int) -> int:
    """Planes of a tile that a block keeps in shared memory."""
    levels = levels_3d(equations)
    # The first level of the first step reads the state's rings instead of its own.
    state = sum(queue.slots_of_state(ahead) for queue in levels[0].queues.values())
    planes = [sum(level.slots.values()) for level in levels]
    return state + steps * sum(planes) - planes[0]


def n_kept(equations: Equations, steps: int, held: int) -> int:
    """Numbers per point that a thread keeps in registers from turn to turn."""
    levels = levels_3d(equations)
    state = sum(queue.top(queue.high, held) - queue.low for queue in levels[0].queues.values())
    return state + steps * sum(level.kept(held) for level in levels) - levels[0].kept(held)


def print_levels_3d(equations: Equations, ahead: int, held: int) -> str:
    """The specializations of `struct Level`; number -1 describes the whole step."""
    levels, names = levels_3d(equations), names_of(equations)
    # The first level of the first step reads the state, which arrives through rings of its own.
    state = levels[0].queues
    slots = {name: queue.slots_of_state(ahead) for name, queue in state.items()}
    whole = {
        "count": len(levels),
        "planes": sum(slots.values()),
        "window": max((queue.high - queue.low for queue in state.values()), default=0),
    }
    tables = {
        **_ring_tables(names, slots),
        "high": [state[name].high if name in state else 0 for name in names],
        "top": [state[name].top(state[name].high, held) if name in state else 0 for name in names],
    }

    texts = [print_structure(-1, whole, tables)]
    for number, level in enumerate(levels):
        texts.append(print_structure(number, *_numbers(level, names, held)))
    return " ".join(texts)


def _numbers(
    level: Level3, names: Sequence[str], held: int
) -> tuple[dict[str, int], dict[str, list[int]]]:
    """The constants and the tables of a level."""
    numbers = {
        "first": level.stages.start,
        "last": level.stages[-1],
        "reach": level.reach,
        "planes": sum(level.slots.values()),
        "n_given": len(level.given),
        "n_queues": len(level.queues),
        "longest": max((level.reach - it.low for it in level.queues.values()), default=0) + 1,
    }

    # Tables are indexed by the number of a name; the order numbers its queue within the level.
    order = {name: k for k, name in enumerate(level.queues)}
    tops = {name: queue.top(level.reach, held) for name, queue in level.queues.items()}
    following = {name: names.index(later) for name, later in level.following.items()}
    tables = {
        **_ring_tables(names, level.slots),
        "given": [level.given.get(name, -1) for name in names],
        "queue": [order.get(name, -1) for name in names],
        "low": [level.queues[name].low if name in order else 0 for name in names],
        "top": [tops.get(name, 0) for name in names],
        "next": [following.get(name, -1) for name in names],
    }
    return numbers, tables


def _ring_tables(names: Sequence[str], slots: dict[str, int]) -> dict[str, list[int]]:
    """The first plane and the number of planes of each ring."""
    before = list(slots)
    first = {name: sum(slots[it] for it in before[:k]) for k, name in enumerate(before)}
    return {
        "ring": [first.get(name, -1) for name in names],
        "slots": [slots.get(name, 1) for name in names],
    }


def words_read(equations: Equations, rows: int, held: int) -> float:
    """An estimate of the numbers that a thread reads and writes in shared memory per point and
    step. In its own column it reads only what lies beyond its rows or the planes that it holds.
    """
    total = float(len(equations.fields))
    for level in levels_3d(equations):
        for name, queue in level.queues.items():
            # The rows of a thread share a column's values; beyond its ends it reads `far` rows on
            # either side.
            farthest: dict[tuple[int, int], int] = {}
            for z, y, x in _taps(equations, level.stages, name):
                farthest[z, x] = max(farthest.get((z, x), 0), abs(y))
            total += sum((x != 0 or z > held) + 2 * far / rows for (z, x), far in farthest.items())
            total += 2 * (queue.beside is not None)
    return total


_LANES = 32
_SECTOR_BYTES = 32  # the smallest unit of a memory transfer
_REGISTERS = 65536  # 4-byte registers per multiprocessor
_BESIDE = 12  # registers per thread for addresses (found by compiling)
_WARPS_TOGETHER = 4  # registers are allocated to so many warps at a time
_MOST_OPERATIONS = 6_000  # operations in an unrolled kernel: more would compile for minutes
# Smallest edge of a boundary strip's tile. Where only one point fits, the fourth-order wave
# equation made 2.3 G point-steps a second with 3 steps per launch, 122 with 2 (H200, 1024^3,
# 2026-11-22).
_EDGE = 4

# What one multiprocessor achieves per clock cycle: bytes of shared memory, operations by the bytes
# of a number, and its share of the memory bandwidth (H200).
_SHARED_BYTES_A_TURN = 128.0
_OPERATIONS_A_TURN = {8: 64.0, 4: 128.0}
_MEMORY_BYTES_A_TURN = 18.0


@dataclass(frozen=True)
class Tile3:
    """The tile of one block of threads, which the kernel's parameters describe.

    Attributes:
        steps_per_block: steps of a launch.
        rows: points per lane, below each other.
        across: warps beside each other along x.
        warps: warps below each other along y.
        ahead: prefetched planes.
        blocks: blocks per multiprocessor.
        held: planes above the computed one of which a thread holds its own points.
    """

    steps_per_block: int
    rows: int
    across: int
    warps: int
    ahead: int
    blocks: int
    held: int

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return _LANES * self.across

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.rows * self.warps

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return _LANES * self.across * self.warps


@dataclass(frozen=True)
class _Needs3:
    """The requirements of a kernel for some equations, independent of its tile.

    Attributes:
        planes: rows of (steps, planes ahead, planes in shared memory).
        kept: numbers in registers per point of a thread, by planes held and steps.
        given: largest number of results of a level per point.
        radii: radius of a step along each axis.
        reach: planes that the levels of a step read above, added up.
        n_fields: number of fields.
        item: bytes of a number.
        operations: operations per point and step.
        words: shared memory accesses per point and step, by planes held and rows.
    """

    planes: tuple[tuple[int, int, int], ...]
    kept: tuple[tuple[int, ...], ...]
    given: int
    radii: tuple[int, ...]
    reach: int
    n_fields: int
    item: int
    operations: int
    words: tuple[tuple[float, ...], ...]

    def shared_bytes(self, it: Tile3) -> int:
        """Shared memory of a block [bytes]."""
        (planes,) = (n for *key, n in self.planes if key == [it.steps_per_block, it.ahead])
        return planes * it.columns * it.height * self.item

    def halo(self, it: Tile3) -> tuple[int, int]:
        """Rows and columns of a tile before those that it writes."""
        y, x = (it.steps_per_block * radius for radius in self.radii[1:])
        return y, round_up(x, _SECTOR_BYTES // self.item)

    def written(self, it: Tile3) -> tuple[int, int]:
        """Rows and columns that a tile writes: those that are valid after all steps, with columns
        in whole sectors.
        """
        y, x = self.halo(it)
        unit = _SECTOR_BYTES // self.item
        right = it.steps_per_block * self.radii[2]
        return it.height - 2 * y, (it.columns - x - right) // unit * unit

    def fits(self, it: Tile3) -> bool:
        """Whether the kernel compiles with a tile and has points to write."""
        shared = self.shared_bytes(it)
        return (
            min(self.written(it)) > 0
            and shared <= MOST_SHARED
            and it.blocks * (shared + 1024) <= OF_SM
        )

    def is_light(self, it: Tile3) -> bool:
        """Whether the kernel should not spill and compiles fast enough."""
        # Registers of a point: queues, results of a level, and some for intermediate values.
        numbers = self.kept[it.held][it.steps_per_block] + self.given + 1.5 + 5 * it.held
        registers = numbers * it.rows * self.item / 4 + _BESIDE
        operations = it.steps_per_block * it.rows * self.operations
        # Registers are allocated to groups of warps, in units of 8 per thread.
        threads = round_up(it.threads, _LANES * _WARPS_TOGETHER)
        most = min(255, _REGISTERS // (threads * it.blocks) // 8 * 8)
        return registers <= most and operations <= _MOST_OPERATIONS

    def cost(self, it: Tile3) -> float:
        """An estimate of the clock cycles per point and step: memory traffic once per launch,
        shared memory access and arithmetic, divided by the share of a tile that is written. Neither
        hides the other fully, and more warps hide more.

        Fitted to the wave equation on an H200 (1024^3, float64, 2026-11-22): order 2 with 2, 3 and
        4 steps made 168, 218 and 193 G point-steps a second, order 4 with 1 and 2 steps 87 and
        123.
        """
        y, x = self.written(it)
        share = y * x / (it.height * it.columns)
        memory = self.n_fields * self.item * (1 + 1 / share) / it.steps_per_block
        shared = self.words[it.held][it.rows] * self.item / _SHARED_BYTES_A_TURN
        computed = self.operations / _OPERATIONS_A_TURN[self.item]
        both = math.hypot(memory / _MEMORY_BYTES_A_TURN, (shared + computed) / share)
        return both * (1 + 0.5 * _LANES / (it.threads * it.blocks))


def _needs(problem: Problem) -> _Needs3:
    equations = equations_of(problem)
    levels = levels_3d(equations)

    # Tabulated over all candidates, so that the result can be hashed for the cache.
    return _Needs3(
        planes=tuple(
            (steps, ahead, n_planes(equations, steps, ahead))
            for steps in _STEPS
            for ahead in _AHEAD
        ),
        kept=tuple(
            tuple(n_kept(equations, steps, held) for steps in range(max(_STEPS) + 1))
            for held in _HELD
        ),
        given=max(len(level.given) for level in levels),
        radii=problem.stencil.radii,
        reach=sum(level.reach for level in levels),
        n_fields=problem.n_fields,
        item=np.dtype(problem.dtype).itemsize,
        operations=equations.n_operations,
        words=tuple(
            tuple(words_read(equations, max(1, rows), held) for rows in range(max(_ROWS) + 1))
            for held in _HELD
        ),
    )


_STEPS = (1, 2, 3, 4)
_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
_AHEAD = (1, 2)
_HELD = (0, 1, 2)


def equations_3d_refusal(problem: Problem) -> str | None:
    """Why the kernel refuses equations, as a sentence for the user; None if it does not."""
    if not equations_3d_parameters(problem):
        n = n_planes(equations_of(problem), 1, 1)
        return (
            f"{n} planes, which one step keeps of its fields and stages, do not fit into shared "
            "memory and registers"
        )
    return None


def equations_3d_parameters(problem: Problem) -> tuple[Parameters, ...]:
    """Tiles worth trying, the best guess first; the keys are those of `Tile3`. Where there are
    faces, tiles with so many steps that a boundary strip would be loaded for a few points each are
    left out.
    """
    proposed = _proposed(_needs(problem))
    if all(problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)):
        return proposed
    return (
        tuple(it for it in proposed if has_frame(problem, it[STEPS_PER_BLOCK], _EDGE)) or proposed
    )


@functools.lru_cache(maxsize=64)
def _proposed(needs: _Needs3) -> tuple[Parameters, ...]:
    """The candidate tiles, cached: the search takes a while."""
    shapes = itertools.product(
        _STEPS, _ROWS, (1, 2, 4), (2, 3, 4, 5, 6, 7, 8, 10, 12, 16), _AHEAD, (1, 2), _HELD
    )
    found = [
        tile
        for tile in itertools.starmap(Tile3, shapes)
        if 128 <= tile.threads <= 1024 and needs.fits(tile) and needs.is_light(tile)
    ]

    return choose_tiles(found, needs)


def equations_3d_kernel(problem: Problem, parameters: Mapping[str, int]) -> FusedKernel:
    """The kernel for a problem with the parameters of a `Tile3`.

    Raises:
        ValueError: the tile does not fit.
    """
    tile, needs = Tile3(**parameters), _needs(problem)
    if not needs.fits(tile):
        msg = f"these equations do not fit into {tile}: take more rows and columns, or fewer steps"
        raise ValueError(msg)

    # A tile computes more points than it writes: those in the halo are known at fewer levels.
    steps, (written_y, written_x) = tile.steps_per_block, needs.written(tile)
    halo_y, halo_x = needs.halo(tile)
    levels = levels_3d(equations_of(problem))
    return FusedKernel(
        source="equations_3d.cu",
        entry="equations_3d",
        defines={
            **given_defines(problem),
            "TS_DEPTH": steps,
            "TS_ROWS": tile.rows,
            "TS_WARPS": tile.warps,
            "TS_ACROSS": tile.across,
            "TS_AHEAD": tile.ahead,
            "TS_BLOCKS": tile.blocks,
            "TS_FIELDS": needs.n_fields,
            "TS_HALO_Y": halo_y,
            "TS_HALO_X": halo_x,
            "TS_WRITTEN_Y": written_y,
            "TS_WRITTEN_X": written_x,
            "TS_LEVELS": print_levels_3d(equations_of(problem), tile.ahead, tile.held),
        },
        depth=steps,
        tile=(1, written_y, written_x),
        threads=tile.threads,
        shared_bytes=needs.shared_bytes(tile),
        weights=constants_of(problem),
        stream=StreamedAxis(
            axis=0, repeated=2 * steps * needs.reach + steps * len(levels) - 1, unit=1
        ),
        line=_SECTOR_BYTES,
        beside=beside,
    )
