"""Workers of one process that are told of a block ahead: a GPU, emulated or real, and CPU threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.ahead_cases import BLOCK, CHOSEN, STEPS, plan_of, plate
from tests.support.cases import run
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.cpu_kernels.common.ready import ReadyStepper
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes
from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper
from tetris_sim.model import reference
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Field, Problem
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.workers import worker as workers
from tetris_sim.scheduler.workers.queued import QueuedStepper, WorkerError
from tetris_sim.simulation.loop import open_simulation


def solved(problem: Problem, plan: Plan) -> Field:
    with open_simulation(problem, plan) as simulation:
        simulation.run()
        assert all(seconds > 0 for seconds in simulation.busy_s.values())
        return simulation.field()


def check(problem: Problem, method: Method, team: ThreadTeam) -> None:
    wanted = run(CpuPlain(), problem, {}, team, (STEPS,))
    allowed = 0.0 if method.name == "gpu.plain" else reference.tolerance(problem, STEPS, 3.0)
    for pieces in ([("gpu:0", 61), ("cpu:0", 30)], [("cpu:0", 9), ("gpu:0", 62), ("cpu:1", 20)]):
        found = solved(problem, plan_of(problem, method, pieces))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs are emulated ones."""
    real = workers._open_device

    def opened(share: Share) -> Any:
        if share.method.device == "cpu":
            return real(share)
        gpu: Any = HostGpu()
        gpu.close = gpu.release
        return gpu

    monkeypatch.setattr(workers, "_open_device", opened)


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("method", CHOSEN, ids=lambda method: method.name)
@pytest.mark.parametrize("kind", ["walls", "rings", "mixed"])
def test_an_emulated_gpu_between_cpu_threads(
    method: Method,
    kind: str,
    teams: dict[int, ThreadTeam],
    emulated: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts: list[str] = []
    left: list[GpuPlanes] = []
    advance_part, leave = GpuStepper._advance_part, GpuPlanes.leave

    def noted(stepper: GpuStepper, steps: int, axis: int, part: Any) -> None:
        parts.append(part)
        advance_part(stepper, steps, axis, part)

    def left_too(planes: GpuPlanes) -> None:
        left.append(planes)
        leave(planes)

    monkeypatch.setattr(GpuStepper, "_advance_part", noted)
    monkeypatch.setattr(GpuPlanes, "leave", left_too)
    check(plate(kind), method, teams[2])
    blocks = -(-STEPS // BLOCK)
    # Of blocks of 4 steps the first one is launched, the second one recorded; then one of 2 steps.
    assert parts.count("inside") == 2 * 3
    assert parts.count("low") + parts.count("high") >= parts.count("inside")
    sides = (1 + 2) if kind != "rings" else (2 + 2)
    assert len(left) == sides * (blocks + 1)  # of each block, and before the first one


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("method", CHOSEN, ids=lambda method: method.name)
@pytest.mark.parametrize("kind", ["walls", "mixed"])
def test_an_emulated_gpu_told_of_whole_blocks_ahead(
    method: Method,
    kind: str,
    teams: dict[int, ThreadTeam],
    emulated: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled: list[str] = []
    settle, in_parts = QueuedStepper.settle, GpuStepper._advance_part

    def noted(stepper: QueuedStepper) -> None:
        settled.append(stepper._name)
        settle(stepper)
        assert len(stepper._told) <= 1

    def never(*_: Any) -> None:
        raise AssertionError(in_parts)

    lasting: list[Any] = []
    bring_lasting = HostGpu.bring_lasting

    def from_where_they_are(gpu: HostGpu, values: Any) -> tuple[Any, Any]:
        lasting.append(values)
        return bring_lasting(gpu, values)

    monkeypatch.setattr(QueuedStepper, "settle", noted)
    monkeypatch.setattr(GpuStepper, "_advance_part", never)
    monkeypatch.setattr(HostGpu, "bring_lasting", from_where_they_are)
    monkeypatch.setattr(HostGpu, "bring_beside", never)
    check_whole(plate(kind), method, teams[2])
    assert settled.count("gpu:0") > 0
    # A thread of its own would copy edges once more, into memory that the GPU can read.
    places = {values.ctypes.data for values in lasting}
    assert len(lasting) > len(places) > 0


def check_whole(problem: Problem, method: Method, team: ThreadTeam) -> None:
    wanted = run(CpuPlain(), problem, {}, team, (STEPS,))
    allowed = 0.0 if method.name == "gpu.plain" else reference.tolerance(problem, STEPS, 3.0)
    plan = plan_of(problem, method, [("cpu:0", 9), ("gpu:0", 62), ("cpu:1", 20)], whole=True)
    with open_simulation(problem, plan) as simulation:
        steppers = [worker.stepper for worker in simulation.workers]
        ready = [isinstance(it._stepper, ReadyStepper) for it in steppers]  # type: ignore[attr-defined]
        assert ready == [True, False, True]
        simulation.advance(BLOCK)
        simulation.advance(BLOCK)
        told = steppers[1]._told  # type: ignore[attr-defined]
        assert len(told) == 1  # nobody has waited for its last block
    np.testing.assert_allclose(solved(problem, plan), wanted, rtol=0, atol=allowed)


@pytest.mark.gpu
@pytest.mark.parametrize("method", CHOSEN, ids=lambda method: method.name)
@pytest.mark.parametrize("kind", ["walls", "rings", "mixed"])
def test_a_gpu_told_of_whole_blocks_ahead(
    method: Method, kind: str, teams: dict[int, ThreadTeam]
) -> None:
    check_whole(plate(kind), method, teams[2])


@pytest.mark.gpu
@pytest.mark.parametrize("method", CHOSEN, ids=lambda method: method.name)
@pytest.mark.parametrize("kind", ["walls", "rings", "mixed"])
def test_a_gpu_between_cpu_threads(method: Method, kind: str, teams: dict[int, ThreadTeam]) -> None:
    check(plate(kind), method, teams[2])


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
def test_who_is_told_ahead_is_one_block_ahead_and_its_failure_is_told(
    emulated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, waited = plate("walls"), []
    plan = plan_of(problem, CHOSEN[0], [("gpu:0", 61), ("cpu:0", 30)])
    count = QueuedStepper._count

    def counted(stepper: QueuedStepper, block: Any) -> None:
        waited.append(len(stepper._told))
        count(stepper, block)

    monkeypatch.setattr(QueuedStepper, "_count", counted)
    with open_simulation(problem, plan) as simulation:
        for _ in range(3):
            simulation.advance(BLOCK)
        assert waited == [1, 1]
        simulation.workers[0].stepper.wait()
        assert waited == [1, 1, 0]

        def broken(*_: Any) -> None:
            raise type("CUDARuntimeError", (RuntimeError,), {"__module__": "cupy.cuda"})("lost")

        monkeypatch.setattr(GpuStepper, "_advance_parts", broken)
        with pytest.raises(WorkerError, match="gpu:0 failed: lost"):
            simulation.advance(BLOCK)
