"""gpu.stream for equations in 3D: several steps of all fields a launch, planes in shared memory
(`equations_3d.cu`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tetris_sim.gpu_kernels.common.given import constants_of, equations_of, given_defines
from tetris_sim.gpu_kernels.faces.boxes import has_frame
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, Stream, round_up
from tetris_sim.gpu_kernels.stream.equations_2d import beside, choose_tiles
from tetris_sim.gpu_kernels.stream.levels_3d import (
    levels_3d,
    n_kept,
    n_planes,
    print_levels_3d,
    words_read,
)
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Problem

_MOST_SHARED = 227 * 1024  # bytes that a block can have on sm_90
_OF_SM = 228 * 1024  # that its blocks share, and 1 KB of each is the system's
_LANES = 32
_SECTOR_BYTES = 32  # the smallest piece of memory that moves
_REGISTERS = 65536  # of 4 bytes, of a multiprocessor
_BESIDE = 12  # registers of a thread for addresses (found by compiling)
_WARPS_TOGETHER = 4  # get registers
_MOST_OPERATIONS = 6_000  # that a kernel writes out: more would compile for minutes
# Points along an edge of a frame's tile, at least. Where only one fits, the wave equation of order
# 4 made 2.3 G points and steps a second with 3 steps a launch, 122 with 2 (H200, 1024^3,
# 2026-11-22).
_EDGE = 4

# What one multiprocessor does in a turn of the clock, and what it takes of memory (H200).
_SHARED_BYTES_A_TURN = 128.0
_OPERATIONS_A_TURN = {8: 64.0, 4: 128.0}
_MEMORY_BYTES_A_TURN = 18.0


@dataclass(frozen=True)
class Tile3:
    """A tile of one block of threads; the parameters of the kernel.

    Attributes:
        steps_per_block: steps of a launch.
        rows: points of a lane, below each other.
        across: warps beside each other.
        warps: warps below each other.
        ahead: planes on their way from memory.
        blocks: on a multiprocessor.
        held: planes above the one that is computed of which a thread holds its own points.
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
        """Of a tile."""
        return _LANES * self.across

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.rows * self.warps

    @property
    def threads(self) -> int:
        """Of a block."""
        return _LANES * self.across * self.warps


@dataclass(frozen=True)
class _Needs3:
    """What a kernel for some equations needs, whatever its tile.

    Attributes:
        planes: of shared memory, by (steps, planes ahead).
        kept: numbers in registers for each point of a thread, by planes held and steps.
        given: numbers of a level for each point.
        radii: what a step reaches.
        reach: planes that all levels of a step read above, one after the other.
        n_fields: fields.
        item: bytes of a number.
        operations: of a step at a point.
        words: read and written in shared memory for a point and step, by planes held and rows.
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
        """Of a block."""
        (planes,) = (n for *key, n in self.planes if key == [it.steps_per_block, it.ahead])
        return planes * it.columns * it.height * self.item

    def halo(self, it: Tile3) -> tuple[int, int]:
        """Rows and columns of a tile before those that it writes."""
        y, x = (it.steps_per_block * radius for radius in self.radii[1:])
        return y, round_up(x, _SECTOR_BYTES // self.item)

    def written(self, it: Tile3) -> tuple[int, int]:
        """Rows and columns that a tile writes: what all steps leave, of columns whole sectors."""
        y, x = self.halo(it)
        unit = _SECTOR_BYTES // self.item
        right = it.steps_per_block * self.radii[2]
        return it.height - 2 * y, (it.columns - x - right) // unit * unit

    def fits(self, it: Tile3) -> bool:
        """Whether the kernel can be compiled with a tile, and has something to write."""
        shared = self.shared_bytes(it)
        return (
            min(self.written(it)) > 0
            and shared <= _MOST_SHARED
            and it.blocks * (shared + 1024) <= _OF_SM
        )

    def is_light(self, it: Tile3) -> bool:
        """Whether it should not spill, and compiles soon."""
        numbers = self.kept[it.held][it.steps_per_block] + self.given + 1.5 + 5 * it.held
        registers = numbers * it.rows * self.item / 4 + _BESIDE
        operations = it.steps_per_block * it.rows * self.operations
        threads = round_up(it.threads, _LANES * _WARPS_TOGETHER)
        most = min(255, _REGISTERS // (threads * it.blocks) // 8 * 8)
        return registers <= most and operations <= _MOST_OPERATIONS

    def cost(self, it: Tile3) -> float:
        """Turns of the clock for a point and step, about: what a multiprocessor takes from memory,
        once a launch; what it reads in shared memory and computes, by the share of a tile that is
        written. Neither hides the other fully, and more warps hide more.

        As the wave equation on an H200 (1024^3, float64, 2026-11-22): of order 2 with 2, 3 and 4
        steps 168, 218 and 193 G points and steps a second, of order 4 with 1 and 2 steps 87 and
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
    """Why the kernel cannot have these equations, as a sentence for the user."""
    if not equations_3d_parameters(problem):
        n = n_planes(equations_of(problem), 1, 1)
        return (
            f"{n} planes, which one step keeps of its fields and stages, do not fit into shared "
            "memory and registers"
        )
    return None


def equations_3d_parameters(problem: Problem) -> tuple[Parameters, ...]:
    """Tiles worth trying, the best guess first (the keys are those of `Tile3`). Along faces not
    with so many steps that a frame would be loaded for a few points of each tile.
    """
    proposed = _proposed(_needs(problem))
    if all(problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)):
        return proposed
    return (
        tuple(it for it in proposed if has_frame(problem, it[STEPS_PER_BLOCK], _EDGE)) or proposed
    )


@functools.lru_cache(maxsize=64)
def _proposed(needs: _Needs3) -> tuple[Parameters, ...]:
    """Finding out takes a while."""
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
    """The kernel for a problem with certain parameters (`Tile3`).

    Raises:
        ValueError: the tile does not fit.
    """
    tile, needs = Tile3(**parameters), _needs(problem)
    if not needs.fits(tile):
        msg = f"these equations do not fit into {tile}: take more rows and columns, or fewer steps"
        raise ValueError(msg)

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
        stream=Stream(axis=0, repeated=2 * steps * needs.reach + steps * len(levels) - 1, unit=1),
        line=_SECTOR_BYTES,
        beside=beside,
    )
