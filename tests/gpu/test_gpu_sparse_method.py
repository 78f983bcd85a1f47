"""Without a GPU: gpu.sparse as a method, with every kind of face, and how far it is from
float64.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from tests.support.cases import make_problem, mixed_boundaries, run, stencil_of
from tests.support.emulator.half_emulation import emulated, faces, launches_of
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.fused.kernel import round_weights
from tetris_sim.gpu_kernels.tensor_cores.sparse import sparse_parameters, sparse_refusal
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import catalogue

(SPARSE,) = (method for method in METHODS if method.name == "gpu.sparse")
SHAPES: dict[int, tuple[int, ...]] = {1: (303,), 2: (29, 149), 3: (13, 15, 141)}


def with_steps(problem: Problem, steps: int) -> Parameters:
    """The proposal that makes so many steps at once, or the next fewer."""
    proposals = SPARSE.parameters(problem)
    return next(each for each in proposals if each[STEPS_PER_BLOCK] <= steps)


@emulated
@pytest.mark.parametrize(("ndim", "boundary"), [*faces(1), *faces(2), *faces(3)[::3]])
def test_every_kind_of_face_is_right_at_every_step(ndim: int, boundary: Boundary) -> None:
    name = {1: "star-1d5p", 2: "box-2d9p", 3: "heat-3d"}[ndim]
    for mirrored in (False, True):
        problem, state = make_problem(
            stencil_of(name), boundary, dtype="float16", shape=SHAPES[ndim], mirrored=mirrored
        )
        launches = launches_of(SPARSE, problem, state, with_steps(problem, 3 if ndim > 1 else 7))
        assert launches.count("sparse_stencil") == 2
        assert launches.count("sweep") == 1


@emulated
@pytest.mark.parametrize("shape", [(7, 65), (16, 129), (30, 211)])
def test_any_number_of_rows_and_columns(shape: tuple[int, ...]) -> None:
    (_, rings), *_ = [case for case in mixed_boundaries(2) if case[0] == "periodic"]
    problem, state = make_problem(
        stencil_of("heat-2d"), rings, dtype="float16", shape=shape, n_fields=2
    )
    assert "sparse_stencil" in launches_of(SPARSE, problem, state, SPARSE.parameters(problem)[0])


@emulated
@pytest.mark.parametrize("name", ["heat-1d", "box-2d9p", "star-2d9p", "heat-3d"])
def test_the_error_against_float64_is_bounded_per_launch(name: str) -> None:
    """As a report says it: no launch adds more than `rounding_error`, however many steps it
    makes.
    """
    stencil = stencil_of(name)
    (_, rings), *_ = [case for case in mixed_boundaries(stencil.ndim) if case[0] == "periodic"]
    problem, state = make_problem(stencil, rings, dtype="float16", shape=SHAPES[stencil.ndim])
    exact = dataclasses.replace(problem, dtype=np.dtype(np.float64))
    parameters, gpu = with_steps(problem, 7), HostGpu()
    depth, launches = parameters[STEPS_PER_BLOCK], 4
    found = run(SPARSE, problem, parameters, gpu, (launches * depth,))  # type: ignore[arg-type]
    wanted = reference.advance(state.astype(np.float64), exact, launches * depth)
    error = float(np.abs(found.astype(np.float64) - wanted).max())
    assert error <= reference.rounding_error(problem, launches, float(np.abs(state).max()))
    assert error > 2.0**-13 * float(np.abs(wanted).max())  # it is float16, not something better
    assert set(gpu.launches) == {"ghosts", "sparse_stencil"}


@pytest.mark.parametrize("name", catalogue())
def test_rounded_weights_are_off_by_no_more_than_the_tolerance_takes_for_granted(name: str) -> None:
    """The bound of `reference.rounding_error`: 3 u times the sum of their magnitudes, u = 2^-11."""
    stencil = catalogue()[name].repeatable
    if sparse_refusal(stencil, np.float16) is not None:
        return
    for steps in {each[STEPS_PER_BLOCK] for each in sparse_parameters(stencil, np.float16)}:
        fused = stencil.power(steps)
        rounded = round_weights(fused)
        off = sum(abs(a - b) for a, b in zip(fused.weights, rounded.weights, strict=True))
        assert (
            off
            <= 3 * reference.HALF_PLACE * sum(map(abs, fused.weights)) + fused.n_points * 2.0**-25
        )


def test_what_it_refuses_names_the_precision() -> None:
    for ndim, name in ((1, "heat-1d"), (2, "heat-2d"), (3, "heat-3d")):
        boundary = next(itertools.islice(mixed_boundaries(ndim), 1))[1]
        for dtype in ("float64", "float32"):
            problem, _ = make_problem(stencil_of(name), boundary, dtype=dtype)
            why_not = SPARSE.refusal(problem)
            assert why_not is not None
            assert "float16" in why_not
            assert dtype in why_not
