"""What a GPU is asked for is asked within its own context: whole runs on two emulated GPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_shared_grids import PLAIN, HostGpuToClose, plate
from tests.gpu.test_random_fields import problem_of
from tests.support.cases import boundary_of
from tests.support.conduction_cases import CASES
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostCudaError, HostGpu
from tests.support.gpu_equation_cases import gray_scott, make
from tetris_sim.gpu_kernels.common.device import ContextError
from tetris_sim.gpu_kernels.steppers import planes
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.machine.machine import Gpu, find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.scheduler.workers.rebalance import Recovery
from tetris_sim.simulation.loop import open_simulation

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

FINITE = ("finite.cu", "first_nonfinite", {"TS_REAL": "double"})
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "stencil": plate,
    "body": lambda: CASES[2].problem(steps=4),
    "equations": lambda: make(gray_scott(2, boundary_of("rings", 2)), (24, 20)),
    "random": lambda: dataclasses.replace(problem_of("heat-2d", (40, 33), "float64"), steps=4),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_two_gpus_of_a_process_stay_in_their_contexts(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.gpu_kernels.common.device.GpuDevice", HostGpuToClose)
    monkeypatch.setattr(planes, "_MANY_POINTS", 1)
    gpus = tuple(Gpu(k, f"GPU {k}", "sm_90", 8 << 30, 50 << 20, "13.0") for k in (0, 1))
    machine = dataclasses.replace(find_machine({}), gpus=gpus)
    section = PLAIN.model_copy(update={"devices": "gpu", "shares": (1.0, 1.0), "time_block": 2})
    problem = PROBLEMS[kind]()
    plan = make_plan(problem, machine, section, use_cache=False)
    with open_simulation(problem, plan, recovery=Recovery(machine, section)) as simulation:
        assert simulation.run() is None
        assert np.isfinite(simulation.field()).all()
        assert [share.worker for share in simulation.plan.shares] == ["gpu:0", "gpu:1"]
        assert simulation.plan.notes == ()


def test_code_is_loaded_and_launched_in_the_context_of_its_gpu() -> None:
    first, second = HostGpuToClose(0), HostGpuToClose(1)
    with pytest.raises(ContextError, match="GPU 1 outside of any GPU's use"):
        second.function(*FINITE)
    with first.use(), pytest.raises(ContextError, match=r"GPU 1 inside use\(\) of"):
        second.function(*FINITE)
    with first.use(), second.use():
        function: Any = second.function(*FINITE)
    with pytest.raises(HostCudaError, match="INVALID_CONTEXT"):
        function((1, 1, 1), (1, 1, 1), ())
    with first.use(), pytest.raises(HostCudaError, match="INVALID_HANDLE"):
        function((1, 1, 1), (1, 1, 1), ())


def test_one_gpu_is_no_excuse() -> None:
    with pytest.raises(ContextError, match="must move into"):
        HostGpu().function(*FINITE)
