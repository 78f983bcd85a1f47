"""Which device a plan takes, and what is said where there is no GPU, or one that cannot do it."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cases import boundary_of, make_problem, stencil_of
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS as CPU_METHODS
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.gpu_kernels import METHODS as GPU_METHODS
from tetris_sim.gpu_kernels.common.device import import_cupy
from tetris_sim.gpu_kernels.tensor_cores.dual_tessellation import H200, predict_rate
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.machine import machine
from tetris_sim.scheduler.machine.machine import Gpu, Machine
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.plan import find as planning
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.scheduler.tuning.candidates import TuningRequest, find_candidates
from tetris_sim.scheduler.tuning.choice import Candidate, Choice, Speed, TunerEntry, explanations
from tetris_sim.scheduler.tuning.tune import Terms

GPU = Gpu(0, "A GPU", "sm_90", 8 << 30, 50 << 20, "13.0")
WITHOUT = Machine(
    "host", "cpu", 4, "cores", 8 << 30, "free memory", gpus_reason="there is no NVIDIA driver"
)
WITH = dataclasses.replace(WITHOUT, gpus=(GPU,))


@pytest.fixture
def problem() -> Problem:
    return make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(60, 70))[0]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuner that knows without measuring, on either device."""

    def tune(problem: Problem, machine: Machine, terms: Terms) -> Choice:
        return Choice(terms.place.methods[-1], {}, terms.threads, Speed(1e9, 1e-4), ("known",))

    monkeypatch.setattr(planning, "tune", tune)


def test_auto_takes_the_gpu_if_there_is_one(problem: Problem) -> None:
    plan = make_plan(problem, WITH)
    assert [(share.worker, share.method.name, share.described) for share in plan.shares] == [
        ("gpu:0", "gpu.plain", "A GPU")
    ]
    (share,) = plan.shares
    assert ComputeResource(share.threads, share.method.device, share.number) == ComputeResource(
        1, "gpu", 0
    )
    assert plan.reasons[0] == "GPU 0: A GPU, 8 GiB free."
    assert make_plan(problem, WITHOUT).shares[0].worker == "cpu:0"
    assert make_plan(problem, WITH, ComputeSection(devices="cpu")).shares[0].worker == "cpu:0"


def test_a_cpu_method_that_is_asked_for_keeps_auto_on_the_cpu(problem: Problem) -> None:
    plan = make_plan(problem, WITH, ComputeSection(method="cpu.plain"))
    assert plan.shares[0].worker == "cpu:0"
    assert plan.reasons[0] == "On the CPU, since compute.method is cpu.plain."


def test_a_gpu_that_is_asked_for_and_missing_is_an_error_that_says_why(problem: Problem) -> None:
    with pytest.raises(UnsupportedError, match="devices is gpu, but there is no NVIDIA driver"):
        make_plan(problem, WITHOUT, ComputeSection(devices="gpu"))
    with pytest.raises(
        UnsupportedError, match=r"method is gpu\.stream, but there is no NVIDIA driver"
    ):
        make_plan(problem, WITHOUT, ComputeSection(method="gpu.stream"))


def test_a_grid_that_is_too_large_for_the_gpu_is_computed_on_the_cpu(problem: Problem) -> None:
    small = dataclasses.replace(WITH, gpus=(dataclasses.replace(GPU, memory=1 << 20),))
    plan = make_plan(problem, small)
    assert plan.shares[0].worker == "cpu:0"
    assert plan.reasons[0].startswith("The GPU is not used: the grid needs")
    with pytest.raises(UnsupportedError, match="of GPU memory"):
        make_plan(problem, small, ComputeSection(devices="gpu"))


