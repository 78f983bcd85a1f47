"""How fast equations are on CPU cores: cpu.stream and cpu.plain beside hand-written loops and py-pde.

    python benchmarks/cpu_equations.py
    python benchmarks/cpu_equations.py /somewhere/bin/python [SIZE]

Two threads, or TETRIS_SIM_THREADS of them, periodic faces, float64; grids of SIZE^2 points only. `loop` is what a Numba user would write, one `prange` loop a
step for both fields; with the Python of an environment that has py-pde its backend for Numba takes
turns too, and the first step of each is timed from the start of its process, of ours also with a
filled folder of compiled code. All ways take turns, and ratios are those of one turn. A point and step counts once,
however many fields there are. With TETRIS_SIM_ROWS=FILE the measurements are kept as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tests.support import cpu_equation_cases as cases  # noqa: E402
from tetris_sim.cpu_kernels import METHODS  # noqa: E402
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam  # noqa: E402
from tetris_sim.model.method import Method, Parameters  # noqa: E402
from tetris_sim.model.problem import Field, Problem  # noqa: E402
from tetris_sim.model.slab import Slab  # noqa: E402

THREADS, TURNS, SECONDS = (
    int(os.environ.get("TETRIS_SIM_THREADS", "2")),
    5,
    0.5,
)  # seconds of a timing, about
STREAM, PLAIN = METHODS[0], METHODS[-1]
SIZES = {"gray-scott": (1024, 4096), "cahn-hilliard": (1024,)}
Way = Callable[[], float]  # one timing, billions of points and steps a second


def problem_of(name: str, n: int) -> Problem:
    """Equations on a grid of n^2 points with numbers that stay small."""
    case = {"gray-scott": "gray-scott, rings"}.get(name, name)

    def initial(slab: Slab) -> Field:
        axes = np.ix_(*(np.arange(*span) for span in slab.spans))
        waves: Field = np.asarray(sum((k + 1) * axis for k, axis in enumerate(axes)) % 17 / 170.0)
        return np.stack([0.5 + waves, 0.1 + waves]) if name == "gray-scott" else waves[np.newaxis]

    it = cases.problem(case)
    return replace(it, grid=it.grid.on_shape((n, n)), initial=initial)


def timed(advance: Callable[[int], None], n: int, unit: int) -> Way:
    """Timings of whole units of steps, each of about `SECONDS`."""

    def seconds(steps: int) -> float:
        begin = time.perf_counter()
        advance(steps)
        return time.perf_counter() - begin

    seconds(unit)
    steps = unit * max(1, round(SECONDS / seconds(unit)))
    return lambda: steps * n * n / 1e9 / seconds(steps)


def method_way(method: Method, problem: Problem, parameters: Parameters, team: ThreadTeam) -> Way:
    """A method of the program."""
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, team)
    stepper.load(problem.initial)

    def advance(steps: int) -> None:
        stepper.advance(steps)
        stepper.wait()

    return timed(advance, problem.grid.shape[0], parameters.get("steps_per_block", 1))


def loop_way(n: int) -> Way:
    """Gray-Scott by a `prange` loop on padded arrays; the numbers are constants that LLVM sees."""
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def sweep(u, v, new_u, new_v, steps):  # type: ignore[no-untyped-def]
        n = u.shape[0] - 2
        for _ in range(steps):
            for a in (u, v):
                a[0], a[-1] = a[-2], a[1]
                a[:, 0], a[:, -1] = a[:, -2], a[:, 1]
            for i in numba.prange(1, n + 1):
                for j in range(1, n + 1):
                    here, other = u[i, j], v[i, j]
                    grown = 0.5 * here * other * other
                    flow = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * here
                    new_u[i, j] = here + 0.1 * flow - grown + 0.04 * (1.0 - here)
                    flow = v[i - 1, j] + v[i + 1, j] + v[i, j - 1] + v[i, j + 1] - 4.0 * other
                    new_v[i, j] = other + 0.05 * flow + grown - 0.03 * other
            u, new_u = new_u, u
            v, new_v = new_v, v

    numba.set_num_threads(THREADS)
    arrays = [np.full((n + 2, n + 2), value) for value in (0.5, 0.1, 0.5, 0.1)]
    return timed(lambda steps: sweep(*arrays, steps), n, 2)


def begin(name: str, n: int) -> None:
    """Make one step as a user's run does, its plan included."""
    from tetris_sim.config.sections.schema import ComputeSection
    from tetris_sim.scheduler.machine.machine import find_machine
    from tetris_sim.scheduler.planner import make_plan
    from tetris_sim.simulation.loop import open_simulation

    problem, compute = problem_of(name, n), ComputeSection(threads=THREADS)
    with open_simulation(problem, make_plan(problem, find_machine(), compute)) as simulation:
        simulation.advance(1)
        simulation.field()


