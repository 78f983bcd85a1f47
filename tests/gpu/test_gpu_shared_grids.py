"""Without a GPU: whole plans and runs in which one takes part, its kernels emulated."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_streamed import HostCopies
from tests.support.cases import boundary_of, make_problem, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.gpu_kernels.steppers import streamed
from tetris_sim.model.problem import Field, Problem
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import Gpu, Machine, find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.scheduler.tuning.candidates import RESERVE
from tetris_sim.scheduler.workers.rebalance import Recovery
from tetris_sim.simulation.loop import open_simulation

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

STEPS = 12
PLAIN = ComputeSection(method="gpu.plain", threads=1, tuning_budget=0)


class HostGpuToClose(HostGpu):
    """One that a worker opens and closes; it may fail after some launches."""

    fails_after: int | None = None

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def function(self, *arguments: Any, **others: Any) -> Any:
        launch = super().function(*arguments, **others)

        def launch_or_fail(*rest: Any, **more: Any) -> None:
            if self.fails_after is not None and len(self.launches) >= self.fails_after:
                kind = type(
                    "CUDARuntimeError",
                    (RuntimeError,),
                    {"__module__": "cupy_backends.cuda.api.runtime"},
                )
                raise kind("cudaErrorECCUncorrectable: uncorrectable ECC error encountered")
            launch(*rest, **more)

        return launch_or_fail

    def close(self) -> None:
        pass


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """This one with two emulated GPUs."""
    HostGpuToClose.fails_after = None
    monkeypatch.setattr("tetris_sim.gpu_kernels.common.device.GpuDevice", HostGpuToClose)
    monkeypatch.setattr(streamed, "GpuCopies", HostCopies)
    monkeypatch.setattr("tetris_sim.scheduler.plan.plan._PIECE_SECONDS", 0.0)
    gpus = tuple(
        Gpu(number, f"GPU {number}", "sm_90", 8 << 30, 50 << 20, "13.0") for number in (0, 1)
    )
    yield dataclasses.replace(find_machine({}), gpus=gpus)
    HostGpuToClose.fails_after = None


def plate(boundary: str = "walls") -> Problem:
    return make_problem(
        stencil_of("heat-2d"), boundary_of(boundary, 2), shape=(60, 33), steps=STEPS
    )[0]


def field_of(problem: Problem, machine: Machine, **compute: Any) -> tuple[Field, Plan]:
    section = PLAIN.model_copy(update=compute)
    plan = make_plan(problem, machine, section, use_cache=False)
    with open_simulation(problem, plan, recovery=Recovery(machine, section)) as simulation:
        assert simulation.run() is None
        return simulation.field(), simulation.plan


@pytest.mark.parametrize("boundary", ["walls", "rings"])
def test_a_gpu_and_the_cpu_have_the_bits_of_the_cpu_alone(machine: Machine, boundary: str) -> None:
    problem = plate(boundary)
    wanted, _ = field_of(problem, machine, devices="cpu", method="cpu.plain")
    for devices, shares in (
        (("gpu:0", "cpu"), (2.0, 1.0)),
        (("cpu", "gpu:1", "gpu:0"), (1.0, 1.0, 1.0)),
    ):
        found, plan = field_of(problem, machine, devices=devices, shares=shares, time_block=4)
        assert [share.worker.split(":")[0] for share in plan.shares] == [
            name.split(":")[0] for name in devices
        ]
        np.testing.assert_array_equal(found, wanted)
    found, plan = field_of(problem, machine, devices="gpu", shares=(1.0, 2.0), time_block=3)
    assert [(share.worker, share.slab.shape[0]) for share in plan.shares] == [
        ("gpu:0", 20),
        ("gpu:1", 40),
    ]
    np.testing.assert_array_equal(found, wanted)


def test_a_grid_larger_than_the_gpu_goes_through_it(machine: Machine) -> None:
    problem = plate()
    wanted, _ = field_of(problem, machine, devices="cpu", method="cpu.plain")
    found, plan = field_of(
        problem, machine, devices=("gpu:0",), gpu_memory=2.0 * problem.state_bytes
    )
    assert plan.shares[0].streamed is not None
    assert plan.shares[0].memory <= 2.0 * problem.state_bytes
    assert plan.shares[0].streamed.pieces > 1
    np.testing.assert_array_equal(found, wanted)


def test_a_gpu_that_fails_is_replaced(machine: Machine) -> None:
    problem = plate()
    wanted, _ = field_of(problem, machine, devices="cpu", method="cpu.plain")
    found, plan = field_of(
        problem, machine, devices=("gpu:0", "cpu"), shares=(1.0, 1.0), time_block=3
    )
    assert len(plan.shares) == 2
    HostGpuToClose.fails_after = 11
    found, plan = field_of(
        problem, machine, devices=("gpu:0", "cpu"), shares=(1.0, 1.0), time_block=3
    )
    assert [share.worker for share in plan.shares] == ["cpu:0"]
    (note,) = plan.notes
    assert note.startswith(
        "gpu:0 failed: cudaErrorECCUncorrectable: uncorrectable ECC error encountered (in the block"
    )
    np.testing.assert_array_equal(found, wanted)


def test_memory_beside_the_state_is_left_free_on_a_gpu(machine: Machine) -> None:
    problem = plate()
    tight = dataclasses.replace(
        machine, gpus=(dataclasses.replace(machine.gpus[0], memory=RESERVE + 40_000),)
    )
    plan = make_plan(
        problem, tight, PLAIN.model_copy(update={"devices": ("gpu:0",)}), use_cache=False
    )
    assert plan.shares[0].streamed is not None
    assert plan.shares[0].memory <= 40_000
