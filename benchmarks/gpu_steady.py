"""Steady heat conduction on a GPU: the cubes of steady_peers.py, made where they are solved.

    python benchmarks/gpu_steady.py 64 128 256 512 1024 -o gpu_steady.json
    python benchmarks/gpu_steady.py 512 --passes

9^3 random blocks whose conductivities span three decades, one face at 0 degC, heated, to 1e-8. The
time is that of the hierarchy and of the solution, with the operator on the GPU. `--passes` times
each pass of the finest level alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.solve.arithmetic import GpuArithmetic
from tetris_sim.solvers.krylov import conjugate_gradients
from tetris_sim.solvers.multigrid import make_hierarchy

_TOLERANCE, _BLOCKS, _LIMIT = 1e-8, 9, 500


def make_system(n: int, xp: Any) -> tuple[tuple[Any, ...], Any]:
    """K by axis and d, and f, of the cube."""
    rng = np.random.default_rng(0)
    blocks = xp.asarray(10 ** (3 * rng.random((_BLOCKS,) * 3)))
    index = xp.arange(n) * _BLOCKS // n
    k = blocks[index[:, None, None], index[None, :, None], index[None, None, :]]
    d = xp.zeros(k.shape)
    d[0] = 2 * k[0]
    operator = []
    for axis in range(3):
        between = xp.roll(k, -1, axis)
        between = 2 / (1 / k + 1 / between)
        between[(slice(None),) * axis + (-1,)] = 0
        operator.append(xp.ascontiguousarray(between))
    f = xp.empty(k.shape)
    for plane in f:
        plane[:] = xp.asarray(rng.random(plane.shape))
    return (*operator, d), f


def solve(n: int, device: GpuDevice) -> dict[str, Any]:
    """Seconds, iterations, memory and residual."""
    with device.use() as cupy:
        operator, f = make_system(n, cupy)
        u, pool = cupy.zeros_like(f), cupy.get_default_memory_pool()
        pool.free_all_blocks()
        device.stream.synchronize()
        arithmetic, scale = GpuArithmetic(device), float(cupy.linalg.norm(f.reshape(-1)))

        begin = time.perf_counter()
        cycle = arithmetic.cycle(operator)
        device.stream.synchronize()
        made = time.perf_counter()
        solved = conjugate_gradients(
            operator, f, u, arithmetic, cycle, tolerance=_TOLERANCE, scale=scale, limit=_LIMIT
        )
        device.stream.synchronize()
        done, held = time.perf_counter(), pool.total_bytes()

        del cycle
        left = cupy.empty_like(f)
        arithmetic.residual(operator, f, u, left)
        residual = float(cupy.linalg.norm(left.reshape(-1))) / scale
        del operator, f, u, left, arithmetic
        pool.free_all_blocks()
    return {
        "n": n,
        "setup_s": made - begin,
        "solve_s": done - made,
        "iterations": solved.iterations,
        "residual": residual,
        "bytes_per_point": held / n**3,
    }


def time_passes(n: int, device: GpuDevice) -> dict[str, float]:
    """Milliseconds of each pass over the finest level, the median of seven."""
    with device.use() as cupy:
        operator, f = make_system(n, cupy)
        arithmetic = GpuArithmetic(device)
        small = tuple((it / 1e3).astype(cupy.float32) for it in operator)
        fine, coarser = (
            arithmetic.level(it) for it in make_hierarchy(small, cupy, arithmetic.coarsen)[:2]
        )
        fine.f[:] = f
        z, q, p, u = fine.f, cupy.zeros_like(f), f.copy(), cupy.zeros_like(f)
        weights = (0.562, 1.389)
        calls: dict[str, Callable[[], Any]] = {
            "coarsen": lambda: arithmetic.coarsen(small, 0, cupy),
            "begin": lambda: fine.begin(weights),
            "remain + restricted": lambda: fine.restrict(coarser),
            "prolonged": lambda: fine.correct(coarser),
            "relax, twice": lambda: fine.smooth(weights),
            "apply": lambda: arithmetic.apply(operator, p, q),
            "project": lambda: arithmetic.project(z, q, z),
            "turn": lambda: arithmetic.turn(z, 0.0, 0.0, p, u),
            "descend": lambda: arithmetic.descend(0.0, q, p, z),
        }
        found = {}
        for name, call in calls.items():
            spans = []
            for _ in range(7):
                begin, end = (cupy.cuda.Event() for _ in range(2))
                begin.record()
                call()
                end.record()
                end.synchronize()
                spans.append(cupy.cuda.get_elapsed_time(begin, end))
            found[name] = sorted(spans)[3]
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--passes", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()

    device, rows = GpuDevice(), []
    if args.passes:
        for n in args.sizes:
            for name, ms in time_passes(n, device).items():
                print(f"{n}^3 {name:20} {ms:8.3f} ms {n**3 / ms / 1e6:8.1f} G points/s", flush=True)
        return
    solve(32, device)  # compiles
    for n in args.sizes:
        runs = [solve(n, device) for _ in range(args.repeats)]
        row = min(runs, key=lambda it: it["setup_s"] + it["solve_s"])
        rows.append(row)
        print(json.dumps(row), flush=True)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
