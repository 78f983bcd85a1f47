"""How fast equations are on a GPU: whole steps with faces, gpu.stream and gpu.plain.

    python benchmarks/gpu_equations.py
    python benchmarks/gpu_equations.py gray-scott,cahn-hilliard all

The first argument, if given, says which equations, or in how many axes ("3d"); with `all` every tile of `TILES` is timed beside
the proposals. With TETRIS_SIM_ROWS=FILE the measurements are kept as JSON. First gpu.plain is
compared with the reference, and every tile with gpu.plain, whose bits it must have. A point and
step counts once, however many fields there are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.one_sweep_wave import check_one_sweep, one_sweep_rates  # noqa: E402
from tests.support import gpu_equation_cases as cases  # noqa: E402
from tetris_sim.gpu_kernels.common.device import GpuDevice, compile_source  # noqa: E402
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod  # noqa: E402
from tetris_sim.gpu_kernels.stream.method import METHOD  # noqa: E402
from tetris_sim.model import reference  # noqa: E402
from tetris_sim.model.boundary import Boundary, Neumann  # noqa: E402
from tetris_sim.model.equations import Equations  # noqa: E402
from tetris_sim.model.method import Method, Parameters  # noqa: E402
from tetris_sim.model.problem import Field, Problem  # noqa: E402
from tetris_sim.model.reference import allowed_error  # noqa: E402
from tetris_sim.model.slab import Slab  # noqa: E402

SECONDS = 0.1  # of a timing, about
_FEW = {1: 4096, 2: 256, 3: 32}  # points along an axis where only the equations matter
PLAIN = GpuPlainMethod()
# steps, rows, columns, warps, blocks, edges; in 3D steps, rows, warps across and down, planes
# ahead, blocks, planes held
TILES = {
    ("gray-scott", 2, "float64"): (
        *((16, 5, 5, 8, 1, 1), (8, 5, 5, 8, 1, 2), (8, 6, 5, 8, 1, 1), (12, 7, 4, 8, 1, 2)),
        *((8, 6, 4, 4, 2, 2), (8, 5, 6, 8, 1, 1), (8, 4, 4, 12, 1, 1), (8, 7, 5, 8, 1, 1)),
        *((8, 10, 3, 4, 2, 1), (8, 9, 3, 4, 2, 2), (8, 7, 4, 4, 2, 1), (8, 4, 5, 4, 2, 1)),
    ),
    ("gray-scott", 2, "float32"): (
        *((16, 5, 10, 8, 1, 1), (12, 7, 6, 4, 2, 2), (16, 7, 8, 8, 1, 1)),
    ),
    ("wave of order 2", 3, "float64"): ((3, 3, 2, 12, 1, 1, 0), (3, 6, 2, 6, 1, 1, 0)),
    ("wave of order 4", 3, "float64"): ((2, 3, 2, 14, 1, 1, 0),),
    ("cahn-hilliard", 2, "float64"): ((8, 4, 4, 8, 1, 1), (6, 10, 2, 4, 2, 2)),
}


@dataclass(frozen=True)
class Case:
    """What is timed.

    Attributes:
        name: of the equations.
        size: points along each axis.
        dtype: of the state.
        make: equations with a boundary.
        boundary: what holds at all faces.
    """

    name: str
    size: int
    ndim: int
    dtype: str
    make: Callable[[int, Boundary], Equations]
    boundary: str

    def problem(self, n: int) -> Problem:
        """On a grid of n points along each axis."""
        walls = Boundary.everywhere(Neumann(), self.ndim)
        boundary = cases.ring(self.ndim) if self.boundary == "periodic" else walls
        it = cases.make(self.make(self.ndim, boundary), (2,) * self.ndim, self.dtype)
        return replace(it, grid=it.grid.on_shape((n,) * self.ndim), initial=mild)


def mild(slab: Slab) -> Field:
    """Numbers of which no equation makes others that grow; not all alike."""
    axes = np.ix_(*(np.arange(*span) for span in slab.spans))
    waves = sum((k + 1) * axis for k, axis in enumerate(axes)) % 17 / 34.0
    return np.stack([0.5 + waves, 0.5 * waves])


def wave(accuracy: int) -> Callable[[int, Boundary], Equations]:
    """The wave equation in a medium of one speed, leapfrog."""

    def make(ndim: int, boundary: Boundary) -> Equations:
        return cases.plain_wave(ndim, boundary, accuracy)

    return make


CASES = (
    Case("gray-scott", 8192, 2, "float64", cases.gray_scott, "periodic"),
    Case("gray-scott", 8192, 2, "float32", cases.gray_scott, "periodic"),
    Case("gray-scott", 8192, 2, "float64", cases.gray_scott, "no flux"),
    Case("cahn-hilliard", 8192, 2, "float64", cases.cahn_hilliard, "periodic"),
    Case("wave of order 2", 8192, 2, "float64", wave(2), "periodic"),
    Case("gray-scott", 1 << 25, 1, "float64", cases.gray_scott, "periodic"),
    Case("cahn-hilliard", 1 << 25, 1, "float64", cases.cahn_hilliard, "periodic"),
    Case("wave of order 2", 1 << 25, 1, "float64", wave(2), "periodic"),
    Case("brusselator", 768, 3, "float64", cases.brusselator, "periodic"),
    Case("brusselator", 768, 3, "float64", cases.brusselator, "no flux"),
    Case("cahn-hilliard", 512, 3, "float64", cases.cahn_hilliard, "periodic"),
    Case("wave of order 2", 1024, 3, "float64", wave(2), "periodic"),
    Case("wave of order 4", 1024, 3, "float64", wave(4), "periodic"),
    Case("wave of order 2", 1024, 3, "float64", wave(2), "no flux"),
    Case("wave of order 4", 1024, 3, "float64", wave(4), "no flux"),
    Case("wave of order 2", 1024, 3, "float32", wave(2), "no flux"),
    Case("wave of order 4", 1024, 3, "float32", wave(4), "no flux"),
)


def advanced(method: Method, problem: Problem, parameters: Parameters, gpu: Any, n: int) -> Field:
    """The state after some steps."""
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    stepper.load(problem.initial)
    stepper.advance(n)
    result: Field = stepper.interior()
    stepper.close()
    return result


def rates_of(method: Method, problem: Problem, parameters: Parameters, gpu: Any) -> list[float]:
    """Billions of points and steps a second, three times."""
    stepper: Any = method.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    # As `mild`, which from the host would take longer than all else.
    with gpu.use() as cupy:
        for field, state in enumerate(stepper._state.now.reshape(problem.n_fields, -1)):
            state[...] = cupy.arange(state.size, dtype=problem.dtype) % 17 / 34
            state *= 0.5 if field else 1.0
            state += 0.0 if field else 0.5

    def seconds(steps: int) -> float:
        begin = time.perf_counter()
        stepper.advance(steps)
        stepper.wait()
        return time.perf_counter() - begin

    depth = method.depth(problem, parameters) if method is METHOD else 1
    seconds(2 * depth)
    steps = depth * max(1, round(SECONDS / seconds(depth)))
    updates = steps * float(np.prod(problem.grid.shape)) / 1e9
    found = [updates / seconds(steps) for _ in range(3)]
    assert stepper.find_nonfinite() is None
    stepper.close()
    return found


def candidates(case: Case, everything: bool) -> list[Parameters]:
    """Tiles to be timed."""
    problem = case.problem(_FEW[case.ndim])
    if METHOD.refusal(problem) is not None:
        return []
    proposed = list(METHOD.parameters(problem))
    names = list(proposed[0])
    others = [
        dict(zip(names, numbers, strict=True))
        for numbers in (TILES.get((case.name, case.ndim, case.dtype), ()) if everything else ())
        if case.boundary == "periodic" or case.ndim == 3
    ]
    return proposed + [it for it in others if it not in proposed]


def compiled(job: tuple[str, dict[str, str | int]]) -> str:
    """Registers and spilled bytes; the machine code is kept."""
    code = compile_source(job[0], job[1], "sm_90")
    return f"{max(code.registers.values())} {code.spilled}"


def check(case: Case, parameters: list[Parameters], gpu: Any) -> None:
    """Few points: gpu.plain against the reference, tiles against gpu.plain."""
    problem = case.problem({1: 3000, 2: 96, 3: 20}[case.ndim])
    start = problem.initial(Slab.whole(problem.grid)).astype(problem.dtype)
    near = reference.advance(start, problem, 9)
    error = np.abs(advanced(PLAIN, problem, {}, gpu, 9) - near)
    assert (error <= allowed_error(start, near, problem, 9)).all(), (case, error.max())
    problem = case.problem({1: 100_000, 2: 1500, 3: 150}[case.ndim])
    for it in parameters:
        steps = 2 * METHOD.depth(problem, it) + 1
        found = advanced(METHOD, problem, it, gpu, steps)
        np.testing.assert_array_equal(found, advanced(PLAIN, problem, {}, gpu, steps), str(it))


def one_sweep(case: Case, gpu: Any) -> dict[str, Any]:
    """The same by a kernel that makes one step a sweep, without faces; its best block and number
    of planes.
    """
    accuracy = int(case.name[-1])
    check_one_sweep(accuracy, gpu)
    best, rates = one_sweep_rates(case.size, accuracy, case.dtype, gpu)
    with gpu.use() as cupy:
        cupy.get_default_memory_pool().free_all_blocks()
    print(f"one sweep {best}: {np.median(rates):.1f}", flush=True)
    return {
        "method": "one sweep",
        "parameters": {"block and planes": best},
        "rates": [round(rate, 2) for rate in rates],
    }


def main(which: str = "", what: str = "") -> list[dict[str, Any]]:
    """Print and return all measurements."""
    gpu, rows = GpuDevice(0), []
    wanted = set(which.split(",")) if which else None
    chosen = [it for it in CASES if wanted is None or wanted & {it.name, f"{it.ndim}d"}]
    tiles = {case: candidates(case, what == "all") for case in chosen}
    every = [(case, it) for case in chosen for it in tiles[case]]
    kernels = [METHOD.kernel(case.problem(_FEW[case.ndim]), it) for case, it in every]
    with ProcessPoolExecutor(14) as pool:
        said = list(pool.map(compiled, [(k.source, dict(k.defines)) for k in kernels]))

    for case in chosen:
        check(case, tiles[case], gpu)
        print(f"{case.name} {case.dtype} {case.boundary}: checked", flush=True)
        problem = case.problem(case.size)
        about = {k: v for k, v in asdict(case).items() if k != "make"}
        if case.ndim == 3 and case.name.startswith("wave") and case.boundary == "periodic":
            rows.append({**about, **one_sweep(case, gpu)})
        jobs: list[tuple[Method, Parameters]] = [(PLAIN, {})]
        jobs += [(METHOD, it) for it in tiles[case]]
        for method, it in jobs:
            times = rates_of(method, problem, it, gpu)
            code = said[every.index((case, it))] if it else ""
            print(f"{tuple(it.values())} {code}: {np.median(times):.1f}", flush=True)
            rates = [round(rate, 2) for rate in times]
            rows.append({**about, "method": method.name, "parameters": dict(it), "rates": rates})
    return rows


if __name__ == "__main__":
    found = main(*sys.argv[1:])
    if "TETRIS_SIM_ROWS" in os.environ:
        Path(os.environ["TETRIS_SIM_ROWS"]).write_text(json.dumps(found, indent=1))
