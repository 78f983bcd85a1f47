"""Write checkpoint_format_1.h5, the example of checkpoint format 1 that every later version must be
able to read.

Made once, with tetris_sim 0.1.0. Do not run it again to make a test pass: a file that was written
years ago cannot be written anew either. A new format gets a script and a file of its own.

    python tests/golden/make_checkpoint_1.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tetris_sim.model.boundary import Boundary, Dirichlet, Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem, StateVariable, Total
from tetris_sim.model.stencil import Stencil
from tetris_sim.outputs.checkpoint import RunState, problem_digest, write_checkpoint

VALUES = np.array(
    [
        [[20.0, -0.0, 5e-324], [1.7976931348623157e308, 0.1, 0.30000000000000004]],
        [[-1.5, 2.2250738585072014e-308, 3.141592653589793], [1e-10, -273.15, 1.0000000000000002]],
    ]
)
CONFIG = """schema: 1
grid: {shape: [3, 2], size: [0.3, 0.1]}
model: {type: heat, diffusivity: 0.001}
initial: {type: constant, value: 20.0}
boundaries: {x: {type: periodic}, y: {type: dirichlet, value: 4.0}}
time: {dt: 0.25, steps: 400}
"""

if __name__ == "__main__":
    problem = Problem(
        grid=Grid((2, 3), (0.05, 0.1), (0.025, 0.05)),
        stencil=Stencil(((0, 0), (0, -1), (0, 1)), (0.95, 0.025, 0.025)),
        boundary=Boundary(((Dirichlet(4.0), Dirichlet(4.0)), (Periodic(), Periodic()))),
        initial=lambda slab: np.zeros((2, *slab.shape)),
        dt=0.25,
        steps=400,
        dtype=np.dtype(np.float64),
        variables=(
            StateVariable("temperature", "degC", "temperature", Total("heat", "J/m", 3.45e6)),
            StateVariable("moisture", "1", "moisture ratio", Total("water", "kg/m", 0.5)),
        ),
    )
    state = RunState(
        step=120,
        dt=0.25,
        steps=400,
        run_id="3b241101-e2bb-4255-8caf-4136c566a962",
        config=CONFIG,
        problem_digest=problem_digest(problem),
        config_history=(CONFIG.replace("400", "100"), CONFIG.replace("400", "200")),
        methods={"time_block": 8, "workers": {"cpu:0": {"method": "cpu.plain", "parameters": {}}}},
        created="2025-01-02T03:04:05+0000",
        versions={"tetris_sim": "0.1.0", "python": "3.11.7"},
        wall_time_s=7.75,
        outputs={},
    )
    path = write_checkpoint(
        Path(sys.argv[1]),
        state,
        problem,
        lambda box: VALUES[:, slice(*box[0]), slice(*box[1])],
        keep=1,
    )
    path.rename(path.with_name("checkpoint_format_1.h5"))
