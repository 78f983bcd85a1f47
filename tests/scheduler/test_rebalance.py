"""Planes that move in the middle of a run: when, and that the answer stays the same."""

from __future__ import annotations

import contextlib
import dataclasses
import time

import numpy as np
import pytest

from tests.support.cases import SHAPES, boundary_of, make_problem, mixed_boundaries, stencil_of
from tests.support.fake_methods import FakeMethod
from tetris_sim.config.sections.schema import ComputeSection, SimulatedSection
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Stepper
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import (
    FREE,
    Capacity,
    Division,
    Link,
    Plan,
    Profile,
    Share,
    WorkEstimate,
)
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.plan.partition import cut_along_axis_0
from tetris_sim.scheduler.plan.search import divide, predict
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.scheduler.workers.queued import QueuedStepper
from tetris_sim.scheduler.workers.rebalance import (
    Rebalancer,
    _as_measured,
    able,
    better_division,
    measured_rate,
    move,
    with_division,
)
from tetris_sim.scheduler.workers.worker import Worker, open_worker
from tetris_sim.simulation.loop import open_simulation

WORK = WorkEstimate(1000, 1000, 8000, 1)
METHOD = CpuPlainMethod()
FAST = SimulatedSection(speed=1e15, latency=0, bandwidth=1e15)


def profile_of(*rates: float, block: int = 10) -> Profile:
    capacities = tuple(Capacity(f"w{k}", rate) for k, rate in enumerate(rates))
    return Profile(WORK, capacities, divide(WORK, capacities, most=100, time_block=block))


def slower(profile: Profile, *factors: float) -> list[Capacity]:
    return [
        dataclasses.replace(each, points_per_second=each.points_per_second * factor)
        for each, factor in zip(profile.capacities, factors, strict=True)
    ]


def test_a_worker_that_became_slow_gives_planes_away_if_that_is_repaid() -> None:
    profile = profile_of(1e9, 1e9)
    assert profile.division.planes == (500, 500)
    now = slower(profile, 1.0, 0.25)
    # A step takes 2 ms instead of 0.8 ms.
    found = better_division(profile, now, steps_left=10_000, move_seconds=1.0)
    assert found is not None
    assert found.planes[0] == pytest.approx(800, abs=8)
    assert found.time_block == 10
    assert better_division(profile, now, steps_left=2000, move_seconds=1.0) is None


def test_noise_moves_nothing() -> None:
    profile = profile_of(1e9, 2e9, 1e9)
    assert (
        better_division(
            profile, slower(profile, 0.98, 1.02, 1.0), steps_left=10**9, move_seconds=0.0
        )
        is None
    )


def test_a_worker_that_hardly_moves_any_more_is_left_out() -> None:
    profile = profile_of(1e9, 1e9)
    found = better_division(profile, slower(profile, 1.0, 1e-4), steps_left=10**6, move_seconds=1.0)
    assert found is not None
    assert found.planes == (1000, 0)


def test_a_rate_is_the_median_of_enough_blocks() -> None:
    # 10 steps of 500 planes and of 4.5 more on average for the one neighbour, in 5.145 ms.
    seconds = 10 * (500 + 4.5) * 1000 / 1e9 + 1e-4
    blocks = [(10, seconds)] * 7 + [(10, 100 * seconds)]
    worker = Capacity("w", 1e9, start=1e-4)
    assert measured_rate(WORK, 500, 1, blocks, worker) == pytest.approx(1e9)
    assert measured_rate(WORK, 500, 1, blocks[:7], worker) is None
    # A start that was measured longer than whole blocks take now does not make a worker infinitely
    # fast.
    worker = Capacity("w", 1e9, start=1.0)
    assert measured_rate(WORK, 500, 1, blocks, worker) == pytest.approx(
        2 * 10 * 504.5 * 1000 / seconds
    )


@pytest.mark.parametrize("block", [3, 4, 6, 7, 16])
def test_a_run_that_goes_as_predicted_is_left_as_it_is_however_short_its_blocks(block: int) -> None:
    capacities = (
        Capacity("gpu:0", 20e9, start=1e-5, depth=4, fixed=True),
        Capacity("cpu:0", 15e9, start=2e-5, depth=16),
    )
    profile = Profile(WORK, capacities, divide(WORK, capacities, most=100, time_block=block))
    division = profile.division
    assert division.time_block == block
    assert min(division.planes) > 0

    now = []
    for place, capacity in enumerate(capacities):
        blocks = [(block, division.busy[place])] * 8
        rate = measured_rate(WORK, division.planes[place], 1, blocks, capacity)
        assert rate is not None
        assert rate == pytest.approx(capacity.points_per_second, rel=1e-9)
        now.append(dataclasses.replace(capacity, points_per_second=rate))
    assert better_division(profile, now, steps_left=10**9, move_seconds=0.0) is None


