"""RKL2 beside euler and rk2: time for the same simulated time, and the error of each.

    python benchmarks/rkl2.py [METHODS, such as cpu.plain,cpu.stream] [THREADS] [AXES]

The error is that of the discretised equations in time alone: the difference to rk4, relative to
the largest value. Ways are timed in turn, and the least of three is taken.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator

import numpy as np

from tetris_sim import Periodic
from tetris_sim.apps.pde.arrays import equations_problem
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Stepper
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

EQUATIONS = {"linear": "laplace(u)", "nonlinear": "div_grad(0.5 + 0.5*u**2, u)"}
STEPS = 270  # of euler at nine tenths of its limit; four of 16 stages
TRUTH = "rk4, fine"
SHAPES = {2: (512, 512), 3: (64, 64, 64)}


def start(shape: tuple[int, ...]) -> np.ndarray:
    """Smooth hills, and an edge that diffuses."""
    axes = np.meshgrid(*(np.linspace(0, 2 * np.pi, n, endpoint=False) for n in shape), sparse=True)
    smooth = sum(np.sin((k + 1) * it) for k, it in enumerate(axes)) / len(axes)
    return 0.25 * smooth + 0.5 * (axes[0] > np.pi) + 0.25


def ways(kind: str, ndim: int) -> Iterator[tuple[str, Problem]]:
    """The problems, all of the same length."""
    shape, u = SHAPES[ndim], start(SHAPES[ndim])
    end = STEPS * 0.9 / (2 * ndim)
    for name, scheme, steps in (
        *((TRUTH, "rk4", 2 * STEPS), ("euler", "euler", STEPS), ("rk2", "rk2", STEPS)),
        *((f"rkl2, {s} stages", "rkl2", -(-4 * STEPS // (s * s + s - 2))) for s in (4, 8, 16)),
    ):
        yield (
            name,
            equations_problem(
                u[np.newaxis],
                ["u"],
                {"u": EQUATIONS[kind]},
                constants={},
                grid=Grid(shape, (1.0,) * ndim, (0.5,) * ndim),
                boundaries={"u": Boundary.everywhere(Periodic(), ndim)},
                dt=end / steps,
                steps=steps,
                scheme=scheme,
                accuracy=2,
                advection="upwind",
            ),
        )


def main(names: list[str], threads: int, axes: list[int]) -> None:
    """Print a table."""
    team = ThreadTeam(threads)
    for ndim, kind, name in itertools.product(axes, EQUATIONS, names):
        method = next(it for it in METHODS if it.name == name)
        steppers: dict[str, Stepper] = {}
        least: dict[str, float] = {}
        problems = dict(ways(kind, ndim))
        for way, problem in problems.items():
            parameters = method.parameters(problem)[0]
            whole = Slab.whole(problem.grid)
            steppers[way] = method.prepare(problem, whole, parameters, team)
        for turn, (way, problem) in itertools.product(range(3), problems.items()):
            if turn and way == TRUTH:
                continue
            stepper = steppers[way]
            stepper.load(problem.initial)
            stepper.wait()
            begin = time.perf_counter()
            stepper.advance(problem.steps)
            stepper.wait()
            least[way] = min(least.get(way, np.inf), time.perf_counter() - begin)

        truth = steppers[TRUTH].interior()
        for way, took in least.items():
            error = np.abs(steppers[way].interior() - truth).max() / np.abs(truth).max()
            gain = least["euler"] / took
            print(
                f"{ndim}D {kind:10} {name:12} {way:16} {took:8.3f} s {gain:6.2f} x euler "
                f"{error:9.1e}",
                flush=True,
            )
        for stepper in steppers.values():
            stepper.close()
    team.close()


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(
        given.get(1, "cpu.plain,cpu.stream").split(","),
        int(given.get(2, 2)),
        [int(it) for it in given.get(3, "2,3").split(",")],
    )
