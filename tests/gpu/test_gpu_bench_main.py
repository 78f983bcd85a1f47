"""`bench gpu` without a GPU: every method and face of a small problem on emulated kernels, and its
tables.
"""

from __future__ import annotations

from typing import Any

import pytest
from emulator.emulation import COMPILER, NO_COMPILER
from test_gpu_bench import BenchGpu, gpu  # noqa: F401  a fixture

from tetris_sim.bench import gpu as bench
from tetris_sim.bench.tables import as_text
from tetris_sim.gpu_kernels import METHODS

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


def test_every_method_is_timed_and_the_fastest_with_every_face(
    gpu: BenchGpu,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def few(problem: Any, method: Any, device: Any, seconds: float) -> Any:
        return min(
            method.parameters(problem), key=lambda choice: choice.get("steps_per_block", 1)
        ), []

    # Kernels that are emulated take a second each; that the fastest are chosen, test_bench.py shows
    # on the CPU.
    monkeypatch.setattr(bench, "_choose", few)
    monkeypatch.setattr(bench, "open_baselines", lambda problem, device: [])
    result = bench.bench_gpu(["box-2d9p"], shape=(40, 150), rounds=1, seconds=1e-3)
    assert [kernel["weights"] for kernel in result["gpu_kernels"]] == ["random", "symmetric"]
    for kernel in result["gpu_kernels"]:
        names = {row["name"] for row in kernel["rows"]}
        assert names | set(kernel["refusals"]) == {method.name for method in METHODS}
        assert all("float16" in why for why in kernel["refusals"].values())
        assert {"gpu.stream", "gpu.trapezoid", "gpu.dual_tessellation", "gpu.plain"} <= names
        assert set(kernel["faces"]) == {"insulated", "periodic", "convection"}
        assert all(row["steady"]["median"] > 0 for row in kernel["rows"])
    del result["gpu_limits"]
    text = as_text(
        {
            **result,
            "versions": dict.fromkeys(("python", "numpy", "numba", "llvmlite"), "1"),
            "gpu": GPU,
        }
    )
    assert "with other faces" in text
    assert text.count("gpu.trapezoid") >= 2


GPU = {"name": "A GPU", "architecture": "sm_90", "driver": "13.0"}


def test_float16_is_measured_too_beside_a_kernel_of_ones_own(
    gpu: BenchGpu,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def few(problem: Any, method: Any, device: Any, seconds: float) -> Any:
        return method.parameters(problem)[-1], []

    monkeypatch.setattr(bench, "_choose", few)
    result = bench.bench_gpu(
        ["heat-2d"], shape=(40, 150), dtypes=("float16",), rounds=1, seconds=1e-3
    )
    (kernel,) = result["gpu_kernels"]
    assert kernel["dtype"] == "float16"
    rows = {row["name"]: row for row in kernel["rows"]}
    assert {"naive kernel", "gpu.sparse", "gpu.plain"} <= set(rows)
    assert "gpu.stream" in kernel["refusals"]
    # A sweep reads and writes two bytes, and its sums are float32.
    limits = result["gpu_limits"]["before"]
    assert kernel["bounds"]["memory"] == pytest.approx(limits["copy"]["median"] / 4)
    assert kernel["bounds"]["fma"] == pytest.approx(limits["fma"]["float32"]["median"] / 5)
