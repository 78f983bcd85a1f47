"""Without a GPU: gpu.tcstencil as a method, with every kind of face and every kind of proposal."""

from __future__ import annotations

import pytest

from tests.support.cases import make_problem, mixed_boundaries, stencil_of
from tests.support.emulator.half_emulation import emulated, faces, launches_of
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.method import STEPS_PER_BLOCK

(METHOD,) = (method for method in METHODS if method.name == "gpu.tcstencil")
SHAPES: dict[int, tuple[int, ...]] = {1: (303,), 2: (29, 149), 3: (13, 15, 141)}
NAMES = {1: "star-1d5p", 2: "box-2d9p", 3: "heat-3d"}
pytestmark = emulated


@pytest.mark.parametrize(("ndim", "boundary"), [*faces(1)[::3], *faces(2)[::3], *faces(3)[::6]])
def test_every_kind_of_face_is_right_at_every_step(ndim: int, boundary: Boundary) -> None:
    problem, state = make_problem(
        stencil_of(NAMES[ndim]), boundary, dtype="float16", shape=SHAPES[ndim], mirrored=True
    )
    parameters = next(each for each in METHOD.parameters(problem) if each[STEPS_PER_BLOCK] <= 4)
    assert "tcstencil" in " ".join(launches_of(METHOD, problem, state, parameters))


def test_a_star_may_be_two_bands() -> None:
    _, boundary = next(iter(mixed_boundaries(2)))
    problem, state = make_problem(
        stencil_of("heat-2d"), boundary, dtype="float16", shape=(29, 149), mirrored=True
    )
    stars = [each for each in METHOD.parameters(problem) if each.get("star")]
    assert stars
    launches_of(METHOD, problem, state, stars[0])


def test_other_precisions_are_refused() -> None:
    _, boundary = next(iter(mixed_boundaries(2)))
    for dtype in ("float64", "float32"):
        problem, _ = make_problem(stencil_of("heat-2d"), boundary, dtype=dtype, shape=(29, 149))
        assert dtype in str(METHOD.refusal(problem))
