"""Pairs of floats beside float64 and float32 on a GPU: rates, and errors after many steps.

    python benchmarks/gpu_pairs.py pairs.json

Rates are of whole grids with periodic faces, random data, the best of what a method proposes; beside
them what the FP32 instructions of a point (`OPERATIONS`, which a test counts in the machine code)
and the multiply-adds per second that were measured in the same run would allow. Errors are those of
heat-2d after 200,000 steps, the largest over the largest value, beside float64 by `gpu.plain`.
"""

from __future__ import annotations

import datetime
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks.gpu_limits import measure_gpu_limits  # noqa: E402
from tetris_sim.bench.timing import WeightKind, random_problem  # noqa: E402
from tetris_sim.errors import TetrisError  # noqa: E402
from tetris_sim.gpu_kernels import METHODS  # noqa: E402
from tetris_sim.gpu_kernels.common.device import GpuDevice  # noqa: E402
from tetris_sim.model.boundary import Boundary, Dirichlet, Neumann, Periodic  # noqa: E402
from tetris_sim.model.method import Parameters  # noqa: E402
from tetris_sim.model.problem import Field, InitialField, Problem  # noqa: E402
from tetris_sim.model.slab import Slab  # noqa: E402
from tetris_sim.model.stencil import Stencil  # noqa: E402

SHAPES = {1: (10_240_000,), 2: (8192, 8192), 3: (512, 512, 512)}
CASES: tuple[tuple[str, WeightKind], ...] = (
    ("heat-1d", "equal"),
    ("heat-2d", "equal"),
    ("heat-2d", "random"),
    ("box-2d9p", "symmetric"),
    ("heat-3d", "equal"),
)
# FP32 instructions of a point and step by stencil and weights: 10 for each term but the first, 3 to
# settle; four equal neighbours cost less (`stream_2d_rows.cuh`).
OPERATIONS = {
    ("heat-1d", "equal"): 23,
    ("heat-2d", "equal"): 31,
    ("heat-2d", "random"): 43,
    ("heat-3d", "equal"): 63,
}
STORED = 12  # for each point that a launch stores
TIMED = ("gpu.stream_pairs", "gpu.plain_pairs", "gpu.stream", "gpu.plain")
STEPS, SIDE = 200_000, 512
_ROUNDS, _SECONDS, _MOST_TRIED = 5, 0.05, 2  # in float64


