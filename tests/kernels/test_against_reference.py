"""Every method x stencil x boundary x dtype x number of steps against the plain NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases import (
    CUSTOM,
    SHAPES,
    check_the_first_nan_is_named,
    make_problem,
    mixed_boundaries,
    run,
)
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Periodic
from tetris_sim.model.method import Method
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil

UPWIND = Stencil(((0, 0), (0, -1), (-2, 0)), (0.5, 0.25, 0.25))
NAMED = {name: named_stencil(name).stencil for name in STENCIL_NAMES}
STENCILS = {**NAMED, **CUSTOM, "upwind": UPWIND}
# What a change is tried on: each number of axes, near and far neighbours, stars, boxes and a skew
# shape. Every stencil is compiled apart; all of them take ten minutes (--run-full).
ALWAYS = ("star-1d5p", "heat-2d", "box-2d25p", "upwind", "heat-3d", "box-3d27p")
SINGLE = ("star-1d5p", "heat-2d", "box-3d27p")  # of those, in single precision too
BLOCKS = (1, 2, 4)  # odd and even ones, so that both arrays serve as source
STEPS = sum(BLOCKS)
SMALLEST = {1: (3,), 2: (3, 3), 3: (1, 1, 1)}  # as small as the radius of some stencil allows


def cases() -> list[pytest.param]:  # type: ignore[valid-type]
    """Pairwise: every stencil meets every kind of face and both dtypes. All products with
    --run-full.
    """
    found = []
    for name, stencil in STENCILS.items():
        for index, (kind, boundary) in enumerate(mixed_boundaries(stencil.ndim)):
            for dtype in ("float64", "float32"):
                usual = name in (ALWAYS if dtype == "float64" else SINGLE) and (
                    index < 5 or (index + (dtype == "float32")) % 4 == len(name) % 4
                )
                marks = () if usual else (pytest.mark.full,)
                found.append(
                    pytest.param(name, boundary, dtype, id=f"{name}-{kind}-{dtype}", marks=marks)
                )
    return found


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(("name", "boundary", "dtype"), cases())
def test_a_method_agrees_with_the_reference(
    method: Method, name: str, boundary: Boundary, dtype: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = STENCILS[name]
    for shape in (
        SHAPES[stencil.ndim],
        tuple(max(pair) for pair in zip(stencil.radii, SMALLEST[stencil.ndim], strict=True)),
    ):
        problem, state = make_problem(stencil, boundary, dtype=dtype, shape=shape, n_fields=2)
        expected = reference.advance(state, problem, STEPS)
        largest = max(
            reference.largest_magnitude(state, problem),
            reference.largest_magnitude(expected, problem),
        )
        results = [run(method, problem, {}, team, BLOCKS) for team in teams.values()]
        assert results[0].dtype == np.dtype(dtype)
        np.testing.assert_allclose(
            results[0], expected, rtol=0, atol=reference.tolerance(problem, STEPS, largest)
        )
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ALWAYS else (pytest.mark.full,)) for name in STENCILS],
)
def test_plain_computes_float16_in_float32_and_rounds_once_a_step(
    name: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = STENCILS[name]
    for _, boundary in mixed_boundaries(stencil.ndim):
        problem, state = make_problem(stencil, boundary, dtype="float16", n_fields=2)
        expected = reference.advance(state, problem, STEPS)
        largest = max(
            reference.largest_magnitude(state, problem),
            reference.largest_magnitude(expected, problem),
        )
        results = [run(METHODS[-1], problem, {}, team, BLOCKS) for team in teams.values()]
        allowed = reference.tolerance(problem, STEPS, largest)
        np.testing.assert_allclose(
            results[0].astype(float), expected.astype(float), rtol=0, atol=allowed
        )
        # Both round the same sums, which differ in float32 only: hardly ever to different float16s.
        once = run(METHODS[-1], problem, {}, teams[1], (1, 0))
        after = reference.advance(state, problem, 1)
        assert np.mean(once != after) < 0.02
        for other in results:
            assert other.dtype == np.float16
            np.testing.assert_array_equal(other, results[0])


def test_methods_in_blocks_leave_float16_to_plain() -> None:
    problem, _ = make_problem(
        STENCILS["heat-2d"], Boundary.everywhere(Periodic(), 2), dtype="float16"
    )
    refusals = {method.name: method.refusal(problem) for method in METHODS}
    assert refusals.pop("cpu.plain") is None
    assert all(why is not None and "float16" in why for why in refusals.values())


def test_a_shift_by_one_point_is_exact_on_a_periodic_grid(teams: dict[int, ThreadTeam]) -> None:
    stencil = Stencil(((1, -2),), (1.0,))
    problem, state = make_problem(stencil, Boundary.everywhere(Periodic(), 2))
    weight = problem.stencil.weights[0]
    result = run(METHODS[-1], problem, {}, teams[2], (1, 2, 2))
    np.testing.assert_array_equal(result, weight**5 * np.roll(state, (-5, 10), axis=(1, 2)))


def test_the_first_box_with_a_nan_is_named(teams: dict[int, ThreadTeam]) -> None:
    check_the_first_nan_is_named(METHODS[-1], teams[2])
