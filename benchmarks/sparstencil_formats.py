"""SparStencil beyond FP16 on this GPU: BF16 and TF32 on sparse tensor cores, and its layouts in
FP64 (its Table 3).

`python benchmarks/sparstencil_formats.py FILE.json` measures kernels alone, on the points of
10240 x 10240 that no face reaches, one launch after the other on the same random numbers; heat
kernels with equal neighbours, the others with random weights. For every row the fastest of several
tiles is looked for and then timed again, all rows of a stencil in turn. FP16 is stored in 16 bits,
BF16 and TF32 are made of float32 on their way, FP64 is FP64.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.gpu_alone import Alone, Arena, fastest, fused_alone, naive_alone  # noqa: E402
from benchmarks.gpu_breakdown import with_steps  # noqa: E402
from benchmarks.gpu_limits import measure_gpu_limits  # noqa: E402
from tests.papers.sparstencil.variants import variant_kernel  # noqa: E402
from tests.support.cases import boundary_of  # noqa: E402
from tests.support.variants import Variant, error_of, with_parameters  # noqa: E402
from tetris_sim.bench.gpu import measured_gpu, weight_kinds  # noqa: E402
from tetris_sim.bench.timing import (  # noqa: E402
    TimedWork,
    interleave,
    random_problem,
)
from tetris_sim.errors import UnsupportedError  # noqa: E402
from tetris_sim.gpu_kernels import METHODS  # noqa: E402
from tetris_sim.gpu_kernels.common.device import compile_source  # noqa: E402
from tetris_sim.gpu_kernels.fused.kernel import BFLOAT16, TFLOAT32  # noqa: E402
from tetris_sim.gpu_kernels.fused.method import FusedMethod  # noqa: E402
from tetris_sim.gpu_kernels.tensor_cores.sparse import KINDS, MADE_OF  # noqa: E402
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters  # noqa: E402
from tetris_sim.model.problem import Problem  # noqa: E402
from tetris_sim.model.stencils.catalogue import named_stencil  # noqa: E402

SHAPE = (10240, 10240)
ROUNDS, SECONDS, TRYING = 5, 0.04, 0.01
FORMATS = {
    "box-2d9p": (3, 5, 7),
    "box-2d25p": (1, 2, 3),
    "box-2d49p": (1, 2),
}  # steps that are tried
TABLE_3 = {
    "heat-2d": 3,
    "box-2d9p": 3,
    "star-2d13p": 1,
    "box-2d49p": 1,
}  # steps per launch, as in the paper
CHECKED = (203, 331)
WARPS = ((4, 2), (8, 1))  # and blocks per multiprocessor


def problem_of(name: str, kind: str) -> Problem:
    """A stencil with its weights, in the dtype that a format is made of."""
    small = random_problem(name, (16, 16), MADE_OF[kind], weight_kinds(name)[0])
    return dataclasses.replace(
        small, grid=dataclasses.replace(small.grid, shape=SHAPE)
    )  # the data are the arena's


def tiles(name: str, kind: str, *, sparse: int, flight: int = 1) -> Iterator[dict[str, int]]:
    """What is tried for one row."""
    fixed = {"sparse": sparse, "flight": flight, "format": KINDS.index(kind)}
    radius = named_stencil(name).stencil.radius
    wide = kind != "f64"
    for n in FORMATS[name] if wide else (TABLE_3[name],):
        widths = (8 if n * radius <= 3 else 16,) if wide else (2, 4, 8)
        choices = itertools.product(widths, WARPS, (1, 2), (8,) if wide else (2, 4), (2, 3))
        for width, (warps, blocks), units, steps, stages in choices:
            shape = {
                STEPS_PER_BLOCK: n,
                "merged_x": width,
                "warps": warps,
                "blocks": blocks,
                "units": units,
            }
            yield {**shape, "steps": steps, "stages": stages, **fixed}


def rows_of_formats(name: str) -> dict[tuple[str, str], list[dict[str, int]]]:
    """(format, row) to tiles: sparse and dense products of each format."""
    words = {1: "sparse", 0: "dense"}
    return {
        (kind, f"{kind}, {word}"): list(tiles(name, kind, sparse=sparse))
        for kind in ("f16", "bf16", "tf32")
        for sparse, word in words.items()
    }


def rows_of_table_3(name: str) -> dict[str, list[dict[str, int]]]:
    """Row to tiles of SparStencil's layouts in FP64: rows of points that arrive once, and the
    paper's whole patches.
    """
    return {
        "layouts, results in flight": list(tiles(name, "f64", sparse=0)),
        "layouts, whole patches": list(tiles(name, "f64", sparse=0, flight=0)),
    }


def fits(problem: Problem, parameters: Parameters) -> Alone | None:
    """A kernel, if its operands fit into registers and parameters."""
    try:
        kernel = variant_kernel(problem.stencil, problem.dtype, parameters)
        spilled = compile_source(kernel.source, kernel.defines, ARCHITECTURE).spilled
    except (UnsupportedError, ValueError):
        return None
    return None if spilled else fused_alone(kernel, parameters)


def prepare(job: tuple[str, str, dict[str, int]]) -> None:
    """Compile into the cache."""
    name, kind, parameters = job
    fits(random_problem(name, (16, 16), MADE_OF[kind], weight_kinds(name)[0]), parameters)


def dual_tessellation(problem: Problem, steps: int | None) -> list[Alone]:
    """Its kernels with so many steps, or with all numbers of steps that it proposes."""
    (method,) = (each for each in METHODS if each.name == "gpu.dual_tessellation")
    assert isinstance(method, FusedMethod)
    choices = list(method.parameters(problem))
    if steps is not None:
        own = [choice for choice in choices if choice[STEPS_PER_BLOCK] == steps]
        choices = own or list(with_steps(choices, steps))
    family = method.families[problem.grid.ndim]
    return [
        fused_alone(family.kernel(problem.stencil, problem.dtype, choice), choice)
        for choice in choices
    ]


def best_of(arena: Arena, choices: list[Alone]) -> tuple[Alone, TimedWork] | None:
    """The fastest kernel of a row; None if none can be launched.

    Raises:
        AssertionError: it is one of `sparse.cu`, and whole steps with it differ from the reference.
    """
    try:
        found = fastest(arena, choices, seconds=TRYING)
    except UnsupportedError:
        return None
    if "format" in found[0].parameters:
        check(arena.problem, found[0].parameters, arena.device)
    return found


def check(problem: Problem, parameters: Parameters, device: Any) -> None:
    """Compare two launches and a step on a small grid with the reference."""
    kind = KINDS[parameters["format"]]
    eps = {"bf16": BFLOAT16.eps, "tf32": TFLOAT32.eps}.get(
        kind, 0.0
    )  # of the others the dtype says all
    variant = Variant(with_parameters(parameters), MADE_OF[kind], eps)
    error, allowed = error_of(variant, problem.stencil, boundary_of("walls", 2), CHECKED, device)
    assert error <= allowed, (
        f"{parameters} is wrong by {error:.2g}, of which {allowed:.2g} may be rounding"
    )


def timed(name: str, found: dict[str, tuple[Alone, TimedWork] | None]) -> list[dict[str, Any]]:
    """All rows of a stencil, timed in turn."""
    there = {row: each for row, each in found.items() if each is not None}
    timings = interleave(
        {row: work for row, (_, work) in there.items()}, rounds=ROUNDS, seconds=SECONDS
    )
    return [
        {
            "stencil": name,
            "row": row,
            "parameters": dict(there[row][0].parameters),
            **asdict(timing),
        }
        for row, timing in timings.items()
    ]


def main(path: Path) -> None:
    """Both tables."""
    jobs = [
        (name, kind, p)
        for name in FORMATS
        for (kind, _), ps in rows_of_formats(name).items()
        for p in ps
    ]
    jobs += [
        (name, "f64", p) for name in TABLE_3 for ps in rows_of_table_3(name).values() for p in ps
    ]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(prepare, jobs, chunksize=4))
    with measured_gpu(rounds=ROUNDS, seconds=SECONDS, measure=measure_gpu_limits) as (
        result,
        device,
    ):
        formats, table_3 = [], []
        for name in FORMATS:
            found: dict[str, tuple[Alone, TimedWork] | None] = {}
            with contextlib.ExitStack() as stack:
                arenas = {}
                for (kind, row), choices in rows_of_formats(name).items():
                    problem = problem_of(name, kind)
                    if MADE_OF[kind] not in arenas:
                        arenas[MADE_OF[kind]] = stack.enter_context(
                            contextlib.closing(Arena(problem, device))
                        )
                    alone = [each for p in choices if (each := fits(problem, p)) is not None]
                    found[row] = best_of(arenas[MADE_OF[kind]], alone)
                formats += timed(name, found)
        for name, steps in TABLE_3.items():
            problem = problem_of(name, "f64")
            with contextlib.closing(Arena(problem, device)) as arena:
                found = {
                    "naive kernel": best_of(arena, [naive_alone()]),
                    "dual tessellation, as many steps": best_of(
                        arena, dual_tessellation(problem, steps)
                    ),
                    "dual tessellation, any steps": best_of(
                        arena, dual_tessellation(problem, None)
                    ),
                }
                for row, choices in rows_of_table_3(name).items():
                    found[row] = best_of(
                        arena, [each for p in choices if (each := fits(problem, p)) is not None]
                    )
                table_3 += timed(name, found)
    path.write_text(
        json.dumps({**result.as_json(), "formats": formats, "table_3": table_3}, indent=1) + "\n",
        encoding="utf-8",
    )


ARCHITECTURE = "sm_90"

if __name__ == "__main__":
    main(Path(sys.argv[1]))
