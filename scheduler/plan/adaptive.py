"""Adaptive: what a plan does otherwise for steps that are made of substeps."""

from __future__ import annotations

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Reason, Scheme, about


def scheme_of(problem: Problem) -> Scheme:
    """How workers that step advance a problem."""
    return "explicit" if problem.substeps is None else "adaptive"


def asked_block(problem: Problem, compute: ComputeSection) -> int | None:
    """Steps between two exchanges, if they do not follow from speeds: errors of substeps are looked
    at by all after each.
    """
    if problem.substeps is not None:
        return 1
    return None if compute.time_block == "auto" else compute.time_block


def why_adaptive(problem: Problem) -> tuple[Reason, ...]:
    """What is known of steps whose number is not."""
    if (substeps := problem.substeps) is None:
        return ()
    sentence = (
        f"time.tolerance: each step of {problem.dt:.6g} s is made of substeps with errors of "
        f"{substeps.tolerance:g} at most; how many is known afterwards, and the times here are "
        "those of one each. All workers look at the errors after each, so blocks have one step."
    )
    return about("block", (sentence,))