def test_copies_that_blocks_contain_are_counted_once() -> None:
    gpu = Capacity("gpu:0", 20e9, depth=4, overlapped=1.0)
    own, whole = Link(2e-5, 1 / 10e9), Link(5e-5, 1 / 8e9)  # and with what the GPU copies
    cpu = Capacity("cpu:0", 15e9, depth=16, fixed=False, link=whole, copying=own)
    profile = Profile(WORK, (gpu, cpu), divide(WORK, (gpu, cpu), most=100, time_block=16))
    division = profile.division
    assert min(division.planes) > 0
    copies = 2 * own.seconds(16 * WORK.plane_bytes)
    blocks = [(16, division.busy[1] + copies)] * 8
    rate = measured_rate(WORK, division.planes[1], 1, blocks, cpu)
    assert rate == pytest.approx(15e9, rel=1e-9)
    without = dataclasses.replace(cpu, copying=FREE)
    slower_rate = measured_rate(WORK, division.planes[1], 1, blocks, without)
    assert slower_rate is not None
    assert slower_rate < 0.95 * 15e9


def test_only_teams_that_stay_ready_have_copies_in_their_blocks() -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(60, 40))
    plan = plan_of(problem, (30, 30), 3, None, None)
    assert plan.profile is not None
    copying = dataclasses.replace(plan.profile.capacities[0], copying=Link(0.1, 0.0))
    profile = dataclasses.replace(plan.profile, capacities=(copying, copying))

    rates = []
    for through_host in (False, True):
        share = dataclasses.replace(plan.shares[0], through_host=through_host)
        with contextlib.closing(open_worker(problem, share)) as worker:
            assert isinstance(worker.stepper, QueuedStepper)
            assert worker.stepper.copies_in_blocks == through_host
            worker.stepper.recent.extend([(3, 1.0)] * 8)
            now = _as_measured(profile, [worker, worker])
            assert now is not None
            rates.append(now[0].points_per_second)
    # An edge and a halo at its one neighbour are 0.2 of a second.
    assert rates[1] == pytest.approx(rates[0] / 0.8)


def plan_of(
    problem: Problem, planes: tuple[int, ...], block: int, *settings: SimulatedSection | None
) -> Plan:
    """A plan with simulated workers, or CPU threads where there are no settings."""
    n, *rest = problem.grid.shape
    points = int(np.prod(rest, dtype=np.int64)) * problem.n_fields
    work = WorkEstimate(
        n, points, 8 * points, problem.stencil.radii[0], problem.boundary.periodic(0)
    )
    names = [f"cpu:{k}" if each is None else f"simulated:{k}" for k, each in enumerate(settings)]
    capacities = tuple(
        Capacity(name, 1e9 if each is None else each.speed)
        for name, each in zip(names, settings, strict=False)
    )
    ends = [sum(planes[: k + 1]) for k in range(len(planes))]
    pieces = list(zip([0, *ends[:-1]], ends, strict=True))
    slabs = cut_along_axis_0(problem.grid, problem.boundary, pieces, halo=block * work.radius)
    shares = tuple(
        Share(name, slab, METHOD, {}, 1, each.points_per_second, 0, queued=True, simulated=setting)
        for name, slab, each, setting in zip(names, slabs, capacities, settings, strict=True)
    )
    busy = predict(work, capacities, planes, block).busy
    division = Division(planes, block, max(busy), busy, 0.0, 0, 0, 0)
    return Plan(
        shares,
        block,
        max(busy) / block,
        0.0,
        False,
        (),
        profile=Profile(work, capacities, division),
    )


def resident(problem: Problem, steps: int, team: ThreadTeam) -> Field:
    stepper: Stepper = METHOD.prepare(problem, Slab.whole(problem.grid), {}, team)
    stepper.load(problem.initial)
    stepper.advance(steps)
    found = stepper.interior()
    stepper.close()
    return found


