from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.stencil import (
    Stencil,
    add,
    compose,
    euler_step,
    identity,
    largest_stable_dt,
    scale,
)
from tetris_sim.model.stencils.catalogue import (
    STENCIL_NAMES,
    laplacian,
    laplacian_names,
    named_stencil,
)

Array = npt.NDArray[np.float64]
SHAPES = {1: (11,), 2: (7, 9), 3: (5, 7, 6)}
SPACINGS = {1: (0.5,), 2: (0.5, 0.3), 3: (0.5, 0.3, 0.2)}


@st.composite
def stencils(draw: st.DrawFn, *, ndim: int | None = None, reach: int = 2) -> Stencil:
    """Stencils with a few random points and weights between -1 and 1."""
    n_axes = ndim if ndim is not None else draw(st.integers(1, 3))
    component = st.integers(-reach, reach)
    offsets = draw(st.lists(st.tuples(*[component] * n_axes), min_size=1, max_size=6, unique=True))
    weight = st.floats(-1, 1, allow_nan=False, allow_subnormal=False)
    weights = draw(st.lists(weight, min_size=len(offsets), max_size=len(offsets)))
    return Stencil(tuple(offsets), tuple(weights))


def apply_periodic(stencil: Stencil, u: Array) -> Array:
    """One application on a torus, written with np.roll and nothing of ours."""
    axes = tuple(range(u.ndim))
    total = np.zeros_like(u)
    for offset, weight in stencil.terms.items():
        total += weight * np.roll(u, tuple(-c for c in offset), axis=axes)
    return total


def matrix_of(
    stencil: Stencil, boundary: Boundary, spacing: tuple[float, ...], shape: tuple[int, ...]
) -> Array:
    """The linear part of one step as a dense matrix: a column per point, from one step of each unit
    field.
    """
    n = math.prod(shape)
    units = np.eye(n).reshape(n, *shape)
    zero = np.zeros((1, *shape))
    columns = reference.step(units, stencil, boundary, spacing) - reference.step(
        zero, stencil, boundary, spacing
    )
    return np.asarray(columns.reshape(n, n).T, dtype=np.float64)


