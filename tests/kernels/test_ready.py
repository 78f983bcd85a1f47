"""Teams that stay in compiled code between blocks: the same bits as those that do not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.cases import boundary_of, make_problem, stencil_of
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.ready import ReadyStepper
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

NAMED = [
    method for method in METHODS if method.name in ("cpu.plain", "cpu.tessellate", "cpu.stream")
]
# Of the last one, edges are whole vectors; they are stored past the caches.
FORMS = [
    ("heat-2d", (67, 45), 4),
    ("box-2d25p", (61, 50), 2),
    ("heat-3d", (41, 19, 26), 3),
    ("heat-2d", (67, 256), 4),
]


@pytest.fixture(params=[1, 3])
def two_teams(request: pytest.FixtureRequest) -> Iterator[tuple[ThreadTeam, ThreadTeam]]:
    usual, ready = ThreadTeam(request.param), ThreadTeam(request.param)
    ready.stays_ready = True
    yield usual, ready
    usual.close()
    ready.close()


def slab_of(problem: Problem, block: int) -> Slab:
    width, (n, *others) = block * problem.stencil.radii[0], problem.grid.shape
    halo = ((width, width), *((0, 0),) * len(others))
    return Slab((width, *(0,) * len(others)), (n - width, *others), halo)


@pytest.mark.parametrize("method", NAMED, ids=lambda method: method.name)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}-{form[1][-1]}")
@pytest.mark.parametrize("kind", ["walls", "rings"])
def test_blocks_with_new_halos_have_the_same_bits(
    method: Method,
    form: tuple[str, tuple[int, ...], int],
    kind: str,
    two_teams: tuple[ThreadTeam, ThreadTeam],
    rng: np.random.Generator,
) -> None:
    name, shape, block = form
    problem, _ = make_problem(stencil_of(name), boundary_of(kind, len(shape)), shape=shape)
    slab = slab_of(problem, block)
    parameters = {**method.parameters(problem)[0], "steps_per_block": 2}
    steppers = [method.prepare(problem, slab, parameters, team) for team in two_teams]
    assert [isinstance(it, ReadyStepper) for it in steppers] == [False, True]
    with contextlib.ExitStack() as stack:
        for stepper in steppers:
            stack.enter_context(contextlib.closing(stepper))
            stepper.load(problem.initial)
        compare(steppers, block, rng)


def compare(steppers: list[Any], block: int, rng: np.random.Generator) -> None:
    for steps in (block, block, block - 1, block, 1):
        for side in SIDES:
            wide = rng.random(
                (*np.asarray(steppers[0].edge(0, side)).shape[:-1], steppers[0].slab.shape[-1] + 5)
            )
            halo = wide[..., 2:-3]  # as of a GPU, whose rows have margins
            for stepper in steppers:
                stepper.set_halo(0, side, halo)
        for stepper in steppers:
            stepper.advance(steps)
        for side in SIDES:
            usual, ready = (np.array(stepper.edge(0, side)) for stepper in steppers)
            np.testing.assert_array_equal(ready, usual)
        if steps != block - 1:  # once it is asked for nothing else in between
            np.testing.assert_array_equal(steppers[1].interior(), steppers[0].interior())


def test_edges_stay_for_a_block_and_halos_are_in_the_state_when_it_is_asked_for(
    two_teams: tuple[ThreadTeam, ThreadTeam], rng: np.random.Generator
) -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(40, 30))
    prepared = NAMED[0].prepare(problem, slab_of(problem, 3), {}, two_teams[1])
    with contextlib.closing(prepared) as it:
        stepper: Any = it
        stepper.load(problem.initial)
        before = stepper.edge(0, "low")
        kept = np.array(before)
        np.testing.assert_array_equal(kept[0], stepper.interior()[0, :3])

        halo = rng.random(kept.shape)
        stepper.set_halo(0, "low", halo)
        stepper.set_halo(0, "high", halo)
        stepper.wait()
        rows = stepper.slab.halo_ranges(0, 0)
        np.testing.assert_array_equal(stepper._layout.read(stepper._current, rows), halo)
        stepper.advance(3)
        stepper.wait()
        assert before.memory is not stepper.edge(0, "low").memory
        np.testing.assert_array_equal(np.asarray(before), kept)


def test_a_team_that_was_called_back_begins_again(two_teams: tuple[ThreadTeam, ThreadTeam]) -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(40, 30))
    prepared = NAMED[0].prepare(problem, slab_of(problem, 3), {}, two_teams[1])
    with contextlib.closing(prepared) as it:
        stepper: Any = it
        stepper.load(problem.initial)
        for _ in range(3):
            stepper.advance(3)
            stepper.wait()
            assert stepper._ready.begun
            stepper.load(problem.initial)
            assert not stepper._ready.begun
            seen: list[int] = []
            two_teams[1].run(seen.append)
            assert sorted(seen) == list(range(two_teams[1].size))
