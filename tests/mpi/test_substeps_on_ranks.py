"""Adaptive steps on ranks: all find the same substeps, and the bits of one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.test_substeps import problem_of, solved
from tests.mpi.test_same_answer_on_ranks import PLAIN, solve
from tests.physics.test_pde_wholes import TEXT as WHOLES
from tests.physics.test_pde_wholes import solved as alone_with_wholes
from tests.support.config_cases import read
from tetris_sim.config.sections.schema import ComputeSection


def test_ranks_have_the_bits_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of("rk2")
    alone, _ = solved(problem, ComputeSection(method="cpu.plain", threads=1))
    results = solve(problem, PLAIN, 3, monkeypatch)
    np.testing.assert_array_equal(results[0][0], alone)
    assert {plan.scheme for _, plan in results} == {"adaptive"}
    assert any("how many is known afterwards" in reason for reason in results[0][1].reasons)


def test_numbers_of_the_whole_grid_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = read(WHOLES, "time.scheme=rk2").build()
    alone = alone_with_wholes(problem)
    for size in (2, 3):
        results = solve(problem, PLAIN, size, monkeypatch)
        np.testing.assert_array_equal(results[0][0], alone)
        assert any("numbers of the whole grid" in reason for reason in results[0][1].reasons)
