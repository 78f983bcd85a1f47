"""SparStencil from end to end: the transformed product is the stencil; layouts are explored by the
paper's model.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.papers.convstencil.stencil2row import apply
from tests.papers.sparstencil.crush import Layout
from tests.papers.sparstencil.exploration import (
    A100_F16,
    DENSE_F16,
    DENSE_F64,
    SPARSE_F16,
    explore,
    layout_time,
    n_products,
    transformed_elements,
)
from tests.papers.sparstencil.pipeline import apply_transformed, transform
from tests.papers.sparstencil.reading import decompress
from tetris_sim.gpu_kernels.tensor_cores.dual_tessellation import compute_time
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import is_structured
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil

pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")

# A grid that lies in the cache: global memory limits nothing.
IN_CACHE = replace(A100_F16, global_bandwidth=float("inf"))
SHAPES = {1: (83,), 2: (19, 34), 3: (9, 11, 13)}
MERGED = {1: ((16,), (5,)), 2: ((4, 4), (2, 5), (1, 16)), 3: ((1, 4, 4), (2, 1, 3))}


def agrees(stencil: Stencil, merged: tuple[int, ...], depth: int = 32, group: int = 4) -> None:
    transformed = transform(stencil, merged, depth=depth, group=group)
    assert len(transformed.order) % depth == 0
    assert is_structured(decompress(transformed.weights), group)
    if transformed.matched.published is not None:
        assert transformed.matched.chosen.zero_columns <= transformed.matched.published.zero_columns
    u = np.random.default_rng(4).uniform(-1, 1, SHAPES[stencil.ndim])
    scale = np.abs(stencil.weights).sum()
    found, wanted = apply_transformed(u, transformed), apply(u, stencil)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4 * stencil.n_points * 2.3e-16 * scale)


@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_the_transformed_product_is_the_stencil(name: str) -> None:
    stencil = named_stencil(name).stencil
    for merged in MERGED[stencil.ndim]:
        agrees(stencil, merged)


@pytest.mark.parametrize(
    ("name", "steps"), [("heat-1d", 7), ("heat-2d", 3), ("box-2d9p", 3), ("heat-3d", 2)]
)
def test_so_it_is_for_steps_that_are_fused(name: str, steps: int) -> None:
    stencil = named_stencil(name).stencil
    agrees(stencil.power(steps), MERGED[stencil.ndim][0])


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_so_it_is_for_any_stencil_layout_and_instruction(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    box = (
        list(itertools.product(range(-2, 3), repeat=ndim))
        if ndim < 3
        else list(itertools.product((-1, 0, 1), repeat=3))
    )
    offsets = data.draw(st.lists(st.sampled_from(box), min_size=1, max_size=12, unique=True))
    weights = np.random.default_rng(5).uniform(-1, 1, len(offsets))
    merged = tuple(data.draw(st.integers(1, 4)) for _ in range(ndim))
    depth, group = data.draw(st.sampled_from(((16, 4), (32, 4), (8, 2), (16, 2))))
    agrees(Stencil(tuple(offsets), tuple(weights)), merged, depth, group)


def test_both_numbers_of_zero_columns_are_told() -> None:
    box = transform(named_stencil("box-2d9p").stencil, (2, 5)).matched
    assert box.counts() == "zero columns: 2 by algorithm 1, 0 at least"
    star = transform(named_stencil("heat-2d").stencil, (2, 5)).matched
    assert star.counts() == "zero columns: no staircase by algorithm 1, 0 at least"


def test_equation_9_counts_products() -> None:
    layout = Layout((7, 7), (4, 4))
    assert (layout.rows, layout.columns) == (4 * 4, (7 + 4 - 1) * (7 + 4 - 1))
    assert n_products(layout, 8 * 10, SPARSE_F16) == 1 * 4 * 10
    assert n_products(layout, 8 * 10, DENSE_F16) == 1 * 7 * 10
    assert n_products(layout, 8 * 10, DENSE_F64) == 2 * 25 * 10


def test_equation_10_is_meant_with_the_rows_of_the_crushed_matrix() -> None:
    layout, n_patches = Layout((7, 7), (4, 4)), 1000.0
    stored = layout.rows * layout.columns / 2  # of A', two of four
    assert transformed_elements(layout, n_patches) == stored + layout.columns * n_patches
    rows_of_the_grid = 10240
    printed = layout.columns * (rows_of_the_grid / 2 + n_patches)
    assert printed > 4 * transformed_elements(layout, n_patches)


def test_the_time_of_a_layout_is_that_of_the_slowest_part() -> None:
    layout, shape = Layout((7, 7), (4, 4)), (1030, 1030)
    results = 1024 * 1024
    n_patches = results / 16
    computing = compute_time(A100_F16, n_products(layout, n_patches, SPARSE_F16))
    shared = 2 * 2 * transformed_elements(layout, n_patches) / A100_F16.shared_bandwidth
    device = 2 * (1030 * 1030 + results) / A100_F16.global_bandwidth
    assert layout_time(A100_F16, layout, shape, SPARSE_F16) == pytest.approx(
        max(computing, shared, device)
    )
    assert device > shared > computing
    assert layout_time(IN_CACHE, layout, shape, SPARSE_F16) == pytest.approx(shared)


def test_equation_11_takes_the_best_layout() -> None:
    candidates = [(r2, r1) for r2 in range(1, 17) for r1 in range(1, 17)]
    times = explore(IN_CACHE, (7, 7), (1030, 1030), SPARSE_F16, candidates)
    best = next(iter(times))
    assert times[best] == min(times.values())
    assert set(times) == set(candidates)
    assert times[best] < times[1, 1] / 4
    # Few results to a column waste rows of the fragment and copy points again and again.
    assert best[0] * best[1] >= 16
