"""Which bodies make the step of one stencil, and which faces have a course."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.conduction_cases import (
    Case,
    affine,
    by_formula,
    closed,
    graded,
    heating,
    held,
    insulated,
    patchy,
    waving,
)
from tetris_sim.apps.heat.conduction import GradedCoefficients
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import RuledFace, padded
from tetris_sim.model.deep_ghosts import contradictions, lasting_sides
from tetris_sim.model.grid import Coordinates, Grid
from tetris_sim.model.lowering import (
    axis_weights,
    face_course,
    one_stencil,
    padded_weights,
    stepwise,
)
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

PLATE = Case("plate", (13, 17), 1, closed).problem()


def with_faces(*faces: RuledFace) -> Problem:
    """A plate of one material with these at y-, y+, x- and x+."""
    low, high, left, right = faces
    return replace(PLATE, boundary=Boundary(((low, high), (left, right))))


@pytest.mark.parametrize("shape", [(31,), (13, 17), (7, 9, 11)])
def test_the_stencil_makes_the_step_of_a_body_of_one_material(shape: tuple[int, ...]) -> None:
    body = Case("body", shape, 1, closed).problem()
    stencil = one_stencil(body)
    assert stencil is not None
    assert abs(sum(stencil.weights) - 1) < 1e-15
    state = body.initial(Slab.whole(body.grid))
    inside = (slice(None), *(slice(1, -1) for _ in shape))
    wanted = reference.advance(state, body, 1)[inside]
    found = np.zeros_like(wanted)
    for offset, weight in stencil.terms.items():
        box = tuple(slice(1 + by, n - 1 + by) for by, n in zip(offset, shape, strict=True))
        found += weight * state[(slice(None), *box)]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "problem",
    [
        Case("two", (13, 17), 2, closed).problem(),
        Case("heated", (13, 17), 1, closed, heating(1, changes=False)).problem(),
        Case("half", (13, 17), 1, closed, None, np.float16).problem(),
    ],
)
def test_a_body_that_differs_or_is_heated_has_no_stencil(problem: Problem) -> None:
    assert one_stencil(problem) is None


@pytest.mark.parametrize("shape", [(23,), (13, 17), (7, 9, 11)])
@pytest.mark.parametrize("face", [closed, lambda axis, side, n_ids: None])
def test_weights_of_graded_axes_make_the_step(shape: tuple[int, ...], face: Any) -> None:
    body = graded(shape, face, alike=True)
    weights = axis_weights(body)
    assert weights is not None
    state = body.initial(Slab.whole(body.grid))
    rings = [body.boundary.periodic(axis) for axis in range(len(shape))]
    around = tuple((-1, n + 1) for n in shape)
    ghosts = padded(lambda box: state[0][tuple(slice(*it) for it in box)], around, shape, rings)
    found = state[0].copy()
    for axis, n in enumerate(shape):
        wide = padded_weights(body, weights[axis], axis, (-2, n + 2))
        np.testing.assert_array_equal(wide[2:-2], weights[axis])
        # Weights of images: of a ring, or with the faces the other way round.
        images = weights[axis][[-1, 0]] if rings[axis] else weights[axis][[0, -1], ::-1]
        np.testing.assert_array_equal(wide[[1, -2]], images)
        for side, by in ((0, -1), (1, 1)):
            beside = tuple(
                slice(1 + by * (k == axis), m + 1 + by * (k == axis)) for k, m in enumerate(shape)
            )
            along = [-1 if k == axis else 1 for k in range(len(shape))]
            found += weights[axis][:, side].reshape(along) * (ghosts[beside] - state[0])
    np.testing.assert_allclose(found, reference.advance(state, body, 1)[0], rtol=0, atol=4e-15)


@pytest.mark.parametrize(
    ("axes", "separates"), [(("r", "z"), True), (("r", "theta"), False), (("x", "y"), True)]
)
def test_weights_along_an_axis_may_depend_on_another_one(
    axes: tuple[str, ...], separates: bool
) -> None:
    kind = "cartesian" if axes == ("x", "y") else "cylindrical"
    system = Coordinates(kind, axes)  # type: ignore[arg-type]
    grid = Grid((9, 8), (0.1, 0.2), (0.05, 0.1), system=system)
    assert PLATE.conduction is not None
    medium = PLATE.conduction.medium
    none = np.zeros((2, 1, 1))
    given = GradedCoefficients(
        grid, medium, np.full((2, 1), 0.7), np.full((2, 1), np.nan), none, none, (False, False)
    )
    conduction = replace(PLATE.conduction, coefficients=given)
    body = replace(PLATE, grid=grid, conduction=conduction)
    assert (axis_weights(body) is not None) == separates


def test_weights_of_axes_need_one_kind_of_material() -> None:
    assert axis_weights(PLATE) is None
    assert axis_weights(graded((13, 17), closed)) is None


@pytest.mark.parametrize(
    ("face", "b"),
    [
        (waving(1.0, 50.0), -1.0),
        (affine(np.array([0.2]), np.array([0.8])), 0.8),
        (affine(lambda t: np.sin(t)[:, None], np.array([0.3])), 0.3),
        (affine(np.array([0.2]), lambda t: np.cos(t)[:, None]), None),
        (affine(np.array([0.2]), np.array([1.5])), None),
        (patchy(1), None),
        (by_formula("mirror/2 + 1"), None),
    ],
)
def test_a_face_has_a_course_if_only_what_is_added_changes(face: Any, b: float | None) -> None:
    found = face_course(face)
    assert (None if found is None else found.b) == b
    problem = with_faces(face, insulated(), insulated(), insulated())
    assert lasting_sides(problem, Slab.whole(problem.grid))[0][0] == (b is not None)
    again = lasting_sides(stepwise(problem), Slab.whole(problem.grid))
    assert again == ((False, True), (True, True))


def test_faces_that_change_contradict_all_but_insulated_ones() -> None:
    problem = with_faces(waving(1.0, 50.0), held(0.0), insulated(), waving(1.0, 50.0))
    found = contradictions(problem, Slab.whole(problem.grid))
    assert found == (((0, 0), (1, 1)), ((0, 1), (1, 1)))


def test_weights_that_are_too_small_have_no_course() -> None:
    problem = with_faces(waving(1.0, 50.0), insulated(), insulated(), insulated())
    slow = replace(problem, dt=problem.dt / 300)
    assert not lasting_sides(slow, Slab.whole(slow.grid))[0][0]