@dataclass(frozen=True)
class Timed:
    """Rates of a method with certain parameters [updates/s]."""

    parameters: Parameters
    rates: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the rounds."""
        return statistics.median(self.rates)


def bound(stencil: str, weights: str, steps: int, limit: float) -> float | None:
    """Updates a second that FP32 instructions allow, of which there are `limit` a second."""
    operations = OPERATIONS.get((stencil, weights))
    return None if operations is None else limit / (operations + STORED / steps)


def timed(problem: Problem, name: str, parameters: Parameters, device: Any) -> Timed:
    """Time a method again and again."""
    method = next(it for it in METHODS if it.name == name)
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, device)
    try:
        stepper.load(problem.initial)
        steps = 4 * method.depth(problem, parameters)
        while (taken := _seconds(stepper, steps)) < _SECONDS:
            steps *= 2 if taken > _SECONDS / 4 else 4
        taken_each = [_seconds(stepper, steps) for _ in range(_ROUNDS)]
        largest = float(np.abs(stepper.interior(tuple((0, 8) for _ in problem.grid.shape))).max())
        assert 0 < largest <= 1, "weights of sum 1 keep the field below its largest value"
    finally:
        stepper.close()
    return Timed(parameters, tuple(problem.grid.n_points * steps / it for it in taken_each))


def _seconds(stepper: Any, steps: int) -> float:
    stepper.wait()
    begin = time.perf_counter()
    stepper.advance(steps)
    stepper.wait()
    return time.perf_counter() - begin


def rates(device: Any, limit: float) -> Iterator[dict[str, Any]]:
    """The best of each method for each case."""
    for stencil, weights in CASES:
        shape = SHAPES[int(stencil[stencil.index("d") - 1])]
        problem = random_problem(stencil, shape, "float64", weights, "periodic", steps=1 << 20)
        problem = replace(problem, pairs=True)
        for name in TIMED:
            method = next(it for it in METHODS if it.name == name)
            found = []
            most = None if "pairs" in name else _MOST_TRIED
            for parameters in method.parameters(problem)[:most]:
                try:
                    found.append(timed(problem, name, parameters, device))
                except TetrisError as error:
                    print(name, parameters, error)
            best = max(found, key=lambda it: it.median)
            row = {
                "stencil": stencil,
                "weights": weights,
                "shape": shape,
                "method": name,
                "parameters": dict(best.parameters),
                "median": best.median,
                "low": min(best.rates),
                "high": max(best.rates),
                "tried": {str(list(it.parameters.values())): it.median for it in found},
            }
            if name == "gpu.stream_pairs":
                steps = method.depth(problem, best.parameters)
                row["bound"] = bound(stencil, weights, steps, limit)
            print(row, flush=True)
            yield row


def plate(kind: str, side: int = SIDE, weight: float = 0.2) -> tuple[Problem, Field]:
    """heat-2d on a square: between faces of 100 and 0 degrees with a block of 100 in it, or a torus
    of smooth waves about 50.
    """
    y, x = np.meshgrid(*2 * (2 * np.pi * (np.arange(side) + 0.5) / side,), indexing="ij")
    smooth = 50 + 30 * np.sin(x) * np.cos(2 * y) + 10 * np.sin(3 * x + y)
    block = np.where((x < 2) & (y < 3), 100.0, 0.0)
    state = (block if kind == "jumps" else smooth)[None]
    offsets = ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0))
    weights = tuple(1 - 4 * weight if offset == (0, 0) else weight for offset in offsets)
    faces = (
        ((Dirichlet(100.0), Dirichlet(0.0)), (Neumann(), Dirichlet(20.0)))
        if kind == "jumps"
        else ((Periodic(), Periodic()),) * 2
    )
    problem = replace(
        random_problem("heat-2d", (side, side), "float64", "equal", "periodic", steps=1 << 20),
        stencil=Stencil(offsets, weights),
        boundary=Boundary(faces),
        initial=lambda slab: state[(slice(None), *(slice(*span) for span in slab.spans))],
        pairs=True,
    )
    return problem, state


def smooth_after(steps: int, side: int = SIDE, weight: float = 0.2) -> Field:
    """What the torus of smooth waves becomes, whose waves only fade."""
    y, x = np.meshgrid(*2 * (2 * np.pi * (np.arange(side) + 0.5) / side,), indexing="ij")

    def faded(*waves: int) -> float:
        lost = sum(4 * weight * math.sin(math.pi * k / side) ** 2 for k in waves)
        return math.exp(steps * math.log1p(-lost))

    first = 30 * faded(1, 2) * np.sin(x) * np.cos(2 * y)
    return (50 + first + 10 * faded(3, 1) * np.sin(3 * x + y))[None]


def errors(device: Any) -> Iterator[dict[str, Any]]:
    """How far from float64 by `gpu.plain` all others are after many steps."""
    for kind in ("jumps", "smooth"):
        problem, state = plate(kind)
        single = replace(
            problem,
            dtype=np.dtype(np.float32),
            initial=_single(problem.initial),
        )
        wanted: Field | None = None
        exact = smooth_after(STEPS)
        for name, posed in (
            ("gpu.plain", problem),
            ("gpu.stream", problem),
            ("gpu.plain_pairs", problem),
            ("gpu.stream_pairs", problem),
            ("gpu.plain", single),
            ("gpu.stream", single),
        ):
            method = next(it for it in METHODS if it.name == name)
            parameters = method.parameters(posed)[0]
            stepper = method.prepare(posed, Slab.whole(posed.grid), parameters, device)
            stepper.load(posed.initial)
            begin = time.perf_counter()
            stepper.advance(STEPS)
            stepper.wait()
            found = stepper.interior().astype(np.float64)
            stepper.close()
            wanted = found if wanted is None else wanted
            row = {
                "field": kind,
                "method": name,
                "precision": "float32x2" if "pairs" in name else posed.dtype.name,
                "error": _error(found, wanted),
                **({"of_exact": _error(found, exact)} if kind == "smooth" else {}),
                "moved": float(np.abs(found - state).max()),
                "seconds": time.perf_counter() - begin,
            }
            print(row, flush=True)
            yield row


def _single(initial: InitialField) -> InitialField:
    return lambda slab: initial(slab).astype(np.float32)


def _error(found: Field, wanted: Field) -> float:
    """The largest error over the largest value."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def main() -> None:
    """Measure all, and keep what there is as it comes."""
    device = GpuDevice()
    with device.use() as cupy:
        name = cupy.cuda.runtime.getDeviceProperties(device.number)["name"].decode()
    limits = measure_gpu_limits(device, rounds=3, seconds=0.05)
    limit = limits.fma["float32"].median
    told: dict[str, Any] = {
        "device": name,
        "date": datetime.date.today().isoformat(),
        "fp32": limit,
        "fp64": limits.fma["float64"].median,
        "copy": limits.copy.median,
        "steps": STEPS,
        "side": SIDE,
        "errors": [],
        "rates": [],
    }
    for part, rows in (("errors", errors(device)), ("rates", rates(device, limit))):
        for row in rows:
            told[part].append(row)
            Path(sys.argv[1]).write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
