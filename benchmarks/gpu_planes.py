"""Many small grids as planes of one: the rate beside that of one large grid and of each alone.

python benchmarks/gpu_planes.py planes.json
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tetris_sim.bench.timing import FACES, FaceKind, random_field, random_problem, random_weights
from tetris_sim.errors import TetrisError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.grid import Grid
from tetris_sim.model.lowering import stacked
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_SECONDS, _ROUNDS = 0.05, 3
_TILES = ((16, 9, 5, 8, 1, 2, 0), (16, 12, 5, 8, 1, 1, 0), (12, 9, 5, 8, 1, 2, 0))
_NAMES = ("steps_per_block", "rows", "columns", "warps", "blocks", "edges", "interleaved")
_CASES = (
    ((8192, 8192), "one"),
    ((256, 256), "one"),
    ((1024, 256, 256), "planes"),
    ((4096, 128, 128), "planes"),
    ((256, 512, 512), "planes"),
    ((32, 64, 64), "planes"),
)
_ALL_FACES = ((8192, 8192), (1024, 256, 256))
_METHODS = ("gpu.plain", "gpu.stream", "gpu.trapezoid", "gpu.resident")


def make(shape: tuple[int, ...], faces: FaceKind, *, planes: bool) -> Problem:
    """heat-2d with equal neighbours and random data, alone or at every plane."""
    problem = random_problem("heat-2d", shape[-2:], "float64", "equal", faces, steps=1 << 20)
    if not planes:
        return problem
    field = random_field(shape, "float64")
    return replace(
        problem,
        grid=Grid(shape, (1.0,) * 3, (0.0,) * 3),
        stencil=stacked(random_weights("heat-2d", "equal")),
        boundary=Boundary(((Neumann(), Neumann()), *((FACES[faces],) * 2 for _ in range(2)))),
        initial=lambda slab: field[tuple(slice(*span) for span in slab.spans)][None],
    )


def rate(problem: Problem, method: Method, parameters: Parameters, device: Any) -> float:
    """Updates a second, the median of some rounds [G/s]."""
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, device)
    try:
        stepper.load(problem.initial)
        steps, taken = 384, []
        while True:
            stepper.advance(steps)
            stepper.wait()
            begin = time.perf_counter()
            stepper.advance(steps)
            stepper.wait()
            taken.append(time.perf_counter() - begin)
            if taken[-1] < _SECONDS and steps < 1 << 18:
                steps, taken = steps * 4, []
            elif len(taken) == _ROUNDS:
                return problem.grid.n_points * steps / statistics.median(taken) / 1e9
    finally:
        stepper.close()


def main() -> None:
    """Time every method on every case."""
    device, told = GpuDevice(), []
    name = device.cupy.cuda.runtime.getDeviceProperties(device.number)["name"].decode()
    print(name)
    for shape, kind in _CASES:
        kinds: tuple[FaceKind, ...] = tuple(FACES) if shape in _ALL_FACES else ("insulated",)
        for faces in kinds:
            problem = make(shape, faces, planes=kind == "planes")
            for method in METHODS:
                if method.name not in _METHODS or method.refusal(problem) is not None:
                    continue
                tried = list(method.parameters(problem)[:3])
                if method.name == "gpu.stream":
                    tried += [dict(zip(_NAMES, tile, strict=True)) for tile in _TILES]
                for parameters in tried:
                    try:
                        found = rate(problem, method, parameters, device)
                    except TetrisError as error:
                        found = 0.0
                        print(method.name, parameters, error)
                    row = (shape, faces, method.name, list(parameters.values()), round(found, 1))
                    told.append(row)
                    print(*row, flush=True)
            Path(sys.argv[1]).write_text(json.dumps({"gpu": name, "rates": told}, indent=1))


if __name__ == "__main__":
    main()
