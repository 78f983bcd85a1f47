"""What was the fastest on a GPU goes first: all of it can still be had, and the nearest is taken."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.support.fake_methods import FakeMethod
from tests.support.tuner_cases import FAST, MACHINE, SLOW, TERMS, Use, label, problem_of
from tetris_sim.bench.timing import WeightKind, random_problem
from tetris_sim.errors import TetrisError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.stream.method import METHOD as STREAM
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES
from tetris_sim.scheduler.machine.machine import Gpu
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning import tune as tuning
from tetris_sim.scheduler.tuning.candidates import TuningRequest, find_candidates
from tetris_sim.scheduler.tuning.choice import Known
from tetris_sim.scheduler.tuning.tuned import all_known, find_known, is_mirrored, kind_of

H100 = Gpu(0, "NVIDIA H100 80GB HBM3", "sm_90", 1 << 36, 1 << 25, "13.0", 132, 1.98e9, 3.35e12)
SHAPES = {1: (10_240_000,), 2: (10_240, 10_240), 3: (1024, 1024, 1024)}


def large(name: str, dtype: str = "float64") -> Problem:
    """A stencil on a grid as large as those that were measured; its data are those of a small
    one.
    """
    kind: WeightKind = "equal" if name.startswith("heat") else "random"
    ndim = int(name.partition("d")[0][-1])
    small = random_problem(name, {1: (64,), 2: (8, 8), 3: (8, 8, 8)}[ndim], dtype, kind, "periodic")
    return small.on_shape(SHAPES[ndim])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_what_was_the_fastest_goes_first(name: str, dtype: str) -> None:
    problem = large(name, dtype)
    known = find_known(problem, H100)
    assert known is not None
    assert (known.gpu, known.kind) == (H100.name, kind_of(problem))
    candidates, _ = find_candidates(
        problem, TuningRequest(), 1 << 50, ComputeResource(1, "gpu"), known
    )
    first = candidates[0]
    # Parameters that nobody proposes any more are to be measured again.
    assert (first.method.name, first.parameters) == (known.method, known.parameters)
    assert (first.guess, first.known) == (0, known)
    without, _ = find_candidates(problem, TuningRequest(), 1 << 50, ComputeResource(1, "gpu"))
    assert {it.label for it in candidates} == {it.label for it in without}


def test_all_that_is_known_can_be_had() -> None:
    names = {method.name for method in METHODS}
    assert {known.method for known in all_known()} <= names
    assert all(known.balance > 0 and known.rate > 0 for known in all_known())


def test_lines_of_doubles_are_for_tensor_cores() -> None:
    known = find_known(large("heat-1d"), H100)
    assert known is not None
    assert known.method == "gpu.trapezoid"


def test_the_nearest_balance_and_size_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = large("heat-2d")
    row = dataclasses.replace(next(it for it in all_known() if it.kind == kind_of(problem)))

    def at(gpu: str, balance: float, points: int, *, mirrored: bool = True) -> Known:
        return dataclasses.replace(row, gpu=gpu, balance=balance, points=points, mirrored=mirrored)

    rows = (
        at("wide", 20.0, 1 << 26, mirrored=False),
        at("wide", 20.0, 1 << 26),
        at("wide", 20.0, 1 << 18),
        at("narrow", 4.0, 1 << 26),
    )
    monkeypatch.setattr("tetris_sim.scheduler.tuning.tuned.all_known", lambda: rows)

    def found(name: str, bandwidth: float | None, shape: tuple[int, int]) -> Known | None:
        gpu = dataclasses.replace(H100, name=name, bandwidth=bandwidth)
        return find_known(problem.on_shape(shape), gpu)

    assert is_mirrored(problem)
    assert found("another", 3.35e12, (9000, 9000)) is rows[1]
    assert found("another", 3.35e12, (500, 500)) is rows[2]
    assert found("another", 1.0e12, (500, 500)) is rows[3]
    assert found("narrow", 3.35e12, (9000, 9000)) is rows[3]
    assert found("wide", None, (9000, 9000)) is rows[1]
    other = dataclasses.replace(problem, dtype=np.dtype(np.float16))
    assert find_known(other, H100) is None
    assert find_known(problem, None) is None


def test_without_measurements_what_is_known_is_taken(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(FakeMethod("cpu.a", (SLOW, FAST)), FakeMethod("cpu.b", (SLOW, FAST)))
    terms = dataclasses.replace(TERMS, budget=0)
    assert label(tuning.tune(problem_of(), MACHINE, terms)) == ("cpu.a", SLOW)

    row = dataclasses.replace(all_known()[0], gpu="made up", rate=7e9, date="2026-01-02")
    for method, parameters, taken in (
        ("cpu.b", FAST, ("cpu.b", FAST)),
        ("cpu.b", {"another": 1}, ("cpu.b", SLOW)),  # what it would not propose here
        ("cpu.c", FAST, ("cpu.a", SLOW)),
    ):
        known = dataclasses.replace(row, method=method, parameters=parameters)
        monkeypatch.setattr(tuning, "find_known", lambda problem, gpu, known=known: known)
        choice = tuning.tune(problem_of(), MACHINE, terms)
        assert label(choice) == taken
        if method == "cpu.b":
            assert "the fastest method on made up (2026-01-02), checked" in choice.reasons[-1]
            assert choice.speed.points_per_second == 7e9


def test_another_method_may_still_be_asked_for() -> None:
    problem = large("heat-1d")
    known = find_known(problem, H100)
    asked = TuningRequest("gpu.stream")
    candidates, _ = find_candidates(problem, asked, 1 << 50, ComputeResource(1, "gpu"), known)
    assert {it.method.name for it in candidates} == {"gpu.stream"}
    with pytest.raises(TetrisError):
        find_candidates(
            problem, TuningRequest("gpu.nothing"), 1 << 50, ComputeResource(1, "gpu"), known
        )


def test_parameters_of_an_older_version_mean_what_they_meant() -> None:
    """A checkpoint that does not know a parameter goes on with the kernel that it had."""
    older = {"steps_per_block": 3, "rows": 5, "warps": 8, "blocks": 1, "ahead": 3, "columns": 2}
    assert STREAM.kernel(large("heat-3d"), older).defines["TS_HELD"] == 0
    assert STREAM.kernel(large("heat-3d"), {}).defines["TS_HELD"] == 2