@given(stencil=stencils(), steps=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_a_composed_stencil_does_what_its_steps_do_one_after_the_other(
    stencil: Stencil, steps: int, seed: int
) -> None:
    u = np.random.default_rng(seed).uniform(-1, 1, SHAPES[stencil.ndim])
    one_by_one = u
    for _ in range(steps):
        one_by_one = apply_periodic(stencil, one_by_one)
    at_once = apply_periodic(stencil.power(steps), u)
    gain = sum(map(abs, stencil.weights))
    roundings = 2 * (stencil.n_points + 2) * steps + stencil.power(steps).n_points
    bound = roundings * np.finfo(float).eps * max(1.0, gain) ** steps
    np.testing.assert_allclose(at_once, one_by_one, rtol=0, atol=bound)


@given(stencil=stencils(), steps=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_composed_stencil_reaches_exactly_as_many_times_as_far(
    stencil: Stencil, steps: int
) -> None:
    assert stencil.power(steps).radii == tuple(steps * radius for radius in stencil.radii)


@given(stencil=stencils(ndim=2), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_symbol_is_the_factor_of_a_wave(stencil: Stencil, seed: int) -> None:
    shape = (8, 12)
    k = np.random.default_rng(seed).integers(0, 8, 2)
    theta = 2 * np.pi * k / np.array(shape)
    phase = theta[0] * np.arange(shape[0])[:, None] + theta[1] * np.arange(shape[1])
    wave = np.exp(1j * phase)
    result = apply_periodic(stencil, wave.real) + 1j * apply_periodic(stencil, wave.imag)
    np.testing.assert_allclose(result, stencil.symbol(theta) * wave, rtol=0, atol=1e-13)


def test_the_order_in_which_terms_are_given_does_not_matter() -> None:
    offsets, weights = ((0, 1), (-1, 0), (0, 0)), (0.5, 0.25, 0.125)
    expected = Stencil(offsets, weights)
    for order in itertools.permutations(range(3)):
        assert (
            Stencil(tuple(offsets[k] for k in order), tuple(weights[k] for k in order)) == expected
        )
    assert expected.offsets == ((-1, 0), (0, 0), (0, 1))


def test_radii_are_per_axis_and_the_radius_is_the_largest() -> None:
    stencil = Stencil(((0, -3), (1, 0)), (0.5, 0.5))
    assert (stencil.radii, stencil.radius, stencil.n_points, stencil.ndim) == ((1, 3), 3, 2, 2)


def test_sums_multiples_and_compositions_are_those_of_the_operators() -> None:
    rng = np.random.default_rng(0)
    first, second = Stencil(((0, 1), (-1, 0)), (0.5, 0.25)), Stencil(((0, 1), (2, 0)), (-0.5, 1.0))
    u = rng.uniform(-1, 1, (6, 7))

    def same(found: Array, expected: Array) -> None:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)

    same(
        apply_periodic(add(first, second), u), apply_periodic(first, u) + apply_periodic(second, u)
    )
    same(apply_periodic(scale(first, -3.0), u), -3 * apply_periodic(first, u))
    same(
        apply_periodic(compose(first, second), u), apply_periodic(second, apply_periodic(first, u))
    )
    np.testing.assert_array_equal(apply_periodic(identity(2), u), u)


def test_symmetry_means_equal_weights_at_opposite_offsets() -> None:
    assert Stencil(((-1,), (0,), (1,)), (0.25, 0.5, 0.25)).symmetric
    assert not Stencil(((-1,), (0,), (1,)), (0.25, 0.5, 0.2)).symmetric
    assert not Stencil(((0,), (1,)), (0.5, 0.5)).symmetric


def test_a_star_reads_along_the_axes_only() -> None:
    stars = {name for name in STENCIL_NAMES if named_stencil(name).stencil.is_star}
    assert {"heat-1d", "heat-2d", "star-2d9p", "heat-3d"} <= stars
    assert stars.isdisjoint({"box-2d9p", "box-2d25p", "box-3d27p"})


@given(stencil=stencils(ndim=3))
def test_the_dense_weights_are_those_of_the_terms_and_turn_around_with_the_stencil(
    stencil: Stencil,
) -> None:
    box = stencil.dense()
    assert box.shape == tuple(2 * radius + 1 for radius in stencil.radii)
    for offset in itertools.product(*(range(-radius, radius + 1) for radius in stencil.radii)):
        place = tuple(c + radius for c, radius in zip(offset, stencil.radii, strict=True))
        assert box[place] == stencil.terms.get(offset, 0.0)
    if 0.0 not in stencil.weights:  # of which the box does not tell whether they are there
        for axis in range(3):
            assert stencil.is_mirrored(axis) == np.array_equal(box, np.flip(box, axis))


def test_a_stencil_can_be_mirrored_along_some_axes_only() -> None:
    upwind = Stencil(((-1, 0), (0, -1), (0, 0), (0, 1)), (0.25, 0.25, 0.25, 0.25))
    assert not upwind.is_mirrored(0)
    assert upwind.is_mirrored(1)
    assert not Stencil(((-1, 0), (1, 0)), (0.25, 0.5)).is_mirrored(0)


@pytest.mark.parametrize(
    ("offsets", "weights", "complaint"),
    [
        ((), (), "one weight per offset"),
        (((0,), (1,)), (1.0,), "one weight per offset"),
        (((0,), (0, 1)), (1.0, 1.0), "same 1, 2 or 3 components"),
        (((0, 0, 0, 0),), (1.0,), "same 1, 2 or 3 components"),
        (((0,), (0,)), (0.5, 0.5), "more than once"),
        (((0,),), (math.nan,), "finite"),
        (((0,),), (math.inf,), "finite"),
    ],
)
def test_a_stencil_that_makes_no_sense_is_refused(
    offsets: tuple[tuple[int, ...], ...], weights: tuple[float, ...], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Stencil(offsets, weights)


def test_a_stencil_is_composed_at_least_once() -> None:
    with pytest.raises(ValueError, match="1 or more times"):
        identity(1).power(0)


def torus_eigenvalues(stencil: Stencil, shape: tuple[int, ...]) -> npt.NDArray[np.complex128]:
    """Eigenvalues of one application on a torus: the Fourier transform of its response to a unit
    impulse.
    """
    impulse = np.zeros(shape)
    impulse[(0,) * len(shape)] = 1.0
    return np.asarray(np.fft.fftn(apply_periodic(stencil, impulse)).ravel())


@given(stencil=stencils(ndim=2, reach=2))
@settings(max_examples=40, deadline=None)
def test_the_spectral_radius_is_that_of_a_large_torus(stencil: Stencil) -> None:
    brute = float(np.abs(torus_eigenvalues(stencil, (210, 198))).max())
    # A sample can only be too small: the largest wave lies within half a sample of one of the
    # torus, and there |symbol| is smaller by at most its curvature times the distance squared.
    curvature = sum(abs(w) * sum(c * c for c in o) for o, w in stencil.terms.items()) + 1.0
    spacing = np.pi / 198
    assert brute <= stencil.spectral_radius * (1 + 1e-12) + 1e-12
    assert stencil.spectral_radius <= brute + 4 * curvature * spacing * max(1.0, brute)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_the_largest_stable_step_is_that_of_the_periodic_matrix(ndim: int) -> None:
    for name in laplacian_names(ndim):
        operator = laplacian(name, SPACINGS[ndim])
        eigenvalues = torus_eigenvalues(
            operator, (8, 12, 10)[:ndim]
        )  # even: the checkerboard wave exists
        assert np.abs(eigenvalues.imag).max() < 1e-9
        assert largest_stable_dt(operator) == pytest.approx(-2 / eigenvalues.real.min(), rel=1e-12)


FACES: tuple[Face, ...] = (
    Dirichlet(1.0),
    Fixed(0.5),
    Neumann(flux=2.0),
    Robin(3.0, 1.0),
    Robin(300.0, 1.0),
)


@pytest.mark.parametrize("name", [name for ndim in (1, 2, 3) for name in laplacian_names(ndim)])
def test_at_the_largest_stable_step_no_reflecting_face_makes_anything_grow(name: str) -> None:
    ndim = int(name[name.index("-") + 1])
    operator = laplacian(name, SPACINGS[ndim])
    step = euler_step(operator, largest_stable_dt(operator))
    shape = {1: (9,), 2: (5, 6), 3: (3, 4, 3)}[ndim]
    for low, high in itertools.product(FACES, repeat=2):
        boundary = Boundary(tuple([(low, high), (high, low), (low, low)][:ndim]))
        eigenvalues = np.linalg.eigvals(matrix_of(step, boundary, SPACINGS[ndim], shape))
        assert float(np.abs(eigenvalues).max()) <= 1 + 1e-10


@given(
    terms=st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(-2, 2)), st.floats(-1, 1), min_size=1, max_size=5
    )
)
@settings(max_examples=40, deadline=None)
def test_the_spectral_radius_of_a_symmetric_stencil_bounds_every_reflecting_matrix(
    terms: dict[tuple[int, int], float],
) -> None:
    both: dict[tuple[int, ...], float] = {}
    for (i, j), weight in terms.items():
        both[(i, j)] = weight
        both[(-i, -j)] = weight
    stencil = Stencil.from_terms(both)
    assert stencil.symmetric
    for face in FACES:
        boundary = Boundary(((face, FACES[0]), (FACES[2], face)))
        eigenvalues = np.linalg.eigvals(matrix_of(stencil, boundary, (1.0, 0.7), (4, 5)))
        assert float(np.abs(eigenvalues).max()) <= stencil.spectral_radius * (1 + 1e-9) + 1e-6


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_step_above_the_limit_makes_some_wave_grow(ndim: int) -> None:
    for name in laplacian_names(ndim):
        operator = laplacian(name, SPACINGS[ndim])
        limit = largest_stable_dt(operator)
        assert euler_step(operator, limit).spectral_radius <= 1 + 1e-12
        assert euler_step(operator, 1.001 * limit).spectral_radius > 1 + 1e-4


def test_an_operator_that_makes_waves_grow_has_no_stable_step() -> None:
    assert largest_stable_dt(Stencil(((-1,), (0,), (1,)), (-1.0, 2.0, -1.0))) == 0.0


def test_central_advection_has_no_stable_step_and_upwind_advection_that_of_courant() -> None:
    assert largest_stable_dt(Stencil(((-1,), (1,)), (0.5, -0.5))) == 0.0
    upwind = Stencil(((-1,), (0,)), (4.0, -4.0))
    assert largest_stable_dt(upwind) == pytest.approx(0.25, rel=1e-9)


def test_an_operator_that_is_zero_allows_any_step() -> None:
    assert largest_stable_dt(Stencil(((0,),), (0.0,))) == math.inf


def test_fusing_steps_does_not_change_which_steps_are_stable() -> None:
    for name in STENCIL_NAMES:
        stencil = named_stencil(name).stencil
        assert stencil.power(2).spectral_radius == pytest.approx(
            stencil.spectral_radius**2, rel=1e-12
        )


def test_the_matrix_of_a_periodic_step_has_the_eigenvalues_of_its_symbol() -> None:
    stencil = Stencil(((-1, 0), (0, 0), (0, 1), (1, -1)), (0.3, 0.4, -0.2, 0.1))
    shape = (4, 5)
    eigenvalues = np.linalg.eigvals(
        matrix_of(stencil, Boundary.everywhere(Periodic(), 2), (1.0, 1.0), shape)
    )
    theta = np.stack(
        np.meshgrid(*[2 * np.pi * np.arange(n) / n for n in shape], indexing="ij")
    ).reshape(2, -1)
    for factor in stencil.symbol(theta):
        assert np.abs(eigenvalues - factor).min() < 1e-12
