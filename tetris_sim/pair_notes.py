"""What `compute.precision: float32x2` means for a run, as sentences of its plan."""

from __future__ import annotations

from tetris_sim.model.method import Rounds
from tetris_sim.model.problem import PAIRS, Problem
from tetris_sim.scheduler.facts.shares import Plan


def pair_notes(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Who computes in pairs and who does not; nothing of a run in another precision."""
    if not problem.pairs:
        return ()

    methods = [share.method for share in plan.shares]
    pairs = list(dict.fromkeys(it.name for it in methods if isinstance(it, Rounds)))
    others = list(dict.fromkeys(it.name for it in methods if not isinstance(it, Rounds)))

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
