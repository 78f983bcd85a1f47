"""cpu.stream gives the bits of cpu.plain, whatever the kernel, strips, threads, blocks, sizes and
halos.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import (
    HALOS_AND_KINDS,
    boundary_of,
    make_problem,
    run,
    run_with_halo,
    stencil_of,
)
from tetris_sim.cpu_kernels.common import layout
from tetris_sim.cpu_kernels.common.caches import Caches
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.cpu_kernels.stream import method
from tetris_sim.cpu_kernels.stream.kernels import KernelShape, best_shape, radii_of
from tetris_sim.cpu_kernels.stream.method import StreamMethod, candidates
from tetris_sim.cpu_kernels.stream.work import plan_work
from tetris_sim.model.slab import Slab

KINDS = ("rings", "walls", "mixed")
# Longer than several strips; not a multiple of anything; as short as a stencil allows.
SHAPES = {
    1: ((3001,), (203,), (5,)),
    2: ((37, 409), (45, 83), (5, 7)),
    3: ((19, 41, 203), (11, 17, 43), (5, 4, 6)),
}
STRIPS = (
    {"tile_x": 1, "tile_y": 1, "steps_per_block": 3},
    {"tile_x": 200, "tile_y": 12, "steps_per_block": 5},
    {"tile_x": 4000, "tile_y": 100, "steps_per_block": 16},
)
CASES: list[Any] = [  # stencil, bytes of a vector, kernel, dtype
    ("heat-1d", 64, {"fused": 8}, "float64"),
    pytest.param("heat-1d", 32, {"fused": 3}, "float64", marks=pytest.mark.full),
    ("star-1d5p", 64, {"fused": 4}, "float32"),
    ("star-1d5p", 16, {"fused": 1}, "float64"),
    ("shift", 64, {"fused": 2}, "float64"),
    ("heat-2d", 64, {"jam": 4}, "float64"),
    pytest.param("heat-2d", 32, {"jam": 2}, "float64", marks=pytest.mark.full),
    pytest.param("star-2d13p", 64, {"jam": 2}, "float64", marks=pytest.mark.full),
    pytest.param("box-2d9p", 16, {"jam": 2}, "float64", marks=pytest.mark.full),
    ("box-2d25p", 64, {"jam": 2}, "float32"),
    ("box-2d49p", 64, {"jam": 1}, "float64"),
    ("skew", 64, {"jam": 3}, "float64"),
    ("heat-3d", 64, {"jam": 2, "jam_y": 1}, "float64"),
    ("heat-3d", 32, {"jam": 1, "jam_y": 4}, "float64"),
    ("box-3d27p", 64, {"jam": 1, "jam_y": 2}, "float64"),
    ("flat", 64, {"jam": 2, "jam_y": 2}, "float64"),
    ("lopsided", 64, {"jam": 2, "jam_y": 2}, "float32"),
]


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All memory that the stepper takes lies between numbers that nobody may change, and begins as
    NaN.
    """
    taken: list[Any] = []
    rim = 4096

    def allocate(n_bytes: int, dtype: np.dtype[Any], offset: int) -> Any:
        whole = original(n_bytes + 2 * rim, dtype, offset)
        whole.fill(np.nan)
        edge = rim // dtype.itemsize
        whole[:edge] = whole[-edge:] = 1.25
        taken.append((whole, edge))
        return whole[edge:-edge]

    original = layout.allocate_aligned
    monkeypatch.setattr(layout, "allocate_aligned", allocate)
    monkeypatch.setattr(method, "allocate_aligned", allocate)
    return taken


@pytest.mark.parametrize(("name", "width", "kernel", "dtype"), CASES)
def test_any_kernel_strips_threads_and_blocks_give_the_bits_of_plain(
    name: str,
    width: int,
    kernel: dict[str, int],
    dtype: str,
    teams: dict[int, ThreadTeam],
    canaries: list[Any],
) -> None:
    stencil = stencil_of(name)
    for number, (kind, shape) in enumerate(
        (kind, shape) for kind in KINDS for shape in SHAPES[stencil.ndim]
    ):
        shape = tuple(max(pair) for pair in zip(shape, stencil.radii, strict=True))
        problem, _ = make_problem(
            stencil, boundary_of(kind, stencil.ndim), dtype=dtype, shape=shape, n_fields=2
        )
        expected = run(CpuPlainMethod(), problem, {}, teams[2], blocks=(1, 20, 4))
        canaries.clear()
        for size, strips in enumerate(STRIPS):
            threads = 1 + (number + size) % 3
            parameters = {**kernel, **strips, "width": width}
            found = run(StreamMethod(), problem, parameters, teams[threads], blocks=(1, 20, 4))
            assert found.tobytes() == expected.tobytes(), (kind, shape, strips, threads)
        for whole, edge in canaries:
            assert (whole[:edge] == 1.25).all(), (kind, shape)
            assert (whole[-edge:] == 1.25).all(), (kind, shape)


