"""The contract 'same answer': the same bits for any number of workers, shares, threads and block
lengths.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases import SHAPES, make_problem, mixed_boundaries
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.machine.machine import Machine, find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.scheduler.tuning.candidates import find_method
from tetris_sim.scheduler.tuning.choice import Choice, Speed
from tetris_sim.scheduler.tuning.tune import Terms
from tetris_sim.simulation.loop import open_simulation

STEPS = 8


@pytest.fixture(autouse=True)
def known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans from a table of speeds: the cuts must not depend on this machine's mood, and measuring
    takes time.
    """

    def known(problem: Problem, machine: Machine, terms: Terms) -> Choice:
        method = find_method(terms.asked.method, by="method")
        return Choice(method, method.parameters(problem)[0], terms.threads, Speed(1e9, 2e-5), ())

    monkeypatch.setattr("tetris_sim.scheduler.plan.find.tune", known)


def field_after_the_run(problem: Problem, compute: ComputeSection) -> tuple[Field, int]:
    plan = make_plan(problem, find_machine(), compute)
    with open_simulation(problem, plan) as simulation:
        simulation.run()
        return simulation.field(), len(plan.shares)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", ["star-1d5p", "heat-2d", "box-2d25p", "heat-3d"])
def test_any_partition_gives_the_same_bits(name: str, dtype: str, method: Method) -> None:
    stencil = named_stencil(name).stencil
    boundaries = dict(mixed_boundaries(stencil.ndim))
    shape = tuple(2 * n + 1 for n in SHAPES[stencil.ndim])
    for number, kind in enumerate(list(boundaries)[:5] + list(boundaries)[7:9]):
        problem, _ = make_problem(stencil, boundaries[kind], dtype=dtype, shape=shape, steps=STEPS)
        if method.refusal(problem) is not None:
            continue
        alone, n_workers = field_after_the_run(
            problem, ComputeSection(method=method.name, threads=1)
        )
        assert n_workers == 1
        for workers, block in ((2, 1), (3, 2), (2, "auto")):
            compute = ComputeSection(
                method=method.name,
                devices=("cpu",) * workers,
                time_block=block,
                threads=workers + (number + workers) % 3,
                shares=(1.0, 2.0, 1.5)[:workers] if number % 2 else "auto",
            )
            shared, n_workers = field_after_the_run(problem, compute)
            assert n_workers == workers
            np.testing.assert_array_equal(shared, alone)


def test_two_workers_are_given_the_shares_that_were_asked_for() -> None:
    problem, _ = make_problem(
        named_stencil("heat-2d").stencil,
        Boundary.everywhere(dict(mixed_boundaries(2))["neumann"].faces[0][0], 2),
        shape=(100, 20),
    )
    compute = ComputeSection(
        method="cpu.plain", devices=("cpu", "cpu"), shares=(3.0, 1.0), time_block=2
    )
    plan = make_plan(problem, find_machine(), compute)
    assert [share.slab.shape[0] for share in plan.shares] == [75, 25]
    assert 0 < plan.redundant < 0.05
