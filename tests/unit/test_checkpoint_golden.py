from __future__ import annotations

from pathlib import Path

import numpy as np

from tetris_sim.model.boundary import Boundary, Dirichlet, Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem, StateVariable, Total
from tetris_sim.model.stencil import Stencil
from tetris_sim.outputs.checkpoint import open_checkpoint, problem_digest

DIGEST = "5e5c2070dbe2876a6901855d21b3d72d04652bb0fc4dbcf4fbd2c11c0b5f84de"
GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint_format_1.h5"


def test_a_checkpoint_of_format_1_is_read_as_it_was_meant() -> None:
    with open_checkpoint(GOLDEN) as checkpoint:
        values = checkpoint.read(((0, 2), (0, 3)))
        state = checkpoint.state
        assert checkpoint.good
        assert checkpoint.grid == Grid((2, 3), (0.05, 0.1), (0.025, 0.05))
        assert checkpoint.variables == (
            StateVariable("temperature", "degC", "temperature", Total("heat", "J/m", 3.45e6)),
            StateVariable("moisture", "1", "moisture ratio", Total("water", "kg/m", 0.5)),
        )
    expected = [
        [
            ["0x4034000000000000", "0x8000000000000000", "0x1"],
            ["0x7fefffffffffffff", "0x3fb999999999999a", "0x3fd3333333333334"],
        ],
        [
            ["0xbff8000000000000", "0x10000000000000", "0x400921fb54442d18"],
            ["0x3ddb7cdfd9d7bdbb", "0xc071126666666666", "0x3ff0000000000001"],
        ],
    ]
    assert [
        [[hex(bits) for bits in row] for row in field] for field in values.view(np.uint64).tolist()
    ] == expected
    assert (state.step, state.steps, state.dt, state.time) == (120, 400, 0.25, 30.0)
    assert state.run_id == "3b241101-e2bb-4255-8caf-4136c566a962"
    assert state.created == "2025-01-02T03:04:05+0000"
    assert state.wall_time_s == 7.75
    assert state.config.endswith("time: {dt: 0.25, steps: 400}\n")
    assert [text.splitlines()[-1] for text in state.config_history] == [
        "time: {dt: 0.25, steps: 100}",
        "time: {dt: 0.25, steps: 200}",
    ]
    assert state.methods == {
        "time_block": 8,
        "workers": {"cpu:0": {"method": "cpu.plain", "parameters": {}}},
    }
    assert state.versions == {"tetris_sim": "0.1.0", "python": "3.11.7"}
    assert state.outputs == {}
    assert state.problem_digest == DIGEST


def test_the_digest_of_a_problem_is_what_it_was_in_format_1() -> None:
    # One that came out otherwise would refuse to continue every checkpoint there is.
    problem = Problem(
        grid=Grid((2, 3), (0.05, 0.1), (0.025, 0.05)),
        stencil=Stencil(((0, 0), (0, -1), (0, 1)), (0.95, 0.025, 0.025)),
        boundary=Boundary(((Dirichlet(4.0), Dirichlet(4.0)), (Periodic(), Periodic()))),
        initial=lambda slab: np.ones((2, *slab.shape)),
        dt=0.25,
        steps=7,
        dtype=np.dtype(np.float64),
        variables=(
            StateVariable("temperature", "degC", "temperature", Total("heat", "J/m", 3.45e6)),
            StateVariable("moisture", "1", "moisture ratio", Total("water", "kg/m", 0.5)),
        ),
    )
    assert problem_digest(problem) == DIGEST
