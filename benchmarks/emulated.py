"""A GPU to be measured where there is none: kernels are emulated, so that all is there but the
speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu_breakdown, gpu_counters, gpu_sweeps
from benchmarks.samples import result, timing
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.bench import gpu as bench_gpu
from tetris_sim.bench.result import BenchResult, MachineLimits, When
from tetris_sim.scheduler.machine.machine import Gpu

GPU = Gpu(0, "A GPU", "sm_90", 8 << 30, 50 << 20, "13.0")
LIMITS: dict[When, MachineLimits] = {
    "before": MachineLimits(
        copy=timing(4e12),
        fma={"float64": timing(16e12), "float32": timing(33e12)},
        tensor=timing(32e12),
    ),
    "after": MachineLimits(
        copy=timing(3e12), fma={"float64": timing(15e12), "float32": timing(31e12)}
    ),
}


class BenchGpu(HostGpu):
    """With random numbers, and nothing to profile."""

    def __init__(self) -> None:
        super().__init__()
        self.cupy.random = np.random

    def close(self) -> None:
        """Nothing is held."""


def emulated_gpu(monkeypatch: pytest.MonkeyPatch) -> BenchGpu:
    """The GPU that the benchmarks find; its limits are not measured."""
    device = BenchGpu()

    @contextmanager
    def measured(**_: Any) -> Iterator[tuple[BenchResult, BenchGpu]]:
        yield result(limits={}, gpu=GPU, gpu_limits=LIMITS), device

    for module in (bench_gpu, gpu_breakdown, gpu_sweeps, gpu_counters):
        monkeypatch.setattr(module, "measured_gpu", measured)
    return device
