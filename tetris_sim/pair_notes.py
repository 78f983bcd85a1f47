"""What `compute.precision: float32x2` means for a run, as sentences of its plan."""

from __future__ import annotations

from tetris_sim.problem import PAIRS, Problem
from tetris_sim.scheduler.facts.shares import Plan

_SUFFIX = "_pairs"  # of the methods of gpu_kernels/fused/pair_method.py


def pair_notes(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Who computes in pairs and who does not; nothing of a run in another precision."""
    if not problem.pairs:
        return ()

    names = dict.fromkeys(share.method.name for share in plan.shares)
    pairs = [name for name in names if name.endswith(_SUFFIX)]
    others = [name for name in names if not name.endswith(_SUFFIX)]

    said = []
    if pairs:
        said.append(
            f"{PAIRS}: {' and '.join(pairs)} computes pairs of float32, which have 48 bits of the "
            "53 of float64; files and checkpoints hold float64."
        )
    if others:
        said.append(
            f"{PAIRS}: {' and '.join(others)} computes in float64; pairs of float32 are for GPUs "
            "on which they are faster, and for one constant step."
        )
    return tuple(said)
