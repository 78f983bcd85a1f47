"""Plans with GPUs that are told of a block ahead, for tests of one process and of ranks."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.support.cases import boundary_of, make_problem, stencil_of
from tetris_sim.cpu_kernels.stream.method import StreamMethod
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.plan.partition import cut_along_axis_0

BLOCK, STEPS = 4, 22  # the last block is shorter
NAMES = ("gpu.plain", "gpu.stream")
CHOSEN = [method for method in METHODS if method.name in NAMES]


def plan_of(
    problem: Problem, method: Method, pieces: list[tuple[str, int]], *, whole: bool = False
) -> Plan:
    """Slabs of so many planes for the GPU and for CPU threads, in turns; blocks in parts, or
    whole.
    """
    ends = np.cumsum([planes for _, planes in pieces]).tolist()
    ranges = list(zip([0, *ends[:-1]], ends, strict=True))
    slabs = cut_along_axis_0(
        problem.grid, problem.boundary, ranges, halo=BLOCK * problem.stencil.radii[0]
    )
    shares = []
    for (kind, _), slab in zip(pieces, slabs, strict=True):
        chosen = method if kind.startswith("gpu") else StreamMethod()
        parameters = {**chosen.parameters(problem)[0], "steps_per_block": 2}
        product = "emulated" if chosen is method else ""
        share = Share(kind, slab, chosen, parameters, 1, 1.0, 0, product, queued=True)
        shares.append(dataclasses.replace(share, through_host=len(set(pieces)) > 1))
    plan = Plan(tuple(shares), BLOCK, 1e-6, 0.0, copy_for_checkpoints=False, reasons=())
    return dataclasses.replace(plan, overlapped=not whole, ahead=whole)


def plan_on_ranks(problem: Problem, method: Method) -> Plan:
    """A GPU for each of three ranks."""
    plan = plan_of(problem, method, [("gpu:0", 31), ("gpu:1", 30), ("gpu:2", 30)])
    shares = (
        dataclasses.replace(share, rank=rank, queued=False, through_host=False)
        for rank, share in enumerate(plan.shares)
    )
    return dataclasses.replace(plan, shares=tuple(shares))


def plate(kind: str) -> Problem:
    return make_problem(
        stencil_of("box-2d9p"), boundary_of(kind, 2), shape=(91, 133), steps=STEPS, mirrored=True
    )[0]
