"""py-pde advances equations: what `cpu_equations.py` starts with the Python of an environment that
has it.

    python benchmarks/py_pde_equations.py gray-scott 1024

First a line says after how many seconds the first step was done, imports and compilation included;
then every line of input is a number of steps, which is answered with seconds per step.
"""

from __future__ import annotations

import sys
import time

BEGIN = time.perf_counter()

import numpy as np  # noqa: E402
import pde  # noqa: E402


def main(name: str, n: int) -> None:
    """Advance steps as they are asked for."""
    grid = pde.CartesianGrid([[0, n], [0, n]], n, periodic=True)
    rng, dt = np.random.default_rng(5), 1.0
    if name == "gray-scott":
        right = {
            "u": "Du*laplace(u) - u*v**2 + F*(1 - u)",
            "v": "Dv*laplace(v) + u*v**2 - (F + k)*v",
        }
        consts = {"Du": 0.16, "Dv": 0.08, "F": 0.04, "k": 0.06}
        fields = [
            pde.ScalarField(grid, rng.uniform(*it, (n, n))) for it in ((0.4, 0.6), (0.1, 0.3))
        ]
        state = pde.FieldCollection(fields)
    else:
        right, consts, dt = {"u": "laplace(u**3 - u - laplace(u))"}, {}, 0.01
        state = pde.ScalarField(grid, rng.uniform(-0.1, 0.1, (n, n)))

    equation = pde.PDE(right, consts=consts, bc="periodic")
    advance = pde.EulerSolver(equation, backend="numba").make_stepper(state, dt=dt)
    advance(state, 0.0, dt)
    print(time.perf_counter() - BEGIN, flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        advance(state, 0.0, int(line) * dt)
        print((time.perf_counter() - begin) / int(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
