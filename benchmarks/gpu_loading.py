"""How long the initial state takes to a GPU, and a field back: python gpu_loading.py [n] [out.json].

Each of n^3 points in float64; seconds of three repetitions, on all cores and on one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.config import make_config
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.model.slab import Slab

INITIAL: dict[str, dict[str, Any]] = {
    "random": {"type": "random", "low": 0, "high": 1},
    "expression": {"type": "expression", "expression": "20 + sin(3*x)*cos(2*y)*exp(-z*z)"},
    "file": {"type": "file"},
}


def main(n: int, out: Path | None) -> None:
    """Time all kinds and print a table."""
    device, cores = GpuDevice(), os.sched_getaffinity(0)
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "field.npy"
        np.save(path, np.random.default_rng(0).random((n, n, n)))
        for kind, section in INITIAL.items():
            given = {**section, "path": str(path)} if kind == "file" else section
            for count in (len(cores), 1):
                os.sched_setaffinity(0, set(sorted(cores)[:count]))
                found[f"{kind}, {count} cores"] = time_it(n, given, device)
    os.sched_setaffinity(0, cores)

    for name, seconds in found.items():
        print(name, {what: [round(it, 3) for it in them] for what, them in seconds.items()})
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


def time_it(n: int, initial: dict[str, Any], device: GpuDevice) -> dict[str, list[float]]:
    """Seconds of loading and of reading all of it."""
    problem = make_config(
        {
            "grid": {"shape": [n] * 3, "size": [1.0] * 3},
            "model": {"type": "heat", "material": "copper"},
            "initial": initial,
            "boundaries": {"*": {"type": "neumann"}},
            "time": {"steps": 1},
        }
    ).build()
    slab = Slab.whole(problem.grid)
    stepper = GpuPlainMethod().prepare(problem, slab, {}, device)
    seconds: dict[str, list[float]] = {"load": [], "read": []}
    for _ in range(3):
        begun = time.perf_counter()
        stepper.load(problem.initial)
        stepper.wait()
        loaded = time.perf_counter()
        field = stepper.interior()
        seconds["load"].append(loaded - begun)
        seconds["read"].append(time.perf_counter() - loaded)

    few = slab.part(((0, 2), (0, n), (0, n)))
    assert np.array_equal(field[:, :2], problem.initial(few)), "another state came back"
    stepper.close()
    return seconds


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 1024,
        Path(sys.argv[2]) if len(sys.argv) > 2 else None,
    )
