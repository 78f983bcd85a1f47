"""The measured limits: the probes do the work that is counted, caches are found, and the model adds
up.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.samples import LIMITS
from tetris_sim.bench.limits import CHAINS, TURN, lanes, make_probes, measure_limits
from tetris_sim.bench.tables import Bounds, copy_rate, find_bounds, fma_rate
from tetris_sim.cpu_kernels.common.caches import Cache, find_caches
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_multiply_add_that_is_counted_is_made(dtype: str, rng: np.random.Generator) -> None:
    n = lanes(dtype)
    state = rng.uniform(0.5, 0.9, (CHAINS + 2) * n).astype(dtype)
    chains, factor, summand = (
        state[: CHAINS * n].reshape(CHAINS, n).copy(),
        state[CHAINS * n : -n],
        state[-n:],
    )
    make_probes(dtype).multiply_add(state, 37)
    for _ in range(37):
        chains = chains * factor + summand
    # Each of 37 turns rounds once instead of twice, and errors shrink by the factor.
    np.testing.assert_allclose(
        state[: CHAINS * n].reshape(CHAINS, n), chains, rtol=float(20 * np.finfo(dtype).eps)
    )


def test_loads_are_all_used_and_copies_are_copies(rng: np.random.Generator) -> None:
    probes, n = make_probes("float64"), 3 * TURN * lanes("float64")
    source, state = rng.random(n), np.ones((CHAINS + 2) * lanes("float64"))
    probes.load_only(source, state, n, 2)
    assert state[: -2 * lanes("float64")].sum() == pytest.approx(
        2 * source.sum() + CHAINS * lanes("float64")
    )
    target = np.zeros(n + 8)
    probes.copy(source, target, n, 2)
    np.testing.assert_array_equal(target, [*source, *np.zeros(8)])
    aligned = np.zeros(2 * n)
    aligned = aligned[-aligned.ctypes.data % 64 // 8 :]
    probes.copy_past_caches(source, aligned, n, 1)
    np.testing.assert_array_equal(aligned[:n], source)
    assert not aligned[n:].any()


def test_limits_are_measured_for_every_dtype_and_cache() -> None:
    team = ThreadTeam(2)
    found = measure_limits(team, ("float64", "float32"), rounds=1, seconds=0.002)
    team.close()
    assert found.threads == 2
    assert set(found.fma) == set(found.fma_one_thread) == {"float64", "float32"}
    assert [cache.level for cache in found.caches] == [cache.level for cache in find_caches()]
    for timing in (*found.fma.values(), found.copy, found.copy_past_caches, found.load):
        assert timing is not None
        assert 1e6 < timing.low <= timing.median <= timing.high < 1e15


def test_caches_are_what_the_system_says(tmp_path: Path) -> None:
    said = [
        ("1", "Data", "48K", "0-1"),
        ("1", "Instruction", "32K", "0-1"),
        ("2", "Unified", "2048K", "0-1"),
        ("3", "Unified", "36M", "0-7,16"),
    ]
    for number, words in enumerate(said):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, word in zip(("level", "type", "size", "shared_cpu_list"), words, strict=True):
            (folder / name).write_text(f"{word}\n")
    assert find_caches(tmp_path) == (
        Cache(1, 48 << 10, 2),
        Cache(2, 2 << 20, 2),
        Cache(3, 36 << 20, 9),
    )
    assert find_caches(tmp_path / "nothing") == ()
    shared = Cache(3, 36 << 20, 9)
    assert (shared.share(2), shared.capacity(2)) == (18 << 20, 36 << 20)
    assert (shared.share(18), shared.capacity(18)) == (4 << 20, 72 << 20)


def test_the_harder_limit_of_before_and_after_counts() -> None:
    assert fma_rate(LIMITS, "float64") == 100e9
    assert fma_rate(LIMITS, "float32") == 200e9
    assert copy_rate(LIMITS) == 32e9


def test_the_tighter_bound_is_the_smaller_one() -> None:
    heavy = find_bounds(49, 8, fma_rate=98e9, copy_rate=48e9)
    assert heavy == Bounds(fma=2e9, memory=3e9)
    assert (heavy.tighter, heavy.one_sweep) == ("fma", 2e9)
    assert find_bounds(5, 4, fma_rate=100e9, copy_rate=48e9).tighter == "memory"
