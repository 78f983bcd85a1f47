"""The matrices of ConvStencil give the results of the stencil itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.papers.convstencil.stencil2row import (
    apply,
    lookup_tables,
    n_groups,
    stencil2row,
    weight_matrices,
)
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil

Array = npt.NDArray[np.float64]


def directly(u: Array, stencil: Stencil) -> Array:
    """Tap by tap, all points that have all neighbours."""
    shape = [n - 2 * r for n, r in zip(u.shape, stencil.radii, strict=True)]
    total = np.zeros(shape)
    for offset, weight in stencil.terms.items():
        total += (
            weight
            * u[
                tuple(
                    slice(r + o, r + o + n)
                    for r, o, n in zip(stencil.radii, offset, shape, strict=True)
                )
            ]
        )
    return total


def assert_same(found: Array, expected: Array, stencil: Stencil) -> None:
    """Equal but for the order of the roundings: two of them per point of the box, zeros
    included.
    """
    allowed = 2 * stencil.dense().size * np.finfo(np.float64).eps * sum(map(abs, stencil.weights))
    np.testing.assert_allclose(found, expected, rtol=0, atol=allowed)


def grid(stencil: Stencil, groups: float = 2.3) -> Array:
    """Random points in [-1, 1], unequal lengths, a last group that is not full."""
    extra = (3, 2, 0)[3 - stencil.ndim :]
    shape = [2 * r + n for r, n in zip(stencil.radii, extra, strict=True)]
    shape[-1] += int(groups * (2 * stencil.radii[-1] + 2))
    return np.random.default_rng(7).uniform(-1, 1, shape)


@pytest.mark.parametrize("name", STENCIL_NAMES)
@pytest.mark.parametrize("steps", [1, 2])
def test_two_products_and_a_sum_apply_the_stencil(name: str, steps: int) -> None:
    stencil = named_stencil(name).stencil.power(steps)
    u = grid(stencil)
    assert_same(apply(u, stencil), directly(u, stencil), stencil)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_stencil_is_two_products_and_a_sum(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    offset = st.tuples(*[st.integers(-2, 2)] * ndim)
    terms = data.draw(st.dictionaries(offset, st.floats(-2, 2), min_size=1, max_size=9))
    stencil = Stencil.from_terms(terms)
    u = grid(stencil, data.draw(st.floats(0.5, 3)))
    assert_same(apply(u, stencil), directly(u, stencil), stencil)


@pytest.mark.parametrize("width", [1, 3, 5, 7, 9])
def test_lookup_tables_are_equations_5_and_6(width: int) -> None:
    a, b = lookup_tables(50, width)
    for y in range(50):
        if (y + 1) % (width + 1) != 0:
            assert tuple(a[y]) == (y // (width + 1), y % (width + 1) + 1)
        else:
            assert a[y, 1] == 0
        if (y - width + 1) % (width + 1) != 0:
            assert tuple(b[y]) == ((y - width) // (width + 1), (y - width) % (width + 1))
        else:
            assert b[y, 1] == width


@pytest.mark.parametrize("width", [3, 5, 7])
def test_with_dirty_bits_matrix_b_is_matrix_a_one_row_on(width: int) -> None:
    a, b = stencil2row(np.random.default_rng(1).random((4, 61)), width)
    np.testing.assert_array_equal(b[:-1], a[1:])


@pytest.mark.parametrize(("rows", "width"), [(1, 3), (3, 3), (7, 7)])
def test_weight_matrices_are_triangles_and_leave_dirty_bits_out(rows: int, width: int) -> None:
    a, b = weight_matrices(np.random.default_rng(2).uniform(1, 2, (rows, width)))
    for p in range(rows):
        np.testing.assert_array_equal(a[p, 1:, :-1], np.tril(a[p, 1:, :-1]))
        np.testing.assert_array_equal(b[p, :-1, 1:], np.triu(b[p, :-1, 1:]))
    assert not a[:, 0].any()
    assert not b[:, -1].any()
    assert not a[
        :, :, -1
    ].any()  # the last column of vitrolite A and the first of B are zero (figure 3)
    assert not b[:, :, 0].any()


def test_matrices_have_the_sizes_of_equations_7_and_8() -> None:
    u = np.zeros((12, 64 + 6))
    for matrix in stencil2row(u, 7):
        groups, rows, places = matrix.shape
        assert groups == n_groups(64 + 6, 7) == 64 // 8
        assert rows * (places - 1) == 7 * 12
