"""How fast the CPU methods are: beside what a user would write by hand, and beside what the machine
can do at most.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tetris_sim.bench.candidates import (
    choose_parameters,
    open_method,
    open_prange,
    refuse_what_does_not_fit,
    time_steady,
    time_whole_run,
)
from tetris_sim.bench.limits import fma_work, measure_limits
from tetris_sim.bench.result import BenchCase, BenchResult, MachineLimits, When
from tetris_sim.bench.timing import (
    SHAPES,
    WHOLE_RUN_STEPS,
    announced,
    named_case,
    provenance,
    random_problem,
)
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.machine.machine import find_machine

_LOG = logging.getLogger(__name__)


@contextmanager
def measured_run(
    dtypes: Sequence[str], *, rounds: int, seconds: float
) -> Iterator[tuple[BenchResult, ThreadTeam]]:
    """A result without rates and the threads to measure them with; its limits are measured before,
    and after what is done inside.

    Args:
        dtypes: what the limits are measured for.
        rounds: timings of each limit.
        seconds: length of one timing.
    """
    team = ThreadTeam(find_machine().threads)
    try:
        _LOG.info("Measuring what memory and arithmetic of this machine do at most ...")
        limits: dict[When, MachineLimits] = {
            "before": measure_limits(team, tuple(dtypes), rounds=rounds, seconds=seconds)
        }
        yield BenchResult(**provenance(), rounds=rounds, seconds=seconds, limits=limits), team
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
) -> BenchResult:
    """The whole benchmark: every stencil in every dtype, between two measurements of the limits.

    Args:
        names: stencils of the catalogue.
        shape: interior points, array order; the usual grid of each dimension if not given.
        dtypes: float64, float32 or both.
        rounds: timings of each candidate, interleaved.
        seconds: length of one timing.
    """
    with measured_run(dtypes, rounds=rounds, seconds=seconds) as (result, team):
        kernels = tuple(
            bench_kernel(
                name,
                shape or SHAPES[named_stencil(name).stencil.ndim],
                dtype,
                team,
                rounds=rounds,
                seconds=seconds,
            )
            for name, dtype in announced([*itertools.product(names, dtypes)], named_case)
        )
    return dataclasses.replace(result, kernels=kernels)


def bench_kernel(
    name: str, shape: tuple[int, ...], dtype: str, team: ThreadTeam, *, rounds: int, seconds: float
) -> BenchCase:
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
    chosen = [
        choose_parameters(problem, method, method.parameters(problem), team, seconds=seconds / 2)
        for method in methods
    ]

    # All at once, since what is compared has to be timed in turn.
    loops = open_prange(problem, team.size)
    candidates = [
        open_method(problem, method, parameters, team)
        for method, (parameters, _) in zip(methods, chosen, strict=True)
    ]
    yardstick = fma_work(team, dtype, team.size)
    rows = time_steady([*loops, *candidates], rounds=rounds, seconds=seconds, yardstick=yardstick)

    steps = WHOLE_RUN_STEPS[len(shape)]
    tuned = (
        dataclasses.replace(
            row,
            tried=tried,
            end_to_end=time_whole_run(problem, method, parameters, team, steps=steps),
        )
        for row, method, (parameters, tried) in zip(
            rows[len(loops) :], methods, chosen, strict=True
        )
    )
    case = BenchCase(
        name,
        dtype,
        shape,
        problem.stencil.n_points,
        rows=(*rows[: len(loops)], *tuned),
        refusals=refusals,
    )
    best = case.fastest
    _LOG.info("%s, %s: %s is fastest, %.3g GStencil/s", name, dtype, best.name, best.rate / 1e9)
    return case


def usable_methods(problem: Problem) -> tuple[list[Method], dict[str, str]]:
    """The methods that can advance the problem, and why the others cannot."""
    refusals = {method.name: method.refusal(problem) for method in METHODS}
    simplest_first = (METHODS[-1], *METHODS[:-1])
    usable = [method for method in simplest_first if refusals[method.name] is None]
    return usable, {name: reason for name, reason in refusals.items() if reason is not None}