def test_a_gpu_on_which_nothing_works_is_not_used(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = getattr(planning, "tune")  # noqa: B009  the made-up one

    def tune(problem: Problem, machine: Machine, terms: Terms) -> Choice:
        if terms.gpu is not None:
            message = "no method can advance this problem on this machine"
            raise UnsupportedError(message)
        choice: Choice = known(problem, machine, terms)
        return choice

    monkeypatch.setattr(planning, "tune", tune)
    plan = make_plan(problem, WITH)
    assert plan.shares[0].worker == "cpu:0"
    assert (
        plan.reasons[0] == "The GPU is not used: no method can advance this problem on this machine"
    )


def test_candidates_are_those_of_the_device(problem: Problem) -> None:
    for place, methods in (
        (ComputeResource(2), CPU_METHODS),
        (ComputeResource(1, "gpu"), GPU_METHODS),
    ):
        found, _ = find_candidates(problem, TuningRequest(), 1 << 40, place)
        assert {candidate.method.name for candidate in found} <= {method.name for method in methods}
        assert [candidate.method for candidate in found if candidate.quick] == [methods[-1]]
    with pytest.raises(
        ConfigError, match=r"gpu\.plain, which does not run on cpu:0; change it, or compute.devices"
    ):
        find_candidates(problem, TuningRequest("gpu.plain"), 1 << 40, ComputeResource(2))


def test_without_a_driver_nobody_looks_for_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    machine.find_gpus.cache_clear()
    assert machine.find_gpus() == ((), "there is no NVIDIA driver (libcuda.so.1)")
    machine.find_gpus.cache_clear()


def test_without_cupy_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def importing(name: str, *rest: Any) -> Any:
        if name == "cupy":
            message = "No module named 'cupy'"
            raise ImportError(message)
        return genuine(name, *rest)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(
        UnsupportedError, match=r"pip install 'tetris-sim\[gpu13\]'.*No module named 'cupy'"
    ):
        import_cupy()


def entry_of(name: str, rate: float, parameters: dict[str, int], note: str = "") -> TunerEntry:
    (method,) = (method for method in GPU_METHODS if method.name == name)
    return TunerEntry(
        Candidate(method, parameters, guess=0, quick=False),
        first=Speed(rate, 0.0),
        tried=True,
        note=note,
    )


def test_the_model_of_convstencil_stands_beside_the_measurement(problem: Problem) -> None:
    known = dataclasses.replace(GPU, multiprocessors=132, clock=1.98e9, bandwidth=4.9e12)
    entries = [
        entry_of("gpu.stream", 2000e9, {"steps_per_block": 16}),
        entry_of("gpu.dual_tessellation", 500e9, {"steps_per_block": 2}),
        entry_of("gpu.dual_tessellation", 660e9, {"steps_per_block": 3}),
        entry_of("gpu.dual_tessellation", 900e9, {"steps_per_block": 4}, "its answer is wrong"),
    ]
    (sentence,) = explanations(entries, problem, known)
    predicted = predict_rate(H200, problem.stencil, 3, problem.grid.shape) / 1e9
    assert sentence == (
        f"ConvStencil's performance model predicts {predicted:.3g} GStencil/s for "
        "gpu.dual_tessellation with 3 steps per block (132 multiprocessors at 1.98 GHz, memory at "
        "4.9 TB/s); measured 660 GStencil/s."
    )
    (sentence,) = explanations(entries, problem, dataclasses.replace(known, bandwidth=None))
    assert "1.98 GHz, memory of unknown speed left out)" in sentence
    assert explanations(entries, problem, None) == []
    assert explanations(entries, problem, GPU) == []
    assert explanations(entries[:1], problem, known) == []


def test_a_gpu_is_described_by_its_attributes() -> None:
    attributes = {"MultiProcessorCount": 132, "ClockRate": 1980000, "MemoryClockRate": 3201000}
    properties = {"name": b"H", "major": 9, "minor": 0, "l2CacheSize": 60 << 20}
    runtime = SimpleNamespace(
        getDeviceProperties=lambda _: properties, driverGetVersion=lambda: 13000
    )

    def described(**more: int) -> Gpu:
        device = SimpleNamespace(mem_info=(5, 6), attributes={**attributes, **more})
        cuda = SimpleNamespace(runtime=runtime, Device=lambda _: contextlib.nullcontext(device))
        return machine._describe(SimpleNamespace(cuda=cuda), 0)

    found = described(GlobalMemoryBusWidth=6144)
    assert (found.name, found.architecture, found.driver, found.memory) == ("H", "sm_90", "13.0", 5)
    assert (found.multiprocessors, found.clock) == (132, 1.98e9)
    assert found.bandwidth == pytest.approx(4.917e12, rel=1e-3)
    assert described(GlobalMemoryBusWidth=0).bandwidth is None
    assert described().bandwidth is None
    assert described().float64_cost is None
    assert described(SingleToDoublePrecisionPerfRatio=64).float64_cost == 64
