"""Patches in units: the same stencil, no zero columns, and how much of the products is not with
zeros.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tetris_sim.catalogue import STENCIL_NAMES, named_stencil
from tetris_sim.gpu_kernels.dual_tessellation.stencil2row import weight_matrices
from tetris_sim.gpu_kernels.fused.rounding import round_weights
from tetris_sim.gpu_kernels.sparse.compression import decompress, is_structured
from tetris_sim.gpu_kernels.sparse.crush import crush_weights
from tetris_sim.gpu_kernels.sparse.dense_plans import dense_patch_plan, dense_unit_plan
from tetris_sim.gpu_kernels.sparse.fragments import compressed_of
from tetris_sim.gpu_kernels.sparse.patches import patch_plan
from tetris_sim.gpu_kernels.sparse.plan import (
    INSTRUCTIONS,
    Plan,
    fragments,
    lookup_table,
    row_order,
    slot_columns,
)
from tetris_sim.gpu_kernels.sparse.units import unit_plan, unit_width
from tetris_sim.stencil import Stencil


def coefficients(plan: Plan, rows: int) -> npt.NDArray[np.float64]:
    """What each of 16 results takes from the points around it, of a 1D or 2D stencil, (16, rows,
    width).
    """
    r2 = plan.merged[0]
    found = np.zeros((16, rows, plan.width))
    for (unit, product), matrix in (
        ((i, p), plan.matrices[i, p]) for i, p in np.ndindex(plan.matrices.shape[:2])
    ):
        for column, (row, point) in enumerate(plan.places[product]):
            found[row_order(plan.merged[1], plan.kind), unit * r2 + row, point] += matrix[:, column]
    return found


def holds_the_weights(plan: Plan, stencil: Stencil, rows: int) -> None:
    weights, (r2, r1) = stencil.dense().reshape(-1, 2 * stencil.radii[-1] + 1), plan.merged
    found = coefficients(plan, rows)
    for j2, j1 in itertools.product(range(r2), range(r1)):
        expected = np.zeros_like(found[0])
        first = plan.lead + j1 - weights.shape[1] // 2
        expected[j2 : j2 + len(weights), first : first + weights.shape[1]] = weights
        np.testing.assert_array_equal(found[j2 * r1 + j1], expected)


FLAT = [name for name in STENCIL_NAMES if "3d" not in name]


@pytest.mark.parametrize("kind", INSTRUCTIONS)
@pytest.mark.parametrize("name", FLAT)
def test_units_hold_the_weights_of_every_result_of_a_patch(name: str, kind: str) -> None:
    stencil = named_stencil(name).stencil
    for r1 in (8, 16) if stencil.ndim == 2 else (16,):
        plan = unit_plan(stencil, r1, kind)
        holds_the_weights(plan, stencil, plan.flight * 16 // r1)


@pytest.mark.parametrize("kind", INSTRUCTIONS)
@pytest.mark.parametrize("name", FLAT)
def test_so_do_whole_patches(name: str, kind: str) -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    stencil = named_stencil(name).stencil
    for r1 in (4, 16) if stencil.ndim == 2 else (16,):
        plan = patch_plan(stencil, (16 // r1, r1), kind)
        holds_the_weights(plan, stencil, plan.rows)


@pytest.mark.parametrize("name", FLAT)
def test_so_do_both_in_fp64(name: str) -> None:
    stencil = named_stencil(name).stencil
    for r1 in (1, 2, 4, 8, 16) if stencil.ndim == 2 else (16,):
        merged = 16 // r1, r1
        plan = dense_patch_plan(stencil, merged)
        holds_the_weights(plan, stencil, plan.rows)
        if stencil.ndim == 2:
            plan = dense_unit_plan(stencil, merged)
            holds_the_weights(plan, stencil, plan.flight * merged[0])


def test_in_fp64_points_that_no_result_depends_on_take_no_part() -> None:
    """A star of radius 4 and 4 x 4 results: 12 x 12 points but for the corners; with 6 points in a
    row, 8 are read.
    """
    plan = dense_patch_plan(named_stencil("star-2d17p").stencil, (4, 4))
    assert plan.n_products == (12 * 12 - 4 * 4 * 4) // 8
    assert dense_patch_plan(named_stencil("box-2d9p").stencil, (4, 4)).n_products == 6 * 8 // 8


@pytest.mark.parametrize("kind", ["f16", "tf32", "f64"])
def test_the_registers_of_dense_products_hold_the_matrices(kind: str) -> None:
    """PTX ISA: in which register of which lane, and column by column in the order of the slots of
    the other operand.
    """
    stencil = named_stencil("box-2d9p").stencil
    plan = dense_patch_plan(stencil, (4, 4)) if kind == "f64" else unit_plan(stencil, 8, kind)
    words = (
        fragments(plan, sparse=False)[0]
        .transpose(0, 2, 1, 3)
        .reshape(plan.n_products, 32, -1)
        .copy()
    )
    of_lanes = words.view({"f16": np.float16, "tf32": np.float32, "f64": np.float64}[kind]).astype(
        np.float64
    )
    at_once = 2 if kind == "f16" else 1  # numbers of a register
    matrices = plan.matrices.reshape(plan.n_products, 16, -1)
    for lane in range(32):
        g, t = divmod(lane, 4)
        found = of_lanes[:, lane].reshape(plan.n_products, -1, 2, at_once)  # steps, half, numbers
        for half in range(2):
            columns = slot_columns(kind)[t]
            np.testing.assert_allclose(
                found[:, :, half].reshape(plan.n_products, -1),
                matrices[:, g + 8 * half, columns],
                rtol=2**-11,
            )


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_units_of_any_stencil_are_two_of_four(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    radii = [data.draw(st.integers(0, {1: 40, 2: 7, 3: 3}[ndim])) for _ in range(ndim)]
    offsets = list(itertools.product(*(range(-r, r + 1) for r in radii)))
    stencil = Stencil(tuple(offsets), (1.0,) * len(offsets))
    r1 = 16 if ndim == 1 or radii[-1] > 3 else data.draw(st.sampled_from((8, 16)))
    kind = data.draw(st.sampled_from(tuple(INSTRUCTIONS)))
    plan, instruction = unit_plan(stencil, r1, kind), INSTRUCTIONS[kind]
    per_product = 32 // instruction.depth
    cut = plan.matrices.reshape(-1, 16, per_product, instruction.depth).swapaxes(1, 2)
    pieces = cut.reshape(-1, 16, instruction.depth)
    assert all(is_structured(matrix, instruction.group) for matrix in pieces)
    assert np.count_nonzero(plan.matrices) == 16 * len(offsets)
    words, metadata = fragments(plan, sparse=True)
    registers = words.transpose(0, 2, 1, 3).reshape(plan.n_products, 32, per_product, 4)
    for i, piece in enumerate(pieces):
        a = registers[i // per_product, :, i % per_product]
        kept = compressed_of(a, metadata[i // 2], i % 2, instruction)
        np.testing.assert_array_equal(decompress(kept), piece)


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
    wide = lookup_table(
        unit_plan(named_stencil("box-2d9p").stencil.power(7), 16), pitch=100, shift=0
    )
    np.testing.assert_array_equal(wide, [[[0], [16], [8], [24]]])


@pytest.mark.parametrize(("name", "n"), [("box-2d9p", 3), ("box-2d49p", 7)])
def test_dual_tessellation_is_the_dense_product_of_one_layout(name: str, n: int) -> None:
    """r1 = n + 1, r2 = 1: its two weight matrices are A', cut in two. In FP64 (section 4.7) that
    layout is used.
    """
    kernel = named_stencil(name).stencil.dense()
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
    assert (
        abs(found.sum() - 1) <= 2.0**-24
    )  # one place of the smallest numbers, or two that are opposite
    assert np.abs(found - weights).max() <= 2 * float(np.spacing(np.float16(weights.max())))
    assert rounded.symmetric
