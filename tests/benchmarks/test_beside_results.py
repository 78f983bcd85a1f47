"""What the decision about GPUs that are told ahead says of CPU threads beside them is what was
measured.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import beside
from tetris_sim.bench.timing import random_problem

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "decisions" / "0044-gpus-told-ahead.md").read_text(encoding="utf-8")
ROWS: list[dict[str, Any]] = json.loads(
    (DOCS / "benchmarks" / "beside.json").read_text(encoding="utf-8")
)["rows"]

AHEAD = (DOCS / "decisions" / "0051-cpu-threads-beside-a-gpu.md").read_text(encoding="utf-8")
WHOLE: list[dict[str, Any]] = json.loads(
    (DOCS / "benchmarks" / "beside-ahead.json").read_text(encoding="utf-8")
)["rows"]

PLANNED: list[dict[str, Any]] = json.loads(
    (DOCS / "benchmarks" / "beside-planned.json").read_text(encoding="utf-8")
)["rows"]

EDGES: list[dict[str, Any]] = json.loads(
    (DOCS / "benchmarks" / "beside-edges.json").read_text(encoding="utf-8")
)["rows"]


def test_the_table_of_edges_has_the_figures_of_the_rows() -> None:
    lines = re.findall(r"\| (heat-2d|box-\w+) \| ([a-z ,]+) \| (\d+), (\d+) \|(.*)\|", AHEAD)
    assert len(lines) == 11
    for stencil, copies, block, planes, rest in lines:
        of_it = [row for row in EDGES if row["stencil"] == stencil]
        alone = next(row for row in of_it if row["devices"] == "gpu:0")
        at = (copies, int(block), int(planes))
        row = next(it for it in of_it if (it["copies"], it["block"], it["cpu_planes"]) == at)
        both, times, blocks, told, waits = (cell.strip() for cell in rest.split("|"))
        assert float(both) == row["rate"]
        assert float(times) == round(row["rate"] / alone["rate"], 3)
        took = row["ms"]
        assert blocks == f"{took['cpu_block']:.2f}, {took['gpu_block']:.2f} ms"
        assert told == f"{took['cpu_end_to_gpu_told']:.2f} ms"
        assert waits == f"{took['gpu_waits']:.2f} ms"


def test_a_gpu_waits_for_half_of_what_a_turn_of_planes_takes_longer() -> None:
    sums = re.findall(r"([\d.]+) \+ ([\d.]+) \+ ([\d.]+) \+ ([\d.]+) = ([\d.]+) of ([\d.]+)", AHEAD)
    assert len(sums) == 3
    for *parts, total, gpu in (tuple(map(float, found)) for found in sums):
        assert round(sum(parts), 2) == total
        row = next(
            row
            for row in EDGES
            if row.get("ms", {}).get("gpu_block") == gpu
            and row["ms"]["cpu_block"] == parts[1]
            and row["ms"]["cpu_end_to_gpu_told"] == parts[2]
        )
        radius = 3 if row["stencil"] == "box-2d49p" else 1
        n_bytes = 2 * row["block"] * radius * 8 * row["shape"][1] * (row["shape"] + [1])[2]
        assert abs(n_bytes / 14.2e6 * 0.27 - parts[0]) < 0.006
        assert abs(max(0.0, total - gpu) / 2 - row["ms"]["gpu_waits"]) < 0.05


def test_planes_are_forced_by_speed_and_then_from_the_fewest_on_until_the_gpu_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[float, float]] = []

    def made(self: beside.Study, shares: tuple[float, float], block: int) -> Any:
        asked.append(shares)
        return shares

    def timed(study: beside.Study, plan: Any, how: str) -> beside.Row:
        planes = 100 if how == "planes by speed" else plan[1]
        rate = 200.0 if planes < 20 else 150.0
        return beside.Row(
            *("best", "box-3d27p", (), "", how), *(rate,) * 3, {}, {}, 3, True, 1.0, {}
        )

    monkeypatch.setattr(beside.Study, "forced", made)
    monkeypatch.setattr(beside, "measure", timed)
    problem = random_problem("box-3d27p", (99, 8, 8), "float64", "random", "periodic", steps=1)
    study = beside.Study("best", "box-3d27p", problem, 15, beside.Times(0.1, 1, 0.0))
    alone = beside.Row(*("", "", (), "", ""), *(200.0,) * 3, {}, {}, 3, False, 1.0, {})
    rows = list(beside.forced(study, alone, alone, 10))
    assert [row.how for row in rows] == ["planes by speed", *["planes given"] * 4]
    assert asked == [(200.0, 200.0), (89, 10), (86, 13), (81, 18), (75, 24)]


def test_the_table_of_whole_blocks_has_the_figures_of_the_rows() -> None:
    lines = re.findall(r"\| (heat-2d|box-\w+), [\d^]+ \| `(\S+)` \|(.*)\|", AHEAD)
    assert len(lines) == 5
    for stencil, method, rest in lines:
        alone, at, both, times, busy = (cell.strip() for cell in rest.split("|"))
        of_it = [it for it in WHOLE if (it["stencil"], it["method"]) == (stencil, method)]
        gpu = next(it for it in of_it if it["devices"] == "gpu:0")
        block, planes = map(int, at.split(","))
        row = next(it for it in of_it if (it["block"], it["cpu_planes"]) == (block, planes))
        assert (float(alone), float(both)) == (gpu["rate"], row["rate"])
        assert float(times) == round(row["rate"] / gpu["rate"], 3)
        assert busy == ", ".join(f"{100 * part:.0f}" for part in row["busy"].values()) + " %"


def test_the_text_has_what_both_make_of_the_sum() -> None:
    plain = [it for it in WHOLE if it["method"] == "gpu.plain"]
    cpu, gpu, *both = plain
    total = cpu["rate"] + gpu["rate"]
    found = {(it["block"], it["cpu_planes"]): round(it["rate"] / total, 3) for it in both}
    assert f"{found[32, 1000]} and {found[64, 1150]} with `gpu.plain`" in AHEAD


def test_the_table_of_what_is_planned_has_the_figures_of_the_rows() -> None:
    lines = re.findall(r"\| (`gpu.plain`|held back), (as planned|steps given) \|(.*)\|", AHEAD)
    assert len(lines) == 3
    for gpu_is, how, rest in lines:
        case = "held" if gpu_is == "held back" else "plain"
        of_it = [row for row in PLANNED if row["case"] == case]
        cpu, gpu = (
            next(row for row in of_it if row["devices"] == name) for name in ("cpu:0", "gpu:0")
        )
        alone, at, both, times, of_sum, predicted = (cell.strip() for cell in rest.split("|"))
        assert alone == f"{gpu['rate']}, {cpu['rate']}"
        block, planes = map(int, at.split(","))
        row = next(
            row for row in of_it if (row.get("block"), row.get("cpu_planes")) == (block, planes)
        )
        assert (row["how"] == "planned") == (how == "as planned")
        assert (float(both), float(predicted)) == (row["rate"], row["predicted"])
        assert float(times) == round(row["rate"] / gpu["rate"], 3)
        assert float(of_sum) == round(row["rate"] / (gpu["rate"] + cpu["rate"]), 3)


def test_the_table_has_the_figures_of_the_rows() -> None:
    rows = [row for row in ROWS if row["case"] == "plain"]
    gpu, cpu, planned, *others = rows
    table = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in PAGE.splitlines()
        if re.match(r"\s+\| (GPU|15 threads|both)", line)
    ]
    beside = next(row for row in others if row["block"] == 32 and row["overlapped"])
    before = next(row for row in others if row["block"] == 32 and not row["overlapped"])
    measured = (gpu, cpu, planned, beside, before)
    assert [int(cells[1]) for cells in table] == [row["block"] for row in measured]
    for cells, row in zip(table, measured, strict=True):
        assert float(cells[2]) == round(row["rate"] / 1e9, 0 if row is gpu else 1)
        if row not in (gpu, cpu):
            assert float(cells[3]) == round(row["rate"] / gpu["rate"], 3)
            assert float(cells[4]) == round(row["rate"] / (gpu["rate"] + cpu["rate"]), 3)
            assert cells[5] == f"{100 * row['busy']['gpu:0']:.0f} %"


def test_the_text_has_the_figures_of_a_gpu_that_was_held_back() -> None:
    cpu, gpu, both = (row for row in ROWS if row["case"] == "held")
    rates = " ".join(PAGE.split())
    assert f"{gpu['rate'] / 1e9:.1f} and {cpu['rate'] / 1e9:.1f} make" in rates
    share = both["rate"] / (gpu["rate"] + cpu["rate"])
    assert f"{both['rate'] / 1e9:.1f} together, {share:.2f} of the sum" in rates
    for worker, part in both["busy"].items():
        assert f"{100 * part:.0f} %" in rates, worker
