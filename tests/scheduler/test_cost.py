"""One cost for all plans: what it says of cuts, and how it compares with the three models before it.

`predictions.json` has what those said, and what they decided, in 601 situations. They were recorded
by the last commit that had them (95718d9), which could be asked again.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim.scheduler.facts.shares import Capacity, Domain, Link, WorkEstimate
from tetris_sim.scheduler.plan.cost import Decomposition, WorkerTable, forecast, seconds_per_step
from tetris_sim.scheduler.plan.partition import Lane, choose_streaming, has_whole_rows
from tetris_sim.scheduler.plan.search import cut_into, divide, fastest_grid, predict

RECORDED: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("predictions.json").read_text()
)
KINDS = ("one device", "CPU and GPU", "several GPUs", "streamed", "CPU teams", "ranks")
SAME = 1e-9  # of a time: the order in which floats are added


def capacity(row: list[Any], rate: float | None = None) -> Capacity:
    name, speed, start, latency, per_byte, room, depth, fixed, one_way = row
    link = Link(latency, per_byte)
    return Capacity(name, rate or speed, start, link, room, depth, fixed, one_way)


def domain_of(case: dict[str, Any]) -> Domain:
    said = case["domain"]
    shape, radii, periodic = (tuple(said[key]) for key in ("shape", "radii", "periodic"))
    return Domain(shape, radii, periodic, said["n_fields"], said["itemsize"])


def work_of(domain: Domain) -> WorkEstimate:
    points = domain.n_values // domain.shape[0]
    n_bytes = round(points * domain.itemsize)
    return WorkEstimate(domain.shape[0], points, n_bytes, domain.radii[0], domain.periodic[0])


def ranks_of(case: dict[str, Any]) -> list[Capacity]:
    said = case["workers"]
    rates = said["rates"] * (said["count"] // len(said["rates"]))
    return [capacity(said["each"], rate) for rate in rates]


def cases(kind: str) -> list[dict[str, Any]]:
    return [case for case in RECORDED if case["kind"] == kind]


def shortened(workers: list[Capacity], block: int) -> bool:
    """Whether a CPU method makes fewer steps at a time than it likes: only ranks knew the cost."""
    return any(not worker.fixed and worker.depth > block for worker in workers)


def test_enough_was_recorded() -> None:
    assert len(RECORDED) >= 500
    assert {case["kind"] for case in RECORDED} == set(KINDS)
    assert {case["workers"]["count"] for case in cases("ranks")} >= {2, 64, 4096}
    assert {len(case["domain"]["shape"]) for case in RECORDED} == {1, 2, 3}


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_divisions_cost_what_they_did_unless_methods_are_cut_short(kind: str) -> None:
    longer = []
    for case in cases(kind):
        old, work = case["old"], work_of(domain_of(case))
        workers = [capacity(row) for row in case["workers"]]
        members = [k for k, planes in enumerate(old["planes"]) if planes]
        chosen, planes = [workers[k] for k in members], [old["planes"][k] for k in members]
        block = old["time_block"]
        ratio = predict(work, chosen, planes, block).seconds_per_step / old["seconds"]

        if not shortened(chosen, block):
            assert ratio == pytest.approx(1, rel=SAME)
            continue
        longer.append(ratio)
        most = max(worker.depth / block for worker in chosen if not worker.fixed)
        assert 1 - SAME <= ratio <= most ** (1 / 3) * (1 + SAME)
        # Without that, nothing is left of the difference.
        free = [
            worker if worker.fixed else dataclasses.replace(worker, depth=1) for worker in chosen
        ]
        seconds = predict(work, free, planes, block).seconds_per_step
        assert seconds == pytest.approx(old["seconds"], rel=SAME)
    assert bool(longer) == (kind in ("CPU and GPU", "CPU teams"))


@pytest.mark.parametrize("kind", KINDS[:4])
def test_divisions_are_what_they_were_or_better(kind: str) -> None:
    for case in cases(kind)[::2]:  # all of them take ten seconds
        old, asked, work = case["old"], case["asked"], work_of(domain_of(case))
        workers = [capacity(row) for row in case["workers"]]
        most, block, shares = asked["most"], asked["time_block"], asked["shares"]
        division = divide(work, workers, most=most, time_block=block, shares=shares)
        if not shortened(workers, old["time_block"]):
            assert list(division.planes) == old["planes"]
            assert division.time_block == old["time_block"]
            continue

        members = [k for k, planes in enumerate(old["planes"]) if planes]
        chosen = [workers[k] for k in members]
        before = predict(work, chosen, [old["planes"][k] for k in members], old["time_block"])
        assert division.seconds_per_step <= before.seconds_per_step * (1 + SAME)


def test_ranks_cost_and_decide_what_they_did_or_cut_rows_and_are_faster() -> None:
    cut_rows = 0
    for number, case in enumerate(cases("ranks")):
        old, domain, workers = case["old"], domain_of(case), ranks_of(case)
        crew, parts, block = WorkerTable.of(workers), tuple(old["parts"]), old["time_block"]
        seconds = seconds_per_step(cut_into(domain, crew, parts, block), crew, block)
        assert seconds == pytest.approx(old["seconds"], rel=SAME)

        if number % 3:
            continue  # all of them take ten seconds
        computers = [rank // 8 for rank in range(len(workers))]
        grid, other = fastest_grid(domain, crew, case["asked"]["time_block"], computers=computers)
        if not has_whole_rows(grid.parts):
            assert grid.seconds < 0.95 * old["seconds"]
            cut_rows += 1
            continue
        assert (grid.parts, grid.time_block) == (parts, block)
        if other is not None and not has_whole_rows(other.parts):
            continue
        assert (other is None) == (old["other"] is None)
        if other is not None:
            assert other.seconds == pytest.approx(old["other"]["seconds"], rel=SAME)
    assert cut_rows > 0


def test_what_is_streamed_is_streamed_as_it_was() -> None:
    for case in cases("streamed")[::8]:
        said = case["lane"]
        lane = Lane(*(said[key] for key in ("rate", "depth", "bring", "take", "room", "start")))
        work, block = work_of(domain_of(case)), said["block"]
        streaming = choose_streaming(work, lane, most_steps=block, block_steps=block)
        assert streaming is not None
        assert dataclasses.asdict(streaming) == pytest.approx(case["streaming"])


def test_thousands_of_ranks_are_planned_in_about_a_second() -> None:
    worker = Capacity("", 5e11, 2e-5, Link(5e-5, 1e-10), depth=8, one_way=True)
    cube = Domain((8192,) * 3, (1,) * 3, (True,) * 3, 1, 8)
    begin = time.process_time()
    grid, _ = fastest_grid(
        cube, WorkerTable.of([worker] * 4096), computers=[k // 8 for k in range(4096)]
    )
    assert time.process_time() - begin < 2
    assert grid.parts == (16, 16, 16)


PLATE = WorkEstimate(1000, 1000, 8000, 1)


def pair(overlapped: float, link: Link) -> list[Capacity]:
    return [Capacity(name, 1e9, 1e-5, link, overlapped=overlapped) for name in ("a", "b")]


def test_an_exchange_beside_the_interior_costs_what_the_interior_does_not_hide() -> None:
    block, planes = 10, (500, 500)
    busy = 1e-5 + block * (500 + 4.5) * 1000 / 1e9
    interior = block * (500 - block) * 1000 / 1e9
    for latency in (1e-4, 2e-3, 1e-2):
        link = Link(latency, 0.0)
        exchange = 2 * latency  # one message given, one taken
        for share in (0.0, 0.5, 1.0):
            hidden = min(share * exchange, interior)
            division = predict(PLATE, pair(share, link), planes, block)
            assert division.block_seconds == pytest.approx(busy + exchange - hidden)
    # All of it beside the interior: exposed is what is longer.
    slow = predict(PLATE, pair(1.0, Link(1e-2, 0.0)), planes, block)
    assert slow.block_seconds - busy == pytest.approx(max(0.0, 2e-2 - interior))
    quick = predict(PLATE, pair(1.0, Link(1e-4, 0.0)), planes, block)
    assert quick.exchange_seconds == pytest.approx(0.0)


def test_slabs_that_are_all_halo_hide_nothing() -> None:
    thin = WorkEstimate(20, 1000, 8000, 1)
    link = Link(1e-3, 0.0)
    beside = predict(thin, pair(1.0, link), (10, 10), 10)
    assert beside.block_seconds == predict(thin, pair(0.0, link), (10, 10), 10).block_seconds


def test_links_are_those_of_each_worker_and_ranks_pay_once() -> None:
    near, far = Capacity("a", 1e9, 0.0, Link(1e-4, 0)), Capacity("b", 1e9, 0.0, Link(3e-4, 0))
    cut = Decomposition.into(PLATE.domain, ((500, 500), (1000,)))
    times = forecast(cut, WorkerTable.of([near, far]), 1)
    np.testing.assert_allclose(times.giving, (1e-4, 3e-4))
    np.testing.assert_allclose(times.taking, (1e-4, 3e-4))
    assert times.seconds == pytest.approx(5e-4 + 3e-4 + 3e-4)
    once = [dataclasses.replace(worker, one_way=True) for worker in (near, far)]
    assert forecast(cut, WorkerTable.of(once), 1).seconds == pytest.approx(5e-4 + 3e-4)
