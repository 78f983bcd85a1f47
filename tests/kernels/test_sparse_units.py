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

from tests.papers.sparstencil.reading import compressed_of, decompress
from tetris_sim.gpu_kernels.fused.kernel import round_weights
from tetris_sim.gpu_kernels.tensor_cores.sparse import unit_plan, unit_width
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import (
    INSTRUCTIONS,
    SparsePlan,
    fragments,
    is_structured,
    lookup_table,
    row_order,
)
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil


def coefficients(plan: SparsePlan, rows: int) -> npt.NDArray[np.float64]:
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


def holds_the_weights(plan: SparsePlan, stencil: Stencil, rows: int) -> None:
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
    words, metadata = fragments(plan)
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
