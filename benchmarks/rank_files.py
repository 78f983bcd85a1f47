"""How fast ranks of one computer write fields and checkpoints, beside a plain write of the same.

`mpiexec -n 4 python benchmarks/rank_files.py 320 6 FOLDER` runs n^3 points in float64 for so
many steps, each of which is written; before and after, rank 0 writes as many bytes into files of
that size and waits for the disk. Rounds go on in turn, and each line is one round: GB/s of the
whole run between its initial state and its end, computing included, and of the plain writes.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from tetris_sim.config import make_config
from tetris_sim.scheduler.comm.communicator import Communicator, open_communicator
from tetris_sim.simulation.launch import launch

_ROUNDS = 3
_BLOCK = 1 << 25  # bytes of a write


def main(n: int, steps: int, folder: Path) -> None:
    """Some rounds of both kinds of files, and a line for each."""
    with open_communicator() as ranks:
        for _ in range(_ROUNDS):
            for kind in ("fields", "checkpoints"):
                before = plain(n, steps, folder) if ranks.rank == 0 else 0.0
                ranks.tell(None)
                ours = written(kind, n, steps, folder, ranks)
                after = plain(n, steps, folder) if ranks.rank == 0 else 0.0
                if ranks.rank == 0:
                    share = 2 * ours / (before + after)
                    print(
                        f"{ranks.size} ranks, {kind}: {ours:.2f} GB/s, plain {before:.2f} and "
                        f"{after:.2f}: {share:.2f}",
                        flush=True,
                    )


def written(kind: str, n: int, steps: int, folder: Path, ranks: Communicator) -> float:
    """GB/s of a run that writes each of its steps."""
    results = folder / "results"
    if ranks.rank == 0:
        shutil.rmtree(results, ignore_errors=True)
    every = {"every": "1 step"}
    config = make_config(
        {
            "grid": {"shape": [n] * 3, "size": [1.0] * 3},
            "model": {"type": "heat", "material": "copper"},
            "initial": {"type": "random", "low": 0, "high": 1},
            "boundaries": {"*": {"type": "neumann"}},
            "time": {"steps": steps},
            "compute": {"devices": "cpu", "method": "cpu.plain", "tuning_budget": 0},
            "output": {
                "directory": str(results),
                "pictures": False,
                **({"fields": every} if kind == "fields" else {}),
            },
            "checkpoint": {"at_end": False, **(every if kind == "checkpoints" else {})},
        }
    )
    ranks.tell(None)
    report = launch(config, ranks=ranks)
    spent = report.as_json()
    begun = sum(spent["phases_s"][name] for name in ("plan", "prepare", "initial"))
    files = steps + (kind == "fields")  # the initial state too
    if ranks.rank == 0:
        shutil.rmtree(results)
    return float(files * 8 * n**3 / 1e9 / (spent["wall_s"] - begun))


def plain(n: int, files: int, folder: Path) -> float:
    """GB/s of files that are written and brought to the disk one after the other."""
    size, state = 8 * n**3, memoryview(np.random.default_rng(0).random(n**3).tobytes())
    begun = time.perf_counter()
    for _ in range(files):
        descriptor = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for start in range(0, size, _BLOCK):
            os.pwrite(descriptor, state[start : start + _BLOCK], start)
        os.fsync(descriptor)
        os.close(descriptor)
    seconds = time.perf_counter() - begun
    (folder / "plain").unlink()
    return files * size / 1e9 / seconds


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
