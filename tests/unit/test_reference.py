from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil

SPACING = {1: (0.5,), 2: (0.5, 0.3), 3: (0.5, 0.3, 0.2)}
SHAPE = {1: (7,), 2: (4, 5), 3: (3, 5, 4)}
KINDS: dict[str, tuple[Face, Face]] = {
    "dirichlet": (Dirichlet(1.5), Dirichlet(-2.0)),
    "fixed": (Fixed(0.7), Fixed(-0.3)),
    "neumann": (Neumann(3.0, 2.0), Neumann(-1.0, 2.0)),
    "robin": (Robin(4.0, 0.5, 1.5), Robin(0.1, 10.0, 1.5)),
    "mixed": (Dirichlet(0.4), Robin(2.0, -1.0)),
    "periodic": (Periodic(), Periodic()),
}


def ghost_rows(faces: tuple[Face, Face], n: int, radius: int, spacing: float) -> tuple[Any, Any]:
    """Matrix and vector that extend n values of one axis by their ghosts, written down from the
    definitions.
    """
    matrix = np.zeros((n + 2 * radius, n))
    vector = np.zeros(n + 2 * radius)
    matrix[radius : radius + n] = np.eye(n)
    for j in range(1, radius + 1):
        d = (2 * j - 1) * spacing
        for row, mirror, wrapped, face in (
            (radius - j, j - 1, n - j, faces[0]),
            (radius + n - 1 + j, n - j, j - 1, faces[1]),
        ):
            match face:
                case Periodic():
                    matrix[row, wrapped] = 1
                case Dirichlet(value):
                    matrix[row, mirror], vector[row] = -1, 2 * value
                case Fixed(value):
                    vector[row] = value
                case Neumann(flux, conductivity):
                    matrix[row, mirror], vector[row] = 1, d * flux / conductivity
                case Robin(h, ambient, conductivity):
                    below = 2 * conductivity + h * d
                    matrix[row, mirror] = (2 * conductivity - h * d) / below
                    vector[row] = 2 * h * d * ambient / below
    return matrix, vector


def dense_step(
    stencil: Stencil, boundary: Boundary, spacing: tuple[float, ...], shape: tuple[int, ...]
) -> Any:
    """One step as u -> A u + c on the flattened field: extend axis after axis, then sum."""
    matrix, vector = np.eye(math.prod(shape)), np.zeros(math.prod(shape))
    now = list(shape)
    for axis, radius in enumerate(stencil.radii):
        extend, constant = ghost_rows(boundary.faces[axis], now[axis], radius, spacing[axis])
        before, after = math.prod(now[:axis]), math.prod(now[axis + 1 :])
        along = np.kron(np.kron(np.eye(before), extend), np.eye(after))
        matrix = along @ matrix
        vector = along @ vector + np.kron(np.kron(np.ones(before), constant), np.ones(after))
        now[axis] += 2 * radius
    total = np.zeros((math.prod(shape), math.prod(now)))
    for row, point in enumerate(itertools.product(*map(range, shape))):
        for offset, weight in stencil.terms.items():
            place = [i + c + r for i, c, r in zip(point, offset, stencil.radii, strict=True)]
            total[row, np.ravel_multi_index(place, now)] += weight
    return total @ matrix, total @ vector


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_a_step_is_the_product_with_the_dense_matrix(name: str, kind: str) -> None:
    stencil = named_stencil(name).stencil
    ndim = stencil.ndim
    low, high = KINDS[kind]
    boundary = Boundary(
        tuple((low, high) if axis % 2 == 0 else (high, low) for axis in range(ndim))
    )
    u = np.random.default_rng(1).uniform(-1, 2, (1, *SHAPE[ndim]))
    matrix, vector = dense_step(stencil, boundary, SPACING[ndim], SHAPE[ndim])
    expected = (matrix @ u.ravel() + vector).reshape(u.shape)
    result = reference.step(u, stencil, boundary, SPACING[ndim])
    largest = max(float(np.abs(u).max()), 10 * float(np.abs(vector).max()), 40.0)
    np.testing.assert_allclose(
        result, expected, rtol=0, atol=4 * (stencil.n_points + 8) * 2.0**-52 * largest
    )


