"""What each technique adds, in the manner of Figure 12 of the Tetris paper (its part that runs on
CPUs).

The figure shows Star-1D5P, Box-2D25P and Box-3D27P: the naive code, then tessellate tiling, then
vector skewed swizzling, each with what is below it, as multiples of the naive code. Here the same
three stencils and the same ladder, with the paper's quadruple pipelining as a step of its own, and
beyond it what this program adds: the lifted layout and streaming. Every step has the parameters
that are fastest for it. Comparable with the figure are the factors from step to step; the machine
(24 cores there), the grid and the naive code are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tetris_sim.bench.candidates import (
    TimedCandidate,
    choose_parameters,
    measured_run,
    open_method,
    refuse_what_does_not_fit,
    time_steady,
)
from tetris_sim.bench.limits import fma_work
from tetris_sim.bench.result import MachineLimits, When
from tetris_sim.bench.tables import fma_rate
from tetris_sim.bench.timing import SHAPES, random_problem
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil

STENCILS = ("star-1d5p", "box-2d25p", "box-3d27p")
"""Those of Figure 12."""


@dataclass(frozen=True)
class Technique:
    """One step of the ladder.

    Attributes:
        label: what it adds to the step before.
        method: which method has it.
        fixed: the parameters that ask for it; the others are tuned.
    """

    label: str
    method: str
    fixed: Parameters = field(default_factory=dict)


# `rows` says how `cpu.tessellate` computes a row: 0 as LLVM vectorises it, 1 skewed, 2 quadruple, 3
# lifted.
LADDER = (
    Technique("plain", "cpu.plain"),
    Technique("+ tessellate tiling", "cpu.tessellate", {"rows": 0}),
    Technique("+ skewed swizzling", "cpu.tessellate", {"rows": 1}),
    Technique("+ quadruple pipelining", "cpu.tessellate", {"rows": 2}),
    Technique("+ lifted layout, jammed rows", "cpu.tessellate", {"rows": 3}),
    Technique("+ streaming", "cpu.stream"),
)


def bench_breakdown(
    names: Sequence[str] = STENCILS,
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """The ladder for every stencil and dtype, with the limits before and after; arguments as of
    `bench_cpu`.
    """
    found = []
    with measured_run(dtypes, rounds=rounds, seconds=seconds) as (result, team):
        for name in names:
            for dtype in dtypes:
                grid = shape or SHAPES[named_stencil(name).stencil.ndim]
                refuse_what_does_not_fit(grid, dtype, len(LADDER))
                problem = random_problem(name, grid, dtype)
                steps = climb(problem, LADDER, METHODS, team, rounds=rounds, seconds=seconds)
                header = {
                    "stencil": name,
                    "n_terms": problem.stencil.n_points,
                    "shape": list(grid),
                    "dtype": dtype,
                }
                found.append({**header, **steps})
    ladders = [compare_steps(ladder, result.limits) for ladder in found]
    return {**result.as_json(), "breakdown": ladders}


def climb(
    problem: Problem,
    ladder: Sequence[Technique],
    methods: Sequence[Method],
    team: ThreadTeam,
    *,
    rounds: int,
    seconds: float,
) -> dict[str, Any]:
    """Steady-state rate of every technique: {"steps": rows with a label each, "missing": label to
    reason}.
    """
    by_name = {method.name: method for method in methods}
    opened: dict[str, TimedCandidate] = {}
    missing = {}
    for technique in ladder:
        reason = why_missing(problem, technique, by_name)
        if reason is None:
            method = by_name[technique.method]
            choices = variants(method.parameters(problem), technique.fixed)
            try:
                parameters, _ = choose_parameters(
                    problem, method, choices, team, seconds=seconds / 2
                )
                opened[technique.label] = open_method(problem, method, parameters, team)
            except UnsupportedError as refusal:
                reason = str(refusal)
        if reason is not None:
            missing[technique.label] = reason
    yardstick = fma_work(team, problem.dtype.name, team.size)
    rows = time_steady(
        list(opened.values()),
        labels=list(opened),
        rounds=rounds,
        seconds=seconds,
        yardstick=yardstick,
    )
    return {"steps": [asdict(row) for row in rows], "missing": missing}


def why_missing(
    problem: Problem, technique: Technique, methods: Mapping[str, Method]
) -> str | None:
    """Why a step of the ladder cannot be taken here, as a sentence; None if it can."""
    method = methods.get(technique.method)
    if method is None:
        return f"there is no method {technique.method}"
    refusal = method.refusal(problem)
    if refusal is not None:
        return refusal
    unknown = [
        key
        for key in technique.fixed
        if not any(key in choice for choice in method.parameters(problem))
    ]
    return f"{method.name} has no parameter {', '.join(unknown)}" if unknown else None


def variants(choices: Sequence[Parameters], fixed: Parameters) -> list[Parameters]:
    """Every choice with the fixed parameters in place of its own, without doubles.

    >>> tried = [{"tile": 64, "rows": 0}, {"tile": 64, "rows": 3}, {"tile": 32, "rows": 3}]
    >>> variants(tried, {"rows": 1})
    [{'tile': 64, 'rows': 1}, {'tile': 32, 'rows': 1}]
    """
    changed = [{**choice, **fixed} for choice in choices]
    return list({tuple(sorted(choice.items())): choice for choice in changed}.values())


def compare_steps(
    ladder: Mapping[str, Any], limits: Mapping[When, MachineLimits]
) -> dict[str, Any]:
    """The same ladder with, in every row, its multiples of the first row and of the row before, and
    its FMA share.
    """
    bound = fma_rate(limits, ladder["dtype"]) / ladder["n_terms"]
    rates = [float(row["steady"]["median"]) for row in ladder["steps"]]
    rows = [
        {
            **row,
            "over_first": rate / rates[0],
            "over_previous": rate / previous,
            "share_of_fma": _share_of_fma(row["steady"], bound, ladder["n_terms"]),
        }
        for row, rate, previous in zip(ladder["steps"], rates, [*rates[:1], *rates], strict=False)
    ]
    return {**ladder, "steps": rows}


def _share_of_fma(steady: Mapping[str, Any], bound: float, n_terms: int) -> float:
    """Of the multiply-add rate of the same moment if that was measured, else of the bound."""
    of_yardstick = steady["of_yardstick"]
    return float(steady["median"] / bound if of_yardstick is None else of_yardstick * n_terms)
