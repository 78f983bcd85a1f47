"""Adaptive steps beside those of SciPy and py-pde: error against tolerance, and how often the
right-hand side was computed. Counts do not depend on the machine; seconds are those of the run
after everything was compiled. With TETRIS_SIM_ROWS=FILE the rows are kept as JSON.

    python benchmarks/adaptive_peers.py [PYTHON_WITH_PY_PDE]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from tetris_sim import Periodic
from tetris_sim.apps.pde.arrays import equations_problem
from tetris_sim.apps.pde.runge_kutta import PAIRS
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.grid import Grid
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation

N, END = 48, 10.0
SYSTEMS = {
    "Brusselator": {
        "u": "laplace(u) + 1 - 4*u + u**2*v",
        "v": "0.1*laplace(v) + 3*u - u**2*v",
    },
    "Allen-Cahn": {"u": "laplace(u) + u - u**3"},
}
PEER = """
import sys, time, numpy as np, pde
folder, end = sys.argv[1], float(sys.argv[2])
right = eval(sys.argv[3])
start = np.load(folder + "/start.npy")
grid = pde.CartesianGrid([[0, n] for n in start.shape[1:]], start.shape[1:], periodic=True)
for solver in ("euler", "runge-kutta"):
    for tolerance in (1e-3, 1e-5):
        fields = [pde.ScalarField(grid, it.copy()) for it in start]
        state = pde.FieldCollection(fields) if len(fields) > 1 else fields[0]
        equation = pde.PDE(right, bc="periodic")
        made = pde.solvers.SolverBase.from_name(solver, equation, backend="numba", adaptive=True,
            tolerance=tolerance)
        control = pde.Controller(made, t_range=end, tracker=None)
        control.run(state.copy(), dt=1e-3)
        begin = time.perf_counter()
        found = control.run(state.copy(), dt=1e-3)
        seconds, told = time.perf_counter() - begin, control.diagnostics
        np.save(f"{folder}/{solver} {tolerance:g}.npy", np.reshape(found.data, start.shape))
        print(f"{solver} {tolerance:g}:{told['solver']['steps']}:{seconds}", flush=True)
"""


def laplace(u: Any) -> Any:
    return sum(np.roll(u, shift, axis) for axis in (0, 1) for shift in (-1, 1)) - 4 * u


def rate(t: float, flat: Any, texts: dict[str, str]) -> Any:
    state = dict(zip(texts, flat.reshape(len(texts), N, N), strict=True))
    return np.concatenate(
        [np.ravel(eval(it, {"laplace": laplace, **state})) for it in texts.values()]  # noqa: S307
    )


def ours(
    start: Any, texts: dict[str, str], scheme: str, tolerance: float
) -> tuple[Any, int, float]:
    """The state at the end, how often the right-hand side was computed, and seconds."""
    ring = Boundary.everywhere(Periodic(), 2)
    problem = equations_problem(
        start,
        [*texts],
        texts,
        constants={},
        grid=Grid((N, N), (1.0, 1.0), (0.5, 0.5)),
        boundaries=dict.fromkeys(texts, ring),
        dt=END,
        steps=1,
        scheme=scheme,
        accuracy=2,
        advection="upwind",
        tolerance=tolerance,
    )
    compute = ComputeSection(method="cpu.plain", threads=1)
    with open_simulation(problem, make_plan(problem, find_machine(), compute)) as simulation:
        begin = time.perf_counter()
        simulation.run()
        seconds = time.perf_counter() - begin
        counted = simulation.counted
        stages = len(PAIRS[scheme].nodes)
        return simulation.field(), stages * (counted.made + counted.rejected), seconds


def main(peer: str | None) -> None:
    """Print a table."""
    rows: list[dict[str, Any]] = []
    for name, texts in SYSTEMS.items():
        start = np.random.default_rng(3).uniform(0.5, 1.5, (len(texts), N, N))
        more = {"args": (texts,), "rtol": 1e-11, "atol": 1e-11}
        true = solve_ivp(rate, (0, END), start.ravel(), method="DOP853", **more).y[:, -1]

        def say(
            *of: str, found: Any, count: Any, took: float, true: Any = true, name: str = name
        ) -> None:
            error = np.abs(np.ravel(found) - true).max() / np.abs(true).max()
            keys = ("equations", "solver", "tolerance", "error", "count", "seconds")
            rows.append(dict(zip(keys, (name, *of, error, count, took), strict=True)))
            if (path := os.environ.get("TETRIS_SIM_ROWS")) is not None:
                Path(path).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
            print(
                f"{name:12} {of[0]:24} {of[1]:>7} {error:9.1e} {count:>10} {took:.3g} s", flush=True
            )

        for tolerance in (1e-3, 1e-5, 1e-7):
            for scheme, pair in PAIRS.items():
                if scheme != "euler" or tolerance > 1e-6:
                    found, count, took = ours(start, texts, scheme, tolerance)
                    say(pair.name, f"{tolerance:g}", found=found, count=count, took=took)
            for method in ("RK23", "RK45"):
                more = {"args": (texts,), "rtol": tolerance, "atol": tolerance}
                begin = time.perf_counter()
                made = solve_ivp(rate, (0, END), start.ravel(), method=method, **more)
                took, of = time.perf_counter() - begin, (f"SciPy {method}", f"{tolerance:g}")
                say(*of, found=made.y[:, -1], count=made.nfev, took=took)
        if peer is not None:
            with tempfile.TemporaryDirectory() as folder:
                np.save(f"{folder}/start.npy", start)
                command = [peer, "-c", PEER, folder, str(END), repr(texts)]
                told = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                for line in told.stdout or ():
                    which, steps, took_ = line.split(":")
                    solver, tolerance_ = which.split()
                    found = np.load(Path(folder) / f"{which}.npy")
                    say(
                        f"py-pde {solver}",
                        tolerance_,
                        found=found,
                        count=f"{steps} steps",
                        took=float(took_),
                    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
