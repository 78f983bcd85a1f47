"""The contract 'same answer' on ranks: the bits of one, for every kind of face in 1D, 2D and 3D."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import wheel
from tests.support.cases import SHAPES, make_problem, mixed_boundaries
from tests.support.conduction_cases import CASES
from tests.support.thread_ranks import run_ranks
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler import planner
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import Draft, Link, Plan, Share
from tetris_sim.scheduler.machine.machine import Machine, find_machine
from tetris_sim.scheduler.planner import plan_together
from tetris_sim.simulation.loop import open_simulation

STEPS = 8


def solve(
    problem: Problem, method: Method, size: int, monkeypatch: pytest.MonkeyPatch, **compute: Any
) -> list[Any]:
    """(the whole state after the run, the plan) of every rank; rank k measures a speed of its
    own.
    """

    def known(problem: Problem, machine: Machine, compute: ComputeSection, **_: Any) -> Draft:
        whole = Slab.whole(problem.grid)
        share = Share(
            "cpu:0", whole, method, method.parameters(problem)[0], 1, machine.memory / 1e6, 0
        )
        plan = Plan((share,), 4, 1e-6, 0.0, copy_for_checkpoints=False, reasons=())
        return Draft(plan, ())

    monkeypatch.setattr(planner, "draft", known)
    monkeypatch.setattr(planner, "measure_link", lambda ranks: Link(1e-5, 1e-10))

    def work(ranks: Communicator) -> tuple[Field, Plan]:
        plan = plan_together(problem, find_machine(), ComputeSection(**compute), ranks)
        with open_simulation(problem, plan, ranks=ranks) as simulation:
            simulation.run()
            return simulation.field(), plan

    return run_ranks(size, work)


PLAIN = METHODS[-1]
TILED = METHODS[:-1]


@pytest.mark.parametrize("name", ["star-1d5p", "heat-2d", "box-2d25p", "heat-3d"])
def test_any_number_of_ranks_gives_the_same_bits_for_every_kind_of_face(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stencil = named_stencil(name).stencil
    shape = tuple(2 * n + 1 for n in SHAPES[stencil.ndim])
    for number, (kind, boundary) in enumerate(mixed_boundaries(stencil.ndim)):
        dtype = np.float32 if number % 3 == 1 else np.float64
        problem, _ = make_problem(stencil, boundary, dtype=dtype, shape=shape, steps=STEPS)
        ((alone, _),) = solve(problem, PLAIN, 1, monkeypatch)
        for size in (2, 3, 4) if number < 5 else (2 + number % 3,):
            (shared, plan), *others = solve(
                problem, PLAIN, size, monkeypatch, time_block=1 + (number + size) % 4
            )
            np.testing.assert_array_equal(shared, alone, err_msg=f"{kind} on {size} ranks")
            assert all(field.size == 0 for field, _ in others)
            assert [share.rank for share in plan.shares] == list(range(size))


@pytest.mark.parametrize("method", TILED, ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["star-1d5p", "heat-2d"])  # 3D: below
def test_methods_that_tile_give_the_same_bits_on_ranks(
    name: str, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    stencil = named_stencil(name).stencil
    boundaries = dict(mixed_boundaries(stencil.ndim))
    shape = tuple(2 * n + 1 for n in SHAPES[stencil.ndim])
    for size, kind in zip(
        (2, 3, 4), (list(boundaries)[4], list(boundaries)[3], list(boundaries)[8]), strict=True
    ):
        problem, _ = make_problem(stencil, boundaries[kind], shape=shape, steps=STEPS)
        ((alone, _),) = solve(problem, PLAIN, 1, monkeypatch)
        (shared, _), *_ = solve(problem, method, size, monkeypatch, time_block=3)
        np.testing.assert_array_equal(shared, alone, err_msg=f"{kind} on {size} ranks")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["heat-2d", "box-3d27p"])
def test_grids_that_are_cut_along_two_axes_give_the_same_bits(
    name: str, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    stencil = named_stencil(name).stencil
    boundaries = dict(mixed_boundaries(stencil.ndim))
    for kind in list(boundaries)[:5] + list(boundaries)[7:9]:
        problem, _ = make_problem(
            stencil, boundaries[kind], shape=(10, 31, 9)[: stencil.ndim], steps=STEPS
        )
        ((alone, _),) = solve(problem, PLAIN, 1, monkeypatch)
        (shared, plan), *_ = solve(problem, method, 4, monkeypatch, time_block=3)
        assert len({share.slab.start[1] for share in plan.shares}) > 1
        np.testing.assert_array_equal(shared, alone, err_msg=kind)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["heat-3d", "box-3d27p"])
def test_grids_that_are_cut_along_three_axes_give_the_same_bits(
    name: str, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.scheduler.plan.search.possible_parts", lambda *_: [(2, 2, 2)])
    boundaries = dict(mixed_boundaries(3))
    for kind in list(boundaries)[:5] + list(boundaries)[7:9]:
        problem, _ = make_problem(
            named_stencil(name).stencil, boundaries[kind], shape=(13, 14, 15), steps=STEPS
        )
        ((alone, _),) = solve(problem, PLAIN, 1, monkeypatch)
        (shared, plan), *_ = solve(problem, method, 8, monkeypatch, time_block=3)
        assert cuts_of(plan) == (2, 2, 2)
        np.testing.assert_array_equal(shared, alone, err_msg=kind)


def cuts_of(plan: Plan) -> tuple[int, ...]:
    starts = zip(*(share.slab.start for share in plan.shares), strict=True)
    return tuple(len(set(it)) for it in starts)


@pytest.mark.parametrize("number", [2, 4, 8])  # two plates and a block
def test_a_body_of_materials_has_the_same_bits_on_ranks(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = CASES[number].problem(steps=STEPS)
    ((alone, _),) = solve(problem, PLAIN, 1, monkeypatch)
    for size in (2, 3, 8):
        (shared, plan), *_ = solve(problem, PLAIN, size, monkeypatch, time_block=min(size, 2))
        np.testing.assert_array_equal(shared, alone)
        assert len(plan.shares) == size


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("shape", [(9, 26), (6, 14, 11)], ids=["disc", "rod"])
def test_a_body_around_an_axis_has_the_same_bits_on_ranks(
    shape: tuple[int, ...], method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = replace(wheel(*shape), steps=STEPS)
    if method.refusal(problem) is not None:
        return
    ((alone, _),) = solve(problem, PLAIN, 1, monkeypatch)
    (shared, plan), *_ = solve(problem, method, 3, monkeypatch, time_block=2)
    np.testing.assert_array_equal(shared, alone)
    assert len(plan.shares) == 3
