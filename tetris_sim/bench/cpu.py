"""How fast the CPU methods are: beside what a user would write by hand, and beside what the machine
can do at most.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from tetris_sim.bench.candidates import (
    Candidate,
    choose_parameters,
    open_method,
    open_prange,
    refuse_what_does_not_fit,
    time_whole_run,
)
from tetris_sim.bench.limits import copy_rate, fma_rate, fma_work, measure_limits
from tetris_sim.bench.model import find_bounds
from tetris_sim.bench.problems import SHAPES, WHOLE_RUN_STEPS, random_problem
from tetris_sim.bench.timing import Work, interleave, provenance
from tetris_sim.catalogue import named_stencil
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.method import STEPS_PER_BLOCK, Method
from tetris_sim.problem import Problem
from tetris_sim.scheduler.machine.machine import find_machine

_LOG = logging.getLogger(__name__)


@contextmanager
def measured_run(
    dtypes: Sequence[str], *, rounds: int, seconds: float
) -> Iterator[tuple[dict[str, Any], ThreadTeam]]:
    """A result to be filled and the threads to do it with; the limits are measured before and
    after.

    Args:
        dtypes: what the limits are measured for.
        rounds: timings of each limit.
        seconds: length of one timing.
    """
    team = ThreadTeam(find_machine().threads)
    try:
        limits = {"before": measure_limits(team, tuple(dtypes), rounds=rounds, seconds=seconds)}
        result = {**provenance(), "rounds": rounds, "seconds": seconds, "limits": limits}
        yield result, team
        limits["after"] = measure_limits(team, tuple(dtypes), rounds=rounds, seconds=seconds)
    finally:
        team.close()


def bench_cpu(
    names: Sequence[str],
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """The whole benchmark: every stencil in every dtype, between two measurements of the limits.

    Args:
        names: stencils of the catalogue.
        shape: interior points, array order; the usual grid of each dimension if not given.
        dtypes: float64, float32 or both.
        rounds: timings of each candidate, interleaved.
        seconds: length of one timing.
    """
    kernels = []
    with measured_run(dtypes, rounds=rounds, seconds=seconds) as (result, team):
        for name in names:
            for dtype in dtypes:
                grid = shape or SHAPES[named_stencil(name).stencil.ndim]
                kernels.append(
                    bench_kernel(name, grid, dtype, team, rounds=rounds, seconds=seconds)
                )
    return {**result, "kernels": [judge(kernel, result["limits"]) for kernel in kernels]}


def bench_kernel(
    name: str, shape: tuple[int, ...], dtype: str, team: ThreadTeam, *, rounds: int, seconds: float
) -> dict[str, Any]:
    """Rates of both hand-written loops and of every tuned method for one stencil, in steady state
    and end to end.

    Args:
        name: of the catalogue.
        shape: interior points, array order.
        dtype: float64 or float32.
        team: the threads.
        rounds: timings of each candidate, interleaved.
        seconds: length of one timing.
    """
    refuse_what_does_not_fit(shape, dtype, len(METHODS))
    problem = random_problem(name, shape, dtype)
    methods, refusals = usable_methods(problem)
    tuned = {
        method.name: choose_parameters(
            problem, method, method.parameters(problem), team, seconds=seconds / 2
        )
        for method in methods
    }
    loops = open_prange(problem, team.size)
    candidates = loops + [
        open_method(problem, method, tuned[method.name][0], team) for method in methods
    ]
    yardstick = fma_work(team, dtype, team.size)
    rows = time_steady(candidates, rounds=rounds, seconds=seconds, yardstick=yardstick)
    for row, method in zip(rows[len(loops) :], methods, strict=True):
        parameters, row["tried"] = tuned[method.name]
        steps = WHOLE_RUN_STEPS[len(shape)]
        row["end_to_end"] = time_whole_run(problem, method, parameters, team, steps=steps)
    best = max(rows, key=lambda row: float(row["steady"]["median"]))
    _LOG.info(
        "%s, %s: %s is fastest, %.3g GStencil/s",
        name,
        dtype,
        best["name"],
        best["steady"]["median"] / 1e9,
    )
    header = {
        "stencil": name,
        "n_terms": problem.stencil.n_points,
        "shape": list(shape),
        "dtype": dtype,
    }
    return {**header, "refusals": refusals, "rows": rows}


def usable_methods(problem: Problem) -> tuple[list[Method], dict[str, str]]:
    """The methods that can advance the problem, and why the others cannot."""
    refusals = {method.name: method.refusal(problem) for method in METHODS}
    simplest_first = (METHODS[-1], *METHODS[:-1])
    usable = [method for method in simplest_first if refusals[method.name] is None]
    return usable, {name: reason for name, reason in refusals.items() if reason is not None}


def time_steady(
    candidates: Sequence[Candidate],
    *,
    rounds: int,
    seconds: float,
    labels: Sequence[str] = (),
    yardstick: Work | None = None,
) -> list[dict[str, Any]]:
    """Interleaved steady-state rates in points per second, one row per candidate; closes the
    candidates.

    Args:
        candidates: what to time.
        rounds: timings of each.
        seconds: length of one timing.
        labels: a name for each row, if those of the candidates do not tell them apart.
        yardstick: what the rates are compared with, moment by moment.
    """
    names = labels or [candidate.name for candidate in candidates]
    works = {name: candidate.work for name, candidate in zip(names, candidates, strict=True)}
    timings = interleave(works, rounds=rounds, seconds=seconds, yardstick=yardstick)
    for candidate in candidates:
        candidate.close()
    return [
        {
            "name": name,
            "method": c.name,
            "parameters": dict(c.parameters),
            "steady": asdict(timings[name]),
        }
        for name, c in zip(names, candidates, strict=True)
    ]


def judge(kernel: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """The same kernel with its bounds, and in every row the ratios that count.

    `ratio_to_prange` is to the better loop, `share_of_fma` to the multiply-add rate of the same
    moment (without one, to the bound), `share_of_sweep_bound` to the tighter bound of a sweep that
    goes through memory (for rows that do), `share_of_steady` of end to end to the steady state that
    was timed beside it, `share_without_memory` if the time in which the machine handed over memory
    does not count.
    """
    itemsize = 8 if kernel["dtype"] == "float64" else 4
    bounds = find_bounds(
        kernel["n_terms"],
        itemsize,
        fma_rate=fma_rate(limits, kernel["dtype"]),
        copy_rate=copy_rate(limits),
    )
    prange = max(
        row["steady"]["median"] for row in kernel["rows"] if row["name"].startswith("prange")
    )
    rows = []
    for row in kernel["rows"]:
        rate = row["steady"]["median"]
        share = share_of_fma(row["steady"], bounds.fma, kernel["n_terms"])
        judged = {**row, "ratio_to_prange": rate / prange, "share_of_fma": share}
        if row["parameters"].get(STEPS_PER_BLOCK, 1) == 1:
            judged["share_of_sweep_bound"] = rate / bounds.one_sweep
        if "end_to_end" in row:
            whole = row["end_to_end"]
            share = whole["rate"] / whole["steady_rate"]
            without = share * whole["seconds"] / (whole["seconds"] - whole["memory_seconds"])
            judged["end_to_end"] = {
                **whole,
                "share_of_steady": share,
                "share_without_memory": without,
            }
        rows.append(judged)
    return {**kernel, "bounds": {**asdict(bounds), "tighter": bounds.tighter}, "rows": rows}


def share_of_fma(steady: Mapping[str, Any], bound: float, n_terms: int) -> float:
    """A rate as a share of the multiply-add rate: of the same moment if that was measured, else of
    the bound.

    Args:
        steady: the timing.
        bound: point updates per second that the multiply-add rate of the whole run allows.
        n_terms: points of the stencil.
    """
    of_yardstick = steady.get("of_yardstick")
    return float(steady["median"] / bound if of_yardstick is None else of_yardstick * n_terms)


def compare_precisions(kernels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rates of float64 and float32 beside each other, for every stencil and candidate that has
    both.
    """
    rates = {
        (kernel["stencil"], row["name"], kernel["dtype"]): float(row["steady"]["median"])
        for kernel in kernels
        for row in kernel["rows"]
    }
    found = []
    for (stencil, name, dtype), rate in rates.items():
        other = rates.get((stencil, name, "float32"))
        if dtype == "float64" and other is not None:
            found.append(
                {
                    "stencil": stencil,
                    "name": name,
                    "float64": rate,
                    "float32": other,
                    "ratio": other / rate,
                }
            )
    return found
