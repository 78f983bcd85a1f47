"""What tests on a GPU allow in float16 lets rounding pass, and no launch that is missing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases import FACES, assert_rounded_at_random, make_problem, stencil_of
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.problem import Field, Problem

SHAPES = {1: (2053,), 2: (101, 163), 3: (37, 41, 57)}
DEPTHS = {1: 108, 2: 8, 3: 4}  # deepest launches


def rounded_every_step(state: Field, problem: Problem, steps: int) -> Field:
    for _ in range(steps):
        state = reference.advance(state, problem, 1).astype(np.float16)
    return state


@pytest.mark.parametrize("faces", ["periodic", "robin", "dirichlet"])
@pytest.mark.parametrize("name", ["heat-1d", "star-1d5p", "heat-2d", "box-2d9p", "heat-3d"])
def test_roundings_pass_and_a_missing_launch_does_not(name: str, faces: str) -> None:
    stencil = stencil_of(name)
    ndim = stencil.ndim
    problem, state = make_problem(
        stencil, Boundary.everywhere(FACES[faces], ndim), dtype="float16", shape=SHAPES[ndim]
    )
    depth = DEPTHS[ndim] // stencil.radius
    wanted = reference.advance(state, problem, 1 + depth)
    largest = reference.largest_magnitude(state, problem)
    assert_rounded_at_random(rounded_every_step(state, problem, 1 + depth), wanted, largest)
    for wrong in (state, reference.advance(state, problem, 1)):
        with pytest.raises(AssertionError, match="places off"):
            assert_rounded_at_random(wrong, wanted, largest)
