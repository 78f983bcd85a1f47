"""A whole run on a GPU beside its disk: python benchmarks/whole_run.py FOLDER OUT.json [n].

n^3 points (1024), 2,000 steps, four fields and two checkpoints, once with nothing tuned or compiled
before and once again; before, between and after, as much as a field is written plainly and waited
for. A run is compared with the longer one of computing and writing its bytes at the median of
these speeds. Needs 60 GB of disk and two minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

_STEPS = 2000
_BLOCK = 1 << 25  # bytes of a write


def main(folder: Path, out: Path, n: int) -> None:
    """Both runs and three plain writes; prints and writes what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TETRIS_SIM_CACHE_DIR"] = str(folder / "cache")
    shutil.rmtree(folder / "cache", ignore_errors=True)

    disk, runs = [plain(folder, 8 * n**3)], {}
    for name in ("fresh", "again"):
        runs[name] = run(folder, n)
        disk.append(plain(folder, 8 * n**3))
    speed = statistics.median(disk)
    for name, found in runs.items():
        writing = found["bytes"] / speed
        found["times the longer"] = found["process s"] / max(writing, found["compute s"])
        print(name, {key: round(value, 2) for key, value in found.items()}, flush=True)
    print("plain writes, GB/s:", [round(it / 1e9, 2) for it in disk])
    record = {"n": n, "steps": _STEPS, "disk bytes per second": disk, "runs": runs}
    out.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


def plain(folder: Path, n_bytes: int) -> float:
    """Bytes per second of a plain write that is waited for."""
    block = np.random.default_rng(0).integers(0, 255, _BLOCK, dtype=np.uint8)
    path = folder / "plain"
    begun = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for at in range(0, n_bytes, _BLOCK):
            file.write(block[: n_bytes - at].data)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begun
    path.unlink()
    return n_bytes / seconds


def run(folder: Path, n: int) -> dict[str, Any]:
    """Seconds of the process and of its phases, and the bytes that it wrote."""
    results = folder / "results"
    shutil.rmtree(results, ignore_errors=True)
    config = folder / "run.yaml"
    config.write_text(
        "model: {type: stencil, stencil: heat-3d}\n"
        f"grid: {{shape: [{n}, {n}, {n}], size: [1 m, 1 m, 1 m]}}\n"
        "initial: {type: random, low: 0, high: 1}\n"
        'boundaries: {"*": {type: neumann}}\n'
        f"time: {{steps: {_STEPS}}}\n"
        "compute: {devices: gpu}\n"
        f"output: {{directory: {results}, fields: {{every: {_STEPS // 3 + 1} steps}}}}\n"
        f"checkpoint: {{every: {_STEPS // 2} steps, keep: 2}}\n",
        encoding="utf-8",
    )
    words = [sys.executable, "-m", "tetris_sim", "run", str(config), "-q", "--no-progress"]
    begun = time.perf_counter()
    subprocess.run(words, check=True)
    seconds = time.perf_counter() - begun

    report = json.loads((results / "report.json").read_text(encoding="utf-8"))
    written = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    shutil.rmtree(results)
    phases = {f"{name} s": value for name, value in report["phases_s"].items()}
    return {"process s": seconds, "bytes": written, **phases}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1024)
