"""Results and methods that were never measured, so that the arithmetic of the benchmark can be done
by hand.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tetris_sim.bench.result import (
    BenchCase,
    BenchResult,
    BenchRow,
    CacheLimit,
    MachineLimits,
    Timing,
    When,
    WholeRun,
)
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import KnownGpu, Parameters
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab


def timing(median: float) -> Timing:
    return Timing(median, low=0.5 * median, high=2 * median)


def limits(fma: float, copy: float) -> MachineLimits:
    """Limits of a machine with two caches; `copy` is that of the faster kind."""
    caches = (
        CacheLimit(1, n_bytes=4096, sharing=1, capacity=8192, copy=timing(8 * copy)),
        CacheLimit(2, n_bytes=65536, sharing=2, capacity=65536, copy=timing(4 * copy)),
    )
    return MachineLimits(
        copy=timing(copy / 2),
        copy_past_caches=timing(copy),
        load=timing(16 * copy),
        fma={"float64": timing(fma), "float32": timing(2 * fma)},
        fma_one_thread={"float64": timing(fma / 2), "float32": timing(fma)},
        caches=caches,
        threads=2,
    )


LIMITS: dict[When, MachineLimits] = {"before": limits(100e9, 30e9), "after": limits(90e9, 32e9)}
"""The better of both: 100e9 multiply-adds per second, 32 GB/s."""


def row(
    name: str,
    rate: float,
    *,
    parameters: Mapping[str, int] | None = None,
    end_to_end: tuple[int, float] | None = None,
) -> BenchRow:
    measured = BenchRow(name, timing(rate), dict(parameters or {}))
    if end_to_end is None:
        return measured
    steps, whole = end_to_end
    run = WholeRun(steps, seconds=1.0, rate=whole, steady_rate=12e9, runs=3, memory_seconds=0.1)
    return dataclasses.replace(measured, end_to_end=run)


def kernel(rows: Sequence[BenchRow], dtype: str = "float64") -> BenchCase:
    return BenchCase("heat-2d", dtype, (30, 40), 5, tuple(rows))


def result(**parts: Any) -> BenchResult:
    versions = {"python": "3.11.1", "numpy": "2.0.0", "numba": "0.61.0", "llvmlite": "0.44.0"}
    return BenchResult(
        host="here",
        cpu="Some CPU",
        threads=2,
        versions=versions,
        commit="abc",
        date="2026-11-01",
        rounds=3,
        seconds=0.1,
        **{"limits": LIMITS, **parts},
    )


def main_result() -> BenchResult:
    rows = [
        row("prange indexed", 1e9),
        row("prange slices", 1.5e9),
        row("cpu.plain", 1.6e9, end_to_end=(1000, 9e9)),
    ]
    tiled = row(
        "cpu.tessellate",
        12e9,
        parameters={"tile": 64, "steps_per_block": 8},
        end_to_end=(1000, 9e9),
    )
    single = dataclasses.replace(
        kernel(rows, "float32"), refusals={"cpu.tessellate": "the grid is too narrow"}
    )
    return result(kernels=(kernel([*rows, tiled]), single))


def study(**parts: Any) -> dict[str, Any]:
    """A study as its file has it."""
    return {**result().as_json(), **parts}


class PacedStepper:
    """A stepper whose steps take the time that was asked for."""

    def __init__(self, problem: Problem, slab: Slab, pace: float) -> None:
        self.slab, self._pace, self._dtype = slab, pace, problem.dtype

    def load(self, initial: InitialField, step: int = 0) -> None:
        initial(self.slab)

    def advance(self, steps: int) -> None:
        time.sleep(steps * self._pace)

    def wait(self) -> None:
        pass

    def interior(self, box: Any = None) -> Field:
        return np.zeros((1, *self.slab.shape), dtype=self._dtype)

    def close(self) -> None:
        pass


class PacedMethod:
    """A method whose parameter `pace` chooses how long a step takes; it cannot prepare a pace it
    does not know.
    """

    device: Literal["cpu"] = "cpu"
    exact = False

    def __init__(
        self,
        name: str,
        paces: Mapping[int, float],
        *,
        prepare_seconds: float = 0.0,
        refuses: str = "",
    ) -> None:
        self.name, self._paces, self._prepare_seconds, self._refuses = (
            name,
            paces,
            prepare_seconds,
            refuses,
        )

    def refusal(self, problem: Problem) -> str | None:
        return self._refuses or None

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        return tuple({"pace": pace} for pace in self._paces)

    def fixed_at_compile(self, parameter: str) -> bool:
        return False

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        return None

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        return problem.state_bytes

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        pace = parameters["pace"]
        if pace not in self._paces:
            msg = f"no pace {pace}"
            raise UnsupportedError(msg)
        time.sleep(self._prepare_seconds)
        return PacedStepper(problem, slab, self._paces[pace])
