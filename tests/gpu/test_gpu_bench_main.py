"""`bench gpu` without a GPU: every method and face of a small problem on emulated kernels, and its
tables.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.emulated import BenchGpu, emulated_gpu
from benchmarks.gpu_peers import open_peers
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tetris_sim.bench import gpu as bench
from tetris_sim.bench.tables import as_text, bounds_of
from tetris_sim.gpu_kernels import METHODS

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> BenchGpu:
    return emulated_gpu(monkeypatch)


def test_every_method_is_timed_and_the_fastest_with_every_face(
    gpu: BenchGpu,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def few(problem: Any, method: Any, device: Any, seconds: float) -> Any:
        return min(
            method.parameters(problem), key=lambda choice: choice.get("steps_per_block", 1)
        ), []

    # Kernels that are emulated take a second each; that the fastest are chosen, test_bench.py shows
    # on the CPU.
    monkeypatch.setattr(bench, "_choose", few)
    result = bench.bench_gpu(["box-2d9p"], shape=(40, 150), rounds=1, seconds=1e-3)
    assert [case.weights for case in result.gpu_kernels] == ["random", "symmetric"]
    for case in result.gpu_kernels:
        names = {row.name for row in case.rows}
        assert names | set(case.refusals) == {method.name for method in METHODS}
        # the emulated GPU holds two blocks
        assert "has 2" in case.refusals["gpu.resident"]
        others = [why for name, why in case.refusals.items() if name != "gpu.resident"]
        assert all("float16" in why or "float32x2" in why for why in others)
        assert {"gpu.stream", "gpu.trapezoid", "gpu.dual_tessellation", "gpu.plain"} <= names
        assert set(case.faces) == {"insulated", "periodic", "convection"}
        assert all(row.rate > 0 for row in case.rows)
    text = as_text(result)
    assert "with other faces" in text
    assert text.count("gpu.trapezoid") >= 2


def test_float16_is_measured_too_beside_a_kernel_of_ones_own(
    gpu: BenchGpu,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def few(problem: Any, method: Any, device: Any, seconds: float) -> Any:
        return method.parameters(problem)[-1], []

    monkeypatch.setattr(bench, "_choose", few)
    result = bench.bench_gpu(
        ["heat-2d"], shape=(40, 150), dtypes=("float16",), rounds=1, seconds=1e-3, peers=open_peers
    )
    (case,) = result.gpu_kernels
    assert case.dtype == "float16"
    assert {"naive kernel", "gpu.sparse", "gpu.plain"} <= {row.name for row in case.rows}
    assert "gpu.stream" in case.refusals
    # A sweep reads and writes two bytes, and its sums are float32.
    bounds, limits = bounds_of(case, result.gpu_limits), result.gpu_limits["before"]
    assert bounds.memory == pytest.approx(limits.copy.median / 4)
    assert bounds.fma == pytest.approx(limits.fma["float32"].median / 5)
