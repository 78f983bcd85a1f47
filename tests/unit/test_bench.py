"""The benchmark: its baselines compute the same as we do, and it works with a cold and with a warm cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tetris_sim.bench.baselines import make_prange, padded_random
from tetris_sim.catalogue import STENCIL_NAMES, named_stencil


@pytest.mark.parametrize("form", ["slices", "indexed"])
@pytest.mark.parametrize("name", ["heat-1d", "star-2d9p", "box-3d27p"])
def test_the_hand_written_loops_compute_the_stencil(name: str, form: str) -> None:
    stencil = named_stencil(name).stencil
    u = padded_random(stencil, (7, 9, 11)[: stencil.ndim], "float64")
    v, weights = np.zeros_like(u), np.random.default_rng(3).random(stencil.n_points)
    make_prange(stencil, form)(u, v, weights)
    inside = tuple(slice(r, n - r) for r, n in zip(stencil.radii, u.shape, strict=True))
    expected = sum(
        w * u[tuple(slice(r + d, n - r + d) for r, d, n in zip(stencil.radii, offset, u.shape, strict=True))]
        for w, offset in zip(weights, stencil.offsets, strict=True)
    )
    np.testing.assert_allclose(v[inside], expected, rtol=1e-14)


def test_the_benchmark_runs_again_from_the_cache_and_says_what_was_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tetris_sim", "bench", "cpu", "--stencils", "heat-2d", "--size", "40"]
    command += ["--rounds", "2", "--seconds", "0.01", "--json"]
    environment = {**os.environ, "TETRIS_SIM_CACHE_DIR": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        rates = result["kernels"][0]["rates"]
        assert {"prange slices", "prange indexed", "cpu.plain"} <= set(rates)
        assert all(0 < rate["low"] <= rate["median"] <= rate["high"] for rate in rates.values())
        assert result["cpu"]
        assert result["date"]
    assert set(STENCIL_NAMES) >= {kernel["stencil"] for kernel in result["kernels"]}
