"""Plans for several kinds of devices, from tables of speeds; and that every mix computes the
same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.cases import SHAPES, make_problem, mixed_boundaries, stencil_of
from tetris_sim.config.sections.schema import ComputeSection, SimulatedSection
from tetris_sim.cpu_kernels import METHODS as CPU_METHODS
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.gpu_kernels import METHODS as GPU_METHODS
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler import planner
from tetris_sim.scheduler.facts.shares import FREE, Link, Plan, Share
from tetris_sim.scheduler.machine.machine import Gpu, Machine, find_machine
from tetris_sim.scheduler.plan import find as planning
from tetris_sim.scheduler.plan import plan as plan_module
from tetris_sim.scheduler.planner import make_plan, measure_messages
from tetris_sim.scheduler.tuning.candidates import find_method
from tetris_sim.scheduler.tuning.choice import Choice, Speed
from tetris_sim.scheduler.tuning.tune import Terms
from tetris_sim.simulation.loop import open_simulation

H200 = Gpu(0, "NVIDIA H200", "sm_90", 139 << 30, 50 << 20, "13.0")
NODE = Machine(
    "host", "cpu", 16, "cores in the affinity mask", 120 << 30, "free memory", gpus=(H200,)
)
PINNED, TEAM = Link(3e-5, 1 / 50e9), Link(2e-5, 1 / 10e9)
BOTH = ComputeSection(devices="cpu+gpu")

Speeds = Callable[[float, float], None]


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> Speeds:
    """Makes a tuner that knows: GPUs and CPUs have certain speeds."""

    def set_speeds(gpu: float, cpu: float) -> None:
        def tune(problem: Problem, machine: Machine, terms: Terms) -> Choice:
            method = terms.place.methods[0]
            if terms.asked.method != "auto":
                method = find_method(terms.asked.method, by="method")
            rate = gpu if terms.gpu is not None else cpu * terms.threads / 16
            parameters = {**method.parameters(problem)[0]}
            return Choice(
                method, parameters, terms.threads, Speed(rate, 1e-5), (f"{method.name} known",)
            )

        def messages(problem: Problem, share: Share, through_host: bool) -> Link:
            return PINNED if share.product else TEAM

        monkeypatch.setattr(planning, "tune", tune)
        monkeypatch.setattr(planner, "measure_messages", messages)
        monkeypatch.setattr(planner, "measure_copies", lambda share: (1 / 55e9, 1 / 55e9))

    return set_speeds


def plate(shape: tuple[int, ...], steps: int = 100_000) -> Problem:
    stencil = named_stencil("heat-2d").stencil
    problem, _ = make_problem(stencil, Boundary.everywhere(Neumann(), 2), shape=(8, 8), steps=steps)
    return dataclasses.replace(problem, grid=dataclasses.replace(problem.grid, shape=shape))


def portions(plan: Plan) -> dict[str, float]:
    total = sum(share.slab.n_points for share in plan.shares)
    return {share.worker: share.slab.n_points / total for share in plan.shares}


def test_near_even_speeds_give_near_even_shares_as_in_the_paper(speeds: Speeds) -> None:
    speeds(63e9, 49e9)
    plan = make_plan(plate((10240, 10240)), NODE, BOTH)
    assert list(portions(plan)) == ["gpu:0", "cpu:0"]
    # One of the 16 cores drives the GPU.
    assert portions(plan)["cpu:0"] == pytest.approx(46 / 109, abs=0.02)
    assert [share.threads for share in plan.shares] == [1, 15]
    assert all(share.queued and share.through_host for share in plan.shares)
    assert plan.profile is not None
    assert all(plan.profile.division.idle(k) < 0.05 for k in (0, 1))
    assert any(reason.startswith("Shares by predicted time: gpu:0 5") for reason in plan.reasons)
    block = plan.shares[0].parameters["steps_per_block"]
    assert plan.time_block % block == 0
    assert plan.time_block % plan.shares[1].parameters["steps_per_block"] == 0
    assert plan.notes[0].startswith(
        "Workers compute with gpu.stream and cpu.stream: where a point lies decides"
    )


def test_a_cpu_beside_an_h200_gets_nothing_and_the_plan_says_why(speeds: Speeds) -> None:
    speeds(2000e9, 2e9)
    plan = make_plan(plate((10240, 10240), steps=10_000_000), NODE, BOTH)
    assert portions(plan) == {"gpu:0": 1.0}
    (why,) = [reason for reason in plan.reasons if "gets nothing" in reason]
    assert why.startswith(
        "cpu:0 gets nothing: it makes 1.88 GStencil/s of 2e+03 GStencil/s, and with it a step would"
    )
    assert plan.notes == ()
    assert all(width == (0, 0) for width in plan.shares[0].slab.halo)


def test_shares_that_are_asked_for_count_more_than_speed(speeds: Speeds) -> None:
    speeds(2000e9, 2e9)
    plan = make_plan(plate((10240, 10240)), NODE, BOTH.model_copy(update={"shares": (3.0, 1.0)}))
    assert portions(plan) == {"gpu:0": 0.75, "cpu:0": 0.25}
    with pytest.raises(
        ConfigError, match=r"compute\.shares lists 3, but the devices are gpu:0 and cpu:0"
    ):
        make_plan(plate((10240, 10240)), NODE, BOTH.model_copy(update={"shares": (3.0, 1.0, 1.0)}))


def test_a_grid_larger_than_the_gpu_is_streamed_or_shared_whichever_is_faster(
    speeds: Speeds,
) -> None:
    large = plate((65536, 32768))  # 16 GiB a field
    limit = ComputeSection(devices="cpu+gpu", gpu_memory=2 / 3 * 2 * 65536 * 32768 * 8)
    speeds(900e9, 100e9)
    plan = make_plan(large, NODE, limit)
    (share,) = (share for share in plan.shares if share.streamed is not None)
    streaming = share.streamed
    assert streaming is not None
    assert streaming.steps >= 130
    assert streaming.points_per_second > 0.9 * 900e9
    assert share.memory <= 2 / 3 * 2 * 65536 * 32768 * 8
    assert plan.time_block % streaming.steps == 0
    assert any("is streamed:" in reason for reason in plan.reasons)
    assert any(
        reason.startswith("Filling the memory of each device would take") for reason in plan.reasons
    )
    # A CPU that is as fast makes it better to keep both memories full.
    speeds(300e9, 300e9)
    plan = make_plan(large, NODE, limit)
    assert not any(share.streamed for share in plan.shares)
    assert list(portions(plan)) == ["gpu:0", "cpu:0"]
    assert all(share.memory <= 2 / 3 * 2 * 65536 * 32768 * 8 for share in plan.shares[:1])


def test_a_gpu_keeps_copies_where_the_memory_that_it_may_use_has_room(speeds: Speeds) -> None:
    speeds(900e9, 100e9)
    problem = plate((10240, 10240))
    (share,) = make_plan(problem, NODE, ComputeSection(devices="gpu")).shares
    assert share.keeps
    for memory, keeps in ((1.5 * share.memory, True), (1.49 * share.memory, False)):
        limit = ComputeSection(devices="gpu", gpu_memory=memory)
        assert [it.keeps for it in make_plan(problem, NODE, limit).shares] == [keeps]
    (threads,) = make_plan(problem, NODE, ComputeSection(devices="cpu")).shares
    assert not threads.keeps


def test_a_gpu_alone_that_is_too_small_streams(speeds: Speeds) -> None:
    speeds(900e9, 100e9)
    plan = make_plan(plate((65536, 32768)), NODE, ComputeSection(devices="gpu", gpu_memory=4 << 30))
    assert [share.worker for share in plan.shares] == ["gpu:0"]
    assert plan.shares[0].streamed is not None
    assert plan.shares[0].memory <= 4 << 30
    with pytest.raises(UnsupportedError, match=r"the grid needs 32 GiB of GPU memory"):
        make_plan(plate((65536, 32768)), NODE, ComputeSection(devices="gpu", gpu_memory=1 << 19))


def test_auto_tries_the_cpu_beside_the_gpu_in_long_runs_only(speeds: Speeds) -> None:
    speeds(63e9, 49e9)
    assert list(portions(make_plan(plate((10240, 10240)), NODE))) == ["gpu:0", "cpu:0"]
    short = make_plan(plate((10240, 10240), steps=1000), NODE)
    assert list(portions(short)) == ["gpu:0"]
    assert "The CPU is not tried beside it: the run takes about 1.7 s." in short.reasons


def test_a_cpu_is_not_tried_where_it_could_save_less_than_that_takes(speeds: Speeds) -> None:
    speeds(2000e9, 2e9)
    runs = plate((9600, 9600), steps=3_800_000)
    for devices in ("auto", "cpu+gpu"):
        plan = make_plan(runs, NODE, BOTH.model_copy(update={"devices": devices}))
        assert portions(plan) == {"gpu:0": 1.0}
        assert any("could save 7.3 of 175 s" in reason for reason in plan.reasons)

    # Nobody who asks for both is denied a CPU that might count.
    speeds(800e9, 2e9)
    brief = dataclasses.replace(runs, steps=400_000)
    for devices, tried in (("auto", False), ("cpu+gpu", True)):
        plan = make_plan(brief, NODE, BOTH.model_copy(update={"devices": devices}))
        assert any("is not tried" in reason for reason in plan.reasons) != tried
    speeds(2000e9, 2e9)

    # Four times as long a run, a quicker CPU's chance, or a wish: it is tried.
    longer = dataclasses.replace(runs, steps=4 * runs.steps)
    for problem, update in (
        (longer, {}),
        (runs, {"tuning_budget": 3.0}),
        (runs, {"method": "cpu.plain"}),
        (runs, {"devices": ("gpu:0", "cpu")}),
        (runs, {"gpu_memory": 1 << 29}),
    ):
        plan = make_plan(problem, NODE, BOTH.model_copy(update=update))
        assert not any("is not tried" in reason for reason in plan.reasons), update


def test_a_cpu_beside_a_gpu_has_its_own_copies_in_its_blocks(speeds: Speeds) -> None:
    speeds(63e9, 49e9)
    plan = make_plan(plate((10240, 10240)), NODE, BOTH)
    assert plan.profile is not None
    known = {it.name[:3]: (it.copying, it.link.latency) for it in plan.profile.capacities}
    assert known["cpu"] == (TEAM, TEAM.latency + PINNED.latency)
    assert known["gpu"] == (FREE, PINNED.latency)


def test_several_gpus_share_evenly_and_are_tuned_once(
    speeds: Speeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(900e9, 1e9)
    tuned: list[Terms] = []
    known = getattr(planning, "tune")  # noqa: B009  the made-up one

    def tune(problem: Problem, machine: Machine, terms: Terms) -> Choice:
        tuned.append(terms)
        choice: Choice = known(problem, machine, terms)
        return choice

    monkeypatch.setattr(planning, "tune", tune)
    four = dataclasses.replace(
        NODE, gpus=tuple(dataclasses.replace(H200, number=k) for k in range(4))
    )
    plan = make_plan(plate((32768, 32768)), four, ComputeSection(devices="gpu"))
    assert len(tuned) == 1
    assert list(portions(plan)) == ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]
    assert not any(share.through_host for share in plan.shares)
    assert max(portions(plan).values()) - min(portions(plan).values()) < 0.02
    rate = plate((32768, 32768)).grid.n_points / plan.seconds_per_step
    assert rate > 0.8 * 4 * 900e9


def test_devices_that_are_not_there_or_named_twice_are_refused(speeds: Speeds) -> None:
    speeds(900e9, 1e9)
    small = plate((100, 100))
    without = dataclasses.replace(NODE, gpus=(), gpus_reason="there is no NVIDIA driver")
    for devices in ("gpu", "cpu+gpu", ("gpu:0", "cpu")):
        with pytest.raises(UnsupportedError, match="there is no NVIDIA driver"):
            make_plan(small, without, ComputeSection(devices=devices))
    with pytest.raises(UnsupportedError, match=r"names gpu:1, but there are \['gpu:0'\]"):
        make_plan(small, NODE, ComputeSection(devices=("gpu:1", "cpu")))
    with pytest.raises(ConfigError, match="names gpu:0 twice"):
        make_plan(small, NODE, ComputeSection(devices=("gpu", "gpu:0")))


def test_a_method_that_is_named_counts_for_its_kind_of_device(speeds: Speeds) -> None:
    speeds(63e9, 49e9)
    plan = make_plan(plate((10240, 10240)), NODE, BOTH.model_copy(update={"method": "cpu.plain"}))
    assert [share.method.name for share in plan.shares] == [GPU_METHODS[0].name, "cpu.plain"]
    plan = make_plan(plate((10240, 10240)), NODE, BOTH.model_copy(update={"method": "gpu.plain"}))
    assert [share.method.name for share in plan.shares] == ["gpu.plain", CPU_METHODS[0].name]


def test_a_link_is_measured_on_the_device() -> None:
    problem = plate((400, 500))
    far = SimulatedSection(speed=1e12, latency=2e-3, bandwidth=1e8)
    method = CPU_METHODS[-1]
    whole = Slab.whole(problem.grid)
    share = Share("simulated:0", whole, method, {}, 1, 1e9, 0, queued=True, simulated=far)
    link = measure_messages(problem, share)
    # What the device takes, and what the processor adds to it.
    assert 1.8e-3 < link.latency < 8e-3
    assert 0.2e8 < 1 / link.seconds_per_byte < 1.3e8


MIXES: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("simulated:0", "cpu"), {"time_block": 3}),
    (("cpu", "simulated:0", "simulated:1"), {"shares": (1.0, 2.0, 1.5), "time_block": 2}),
    (("simulated:0",), {"gpu_memory": "tiny"}),
    (("simulated:0", "cpu"), {"gpu_memory": "tiny", "shares": (2.0, 1.0), "time_block": 2}),
]


@pytest.mark.parametrize("name", ["star-1d5p", "heat-2d", "heat-3d"])
def test_every_mix_of_real_and_made_up_workers_has_the_bits_of_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "_PIECE_SECONDS", 0.0)
    stencil = stencil_of(name)
    shape = tuple(2 * n + 1 for n in SHAPES[stencil.ndim])
    boundaries = [boundary for _, boundary in mixed_boundaries(stencil.ndim)]
    streamed = 0
    for boundary in boundaries[:5] + boundaries[7:9]:
        problem, _ = make_problem(stencil, boundary, shape=shape, steps=8)
        alone, _ = field_after_the_run(
            problem, ComputeSection(method="cpu.plain", devices="cpu", threads=1)
        )
        for devices, others in MIXES:
            changes: dict[str, Any] = dict(others)
            if changes.get("gpu_memory") == "tiny":
                changes["gpu_memory"] = (
                    2.6 if stencil.ndim == 3 else 1.9
                ) * problem.state_bytes  # rows are padded
            compute = ComputeSection(
                method="cpu.plain",
                devices=devices,
                threads=len(devices),
                tuning_budget=0,
                simulated=SimulatedSection(speed=1e12, latency=0, bandwidth=1e15),
            ).model_copy(update=changes)
            found, plan = field_after_the_run(problem, compute)
            np.testing.assert_array_equal(found, alone)
            assert len(plan.shares) == len(devices) or "shares" not in others
            streamed += sum(share.streamed is not None for share in plan.shares)
    assert streamed


def field_after_the_run(problem: Problem, compute: ComputeSection) -> tuple[Field, Plan]:
    plan = make_plan(problem, find_machine({}), compute, use_cache=False)
    with open_simulation(problem, plan) as simulation:
        simulation.run()
        return simulation.field(), plan
