"""The scaling model is the scheduler's, where the scheduler has one, and reads its latencies out of
measurements.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from benchmarks.samples import result
from benchmarks.scaling import (
    Cluster,
    far_neighbours,
    inner_points,
    largest_piece,
    on_grid,
    planned_parts,
    predict,
    predict_best,
    predict_planned,
)
from benchmarks.scaling_inputs import (
    HOP,
    NETWORK,
    NVLINK,
    Inputs,
    measured_exchange,
    predict_measured,
    read_inputs,
    small_problem,
)
from benchmarks.scaling_tables import (
    CUBE,
    GPUS,
    LONG,
    STRONG,
    TODAY,
    predict_all,
    scaling_tables,
    shape_of,
)
from tetris_sim.bench.result import SetCase, SetRow, SetShare, Timing
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Capacity, Draft, Link, Plan, Share, WorkEstimate
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.ranks import combine, offers_of
from tetris_sim.scheduler.plan.search import predict as predict_division

RATE = 1e12
LINK = Link(2e-4, 6e-11)
ALIKE = Cluster({1: RATE, 1 << 40: RATE}, 1, LINK, LINK, 0.0)
"""Every message takes the same way, steps can be made one by one, and pieces of any size are as
fast: as in a plan.
"""
_SURE = 0.05  # what predictions must save before slabs are left
_OF_A_PLAN, _OF_A_QUEUE = 2e-5, 5e-5  # seconds of starting a block, in ranks.py and here


def planned(
    stencil: str, shape: tuple[int, ...], ranks: int, time_block: int | None = None
) -> Plan:
    """The scheduler's own plan for so many equal ranks."""
    problem = on_grid(small_problem(stencil), shape)
    machine = Machine(
        "alpha", "cpu", 4, "cores in the affinity mask", 8 << 30, "free memory", cores=(0, 1, 2, 3)
    )
    share = Share("cpu:0", Slab.whole(problem.grid), CpuPlainMethod(), {}, 2, RATE, 0)
    plan = Plan((share,), 7, 1.0, 0.0, copy_for_checkpoints=True, reasons=())
    offers = [
        offer
        for rank in range(ranks)
        for offer in offers_of(
            Draft(plan, ()), dataclasses.replace(machine, host=f"h{rank // 8}"), rank
        )
    ]
    return combine(problem, offers, LINK, ComputeSection(time_block=time_block or "auto"))


def cuts(plan: Plan) -> tuple[int, ...]:
    """Pieces of each axis."""
    return tuple(
        len(set(starts))
        for starts in zip(*(share.slab.start for share in plan.shares), strict=True)
    )


