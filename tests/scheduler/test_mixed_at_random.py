"""Random grids, faces, devices, shares, memories, blocks, failures: every run that is not refused
has the same bits.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.support.cases import make_problem, mixed_boundaries, stencil_of
from tetris_sim.config.sections.schema import ComputeSection, SimulatedSection
from tetris_sim.errors import TetrisError
from tetris_sim.model.problem import Field, Problem
from tetris_sim.scheduler.machine.machine import Machine, find_machine
from tetris_sim.scheduler.plan import plan as plan_module
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.scheduler.workers.rebalance import Recovery
from tetris_sim.simulation.loop import open_simulation

NAMES = ("star-1d5p", "heat-2d", "heat-3d")  # those that other tests here compile too
RUNS = 5


def draw_problem(draw: random.Random) -> Problem:
    stencil = stencil_of(draw.choice(NAMES))
    longest = 24 if stencil.ndim == 3 else 60
    shape = tuple(draw.randint(max(radius, 1), longest) for radius in stencil.radii)
    boundary = draw.choice([boundary for _, boundary in mixed_boundaries(stencil.ndim)])
    fields = draw.choice((1, 1, 2))
    return make_problem(stencil, boundary, shape=shape, steps=draw.randint(1, 40), n_fields=fields)[
        0
    ]


def draw_compute(draw: random.Random, problem: Problem) -> ComputeSection:
    devices = list(
        dict.fromkeys(f"simulated:{draw.randint(0, 2)}" for _ in range(draw.randint(1, 3)))
    )
    devices += ["cpu"] * draw.randint(0, 2)
    draw.shuffle(devices)
    others: dict[str, Any] = {}
    if draw.random() < 0.4:
        others["time_block"] = draw.randint(1, 30)
    if draw.random() < 0.4:
        others["shares"] = tuple(draw.uniform(0.2, 3.0) for _ in devices)
    if draw.random() < 0.5:
        others["gpu_memory"] = draw.uniform(0.3, 5.0) * problem.state_bytes
    fails = draw.choice((None, None, 1, 2, 3, 5))
    made_up = SimulatedSection(
        speed=draw.choice((1e15, 1e9)), latency=0, bandwidth=1e15, fail_after=fails
    )
    return ComputeSection(
        devices=tuple(devices),
        method="cpu.plain",
        threads=len(devices),
        tuning_budget=0,
        simulated=made_up,
        **others,
    )


def field_of(problem: Problem, machine: Machine, compute: ComputeSection) -> Field:
    plan = make_plan(problem, machine, compute, use_cache=False)
    with open_simulation(problem, plan, recovery=Recovery(machine, compute)) as simulation:
        assert simulation.run() is None
        return simulation.field()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_computes_has_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "_PIECE_SECONDS", 0.0)
    draw, machine, done = random.Random(seed), find_machine({}), 0
    while done < RUNS:
        problem = draw_problem(draw)
        compute = draw_compute(draw, problem)
        try:
            found = field_of(problem, machine, compute)
        except (
            TetrisError
        ):  # too many workers for the planes, too little memory for the shares that were asked for
            continue
        alone = ComputeSection(devices="cpu", method="cpu.plain", threads=1, tuning_budget=0)
        np.testing.assert_array_equal(found, field_of(problem, machine, alone))
        done += 1
