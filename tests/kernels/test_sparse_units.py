"""Patches in units: the same stencil, no zero columns, and how much of the products is not with zeros."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tetris_sim.catalogue import STENCIL_NAMES, named_stencil
from tetris_sim.gpu_kernels.sparse.compression import is_structured
from tetris_sim.gpu_kernels.sparse.crush import crush_weights
from tetris_sim.gpu_kernels.sparse.fragments import compressed_of
from tetris_sim.gpu_kernels.sparse.kernel import sparse_kernel
from tetris_sim.gpu_kernels.sparse.rounding import round_weights
from tetris_sim.gpu_kernels.sparse.units import (
    DEPTH,
    MMA,
    Plan,
    fragments,
    lookup_table,
    row_order,
    unit_plan,
    unit_width,
)
from tetris_sim.gpu_kernels.stencil2row import dense, weight_matrices
from tetris_sim.stencil import Stencil


def coefficients(plan: Plan, rows: int) -> npt.NDArray[np.float64]:
    """What each of 16 results takes from the points around it, of a 1D or 2D stencil, (16, rows, width)."""
    r2 = plan.merged[0]
    found = np.zeros((16, rows, plan.width))
    for (unit, product), matrix in (((i, p), plan.matrices[i, p]) for i, p in np.ndindex(plan.matrices.shape[:2])):
        for column, (row, point) in enumerate(plan.places[product]):
            found[row_order(plan.merged[1]), unit * r2 + row, point] += matrix[:, column]
    return found


@pytest.mark.parametrize("name", [name for name in STENCIL_NAMES if "3d" not in name])
def test_units_hold_the_weights_of_every_result_of_a_patch(name: str) -> None:
    stencil = named_stencil(name).stencil
    weights = dense(stencil).reshape(-1, 2 * stencil.radii[-1] + 1)
    for r1 in (8, 16) if stencil.ndim == 2 else (16,):
        plan = unit_plan(stencil, r1)
        r2 = 16 // r1
        found = coefficients(plan, plan.flight * r2)
        for j2, j1 in itertools.product(range(r2), range(r1)):
            expected = np.zeros_like(found[0])
            first = plan.lead + j1 - weights.shape[1] // 2
            expected[j2 : j2 + len(weights), first : first + weights.shape[1]] = weights
            np.testing.assert_array_equal(found[j2 * r1 + j1], expected)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_units_of_any_stencil_are_two_of_four(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    radii = [data.draw(st.integers(0, {1: 40, 2: 7, 3: 3}[ndim])) for _ in range(ndim)]
    offsets = list(itertools.product(*(range(-r, r + 1) for r in radii)))
    stencil = Stencil(tuple(offsets), (1.0,) * len(offsets))
    r1 = 16 if ndim == 1 or radii[-1] > 3 else data.draw(st.sampled_from((8, 16)))
    plan = unit_plan(stencil, r1)
    assert all(is_structured(matrix) for matrix in plan.matrices.reshape(-1, 16, DEPTH))
    assert np.count_nonzero(plan.matrices) == 16 * len(offsets)
    a, metadata = fragments(plan, sparse=True)
    for p in range(plan.n_products):
        kept = compressed_of(a[p], metadata[p // 2], p % 2, MMA)
        np.testing.assert_array_equal(kept.values.sum(axis=1), plan.matrices.reshape(-1, 16, DEPTH)[p].sum(axis=1))


@pytest.mark.parametrize(
    ("name", "steps", "r1", "products", "used"),
    [
        ("box-2d9p", 1, 8, 2, 9 / 32),
        ("box-2d9p", 3, 8, 4, 49 / 64),
        ("box-2d9p", 7, 16, 15, 225 / 240),
        ("box-2d25p", 1, 8, 3, 25 / 48),
        ("box-2d49p", 1, 8, 4, 49 / 64),
        ("heat-1d", 63, 16, 8, 127 / 128),
        ("box-3d27p", 1, 8, 6, 27 / 96),
    ],
)
def test_how_many_products_128_results_take_and_how_much_of_them_is_used(
    name: str, steps: int, r1: int, products: int, used: float
) -> None:
    fused = named_stencil(name).stencil.power(steps)
    plan = unit_plan(fused, r1)
    assert plan.n_products == products
    assert fused.n_points / (16 * plan.n_products) == used


def test_rows_are_as_wide_as_interleaving_needs() -> None:
    for radius, r1 in itertools.product(range(1, 64), (8, 16)):
        width = unit_width(radius, r1)
        assert width % (2 * r1) == 0
        assert width >= 4 * (radius + 1) > width - 2 * r1
        assert width >= r1 + 2 * radius


def test_a_quad_finds_its_points_in_the_order_of_the_fragment() -> None:
    """r1 = 8: both loads of a product lie in one row, two pairs of four points half a row apart."""
    table = lookup_table(unit_plan(named_stencil("box-2d49p").stencil, 8), pitch=100, shift=4)
    np.testing.assert_array_equal(table, [[[4, 104], [12, 112], [8, 108], [16, 116]]])
    wide = lookup_table(unit_plan(named_stencil("box-2d9p").stencil.power(7), 16), pitch=100, shift=0)
    np.testing.assert_array_equal(wide, [[[0], [16], [8], [24]]])


@pytest.mark.parametrize(("name", "n"), [("box-2d9p", 3), ("box-2d49p", 7)])
def test_dual_tessellation_is_the_dense_product_of_one_layout(name: str, n: int) -> None:
    """r1 = n + 1, r2 = 1: its two weight matrices are A', cut in two. In FP64 (section 4.7) that layout is used."""
    kernel = dense(named_stencil(name).stencil)
    crushed = crush_weights(kernel, (1, n + 1)).reshape(n + 1, n, 2 * n)
    a, b = weight_matrices(kernel)
    for row in range(n):
        np.testing.assert_array_equal(np.concatenate([a[row, 1:], b[row, :-1]]), crushed[:, row].T)


@pytest.mark.parametrize("name", STENCIL_NAMES)
@pytest.mark.parametrize("steps", [1, 3, 7])
def test_rounded_weights_add_up_and_stay_symmetric(name: str, steps: int) -> None:
    stencil = named_stencil(name).stencil.power(steps)
    rounded = round_weights(stencil)
    weights, found = np.array(stencil.weights), np.array(rounded.weights)
    np.testing.assert_array_equal(found, found.astype(np.float16))
    assert abs(found.sum() - 1) <= 2.0**-24  # one place of the smallest numbers, or two that are opposite
    assert np.abs(found - weights).max() <= 2 * float(np.spacing(np.float16(weights.max())))
    assert rounded.symmetric


def test_matrices_that_do_not_fit_into_the_parameters_of_a_kernel_are_refused() -> None:
    parameters = {"merged_x": 8, "warps": 4, "blocks": 1, "units": 1, "steps": 1, "stages": 2, "steps_per_block": 4}
    with pytest.raises(ValueError, match="more than a kernel's parameters"):
        sparse_kernel(named_stencil("box-3d27p").stencil, np.float16, {**parameters, "merged_x": 16})