@pytest.mark.parametrize(
    ("stencil", "shape", "ranks"),
    [
        ("heat-2d", (4096, 512), 4),
        ("heat-2d", (512, 65536), 8),
        ("heat-3d", (512, 512, 512), 16),
        ("heat-3d", (64, 512, 512), 16),
        ("heat-3d", (96, 512, 512), 32),
        ("heat-3d", (2048, 1024, 1024), 2),
        ("heat-3d", (2048, 1024, 1024), 16),
    ],
)
def test_the_model_is_the_one_that_ranks_are_planned_with(
    stencil: str, shape: tuple[int, ...], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The model is of GPUs, whose halos do not travel beside the computation yet.
    monkeypatch.setattr("tetris_sim.scheduler.plan.ranks._CLEARLY", 0.0)
    problem = on_grid(small_problem(stencil), shape)
    blocks: tuple[int | None, ...] = (None, 5)
    for time_block in blocks:
        plan = planned(stencil, shape, ranks, time_block)
        parts = cuts(plan)
        assert planned_parts(problem, ranks, ALIKE, time_block) == parts
        found = predict(problem, parts, ALIKE, plan.time_block)
        assert found is not None
        seconds = found.seconds_per_step - (_OF_A_QUEUE - _OF_A_PLAN) / plan.time_block
        assert seconds == pytest.approx(plan.seconds_per_step)
        assert found.twice == pytest.approx(plan.redundant)
        best = predict_planned(problem, ranks, ALIKE)
        assert best is not None
        assert (
            best.seconds_per_step <= 1.002 * found.seconds_per_step
        )  # not every number of steps is tried


def test_a_block_computes_as_long_as_in_a_division() -> None:
    problem = on_grid(small_problem("heat-2d"), (4096, 512))
    cluster = dataclasses.replace(ALIKE, depth=16)
    capacities = [Capacity(str(k), RATE, depth=16) for k in range(4)]
    work = WorkEstimate(4096, 512, 8 * 512, 1, periodic=True)
    for block in (16, 24, 48):
        busy = predict_division(work, capacities, [1024] * 4, block).busy[0]
        found = predict(problem, (4, 1), cluster, block)
        assert found is not None
        assert found.seconds_per_step * (1 - found.exchanging) * block == pytest.approx(
            busy + _OF_A_QUEUE
        )


@pytest.mark.parametrize("parts", [(16, 1), (4, 8), (6, 4), (2, 2, 8), (4, 4, 4), (3, 1)])
def test_neighbours_are_far_if_they_are_in_another_computer(parts: tuple[int, ...]) -> None:
    places = list(itertools.product(*map(range, parts)))
    kinds = set()
    for place in places:
        counts = [0] * len(parts)
        for axis, step in itertools.product(range(len(parts)), (-1, 1)):
            there = tuple((n + step * (k == axis)) % parts[k] for k, n in enumerate(place))
            counts[axis] += places.index(there) // 8 != places.index(place) // 8
        kinds.add(tuple(counts))
    assert far_neighbours(parts, 8) == kinds


def test_the_dearest_rank_counts_and_each_message_takes_its_way() -> None:
    near, far = Link(1e-3, 0.0), Link(1.0, 0.0)
    problem = on_grid(small_problem("heat-2d"), (1600, 100))
    for parts, expected in (((8, 1), 2e-3), ((16, 1), 1.001), ((4, 4), 1.003), ((2, 8), 2.002)):
        cluster = Cluster({1: RATE}, 1, near, far, hop=0.0)
        found = predict(problem, parts, cluster, 10)
        assert found is not None
        assert found.exchanging * found.seconds_per_step * 10 == pytest.approx(expected)
    agreeing = predict(
        problem, (16, 1), Cluster({1: RATE}, 1, Link(0.0, 0.0), Link(0.0, 0.0), hop=1.0), 10
    )
    assert agreeing is not None
    assert agreeing.exchanging * agreeing.seconds_per_step * 10 == pytest.approx(
        8.0
    )  # four levels, there and back


def test_speed_depends_on_the_size_of_a_piece_and_is_not_guessed_below_what_was_measured() -> None:
    cluster = dataclasses.replace(ALIKE, rates={100: 1e9, 10000: 3e9})
    assert cluster.rate(99) is None
    assert cluster.rate(1000) == pytest.approx(2e9)
    assert cluster.rate(1 << 40) == 3e9
    problem = on_grid(small_problem("heat-2d"), (64, 64))
    assert predict(problem, (64, 1), cluster, 1) is None
    assert predict_best(problem, 64, cluster) is None


def test_the_fastest_pieces_are_no_slower_and_cubes_where_bytes_alone_count() -> None:
    problem = on_grid(small_problem("heat-3d"), (256, 256, 256))
    bytes_only = dataclasses.replace(ALIKE, far=Link(0.0, 1e-9), near=Link(0.0, 1e-9))
    planned, best, cubes = (
        predict_planned(problem, 64, ALIKE),
        predict_best(problem, 64, ALIKE),
        predict_best(problem, 64, bytes_only),
    )
    assert planned is not None
    assert best is not None
    assert cubes is not None
    assert best.seconds_per_step <= planned.seconds_per_step <= best.seconds_per_step / (1 - _SURE)
    assert cubes.parts == (4, 4, 4)
    assert largest_piece(problem, cubes.parts, 2).shape == (64, 64, 64)


def test_messages_beside_the_inside_cost_what_the_inside_cannot_hide() -> None:
    problem = on_grid(small_problem("heat-2d"), (1600, 100))
    assert inner_points(largest_piece(problem, (8, 1), 10)) == 180 * 100
    inside = 10 * 180 * 100 / RATE
    for seconds, left in ((0.4 * inside, 0.0), (5 * inside, 9 * inside)):
        link = Link(seconds, 0.0)
        cluster = Cluster({1: RATE}, 1, link, link, hop=0.0, beside=True)
        found = predict(problem, (8, 1), cluster, 10)
        assert found is not None
        assert found.exchanging * found.seconds_per_step * 10 == pytest.approx(left)


@pytest.mark.parametrize("study", [LONG, CUBE, STRONG])
@pytest.mark.parametrize("stencil", ["heat-2d", "heat-3d"])
def test_what_is_planned_with_one_link_is_nearly_the_fastest_on_two_kinds_of_links(
    study: str, stencil: str
) -> None:
    """Within a computer messages are far cheaper, which ranks do not measure: it must not cost more
    than slabs may.
    """
    ndim = int(stencil[5])
    rates = {1 << 12: 4e10, 1 << 20: 4e11, 1 << 30: 2e12 if ndim == 2 else 5e11}
    cluster = Cluster(rates, 16 if ndim == 2 else 3, Link(4e-4, 1 / NVLINK), Link(4e-4, 6e-11), HOP)
    for gpus in (2, *GPUS):
        problem = on_grid(small_problem(stencil), shape_of(study, stencil, gpus))
        planned, best = (
            predicted(problem, gpus, cluster) for predicted in (predict_planned, predict_best)
        )
        assert planned is not None
        assert best is not None
        assert planned.seconds_per_step <= best.seconds_per_step / (1 - _SURE), (
            gpus,
            planned.parts,
            best.parts,
        )
        assert planned.parts[0] == gpus or gpus > 2


def measured_results(software: float) -> list[dict[str, Any]]:
    """One and two GPUs that do exactly what the model says, with a certain cost of messages."""
    cases = []
    for stencil, shape, depth in (
        ("heat-2d", (32768, 32768), 16),
        ("heat-3d", (1024, 1024, 1024), 4),
    ):
        points = 1 << 30
        share = SetShare("gpu:0", points, parameters={"steps_per_block": depth})
        half = dataclasses.replace(share, points=points // 2)
        alone = SetRow(
            "gpu",
            Timing(RATE, RATE, RATE),
            (share,),
            forced=False,
            predicted=RATE,
            time_block=48,
            exchange_share=0.0,
        )
        exchange = 2 * (software + 48 * 8 * points / shape[0] / NVLINK)
        block = (
            exchange + _OF_A_QUEUE + 2 * HOP + 48 * points / 2 * (1 + 47 / (shape[0] / 2)) / RATE
        )
        rate = 48 * points / block
        both = dataclasses.replace(
            alone,
            steady=Timing(rate, rate, rate),
            exchange_share=exchange / block,
            shares=tuple(dataclasses.replace(half, worker=f"gpu:{k}", rank=k) for k in range(2)),
        )
        whole = SetCase(stencil, "float64", shape, (alone,))
        part = dataclasses.replace(
            whole,
            shape=(shape[0] // 2, *shape[1:]),
            sets=(dataclasses.replace(alone, shares=(half,)),),
        )
        cases += [(part,), (whole, dataclasses.replace(whole, ranks=2, sets=(both,)))]
        if len(shape) == 2:
            start = (100 + 100 + 2 * 10) * 8 * 32768 / 40e9
            streaming = {"steps": 10, "planes": 100, "start": start}
            piece = dataclasses.replace(share, streamed=streaming)
            streamed = dataclasses.replace(alone, shares=(piece,))
            cases.append((dataclasses.replace(whole, sets=(streamed,)),))
    return [result(devices=devices).as_json() for devices in cases]


def test_latency_and_staging_are_read_out_of_what_was_measured() -> None:
    inputs = read_inputs(measured_results(3e-4))
    assert inputs.software == pytest.approx(3e-4)
    assert inputs.staging == pytest.approx(40e9)
    assert inputs.depths == {"heat-2d": 16, "heat-3d": 4}
    assert inputs.rates["heat-2d"] == {1 << 29: RATE, 1 << 30: RATE}
    assert inputs.today("heat-2d").far == Link(pytest.approx(3e-4 + HOP), 2 / 40e9 + 1 / NETWORK)  # type: ignore[arg-type]
    assert inputs.direct("heat-2d").far.latency < 3e-5
    for pair in inputs.pairs:
        found = predict_measured(pair, inputs)
        assert found is not None
        assert found.points_per_second == pytest.approx(pair.rate)
        assert measured_exchange(pair) > 6e-4


def test_what_was_not_measured_is_asked_for() -> None:
    results = measured_results(3e-4)
    without_stream = [
        r for r in results if not any(s["shares"][0]["streamed"] for s in r["devices"][0]["sets"])
    ]
    assert len(without_stream) == len(results) - 1
    with pytest.raises(ValueError, match="a streamed grid"):
        read_inputs(without_stream)


def test_tables_show_what_is_predicted_and_what_is_not() -> None:
    measured = read_inputs(measured_results(3e-4))
    inputs: Inputs = dataclasses.replace(
        measured, rates={**measured.rates, "heat-3d": {1 << 28: RATE}}
    )
    found = predict_all(inputs)
    tables = scaling_tables(inputs, found)
    today = found[LONG, "heat-2d"][4096][TODAY]
    assert today is not None
    last = next(row for row in tables[LONG].rows if row[:2] == ["heat-2d", "4096"])
    assert last[4:7] == [
        str(today.time_block),
        f"{today.points_per_second / 1e9:.0f}",
        f"{today.efficiency:.1%}",
    ]
    small = next(row for row in tables[STRONG].rows if row[:2] == ["heat-3d", "4096"])
    assert small[3] == "smaller than any that was measured"
    assert small[-2:] == ["", ""]
    assert [row[1] for row in tables["check"].rows] == ["48", "48"]
    assert {row[4] for row in tables["check"].rows} <= {"+0.0%", "-0.0%"}
    assert tables["checkpoints"].rows[-1][1:3] == ["35.2", "12 min"]
    never = next(row for row in tables["limits"].rows if row[:2] == [LONG, "heat-2d"])
    assert never[2:4] == ["never", "never, never"]
