"""How long a jump takes: any number of steps of a square at once, with all faces insulated and with
faces that have no transform.

    python benchmarks/jumps.py cpu 9600
    python benchmarks/jumps.py gpu 9600
    python benchmarks/jumps.py cpu 9600 3800000 0

The last two arguments, if given, are how many steps a jump goes over and how many follow the first.
Every case is first compared with 100 steps of the plain method, on the CPU on a quarter of the
length. A line has the seconds to open a worker's memory, of the first jump, which finds
eigenvectors, and of others like it. With TETRIS_SIM_ROWS=FILE the measurements are kept as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.apps.stencil import heat_operator
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Neumann, Robin
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import DeviceKind, Method
from tetris_sim.model.problem import Problem, StateVariable, Total
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import euler_step
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning.measure import random_field

STEPS = (100, 3_800_000)
NUMBER = 0.225  # diffusivity * dt / spacing^2, nine tenths of the largest
JUMPS = 3  # after the first
FACES: dict[str, tuple[tuple[Face, Face], tuple[Face, Face]]] = {
    "insulated": ((Neumann(), Neumann()), (Neumann(), Neumann())),
    "cooled": ((Robin(50.0, 0.2), Robin(20.0, 0.9)), (Robin(5.0, 0.1), Dirichlet(0.7))),
}


def make_problem(faces: str, n: int) -> Problem:
    """A square metre of diffusion with random numbers."""
    grid = Grid(shape=(n, n), spacing=(1 / n, 1 / n), origin=(0.5 / n, 0.5 / n))
    problem = Problem(
        grid,
        euler_step(heat_operator(None, (1.0, 1.0)), NUMBER),
        Boundary(FACES[faces]),
        lambda slab: np.zeros((1, *slab.shape)),
        dt=1.0,
        steps=1,
        dtype=np.dtype(np.float64),
        variables=(StateVariable("u", "1", "u", Total("integral", "m^2", 1.0)),),
    )
    return replace(problem, initial=random_field(problem, grid.shape))


def advanced(problem: Problem, method: Method, steps: int, device: Any, more: int = 0) -> Any:
    """The state after some steps, and how long each part took [s]."""
    begin = time.perf_counter()
    stepper = method.prepare(problem, Slab.whole(problem.grid), {}, device)
    stepper.load(problem.initial)
    stepper.wait()
    opened = time.perf_counter() - begin
    seconds = []
    first = None
    for _ in range(1 + more):
        begin = time.perf_counter()
        stepper.advance(steps)
        stepper.wait()
        seconds.append(time.perf_counter() - begin)
        first = stepper.interior() if first is None else first
    stepper.close()
    return first, opened, seconds


def main(
    kind: DeviceKind, n: int, chosen: tuple[int, ...] = STEPS, more: int = JUMPS
) -> list[dict[str, Any]]:
    """Print and return all measurements."""
    threads = 1 if kind == "gpu" else find_machine().threads
    place, rows = ComputeResource(threads, kind), []
    with place.opened() as device:
        for faces in FACES:
            small = make_problem(faces, n if kind == "gpu" else n // 4)
            stepped, *_ = advanced(small, place.methods[-1], STEPS[0], device)
            jumped, *_ = advanced(small, place.spectral, STEPS[0], device)
            error = float(np.abs(jumped - stepped).max())
            assert error < 1e-12, error
            del stepped, jumped
            for steps in chosen:
                problem = make_problem(faces, n)
                state, opened, (first, *others) = advanced(
                    problem, place.spectral, steps, device, more
                )
                assert bool(np.isfinite(state).all())
                rows.append(
                    {
                        "device": kind,
                        "n": n,
                        "faces": faces,
                        "steps": steps,
                        "opened_s": opened,
                        "first_s": first,
                        "others_s": others,
                        "error": error,
                    }
                )
                print(
                    f"{n}^2 {faces:10} {steps:8} steps: opened {opened:.3g} s, first {first:.3g} s,"
                    f" others {', '.join(f'{it:.3g}' for it in others)} s, error {error:.2g}",
                    flush=True,
                )
    return rows


if __name__ == "__main__":
    kind, n, *asked = sys.argv[1:]
    options = ((int(asked[0]),), int(asked[1])) if asked else (STEPS, JUMPS)
    found = main("gpu" if kind == "gpu" else "cpu", int(n), *options)
    if "TETRIS_SIM_ROWS" in os.environ:
        Path(os.environ["TETRIS_SIM_ROWS"]).write_text(json.dumps(found, indent=1) + "\n")
