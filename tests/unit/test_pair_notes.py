"""`compute.precision: float32x2`: float64 outside, pairs where a GPU is faster with them, and said."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim
from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError, TetrisError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.plain.method import PAIRED as PAIRS
from tetris_sim.model.method import roundings
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.machine import Device, Gpu, find_machine
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.plan.find import _part_that_fits
from tetris_sim.scheduler.tuning import tune as tuning
from tetris_sim.scheduler.tuning.candidates import TuningRequest, find_candidates
from tetris_sim.simulation.precision_notes import pair_notes


def sections(**compute: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [48, 36], "size": [0.1, 0.1]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "random", "low": 0, "high": 100},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"steps": 7},
        "compute": compute,
    }


def problem_in(precision: str) -> Problem:
    return make_config(sections(precision=precision)).build()


def names(precision: str, method: str = "auto") -> tuple[set[str], dict[str, str]]:
    place = ComputeResource(1, "gpu", 0)
    found, refused = find_candidates(problem_in(precision), TuningRequest(method), 1 << 40, place)
    return {candidate.method.name for candidate in found}, refused


def test_pairs_are_tried_beside_float64_and_only_if_asked_for() -> None:
    asked, _ = names("float32x2")
    usual, refused = names("float64")
    assert asked - usual == {method.name for method in PAIRS}
    assert usual <= asked
    assert not any("pairs" in name for name in refused)  # nor does anybody hear of them
    _, refused = names("float64", "gpu.plain_pairs")
    assert refused == {"gpu.plain_pairs": "pairs of float32 are for compute.precision: float32x2"}


@pytest.mark.parametrize(
    ("precision", "cost", "taken"),
    [
        ("float32x2", 64.0, "gpu.stream_pairs"),  # a GeForce card
        ("float32x2", 2.0, "gpu.stream"),  # an H200
        ("float32x2", None, "gpu.stream"),  # nobody knows
        ("float64", 64.0, "gpu.stream"),
    ],
)
def test_pairs_go_first_where_float64_is_slow(
    precision: str, cost: float | None, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_check", lambda *arguments, **options: None)
    gpu = Gpu(0, "a GPU", "sm_90", 1 << 36, 1 << 25, "13.0", float64_cost=cost)
    terms = tuning.Terms(TuningRequest(), threads=1, budget=0, gpu=gpu)
    problem = problem_in(precision).on_shape((8192, 8192))
    assert tuning.tune(problem, find_machine(), terms).method.name == taken


def test_the_state_is_float64_and_checks_allow_what_pairs_round() -> None:
    problem = problem_in("float32x2")
    assert problem.dtype == np.float64
    assert problem.pairs
    assert not problem_in("float64").pairs
    assert {roundings(method, problem.dtype) for method in PAIRS} == {32.0}
    assert {roundings(method, problem.dtype) for method in METHODS if method not in PAIRS} == {1.0}


def test_what_does_not_fit_into_a_gpu_is_streamed_in_float64() -> None:
    problem = problem_in("float32x2")
    memory = 2 * problem.state_bytes
    gpu = Gpu(0, "a GPU", "sm_90", memory, 1 << 20, "13.0")
    assert _part_that_fits(problem, Device("gpu", 0), 1 << 40, gpu).pairs
    part = _part_that_fits(problem, Device("gpu", 0), memory, gpu)
    assert part.grid.shape[0] < problem.grid.shape[0]
    assert not part.pairs


def test_on_a_cpu_all_is_float64_to_the_bit_and_said(tmp_path: Path) -> None:
    found = {}
    for precision in ("float64", "float32x2"):
        given = sections(precision=precision, devices="cpu", method="cpu.plain")
        given["output"] = {"directory": str(tmp_path / precision)}
        found[precision] = tetris_sim.run(make_config(given))
    fields = [result.field() for result in found.values()]
    np.testing.assert_array_equal(fields[0], fields[1])
    report = (tmp_path / "float32x2" / "report.txt").read_text()
    assert "float32x2: cpu.plain computes in float64; pairs of float32 are for GPUs" in report
    assert "float32x2" not in (tmp_path / "float64" / "report.txt").read_text()


def test_who_computes_in_pairs_is_said() -> None:
    problem = problem_in("float32x2")

    def notes(*methods: Any) -> tuple[str, ...]:
        whole = Slab.whole(problem.grid)
        shares = tuple(
            Share(f"gpu:{k}", whole, method, {}, 1, 1.0, 0) for k, method in enumerate(methods)
        )
        plan = Plan(shares, 1, 1.0, 0.0, copy_for_checkpoints=True, reasons=())
        return pair_notes(problem, plan)

    (both,) = notes(PAIRS[0], PAIRS[0])
    assert "gpu.stream_pairs computes pairs of float32, which have 48 bits" in both
    pairs, others = notes(PAIRS[0], METHODS[0])
    assert "gpu.stream_pairs" in pairs
    assert others.startswith(f"float32x2: {METHODS[0].name} computes in float64")
    whole = Slab.whole(problem.grid)
    share = Share("gpu:0", whole, METHODS[0], {}, 1, 1.0, 0)
    plan = Plan((share,), 1, 1.0, 0.0, copy_for_checkpoints=True, reasons=())
    assert pair_notes(dataclasses.replace(problem, pairs=False), plan) == ()


def test_numbers_that_no_float_holds_are_refused() -> None:
    given = sections(precision="float32x2")
    given["initial"]["high"] = 1e39
    with pytest.raises(ConfigError, match=r"compute\.precision: float32x2"):
        make_config(given)
    given["compute"] = {"precision": "float64"}
    try:
        make_config(given)
    except TetrisError as error:
        pytest.fail(f"float64 holds it: {error}")
