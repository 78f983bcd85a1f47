"""The breakdown and the sweeps: what exists is measured with its best parameters, what does not is
said.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from benchmarks import cpu_breakdown as breakdown
from benchmarks import cpu_sweeps as sweeps
from benchmarks.cpu_breakdown import LADDER, Technique, climb, compare_steps, why_missing
from benchmarks.samples import LIMITS, PacedMethod, row
from tetris_sim.bench.result import MachineLimits
from tetris_sim.bench.timing import random_problem
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam


def test_every_technique_is_measured_with_the_best_of_its_parameters_or_said_to_be_missing() -> (
    None
):
    problem, team = random_problem("heat-1d", (100,), "float64"), ThreadTeam(1)
    tiled = PacedMethod("tiled", {1: 2e-3, 2: 1e-3})
    refusing = PacedMethod("refusing", {1: 1e-3}, refuses="radius 1 is too small")
    ladder = (
        Technique("one", "tiled", {"pace": 1}),
        Technique("any", "tiled"),
        Technique("gone", "nowhere"),
        Technique("unable", "refusing"),
        Technique("unknown", "tiled", {"rows": 1}),
        Technique("impossible", "tiled", {"pace": 9}),
    )
    found = climb(problem, ladder, (tiled, refusing), team, rounds=1, seconds=0.01)
    team.close()
    measured = [(step["name"], step["parameters"]) for step in found["steps"]]
    assert measured == [("one", {"pace": 1}), ("any", {"pace": 2})]
    assert found["missing"] == {
        "gone": "there is no method nowhere",
        "unable": "radius 1 is too small",
        "unknown": "tiled has no parameter rows",
        "impossible": "no pace 9",
    }


def test_steps_are_compared_with_the_first_and_with_the_one_before() -> None:
    steps = [
        asdict(row(name, rate))
        for name, rate in (("plain", 2e9), ("+ tiles", 6e9), ("+ lanes", 9e9))
    ]
    ladder = {
        "stencil": "star-1d5p",
        "n_terms": 5,
        "dtype": "float64",
        "shape": [9],
        "steps": steps,
        "missing": {},
    }
    found = compare_steps(ladder, LIMITS)["steps"]
    assert [step["over_first"] for step in found] == [1.0, 3.0, 4.5]
    assert [step["over_previous"] for step in found] == [1.0, 3.0, 1.5]
    assert [step["share_of_fma"] for step in found] == pytest.approx([0.1, 0.3, 0.45])


def test_the_ladder_begins_with_a_method_that_never_refuses_and_its_methods_know_what_it_fixes() -> (
    None
):
    problem = random_problem("heat-2d", (40, 50), "float64")
    methods = {method.name: method for method in METHODS}
    assert why_missing(problem, LADDER[0], methods) is None
    for technique in LADDER:
        if technique.method in methods:
            assert why_missing(problem, technique, methods) is None


@pytest.fixture
def _limits_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: Any, **__: Any) -> MachineLimits:
        return LIMITS["before"]

    monkeypatch.setattr("tetris_sim.bench.candidates.measure_limits", found)
    monkeypatch.setattr("benchmarks.cpu_sweeps.measure_limits", found)


@pytest.mark.usefixtures("_limits_of_a_table")
def test_a_breakdown_has_a_ladder_for_every_stencil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "LADDER", LADDER[:2])  # each further one compiles for seconds
    found = breakdown.bench_breakdown(("star-1d5p",), shape=(5000,), rounds=1, seconds=0.002)
    (ladder,) = found["breakdown"]
    labels = [step["name"] for step in ladder["steps"]]
    assert labels[0] == "plain"
    assert sorted([*labels, *ladder["missing"]]) == sorted(
        technique.label for technique in LADDER[:2]
    )
    assert all(step["share_of_fma"] > 0 for step in ladder["steps"])


@pytest.mark.usefixtures("_limits_of_a_table")
def test_sweeps_measure_every_size_and_every_number_of_threads() -> None:
    found = sweeps.bench_sweeps(("heat-1d",), shape=(150_000,), rounds=1, seconds=0.002)
    (sizes,), (threads,) = found["sizes"], found["threads_sweep"]
    assert [point["shape"] for point in sizes["points"]] == [[131_072], [150_000]]
    assert [point["threads"] for point in threads["points"]] == sweeps.thread_counts(
        found["threads"]
    )
    for point in (*sizes["points"], *threads["points"]):
        names = [entry["name"] for entry in point["rows"]]
        assert names[:3] == ["prange indexed", "prange slices", "cpu.plain"]
        for entry in point["rows"]:
            assert entry["ns"] == pytest.approx(1e9 / entry["steady"]["median"])
            assert entry["transfer_total_ns"] == pytest.approx(sum(entry["transfer_ns"].values()))
