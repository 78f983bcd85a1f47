"""cpu.tessellate conducts heat with the bits of cpu.plain, whatever lanes, rows together, tiles,
threads, blocks, halos and first step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import run, run_with_halo
from conduction_cases import CASES, RADIATION, Case, closed, heating, mixed_faces, random_ids, rings

from tetris_sim import reference
from tetris_sim.conduction import Conduction
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import PlainMethod
from tetris_sim.cpu_kernels.tessellate.conducting import BLOCK
from tetris_sim.cpu_kernels.tessellate.method import TessellateMethod
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

METHOD = TessellateMethod()
TAKEN = [case for case in CASES if METHOD.refusal(case.problem()) is None]
TILES = (
    {"tile_x": 8, "tile_y": 9, "tile_z": 5, "width": 32, "jam": 2, "steps_per_block": 3},
    {"tile_x": 33, "tile_y": 0, "tile_z": 7, "width": 16, "jam": 4, "steps_per_block": 4},
    {"tile_x": 0, "tile_y": 6, "tile_z": 0, "width": 64, "jam": 1, "steps_per_block": 2},
)


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.name)
def test_a_body_gets_the_bits_of_plain_for_any_tiles_threads_and_blocks(
    case: Case, teams: dict[int, ThreadTeam]
) -> None:
    problem = case.problem()
    expected = run(PlainMethod(), problem, {}, teams[2])
    for threads, tile in zip((1, 2, 3), TILES, strict=True):
        found = run(METHOD, problem, tile, teams[threads])
        assert found.tobytes() == expected.tobytes(), tile
    truth = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, 12)
    assert np.abs(expected - truth).max() <= reference.tolerance(problem, 12, 2.0)