def test_axes_with_different_kinds_of_faces_do_not_get_mixed_up() -> None:
    stencil = named_stencil("box-3d27p").stencil
    boundary = Boundary((KINDS["periodic"], KINDS["robin"], KINDS["mixed"]))
    u = np.random.default_rng(2).uniform(-1, 2, (1, 3, 5, 4))
    matrix, vector = dense_step(stencil, boundary, SPACING[3], (3, 5, 4))
    expected = (matrix @ u.ravel() + vector).reshape(u.shape)
    np.testing.assert_allclose(
        reference.step(u, stencil, boundary, SPACING[3]), expected, rtol=0, atol=1e-12
    )


def test_ghosts_of_axis_0_come_first_and_corners_from_the_later_axis() -> None:
    u = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    padded = reference.with_ghosts(
        u, Boundary(((Fixed(10.0),) * 2, (Neumann(),) * 2)), (1.0, 1.0), (1, 1)
    )
    np.testing.assert_array_equal(
        padded[0], [[10, 10, 10, 10], [1, 1, 2, 2], [3, 3, 4, 4], [10, 10, 10, 10]]
    )
    padded = reference.with_ghosts(
        u, Boundary(((Neumann(),) * 2, (Fixed(10.0),) * 2)), (1.0, 1.0), (1, 1)
    )
    np.testing.assert_array_equal(
        padded[0], [[10, 1, 2, 10], [10, 1, 2, 10], [10, 3, 4, 10], [10, 3, 4, 10]]
    )


def make_problem(stencil: Stencil, dtype: npt.DTypeLike, n_fields: int = 1) -> Problem:
    ndim = stencil.ndim

    def initial(slab: Slab) -> Field:
        return np.zeros((n_fields, *slab.shape), dtype=dtype)

    total = Total("integral", "1", 1.0)
    return Problem(
        grid=Grid(SHAPE[ndim], SPACING[ndim], (0.0,) * ndim),
        stencil=stencil,
        boundary=Boundary.everywhere(KINDS["mixed"][0], ndim),
        initial=initial,
        dt=1.0,
        steps=4,
        dtype=np.dtype(dtype),
        variables=tuple(StateVariable(f"u{k}", "1", "u", total) for k in range(n_fields)),
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_advance_takes_the_steps_one_after_the_other_in_the_dtype_of_the_problem(
    dtype: Any,
) -> None:
    stencil = named_stencil("heat-2d").stencil
    problem = make_problem(stencil, dtype)
    u = np.random.default_rng(3).uniform(-1, 1, problem.state_shape).astype(dtype)
    expected = u
    for _ in range(4):
        expected = reference.step(expected, stencil, problem.boundary, problem.grid.spacing)
    result = reference.advance(u, problem, 4)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(reference.advance(u, problem, 0), u)


def test_fields_do_not_see_each_other() -> None:
    problem = make_problem(named_stencil("heat-2d").stencil, np.float64, n_fields=2)
    u = np.random.default_rng(4).uniform(-1, 1, problem.state_shape)
    together = reference.advance(u, problem, 3)
    for k in range(2):
        np.testing.assert_array_equal(together[k], reference.advance(u[k : k + 1], problem, 3)[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_the_tolerance_covers_rounding_and_little_more(name: str, dtype: Any) -> None:
    # Against a computation in extended precision: below the tolerance, and within what its
    # derivation gives away (each rounding at its worst, all in one direction: a factor of the
    # number of roundings, not of millions).
    problem = make_problem(named_stencil(name).stencil, dtype)
    u = np.random.default_rng(5).uniform(-1, 1, problem.state_shape).astype(dtype)
    rounded = Stencil(
        problem.stencil.offsets,
        tuple(float(problem.arithmetic.type(w)) for w in problem.stencil.weights),
    )
    exact = u.astype(np.longdouble)
    for _ in range(8):
        exact = reference.step(exact, rounded, problem.boundary, problem.grid.spacing)
    error = float(np.abs(reference.advance(u, problem, 8) - exact).max())
    bound = reference.tolerance(problem, 8, reference.largest_magnitude(u, problem))
    assert error <= bound <= max(error, float(np.finfo(dtype).eps) / 4) * 1e5


def test_the_largest_magnitude_counts_ghosts() -> None:
    problem = make_problem(
        named_stencil("heat-1d").stencil, np.float64
    )  # a Dirichlet value of 0.4 on each face
    u = np.zeros(problem.state_shape)
    u[0, 3] = -3.0
    assert reference.largest_magnitude(u, problem) == pytest.approx(2 * 0.4 + 3.0)
