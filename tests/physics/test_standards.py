"""The numbers that standards print come out, and a wrong one would be seen."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from benchmarks import tealeaf
from tetris_sim.__main__ import main
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.verification.public import public_cases
from tetris_sim.verification.standards import (
    _COLUMN,
    Standard,
    StandardRow,
    bestest,
    bridges,
    nafems,
)

ALL = (*bridges(), *nafems(), *bestest())


@pytest.mark.parametrize("standard", ALL, ids=[it.name for it in ALL])
def test_published_numbers_come_out(standard: Standard) -> None:
    wrong = [row for row in standard.rows() if not row.passed]
    assert not wrong


# Those that take a second or less; `verify --suite public` takes minutes.
FAST = [it for it in public_cases() if "fire" not in it.name and "plate heated" not in it.name]


@pytest.mark.parametrize("case", FAST, ids=[it.name for it in FAST])
def test_numbers_of_public_cases_come_out(case: Standard) -> None:
    wrong = [row for row in case.rows() if not row.passed]
    assert not wrong


def test_public_cases_are_many_and_name_their_sources() -> None:
    cases = public_cases()
    assert len(cases) >= 15
    assert len({it.name for it in cases}) == len(cases)
    assert all(it.source for it in cases)


def test_one_case_of_a_suite_is_chosen_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--suite", "public", "--case", "flash"]) == 0
    text = capsys.readouterr().out
    assert "flash method" in text
    assert "error" in text
    assert "I-beam" not in text
    assert main(["verify", "--suite", "public", "--case", "no such"]) == 2


def test_the_column_is_what_its_series_says() -> None:
    # H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 1959, section 5.3: a rectangle
    # whose width is 2 with one warm side, which is twice as far away as it is wide.
    for row, numbers in enumerate(_COLUMN, 1):
        for k, number in enumerate(numbers, 1):
            x, y = k / 4, 2 - row / 4
            found = sum(
                80
                / (n * math.pi)
                * math.sin(n * math.pi * x / 2)
                * math.sinh(n * math.pi * y / 2)
                / math.sinh(n * math.pi)
                for n in range(1, 200, 2)
            )
            assert number == pytest.approx(found, abs=0.051)


def test_a_number_that_differs_fails() -> None:
    row = StandardRow("temperature [degC]", 7.1, 0.1, 7.19)
    assert row.passed
    assert not dataclasses.replace(row, found=7.21).passed
    assert not dataclasses.replace(row, found=np.nan).passed


def test_the_command_prints_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--suite", "nafems"]) == 0
    text = capsys.readouterr().out
    assert "T4, a plate with convection" in text
    assert "nafems: passed" in text
    assert main(["verify", "--suite", "nafems", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["passed"]
    assert len(facts["cases"]) == 3


def test_tealeaf_ends_with_the_published_sum() -> None:
    team = ThreadTeam(2)
    found, iterations = tealeaf.run(250, CpuArithmetic(team), *tealeaf.make_state(250))
    team.close()
    assert found == pytest.approx(tealeaf.PUBLISHED[250], rel=1e-9)
    assert max(iterations) < 25
