"""Rates that `plan` expects of equations, beside what was measured on a GPU."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from tests.support import gpu_equation_cases as cases
from tetris_sim.bench.limits import DeviceLimits, expect, expected_rates, gpu_limits
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.equations import Equations
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.machine.machine import Gpu

ROOT = Path(__file__).resolve().parents[2]
# As the driver says it.
H200 = Gpu(0, "NVIDIA H200", "sm_90", 149 << 30, 60 << 20, "13.0", 132, 1.98e9, 4.8143e12)
NAMES: dict[str, Callable[[int, Boundary], Equations]] = {
    "gray-scott": cases.gray_scott,
    "cahn-hilliard": cases.cahn_hilliard,
    "brusselator": cases.brusselator,
    "wave of order 2": functools.partial(cases.plain_wave, accuracy=2),
    "wave of order 4": functools.partial(cases.plain_wave, accuracy=4),
}
ROWS = json.loads((ROOT / "docs/benchmarks/equations-gpu.json").read_text(encoding="utf-8"))["rows"]
KEY = ("name", "ndim", "dtype", "boundary", "method")
MEASURED = [row for row in ROWS if row["method"] != "one sweep"]


def share(problem: Problem, method: Any, parameters: dict[str, int]) -> Share:
    return Share("gpu:0", Slab.whole(problem.grid), method, parameters, 1, 0.0, 0)


def problem_of(name: str, ndim: int, dtype: str) -> Problem:
    return cases.make(NAMES[name](ndim, cases.ring(ndim)), (8,) * ndim, np.dtype(dtype))


@pytest.mark.parametrize("key", sorted({tuple(row[it] for it in KEY) for row in MEASURED}))
def test_what_was_measured_is_within_a_factor_of_one_and_a_half(key: tuple[Any, ...]) -> None:
    name, ndim, dtype, _, method = key
    problem = problem_of(name, ndim, dtype)
    rows = [row for row in MEASURED if tuple(row[it] for it in KEY) == key]
    row = max(rows, key=lambda row: median(row["rates"]))
    kind = METHOD if method == "gpu.stream" else GpuPlainMethod()
    (found,) = expected_rates(problem, [share(problem, kind, row["parameters"])], [H200])
    ratio = found.points_per_second / 1e9 / median(row["rates"])
    assert 1 / 1.5 < ratio < 1.5
    assert found.bound == ("memory" if method == "gpu.plain" else "arithmetic")


def test_steps_a_launch_divide_the_bytes_and_stages_that_go_together_do_not_count_twice() -> None:
    problem = problem_of("wave of order 2", 3, "float64")
    limits = DeviceLimits(operations=1e12, bytes=1e9)
    swept = expect(problem, share(problem, GpuPlainMethod(), {}), limits)
    four = expect(problem, share(problem, METHOD, {"steps_per_block": 4}), limits)
    assert (swept.bytes, four.bytes) == (32, 8)
    assert swept.points_per_second == pytest.approx(1e9 / 32)
    assert four.bound == "memory"


def test_threads_are_measured_and_their_stages_go_through_memory_one_by_one() -> None:
    method = next(it for it in METHODS if it.name == "cpu.plain")
    problem = problem_of("wave of order 2", 2, "float64")
    (found,) = expected_rates(problem, [share(problem, method, {})], [])
    assert found.bytes == 6 * 8
    assert 0 < found.points_per_second < 1e12


def test_a_gpu_of_which_the_driver_says_nothing_has_no_expected_rate() -> None:
    problem = problem_of("gray-scott", 2, "float32")
    assert gpu_limits(problem, replace(H200, bandwidth=None)) is None
    both = gpu_limits(problem, H200), gpu_limits(problem_of("gray-scott", 2, "float64"), H200)
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].operations == 2 * both[1].operations
