"""How fast cpu.tessellate is for bodies, beside the constant stencil of as many points.

    python benchmarks/cpu_bodies.py 2 4096
    python benchmarks/cpu_bodies.py 3 256

Two threads, eight materials, insulated faces. Every body is compared with cpu.plain on a smaller
grid first; bodies take turns, and ratios are those of one turn. `arrays` has a conductance of its
own for every face; `loop` is what a Numba user would write for it, one `prange` per step. With
TETRIS_SIM_ROWS=FILE the measurements are kept as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.cpu_kernels.tessellate.method import TessellateMethod
from tetris_sim.model.boundary import Boundary, Neumann
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
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import star_mean
from tetris_sim.model.stencils.catalogue import named_stencil

THREADS, N_IDS, TURNS = 2, 8, 5
SECONDS = 0.5  # of a timing, about
TRIED = 3  # first proposals of the method
Shape = tuple[int, ...]


def ids_of(name: str, shape: Shape) -> npt.NDArray[np.uint8]:
    """The materials of a body."""
    rng, n, ids = np.random.default_rng(5), shape[0], np.zeros(shape, np.uint8)
    if name == "layers":
        ids += (np.arange(n) * N_IDS // n).astype(np.uint8).reshape(-1, *[1] * (len(shape) - 1))
    if name == "rectangles":
        for _ in range(60):
            sizes = rng.integers(n // 20, n // (2 + len(shape)), len(shape))
            lows = rng.integers(0, n, len(shape))
            ids[tuple(map(slice, lows, lows + sizes))] = rng.integers(0, N_IDS)
    if name == "voronoi":
        tree = cKDTree(rng.uniform(0, n, (200, len(shape))))
        for plane in range(n):
            where = np.indices((1, *shape[1:])).reshape(len(shape), -1).T.copy()
            where[:, 0] = plane
            ids[plane] = (tree.query(where)[1] % N_IDS).reshape(shape[1:])
    if name == "discs":
        for _ in range(2000 if len(shape) == 2 else 500):
            r = int(rng.uniform(0.3, 1.7) * n / 128) + 2
            middle = rng.integers(r, n - r, len(shape))
            ball = sum(axis**2 for axis in np.ogrid[(slice(-r, r + 1),) * len(shape)]) <= r * r
            ids[tuple(slice(k - r, k + r + 1) for k in middle)] |= ball
    if name == "random":
        ids = rng.integers(0, N_IDS, shape, dtype=np.uint8)
    return ids


class Arrays:
    """A conductance for every face and a capacity for every point, at random."""

    def __init__(self, shape: Shape) -> None:
        rng, grown = np.random.default_rng(6), tuple(n + 1 for n in shape)
        self.faces = [rng.uniform(0.5, 2, grown) for _ in shape]
        self.points = rng.uniform(0.5, 2, shape)

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        """Of upper faces, from -1 on."""
        shift = [int(k == axis) for k in range(len(box))]
        return self.faces[axis][
            tuple(slice(low + s, high + s) for (low, high), s in zip(box, shift, strict=True))
        ]

    def capacity(self, box: Ranges) -> Numbers:
        """Of points."""
        return self.points[tuple(slice(*span) for span in box)]

    def volume(self, box: Ranges) -> Numbers:
        """Of points, all the same."""
        return np.ones([high - low for low, high in box])


def problem_of(name: str, shape: Shape) -> Problem:
    """A body by name; `constant` is the named stencil heat-2d or heat-3d."""
    ndim = len(shape)
    plane = np.random.default_rng(1).random((1, 1, *shape[1:]))

    def initial(slab: Slab) -> Field:
        part = plane[(slice(None), slice(None), *(slice(*span) for span in slab.spans[1:]))]
        rows = 1 + np.arange(*slab.spans[0]) % 7 / 10.0
        return np.asarray(part * rows.reshape(-1, *[1] * (ndim - 1)))

    constant = Problem(
        grid=Grid(shape, (1.0,) * ndim, (0.5,) * ndim),
        stencil=named_stencil(f"heat-{ndim}d").stencil,
        boundary=Boundary.everywhere(Neumann(), ndim),
        initial=initial,
        dt=1.0,
        steps=1000,
        dtype=np.dtype(np.float64),
        variables=(StateVariable("temperature", "degC", "temperature", Total("heat", "J", 1.0)),),
    )
    if name == "constant":
        return constant

    rng, body = np.random.default_rng(2), name.removesuffix(" with sources")
    conductance = np.stack([in_series(1.0, rng.uniform(0.3, 5, N_IDS))] * ndim)
    capacity, ids = rng.uniform(0.5, 2, N_IDS), ids_of(body, shape)
    medium = Medium(
        lambda box: ids[tuple(slice(*span) for span in box)],
        conductance,
        capacity,
        tuple(f"material {n}" for n in range(N_IDS)),
    )
    power = rng.uniform(-0.1, 0.1, N_IDS)
    heat = Parameter("q", lambda t: power * np.sin(t)[:, None])
    insulated = RuledFace(
        Rule(AFFINE, (Parameter("a", np.zeros(1)), Parameter("b", np.ones(1)))), lasting=(0, 1)
    )
    return replace(
        constant,
        stencil=star_mean(ndim),
        boundary=Boundary(((insulated, insulated),) * ndim),
        dt=0.9 * float((capacity / (2 * conductance.max(axis=2).sum(axis=0))).min())
        if name != "arrays"
        else 0.9 * 0.5 / (4 * ndim),
        conduction=Conduction(
            medium,
            source=Rule(Program(Name("q")), (heat,)) if body != name else None,
            coefficients=Arrays(shape) if name == "arrays" else None,
        ),
    )


class Timed:
    """A stepper that is timed in turns."""

    def __init__(self, method: Method, problem: Problem, parameters: Parameters, team: Any) -> None:
        self._stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, team)
        self._stepper.load(problem.initial)
        self._points = float(np.prod(problem.grid.shape)) / 1e9
        self.steps = parameters.get("steps_per_block", 1)
        self.steps *= max(1, round(SECONDS / self._seconds()))

    def rate(self) -> float:
        """GStencil/s."""
        return self.steps * self._points / self._seconds()

    def _seconds(self) -> float:
        begin = time.perf_counter()
        self._stepper.advance(self.steps)
        self._stepper.wait()
        return time.perf_counter() - begin


class Loop:
    """A prange loop over the arrays of `Arrays`."""

    def __init__(self, shape: Shape) -> None:
        import numba

        @numba.njit(parallel=True)
        def sweep(u, v, y, x, r):  # type: ignore[no-untyped-def]
            for i in numba.prange(1, u.shape[0] - 1):
                for j in range(1, u.shape[1] - 1):
                    flow = y[i, j] * (u[i - 1, j] - u[i, j]) + y[i + 1, j] * (u[i + 1, j] - u[i, j])
                    flow += x[i, j] * (u[i, j - 1] - u[i, j]) + x[i, j + 1] * (
                        u[i, j + 1] - u[i, j]
                    )
                    v[i, j] = u[i, j] + r[i, j] * flow

        numba.set_num_threads(THREADS)
        rng, arrays = np.random.default_rng(1), Arrays(shape)
        self._u, self._v = rng.random(shape), rng.random(shape)
        y, x = (np.ascontiguousarray(face[: shape[0], : shape[1]]) for face in arrays.faces)
        rates = 0.1 / arrays.points
        self._sweep: Any = lambda u, v: sweep(u, v, y, x, rates)
        self.rate(1)

    def rate(self, steps: int = 10) -> float:
        """GStencil/s."""
        begin = time.perf_counter()
        for _ in range(steps):
            self._sweep(self._u, self._v)
            self._u, self._v = self._v, self._u
        return steps * self._u.size / (time.perf_counter() - begin) / 1e9


def fastest(problem: Problem, team: Any) -> tuple[Parameters, Timed]:
    """The best of the first proposals."""
    method = TessellateMethod()
    tried = []
    for parameters in method.parameters(problem)[:TRIED]:
        timed = Timed(method, problem, parameters, team)
        tried.append((max(timed.rate() for _ in range(2)), parameters, timed))
    _, parameters, timed = max(tried, key=lambda it: it[0])
    return parameters, timed


def check(name: str, ndim: int, parameters: Parameters, team: Any) -> None:
    """Compare a body's bits with those of cpu.plain."""
    problem = problem_of(name, (96,) * 2 if ndim == 2 else (40,) * 3)
    states = []
    for method, given in ((CpuPlainMethod(), {}), (TessellateMethod(), parameters)):
        stepper = method.prepare(problem, Slab.whole(problem.grid), given, team)
        stepper.load(problem.initial)
        stepper.advance(37)
        states.append(stepper.interior())
    assert np.array_equal(*states), name


