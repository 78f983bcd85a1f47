"""Balances put together in parts: the numbers of every cell, for any parts, threads and arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.body_samples import build, start
from tests.unit.test_solve_steady import CASES, LAYERS, grid
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.solvers import assembly
from tetris_sim.solvers.assembly import HERE, Where, instant
from tetris_sim.solvers.balance import LinearSystem, LinearSystems
from tetris_sim.solvers.solver import OneDevice
from tetris_sim.solvers.steady import remaining, solve_steady, unbalanced

BODIES = [name for name in CASES if not name.startswith("one material in 1D")]


@pytest.fixture
def team() -> Iterator[CpuArithmetic]:
    threads = ThreadTeam(3)
    yield CpuArithmetic(threads)
    threads.close()


def made(problem: Problem, where: Where) -> LinearSystem:
    return LinearSystems(problem, where).at(instant(0.0), start(problem)[0].astype(np.float64))


@pytest.mark.parametrize("case", BODIES)
def test_parts_do_not_change_a_bit(
    case: str, team: CpuArithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = build(**CASES[case])
    whole = made(problem, HERE)
    monkeypatch.setattr(assembly, "_PART", 1)
    assert len(HERE.parts(problem.grid.shape)) == problem.grid.shape[0]
    parts = made(problem, Where(share=team.share))
    for one, other in zip(
        (*whole.conductance, whole.exchange, whole.heat),
        (*parts.conductance, parts.exchange, parts.heat),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_conductances_are_those_of_both_materials() -> None:
    faces = {"x": {"type": "periodic"}, "*": {"type": "neumann"}}
    problem = build(grid=grid(9, 8, 4), model=LAYERS, boundaries=faces)
    assert problem.conduction is not None
    medium = problem.conduction.medium
    ids = medium.ids(tuple((0, n) for n in problem.grid.shape))
    for axis, k in enumerate(made(problem, HERE).conductance):
        expected = medium.conductance[axis][ids, np.roll(ids, -1, axis)]
        if not problem.boundary.periodic(axis):
            expected[(slice(None),) * axis + (-1,)] = 0
        np.testing.assert_array_equal(k, expected)


def test_what_solves_are_the_arrays_of_the_balance() -> None:
    problem = build(**CASES["one material in 3D"])
    it = made(problem, HERE)
    for part, array in zip(it.operator(), (*it.conductance, it.exchange), strict=True):
        assert np.shares_memory(part, array)


@pytest.mark.parametrize("case", CASES)
def test_what_is_left_is_the_norm_of_all_flows(case: str, team: CpuArithmetic) -> None:
    problem = build(**CASES[case])
    it = made(problem, Where(share=team.share))
    u = np.random.default_rng(1).random(problem.grid.shape)
    assert remaining(it, u, team) == pytest.approx(unbalanced(it, u), rel=1e-12)
    same = np.full(problem.grid.shape, 3.5)
    assert remaining(it, 3.5, team) == pytest.approx(unbalanced(it, same), rel=1e-12)


def test_a_sum_has_the_same_bits_for_any_threads(
    team: CpuArithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "_PART", 100)
    values = np.random.default_rng(2).random((37, 10))
    alone = HERE.norm(values.shape, lambda it: values[it])
    assert Where(share=team.share).norm(values.shape, lambda it: values[it]) == alone
    assert alone == pytest.approx(float(np.linalg.norm(values)), rel=1e-14)


def test_a_state_that_was_given_is_not_written_to(team: CpuArithmetic) -> None:
    problem = build(**CASES["layers with a contact and a source"])
    state = start(problem)[0].astype(np.float64)
    before = state.copy()
    found = solve_steady(problem, state, OneDevice(team), tolerance=1e-8)
    assert not np.shares_memory(found.state, state)
    np.testing.assert_array_equal(state, before)


def test_a_body_of_plain_cells_takes_less_memory() -> None:
    method = ComputeResource(1, "gpu").solving("steady")
    plain = build(**CASES["layers with a contact and a source"])
    held = build(**CASES["fluid and void"])
    for_plain, for_held = (
        (method.host_memory(it, Slab.whole(it.grid)) - it.state_bytes) / it.grid.n_points
        for it in (plain, held)
    )
    assert for_plain <= 48 < for_held