@pytest.mark.parametrize(("name", "halo", "kind"), HALOS_AND_KINDS)
def test_a_slab_with_halos_gives_the_bits_of_plain(
    name: str, halo: tuple[tuple[int, int], ...], kind: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(name)
    shape = {1: (121,), 2: (61, 83), 3: (31, 29, 43)}[stencil.ndim]
    problem, _ = make_problem(stencil, boundary_of(kind, stencil.ndim), shape=shape)
    plain = run_with_halo(CpuPlainMethod(), problem, halo, {}, teams[2])
    for strips in STRIPS:
        streamed = run_with_halo(StreamMethod(), problem, halo, {**strips, "width": 32}, teams[2])
        assert [field.tobytes() for field in streamed] == [field.tobytes() for field in plain]


@pytest.mark.parametrize(
    "name", ["heat-1d", "star-1d5p", "heat-2d", "box-2d49p", "heat-3d", "box-3d27p"]
)
@pytest.mark.parametrize(
    "caches", [Caches(), Caches(l1=48 << 10, l2=256 << 10, l3=1 << 20), Caches(l2=4 << 20)]
)
def test_candidates_are_different_and_complete(name: str, caches: Caches) -> None:
    stencil = stencil_of(name)
    shape = {1: (1_000_000,), 2: (2000, 3000), 3: (200, 300, 400)}[stencil.ndim]
    problem, _ = make_problem(stencil, boundary_of("walls", stencil.ndim), shape=shape)
    found = candidates(problem, caches)
    assert 1 <= len(found) <= 8
    assert len({tuple(sorted(parameters.items())) for parameters in found}) == len(found)
    assert all(parameters["steps_per_block"] >= 1 for parameters in found)
    assert {frozenset(parameters) for parameters in found} == {frozenset(found[0])}


@settings(max_examples=200, deadline=None)
@given(
    shape=st.tuples(st.integers(4, 300), st.integers(4, 300), st.integers(4, 300)),
    threads=st.integers(1, 40),
    steps=st.integers(1, 64),
)
def test_parts_are_never_narrower_than_what_they_read_beyond_their_sides(
    shape: tuple[int, int, int], threads: int, steps: int
) -> None:
    stencil = stencil_of("heat-3d")
    problem, _ = make_problem(stencil, boundary_of("walls", 3), shape=(4, 4, 4))
    slab = Slab((0, 0, 0), shape, ((0, 0),) * 3)
    work = plan_work(
        problem, slab, threads, lanes=8, shape=KernelShape((1, 2)), steps=steps, tile=(16, 128)
    )
    assert 1 <= np.prod(work.parts) <= threads
    assert 1 <= work.steps <= steps
    for n, pieces, radius in zip(shape, work.parts, radii_of(stencil.offsets), strict=True):
        assert pieces == 1 or n // pieces >= work.steps * radius


def test_memory_is_counted(teams: dict[int, ThreadTeam], canaries: list[Any]) -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=(300, 403))
    method = StreamMethod()
    claimed = method.memory(problem, Slab.whole(problem.grid), method.parameters(problem)[0])
    run(method, problem, {}, teams[1])
    used = sum(whole.nbytes - 2 * 4096 for whole, _ in canaries)
    assert used <= claimed


def test_gathering_needs_a_register_for_each_vector_in_sight() -> None:
    assert best_shape(stencil_of("heat-2d").offsets, (2, 1), 64).gather
    assert not best_shape(stencil_of("box-3d27p").offsets, (1, 2), 64).gather
    assert not best_shape(stencil_of("box-2d9p").offsets, (2, 1), 32).gather