def main(ndim: int, n: int) -> list[dict[str, Any]]:
    """Print the table; all measurements."""
    shape, team = (n,) * ndim, ThreadTeam(THREADS)
    names = ["constant", "layers", "rectangles", "rectangles with sources", "voronoi", "discs"]
    names += ["random", *["arrays"] * (ndim == 2)]
    timed: dict[str, Any] = {}
    chosen: dict[str, Parameters] = {}
    for name in names:
        chosen[name], timed[name] = fastest(problem_of(name, shape), team)
        if name != "constant":
            check(name, ndim, chosen[name], team)
        timed["constant"].rate()
    if ndim == 2:
        timed["loop"], chosen["loop"] = Loop(shape), {}

    rates: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(TURNS):
        for name, it in timed.items():
            rates[name].append(it.rate())
    rows = []
    for name, found in rates.items():
        ratios = np.array(found) / np.array(rates["constant"])
        print(f"{name}: {np.median(found):.3f} GStencil/s, {np.median(ratios):.2f}", flush=True)
        rows.append(
            {
                "axes": ndim,
                "n": n,
                "body": name,
                "method": "prange" if name == "loop" else "cpu.tessellate",
                "threads": THREADS,
                "parameters": dict(chosen[name]),
                "gstencil_per_s": [round(rate, 4) for rate in found],
            }
        )
    return rows


if __name__ == "__main__":
    measured = main(int(sys.argv[1]), int(sys.argv[2]))
    if "TETRIS_SIM_ROWS" in os.environ:
        Path(os.environ["TETRIS_SIM_ROWS"]).write_text(json.dumps(measured, indent=1))
