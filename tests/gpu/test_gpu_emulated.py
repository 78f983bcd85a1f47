"""Without a GPU: what plain.cu, ghosts.cu and frame.cu compute, run on the host, against the
reference.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.cases import CUSTOM, boundary_of, make_problem, mixed_boundaries, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER, at, emulate
from tetris_sim.gpu_kernels.boundary.domain import THREADS as GHOST_THREADS
from tetris_sim.gpu_kernels.boundary.domain import domain_argument
from tetris_sim.gpu_kernels.boundary.extents import (
    Extent,
    frame_of,
    tile_of_frame,
    tiles_of,
    without_frame,
)
from tetris_sim.gpu_kernels.boundary.ghosts import (
    frame_defines,
    ghost_stages,
    ghosts_defines,
    told_tiles,
)
from tetris_sim.gpu_kernels.common.layout import (
    Box3,
    PitchedField,
    box_argument,
    boxes_argument,
    memory_argument,
    pitch_slab,
    term_defines,
    term_weights,
)
from tetris_sim.model import reference
from tetris_sim.model.deep_ghosts import Sides, contradictions, free_sides, lasting_sides
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

CASES = [  # stencil, shape, steps at once
    ("heat-1d", (400,), 9),
    ("star-1d5p", (90,), 4),
    ("heat-2d", (60, 75), 5),
    ("star-2d13p", (45, 50), 2),
    ("box-2d25p", (41, 70), 3),
    ("skew", (41, 70), 3),
    ("heat-3d", (23, 26, 40), 3),
    ("box-3d27p", (17, 19, 37), 2),
    ("lopsided", (21, 19, 52), 2),
]


THREADS = 64  # of a block of frame.cu; enough for two warps
SWEEP_BLOCK = (32, 2, 1)


class Memory:
    """Two arrays as a GPU has them, on the host; what nobody wrote is NaN."""

    def __init__(self, problem: Problem, state: Field, depth: int = 1) -> None:
        self.problem, self.slab = problem, Slab.whole(problem.grid)
        self.layout: PitchedField = pitch_slab(problem, self.slab, depth)
        n = self.layout.n_bytes // self.layout.dtype.itemsize
        self.now, self.then = (np.full(n, np.nan, problem.dtype) for _ in "ab")
        self.ranges = tuple((0, length) for length in problem.grid.shape)
        self.layout.view(self.now, self.ranges)[...] = state
        self.argument = memory_argument(*self.layout.pitches, self.layout.within)

    def owned(self, flat: npt.NDArray[Any]) -> Field:
        return np.array(self.layout.view(flat, self.ranges))


def sweep_grid(box: Box3) -> tuple[int, int, int]:
    """Few blocks along z, so that threads of plain.cu go on."""
    z, y, x = (high - low for low, high in box)
    return -(-x // SWEEP_BLOCK[0]), -(-y // SWEEP_BLOCK[1]), -(-z // 2)


def wide_enough(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """As many points more along x as a line of memory has of float16 more than of float32."""
    return (*shape[:-1], shape[-1] + 32 * (dtype == "float16"))


def fill_ghosts(memory: Memory, sides: Sides, depth: int) -> None:
    problem, slab = memory.problem, memory.slab
    domain = domain_argument(problem, slab, depth)
    for only, boxes in ghost_stages(problem, slab, sides, depth):
        tiles = told_tiles(problem, slab, only)(*boxes(Extent(0)))
        if len(tiles):
            field = memory.now[memory.layout.origin :]
            arguments = (at(field), memory.argument, at(tiles), at(domain))
            emulate("ghosts.cu", ghosts_defines(problem, depth)).launch(
                "ghosts", (len(tiles), 1, 1), (GHOST_THREADS, 1, 1), arguments
            )


def advance_plainly(memory: Memory, steps: int) -> Field:
    problem, slab = memory.problem, memory.slab
    library, weights = emulate("plain.cu", term_defines(problem)), term_weights(problem)
    outer = Extent(0).of(problem, slab)
    box, grid = box_argument(outer), sweep_grid(outer)
    for _ in range(steps):
        fill_ghosts(memory, free_sides(slab), 1)
        now, then = (flat[memory.layout.origin :] for flat in (memory.now, memory.then))
        library.launch(
            "sweep", grid, SWEEP_BLOCK, (at(now), at(then), memory.argument, box, weights)
        )
        memory.now, memory.then = memory.then, memory.now
    return memory.owned(memory.now)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(("name", "shape", "depth"), CASES)
def test_a_frame_has_the_bits_of_sweeps_and_nothing_else_is_written(
    name: str, shape: tuple[int, ...], depth: int, dtype: str
) -> None:
    stencil = stencil_of(name)
    boundaries = [boundary for _, boundary in mixed_boundaries(stencil.ndim)]
    # Each kind everywhere; half of the pairs of them, the other half with other stencils.
    usual = [*boundaries[:5], *boundaries[5 + len(shape) % 2 :: 2]]
    boundaries = usual if dtype == "float64" else boundaries[5::4]
    shape = wide_enough(shape, dtype)
    for boundary in boundaries:
        problem, state = make_problem(stencil, boundary, dtype=dtype, shape=shape)
        swept = advance_plainly(Memory(problem, state), depth)
        expected = reference.advance(state, problem, depth)
        largest = max(
            reference.largest_magnitude(state, problem),
            reference.largest_magnitude(expected, problem),
        )
        np.testing.assert_allclose(
            swept, expected, rtol=0, atol=reference.tolerance(problem, depth, largest)
        )
        memory = Memory(problem, state)
        slab, layout = memory.slab, memory.layout
        outer = Extent(0).of(problem, slab)
        inner = without_frame(problem, slab, outer, depth)
        assert inner is not None
        tiles: list[Box3] = []
        capacity = 0
        for box in frame_of(outer, inner):
            tile, level = tile_of_frame(problem, slab, box, depth)
            tiles += tiles_of(box, tile)
            capacity = max(capacity, level)
        if not tiles:
            assert all(map(boundary.periodic, range(stencil.ndim)))
            continue
        library = emulate("frame.cu", frame_defines(problem, depth))
        there, domain, weights = (
            boxes_argument(tiles),
            domain_argument(problem, slab),
            term_weights(problem),
        )
        now, then = (flat[layout.origin :] for flat in (memory.now, memory.then))
        arguments = (
            at(now),
            at(then),
            memory.argument,
            weights,
            at(there),
            at(domain),
            ctypes.c_int(capacity),
        )
        shared_bytes = 2 * capacity * layout.dtype.itemsize
        library.launch("frame", (len(tiles), 1, 1), (THREADS, 1, 1), arguments, shared_bytes)
        inside = tuple((low, high) for low, high in inner[3 - stencil.ndim :])
        layout.view(swept_flat := np.full_like(memory.now, np.nan), memory.ranges)[...] = swept
        layout.view(swept_flat, inside)[...] = np.nan
        np.testing.assert_array_equal(memory.then, swept_flat)
        np.testing.assert_array_equal(memory.owned(memory.now), state)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(("name", "shape", "depth"), CASES)
def test_ghosts_that_last_are_filled_once_for_a_block_of_steps(
    name: str, shape: tuple[int, ...], depth: int, dtype: str
) -> None:
    stencil, n_lasting = stencil_of(name), 0
    for kind, boundary in mixed_boundaries(stencil.ndim):
        problem, state = make_problem(stencil, boundary, dtype=dtype, shape=shape, mirrored=True)
        memory = Memory(problem, state, depth)
        sides = lasting_sides(problem, memory.slab)
        if not all(itertools.chain(*sides)) or contradictions(problem, memory.slab):
            continue
        n_lasting += 1
        fill_ghosts(memory, sides, depth)
        reach = [depth * radius for radius in stencil.radii]
        around = tuple((-r, n + r) for r, n in zip(reach, shape, strict=True))
        found = without_faces(
            np.array(memory.layout.view(memory.now, around)), problem.stencil, depth
        )
        expected = reference.advance(state, problem, depth)
        largest = max(
            reference.largest_magnitude(state, problem),
            reference.largest_magnitude(expected, problem),
        )
        allowed = reference.tolerance(problem, depth, largest)
        np.testing.assert_allclose(found, expected, rtol=0, atol=allowed, err_msg=kind)
    assert n_lasting >= (1 if name in CUSTOM else 3)


def without_faces(field: Field, stencil: Stencil, steps: int) -> Field:
    """So many steps of the points that have all their neighbours; the field gets smaller by the
    radius at each.
    """
    for _ in range(steps):
        shape = [n - 2 * r for n, r in zip(field.shape[1:], stencil.radii, strict=True)]
        total = np.zeros((field.shape[0], *shape), field.dtype)
        for offset, weight in zip(stencil.offsets, stencil.weights, strict=True):
            starts = [r + o for r, o in zip(stencil.radii, offset, strict=True)]
            window = tuple(slice(start, start + n) for start, n in zip(starts, shape, strict=True))
            total += field.dtype.type(weight) * field[(slice(None), *window)]
        field = total
    return field


def test_the_host_runs_what_the_gpu_would() -> None:
    problem, state = make_problem(
        stencil_of("heat-2d"), boundary_of("walls", 2), shape=(20, 30), dtype="float64"
    )
    found = advance_plainly(Memory(problem, state), 1)
    assert not np.array_equal(found, state)
    np.testing.assert_allclose(found, reference.advance(state, problem, 1), rtol=0, atol=1e-14)
