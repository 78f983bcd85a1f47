"""SparStencil's Figures 8, 9 and 10 on this GPU: what preparing costs, which layout is best, all of
the catalogue.

`python benchmarks/sparstencil.py FILE.json` measures whole steps in float16, periodic faces,
feedback on; points times steps per second, every step counted once. Figures 6, 7 and 11 are
`python benchmarks/gpu.py --dtype float16`, with --sweep and --counters. All weights are
random, positive and add up to 1, so that any number of steps stays finite.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from tests.papers.sparstencil.crush import Layout  # noqa: E402
from tests.papers.sparstencil.exploration import A100_F16, SPARSE_F16, layout_time  # noqa: E402
from tetris_sim.bench.gpu import random_made_there  # noqa: E402
from tetris_sim.bench.timing import provenance, random_problem  # noqa: E402
from tetris_sim.gpu_kernels import METHODS  # noqa: E402
from tetris_sim.model.method import STEPS_PER_BLOCK  # noqa: E402
from tetris_sim.model.problem import Problem  # noqa: E402
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, catalogue  # noqa: E402
from tetris_sim.scheduler.machine.placement import ComputeResource  # noqa: E402
from tetris_sim.scheduler.tuning.measure import Trial  # noqa: E402

GRID = (8192, 8192)
SHAPES: dict[int, tuple[int, ...]] = {
    1: (1 << 26,),
    2: GRID,
    3: (512, 512, 256),
}  # 128 MB: more than the GPU's caches hold
USUAL = {1: "heat-1d", 2: "heat-2d", 3: "heat-3d"}  # whose problem a stencil is put into
SIZES = (256, 512, 768, 1024, 2048, 4096, 8192, 16384)
SECONDS, TIMES = 0.02, 3
CATALOGUE = catalogue()
BY_NAME = {method.name: method for method in METHODS}
Case = tuple[str, str, dict[str, int]]  # stencil, method, parameters


@functools.lru_cache(maxsize=4)
def problem_of(name: str, size: int = 0) -> Problem:
    """A stencil of the catalogue with random weights, without data; 2D ones may have another
    size.
    """
    stencil = CATALOGUE[name].stencil
    small = random_problem(
        USUAL[stencil.ndim], (16,) * stencil.ndim, "float16", faces="periodic", steps=1 << 30
    )
    shape = (size, size) if size else SHAPES[stencil.ndim]
    weights = np.random.default_rng(1).uniform(0.5, 1.5, stencil.n_points)
    return dataclasses.replace(
        small,
        grid=dataclasses.replace(small.grid, shape=shape),
        stencil=dataclasses.replace(
            stencil, weights=tuple(float(w) for w in weights / weights.sum())
        ),
    )


def prepare(case: Case) -> float | str:
    """Compile all that a case needs into the cache; seconds until its matrices were there, or why
    it cannot be done.
    """
    name, method, parameters = case
    try:
        begin = time.perf_counter()
        BY_NAME[method].kernel(problem_of(name), parameters)  # type: ignore[attr-defined]
        seconds = time.perf_counter() - begin
        open_trial(case, one_device()).close()
    except Exception as error:  # noqa: BLE001  said in the file
        return str(error)
    return seconds


@functools.lru_cache(maxsize=1)
def one_device() -> Any:
    """The GPU, of a process that ends before it is needed no more."""
    return contextlib.ExitStack().enter_context(ComputeResource(1, "gpu", 0).opened())


def open_trial(case: Case, device: Any, size: int = 0) -> Trial:
    """A case on random data."""
    name, method, parameters = case
    problem = random_made_there(problem_of(name, size))
    return Trial(problem, BY_NAME[method], parameters, device)


def measure(case: Case, device: Any, size: int = 0) -> dict[str, Any]:
    """Median rate of a case, and its range."""
    try:
        trial = open_trial(case, device, size)
    except Exception as error:  # noqa: BLE001  said in the file
        return {"failed": str(error)}
    rates = sorted(trial.time(SECONDS).points_per_second for _ in range(TIMES))
    trial.close()
    return {"median": statistics.median(rates), "low": rates[0], "high": rates[-1]}


def first_guess(name: str, method: str, **changes: int) -> list[Case]:
    """A method with its best guess; empty if it refuses."""
    problem = problem_of(name)
    if BY_NAME[method].refusal(problem) is not None:
        return []
    return [(name, method, {**BY_NAME[method].parameters(problem)[0], **changes})]


def dense(name: str) -> list[Case]:
    """The same matrices with all their zeros on dense tensor cores, with the most steps that fit
    into registers.
    """
    problem = problem_of(name)
    if BY_NAME["gpu.sparse"].refusal(problem) is not None:
        return []
    steps = sorted(
        {parameters[STEPS_PER_BLOCK] for parameters in BY_NAME["gpu.sparse"].parameters(problem)}
    )
    found: list[Case] = []
    for n in steps[-2:]:
        like = next(p for p in BY_NAME["gpu.sparse"].parameters(problem) if p[STEPS_PER_BLOCK] == n)
        found.append((name, "gpu.sparse", {**like, "sparse": 0, "blocks": 1}))
    return found


def paper_way(name: str, merged_x: int) -> Case:
    """One step, patches of merged_x by 16 / merged_x results, each a product of its own
    (SparStencil 3.2, 3.3).
    """
    guess = dict(BY_NAME["gpu.sparse"].parameters(problem_of(name))[0])
    guess |= {
        STEPS_PER_BLOCK: 1,
        "merged_x": merged_x,
        "flight": 0,
        "units": 1,
        "blocks": 1,
        "sparse": 1,
    }
    return name, "gpu.sparse", guess


def stages(name: str) -> dict[str, Case]:
    """What each stage adds (its Figure 7), from a plain sweep to what `gpu.sparse` does."""
    one = next(
        p for p in BY_NAME["gpu.sparse"].parameters(problem_of(name)) if p[STEPS_PER_BLOCK] == 1
    )
    _, method, patch = paper_way(name, 4)
    return {
        "plain sweep on CUDA cores": (name, "gpu.plain", {}),
        "layout of 4 x 4 results, dense products": (name, method, {**patch, "sparse": 0}),
        "the same, sparse products": (name, method, patch),
        "units in flight, one step": (name, method, dict(one)),
        "several steps per launch": first_guess(name, method)[0],
    }


def by_size(device: Any) -> list[dict[str, Any]]:
    """Sparse and dense products with the same steps per launch, from small grids to large ones."""
    found = []
    for name, size in itertools.product(("box-2d9p", "box-2d49p"), SIZES):
        case = first_guess(name, "gpu.sparse")[0]
        steps = case[2][STEPS_PER_BLOCK]
        alike = next(each for each in dense(name) if each[2][STEPS_PER_BLOCK] == steps)
        rates = {"sparse": measure(case, device, size), "dense": measure(alike, device, size)}
        found.append({"stencil": name, "size": size, "steps": steps, **rates})
    return found


def modelled(name: str) -> list[dict[str, Any]]:
    """What equations 6 to 11 say of every layout of up to 16 x 16 results, on the paper's A100
    [s].
    """
    stencil = CATALOGUE[name].stencil
    widths = tuple(2 * radius + 1 for radius in stencil.radii)
    return [
        {
            "r1": r1,
            "r2": r2,
            "seconds": layout_time(A100_F16, Layout(widths, (r2, r1)), GRID, SPARSE_F16),
        }
        for r1 in range(1, 17)
        for r2 in range(1, 17)
    ]


def rows(
    cases: Sequence[Case], device: Any, prepared: dict[str, float | str]
) -> list[dict[str, Any]]:
    """All cases, measured."""
    found: list[dict[str, Any]] = []
    begin = time.perf_counter()
    for case in cases:
        name, method, parameters = case
        text = prepared.get(json.dumps(case), 0.0)  # a plain sweep needs no preparation
        rate = {"failed": text} if isinstance(text, str) else measure(case, device)
        found.append({"stencil": name, "method": method, "parameters": parameters, **rate})
    print(f"{len(cases)} cases measured in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return found


def main(path: Path) -> None:
    """All figures."""
    names = sorted(CATALOGUE, key=lambda name: CATALOGUE[name].stencil.ndim)
    methods = ("gpu.sparse", "gpu.tcstencil")
    everything = [
        case for name in names for method in methods for case in first_guess(name, method)
    ]
    dense_cases = [case for name in STENCIL_NAMES for case in dense(name)]
    layouts = [
        paper_way(name, width) for name in ("box-2d9p", "box-2d49p") for width in (2, 4, 8, 16)
    ]
    staged = {name: stages(name) for name in ("box-2d9p", "box-2d49p")}
    cases = [
        *everything,
        *dense_cases,
        *layouts,
        *(case for each in staged.values() for case in each.values()),
    ]
    cases = [case for case in cases if case[1] != "gpu.plain"]
    begin = time.perf_counter()
    with ProcessPoolExecutor(8, multiprocessing.get_context("spawn")) as pool:
        prepared = dict(
            zip(map(json.dumps, cases), pool.map(prepare, cases, chunksize=8), strict=True)
        )
    compiling = time.perf_counter() - begin
    print(f"{len(cases)} cases compiled in {compiling:.0f} s", file=sys.stderr)
    with ComputeResource(1, "gpu", 0).opened() as device:
        result = {
            **provenance(),
            "seconds": SECONDS,
            "times": TIMES,
            "compiling_all": compiling,
            "catalogue": rows(everything, device, prepared),
            "dense": rows(dense_cases, device, prepared),
            "layouts": rows(layouts, device, prepared),
            "sizes": by_size(device),
            "stages": {
                name: dict(zip(each, rows(list(each.values()), device, prepared), strict=True))
                for name, each in staged.items()
            },
            "model": {name: modelled(name) for name in ("box-2d9p", "box-2d49p")},
            "preparing": {
                name: prepared[json.dumps(case)]
                for name in STENCIL_NAMES
                for case in first_guess(name, "gpu.sparse")
            },
        }
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
