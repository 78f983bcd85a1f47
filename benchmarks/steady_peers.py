"""Steady heat conduction beside pyamg and FiPy: the same system, to the same residual, in one run.

    python benchmarks/steady_peers.py 64 128 --peers /path/to/python/with/pyamg -o steady.json

A cube of random blocks whose conductivities span three decades, one face at 0 degC, heated. pyamg
(smoothed aggregation with conjugate gradients, its defaults for symmetric matrices) gets the matrix
in files; its time is that of building the hierarchy and of solving. FiPy (`--fipy`, a Python that
has it) gets conductivities and heat, and takes its conjugate gradients; its time is that of `solve`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.solvers.krylov import conjugate_gradients

_TOLERANCE = 1e-8
_BLOCKS = 9  # along each axis
_PEER = """
import json, sys, time
import numpy as np, pyamg, scipy.sparse as sp
folder = sys.argv[1]
parts = [np.load(f"{folder}/{name}.npy") for name in ("k0", "k1", "k2", "d", "f")]
*ks, d, f = parts
shape, n = d.shape, d.size
number = np.arange(n).reshape(shape)
main, pieces = d.copy(), []
for axis, k in enumerate(ks):
    cut = [slice(None)] * 3
    cut[axis] = slice(0, -1)
    low, between = number[tuple(cut)].ravel(), k[tuple(cut)].ravel()
    cut[axis] = slice(1, None)
    high = number[tuple(cut)].ravel()
    pieces.append(sp.coo_matrix((-between, (low, high)), shape=(n, n)).tocsr())
    main += k + np.roll(k, 1, axis)
upper = sum(pieces)
matrix = (upper + upper.T + sp.diags(main.ravel())).tocsr()
b = f.ravel()
begin = time.perf_counter()
levels = pyamg.smoothed_aggregation_solver(matrix, max_coarse=500)
built = time.perf_counter()
residuals = []
x = levels.solve(b, tol=%g, accel="cg", residuals=residuals, maxiter=500)
done = time.perf_counter()
left = float(np.linalg.norm(b - matrix @ x) / np.linalg.norm(b))
print(json.dumps({"setup_s": built - begin, "solve_s": done - built, "iterations": len(residuals) - 1,
                  "residual": left, "version": pyamg.__version__}))
"""
_FIPY = """
import json, os, sys, time
os.environ["FIPY_SOLVERS"] = "scipy"
import fipy, numpy as np
from fipy import CellVariable, DiffusionTerm, Grid3D
from fipy.solvers import LinearCGSolver
folder = sys.argv[1]
k, f, here = (np.load(f"{folder}/{name}.npy") for name in ("k", "f", "here"))
mesh = Grid3D(nx=k.shape[2], ny=k.shape[1], nz=k.shape[0])
cells, heat, u = (CellVariable(mesh=mesh, value=it.ravel()) for it in (k, f, 0 * f))
u.constrain(0.0, mesh.facesFront)
equation = DiffusionTerm(coeff=cells.harmonicFaceValue) + heat == 0
solver = LinearCGSolver(tolerance=%g, iterations=100000, criterion="RHS")
begin = time.perf_counter()
equation.solve(var=u, solver=solver)
done = time.perf_counter()
off = float(abs(u.value.reshape(k.shape) - here).max() / abs(here).max())
print(json.dumps({"seconds": done - begin, "iterations": solver.convergence.iterations,
                  "off": off, "version": fipy.__version__}))
"""


def conductivities(n: int) -> Any:
    """Of the blocks, and the generator that made them."""
    rng = np.random.default_rng(0)
    blocks = 10 ** (3 * rng.random((_BLOCKS,) * 3))
    index = np.arange(n) * _BLOCKS // n
    return blocks[np.ix_(index, index, index)], rng


def make_system(n: int) -> tuple[list[Any], Any]:
    """K by axis and d, and f, of the cube."""
    k, rng = conductivities(n)
    operator = []
    for axis in range(3):
        between = 2 / (1 / k + 1 / np.roll(k, -1, axis))
        between[(slice(None),) * axis + (-1,)] = 0
        operator.append(np.ascontiguousarray(between))
    d = np.zeros(k.shape)
    d[0] = 2 * k[0]
    return [*operator, d], rng.random(k.shape)


def solve_here(operator: list[Any], f: Any, threads: int) -> tuple[dict[str, Any], Any]:
    """(time, iterations and residual of this program, the state)."""
    team = ThreadTeam(threads)
    device, u = CpuArithmetic(team), np.zeros_like(f)
    begin = time.perf_counter()
    solved = conjugate_gradients(
        tuple(operator),
        f,
        u,
        device,
        device.cycle(tuple(operator)),
        tolerance=_TOLERANCE,
        scale=float(np.linalg.norm(f)),
        limit=500,
    )
    seconds = time.perf_counter() - begin
    left = np.empty_like(f)
    device.residual(tuple(operator), f, u, left)
    team.close()
    residual = float(np.linalg.norm(left) / np.linalg.norm(f))
    return {"seconds": seconds, "iterations": solved.iterations, "residual": residual}, u


def solve_by_fipy(python: str, n: int, f: Any, here: Any) -> dict[str, Any]:
    """Time and iterations of FiPy, and how far it is off."""
    with tempfile.TemporaryDirectory() as folder:
        for name, it in {"k": conductivities(n)[0], "f": f, "here": here}.items():
            np.save(f"{folder}/{name}.npy", it)
        script = [python, "-c", _FIPY % _TOLERANCE, folder]
        done = subprocess.run(script, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", help="a Python that has pyamg")
    parser.add_argument("--fipy", help="a Python that has FiPy")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()

    solve_here(*make_system(16), args.threads)  # compiles
    rows = []
    for n in args.sizes:
        operator, f = make_system(n)
        runs, peers, by_fipy = [], [], []
        for _ in range(args.repeats):
            run, here = solve_here(operator, f, args.threads)
            runs.append(run)
            if args.fipy:
                by_fipy.append(solve_by_fipy(args.fipy, n, f, here))
            if args.peers:
                with tempfile.TemporaryDirectory() as folder:
                    for name, it in zip(("k0", "k1", "k2", "d", "f"), (*operator, f), strict=True):
                        np.save(f"{folder}/{name}.npy", it)
                    script = [args.peers, "-c", _PEER % _TOLERANCE, folder]
                    found = subprocess.run(script, capture_output=True, text=True, check=True)
                    peers.append(json.loads(found.stdout))
        row = {"n": n, "here": runs, "pyamg": peers, "fipy": by_fipy}
        rows.append(row)
        seconds = statistics.median(it["seconds"] for it in runs)
        text = f"{n}^3: {seconds:.2f} s, {runs[0]['iterations']} iterations"
        if peers:
            other = statistics.median(it["setup_s"] + it["solve_s"] for it in peers)
            text += f"; pyamg {other:.2f} s, {peers[0]['iterations']}; {other / seconds:.1f} times"
        if by_fipy:
            other = statistics.median(it["seconds"] for it in by_fipy)
            text += f"; FiPy {other:.2f} s, {by_fipy[0]['iterations']}; {other / seconds:.1f} times"
        print(text, flush=True)
    if args.output:
        args.output.write_text(json.dumps({"threads": args.threads, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
