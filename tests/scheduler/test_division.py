"""Who gets how many planes, from a table of speeds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.scheduler.facts.shares import Capacity, Division, Link, WorkEstimate
from tetris_sim.scheduler.plan.partition import blocks_in_flight
from tetris_sim.scheduler.plan.search import divide, without

PLATE = WorkEstimate(n_planes=10240, plane_points=10240, plane_bytes=81920, radius=1)
PCIE, MEMORY = Link(3e-5, 1 / 10e9), Link(1e-5, 1 / 5e9)


def combined(work: WorkEstimate, division: Division) -> float:
    """Points per second of all together."""
    return work.n_planes * work.plane_points / division.seconds_per_step


def test_a_cpu_that_is_nearly_as_fast_gets_nearly_half_as_in_the_paper() -> None:
    # Tetris table 2: 43.7 % of the work of the thermal case went to the CPU.
    gpu, cpu = Capacity("gpu:0", 63e9, 1e-5, PCIE, depth=8), Capacity("cpu:0", 49e9, 2e-5, MEMORY)
    division = divide(PLATE, [gpu, cpu], most=5000)
    assert division.planes[1] / 10240 == pytest.approx(49 / 112, abs=0.02)
    assert combined(PLATE, division) > 0.93 * 112e9
    assert division.time_block % 8 == 0
    assert division.idle(0) < 0.06
    assert division.replicated == 2 * 10240 * division.time_block * (division.time_block - 1) // 2


def test_a_cpu_a_thousand_times_slower_gets_nothing() -> None:
    gpu, cpu = Capacity("gpu:0", 2000e9, 1e-5, PCIE, depth=8), Capacity("cpu:0", 2e9, 2e-5, MEMORY)
    division = divide(PLATE, [gpu, cpu], most=5000)
    assert division.planes == (10240, 0)
    assert (division.messages, division.replicated, division.exchange_seconds) == (0, 0, 0.0)
    together = without(PLATE, [gpu, cpu], 1, division, most=5000)
    assert together is not None
    assert together > division.seconds_per_step


def test_a_slow_link_leaves_a_fast_worker_out() -> None:
    one, far = Capacity("cpu:0", 1e9), Capacity("gpu:0", 1e9, link=Link(10.0, 1e-9))
    assert divide(WorkEstimate(100, 1000, 8000, 1), [one, far], most=100).planes == (100, 0)
    near = Capacity("gpu:0", 1e9)
    assert divide(WorkEstimate(100, 1000, 8000, 1), [one, near], most=100).planes == (50, 50)


def test_latency_asks_for_long_blocks_and_wide_planes_for_short_ones() -> None:
    def block(latency: float, points: int) -> int:
        pair = [Capacity(name, 1e9, link=Link(latency, 0.0)) for name in ("a", "b")]
        return divide(WorkEstimate(4000, points, 8 * points, 1), pair, most=10_000).time_block

    # One plane each is computed twice per step of a block, on average half a block of them: two
    # messages of 100 us against planes of 1 us balance at sqrt(2 * 200 us / 1 us) = 20 steps.
    assert block(1e-4, 1000) == pytest.approx(20, abs=2)
    assert block(1e-2, 1000) == pytest.approx(200, rel=0.1)
    assert block(1e-4, 100_000) == pytest.approx(2, abs=1)


def test_memory_bounds_the_planes_and_the_others_take_the_rest() -> None:
    gpu, cpu = (
        Capacity("gpu:0", 900e9, 1e-5, PCIE, room=3000, depth=8),
        Capacity("cpu:0", 100e9, 2e-5, MEMORY),
    )
    division = divide(PLATE, [gpu, cpu], most=5000)
    assert division.planes[0] + division.time_block <= 3000
    assert division.planes[0] > 2900
    assert sum(division.planes) == 10240
    assert division.idle(0) > 0.9


def test_what_fits_nowhere_is_refused_with_the_numbers() -> None:
    small = [Capacity("gpu:0", 1e9, room=40), Capacity("cpu:0", 1e9, room=50)]
    with pytest.raises(UnsupportedError, match=r"100 planes do not fit .* gpu:0 40, cpu:0 50"):
        divide(WorkEstimate(100, 10, 80, 1), small, most=10)


def test_shares_that_are_asked_for_are_given_or_refused() -> None:
    work, pair = WorkEstimate(100, 1000, 8000, 2), [Capacity("a", 1e9), Capacity("b", 1e9, room=40)]
    assert divide(work, pair, most=10, shares=[3.0, 1.0]).planes == (75, 25)
    with pytest.raises(
        ConfigError,
        match=r"compute\.shares gives a worker fewer than 2 .* memory holds \(a .*, b 40\)",
    ):
        divide(work, pair, most=10, shares=[1.0, 1.0])


def test_a_block_that_is_asked_for_is_cut_to_what_the_planes_allow() -> None:
    pair = [Capacity("a", 1e9), Capacity("b", 1e9)]
    assert divide(WorkEstimate(100, 10, 80, 2), pair, most=1000, time_block=7).time_block == 7
    assert divide(WorkEstimate(100, 10, 80, 2), pair, most=1000, time_block=70).time_block == 25


def test_many_workers_are_dropped_one_by_one() -> None:
    fast = [Capacity(f"gpu:{k}", 900e9, 1e-5, Link(3e-5, 1 / 100e9), depth=8) for k in range(4)]
    slow = [Capacity(f"cpu:{k}", 1e6, 1e-5, MEMORY) for k in range(2)]
    division = divide(WorkEstimate(32768, 32768, 262144, 1), [*fast, *slow], most=5000)
    assert division.planes[4:] == (0, 0)
    assert combined(WorkEstimate(32768, 32768, 262144, 1), division) > 0.9 * 3600e9


def test_a_pipeline_is_filled() -> None:
    assert [
        blocks_in_flight(1.0),
        blocks_in_flight(1.0, 1.0, 1.0),
        blocks_in_flight(0.1, 1.0, 0.1),
    ] == [1, 3, 2]


workers = st.builds(
    Capacity,
    name=st.just("w"),
    points_per_second=st.floats(1e6, 1e13),
    start=st.floats(0, 1e-3),
    link=st.builds(Link, latency=st.floats(0, 1e-2), seconds_per_byte=st.floats(0, 1e-7)),
    room=st.integers(1, 3000),
    depth=st.integers(1, 16),
)


@given(
    n_planes=st.integers(1, 2000),
    plane_points=st.integers(1, 10**6),
    radius=st.integers(0, 4),
    periodic=st.booleans(),
    capacities=st.lists(workers, min_size=1, max_size=6),
    most=st.integers(1, 500),
)
def test_every_division_can_be_carried_out(
    n_planes: int,
    plane_points: int,
    radius: int,
    periodic: bool,
    capacities: list[Capacity],
    most: int,
) -> None:
    work = WorkEstimate(n_planes, plane_points, 8 * plane_points, radius, periodic=periodic)
    try:
        division = divide(work, capacities, most=most)
    except UnsupportedError:
        # No worker alone has room, and then neither have two whose halos come on top, unless they
        # share the planes.
        assert max(each.room for each in capacities) < n_planes
        return
    members = [k for k, planes in enumerate(division.planes) if planes]
    assert sum(division.planes) == n_planes
    for place, k in enumerate(members):
        cuts = work.cuts(place, len(members))
        halo = division.time_block * radius
        assert division.planes[k] + cuts * halo <= capacities[k].room
        if cuts:
            assert division.planes[k] >= halo
        assert 0 <= division.idle(k) <= 1
    assert division.block_seconds >= max(division.busy)
    points = n_planes * plane_points
    alone = [
        points / each.points_per_second + each.start for each in capacities if each.room >= n_planes
    ]
    assert division.seconds_per_step <= min(alone, default=math.inf) * (1 + 1e-9)
