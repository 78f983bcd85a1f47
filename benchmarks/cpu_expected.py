"""What `plan` expects of CPU threads by equations, beside what they do: ten equations, swept and
streamed.

    python benchmarks/cpu_expected.py [SECONDS] [THREADS]

Ways of one equation take turns, three times; every candidate of cpu.stream, and for those in stages
also the first with one step a pass, which is what an embedded pair of adaptive steps could have.
With TETRIS_SIM_ROWS=FILE the measurements are kept as JSON. After SECONDS no other equation begins.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tetris_sim import Periodic
from tetris_sim.apps.pde.arrays import equations_problem
from tetris_sim.bench.limits import expect, thread_limits
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Share

TURNS, SECONDS = 3, 0.15  # of a timing, about
STREAM, PLAIN = METHODS[0], METHODS[-1]
GRAY_SCOTT = {
    "u": "0.16*laplace(u) - u*v**2 + 0.04*(1 - u)",
    "v": "0.08*laplace(v) + u*v**2 - 0.1*v",
}
BRUSSELATOR = {"u": "laplace(u) + 1 - 4*u + u**2*v", "v": "0.1*laplace(v) + 3*u - u**2*v"}
# Equations of fields, scheme, accuracy, points along each axis.
EQUATIONS: dict[str, tuple[dict[str, str], str, int, tuple[int, ...]]] = {
    "Gray-Scott": (GRAY_SCOTT, "euler", 2, (2048, 2048)),
    "Gray-Scott, rk4": (GRAY_SCOTT, "rk4", 2, (2048, 2048)),
    "Cahn-Hilliard": ({"u": "laplace(u**3 - u - laplace(u))"}, "euler", 2, (2048, 2048)),
    "Allen-Cahn, rk2": ({"u": "laplace(u) + u - u**3"}, "rk2", 2, (2048, 2048)),
    "waves, order 4": ({"u": "v", "v": "laplace(u)"}, "rk4", 4, (2048, 2048)),
    "plume": ({"u": "0.1*laplace(u) - 0.5*dx(u) - 0.2*dy(u)"}, "euler", 2, (2048, 2048)),
    "sine-Gordon": ({"u": "v", "v": "laplace(u) - sin(u)"}, "rk4", 2, (2048, 2048)),
    "Kuramoto-Sivashinsky": (
        {"u": "-biharmonic(u) - laplace(u) - 0.5*dx(u)**2"}, "rk2", 2, (1 << 22,)
    ),
    "Brusselator": (BRUSSELATOR, "euler", 2, (160, 160, 160)),
    "Fisher-KPP, rk4": ({"u": "laplace(u) + u*(1 - u)"}, "rk4", 2, (160, 160, 160)),
}  # fmt: skip


def problem_of(name: str) -> Problem:
    """Of numbers that stay small."""
    texts, scheme, accuracy, shape = EQUATIONS[name]
    waves = np.arange(np.prod(shape)).reshape(shape) % 17 / 170.0
    state = np.stack([0.5 + waves, 0.1 + waves][: len(texts)])
    ring = Boundary.everywhere(Periodic(), len(shape))
    return equations_problem(
        state,
        [*texts],
        texts,
        constants={},
        grid=Grid(shape, (1.0,) * len(shape), (0.5,) * len(shape)),
        boundaries=dict.fromkeys(texts, ring),
        dt=1e-4,
        steps=1,
        scheme=scheme,
        accuracy=accuracy,  # type: ignore[arg-type]
        advection="upwind",
    )


def make_way(method: Method, problem: Problem, parameters: Parameters, team: ThreadTeam) -> Any:
    """A function that gives one rate, in billions of points and steps a second."""
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, team)
    stepper.load(problem.initial)
    unit = parameters.get(STEPS_PER_BLOCK, 1)

    def seconds(steps: int) -> float:
        begin = time.perf_counter()
        stepper.advance(steps)
        stepper.wait()
        return time.perf_counter() - begin

    seconds(unit)
    steps = unit * max(1, round(SECONDS / seconds(unit)))
    return lambda: steps * problem.grid.n_points / 1e9 / seconds(steps)


def measure(name: str, team: ThreadTeam) -> list[dict[str, Any]]:
    """Rows of one equation."""
    problem = problem_of(name)
    streams = list(STREAM.parameters(problem))
    assert problem.equations is not None
    if len(problem.equations.stages) > 1:
        streams.append({**streams[0], STEPS_PER_BLOCK: 1})
    chosen = [(PLAIN, {}), *((STREAM, it) for it in streams)]
    ways = [make_way(method, problem, it, team) for method, it in chosen]
    rates = np.array([[way() for way in ways] for _ in range(TURNS)]).T

    rows = []
    for (method, parameters), found in zip(chosen, rates, strict=True):
        whole = Slab.whole(problem.grid)
        share = Share("cpu", whole, method, parameters, team.size, 0.0, 0)
        limits = thread_limits(problem, share)
        expected = expect(problem, share, limits)
        rows.append(
            {
                "equations": name,
                "threads": team.size,
                "method": method.name,
                "parameters": dict(parameters),
                "gpoint_steps_per_s": found.tolist(),
                "expected": expected.points_per_second / 1e9,
                "bound": expected.bound,
                "operations_per_s": limits.operations,
                "bytes_per_s": limits.bytes,
                "operations": problem.equations.n_operations,
                "bytes": expected.bytes,
            }
        )
        print(
            f"{name:22} {method.name:11} {share.parameters.get(STEPS_PER_BLOCK, ''):>3} "
            f"{median(found):7.3f} expected {rows[-1]['expected']:7.3f}, "
            f"{rows[-1]['expected'] / median(found):5.2f} times, {expected.bound}",
            flush=True,
        )
    return rows


def main(seconds: str = "inf", threads: str = "2") -> None:
    """Measure everything and say it."""
    begin, team, rows = time.time(), ThreadTeam(int(threads)), list[dict[str, Any]]()
    for name in EQUATIONS:
        if time.time() - begin < float(seconds):
            rows += measure(name, team)
            if (path := os.environ.get("TETRIS_SIM_ROWS")) is not None:
                Path(path).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    team.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