def first_steps(name: str, n: int) -> list[float]:
    """Seconds from the start of a process, with an empty and with a filled folder."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TETRIS_SIM_CACHE_DIR": folder, "NUMBA_CACHE_DIR": folder}
        for _ in range(2):
            start = time.perf_counter()
            command = [sys.executable, __file__, "--begin", name, str(n)]
            subprocess.run(command, env=environment, check=True)
            seconds.append(time.perf_counter() - start)
    return seconds


def peer_way(python: str, name: str, n: int) -> tuple[Way, float]:
    """A process of py-pde, and after how many seconds it had made its first step."""
    script = Path(__file__).with_name("py_pde_equations.py")
    environment = {**os.environ, "NUMBA_NUM_THREADS": str(THREADS)}
    peer = subprocess.Popen(
        [python, str(script), name, str(n)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert peer.stdin is not None
    assert peer.stdout is not None
    first = float(peer.stdout.readline())

    def way() -> float:
        print(3, file=peer.stdin, flush=True)
        return n * n / 1e9 / float(peer.stdout.readline())  # type: ignore[union-attr]

    return way, first


def measure(
    name: str, n: int, team: ThreadTeam, peer: tuple[Way, float] | None
) -> list[dict[str, Any]]:
    """Rows of one grid: every way, its rates in turns."""
    problem = problem_of(name, n)
    ways: dict[str, tuple[Way, Parameters]] = {}
    best, first = 0.0, first_steps(name, n)
    for parameters in STREAM.parameters(problem):
        way = method_way(STREAM, problem, parameters, team)
        if (rate := way()) > best:
            best, ways["cpu.stream"] = rate, (way, parameters)
    ways["cpu.plain"] = method_way(PLAIN, problem, {}, team), {}
    if name == "gray-scott":
        ways["loop"] = loop_way(n), {}
    if peer is not None:
        ways["py-pde"] = peer[0], {}

    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for which, (measured, _) in ways.items():
            rates[which].append(measured())
    return [
        {
            "equations": name,
            "n": n,
            "dtype": "float64",
            "way": way,
            "threads": THREADS,
            "parameters": dict(ways[way][1]),
            "gpoint_steps_per_s": found,
            "first_step_s": {"cpu.stream": first, "py-pde": peer and [peer[1]]}.get(way),
        }
        for way, found in rates.items()
    ]


def main(python: str | None = None, size: str | None = None) -> None:
    """Measure everything and say it."""
    python = python or None
    # Peers compile for minutes: all of them before anything is timed.
    peers = {name: peer_way(python, name, 1024) for name in SIZES} if python else {}
    team, rows = ThreadTeam(THREADS), []
    for name, sizes in SIZES.items():
        for n in sizes if size is None else (int(size),):
            rows += measure(name, n, team, peers.get(name) if n == 1024 else None)
            for row in rows[-4:]:
                found = row["gpoint_steps_per_s"], row["first_step_s"]
                print(row["equations"], row["n"], row["way"], *found, flush=True)
    if (path := os.environ.get("TETRIS_SIM_ROWS")) is not None:
        Path(path).write_text(json.dumps({"cpu_rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--begin"]:
        begin(sys.argv[2], int(sys.argv[3]))
    else:
        main(*sys.argv[1:])
