"""SparStencil's layouts: flattening, duplicates, crush, and the stairs that come of it."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.papers.convstencil.stencil2row import apply
from tests.papers.sparstencil.crush import Layout, crush_input, crush_weights, spread_results
from tests.papers.sparstencil.flattening import apply_flattened, input_matrix, kernel_vector
from tests.papers.sparstencil.staircase import blocks, is_self_similar, is_staircase
from tetris_sim.gpu_kernels.tensor_cores.sparse import conflict_graph
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil

BOX_3 = named_stencil("box-2d9p").stencil


def ones(*widths: int) -> npt.NDArray[np.float64]:
    return np.ones(widths)


def test_figure_2_flattens_a_3_by_3_kernel_on_5_by_5_points() -> None:
    u = np.arange(25.0).reshape(5, 5)
    matrix = input_matrix(u, (3, 3))
    assert kernel_vector(BOX_3).shape == (1, 9)
    assert matrix.shape == (9, 9)
    np.testing.assert_array_equal(matrix[:, 0], [0, 1, 2, 5, 6, 7, 10, 11, 12])
    np.testing.assert_array_equal(matrix[:, 8], [12, 13, 14, 17, 18, 19, 22, 23, 24])


@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_flattening_is_the_stencil(name: str) -> None:
    stencil = named_stencil(name).stencil
    u = np.random.default_rng(1).random({1: (23,), 2: (11, 14), 3: (7, 8, 9)}[stencil.ndim])
    np.testing.assert_allclose(apply_flattened(u, stencil), apply(u, stencil), rtol=0, atol=1e-14)


def test_equations_3_and_4_say_where_the_duplicates_are() -> None:
    k, m, n = 3, 6, 7
    rows, columns = m - k + 1, n - k + 1
    parts = input_matrix(np.arange(float(m * n)).reshape(m, n), (k, k)).reshape(k, k, rows, columns)
    for i, row in itertools.product(range(k), range(rows)):
        part = parts[i, :, row]  # k x (n - k + 1): points of one row of the grid
        np.testing.assert_array_equal(part[1:, :-1], part[:-1, 1:])
    for i, row in itertools.product(range(k - 1), range(rows - 1)):
        np.testing.assert_array_equal(parts[i + 1, :, row], parts[i, :, row + 1])


@pytest.mark.parametrize("merged", [(1, 1), (1, 3), (2, 1), (2, 3)])
def test_crushed_columns_hold_what_flattened_ones_hold_each_point_once(
    merged: tuple[int, int],
) -> None:
    u = np.arange(8.0 * 11).reshape(8, 11)
    layout = Layout((3, 3), merged)
    crushed, flat = crush_input(u, layout), input_matrix(u, (3, 3)).reshape(9, 6, 9)
    patches = layout.n_patches(u.shape)
    for patch, (i, j) in enumerate(itertools.product(*map(range, patches))):
        column = crushed[:, patch]
        assert len(set(column)) == len(column)
        part = flat[:, merged[0] * i : merged[0] * (i + 1), merged[1] * j : merged[1] * (j + 1)]
        assert set(column) == set(part.ravel())


def test_without_merging_the_crushed_input_is_the_flattened_one() -> None:
    u = np.random.default_rng(2).random((7, 9))
    np.testing.assert_array_equal(crush_input(u, Layout((3, 5), (1, 1))), input_matrix(u, (3, 5)))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_crushed_matrices_have_the_sizes_of_section_3_3_and_give_the_stencil(
    data: st.DataObject,
) -> None:
    ndim = data.draw(st.integers(1, 3))
    widths = tuple(data.draw(st.sampled_from((1, 3, 5))) for _ in range(ndim))
    merged = tuple(data.draw(st.integers(1, 4)) for _ in range(ndim))
    shape = tuple(width + data.draw(st.integers(0, 6)) for width in widths)
    rng = np.random.default_rng(3)
    weights, u = rng.uniform(-1, 1, widths), rng.uniform(-1, 1, shape)
    layout = Layout(widths, merged)
    a, b = crush_weights(weights, merged), crush_input(u, layout)
    patch = [width + n - 1 for width, n in zip(widths, merged, strict=True)]
    assert a.shape == (np.prod(merged), np.prod(patch))
    assert b.shape == (np.prod(patch), np.prod(layout.n_patches(shape)))
    result = spread_results(a @ np.asarray(b, np.float64), layout, shape)
    offsets = itertools.product(*(range(-(width // 2), width // 2 + 1) for width in widths))
    stencil = Stencil(tuple(offsets), tuple(weights.ravel()))
    np.testing.assert_allclose(result, apply(u, stencil), rtol=0, atol=1e-13)


def test_a_layout_needs_as_many_positive_numbers_per_kind() -> None:
    for widths, merged in (((3, 3), (2,)), ((3,), (0,))):
        with pytest.raises(ValueError, match="positive width"):
            Layout(widths, merged)


@given(rows=st.integers(1, 9), k=st.integers(1, 9))
def test_one_row_of_results_is_a_staircase_and_theorem_1_is_sharp(rows: int, k: int) -> None:
    pattern = crush_weights(ones(k), (rows,)) != 0
    assert is_staircase(pattern, k)
    if rows > 1:
        assert not is_staircase(pattern, k + 1)
    graph = conflict_graph(pattern)
    distance = np.abs(np.subtract.outer(range(len(graph)), range(len(graph))))
    assert not graph[distance >= k].any()
    # As printed, r <= c < r + k - 1, columns k - 1 apart would not conflict either; those of one
    # row do.
    if k > 1:
        assert graph[distance == k - 1].any()


@given(r1=st.integers(1, 6), r2=st.integers(1, 6), k=st.sampled_from((3, 5, 7)))
def test_a_box_is_a_staircase_of_staircases(r1: int, r2: int, k: int) -> None:
    layout = Layout((k, k), (r2, r1))
    pattern = crush_weights(ones(k, k), (r2, r1)) != 0
    assert is_self_similar(pattern, layout)
    assert blocks(pattern, layout).shape == (r2, r1, k + r2 - 1, k + r1 - 1)
    assert pattern.sum() == r1 * r2 * k * k


@pytest.mark.parametrize("name", ["heat-2d", "star-2d13p", "box-3d27p"])
def test_a_star_and_a_3d_box_are_none(name: str) -> None:
    stencil = named_stencil(name).stencil
    merged = (2,) * stencil.ndim
    weights = np.zeros([2 * r + 1 for r in stencil.radii])
    for offset in stencil.offsets:
        weights[tuple(o + r for o, r in zip(offset, stencil.radii, strict=True))] = 1
    assert not is_self_similar(crush_weights(weights, merged) != 0, Layout(weights.shape, merged))


def test_more_than_half_of_the_elements_are_zeros_as_section_1_says() -> None:
    """50 to 80 % for the benchmarks' boxes with 16 results to a column."""
    zeros = {
        (k, merged): 1 - k * k / Layout((k, k), merged).columns
        for k in (3, 7)
        for merged in ((4, 4), (2, 8), (8, 2))
    }
    assert min(zeros.values()) > 0.5
    assert max(zeros.values()) < 0.8
