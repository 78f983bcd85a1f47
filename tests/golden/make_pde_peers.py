"""Write pde_peers.npz: what py-pde makes of its documented examples, on small grids.

Run it with a Python that has py-pde (0.59.0 made the file that is here): `python
make_pde_peers.py`. `tests/physics/test_pde_peers.py` computes the same with the same grid, scheme
and time step. Examples are those of https://py-pde.readthedocs.io/en/latest/examples_gallery/.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

N_X, N_Y, SIZE_X, SIZE_Y = 16, 12, 8.0, 6.0
# name -> equations, periodic, faces, scheme, dt, steps
RING: Any = "periodic"
CASES: dict[str, tuple[dict[str, str], Any, str, float, int]] = {
    "diffusion": ({"u": "0.5 * laplace(u)"}, RING, "euler", 0.05, 40),
    "diffusion with faces": (
        {"u": "0.5 * laplace(u)"},
        {
            "x-": {"value": 1.5},
            "x+": {"derivative": 0.3},
            "y-": {"value": 0},
            "y+": {"derivative": 0},
        },
        "euler",
        0.05,
        40,
    ),
    "Allen-Cahn": ({"u": "laplace(u) - u**3 + u"}, RING, "euler", 0.02, 60),
    "Cahn-Hilliard": ({"u": "laplace(u**3 - u - laplace(u))"}, RING, "euler", 5e-4, 100),
    "Kuramoto-Sivashinsky": (
        {"u": "-gradient_squared(u) / 2 - laplace(u + laplace(u))"},
        RING,
        "euler",
        5e-4,
        100,
    ),
    "Swift-Hohenberg": (
        {"u": "(0.1 - 1) * u - 2 * laplace(u) - laplace(laplace(u)) + 0.3 * u**2 - u**3"},
        RING,
        "euler",
        5e-4,
        100,
    ),
    "Gray-Scott": (
        {
            "u": "0.16 * laplace(u) - u * v**2 + 0.035 * (1 - u)",
            "v": "0.08 * laplace(v) + u * v**2 - 0.1 * v",
        },
        {"derivative": 0},
        "euler",
        0.2,
        60,
    ),
    "Brusselator": (
        {
            "u": "laplace(u) + 1 - 4 * u + u**2 * v",
            "v": "0.1 * laplace(v) + 3 * u - u**2 * v",
        },
        RING,
        "runge-kutta",
        0.02,
        60,
    ),
    "wave": ({"u": "v", "v": "2.25 * laplace(u)"}, {"value": 0}, "runge-kutta", 0.1, 50),
    "Schroedinger": (
        {"u": "-laplace(v) / 2", "v": "laplace(u) / 2"},
        RING,
        "runge-kutta",
        0.05,
        50,
    ),
    "Burgers": ({"u": "0.3 * laplace(u) - u * d_dx(u)"}, RING, "runge-kutta", 0.05, 50),
    "Fisher-KPP with time": (
        {"u": "0.2 * laplace(u) + (1 + sin(t)) * u * (1 - u)"},
        {"derivative": 0},
        "runge-kutta",
        0.1,
        30,
    ),
    "nonlinear diffusion": ({"u": "laplace(u**2)"}, RING, "euler", 0.01, 60),
    "growth at places": (
        {"u": "0.3 * laplace(u) + sin(x) * u - 0.2 * y"},
        {"derivative": 0},
        "euler",
        0.05,
        40,
    ),
}


def solve(name: str) -> tuple[Any, Any]:
    """The state of a case before and after."""
    import pde

    equations, faces, solver, dt, steps = CASES[name]
    rng = np.random.default_rng([*CASES].index(name))
    periodic = faces == RING
    grid = pde.CartesianGrid([[0, SIZE_X], [0, SIZE_Y]], [N_X, N_Y], periodic=periodic)
    arrays = [rng.uniform(0.1, 0.9, (N_X, N_Y)) for _ in equations]
    fields = [pde.ScalarField(grid, it) for it in arrays]
    state = fields[0] if len(fields) == 1 else pde.FieldCollection(fields)

    system = pde.PDE(equations, bc="auto_periodic_neumann" if periodic else faces)
    result = system.solve(
        state, t_range=steps * dt, dt=dt, solver=solver, backend="numpy", tracker=None
    )
    return np.array(arrays), result.data.reshape(len(fields), N_X, N_Y)


def main() -> None:
    """Solve all cases, each in a process of its own, and write them."""
    found = {}
    for name in CASES:
        # In one process the faces of an earlier case were seen to be used for a later one.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            before, after = process.submit(solve, name).result()
        found[f"{name}/before"], found[f"{name}/after"] = before, after
    np.savez_compressed(Path(__file__).with_name("pde_peers.npz"), **found)


if __name__ == "__main__":
    main()
