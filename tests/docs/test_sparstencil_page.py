"""The script of SparStencil's figures knows what it would measure, and makes a page of what it has
measured.
"""

from __future__ import annotations

import dataclasses
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.papers.sparstencil.variants import variant_kernel
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.bench.timing import random_problem
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPT = runpy.run_path(str(FOLDER / "sparstencil.py"))
FORMATS = runpy.run_path(str(FOLDER / "sparstencil_formats.py"))
PAGE = runpy.run_path(str(FOLDER / "sparstencil_page.py"))


def row(case: tuple[str, str, dict[str, int]], rate: float) -> dict[str, Any]:
    name, method, parameters = case
    return {
        "stencil": name,
        "method": method,
        "parameters": parameters,
        "median": rate,
        "low": rate,
        "high": rate,
    }


def test_sparse_and_dense_products_of_as_many_steps_are_compared() -> None:
    (first,) = SCRIPT["first_guess"]("box-2d49p", "gpu.sparse")
    alike = [
        case
        for case in SCRIPT["dense"]("box-2d49p")
        if case[2]["steps_per_block"] == first[2]["steps_per_block"]
    ]
    assert alike
    assert all(case[2]["sparse"] == 0 for case in alike)
    stages = SCRIPT["stages"]("box-2d49p")
    assert [case[1] for case in stages.values()] == ["gpu.plain", *["gpu.sparse"] * 4]
    assert {case[2].get("steps_per_block", 1) for case in list(stages.values())[:-1]} == {1}


def test_a_page_has_every_part_of_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    names = ("heat-1d", "box-2d9p", "heat-3d")
    result = {
        "date": "2026-01-02",
        "commit": "abc",
        "seconds": 0.02,
        "times": 3,
        "compiling_all": 33.0,
        "catalogue": [
            row(case, 2.5e12)
            for name in names
            for case in SCRIPT["first_guess"](name, "gpu.sparse")
        ],
        "dense": [row(case, 2e12) for name in names for case in SCRIPT["dense"](name)],
        "layouts": [
            row(SCRIPT["paper_way"]("box-2d9p", width), 1e11 * width) for width in (2, 4, 8, 16)
        ],
        "sizes": [
            {
                "stencil": "box-2d9p",
                "size": size,
                "steps": 7,
                "sparse": {"median": 3e11},
                "dense": {"failed": "no"},
            }
            for size in (256, 512)
        ],
        "stages": {
            "box-2d9p": {
                word: row(case, 7e11) for word, case in SCRIPT["stages"]("box-2d9p").items()
            }
        },
        "model": {"box-2d9p": SCRIPT["modelled"]("box-2d9p")},
        "preparing": {"box-2d9p": 0.01},
    }
    path, others = tmp_path / "found.json", tmp_path / "formats.json"
    path.write_text(json.dumps(result), encoding="utf-8")
    one = {"parameters": {"steps_per_block": 7}, "low": 1e12, "median": 1.25e12, "high": 1.5e12}
    rows = [
        {"stencil": "box-2d9p", "row": word, **one} for word in ("tf32, sparse", "naive kernel")
    ]
    measured = {"date": "2026-01-03", "commit": "abd", "rounds": 5, "seconds": 0.04}
    others.write_text(
        json.dumps({**measured, "formats": rows[:1], "table_3": rows[1:]}), encoding="utf-8"
    )
    PAGE["write"](path, others)
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert "3 stencils of" in text
    assert "| box-2d9p | 2500 (7) | 2000 (" in text
    assert "| box-2d9p | 200 | 400 | 800 | 1600 |" in text
    assert "| box-2d9p, 7: sparse | 300 | 300 |" in text
    assert "| units in flight, one step | 700 |" in text
    assert "| box-2d9p | 10.0 | 373 |" in text
    assert sorted(each.suffix for each in tmp_path.iterdir()) == [
        ".json",
        ".json",
        ".md",
        ".svg",
        ".svg",
    ]
    assert "| tf32, sparse | 1250 (7), 1000 to 1500 |" in text
    assert "| naive kernel | 1250 (7), 1000 to 1500 |" in text


def test_every_row_of_other_formats_has_kernels_that_fit() -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    rows = {
        ("box-2d49p", kind, row): tiles
        for (kind, row), tiles in FORMATS["rows_of_formats"]("box-2d49p").items()
    }
    rows |= {
        ("box-2d49p", "f64", row): tiles
        for row, tiles in FORMATS["rows_of_table_3"]("box-2d49p").items()
    }
    assert len(rows) == 8
    for (name, kind, _), tiles in rows.items():
        problem = random_problem(name, (16, 16), FORMATS["MADE_OF"][kind])
        assert any(FORMATS["fits"](problem, parameters) is not None for parameters in tiles)


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
def test_what_is_timed_is_compared_with_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS["check"].__globals__, "CHECKED", (61, 200))
    parameters = {
        "merged_x": 4,
        "warps": 2,
        "blocks": 1,
        "units": 1,
        "steps": 2,
        "stages": 2,
        "steps_per_block": 1,
    }
    parameters |= {"sparse": 0, "flight": 1, "format": 3}
    FORMATS["check"](random_problem("box-2d9p", (16, 16), "float64"), parameters, HostGpu())
    monkeypatch.setattr(
        "tests.support.variants.variant_kernel",
        lambda *arguments: wrong_weights(variant_kernel(*arguments)),
    )
    with pytest.raises(AssertionError, match="is wrong by"):
        FORMATS["check"](random_problem("box-2d9p", (16, 16), "float64"), parameters, HostGpu())


def wrong_weights(kernel: FusedKernel) -> FusedKernel:
    """The two halves of the weights change places."""
    return dataclasses.replace(kernel, weights=np.roll(kernel.weights, 8))


def test_the_page_in_the_documentation_is_made_of_the_data_beside_it(tmp_path: Path) -> None:
    folder = FOLDER.parent / "docs" / "benchmarks"
    page = folder / "sparstencil.md"
    for name in ("sparstencil.json", "sparstencil-formats.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    PAGE["write"](tmp_path / "sparstencil.json", tmp_path / "sparstencil-formats.json")
    assert (tmp_path / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
