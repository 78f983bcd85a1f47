"""On a GPU: every stencil of the catalogue through every method that does not refuse it, against
the reference.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.support.cases import assert_rounded_at_random, make_problem, mixed_boundaries, run
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.model import reference
from tetris_sim.model.method import STEPS_PER_BLOCK, Method
from tetris_sim.model.problem import PRECISIONS
from tetris_sim.model.stencils.catalogue import catalogue

pytestmark = pytest.mark.gpu

# Wide enough for points that no face concerns, odd so that tiles end in the middle.
SHAPES = {1: (2053,), 2: (101, 163), 3: (37, 41, 131)}


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", catalogue())
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_stencil_of_the_catalogue_agrees_with_the_reference(
    method: Method, name: str, dtype: str, gpu: Any
) -> None:
    stencil = catalogue()[name].repeatable
    boundaries = [boundary for _, boundary in mixed_boundaries(stencil.ndim)]
    boundary = boundaries[list(catalogue()).index(name) % len(boundaries)]
    problem, state = make_problem(stencil, boundary, dtype=dtype, shape=SHAPES[stencil.ndim])
    problem = dataclasses.replace(problem, stencil=stencil)
    if method.refusal(problem) is not None:
        pytest.skip(f"{method.name} refuses it: {method.refusal(problem)}")
    parameters = method.parameters(problem)[0]
    depth = max(1, parameters.get(STEPS_PER_BLOCK, 1))
    blocks = (1, depth)
    expected = reference.advance(state, problem, sum(blocks))
    largest = max(reference.largest_magnitude(field, problem) for field in (state, expected))
    gain = max(1.0, sum(map(abs, stencil.weights))) ** sum(
        blocks
    )  # faces may undo what waves promise
    allowed = gain * reference.tolerance(problem, sum(blocks), largest)
    found = run(method, problem, parameters, gpu, blocks).astype(
        float
    )  # float16 may not hold what is allowed
    np.testing.assert_allclose(found, expected.astype(float), rtol=0, atol=allowed)
    if dtype == "float16":
        assert_rounded_at_random(found, expected, largest)
