"""What studies of the CPU look like: every table and picture comes from their plain data, with the
figures that are in it.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.cpu_breakdown import compare_steps
from benchmarks.cpu_sweeps import explain
from benchmarks.pictures import COLOURS, draw_all, save
from benchmarks.samples import LIMITS, kernel, limits, main_result, result, row, study
from benchmarks.study_tables import as_markdown, as_text, study_tables
from tetris_sim import cpu_kernels, gpu_kernels
from tetris_sim.bench.timing import random_problem

NAMES = {"prange indexed": 1e9, "cpu.plain": 2e9, "cpu.another": 4e9}
ROOT = Path(__file__).resolve().parents[2]


def whole_result() -> dict[str, Any]:
    return main_result().as_json()


def breakdown_result() -> dict[str, Any]:
    rows = (
        row("plain", 2e9),
        row("+ tessellate tiling", 6e9),
        row("+ streaming", 9e9, parameters={"strip": 512}),
    )
    steps = [dataclasses.asdict(measured) for measured in rows]
    header = {"stencil": "star-1d5p", "n_terms": 5, "shape": [1000], "dtype": "float64"}
    missing = {"+ skewed swizzling": "there is no method cpu.tessellate"}
    return study(breakdown=[compare_steps({**header, "steps": steps, "missing": missing}, LIMITS)])


def sweep_result() -> dict[str, Any]:
    sizes, counts = [], []
    for n in (20, 60, 300):
        problem = random_problem("heat-2d", (n, n), "float64")
        rows = [explain(row(name, rate), problem, LIMITS["before"]) for name, rate in NAMES.items()]
        sizes.append({"shape": [n, n], "bytes": problem.state_bytes, "rows": rows})
    for threads in (1, 2):
        here = limits(50e9 * threads, 16e9 * threads)
        rows = [explain(row(name, rate * threads), problem, here) for name, rate in NAMES.items()]
        counts.append({"threads": threads, "rows": rows})
    header = {"stencil": "heat-2d", "dtype": "float64"}
    return study(
        sizes=[{**header, "points": sizes}],
        threads_sweep=[{**header, "shape": [300, 300], "points": counts}],
    )


RESULTS = {"main": whole_result, "breakdown": breakdown_result, "sweep": sweep_result}


def test_the_breakdown_shows_each_step_over_plain_and_over_the_one_above() -> None:
    lines = as_markdown(breakdown_result()).splitlines()
    assert "| star-1d5p | 1000 | float64 | plain |  | 2 | 1.00 | 1.00 | 10.0% |" in lines
    assert (
        "| star-1d5p | 1000 | float64 | + streaming | strip 512 | 9 | 4.50 | 1.50 | 45.0% |"
        in lines
    )
    assert lines[-1] == '"+ skewed swizzling" not for star-1d5p: there is no method cpu.tessellate.'


def test_the_sweeps_show_the_parts_of_the_model_beside_the_measurement() -> None:
    lines = as_markdown(sweep_result()).splitlines()
    # 8 bytes there and back at 240 GB/s in the first cache, 4 more loads at 480 GB/s; 120 GB/s in
    # the second.
    near = "| heat-2d | float64 | 20 x 20 | cpu.plain | 0 | 2 | 0.500 | 0.133 | 0.133 | 0.050 |"
    far = (
        "| heat-2d | float64 | 60 x 60 | cpu.plain | 0 | 2 | 0.500 | 0.200 | 0.067 + 0.133 | "
        "0.050 |"
    )
    assert near in lines
    assert far in lines
    assert any(
        line.startswith("| heat-2d | float64 | 300 x 300 | cpu.plain | 2 | 4 | 0.250 |")
        for line in lines
    )


@pytest.mark.parametrize("name", ["main", "sweep"])
def test_pictures_are_drawn_from_the_file_and_are_the_same_each_time(
    name: str, tmp_path: Path
) -> None:
    found = RESULTS[name]()
    for kind, figure in draw_all(json.loads(json.dumps(found))).items():
        save(figure, tmp_path / f"{kind}.svg")
    for kind, figure in draw_all(copy.deepcopy(found)).items():
        save(figure, tmp_path / f"{kind}-again.svg")
        assert (tmp_path / f"{kind}-again.svg").read_bytes() == (
            tmp_path / f"{kind}.svg"
        ).read_bytes()
    assert len(list(tmp_path.iterdir())) == {"main": 2, "sweep": 4}[name]


def lines_of(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """The points of every line in the first panel, by its label."""
    return {
        str(line.get_label()): [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]
        for line in figure.axes[0].lines
    }


def test_the_pictures_show_the_measured_values() -> None:
    sizes = lines_of(draw_all(sweep_result())["sizes"])
    assert sizes["cpu.plain"] == [(n * n * 8 / 2**20, 0.5) for n in (20, 60, 300)]
    assert [ns for _, ns in sizes["T_d of one sweep"][:2]] == pytest.approx([2 / 15, 0.2])
    assert lines_of(draw_all(sweep_result())["threads"])["cpu.another"] == [(1.0, 4.0), (2.0, 8.0)]
    bars = draw_all(whole_result())["comparison"].axes[0].patches
    assert [bar.get_height() for bar in bars] == [1.0, 1.5, 1.6, 12.0]  # type: ignore[attr-defined]


def test_a_breakdown_has_no_picture() -> None:
    assert draw_all(breakdown_result()) == {}


def test_pictures_are_drawn_where_the_page_shows_them(tmp_path: Path) -> None:
    maker = runpy.run_path(str(ROOT / "docs" / "make_benchmark_pages.py"))
    (tmp_path / "a.json").write_text(
        json.dumps(result(kernels=(kernel([row("prange slices", 2e9)]),)).as_json())
    )
    tables = maker["filled"]("<!-- tables: a.json -->\n<!-- end of tables -->\n", tmp_path)
    assert "| heat-2d | 40 x 30 | float64 | prange slices |  | 2 | 1..4 |" in tables
    assert maker["write_pictures"](tables, tmp_path) == []
    shown = f"{tables}\n![rates](a-comparison.svg)\n"
    assert maker["write_pictures"](shown, tmp_path) == [tmp_path / "a-comparison.svg"]
    assert (tmp_path / "a-comparison.svg").exists()


def test_every_method_has_a_colour_of_its_own() -> None:
    for methods in (cpu_kernels.METHODS, gpu_kernels.METHODS):
        colours = [COLOURS[method.name] for method in methods]
        assert len(set(colours)) == len(colours)


@pytest.mark.parametrize("name", RESULTS)
def test_a_study_reads_the_same_from_its_file_in_the_terminal_and_on_a_page(name: str) -> None:
    found = RESULTS[name]()
    again = json.loads(json.dumps(found))
    assert as_text(again) == as_text(found)
    assert as_markdown(again) == as_markdown(found)
    cells = {
        cell
        for table in study_tables(found)
        for line in (table.header, *table.rows)
        for cell in line
    }
    for text in (as_text(found), as_markdown(found)):
        assert all(cell in text for cell in cells)
