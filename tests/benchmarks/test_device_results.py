"""Results of `bench devices`: claims are judged by the right rows, and the picture shows what is in
the file.
"""

from __future__ import annotations

import dataclasses
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.device_goals import goals_table, measurements, one_gpu
from benchmarks.device_pictures import cpu_share
from benchmarks.pictures import draw_all
from benchmarks.samples import result, timing
from tetris_sim.bench.result import SetCase, SetRow, SetShare
from tetris_sim.bench.tables import as_markdown
from tetris_sim.scheduler.workers.worker import WorkerRow

ROOT = Path(__file__).resolve().parents[2]


def share(worker: str, points: int, *, rank: int = 0, streamed: bool = False) -> SetShare:
    return SetShare(worker, points, rank, streamed={"steps": 8} if streamed else None)


def measured_set(devices: str, rate: float, shares: list[SetShare], **changes: Any) -> SetRow:
    idle = [0.1 * (k + 1) for k in range(len(shares))] if len(shares) > 1 else []
    row = SetRow(
        devices,
        timing(rate),
        tuple(shares),
        forced=False,
        predicted=0.8 * rate,
        time_block=16,
        exchange_share=0.01,
        rows=tuple(WorkerRow("cpu:0", "cpu.plain", 0.5, rate, 0.0, 1.0, part) for part in idle),
    )
    return dataclasses.replace(row, **changes)


def case(sets: list[SetRow], shape: tuple[int, ...] = (100, 80), **changes: Any) -> SetCase:
    return dataclasses.replace(SetCase("heat-2d", "float64", shape, tuple(sets)), **changes)


def with_cpu(threads: int) -> SetCase:
    """A CPU that is 10 GStencil/s a thread, a GPU with 1000, and both as planned and by speed."""
    gpu, cpu = share("gpu:0", 8000), share("cpu:0", 8000)
    why = "cpu:0 gets nothing: it is slow."
    both = [share("gpu:0", 7900), share("cpu:0", 100 * threads)]
    sets = [
        measured_set("gpu", 1000e9, [gpu]),
        measured_set("cpu", 10e9 * threads, [cpu]),
        measured_set("cpu+gpu", 990e9, [gpu], of_sum=0.98, reasons=("Two devices.", why)),
        measured_set("cpu+gpu", 300e9, both, forced=True, of_sum=0.3),
    ]
    return case(sets, threads=threads)


def two_gpus(ranks: int, rate: float, shape: tuple[int, ...], **changes: Any) -> SetCase:
    half = shape[0] * shape[1] // 2
    shares = [share("gpu:0", half), share("gpu:1", half, rank=ranks - 1)]
    return case([measured_set("gpu:0+gpu:1", rate, shares, **changes)], shape, ranks=ranks)


def lines_of(*cases: SetCase) -> dict[str, list[str]]:
    return {
        row[0]: list(row[1:])
        for row in goals_table([result(devices=(measured,)) for measured in cases]).rows
    }


def test_cpu_and_gpu_are_judged_by_what_was_planned_and_not_by_what_was_forced() -> None:
    lines = lines_of(with_cpu(1), with_cpu(2))
    assert lines["heat-2d, 80 x 100: CPU and GPU, of the sum of both"] == ["0.97", "0.980", "yes"]
    assert lines["heat-2d, 80 x 100: the same with shares by speed alone"] == ["", "0.300", ""]
    assert lines["heat-2d, 80 x 100: what the plan chose, of the best that was measured"] == [
        "0.97",
        "0.990",
        "yes",
    ]
    assert lines["CPU threads: predicted rate over the measured one"] == ["", "0.800", ""]


def test_a_streamed_grid_is_compared_with_the_same_grid_in_gpu_memory() -> None:
    streamed = case([measured_set("gpu", 400e9, [share("gpu:0", 8000, streamed=True)])])
    assert not [line for line in lines_of(streamed) if "streamed" in line]
    lines = lines_of(streamed, with_cpu(1))
    assert lines["heat-2d, 80 x 100: streamed from host memory, of the rate in GPU memory"] == [
        "0.5",
        "0.400",
        "no",
    ]


def test_gpus_are_compared_with_one_on_the_same_grid_or_on_its_part_of_it() -> None:
    whole, half = (
        case([measured_set("gpu", rate, [share("gpu:0", n)])])
        for rate, n in ((1000e9, 8000), (800e9, 4000))
    )
    two = two_gpus(2, 1600e9, (100, 80), exchange_share=0.05)
    every = measurements([result(devices=(whole, half, two))])
    assert [found.rate if (found := one_gpu(every, m)) else None for m in every] == [
        1000e9,
        800e9,
        1000e9,
    ]
    times, exchange = "heat-2d, 80 x 100, 2 GPUs, 2 ranks: times one GPU", "time in the exchange"
    assert lines_of(whole, half, two)[times] == ["1.9", "1.600", "no"]
    assert lines_of(half, two)[times] == ["1.9", "2.000", "yes"]
    assert lines_of(two)[f"heat-2d, 80 x 100, 2 GPUs, 2 ranks: {exchange}"] == [
        "less than 3%",
        "5.0%",
        "no",
    ]
    assert (
        lines_of(two_gpus(1, 1.0, (100, 80)))[
            f"heat-2d, 80 x 100, 2 GPUs, one process: {exchange}"
        ][2]
        == "yes"
    )


def test_tables_say_who_was_left_out_and_who_was_idle() -> None:
    text = as_markdown(result(devices=(with_cpu(4),)))
    assert "heat-2d on cpu+gpu, 4 threads: cpu:0 gets nothing: it is slow." in text
    assert "Two devices." not in text
    assert any(line.endswith("| 30.0% | 16 | 1.0% | 20.0% |") for line in text.splitlines())


def test_the_picture_shows_rates_and_the_share_of_the_cpu() -> None:
    cases = [with_cpu(threads) for threads in (1, 2, 4)]
    bars, rates, shares = draw_all(result(devices=tuple(cases)).as_json())["shares"].axes
    assert [bar.get_height() for bar in bars.patches] == [1000.0, 40.0, 990.0, 300.0]  # type: ignore[attr-defined]
    lines = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in rates.lines}
    assert lines["cpu"] == [[1, 10], [2, 20], [4, 40]]
    assert set(lines) == {"gpu", "cpu", "cpu+gpu, as planned", "cpu+gpu, shares by speed"}
    of_cpu = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in shares.lines}
    by_speed = [100 * cpu_share(measured.sets[3]) for measured in cases]
    assert of_cpu == {
        "cpu+gpu, as planned": [0.0, 0.0, 0.0],
        "cpu+gpu, shares by speed": pytest.approx(by_speed),
    }
    assert draw_all(result(devices=tuple(cases[:1])).as_json()) == {}


def test_a_page_says_what_was_reached_by_all_of_its_files(tmp_path: Path) -> None:
    for name, found in (
        ("a", case([measured_set("gpu", 5e9, [share("gpu:0", 8000)])])),
        ("b", two_gpus(1, 9e9, (100, 80))),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(result(devices=(found,)).as_json()))
    blocks = [f"<!-- tables: {name}.json -->\n<!-- end of tables -->\n" for name in "ab"]
    page = "\n".join(["<!-- goals -->\nold\n<!-- end of goals -->\n", *blocks])
    filled = runpy.run_path(str(ROOT / "docs" / "make_benchmark_pages.py"))["filled"]
    made = filled(page, tmp_path)
    assert "| heat-2d, 80 x 100, 2 GPUs, one process: times one GPU | 1.9 | 1.800 | no |" in made
    assert "old" not in made
    assert filled(made, tmp_path) == made
