"""What the methods with temporal blocking have in common when they plan."""

from __future__ import annotations

import os

import numpy as np

from tetris_sim.model.problem import Problem

_MOST_POINTS = 128  # of a stencil; 125 points take 3 to 9 s to compile (AMD EPYC 9004, 2026-11-21)
WHY_NOT_HALF = (
    "it computes in float64 or float32; float16, which would not be faster here, is left to "
    "cpu.plain"
)


def why_not_blocked(problem: Problem, method: str) -> str | None:
    """Why a method whose kernels are written out point by point refuses a problem; None if it does
    not.
    """
    if (why_not := problem.why_not_one_stencil) is not None:
        return why_not
    if problem.dtype == np.float16:
        return WHY_NOT_HALF
    n_points = problem.stencil.n_points
    if n_points <= _MOST_POINTS:
        return None
    return (
        f"the stencil has {n_points} points, and the kernels of {method}, which are written out "
        f"point by point, are made for up to {_MOST_POINTS}: compiling more takes longer than most "
        "runs"
    )


def why_not_equations(problem: Problem) -> str | None:
    """Why no method takes the equations of a problem, if it has some; None if they do."""
    if problem.equations is None or problem.dtype != np.float16:
        return None
    return "equations are computed in float64 or float32: set the precision to one of them"


def usable_cores() -> int:
    """Cores that this process may use."""
    # Not on every system; where it exists it knows about affinity masks.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
