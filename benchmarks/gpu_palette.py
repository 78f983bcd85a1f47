"""How fast gpu.stream is for bodies of a few materials: whole steps with faces, on a GPU.

    python benchmarks/gpu_palette.py 2 10240 temperatures
    python benchmarks/gpu_palette.py 2 10240 melting
    python benchmarks/gpu_palette.py 2 10240 coefficients
    python benchmarks/gpu_palette.py 3 768 graded
    python benchmarks/gpu_palette.py 3 1024 temperatures one,voronoi "(3, 5"

With TETRIS_SIM_ROWS=FILE the measurements are kept as JSON, with TETRIS_SIM_IDS=256 there are as
many materials, otherwise eight. The last two arguments, if given, say which bodies and which
proposals. Materials conduct, or melt; or there is another conductance at every face, as in a file
(coefficients), or axes are graded. Along each axis one face exchanges heat with what is around it
and one is insulated.
Every proposal is compared with gpu.plain on a smaller grid first. A line has its parameters, then
GStencil/s for each body.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.conduction import GradedCoefficients
from tetris_sim.apps.heat.materials import MaterialCurves, Melting, in_potentials, make_enthalpy
from tetris_sim.gpu_kernels.common.device import GpuDevice, compile_source
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import (
    AFFINE,
    Conduction,
    Medium,
    Numbers,
    Parameter,
    Rule,
    RuledFace,
    in_series,
)
from tetris_sim.model.formula import Variable as Name
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Field, InitialField, Problem, StateVariable, Total
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import star_mean

N_IDS = int(os.environ.get("TETRIS_SIM_IDS", "8"))
SECONDS = 0.3  # of a timing, about
NEAREST = """
extern "C" __global__ void nearest(unsigned char* ids, const float* seeds, int n, int kinds,
    int nz, int ny, int nx) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    if (x >= nx) return;
    float best = 1e30f;
    int which = 0;
    for (int s = 0; s < n; ++s) {
        const float a = x - seeds[3 * s], b = y - seeds[3 * s + 1], c = z - seeds[3 * s + 2];
        if (a * a + b * b + c * c < best) best = a * a + b * b + c * c, which = s;
    }
    ids[((long long)z * ny + y) * nx + x] = which % kinds;
}
"""
Ids = npt.NDArray[np.uint8]
Shape = tuple[int, ...]


def one(cupy: Any, shape: Shape) -> Ids:
    """Several ids would be in the tables, and one is there."""
    return np.zeros(shape, np.uint8)


def rectangles(cupy: Any, shape: Shape) -> Ids:
    """60 of them, or boxes."""
    rng, ids = np.random.default_rng(5), np.zeros(shape, np.uint8)
    for _ in range(60):
        sizes = rng.integers(shape[0] // 20, shape[0] // (2 + len(shape)), len(shape))
        lows = rng.integers(0, shape[0], len(shape))
        ids[tuple(map(slice, lows, lows + sizes))] = rng.integers(0, N_IDS)
    return ids


def voronoi(cupy: Any, shape: Shape) -> Ids:
    """200 cells."""
    nz, ny, nx = (*(1,) * (3 - len(shape)), *shape)
    seeds = np.random.default_rng(5).uniform(0, 1, (200, 3)) * np.array([nx, ny, nz])
    ids = cupy.zeros(shape, np.uint8)
    numbers = map(np.int32, (200, N_IDS, nz, ny, nx))
    arguments = (ids, cupy.asarray(seeds.astype(np.float32)), *numbers)
    cupy.RawKernel(NEAREST, "nearest")((-(-nx // 128), ny, nz), (128, 1, 1), arguments)
    return np.asarray(cupy.asnumpy(ids))


def discs(cupy: Any, shape: Shape) -> Ids:
    """2000 of another material, of different sizes."""
    rng, n, ids = np.random.default_rng(5), shape[0], np.zeros(shape, np.uint8)
    for _ in range(2000):
        r = int(rng.uniform(0.3, 1.7) * 80 * n / 10240) + 2
        y, x = (int(value) for value in rng.integers(r, n - r, 2))
        beside, below = np.ogrid[-r : r + 1, -r : r + 1]
        ids[y - r : y + r + 1, x - r : x + r + 1] |= beside**2 + below**2 <= r * r
    return ids


def random(cupy: Any, shape: Shape) -> Ids:
    """Another one at every point."""
    return np.random.default_rng(5).integers(0, N_IDS, shape, dtype=np.uint8)


BODIES: dict[int, tuple[Callable[[Any, Shape], Ids], ...]] = {
    2: (one, rectangles, voronoi, discs, random),
    3: (one, rectangles, voronoi, random),
}

ALL = {
    "temperatures": "one,rectangles,voronoi,discs,random",
    "melting": "one,rectangles,voronoi",
    "coefficients": "one",
    "graded": "one",
}


def make_problem(ids: Ids, sources: bool, physics: str = "temperatures") -> Problem:
    """A body of these materials with faces, and sources that change if it has any."""
    rng, ndim = np.random.default_rng(2), ids.ndim
    conductivity, capacity = rng.uniform(0.3, 5, N_IDS), rng.uniform(0.5, 2, N_IDS)
    conductance = np.stack([in_series(1.0, conductivity)] * ndim)
    dt = 0.9 * float((capacity / (2 * conductance.max(axis=2).sum(axis=0))).min())
    power = rng.uniform(-0.1, 0.1, N_IDS)
    heat = Parameter("q", lambda t: power * np.sin(t)[:, None])

    def face(a: float, b: float, lasting: tuple[float, float] | None) -> RuledFace:
        numbers = (Parameter("a", np.array([a])), Parameter("b", np.array([b])))
        return RuledFace(Rule(AFFINE, numbers), lasting=lasting)

    names = tuple(f"material {n}" for n in range(N_IDS))
    conduction = Conduction(
        Medium(lambda box: ids[tuple(slice(*span) for span in box)], conductance, capacity, names),
        Rule(Program(Name("q")), (heat,)) if sources else None,
    )
    initial, grid = rough, Grid(ids.shape, (1.0,) * ndim, (0.5,) * ndim)
    if physics == "melting":
        conduction, initial = in_heat(conduction, conductivity, capacity), in_waves
        # Between different materials no more can flow than half a cell of one lets through.
        dt /= 2
    elif physics == "coefficients":
        conduction = replace(conduction, coefficients=EveryFace(ids.shape, rng))
        dt = 0.8 / (2 * ndim)
    elif physics == "graded":
        conduction, grid = on_graded_axes(conduction, ids.shape, rng)
        dt = 0.9 / (8 * ndim)
    return Problem(
        grid=grid,
        stencil=star_mean(ndim),
        boundary=Boundary(tuple((face(0.1, 0.8, None), face(0, 1, (0, 1))) for _ in ids.shape)),
        initial=initial(ids.shape),
        dt=dt,
        steps=1000,
        dtype=np.dtype(np.float64),
        variables=(StateVariable("temperature", "degC", "temperature", Total("heat", "J", 1.0)),),
        conduction=conduction,
    )


def rough(shape: Shape) -> InitialField:
    """Another number at every point."""
    plane = np.random.default_rng(2).random((1, 1, *shape[1:]))

    def initial(slab: Slab) -> Field:
        part = plane[(slice(None), slice(None), *(slice(*span) for span in slab.spans[1:]))]
        rows = 1 + np.arange(*slab.spans[0]) % 7 / 10.0
        return np.asarray(part * rows.reshape(-1, *[1] * (len(shape) - 1)))

    return initial


def in_waves(shape: Shape) -> InitialField:
    """Heat contents from what is solid to what is liquid, 16 times along each axis, and some noise:
    fronts run through a third of the warps or so.
    """
    rng, n = np.random.default_rng(2), shape[0]
    waves = [np.sin(np.arange(m) * 32 * np.pi / n) + rng.uniform(-0.1, 0.1, m) for m in shape]

    def initial(slab: Slab) -> Field:
        total = np.zeros((1,) * (len(shape) + 1))
        for axis, (low, high) in enumerate(slab.spans):
            sizes = [-1 if k == axis else 1 for k in range(len(shape))]
            total = total + waves[axis][low:high].reshape(1, *sizes)
        return np.asarray(total + 0.6)

    return initial


def in_heat(conduction: Conduction, conductivity: Numbers, capacity: Numbers) -> Conduction:
    """The same materials, which melt between heat contents of about 0.2 and 1.2."""
    materials = [
        MaterialCurves(
            ((0.0, k),), ((0.0, c),), 1.0, Melting(1.0 - 0.1 * c, 0.2 / c, 0.2 / c + 0.1)
        )
        for k, c in zip(conductivity.tolist(), capacity.tolist(), strict=True)
    ]
    spacing = (1.0,) * len(conduction.medium.conductance)
    enthalpy = make_enthalpy(materials, range(N_IDS), spacing)
    medium = in_potentials(conduction.medium, enthalpy)
    return replace(conduction, medium=medium, enthalpy=enthalpy)


def on_graded_axes(
    conduction: Conduction, shape: Shape, rng: np.random.Generator
) -> tuple[Conduction, Grid]:
    """Cells of one material whose widths lie between 0.5 and 1."""
    ndim, medium = len(shape), conduction.medium
    medium = Medium(medium.ids, np.ones((ndim, 1, 1)), np.ones(1), medium.names[:1])
    ends = [np.append(0.0, np.cumsum(rng.uniform(0.5, 1, n))).tolist() for n in shape]
    grid = Grid.graded(shape, [it[-1] for it in ends], ends)
    none = np.zeros((ndim, 1, 1))
    given = GradedCoefficients(
        grid,
        medium,
        np.ones((ndim, 1)),
        np.full((ndim, 1), np.nan),
        none,
        none,
        (False,) * ndim,
    )
    return replace(conduction, medium=medium, coefficients=given), grid


class EveryFace:
    """Conductances of which no two beside each other are the same."""

    separates = False  # they would, and stand for numbers of a file

    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        self._factors = [[rng.uniform(0.5, 1, n) for n in shape] for _ in range(len(shape) + 1)]

    def _product(self, number: int, box: Ranges) -> Numbers:
        product = np.ones((1,) * len(box))
        for axis, (low, high) in enumerate(box):
            sizes = [-1 if k == axis else 1 for k in range(len(box))]
            factors = self._factors[number][axis]
            product = product * factors[np.arange(low, high) % len(factors)].reshape(sizes)
        return product

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        """Of upper faces."""
        return self._product(axis, box)

    def capacity(self, box: Ranges) -> Numbers:
        """Of cells."""
        return 1 + self._product(-1, box)

    def volume(self, box: Ranges) -> Numbers:
        """Of cells."""
        return np.ones([high - low for low, high in box])


def advanced(method: Method, problem: Problem, parameters: Parameters, gpu: Any, n: int) -> Field:
    """The state after some steps."""
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    stepper.load(problem.initial)
    stepper.advance(n)
    result: Field = stepper.interior()
    stepper.close()
    return result


def rates_of(method: Method, problem: Problem, parameters: Parameters, gpu: Any) -> list[float]:
    """GStencil/s of whole steps, three times."""
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    stepper.load(problem.initial)

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
    stepper.close()
    return found


def compiled(job: tuple[str, dict[str, str | int]]) -> str:
    """Registers and spilled bytes; the machine code is kept."""
    code = compile_source(job[0], job[1], "sm_90")
    return f"{code.registers} {code.spilled}"


def row(ids: Ids, body: str, problem: Problem, physics: str, times: list[float]) -> dict[str, Any]:
    """One measurement as it is kept, but for who made it."""
    assert problem.conduction is not None
    return {
        "axes": ids.ndim,
        "n": ids.shape[0],
        "body": body,
        "physics": physics,
        "sources": problem.conduction.source is not None,
        "gstencil_per_s": [round(rate, 2) for rate in times],
    }


def main(
    ndim: int, n: int, physics: str, bodies: str = "", pattern: str = ""
) -> list[dict[str, Any]]:
    """Print the table, of some bodies and proposals if they are named; all measurements."""
    rows: list[dict[str, Any]] = []
    gpu, shape = GpuDevice(0), (n,) * ndim
    small = (n // 8,) * ndim
    every = []
    for sources in (False, True):
        problem = make_problem(one(gpu.cupy, small), sources, physics)
        every += [
            (sources, parameters)
            for parameters in METHOD.parameters(problem)
            if METHOD.refusal(problem) is None
            and pattern in f"{tuple(parameters.values())}{' sources' if sources else ''}"
        ]
    kernels = [METHOD.kernel(make_problem(one(gpu.cupy, small), s, physics), p) for s, p in every]
    with ProcessPoolExecutor(12) as pool:
        said = list(pool.map(compiled, [(k.source, dict(k.defines)) for k in kernels]))

    rates: dict[int, list[str]] = {}
    for make in BODIES[ndim]:
        if make.__name__ not in (bodies or ALL[physics]).split(","):
            continue
        ids, few = make(gpu.cupy, shape), make(gpu.cupy, small)
        for number, (sources, parameters) in enumerate(every):
            if sources and make not in (one, voronoi):
                continue
            problem = make_problem(few, sources, physics)
            steps = 2 * METHOD.depth(problem, parameters) + 1
            found = advanced(METHOD, problem, parameters, gpu, steps)
            wanted = advanced(GpuPlainMethod(), problem, {}, gpu, steps)
            error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
            assert error < 1e-14 * steps, (make.__name__, parameters, error)

            problem = make_problem(ids, sources, physics)
            times = rates_of(METHOD, problem, parameters, gpu)
            measured = float(np.median(times))
            made = {"method": METHOD.name, "parameters": dict(parameters)}
            rows.append({**row(ids, make.__name__, problem, physics, times), **made})
            print(make.__name__, tuple(parameters.values()), sources, round(measured), flush=True)
            rates.setdefault(number, []).append(f"{make.__name__} {measured:.0f}")
        problem = make_problem(ids, False, physics)
        times = rates_of(GpuPlainMethod(), problem, {}, gpu)
        made = {"method": "gpu.plain", "parameters": {}}
        rows.append({**row(ids, make.__name__, problem, physics, times), **made})
        print(f"{make.__name__}: gpu.plain {float(np.median(times)):.0f}", flush=True)
    for number, (sources, parameters) in enumerate(every):
        name = f"{tuple(parameters.values())}{' sources' if sources else ''}"
        print(f"{name} {said[number]}: {', '.join(rates.get(number, []))}", flush=True)
    return rows


if __name__ == "__main__":
    found = main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
    if "TETRIS_SIM_ROWS" in os.environ:
        Path(os.environ["TETRIS_SIM_ROWS"]).write_text(json.dumps(found, indent=1))
