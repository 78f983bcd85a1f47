"""tetris_sim: stencil simulations, thermal diffusion first, on everything a machine has.

The walk of a run, one call per line:

    config = load_config(path)                 # YAML text to checked numbers in SI units
    problem = config.build()                   # physics to grid, stencil, boundary, initial field
    plan = make_plan(problem, find_machine())  # which slab to which worker, which method, and why
    with open_simulation(problem, plan) as simulation:  # workers get memory and the initial field
        simulation.run()                       # exchange, advance, write

or all of it at once, with its outputs: result = run(path).

Importing this package costs nothing; the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tetris_sim.version import __version__

if TYPE_CHECKING:
    from tetris_sim.api.arrays import thermal_diffusion
    from tetris_sim.api.characteristics import (
        effective_conductivity,
        thermal_impedance,
        thermal_resistances,
        thermal_transmittance,
    )
    from tetris_sim.api.coupling import Coupled, couple
    from tetris_sim.api.fitting import fit
    from tetris_sim.api.gradients import gradient
    from tetris_sim.api.pde import solve_pde
    from tetris_sim.api.result import Result, open_result
    from tetris_sim.api.running import preview, run, simulate
    from tetris_sim.api.sweeping import sweep
    from tetris_sim.commands.live import live
    from tetris_sim.config import Config, load_config, make_config
    from tetris_sim.model.boundary import Boundary, Dirichlet, Fixed, Neumann, Periodic, Robin
    from tetris_sim.model.grid import Grid
    from tetris_sim.model.problem import Problem
    from tetris_sim.model.slab import Slab
    from tetris_sim.model.stencil import Stencil
    from tetris_sim.model.stencils.catalogue import named_stencil
    from tetris_sim.scheduler.comm.communicator import open_communicator
    from tetris_sim.scheduler.facts.shares import Plan
    from tetris_sim.scheduler.machine.machine import find_machine
    from tetris_sim.scheduler.planner import make_plan, plan_together
    from tetris_sim.simulation.loop import Simulation, open_simulation

_LAZY = {
    **dict.fromkeys(
        ("Boundary", "Dirichlet", "Fixed", "Neumann", "Periodic", "Robin"),
        "tetris_sim.model.boundary",
    ),
    "Grid": "tetris_sim.model.grid",
    "Problem": "tetris_sim.model.problem",
    "Slab": "tetris_sim.model.slab",
    "Stencil": "tetris_sim.model.stencil",
    "thermal_diffusion": "tetris_sim.api.arrays",
    "named_stencil": "tetris_sim.model.stencils.catalogue",
    "Config": "tetris_sim.config",
    "load_config": "tetris_sim.config",
    "make_config": "tetris_sim.config",
    **dict.fromkeys(
        (
            "effective_conductivity",
            "thermal_impedance",
            "thermal_resistances",
            "thermal_transmittance",
        ),
        "tetris_sim.api.characteristics",
    ),
    "Coupled": "tetris_sim.api.coupling",
    "couple": "tetris_sim.api.coupling",
    "open_communicator": "tetris_sim.scheduler.comm.communicator",
    "find_machine": "tetris_sim.scheduler.machine.machine",
    "Plan": "tetris_sim.scheduler.facts.shares",
    "make_plan": "tetris_sim.scheduler.planner",
    "Result": "tetris_sim.api.result",
    "open_result": "tetris_sim.api.result",
    "live": "tetris_sim.commands.live",
    "preview": "tetris_sim.api.running",
    "run": "tetris_sim.api.running",
    "simulate": "tetris_sim.api.running",
    "plan_together": "tetris_sim.scheduler.planner",
    "Simulation": "tetris_sim.simulation.loop",
    "open_simulation": "tetris_sim.simulation.loop",
    "fit": "tetris_sim.api.fitting",
    "gradient": "tetris_sim.api.gradients",
    "solve_pde": "tetris_sim.api.pde",
    "sweep": "tetris_sim.api.sweeping",
}

__all__ = [
    "Boundary",
    "Config",
    "Coupled",
    "Dirichlet",
    "Fixed",
    "Grid",
    "Neumann",
    "Periodic",
    "Plan",
    "Problem",
    "Result",
    "Robin",
    "Simulation",
    "Slab",
    "Stencil",
    "__version__",
    "couple",
    "effective_conductivity",
    "find_machine",
    "fit",
    "gradient",
    "live",
    "load_config",
    "make_config",
    "make_plan",
    "named_stencil",
    "open_communicator",
    "open_result",
    "open_simulation",
    "plan_together",
    "preview",
    "run",
    "simulate",
    "solve_pde",
    "sweep",
    "thermal_diffusion",
    "thermal_impedance",
    "thermal_resistances",
    "thermal_transmittance",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module 'tetris_sim' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
