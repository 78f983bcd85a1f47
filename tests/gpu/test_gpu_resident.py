"""gpu.resident without a GPU: grids in tiles that stay in registers, all blocks of threads at a
time, with the bits of cpu.plain.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cases import BOUNDARIES, FACES, boundary_of, make_problem, run, stencil_of
from tests.support.emulator import host_gpu
from tests.support.emulator.emulation import COMPILER, NO_COMPILER, emulate
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.device import compile_source, find_source
from tetris_sim.gpu_kernels.resident.method import (
    ResidentMethod,
    ResidentTile,
    proposed_tiles,
    resident_defines,
)
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.grid import on_three
from tetris_sim.model.method import STEPS_PER_BLOCK
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

METHOD = ResidentMethod()
emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

# steps, planes, rows, columns, warps_z, warps_y, blocks, copies, rims
FLAT = ResidentTile(2, 1, 5, 2, 1, 2, 1, 2)
THIN = ResidentTile(3, 1, 4, 1, 1, 3, 1, 1)
DEEP = ResidentTile(1, 2, 2, 1, 2, 2, 1, 1)
RIMS = ResidentTile(1, 2, 3, 1, 2, 2, 1, 1, 1)
FAR = ResidentTile(2, 3, 2, 1, 2, 3, 1, 2)
CONTRARY = Boundary(((FACES["robin"], FACES["neumann"]), (FACES["dirichlet"], FACES["fixed"])))


class ManyBlocks(HostGpu):
    """A GPU that holds as many blocks as a test wants."""

    def slots(self, function: Any, threads: int, shared_bytes: int) -> int:
        return 1000


def parameters_of(tile: ResidentTile, stretches: int = 3) -> dict[str, int]:
    return {STEPS_PER_BLOCK: stretches * tile.steps, **dataclasses.asdict(tile)}


@emulated
@pytest.mark.parametrize(
    ("name", "kind", "shape", "tile", "dtype"),
    [
        ("heat-2d", "rings", (23, 130), FLAT, "float64"),  # 3 x 3 tiles, unequal
        ("box-2d9p", "walls", (25, 61), THIN, "float64"),
        ("roberts-2d", "walls", (19, 45), THIN, "float64"),  # that reads one row, sideways
        ("heat-2d", "contrary", (19, 45), FLAT, "float32"),  # rows that lie in one tile
        ("heat-2d", "rings", (3, 11), THIN, "float64"),  # less than half a tile
        ("heat-3d", "rings", (8, 7, 32), DEEP, "float64"),  # that end where they begin
        ("heat-3d", "mixed", (9, 8, 35), FAR, "float64"),
        ("heat-3d", "rings", (8, 18, 32), RIMS, "float64"),  # rims that move at each step
        ("heat-3d", "walls", (12, 12, 29), RIMS, "float64"),
        ("heat-3d", "mixed", (4, 6, 32), RIMS, "float32"),  # one tile
    ],
)
def test_all_tiles_together_have_the_bits_of_single_sweeps(
    name: str,
    kind: str,
    shape: tuple[int, ...],
    tile: ResidentTile,
    dtype: str,
    teams: dict[int, ThreadTeam],
) -> None:
    stencil = stencil_of(name)
    boundary = boundary_of(kind, stencil.ndim) if kind in BOUNDARIES else CONTRARY
    problem, _ = make_problem(stencil, boundary, dtype=dtype, shape=shape, n_fields=2)
    blocks = (1, 3 * tile.steps, 4 * tile.steps + 1)
    gpu: Any = ManyBlocks()
    found = run(METHOD, problem, parameters_of(tile), gpu, blocks)
    np.testing.assert_array_equal(found, run(CpuPlain(), problem, {}, teams[2], blocks))
    # of two fields: a launch of three stretches twice, one of one stretch, two single steps
    single = sum(blocks) - 7 * tile.steps
    assert gpu.launches.count("resident") == 2 * (3 if tile.steps > 1 else 2)
    assert gpu.launches.count("sweep") == 2 * (single if tile.steps > 1 else single + 1)


@emulated
@pytest.mark.parametrize(
    ("tile", "header", "mistake", "instead"),
    [
        (FLAT, None, "    await_others(flags, before + exchange + 1);\n", ""),
        (FLAT, None, "    load_ring(ring, to, ", "//"),
        (RIMS, "resident_rims.cuh", "    while (__any_sync(~0u, !there))", "    if (false)"),
        (RIMS, "resident_rims.cuh", "        store_rims(patch, ", "//"),
        (RIMS, "resident_rims.cuh", "fetch_rims(ring, sides, place, 0);", ""),
        (RIMS, "resident_rims.cuh", "fetch_rims(ring, sides, place, 1);", ""),
        (RIMS, "resident_rims.cuh", "rims + time % 2 * again", "rims"),
    ],
)
def test_a_block_that_does_not_wait_is_found(
    tile: ResidentTile,
    header: str | None,
    mistake: str,
    instead: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    teams: dict[int, ThreadTeam],
) -> None:
    source = find_source("resident.cu").read_text(encoding="utf-8")
    if header is not None:
        text = find_source(header).read_text(encoding="utf-8").replace("#pragma once", "")
        source = source.replace(f'#include "{header}"', text)
    assert source.count(mistake) == 1
    wrong = tmp_path / "resident.cu"
    wrong.write_text(source.replace(mistake, instead), encoding="utf-8")
    monkeypatch.setattr(
        host_gpu,
        "emulate",
        lambda name, defines: emulate(wrong if name == "resident.cu" else name, defines),
    )
    name, shape = ("heat-3d", (8, 18, 32)) if tile.rims else ("heat-2d", (23, 130))
    stencil = stencil_of(name)
    problem, _ = make_problem(stencil, boundary_of("rings", stencil.ndim), shape=shape)
    steps = (3 * tile.steps,)
    gpu: Any = ManyBlocks()
    found = run(METHOD, problem, parameters_of(tile), gpu, steps)
    assert not np.array_equal(found, run(CpuPlain(), problem, {}, teams[2], steps))


@emulated
def test_a_gpu_that_cannot_run_all_blocks_at_a_time_says_so() -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=(23, 130))
    gpu: Any = HostGpu()
    with pytest.raises(UnsupportedError, match=r"needs 9 blocks of threads at a time.* has 2"):
        METHOD.prepare(problem, Slab.whole(problem.grid), parameters_of(FLAT), gpu)


@emulated
def test_a_slab_with_neighbours_is_swept() -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(23, 130))
    slab = dataclasses.replace(
        Slab.whole(problem.grid), start=(8, 0), stop=(16, 130), halo=((2, 2), (0, 0))
    )
    (only,) = METHOD.passes(problem, slab, parameters_of(FLAT))
    assert only.depth == 1
    # and a grid for which the tiles are too small
    large = problem.on_shape((500, 500))
    (only,) = METHOD.passes(large, Slab.whole(large.grid), parameters_of(FLAT))
    assert only.depth == 1


def problem_of(name: str, shape: tuple[int, ...], dtype: str = "float64") -> Problem:
    stencil = stencil_of(name)
    small = (8,) * stencil.ndim  # no field of the large grid is made
    problem, _ = make_problem(stencil, boundary_of("rings", stencil.ndim), dtype=dtype, shape=small)
    return problem.on_shape(shape)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "reason"),
    [
        ("heat-1d", (1000,), "float64", "lines are faster"),
        ("heat-2d", (100, 100), "float16", "type is float16"),
        ("star-2d9p", (100, 100), "float64", "reads 2 points far"),
        ("box-3d27p", (64, 64, 64), "float64", "off the axes"),
        ("heat-2d", (4096, 4096), "float64", "16777216 points"),
        ("heat-3d", (1, 64, 64), "float64", "4096 points"),
    ],
)
def test_what_it_refuses(name: str, shape: tuple[int, ...], dtype: str, reason: str) -> None:
    assert reason in str(METHOD.refusal(problem_of(name, shape, dtype)))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("heat-2d", (1024, 1024)),
        ("box-2d9p", (512, 512)),
        ("heat-2d", (256, 256)),
        ("heat-3d", (128, 128, 128)),
        ("heat-3d", (64, 64, 64)),
        ("heat-3d", (50, 60, 70)),
    ],
)
def test_proposals_cover_the_grid_with_blocks_that_fit(name: str, shape: tuple[int, ...]) -> None:
    problem = problem_of(name, shape)
    assert METHOD.refusal(problem) is None
    three = on_three(shape, 1)
    periodic = three[0] > 1, True, True
    tiles = proposed_tiles(three, periodic, 8, 3)
    assert 1 <= len(tiles) == len(METHOD.parameters(problem))
    for tile in tiles:
        cut = tile.cut(three, periodic)
        assert cut is not None
        assert cut.blocks <= 132 * tile.blocks
        assert all(t * o >= n for t, o, n in zip(cut.tiles, cut.own, three, strict=True))


def test_rims_move_at_each_step_where_tiles_are_full() -> None:
    ring = True, True, True
    assert RIMS.cut((8, 18, 32), ring) is not None
    assert RIMS.cut((9, 18, 32), ring) is None
    assert RIMS.cut((8, 20, 32), ring) is None
    assert RIMS.cut((8, 18, 40), ring) is None  # rows in two tiles
    assert dataclasses.replace(RIMS, steps=2).cut((8, 18, 32), ring) is None
    assert proposed_tiles((128, 128, 128), ring, 8, 1)[0].rims
    assert not any(tile.rims for tile in proposed_tiles((50, 60, 70), ring, 8, 9))


def test_rims_take_memory_beside_both_copies() -> None:
    problem = problem_of("heat-3d", (64, 128, 128))
    whole = Slab.whole(problem.grid)
    tile = proposed_tiles((64, 128, 128), (True, True, True), 8, 1)[0]
    cut = tile.cut((64, 128, 128), (True, True, True))
    assert tile.rims
    assert cut is not None
    # first and last planes and rows of each tile, twice
    outer = cut.blocks * 2 * (sum(cut.own[:2])) * 128 * 8
    bare = dataclasses.replace(tile, rims=0)
    memory = METHOD.memory(problem, whole, parameters_of(tile))
    assert memory == METHOD.memory(problem, whole, parameters_of(bare)) + 2 * outer


@pytest.mark.parametrize(
    ("name", "shape"), [("heat-2d", (1, 1024, 1024)), ("heat-3d", (128, 128, 128))]
)
def test_the_best_guess_compiles_without_spilling(name: str, shape: tuple[int, int, int]) -> None:
    problem = problem_of(name, shape[3 - stencil_of(name).ndim :])
    ring = shape[0] > 1, True, True
    best = proposed_tiles(shape, ring, 8, 1)[0]
    cut = best.cut(shape, ring)
    assert cut is not None
    compiled = compile_source("resident.cu", resident_defines(problem, best, cut), "sm_90")
    assert compiled.spilled == 0
    assert compiled.registers["resident"] * best.threads * best.blocks <= 65536
