"""Substeps of adaptive runs: the same bits for any partition, ranks and device; undone without a
trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tetris_sim.apps.pde.runge_kutta import PAIRS
from tetris_sim.config import make_config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels import METHODS as GPU_METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.workers import WorkerGroup

STREAM, PLAIN = METHODS[0], METHODS[-1]


def problem_of(scheme: str = "rk2", *, walls: bool = True, **time: Any) -> Problem:
    """Gray-Scott with a coefficient, and a term that changes with time."""
    faces: dict[str, Any] = {
        "y": {"type": "periodic"},
        "x-": {"type": "dirichlet", "value": 1},
        "x+": {"type": "neumann", "flux": 0.1},
    }
    fields = {
        "u": "where(x < 0.4, 1, 0.5)*laplace(u)/1e3 - u*v**2 + 0.04*(1 - u)",
        "v": "laplace(v)/2e3 + u*v**2 - (0.1 + 0.01*t)*v",
    }
    return make_config(
        {
            "grid": {"shape": [11, 26], "size": [0.7, 1.3]},
            "model": {
                "type": "pde",
                "fields": {
                    name: {
                        "equation": text,
                        "initial": {"type": "random", "low": 0, "high": 1, "seed": k},
                    }
                    for k, (name, text) in enumerate(fields.items())
                },
            },
            "boundaries": faces if walls else {"*": {"type": "periodic"}},
            "time": {"t_end": 6.0, "dt": 2.0, "scheme": scheme, "tolerance": 1e-4, **time},
        },
        environ={},
    ).build()


def solved(problem: Problem, compute: ComputeSection) -> tuple[Field, WorkerGroup]:
    plan = make_plan(problem, find_machine(), compute)
    with open_simulation(problem, plan) as simulation:
        simulation.run()
        return simulation.field(), simulation


@pytest.mark.parametrize("scheme", ["euler", "rk2", "rk4"])
def test_any_partition_has_the_same_bits_and_substeps(scheme: str) -> None:
    problem = problem_of(scheme, walls=scheme != "euler")
    alone, run = solved(problem, ComputeSection(method="cpu.plain", threads=1))
    assert run.counted.made > 6
    assert run.counted.rejected > 0 or scheme == "rk4"
    assert np.isfinite(alone).all()
    for workers in (2, 3):
        compute = ComputeSection(method="cpu.plain", devices=("cpu",) * workers, threads=workers)
        shared, other = solved(problem, compute)
        assert len(other.plan.shares) == workers
        assert other.plan.time_block == 1
        assert other.counted == run.counted
        np.testing.assert_array_equal(shared, alone)


@pytest.mark.parametrize("scheme", PAIRS)
def test_an_undone_substep_leaves_no_trace(scheme: str) -> None:
    problem, team = problem_of(scheme), ThreadTeam(2)
    stepper: Any = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, team)
    stepper.load(problem.initial)
    before, peaks = stepper.interior(), stepper.peaks()
    stepper.substep(0.0, 0.3)
    assert not np.array_equal(stepper.interior(), before)
    stepper.undo()
    np.testing.assert_array_equal(stepper.interior(), before)
    np.testing.assert_array_equal(stepper.peaks()[0], peaks[0])
    stepper.substep(0.0, 0.1)
    once, seen = stepper.interior(), stepper.peaks()
    np.testing.assert_array_equal(seen[0], np.abs(once).max(axis=(1, 2)))

    stepper.load(problem.initial)
    stepper.substep(0.0, 0.1)
    np.testing.assert_array_equal(stepper.interior(), once)
    np.testing.assert_array_equal(stepper.peaks(), seen)
    stepper.close()
    team.close()


def test_others_say_why_they_do_not() -> None:
    problem = problem_of()
    for method in (*METHODS, *GPU_METHODS):
        if not method.name.endswith("plain"):
            assert method.refusal(problem) is not None
    assert "time.tolerance" in str(STREAM.refusal(problem))
    with pytest.raises(UnsupportedError, match=r"time\.tolerance"):
        make_plan(problem, find_machine(), ComputeSection(method="cpu.stream", threads=1))


def test_a_gpu_has_the_bits_of_a_cpu() -> None:
    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    problem, team = problem_of("rk2"), ThreadTeam(1)
    found = []
    for method, device in ((PLAIN, team), (GpuPlain(), HostGpu())):
        stepper: Any = method.prepare(problem, Slab.whole(problem.grid), {}, device)
        stepper.load(problem.initial)
        stepper.substep(0.0, 0.7)
        stepper.undo()
        seen = []
        for time, length in ((0.0, 0.25), (0.25, 0.125), (0.375, 0.5)):
            stepper.substep(time, length)
            seen.append(stepper.peaks())
        found.append((stepper.interior(), np.array(seen)))
        stepper.close()
    team.close()
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
