"""Process grids are chosen by predicted time: nothing is clearly faster, and slabs stay where that
is not clear.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.cases import make_problem
from tetris_sim.model.boundary import Boundary, Neumann, Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.facts.shares import Capacity, Domain, Link, Parts
from tetris_sim.scheduler.plan.cost import WorkerTable, seconds_per_step
from tetris_sim.scheduler.plan.offer import describe_choice
from tetris_sim.scheduler.plan.partition import (
    cut,
    factorizations,
    halo_points,
    is_slabs,
    longest_block,
    possible_parts,
    redundant_points,
    surface,
)
from tetris_sim.scheduler.plan.search import ProcessGrid, cut_into, fastest_grid, with_best_block

SURE = 0.05
START = 2e-5  # seconds of starting a block


def domain_of(shape: tuple[int, ...], *, periodic: bool = False, name: str | None = None) -> Domain:
    """A problem whose state is never made."""
    ndim = len(shape)
    boundary = Boundary.everywhere(Periodic() if periodic else Neumann(), ndim)
    small, _ = make_problem(
        named_stencil(name or f"heat-{ndim}d").stencil, boundary, shape=(9,) * ndim
    )
    grid = Grid(shape, small.grid.spacing, small.grid.origin)
    return Domain.of(dataclasses.replace(small, grid=grid))


def ranks_of(
    speeds: Sequence[float],
    link: Link,
    steps: Sequence[int] | None = None,
    fixed: Sequence[bool] | None = None,
) -> list[Capacity]:
    """A worker for each speed, as ranks offer them."""
    depths, single = steps or [1] * len(speeds), fixed or [False] * len(speeds)
    return [
        Capacity("", speed, START, link, depth=depth, fixed=only, one_way=True)
        for speed, depth, only in zip(speeds, depths, single, strict=True)
    ]


def seconds_by_slabs(domain: Domain, workers: list[Capacity], parts: Parts, block: int) -> float:
    """The model, slab by slab."""
    working = exchanging = 0.0
    slabs = cut(domain, parts, [worker.points_per_second for worker in workers], block)
    for slab, worker in zip(slabs, workers, strict=True):
        points = slab.n_points + redundant_points(slab, domain.radii, block)
        own = worker.depth
        slowness = (
            (block + 3 * (block % own)) / block
            if worker.fixed
            else max(1.0, own / block) ** (1 / 3)
        )
        working = max(working, points * domain.n_fields * slowness / worker.points_per_second)
        messages, received = halo_points(slab)
        n_bytes = received * domain.n_fields * domain.itemsize
        exchanging = max(
            exchanging, messages * worker.link.latency + n_bytes * worker.link.seconds_per_byte
        )
    return working + (exchanging + START) / block


def random_case(seed: int) -> tuple[Domain, list[Capacity]]:
    """Any grid, boundary, stencil, number of workers, and costs."""
    rng = np.random.default_rng(seed)
    name = ("star-1d5p", "heat-2d", "box-2d25p", "heat-3d", "box-3d27p")[seed % 5]
    ndim = int(name.split("-")[1][0])
    shape = tuple(int(n) for n in rng.integers(30, (4000, 600, 120)[ndim - 1], ndim))
    workers = int(rng.integers(2, 25))
    speeds = rng.uniform(0.8e9, 1e9, workers) if seed % 3 else rng.uniform(1e8, 1e9, workers)
    link = Link(10 ** rng.uniform(-6, -3), 10 ** rng.uniform(-11, -8))
    steps = rng.choice([1, 3, 4], workers).tolist() if seed % 2 else None
    fixed = rng.choice([False, True], workers).tolist() if seed % 3 else None
    domain = domain_of(shape, periodic=seed % 4 == 0, name=name)
    return domain, ranks_of(speeds.tolist(), link, steps, fixed)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_clearly_faster_than_what_is_chosen(seed: int) -> None:
    domain, workers = random_case(seed)
    crew = WorkerTable.of(workers)
    found, _ = fastest_grid(domain, crew)
    assert found.seconds == pytest.approx(
        seconds_by_slabs(domain, workers, found.parts, found.time_block)
    )
    times = {
        (parts, block): seconds_by_slabs(domain, workers, parts, block)
        for parts in factorizations(crew.size, len(domain.shape))
        for block in sorted({round(1.3**k) for k in range(30)})
        if block <= longest_block(domain, parts)
    }
    fastest = min(times.values())
    # A tenth of the blocks at most is tried: those next to the best one cost a few per cent more.
    assert (1 - SURE) * found.seconds <= 1.04 * fastest, min(times, key=lambda key: times[key])
    slabs = factorizations(crew.size, len(domain.shape))[0]
    if slabs in possible_parts(domain, crew.size):
        kept = with_best_block(domain, crew, slabs)
        assert is_slabs(found.parts) == (
            (1 - SURE) * kept.seconds <= fastest_other(domain, crew, slabs)
        )


def fastest_other(domain: Domain, crew: WorkerTable, slabs: Parts) -> float:
    others = [parts for parts in possible_parts(domain, crew.size) if parts != slabs]
    return min((with_best_block(domain, crew, parts).seconds for parts in others), default=math.inf)


@pytest.mark.parametrize("seed", range(20))
def test_a_prediction_is_that_of_all_slabs_for_any_cut_and_block(seed: int) -> None:
    domain, workers = random_case(seed)
    crew = WorkerTable.of(workers)
    for parts in possible_parts(domain, crew.size):
        for block in {1, 2, longest_block(domain, parts)}:
            expected = seconds_by_slabs(domain, workers, parts, block)
            assert seconds_per_step(
                cut_into(domain, crew, parts, block), crew, block
            ) == pytest.approx(expected)


@pytest.mark.parametrize("link", [Link(4e-4, 1 / 4.5e11), Link(5e-6, 1e-10), Link(1e-4, 1e-9)])
@pytest.mark.parametrize(
    "shape", [(32768, 32768), (1024, 1024), (2048, 1024, 1024), (256, 256, 256)]
)
def test_two_ranks_have_slabs_on_any_grid_that_is_no_longer_along_other_axes(
    shape: tuple[int, ...], link: Link
) -> None:
    for speed in (1e9, 5e11):
        found, other = fastest_grid(
            domain_of(shape, periodic=True), WorkerTable.of(ranks_of([speed] * 2, link))
        )
        assert is_slabs(found.parts)
        assert other is not None
        assert other.parts[:2] == (1, 2)


def test_slabs_stay_where_messages_are_cheap_and_not_where_they_are_dear() -> None:
    """Pieces of a cube for 64 workers have less than a fifth of the surface of its slabs."""
    cube = domain_of((2048, 2048, 2048), periodic=True)
    cheap, _ = fastest_grid(cube, WorkerTable.of(ranks_of([1e9] * 64, Link(5e-6, 1e-11))))
    dear, slabs = fastest_grid(cube, WorkerTable.of(ranks_of([5e11] * 64, Link(4e-4, 6e-11))))
    assert cheap.parts == (64, 1, 1)
    assert dear.parts == (4, 4, 4)
    assert slabs is not None
    assert slabs.parts == (64, 1, 1)
    assert dear.seconds < 0.5 * slabs.seconds


def test_of_cuts_along_three_axes_those_with_the_least_surface_are_tried() -> None:
    domain = domain_of((5040, 5040, 5040))
    tried = possible_parts(domain, 5040)
    three = [parts for parts in tried if parts[2] > 1]
    assert len(tried) - len(three) == 60  # all along two: as many as 5040 has divisors
    least = min(surface(domain, parts) for parts in factorizations(5040, 3))
    assert len(three) == 16
    assert min(surface(domain, parts) for parts in three) == least


def test_of_equals_the_one_that_sends_least_to_other_computers_is_taken() -> None:
    """4096 x 2048 x 2048 in 8 x 2 or 4 x 4 pieces: equally large, but of one of them the larger
    sides are near.
    """
    domain = domain_of((4096, 2048, 2048), periodic=True)
    link, computers = Link(4e-4, 6e-11), [rank // 8 for rank in range(16)]
    by_parts = {
        parts: with_best_block(domain, WorkerTable.of(ranks_of([5e11] * 16, link)), parts)
        for parts in possible_parts(domain, 16)
    }
    assert by_parts[8, 2, 1].seconds == pytest.approx(by_parts[4, 4, 1].seconds, rel=0.01)
    assert fastest_grid(domain, WorkerTable.of(ranks_of([5e11] * 16, link)), computers=computers)[
        0
    ].parts == (4, 4, 1)
    crossed = [
        k % 2 for k in range(16)
    ]  # neighbours along y are in different computers, those along z are not
    assert fastest_grid(domain, WorkerTable.of(ranks_of([5e11] * 16, link)), computers=crossed)[
        0
    ].parts == (8, 2, 1)


def test_blocks_are_made_of_what_a_method_makes_at_a_time() -> None:
    domain = domain_of((4096, 4096))
    for steps in (5, 7, 16):
        crew = WorkerTable.of(ranks_of([1e11] * 8, Link(1e-4, 1e-10), [steps] * 8, [True] * 8))
        assert fastest_grid(domain, crew)[0].time_block % steps == 0


def test_a_block_for_which_messages_alone_ask_is_no_shorter_than_methods_like_it() -> None:
    """Slabs of 128 planes, messages for nothing: halos for 16 steps are 6 % more work, single steps
    take far longer.
    """
    domain = domain_of((256, 256, 256))
    for steps in (8, 16):
        found, _ = fastest_grid(
            domain, WorkerTable.of(ranks_of([1.4e9] * 2, Link(0.0, 1e-9), [steps] * 2))
        )
        assert steps <= found.time_block <= 2 * steps


def test_a_block_that_is_asked_for_decides_where_not_every_cut_has_room() -> None:
    domain = domain_of((64, 200))
    crew = WorkerTable.of(ranks_of([1e9] * 8, Link(1e-6, 1e-10)))
    assert [fastest_grid(domain, crew, block)[0].time_block for block in (2, 16, 25, 32, 100)] == [
        2,
        16,
        25,
        32,
        32,
    ]
    assert fastest_grid(domain, crew, 16)[0].parts[0] <= 4
    assert fastest_grid(domain, crew, 32)[0].parts == (2, 4)
    assert fastest_grid(domain, crew, 32, slabs_only=True)[0].parts == (2, 4)  # slabs have 8 planes
    assert fastest_grid(domain, crew, slabs_only=True)[0].parts == (8, 1)


def test_choices_are_said() -> None:
    slabs, grid = ProcessGrid((4, 1), 8, 1.0), ProcessGrid((2, 2), 12, 0.5)
    assert describe_choice(slabs, None) == ""
    assert describe_choice(grid, None) == "slabs would be too thin for their halos"
    assert describe_choice(grid, slabs) == "slabs are predicted to take 2 times as long"
    close = dataclasses.replace(grid, seconds=0.97)
    assert describe_choice(slabs, close).endswith(
        "predicted to take 0.97 times as long, too little of a difference"
    )
