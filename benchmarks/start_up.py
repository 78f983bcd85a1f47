"""How long does the start take? python -m tests.benchmarks.start_up

Whole processes, each after one that warms the caches, on an installation whose bytecode is kept
(PYTHONDONTWRITEBYTECODE unset); medians of five. The tests count imports instead of seconds.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tetris_sim as ts

CONFIG = """
grid: {shape: [64, 64], size: [15 mm, 15 mm]}
model: {type: heat, material: copper}
initial: {type: gaussian, amplitude: 100 K, sigma: 2.15 mm}
boundaries: {"*": {type: neumann}}
time: {dt: auto, steps: 100}
"""
RUNS = 5


def seconds(*words: str, folder: Path) -> tuple[float, float]:
    """(wall, CPU) seconds of a process, medians."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    wall, cpu = [], []
    for number in range(RUNS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, *words], cwd=folder, env=environment, capture_output=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if number:
            wall.append(time.perf_counter() - begin)
            cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(wall), statistics.median(cpu)


def main() -> None:
    """Print a table."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small.yaml").write_text(CONFIG)
        for words, wanted in (
            (("-c", "import numpy"), "to compare with"),
            (("-c", "import tetris_sim"), "0.15 s wanted"),
            (("-m", "tetris_sim", "--help"), "0.3 s wanted"),
            (("-m", "tetris_sim", "validate", "small.yaml"), "0.7 s wanted"),
            (("-m", "tetris_sim", "run", "small.yaml", "--overwrite"), "1.5 s wanted"),
        ):
            wall, cpu = seconds(*words, folder=folder)
            print(f"{' '.join(words[1:]):40} {wall:6.3f} s, CPU {cpu:6.3f} s, {wanted}")

    field = np.random.default_rng(0).uniform(size=(64, 64))
    ts.thermal_diffusion(field, 10)
    taken = []
    for _ in range(20):
        begin = time.perf_counter()
        ts.thermal_diffusion(field, 10)
        taken.append(time.perf_counter() - begin)
    print(
        f"{'thermal_diffusion, 64 x 64, again':40} {statistics.median(taken):6.4f} s, 0.01 s wanted"
    )


if __name__ == "__main__":
    main()
