"""cpu.tessellate gives the bits of cpu.plain, whatever the row kernel, tiles, threads, blocks,
sizes and halos.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import (
    HALOS_AND_KINDS,
    boundary_of,
    make_problem,
    run,
    run_with_halo,
    stencil_of,
)
from tetris_sim.cpu_kernels.common.caches import Caches
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.cpu_kernels.tessellate.method import (
    AUTO,
    LIFTED,
    QUADRUPLE,
    SKEWED,
    TessellateMethod,
    candidates,
)
from tetris_sim.cpu_kernels.tessellate.rows import stacked
from tetris_sim.model.slab import Slab

KINDS = ("rings", "walls", "mixed")
ROWS = {"auto": AUTO, "skewed": SKEWED, "quadruple": QUADRUPLE, "lifted": LIFTED}
ROWS["unrolled"] = LIFTED
# Odd lengths, so that lanes overlap and vectors are left over; the last ones are so small that
# nothing is cut or lifted.
SHAPES = {1: ((403,), (61,), (5,)), 2: ((45, 83), (22, 150), (5, 7)), 3: ((19, 17, 43), (5, 4, 6))}
TILES = (
    {"tile_x": 8, "tile_y": 9, "tile_z": 5},
    {"tile_x": 33, "tile_y": 0, "tile_z": 7},
    {"tile_x": 0, "tile_y": 6},
)
CASES: list[Any] = [  # stencil, row kernel, bytes of a vector, rows together, dtype
    ("heat-1d", "auto", 64, 1, "float64"),
    ("heat-1d", "skewed", 64, 1, "float32"),
    ("heat-1d", "quadruple", 32, 1, "float64"),
    ("heat-1d", "lifted", 64, 4, "float32"),
    pytest.param("star-1d5p", "quadruple", 64, 1, "float64", marks=pytest.mark.full),
    pytest.param("star-1d5p", "lifted", 32, 1, "float64", marks=pytest.mark.full),
    ("shift", "quadruple", 16, 1, "float32"),
    pytest.param("shift", "lifted", 64, 1, "float32", marks=pytest.mark.full),
    ("heat-2d", "auto", 64, 1, "float32"),
    ("heat-2d", "skewed", 16, 1, "float64"),
    ("heat-2d", "lifted", 64, 4, "float64"),
    pytest.param("star-2d13p", "skewed", 64, 1, "float64", marks=pytest.mark.full),
    ("star-2d13p", "lifted", 64, 4, "float64"),
    ("box-2d9p", "quadruple", 64, 1, "float64"),
    pytest.param("box-2d9p", "lifted", 32, 4, "float64", marks=pytest.mark.full),
    pytest.param("box-2d25p", "skewed", 64, 1, "float64", marks=pytest.mark.full),
    ("box-2d25p", "lifted", 64, 2, "float64"),
    pytest.param("skew", "quadruple", 32, 1, "float32", marks=pytest.mark.full),
    ("skew", "lifted", 64, 2, "float32"),
    ("heat-3d", "auto", 64, 1, "float64"),
    ("heat-3d", "quadruple", 64, 1, "float32"),
    ("heat-3d", "lifted", 64, 2, "float64"),
    ("box-3d27p", "skewed", 32, 1, "float64"),
    ("box-3d27p", "lifted", 64, 2, "float64"),
    ("heat-1d", "unrolled", 32, 1, "float64"),
    pytest.param("box-2d25p", "unrolled", 32, 2, "float32", marks=pytest.mark.full),
    ("skew", "unrolled", 64, 3, "float64"),
    ("box-3d27p", "unrolled", 32, 2, "float64"),
    pytest.param("lopsided", "unrolled", 16, 2, "float64", marks=pytest.mark.full),
    pytest.param("flat", "lifted", 64, 4, "float32", marks=pytest.mark.full),
    pytest.param("lopsided", "quadruple", 32, 1, "float64", marks=pytest.mark.full),
    ("lopsided", "lifted", 64, 4, "float64"),
]


@pytest.mark.parametrize(("name", "rows", "width", "jam", "dtype"), CASES)
def test_a_row_kernel_gives_the_bits_of_plain_for_any_tiles_threads_and_blocks(
    name: str, rows: str, width: int, jam: int, dtype: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(name)
    kernel = {"rows": ROWS[rows], "width": width, "jam": jam}
    kernel |= {"unroll": 4 if rows == "unrolled" else 1}
    for number, (kind, shape) in enumerate(
        (kind, shape) for kind in KINDS for shape in SHAPES[stencil.ndim]
    ):
        shape = tuple(max(pair) for pair in zip(shape, stencil.radii, strict=True))
        problem, _ = make_problem(
            stencil, boundary_of(kind, stencil.ndim), dtype=dtype, shape=shape, n_fields=2
        )
        expected = run(CpuPlainMethod(), problem, {}, teams[2])
        for threads, (size, tile) in zip((1, 2, 3), enumerate(TILES), strict=True):
            steps = 1 + (number + size) % 4
            found = run(
                TessellateMethod(),
                problem,
                {**kernel, **tile, "steps_per_block": steps, "planes": (1, jam)[size % 2]},
                teams[threads],
            )
            assert found.tobytes() == expected.tobytes(), (kind, shape, tile, steps, threads)


@pytest.mark.parametrize("rows", ["auto", "lifted"])
@pytest.mark.parametrize(("name", "halo", "kind"), HALOS_AND_KINDS)
def test_a_slab_with_halos_gives_the_bits_of_plain(
    name: str, halo: tuple[tuple[int, int], ...], kind: str, rows: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(name)
    shape = {1: (121,), 2: (61, 83), 3: (31, 29, 43)}[stencil.ndim]
    problem, _ = make_problem(stencil, boundary_of(kind, stencil.ndim), shape=shape)
    parameters = {"rows": ROWS[rows], "jam": 2, "width": 32, "steps_per_block": 3, **TILES[0]}
    results = [
        run_with_halo(method, problem, halo, chosen, teams[2])
        for method, chosen in ((CpuPlainMethod(), {}), (TessellateMethod(), parameters))
    ]
    for plain, tessellated in zip(*results, strict=True):
        assert plain.tobytes() == tessellated.tobytes()


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_parameters_that_are_not_given_are_those_of_the_best_guess(
    ndim: int, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(f"heat-{ndim}d")
    problem, _ = make_problem(stencil, boundary_of("mixed", ndim), shape=SHAPES[ndim][0])
    assert (
        run(TessellateMethod(), problem, {}, teams[2]).tobytes()
        == run(CpuPlainMethod(), problem, {}, teams[2]).tobytes()
    )


@pytest.mark.parametrize(
    "name", ["heat-1d", "star-1d5p", "heat-2d", "box-2d49p", "heat-3d", "box-3d27p"]
)
@pytest.mark.parametrize("cores", [2, 64])
@pytest.mark.parametrize(
    "caches", [Caches(), Caches(l1=48 << 10, l2=256 << 10, l3=1 << 20), Caches(l3=64 << 20)]
)
def test_candidates_are_different_and_leave_their_tiles_legal(
    name: str, caches: Caches, cores: int
) -> None:
    stencil = stencil_of(name)
    shape = {1: (1_000_000,), 2: (2000, 3000), 3: (200, 300, 400)}[stencil.ndim]
    problem, _ = make_problem(stencil, boundary_of("walls", stencil.ndim), shape=shape)
    found = candidates(problem, caches, cores)
    assert 1 <= len(found) <= 8
    assert len({tuple(sorted(parameters.items())) for parameters in found}) == len(found)
    assert all(parameters["steps_per_block"] >= 1 for parameters in found)
    assert {frozenset(parameters) for parameters in found} == {frozenset(found[0])}


@pytest.mark.parametrize(("name", "beside", "above"), [("heat-3d", 6, 4), ("box-3d27p", 6, 4)])
def test_of_two_rows_one_above_the_other_fewer_are_new_than_of_two_in_a_plane(
    name: str, beside: int, above: int
) -> None:
    offsets = stencil_of(name).offsets
    for axis, on, expected in (
        (1, 2, beside),
        (0, 1, above),
    ):  # the next ones lie `on` rows further
        rows = stacked(offsets, 2, axis).rows
        assert sum((i, j + on) not in rows for i, j in rows) == expected


@pytest.mark.parametrize(
    ("name", "width", "first", "others"),
    [
        ("heat-2d", 32, {"jam": 4}, [{"jam": 2}]),
        ("box-2d9p", 32, {"jam": 2, "unroll": 1}, [{"jam": 4, "unroll": 1}]),
        ("box-2d25p", 32, {"jam": 2, "unroll": 1}, [{"jam": 2, "unroll": 4}]),
        ("box-2d49p", 32, {"jam": 2, "unroll": 4}, [{"jam": 2, "unroll": 1}]),
        ("heat-3d", 32, {"jam": 2, "planes": 2}, [{"jam": 4, "planes": 1}]),
        (
            "box-3d27p",
            32,
            {"jam": 2, "planes": 2, "unroll": 4},
            [{"jam": 2, "planes": 1, "unroll": 1}, {"jam": 2, "planes": 2, "unroll": 1}],
        ),
        (
            "box-3d27p",
            64,
            {"jam": 2, "planes": 1, "unroll": 1},
            [{"jam": 2, "planes": 2, "unroll": 4}],
        ),
    ],
)
def test_what_is_tried_first_depends_on_weights_and_registers(
    name: str,
    width: int,
    first: dict[str, int],
    others: list[dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tetris_sim.cpu_kernels.compiled.vectors.native_width", lambda: width)
    stencil = stencil_of(name)
    shape = (300, 400) if stencil.ndim == 2 else (30, 40, 50)
    problem, _ = make_problem(stencil, boundary_of("walls", stencil.ndim), shape=shape)
    names = ("jam", "planes", "unroll")
    found = [
        {name: choice[name] for name in names if name in choice}
        for choice in candidates(problem, Caches(), 2)
    ]
    assert found[0] == first
    assert all(other in found for other in others)


def test_memory_is_that_of_two_copies(teams: dict[int, ThreadTeam]) -> None:
    problem, state = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(300, 403))
    method = TessellateMethod()
    for rows in (AUTO, LIFTED):
        parameters: dict[str, Any] = {**method.parameters(problem)[0], "rows": rows}
        claimed = method.memory(problem, Slab.whole(problem.grid), parameters)
        assert 2 * state.nbytes < claimed < 2.5 * state.nbytes