@pytest.mark.parametrize("name", ["star-1d5p", "heat-2d", "heat-3d"])
def test_moved_planes_keep_every_bit(name: str, teams: dict[int, ThreadTeam]) -> None:
    stencil = stencil_of(name)
    shape = (61, *SHAPES[stencil.ndim][1:])
    for number, (_, boundary) in enumerate(mixed_boundaries(stencil.ndim)):
        if number % 4:
            continue
        problem, _ = make_problem(stencil, boundary, shape=shape, steps=30, n_fields=2)
        plan = plan_of(problem, (20, 21, 20), 2, FAST, None, FAST)
        with open_simulation(problem, plan) as simulation:
            for planes in ((10, 25, 26), (40, 10, 11), (4, 53, 4), (30, 31, 0)):
                simulation.advance(2)
                assert simulation.plan.profile is not None
                division = dataclasses.replace(
                    simulation.plan.profile.division,
                    planes=planes[: len(simulation.plan.shares)],
                    busy=(0.0,) * len(simulation.plan.shares),
                )
                better = with_division(
                    problem, simulation.plan, simulation.plan.profile.capacities, division
                )
                workers = move(problem, simulation.workers, better, simulation.step)
                simulation.take_up(better, workers, "moved")
                assert [worker.stepper.slab.shape[0] for worker in simulation.workers] == [
                    n for n in planes if n
                ]
            simulation.advance(2)
            found = simulation.field()
        np.testing.assert_array_equal(found, resident(problem, 10, teams[1]))


@pytest.mark.parametrize("asked", [False, True])
def test_a_run_moves_planes_away_from_a_device_that_becomes_slow(
    asked: bool, teams: dict[int, ThreadTeam]
) -> None:
    problem, _ = make_problem(
        stencil_of("heat-2d"), dict(mixed_boundaries(2))["neumann"], shape=(200, 50), steps=400
    )
    even = FAST.model_copy(update={"speed": 100 * 50 * 4 / 2e-3})  # a block of 4 steps takes 2 ms
    plan = dataclasses.replace(plan_of(problem, (100, 100), 4, even, even), shares_asked=asked)
    with open_simulation(problem, plan) as simulation:
        workers = list(simulation.workers)
        workers[1].device.speed /= 5
        begin = time.perf_counter()
        simulation.run()
        seconds = time.perf_counter() - begin
        planes = [share.slab.shape[0] for share in simulation.plan.shares]
        found = simulation.field()
        busy = simulation.busy_s
    # Shares that somebody has asked for stay as they are.
    assert planes == [100, 100] if asked else planes[0] > 140
    assert (
        any(reason.startswith("Planes moved at step ") for reason in simulation.plan.reasons)
        != asked
    )
    assert set(busy) == {"simulated:0", "simulated:1"}
    assert max(busy.values()) < seconds
    np.testing.assert_array_equal(found, resident(problem, 400, teams[1]))


def test_nobody_looks_where_nothing_could_move() -> None:
    problem, _ = make_problem(
        stencil_of("heat-2d"), dict(mixed_boundaries(2))["neumann"], shape=(200, 50)
    )
    plan = plan_of(problem, (200,), 4, FAST)
    workers: list[Worker] = [open_worker(problem, plan.shares[0])]
    rebalancer = Rebalancer(plan)
    for _ in range(20):
        assert (
            rebalancer.better_plan(problem, plan, workers, steps_left=10**9, move_seconds=0.0)
            is None
        )
    workers[0].close()


def test_a_method_that_refuses_what_comes_gives_way_to_the_plain_one_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fussy = FakeMethod("cpu.fussy", why_not="it is Monday")
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(20, 20))
    plan = make_plan(problem, find_machine(), ComputeSection(method="cpu.plain", threads=1))
    asked = dataclasses.replace(
        plan, shares=tuple(dataclasses.replace(it, method=fussy) for it in plan.shares)
    )
    with caplog.at_level("WARNING", "tetris_sim"):
        found = able(problem, asked)
    assert [it.method.name for it in found.shares] == ["cpu.plain"]
    assert caplog.messages == ["From now on cpu.plain, since it is Monday."]

    caplog.clear()
    assert able(problem, plan) == plan
    assert caplog.messages == []
    with pytest.raises(UnsupportedError, match="it is Monday"):
        able(problem, dataclasses.replace(asked, scheme="implicit"))
