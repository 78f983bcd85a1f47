"""Cost against the size of the grid and against threads, with the data transfer model beside the
measurement.

Figure 13 of the Tetris paper shows the rate of every code on every benchmark, Figure 14 the rate of
Tetris against the number of CPU cores, one panel per benchmark. Their CPU parts are made here:
Figure 13 from the main benchmark (`bench_cpu`; `draw_comparison` in `pictures.py`), Figure 14 from
`sweep_threads`. Comparable with the paper are the order of the methods, their ratios to the
compiler's own vectorisation, and how straight the lines against the cores are. Rates themselves are
not: there it is a machine of 24 cores with AVX2 and other peers, and the grids are larger.

`sweep_sizes` has no figure in the paper; it is the test of its section 4.1, which says that a sweep
costs the sum of the transfer times between the levels of memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.transfer import level_of, total, transfer_rates, transfer_times
from tetris_sim.bench.candidates import (
    choose_parameters,
    measured_run,
    open_method,
    open_prange,
    refuse_what_does_not_fit,
    time_steady,
    usable_methods,
)
from tetris_sim.bench.limits import measure_limits
from tetris_sim.bench.result import BenchRow, MachineLimits
from tetris_sim.bench.timing import SHAPES, random_problem
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.machine.machine import available_memory

STENCILS = ("heat-1d", "heat-2d", "heat-3d")
"""Those that are swept if none are named: one per dimension, and the ones that memory binds most.
"""

GRID_BYTES = tuple((1 << 20) * 4**k for k in range(7))
"""1 MiB to 4 GiB of one array of the grid."""

_SPARE = 2 << 30  # bytes left free
_LOG = logging.getLogger(__name__)


def bench_sweeps(
    names: Sequence[str] = STENCILS,
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """Both sweeps for every stencil and dtype; arguments as of `bench_cpu`.

    Sizes end at `shape`, if it is given, and at what memory permits.
    """
    sizes, threads = [], []
    with measured_run(dtypes, rounds=rounds, seconds=seconds) as (result, team):
        for name in names:
            for dtype in dtypes:
                grid = shape or SHAPES[named_stencil(name).stencil.ndim]
                refuse_what_does_not_fit(grid, dtype, 1)
                shapes = shapes_to_sweep(len(grid), 8 if dtype == "float64" else 4, last=shape)
                limits = result.limits["before"]
                points = sweep_sizes(
                    name, shapes, dtype, team, limits=limits, rounds=rounds, seconds=seconds
                )
                sizes.append({"stencil": name, "dtype": dtype, "points": points})
                counts = thread_counts(team.size)
                points = sweep_threads(name, grid, dtype, counts, rounds=rounds, seconds=seconds)
                threads.append(
                    {"stencil": name, "dtype": dtype, "shape": list(grid), "points": points}
                )
    return {**result.as_json(), "sizes": sizes, "threads_sweep": threads}


def shapes_to_sweep(
    ndim: int, itemsize: int, *, last: tuple[int, ...] | None = None, memory: int | None = None
) -> list[tuple[int, ...]]:
    """Grids of as many points along each axis, of 1 MiB to 4 GiB, or to `last`.

    Args:
        ndim: number of axes.
        itemsize: bytes of a point.
        last: the largest grid, which ends the list.
        memory: bytes that may be taken, found out if not given: a method needs two arrays and a
            part of a third.
    """
    allowed = (available_memory()[0] - _SPARE if memory is None else memory) // 3
    cubes = [
        (round((n_bytes / itemsize) ** (1 / ndim)),) * ndim
        for n_bytes in GRID_BYTES
        if n_bytes <= allowed
    ]
    if last is None:
        return cubes
    return [cube for cube in cubes if cube[0] < min(last)] + [last]


def thread_counts(most: int) -> list[int]:
    """One to all threads; powers of two in between where there are many.

    >>> thread_counts(6), thread_counts(24)
    ([1, 2, 3, 4, 5, 6], [1, 2, 4, 8, 16, 24])
    """
    if most <= 8:
        return list(range(1, most + 1))
    return [2**k for k in range(most.bit_length()) if 2**k < most] + [most]


def sweep_sizes(
    name: str,
    shapes: Sequence[tuple[int, ...]],
    dtype: str,
    team: ThreadTeam,
    *,
    limits: MachineLimits,
    rounds: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Rate and model of every candidate for each shape.

    Args:
        name: of a stencil of the catalogue.
        shapes: the grids.
        dtype: float64 or float32.
        team: the threads.
        limits: of these threads, as `measure_limits` gives them.
        rounds: timings of each candidate.
        seconds: length of one timing.
    """
    points = []
    for shape in shapes:
        problem = random_problem(name, shape, dtype)
        rows = [
            explain(row, problem, limits)
            for row in _time_each(problem, team, rounds=rounds, seconds=seconds)
        ]
        points.append({"shape": list(shape), "bytes": problem.state_bytes, "rows": rows})
        _LOG.info("%s, %s: %s points done", name, dtype, f"{problem.grid.n_points:,}")
    return points


def sweep_threads(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    counts: Sequence[int],
    *,
    rounds: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Rate and model of every candidate for each number of threads, with the limits of that
    many.
    """
    problem = random_problem(name, shape, dtype)
    points = []
    for count in counts:
        team = ThreadTeam(count)
        try:
            limits = measure_limits(team, (dtype,), rounds=rounds, seconds=seconds)
            rows = [
                explain(row, problem, limits)
                for row in _time_each(problem, team, rounds=rounds, seconds=seconds)
            ]
        finally:
            team.close()
        points.append({"threads": count, "limits": asdict(limits), "rows": rows})
        _LOG.info("%s, %s: %d of %d threads done", name, dtype, count, counts[-1])
    return points


def _time_each(
    problem: Problem, team: ThreadTeam, *, rounds: int, seconds: float
) -> list[BenchRow]:
    """Rows of all candidates, one after the other: together the largest grids would not fit into
    memory.
    """
    rows = time_steady(open_prange(problem, team.size), rounds=rounds, seconds=seconds)
    for method in usable_methods(problem)[0]:
        chosen, _ = choose_parameters(
            problem, method, method.parameters(problem), team, seconds=seconds / 2
        )
        rows += time_steady(
            [open_method(problem, method, chosen, team)], rounds=rounds, seconds=seconds
        )
    return rows


def explain(row: BenchRow, problem: Problem, limits: MachineLimits) -> dict[str, Any]:
    """A row with its cost and what the model says of it, in ns per point update.

    `transfer_ns` has the parts of T_d and `transfer_total_ns` their sum; `fma_ns` is the time of
    the multiply-adds. A method with time blocks gets its data from the level that holds the grid
    once per block.
    """
    n_terms, itemsize = problem.stencil.n_points, problem.dtype.itemsize
    times = transfer_times(
        transfer_rates(limits),
        n_terms=n_terms,
        itemsize=itemsize,
        level=level_of(2 * problem.state_bytes, limits),
        sweeps_per_pass=row.steps,
    )
    return {
        **asdict(row),
        "ns": 1e9 / row.rate,
        "transfer_ns": {way: seconds * 1e9 for way, seconds in times.items()},
        "transfer_total_ns": total(times) * 1e9,
        "fma_ns": 1e9 * n_terms / limits.fma[problem.dtype.name].median,
    }
