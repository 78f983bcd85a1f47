"""The Python API: what the YAML file does, and thermal diffusion as a function on arrays.

Run it with `python examples/python_api.py`.
"""

from __future__ import annotations

import numpy as np

import tetris_sim as ts


def cool_a_plate() -> None:
    """The general way: a configuration as Python data, a plan for this machine, a run."""
    config = ts.make_config({
        "grid": {"shape": [256, 192], "size": ["20 mm", "15 mm"]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "gaussian", "amplitude": 100, "sigma": "2 mm", "background": 20},
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 20}},
        "time": {"t_end": "10 ms"},
    })  # fmt: skip
    problem = config.build()
    plan = ts.make_plan(problem, ts.find_machine(), config.compute)
    with ts.open_simulation(problem, plan) as simulation:
        simulation.run()
        u = simulation.field()[0]  # temperature [degC], (192, 256): arrays are (y, x)
    print(
        f"{problem.steps} steps of {problem.dt:.3g} s; the hottest point now has {u.max():.1f} degC"
    )


def smooth_an_array() -> None:
    """The short way: an array in, an array out."""
    spots = np.zeros((300, 400))
    spots[100, 150] = spots[200, 250] = 1000.0
    u = ts.thermal_diffusion(spots, 500, "star-2d9p", boundary=ts.Periodic())
    print(
        f"after 500 steps the highest of the spots is {u.max():.3f} high, and their sum is still "
        f"{u.sum():.1f}"
    )


if __name__ == "__main__":
    cool_a_plate()
    smooth_an_array()
