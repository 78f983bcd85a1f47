"""The data transfer model, and what is swept."""

from __future__ import annotations

import pytest

from benchmarks.cpu_sweeps import explain, shapes_to_sweep, thread_counts
from benchmarks.samples import LIMITS, row
from benchmarks.transfer import level_of, total, transfer_rates, transfer_times
from tetris_sim.bench.timing import random_problem


def test_transfer_times_add_up_to_a_copy_in_each_level() -> None:
    rates = transfer_rates(LIMITS["before"])
    assert list(rates) == ["load", "L1", "L2", "Mem"]
    for level in ("L1", "L2", "Mem"):
        times = transfer_times(rates, n_terms=1, itemsize=8, level=level)
        assert total(times) == pytest.approx(16 / rates[level])
    times = transfer_times(rates, n_terms=5, itemsize=8)
    assert list(times) == ["Mem-L2", "L2-L1", "L1-Reg"]
    assert times["L1-Reg"] == pytest.approx(16 / rates["L1"] + 32 / rates["load"])
    blocked = transfer_times(rates, n_terms=5, itemsize=8, sweeps_per_pass=10)
    assert blocked == pytest.approx({**times, "Mem-L2": times["Mem-L2"] / 10})


def test_a_grid_lies_in_the_innermost_level_that_holds_it() -> None:
    found = [level_of(n_bytes, LIMITS["before"]) for n_bytes in (8192, 8193, 65536, 65537)]
    assert found == ["L1", "L2", "L2", "Mem"]


def test_a_row_is_explained_by_the_level_its_two_arrays_lie_in() -> None:
    small, large = (
        random_problem("heat-2d", (20, 20), "float64"),
        random_problem("heat-2d", (80, 80), "float32"),
    )
    here = LIMITS["before"]
    explained = explain(row("cpu.plain", 4e9), small, here)
    assert (explained["ns"], explained["fma_ns"]) == (0.25, 5 / 100)
    assert list(explained["transfer_ns"]) == ["L1-Reg"]
    assert explained["transfer_total_ns"] == pytest.approx(16 / 240 + 32 / 480)
    tiled = explain(row("cpu.tessellate", 4e9, parameters={"steps_per_block": 4}), large, here)
    swept = explain(row("cpu.plain", 4e9), large, here)
    assert tiled["transfer_ns"]["L2-L1"] == pytest.approx(swept["transfer_ns"]["L2-L1"] / 4)
    assert tiled["fma_ns"] == 5 / 200


def test_sweeps_go_from_a_mebibyte_to_what_fits() -> None:
    assert shapes_to_sweep(2, 8, memory=100 << 20) == [(362, 362), (724, 724), (1448, 1448)]
    assert shapes_to_sweep(1, 4, memory=1 << 40)[-1] == (1 << 30,)
    assert shapes_to_sweep(3, 8, last=(60, 90, 80), memory=1 << 40) == [(51, 51, 51), (60, 90, 80)]
    assert shapes_to_sweep(3, 8, last=(10, 11, 12), memory=1 << 40) == [(10, 11, 12)]
    assert thread_counts(1) == [1]
    assert thread_counts(16) == [1, 2, 4, 8, 16]
