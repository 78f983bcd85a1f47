"""How fast a .npy file comes to a GPU: python benchmarks/reading_beside.py FOLDER OUT.json [n].

Six files of n^3 numbers (768) are written, their pages dropped, and each is read once, in turns by a
run's initial field and by as many threads that do nothing else. Wants root, to drop pages, and 22 GB.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tetris_sim.config import make_config
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.model.slab import Slab

_FILES = 6
_BLOCK = 16 << 20  # bytes of a plain read
_THREADS = min(16, len(os.sched_getaffinity(0)))


def main(folder: Path, out: Path, n: int) -> None:
    """All files; prints and writes what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{k}.npy" for k in range(_FILES)]
    for k, path in enumerate(paths):
        write(path, n, seed=k)
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="utf-8")

    device = GpuDevice()
    ways: dict[str, Callable[[Path], float]] = {
        "plain": plain,
        "load": lambda path: load(path, n, device),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    for k in range(0, _FILES, 2):
        order = ("plain", "load") if k % 4 == 0 else ("load", "plain")
        for way, path in zip(order, paths[k : k + 2], strict=True):
            found[way].append(path.stat().st_size / ways[way](path))
            print(way, f"{found[way][-1] / 1e9:.2f} GB/s", flush=True)
            path.unlink()
    record = {"n": n, "threads": _THREADS, "bytes per second": found}
    out.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


def write(path: Path, n: int, seed: int) -> None:
    """n^3 numbers that differ from file to file."""
    plane = np.random.default_rng(seed).random((1, n, n))
    header = {"descr": "<f8", "fortran_order": False, "shape": (n, n, n)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for k in range(n):
            file.write((plane + k).data)
        file.flush()
        os.fsync(file.fileno())


def plain(path: Path) -> float:
    """Seconds of reading it block by block, with all threads."""
    offsets, lock = iter(range(0, path.stat().st_size, _BLOCK)), threading.Lock()
    file = os.open(path, os.O_RDONLY)

    def work() -> None:
        buffer = bytearray(_BLOCK)
        while (at := _next(offsets, lock)) is not None:
            os.preadv(file, [buffer], at)

    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    os.close(file)
    return seconds


def _next(offsets: Iterator[int], lock: threading.Lock) -> int | None:
    with lock:
        return next(offsets, None)


def load(path: Path, n: int, device: GpuDevice) -> float:
    """Seconds until it is in the memory of the GPU."""
    problem = make_config(
        {
            "grid": {"shape": [n] * 3, "size": [1.0] * 3},
            "model": {"type": "heat", "material": "copper"},
            "initial": {"type": "file", "path": str(path)},
            "boundaries": {"*": {"type": "neumann"}},
            "time": {"steps": 1},
        }
    ).build()
    stepper = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, device)
    begun = time.perf_counter()
    stepper.load(problem.initial)
    stepper.wait()
    seconds = time.perf_counter() - begun
    stepper.close()
    return seconds


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 768)
