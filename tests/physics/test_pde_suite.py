"""`verify --suite equations`: systems that others print, posed as printed, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest

from tetris_sim.__main__ import main
from tetris_sim.config import make_config
from tetris_sim.verification.equations import Differences, PosedSystem, start_of
from tetris_sim.verification.printed import systems

ALL = systems()


def test_there_are_forty() -> None:
    assert len({it.name for it in ALL}) == len(ALL) >= 40
    stated = [it for it in ALL if it.free]
    assert len(stated) <= 6


@pytest.mark.parametrize("system", ALL, ids=lambda it: it.name)
def test_it_is_accepted_as_printed_with_an_automatic_step(system: PosedSystem) -> None:
    problem = make_config(system.sections(t_end=1.0)).build()
    assert 0 < problem.dt <= 1
    # The right-hand sides are the same: one explicit step of Euler, or the stage of another scheme.
    assert start_of(problem).shape[1:] == system.shape[::-1]


@pytest.mark.parametrize("system", ALL[::5], ids=lambda it: it.name)
def test_it_agrees_with_scipy_and_its_step_is_nearly_the_longest(system: PosedSystem) -> None:
    for row in system.rows():
        assert row.passed, row


def test_what_grows_to_a_limit_cycle_gets_a_step_that_stays_stable() -> None:
    # Steps of 3.7 times the longest stable one were taken, and ended in NaN.
    (system,) = [it for it in ALL if it.name == "van der Pol"]
    assert 0.9 < system.share_of_longest() < 1.1


def test_differences_are_those_of_sines() -> None:
    n = 400
    x = 2 * np.pi * (np.arange(n) + 0.5) / n
    g, u = Differences(2 * np.pi / n, "wrap"), np.sin(x)
    assert np.abs(g.d(u) - np.cos(x)).max() < 1e-4
    assert np.abs(g.laplace(u) + u).max() < 1e-4
    assert np.abs(g.div_grad(u, u) - (np.cos(x) ** 2 - u**2)).max() < 1e-3
    wall = Differences(np.pi / n, "odd")
    half = np.sin(x / 2)
    assert np.abs(wall.dd(half) + half).max() < 1e-4


def test_the_command_prints_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--suite", "equations", "--case", "wave equation"]) == 0
    text = capsys.readouterr().out
    assert "difference from solve_ivp" in text
    assert "equations: passed" in text
