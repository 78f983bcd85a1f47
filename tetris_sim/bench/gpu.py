"""How fast the GPU methods are: beside what a user would write with other libraries, and beside
what the GPU can do.

Every method advances the whole problem, faces included, through the same stepper as a run. Methods
are compared with periodic faces; what other faces cost is measured for the fastest one.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tetris_sim.bench.candidates import choose_parameters, open_method
from tetris_sim.bench.cpu import time_steady
from tetris_sim.bench.gpu_baselines import open_baselines
from tetris_sim.bench.gpu_run import measured_gpu
from tetris_sim.bench.model import find_bounds
from tetris_sim.bench.problems import FACES, WeightKind, random_numbers, random_problem
from tetris_sim.boundary import Boundary
from tetris_sim.catalogue import named_stencil
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.method import Method, Parameters
from tetris_sim.problem import InitialField, Problem, arithmetic_of
from tetris_sim.slab import Slab

SHAPES = {1: (10_240_000,), 2: (10_240, 10_240), 3: (1024, 1024, 1024)}
"""The usual grids by number of axes."""

_CHOICE_POINTS = (
    1 << 28
)  # parameters are chosen on a piece of at most so many points: loading takes longer than timing
_LOG = logging.getLogger(__name__)


def bench_gpu(
    names: Sequence[str],
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """Every stencil in every dtype with every method, between two measurements of the limits.

    Args:
        names: stencils of the catalogue; heat kernels with equal neighbours, the others with random
            weights, and the boxes once more with symmetric ones.
        shape: interior points, array order; the usual grid of each dimension if not given.
        dtypes: of `PRECISIONS`; sums of float16 are float32, and so is its bound on CUDA cores.
        rounds: timings of each candidate, interleaved.
        seconds: length of one timing.

    Raises:
        UnsupportedError: there is no GPU.
    """
    with measured_gpu(rounds=rounds, seconds=seconds) as (result, device, _):
        kernels = []
        for name in names:
            grid = shape or SHAPES[named_stencil(name).stencil.ndim]
            kinds = weight_kinds(name)
            for weights, dtype in itertools.product(kinds, dtypes):
                problem = dataclasses.replace(
                    random_problem(name, grid, dtype, weights, "periodic"),
                    initial=random_on(device, dtype),
                )
                kernel = bench_gpu_kernel(problem, device, rounds=rounds, seconds=seconds)
                if weights == kinds[0]:  # baselines do not know what weights have in common
                    baselines = open_baselines(problem, device)
                    kernel["rows"][:0] = time_steady(baselines, rounds=rounds, seconds=seconds)
                best = max(kernel["rows"], key=lambda row: float(row["steady"]["median"]))
                _LOG.info(
                    "%s, %s: %s, %.4g GStencil/s",
                    name,
                    dtype,
                    best["name"],
                    best["steady"]["median"] / 1e9,
                )
                faces = bench_faces(problem, best, device, rounds=rounds, seconds=seconds)
                kernels.append({"stencil": name, "weights": weights, **kernel, "faces": faces})
    limits = result["gpu_limits"]
    return {**result, "gpu_kernels": [judge_gpu(kernel, limits) for kernel in kernels]}


def random_on(device: GpuDevice, dtype: str) -> InitialField:
    """Random numbers in [0, 1) that are made where they are needed: 1024^3 of them take seconds to
    get there.
    """

    def initial(slab: Slab) -> Any:
        return random_numbers(device.cupy.random.default_rng(0), (1, *slab.shape), dtype)

    return initial


def weight_kinds(name: str) -> tuple[WeightKind, ...]:
    """Which weights a stencil is measured with: those of the heat equation, else random ones, boxes
    also symmetric.
    """
    if name.startswith("heat"):
        return ("equal",)
    return ("random", "symmetric") if name.startswith("box") else ("random",)


def bench_gpu_kernel(
    problem: Problem, device: GpuDevice, *, rounds: int, seconds: float
) -> dict[str, Any]:
    """Steady-state rates of every tuned method for one problem."""
    refusals = {method.name: method.refusal(problem) for method in METHODS}
    tried: dict[str, list[dict[str, Any]]] = {}
    candidates = []
    for method in METHODS:
        if refusals[method.name] is None:
            try:
                parameters, tried[method.name] = _choose(problem, method, device, seconds)
                candidates.append(open_method(problem, method, parameters, device))
            except UnsupportedError as error:
                refusals[method.name] = str(error)
    rows = time_steady(candidates, rounds=rounds, seconds=seconds)
    for row in rows:
        row["tried"] = tried[row["name"]]
    return {
        "n_terms": problem.stencil.n_points,
        "shape": list(problem.grid.shape),
        "dtype": problem.dtype.name,
        "refusals": {name: reason for name, reason in refusals.items() if reason is not None},
        "rows": rows,
    }


def bench_faces(
    problem: Problem, best: Mapping[str, Any], device: GpuDevice, *, rounds: int, seconds: float
) -> dict[str, Any]:
    """Rates of the fastest method with each kind of face, by its name; nothing if a baseline is the
    fastest.
    """
    found: dict[str, Any] = {}
    method = next((method for method in METHODS if method.name == best["name"]), None)
    if method is None:
        return found
    for kind, face in FACES.items():
        other = dataclasses.replace(problem, boundary=Boundary.everywhere(face, problem.grid.ndim))
        candidate = open_method(other, method, best["parameters"], device)
        (row,) = time_steady([candidate], rounds=rounds, seconds=seconds)
        found[kind] = row["steady"]
    return found


def judge_gpu(kernel: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """The same kernel with its bounds; rows with their share of the FMA bound and multiples of one
    sweep's bound.
    """
    itemsize, arithmetic = np.dtype(kernel["dtype"]).itemsize, arithmetic_of(kernel["dtype"]).name
    fma = max(float(limits[when]["fma"][arithmetic]["median"]) for when in ("before", "after"))
    copy = max(float(limits[when]["copy"]["median"]) for when in ("before", "after"))
    bounds = find_bounds(kernel["n_terms"], itemsize, fma_rate=fma, copy_rate=copy)
    rows = [
        {
            **row,
            "share_of_fma": row["steady"]["median"] / bounds.fma,
            "times_one_sweep": row["steady"]["median"] / bounds.memory,
        }
        for row in kernel["rows"]
    ]
    return {**kernel, "bounds": asdict(bounds), "rows": rows}


def _choose(
    problem: Problem, method: Method, device: GpuDevice, seconds: float
) -> tuple[Parameters, list[dict[str, Any]]]:
    """The fastest parameters, on a piece of the problem that is quickly loaded."""
    shape = list(problem.grid.shape)
    if problem.grid.n_points > _CHOICE_POINTS:
        shape[0] = max(1, shape[0] * _CHOICE_POINTS // problem.grid.n_points)
    piece = problem.on_shape(shape)
    return choose_parameters(piece, method, method.parameters(problem), device, seconds=seconds / 4)
