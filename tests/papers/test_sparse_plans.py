"""Plans of whole patches and of FP64: what the kernel multiplies is the stencil."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.test_sparse_units import FLAT, holds_the_weights
from tests.papers.convstencil.stencil2row import weight_matrices
from tests.papers.sparstencil.crush import crush_weights
from tests.papers.sparstencil.dense_plans import dense_patch_plan, dense_unit_plan
from tests.papers.sparstencil.patches import patch_plan
from tests.papers.sparstencil.variants import dense_fragments
from tetris_sim.gpu_kernels.tensor_cores.sparse import unit_plan
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import INSTRUCTIONS, slot_columns
from tetris_sim.model.stencils.catalogue import named_stencil


@pytest.mark.parametrize("kind", INSTRUCTIONS)
@pytest.mark.parametrize("name", FLAT)
def test_whole_patches_hold_the_weights_of_every_result(name: str, kind: str) -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    stencil = named_stencil(name).stencil
    for r1 in (4, 16) if stencil.ndim == 2 else (16,):
        plan = patch_plan(stencil, (16 // r1, r1), kind)
        holds_the_weights(plan, stencil, plan.rows)


@pytest.mark.parametrize("name", FLAT)
def test_so_do_whole_patches_and_units_in_fp64(name: str) -> None:
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
    words = dense_fragments(plan)[0].transpose(0, 2, 1, 3).reshape(plan.n_products, 32, -1).copy()
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
