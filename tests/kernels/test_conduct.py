"""cpu.plain through a medium: the oracle's answer, and the same bits however it is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import exact
from tests.support.body_samples import revolved
from tests.support.cases import run
from tests.support.conduction_cases import (
    CASES,
    RADIATION,
    REACTING,
    Case,
    graded,
    heating,
    mixed_faces,
    rings,
)
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common import medium
from tetris_sim.cpu_kernels.common.layout import pad
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import padded
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

PLAIN = METHODS[-1]
HALF = Case("plate, float16", (19, 23), 5, mixed_faces, heating(5, changes=True), np.float16)
PROBLEMS = {case.name: case.problem() for case in (*CASES, *RADIATION, *REACTING, HALF)} | {
    "graded": graded((12, 15), mixed_faces),
    "graded, ring": graded((11, 9), rings),
    "cylinder": revolved("r z", (9, 14)),
    "disc": revolved("r theta", (13, 8)),
}
STEPS = 12
BLOCKS = (1, 7, 4)


def whole(problem: Problem) -> Field:
    return problem.initial(Slab.whole(problem.grid))


# Compiled for nothing else here, and like others but for one thing that yet another one has.
RARE = {"plate, float32", "plate, reacting", "radiation, 1D", "radiation, 3D", "disc"}


@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=[pytest.mark.full] * (it in RARE)) for it in PROBLEMS]
)
def test_it_agrees_with_the_reference_on_any_number_of_threads(
    name: str, teams: dict[int, ThreadTeam]
) -> None:
    problem = PROBLEMS[name]
    expected = reference.advance(whole(problem), problem, STEPS)
    results = [run(PLAIN, problem, {}, team, BLOCKS) for team in teams.values()]
    assert results[0].dtype == problem.dtype
    largest = float(max(np.abs(expected).max(), np.abs(whole(problem)).max(), 4.0))
    np.testing.assert_allclose(
        results[0].astype(float),
        expected.astype(float),
        rtol=0,
        atol=reference.tolerance(problem, STEPS, largest),
    )
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("plate", np.float64),
        ("plate", np.float32),
        ("plate, one material", np.float64),
        pytest.param("plate, one material", np.float32, marks=pytest.mark.full),
        ("radiation, 2D", np.float64),
        pytest.param("radiation, 2D", np.float32, marks=pytest.mark.full),
    ],
)
def test_bits_are_those_of_the_chain(name: str, dtype: type, teams: dict[int, ThreadTeam]) -> None:
    case = {it.name: it for it in (*CASES, *RADIATION, *REACTING)}[name]
    problem = replace(case, shape=(4, 5), dtype=dtype).problem()
    expected = exact.advance(whole(problem), problem, 3)
    np.testing.assert_array_equal(run(PLAIN, problem, {}, teams[2], (1, 2)), expected)


HALOS: list[tuple[str, tuple[tuple[int, int], ...]]] = [
    ("rod", ((0, 5),)),
    ("ring", ((6, 5),)),
    ("plate", ((6, 5), (0, 0))),
    ("plate", ((0, 5), (5, 0))),
    ("plate, ring", ((5, 5), (0, 6))),
    ("plate, beam", ((5, 0), (5, 6))),
    ("radiation, 2D", ((0, 0), (5, 0))),
    ("block", ((0, 3), (3, 3), (3, 0))),
    ("block, rings", ((3, 3), (0, 3), (0, 0))),
    ("graded", ((5, 0), (0, 5))),
    ("graded, ring", ((5, 5), (0, 0))),
]


@pytest.mark.parametrize(("name", "halo"), HALOS)
def test_a_slab_has_the_bits_of_the_whole(
    name: str, halo: tuple[tuple[int, int], ...], teams: dict[int, ThreadTeam]
) -> None:
    problem = PROBLEMS[name]
    shape, steps = problem.grid.shape, min(it for pair in halo for it in pair if it)
    periodic = [problem.boundary.periodic(axis) for axis in range(len(shape))]
    # A ring that is cut begins at 1, so that its halo goes around.
    start = tuple(
        (1 if ring else n // 2) if low else 0
        for n, ring, (low, _) in zip(shape, periodic, halo, strict=True)
    )
    stop = tuple(
        (n - 1 if ring else n - high) if high else n
        for n, ring, (_, high) in zip(shape, periodic, halo, strict=True)
    )
    slab = Slab(start, stop, halo)
    first = 3
    before = run(PLAIN, problem, {}, teams[1], (first,))
    after = run(PLAIN, problem, {}, teams[1], (first + steps,))
    stepper = PLAIN.prepare(problem, slab, {}, teams[3])
    stepper.load(_pick(before), first)
    for axis, widths in enumerate(halo):
        for side, width in zip(SIDES, widths, strict=True):
            if width:
                box = slab.globally(slab.halo_ranges(axis, SIDES.index(side)))
                stepper.set_halo(axis, side, padded(_of(before), box, shape, periodic)[np.newaxis])
    stepper.advance(steps)
    found = stepper.interior()
    stepper.close()
    np.testing.assert_array_equal(found, _pick(after)(slab))


def _of(state: Field) -> Any:
    return lambda box: state[0][tuple(slice(*span) for span in box)]


def _pick(state: Field) -> Any:
    return lambda slab: state[(slice(None), *(slice(*span) for span in slab.spans))]


@pytest.mark.parametrize("name", ["plate", "plate, beam", "graded"])
def test_a_restart_at_a_step_goes_on_with_the_same_bits(
    name: str, teams: dict[int, ThreadTeam]
) -> None:
    problem = PROBLEMS[name]
    straight = run(PLAIN, problem, {}, teams[2], (70,))
    stepper = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, teams[2])
    stepper.load(_pick(run(PLAIN, problem, {}, teams[2], (33, 32))), 65)
    stepper.advance(5)
    found = stepper.interior()
    stepper.close()
    np.testing.assert_array_equal(found, straight)
    assert not np.array_equal(found, run(PLAIN, problem, {}, teams[2], (69,)))


def test_blocks_longer_than_their_tables_have_the_same_bits(
    teams: dict[int, ThreadTeam], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PROBLEMS["plate"]
    straight = run(PLAIN, problem, {}, teams[2], (30,))
    monkeypatch.setattr(medium, "_MOST_NUMBERS", 200)
    slab = Slab.whole(problem.grid)
    assert 1 < medium.ConductionData(problem, slab, pad(problem, slab)).longest < 30
    np.testing.assert_array_equal(run(PLAIN, problem, {}, teams[2], (30,)), straight)


def test_ids_may_be_wide(teams: dict[int, ThreadTeam]) -> None:
    problem = PROBLEMS["plate, one material"]
    assert problem.conduction is not None
    narrow = problem.conduction.medium
    wide = replace(narrow, ids=lambda box: narrow.ids(box).astype(np.uint16))
    other = replace(problem, conduction=replace(problem.conduction, medium=wide))
    np.testing.assert_array_equal(
        run(PLAIN, other, {}, teams[2], BLOCKS), run(PLAIN, problem, {}, teams[2], BLOCKS)
    )


def test_memory_counts_what_the_points_are_made_of() -> None:
    problem = PROBLEMS["plate"]
    slab = Slab.whole(problem.grid)
    assert PLAIN.memory(problem, slab, {}) >= 2 * problem.state_bytes + problem.grid.n_points
    arrays = PROBLEMS["graded"]
    of_arrays = PLAIN.memory(arrays, Slab.whole(arrays.grid), {})
    assert of_arrays >= (2 + 2 + 2) * arrays.state_bytes
