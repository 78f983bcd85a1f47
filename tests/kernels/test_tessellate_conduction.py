"""cpu.tessellate conducts heat with the bits of cpu.plain, whatever rows together, tiles, threads,
blocks, halos and first step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import run, run_with_halo
from conduction_cases import (
    CASES,
    RADIATION,
    Case,
    closed,
    graded,
    heating,
    mixed_faces,
    rings,
)

from tetris_sim.cpu_kernels.common.caches import Caches
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import PlainMethod
from tetris_sim.cpu_kernels.tessellate import stepper
from tetris_sim.cpu_kernels.tessellate.lifted import lift_slab
from tetris_sim.cpu_kernels.tessellate.method import TessellateMethod, candidates
from tetris_sim.cpu_kernels.tessellate.records import kind_of, make_body, record_bytes
from tetris_sim.method import Parameters
from tetris_sim.problem import Field, Problem
from tetris_sim.slab import Slab

METHOD = TessellateMethod()
NARROW = {"tile_x": 8, "tile_y": 9, "tile_z": 5, "width": 32, "jam": 2, "steps_per_block": 3}
WHOLE = {"tile_x": 0, "tile_y": 0, "tile_z": 0, "width": 32, "jam": 2, "steps_per_block": 4}
# Rows of several blocks of vectors, some with one record, some with many.
WIDE = Case("wide", (17, 203), 3, mixed_faces, heating(3, changes=True))
SHORT = Case("short rows", (9, 3), 2, mixed_faces, heating(2, changes=True))
PROBLEMS = {case.name: case.problem() for case in (*CASES, WIDE, SHORT)} | {
    "graded": graded((12, 15), mixed_faces),
    "graded, ring": graded((11, 9), rings),
}


def body_of(problem: Problem, lanes: int) -> Any:
    slab = Slab.whole(problem.grid)
    return make_body(problem, slab, lift_slab(problem, slab, lanes))


@pytest.mark.parametrize(
    "name",
    [
        *("rod", "wide", "plate, one material", "plate, float32", "block", "block, rings"),
        *("short rows", "graded", "graded, ring"),
    ],
)
def test_a_body_gets_the_bits_of_plain_for_any_tiles_threads_and_blocks(
    name: str, teams: dict[int, ThreadTeam]
) -> None:
    problem = PROBLEMS[name]
    expected = run(PlainMethod(), problem, {}, teams[2])
    for threads, tile in ((1, NARROW), (3, WHOLE)):
        found = run(METHOD, problem, tile, teams[threads])
        assert found.tobytes() == expected.tobytes(), tile


def test_the_number_of_rows_together_changes_no_bit(teams: dict[int, ThreadTeam]) -> None:
    problem = PROBLEMS["wide"]
    found = run(METHOD, problem, {**NARROW, "jam": 4}, teams[2])
    assert found.tobytes() == run(PlainMethod(), problem, {}, teams[2]).tobytes()


@pytest.mark.parametrize(
    ("shape", "halo"),
    [
        ((61,), ((6, 7),)),
        ((41, 33), ((7, 6), (0, 6))),
        ((31, 40), ((0, 0), (6, 6))),
        ((30, 14, 27), ((6, 6), (0, 0), (0, 6))),
        ((13, 31, 25), ((0, 0), (6, 7), (6, 0))),
    ],
)
def test_a_slab_with_halos_gives_the_bits_of_plain(
    shape: tuple[int, ...], halo: tuple[tuple[int, int], ...], teams: dict[int, ThreadTeam]
) -> None:
    faces = rings if halo[0] == (6, 6) else mixed_faces
    problem = Case("slab", shape, 4, faces, heating(4, changes=True)).problem()
    methods: list[tuple[Any, Parameters]] = [(PlainMethod(), {}), (METHOD, NARROW)]
    results = [run_with_halo(method, problem, halo, it, teams[2]) for method, it in methods]
    for plain, tessellated in zip(*results, strict=True):
        assert plain.tobytes() == tessellated.tobytes()


def test_numbers_are_those_of_the_step_at_which_a_state_is(
    teams: dict[int, ThreadTeam], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PROBLEMS["plate"]

    def advanced(state: Field, step: int, steps: int, tile: Parameters) -> Field:
        whole = METHOD.prepare(problem, Slab.whole(problem.grid), tile, teams[2])
        whole.load(lambda slab: state[(slice(None), *map(slice, slab.start, slab.stop))], step)
        whole.advance(steps)
        return np.asarray(whole.interior())

    begin = problem.initial(Slab.whole(problem.grid))
    through = advanced(begin, 0, 9, NARROW)
    assert advanced(advanced(begin, 0, 4, NARROW), 4, 5, WHOLE).tobytes() == through.tobytes()
    assert advanced(begin, 3, 9, NARROW).tobytes() != through.tobytes()
    monkeypatch.setattr(stepper, "_MOST_NUMBERS", 1)  # a block for every step
    assert advanced(begin, 0, 9, NARROW).tobytes() == through.tobytes()


def test_equal_records_are_kept_once_and_runs_of_one_are_tagged() -> None:
    one = body_of(Case("one", (20, 160), 1, closed).problem(), 4)
    assert len(np.unique(one.numbers)) == 1
    assert (one.tags[1:-1] == one.numbers[0]).all()
    several = body_of(PROBLEMS["wide"], 4)
    assert 1 < len(np.unique(several.numbers)) < several.numbers.size / 4
    assert {True, False} == set((several.tags[1:-1] >= 0).ravel().tolist())
    different = body_of(PROBLEMS["graded"], 4)
    assert (different.tags == -1).all()


@pytest.mark.parametrize("name", ["wide", "graded", "block"])
def test_memory_is_that_of_two_copies_and_at_most_a_record_for_every_vector(name: str) -> None:
    problem = PROBLEMS[name]
    slab = Slab.whole(problem.grid)
    layout, body = lift_slab(problem, slab, 4), body_of(problem, 4)
    claimed = METHOD.memory(problem, slab, {"width": 32})
    assert claimed == 2 * layout.n_bytes + record_bytes(problem, layout)
    kind, n_records = kind_of(problem), int(body.numbers.max()) + 1
    used = n_records * layout.lanes * (8 * kind.slots + 4 * kind.heated)
    assert n_records * kind.slots * layout.lanes <= body.records.size
    assert body.numbers.nbytes + body.tags.nbytes + used <= record_bytes(problem, layout)


@pytest.mark.parametrize("name", ["rod", "wide", "block", "graded"])
def test_candidates_keep_few_rows_together_and_coefficients_in_the_cache(name: str) -> None:
    problem, caches = PROBLEMS[name].on_shape((4000,) * PROBLEMS[name].grid.ndim), Caches()
    found = candidates(problem, caches, 2)
    assert found[0]["jam"] == (1 if name == "rod" else 2)
    if name == "graded":
        points = found[0]["tile_y"] * found[0]["tile_x"]
        assert 8 * points * (2 + kind_of(problem).slots) <= caches.l2


def test_it_refuses_rules_that_know_more_than_material_and_time() -> None:
    assert "a + b * mirror" in str(METHOD.refusal(RADIATION[1].problem()))
    assert "depends on the place" in str(METHOD.refusal(PROBLEMS["plate, beam"]))
    half = replace(PROBLEMS["wide"], dtype=np.dtype(np.float16))
    assert "float16" in str(METHOD.refusal(half))
