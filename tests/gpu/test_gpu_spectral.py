"""On a GPU: jumps are those of NumPy, for every pair of faces and for layers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.support.cases import make_problem
from tests.support.jump_cases import KINDS, jumped, stack, star, with_weights
from tetris_sim.gpu_kernels.solve.arithmetic import METHOD
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

pytestmark = pytest.mark.gpu

FACES: tuple[Face, ...] = (Dirichlet(2.0), Neumann(0.3), Robin(3.0, 5.0), Fixed(1.5))
PAIRS = [*itertools.product(FACES, FACES), (Periodic(), Periodic())]


def assert_jumps(problem: Problem, gpu: Any) -> None:
    stepper = METHOD.prepare(problem, Slab.whole(problem.grid), {}, gpu)
    stepper.load(problem.initial)
    stepper.advance(300)
    assert stepper.find_nonfinite() is None
    got = stepper.interior()[0]
    stepper.close()
    expected = jumped(problem, 300)
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * max(1.0, scale))


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_jump_for_any_faces(ndim: int, gpu: Any) -> None:
    for number, pair in enumerate(PAIRS):
        pairs = tuple((pair, PAIRS[-1 - number], (Neumann(), Neumann()))[:ndim])
        problem, _ = make_problem(star(ndim, 0.9), Boundary(pairs), shape=(9, 14, 11)[:ndim])
        assert_jumps(with_weights(problem, star(ndim, 0.9)), gpu)


@pytest.mark.parametrize("across", ["x", "y", "z"])
def test_a_jump_through_layers(across: str, gpu: Any) -> None:
    lateral = [name for name in "xyz" if name != across]
    faces = {f"{across}-": KINDS["r"], f"{across}+": KINDS["d"], lateral[0]: KINDS["p"]}
    assert_jumps(stack((8, 9, 12), across, faces), gpu)
