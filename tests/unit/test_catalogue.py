from __future__ import annotations

import itertools
import math

import pytest

from tetris_sim.model.stencil import Offset, Stencil
from tetris_sim.model.stencils.catalogue import (
    STENCIL_NAMES,
    box_laplacian,
    laplacian,
    laplacian_names,
    named_stencil,
    second_derivative,
)

SPACINGS = {1: (0.5,), 2: (0.5, 0.3), 3: (0.5, 0.3, 0.2)}
POINTS = {
    "heat-1d": 3,
    "star-1d5p": 5,
    "heat-2d": 5,
    "star-2d9p": 9,
    "star-2d13p": 13,
    "box-2d9p": 9,
    "box-2d25p": 25,
    "box-2d49p": 49,
    "heat-3d": 7,
    "box-3d27p": 27,
}
ORDERS = {"heat": 2, "star-1d5p": 4, "star-2d9p": 4, "star-2d13p": 6, "box": 2}
LAPLACIANS = [(name, ndim) for ndim in (1, 2, 3) for name in laplacian_names(ndim)]


def accuracy(name: str) -> int:
    return next(order for start, order in ORDERS.items() if name.startswith(start))


def moment(stencil: Stencil, spacing: tuple[float, ...], powers: tuple[int, ...]) -> float:
    """What the stencil makes of the polynomial prod x_k^powers[k] at x = 0."""

    def term(offset: Offset, weight: float) -> float:
        return weight * math.prod(
            (c * h) ** p for c, h, p in zip(offset, spacing, powers, strict=True)
        )

    return math.fsum(term(offset, weight) for offset, weight in stencil.terms.items())


def test_the_catalogue_holds_the_stencils_that_the_papers_name() -> None:
    assert set(STENCIL_NAMES) == set(POINTS)


@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_a_named_stencil_has_the_points_its_name_says(name: str) -> None:
    stencil = named_stencil(name).stencil
    assert stencil.n_points == POINTS[name]
    assert f"{stencil.ndim}d" in name
    if name.startswith(("heat", "star")):
        assert all(sum(c != 0 for c in offset) <= 1 for offset in stencil.offsets)
    else:
        assert stencil.n_points == (2 * stencil.radius + 1) ** stencil.ndim


@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_default_weights_sum_to_one_keep_every_wave_bounded_and_favour_no_side(name: str) -> None:
    stencil = named_stencil(name).stencil
    eps = 2.0**-52
    assert abs(math.fsum(stencil.weights) - 1) <= stencil.n_points * eps
    assert stencil.spectral_radius <= 1 + 1e-14
    for offset, weight in stencil.terms.items():
        for signs in itertools.product((-1, 1), repeat=stencil.ndim):
            assert stencil.terms[tuple(s * c for s, c in zip(signs, offset, strict=True))] == weight
        for order in itertools.permutations(range(stencil.ndim)):
            # Binomial weights are products, whose rounding depends on the order of the factors;
            # others are exact.
            assert stencil.terms[tuple(offset[k] for k in order)] == pytest.approx(
                weight, rel=4 * eps
            )


@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_a_named_stencil_says_where_its_weights_come_from(name: str) -> None:
    named = named_stencil(name)
    assert named.name == name
    assert len(named.description) > 20


@pytest.mark.parametrize(("name", "ndim"), LAPLACIANS)
def test_a_laplacian_is_exact_for_polynomials_up_to_its_order(name: str, ndim: int) -> None:
    spacing, order = SPACINGS[ndim], accuracy(name)
    operator = laplacian(name, spacing)
    size = sum(
        abs(weight) for weight in operator.weights
    )  # rounding is relative to the terms, not to their sum
    for powers in itertools.product(range(order + 2), repeat=ndim):
        if sum(powers) > order + 1:
            continue
        exact = 2.0 if sorted(powers) == [0] * (ndim - 1) + [2] else 0.0
        assert moment(operator, spacing, powers) == pytest.approx(exact, abs=4 * 2.0**-52 * size), (
            powers
        )


@pytest.mark.parametrize(("name", "ndim"), LAPLACIANS)
def test_a_laplacian_is_not_exact_beyond_its_order(name: str, ndim: int) -> None:
    spacing, order = SPACINGS[ndim], accuracy(name)
    for axis in range(ndim):
        powers = tuple(order + 2 if k == axis else 0 for k in range(ndim))
        assert (
            abs(moment(laplacian(name, spacing), spacing, powers)) > 1e-3 * spacing[axis] ** order
        )


@pytest.mark.parametrize("ndim", [2, 3])
def test_the_leading_error_of_a_box_laplacian_is_isotropic(ndim: int) -> None:
    # Equal spacings: the error of degree 4 is h^2 / 12 times the biharmonic operator, whose moments
    # are 24 for x^4 and 8 for x^2 y^2.
    h = 0.5
    operator = box_laplacian((h,) * ndim)
    fourth = moment(operator, (h,) * ndim, (4, *(0,) * (ndim - 1)))
    mixed = moment(operator, (h,) * ndim, (2, 2, *(0,) * (ndim - 2)))
    assert fourth == pytest.approx(24 * h**2 / 12, rel=1e-13)
    assert mixed == pytest.approx(8 * h**2 / 12, rel=1e-13)


def test_the_box_laplacian_in_3d_has_the_published_weights() -> None:
    by_distance = {0: -128 / 30, 1: 14 / 30, 2: 3 / 30, 3: 1 / 30}
    for offset, weight in box_laplacian((1.0, 1.0, 1.0)).terms.items():
        assert weight == pytest.approx(by_distance[sum(map(abs, offset))], rel=1e-14)


@pytest.mark.parametrize("order", [2, 4, 6])
def test_a_second_derivative_acts_along_its_axis_only(order: int) -> None:
    operator = second_derivative(3, 1, 0.3, order)
    assert operator.radii == (0, order // 2, 0)
    assert moment(operator, (0.5, 0.3, 0.2), (0, 2, 0)) == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_the_usual_laplacian_comes_first(ndim: int) -> None:
    assert laplacian_names(ndim)[0] == f"heat-{ndim}d"
