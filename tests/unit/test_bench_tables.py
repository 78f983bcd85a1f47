"""What a result looks like: every table comes from what was measured, with the figures that are in
it, and a file gives the result back.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.samples import main_result, result, row, timing
from tetris_sim.bench.result import BenchCase, MachineLimits, read_result
from tetris_sim.bench.tables import as_markdown, as_text, tables
from tetris_sim.scheduler.machine.machine import Gpu

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


def results() -> list[Any]:
    """Every result of `bench` beside the pages; a file holds one, or several below `runs`."""
    files = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")
    }
    return [
        pytest.param(found, id=f"{name} {run}".strip())
        for name, content in sorted(files.items())
        for run, found in content.get("runs", {"": content}).items()
        if {"kernels", "gpu_kernels", "devices"} & set(found)
    ]


def test_the_main_table_shows_rates_ratios_and_shares() -> None:
    lines = as_markdown(main_result()).splitlines()
    assert lines[0] == (
        "Some CPU, 2 threads, 2026-11-01, commit abc, python 3.11.1, numpy 2.0.0, numba 0.61.0, "
        "llvmlite 0.44.0."
    )
    assert (
        "| heat-2d | 40 x 30 | float64 | cpu.plain |  | 1.6 | 0.8..3.2 | 1.07 | 8.0% | 80.0% | "
        "75.0% | 83.3% |" in lines
    )
    tiled = (
        "| heat-2d | 40 x 30 | float64 | cpu.tessellate | tile 64, steps_per_block 8 | 12 | 6..24 "
        "| 8.00 | 60.0% |"
    )
    assert f"{tiled}  | 75.0% | 83.3% |" in lines
    assert "| heat-2d | float64 | memory | 20 | 2 |" in lines
    assert "| heat-2d | cpu.plain | 1.6 | 1.6 | 1.00 |" in lines
    assert "| multiply-adds, float64, all threads | 1e9/s | 100 | 90 |" in lines
    assert lines[-1] == "cpu.tessellate not for heat-2d: the grid is too narrow."


def test_what_a_method_refuses_for_one_reason_is_said_once() -> None:
    found = main_result()
    case = next(case for case in found.kernels if case.refusals)
    cases = (
        case,
        dataclasses.replace(case, dtype="float64"),
        dataclasses.replace(case, stencil="box-2d9p"),
        dataclasses.replace(case, stencil="heat-3d", refusals={"cpu.plain": "no"}),
    )
    lines = as_markdown(dataclasses.replace(found, kernels=cases)).splitlines()
    assert [line for line in lines if " not for " in line] == [
        "cpu.tessellate not for heat-2d and box-2d9p: the grid is too narrow.",
        "cpu.plain not for heat-3d: no.",
    ]


def test_columns_are_aligned_in_the_terminal() -> None:
    heading, header, *lines = as_text(main_result()).split("\n\n")[2].splitlines()
    assert heading == "Steady state, and end to end as a share of it:"
    end = header.index("GStencil/s") + len("GStencil/s")
    assert [line[:end].split()[-1] for line in lines] == [
        "1",
        "1.5",
        "1.6",
        "12",
        "1",
        "1.5",
        "1.6",
    ]
    assert all(line[end : end + 2] == "  " for line in lines)


def test_a_result_reads_the_same_from_its_file_in_the_terminal_and_on_a_page() -> None:
    found = main_result()
    again = read_result(json.loads(json.dumps(found.as_json())))
    assert again == found
    assert as_text(again) == as_text(found)
    assert as_markdown(again) == as_markdown(found)
    cells = {
        cell for table in tables(found) for line in (table.header, *table.rows) for cell in line
    }
    for text in (as_text(found), as_markdown(found)):
        assert all(cell in text for cell in cells)


def test_a_gpu_is_compared_with_the_limits_that_were_measured() -> None:
    case = BenchCase(
        "heat-2d",
        "float16",
        (30, 40),
        5,
        (row("gpu.plain", 2e9, parameters={"n": 3}),),
        weights="equal",
    )
    gpu = Gpu(0, "A GPU", "sm_90", 8 << 30, 50 << 20, "13.0")
    only_copy = MachineLimits(copy=timing(16e9))
    whole = MachineLimits(copy=timing(16e9), fma={"float32": timing(100e9)}, tensor=timing(1e12))
    for limits, columns in ((only_copy, "0.50"), (whole, "10.0% | 0.50")):
        found = result(
            limits={}, gpu=gpu, gpu_limits={"before": limits, "after": limits}, gpu_kernels=(case,)
        )
        assert read_result(json.loads(json.dumps(found.as_json()))) == found
        text = as_markdown(found)
        assert text.startswith("A GPU (sm_90, CUDA 13.0), 2026-11-01, commit abc, ")
        assert (
            f"| heat-2d | equal | 40 x 30 | float16 | gpu.plain | n 3 | 2 | 1..4 | {columns} |"
            in text
        )
        assert ("tensor cores" in text) == (limits is whole)


@pytest.mark.parametrize("data", results())
def test_what_was_measured_before_can_still_be_read(data: dict[str, Any]) -> None:
    """And is written as it was, without what follows from it."""
    found = read_result(data)
    assert found.kernels or found.gpu_kernels or found.devices
    for name, value in json.loads(json.dumps(found.as_json())).items():
        assert same(value, data[name])


def same(now: Any, before: Any) -> bool:
    """Whether nothing is another value; what is new is empty, what is gone is not looked for."""
    if isinstance(now, dict):
        return all(
            same(value, before[key]) if key in before else value in (None, [], {}, "random")
            for key, value in now.items()
        )
    if isinstance(now, list):
        return len(now) == len(before) and all(map(same, now, before))
    return bool(now == before)
