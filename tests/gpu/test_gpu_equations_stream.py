"""Equations by gpu.stream without a GPU: the bits of gpu.plain, faces and halos included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpu_equation_cases as cases
import numpy as np
import pytest
from emulator.emulation import COMPILER, NO_COMPILER
from emulator.host_gpu import HostGpu

from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.method import Parameters
from tetris_sim.problem import Field, Problem
from tetris_sim.slab import Slab

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


def tile(*numbers: int) -> Parameters:
    names = ("steps_per_block", "rows", "columns", "warps", "blocks", "edges")
    return dict(zip(names, numbers, strict=True))


CASES: dict[str, tuple[Callable[[], Problem], Parameters]] = {
    "gray-scott": (
        lambda: cases.make(cases.gray_scott(2, cases.walls(2), cases.walls(2, 0.1)), (27, 60)),
        tile(2, 3, 2, 2, 1, 2),
    ),
    "gray-scott, ring": (
        lambda: cases.make(cases.gray_scott(2, cases.ring(2)), (23, 65), np.float32),
        tile(3, 2, 4, 2, 1, 1),
    ),
    "cahn-hilliard": (
        lambda: cases.make(cases.cahn_hilliard(2, cases.walls(2)), (33, 75)),
        tile(2, 3, 2, 2, 1, 2),
    ),
    "wave": (
        lambda: cases.make(cases.wave(2, cases.ring(2)), (31, 50)),
        tile(3, 3, 2, 2, 1, 2),
    ),
    "corners": (
        lambda: cases.make(cases.corners(cases.walls(2)), (21, 60)),
        tile(2, 2, 4, 2, 1, 2),
    ),
}


def advanced(
    problem: Problem, parameters: Parameters, blocks: tuple[int, ...], first: int, gpu: Any
) -> Field:
    stepper = METHOD.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    stepper.load(problem.initial, first)
    for steps in blocks:
        stepper.advance(steps)
    found: Field = stepper.interior()
    stepper.close()
    return found


@emulated
@pytest.mark.parametrize("name", CASES)
def test_blocks_of_steps_have_the_bits_of_the_instructions(name: str) -> None:
    make, parameters = CASES[name]
    problem, gpu = make(), HostGpu()
    assert METHOD.refusal(problem) is None
    depth = parameters["steps_per_block"]
    found = advanced(problem, parameters, (2 * depth, depth + 1), 3, gpu)
    state = problem.initial(Slab.whole(problem.grid))
    assert gpu.launches.count("equations_2d") == 3
    np.testing.assert_array_equal(found, cases.advance(state, problem, 3 * depth + 1, 3))
