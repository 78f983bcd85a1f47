"""SparStencil's matching: algorithm 1 as published, the largest matching, and what theorem 2 claims
too much.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.papers.sparstencil.crush import crush_weights
from tests.papers.sparstencil.matching import (
    complete,
    hierarchical_matching,
    lower_bound,
    maximum_matching,
)
from tests.papers.sparstencil.pipeline import pad_order
from tetris_sim.gpu_kernels.tensor_cores.sparse import (
    ZERO,
    Graph,
    Matching,
    augment,
    column_order,
    conflict_graph,
    is_valid,
    permute_columns,
    vector_graph,
    vector_order,
)

pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")


def box_graph(k: int, r1: int, r2: int) -> Graph:
    return conflict_graph(crush_weights(np.ones((k, k)), (r2, r1)))


def algorithm_1(k: int, r1: int, r2: int) -> Matching:
    return hierarchical_matching(k + r2 - 1, k + r1 - 1, k)


def fewest_zero_columns(graph: Graph) -> int:
    """By trying all matchings."""

    @functools.cache
    def fewest(left: frozenset[int]) -> int:
        if not left:
            return 0
        first, rest = min(left), left - {min(left)}
        return min([1 + fewest(rest), *(fewest(rest - {j}) for j in rest if not graph[first, j])])

    return fewest(frozenset(range(len(graph))))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_largest_matching_is_valid_and_minimal_for_any_pattern(data: st.DataObject) -> None:
    n, m = data.draw(st.integers(1, 10)), data.draw(st.integers(1, 6))
    density = data.draw(st.sampled_from((0.1, 0.3, 0.6)))
    pattern = np.random.default_rng(data.draw(st.integers(0, 2**32))).random((m, n)) < density
    graph = conflict_graph(pattern)
    found = maximum_matching(graph)
    assert is_valid(found.pairs, graph, found.zero_columns)
    assert found.zero_columns == fewest_zero_columns(graph)
    assert lower_bound(graph) <= found.zero_columns


@settings(max_examples=60, deadline=None)
@given(k=st.sampled_from((3, 5, 7)), r1=st.integers(1, 6), r2=st.integers(1, 6))
def test_algorithm_1_is_valid_and_minimal_where_no_short_block_is_left_over(
    k: int, r1: int, r2: int
) -> None:
    graph, published = box_graph(k, r1, r2), algorithm_1(k, r1, r2)
    assert is_valid(published.pairs, graph, published.zero_columns)
    fewest = maximum_matching(graph).zero_columns
    assert published.zero_columns >= fewest
    left = hierarchical_matching(
        k + r2 - 1, 1, k
    ).zero_columns  # as many as there are blocks without a partner
    if left == 0 or (left == 1 and k + r1 - 1 >= 2 * k):
        assert published.zero_columns == fewest


@given(r1=st.integers(1, 20), k=st.integers(2, 9))
def test_for_one_row_of_results_theorem_2_holds(r1: int, k: int) -> None:
    graph = conflict_graph(crush_weights(np.ones(k), (r1,)))
    assert (
        hierarchical_matching(1, k + r1 - 1, k).zero_columns == maximum_matching(graph).zero_columns
    )


@pytest.mark.parametrize(
    ("k", "r1", "r2", "published", "fewest"),
    [(3, 5, 2, 2, 0), (3, 5, 1, 3, 1), (3, 2, 5, 2, 0), (7, 4, 4, 16, 16)],
)
def test_theorem_2_does_not_hold_for_several_blocks(
    k: int, r1: int, r2: int, published: int, fewest: int
) -> None:
    graph = box_graph(k, r1, r2)
    assert algorithm_1(k, r1, r2).zero_columns == published
    assert maximum_matching(graph).zero_columns == fewest
    if len(graph) <= 21:
        assert fewest_zero_columns(graph) == fewest


def test_a_matching_that_repeats_or_forgets_a_column_or_conflicts_is_not_valid() -> None:
    graph = conflict_graph(crush_weights(np.ones(2), (3,)))  # columns 0 1 2 3, neighbours conflict
    assert is_valid([(0, 2), (1, 3)], graph, 0)
    assert not is_valid([(0, 1), (2, 3)], graph, 0)
    assert not is_valid([(0, 2)], graph, 0)
    assert not is_valid([(0, 2), (2, 3), (1, 4)], graph, 1)
    assert not is_valid([(0, 4), (1, 5), (2, 6), (3, 7)], graph, 3)
    assert is_valid([(0, 4), (1, 5), (2, 6), (3, 7)], graph, 4)


def test_columns_of_zeros_conflict_with_none() -> None:
    graph = augment(box_graph(3, 2, 2), 5)
    assert graph.shape == (21, 21)
    assert not graph[16:].any()
    assert not graph[:, 16:].any()


@pytest.mark.parametrize(
    ("radius", "r1", "vector"), [(1, 8, 4), (2, 8, 4), (3, 8, 4), (4, 16, 8), (7, 16, 8)]
)
def test_two_of_four_is_weaker_than_one_of_two(radius: int, r1: int, vector: int) -> None:
    """Vectors half a row of 2 r1 points apart are interleaved, though some of their columns
    conflict as columns do.
    """
    a = np.zeros((r1, 2 * r1))
    for row in range(r1):
        a[row, row + r1 // 2 - radius : row + r1 // 2 + radius + 1] = 1
    graph, n = vector_graph(a, vector), 2 * r1 // vector
    pairs = [(i, i + n // 2) for i in range(n // 2)]
    assert is_valid(pairs, graph, 0)
    order = column_order(vector_order(Matching(n, tuple(pairs))), vector)
    groups = permute_columns(a, order).reshape(r1, -1, 4)
    assert np.count_nonzero(groups, axis=-1).max() == 2
    if radius in (3, 7):  # no room is left: one tap more and a group has three
        assert np.count_nonzero(groups, axis=-1).sum() == r1 * (2 * radius + 1)


def test_vectors_have_an_even_number_of_columns_and_fill_the_matrix() -> None:
    for vector, columns in ((3, 12), (4, 10)):
        with pytest.raises(ValueError, match="even number"):
            vector_graph(np.ones((2, columns)), vector)
    np.testing.assert_array_equal(vector_graph(np.eye(4), 1), conflict_graph(np.eye(4)))


@given(data=st.data())
def test_an_order_has_every_column_once_and_pairs_side_by_side(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    ends = data.draw(st.permutations(range(n)))
    n_pairs = data.draw(st.integers(0, n // 2))
    pairs = sorted(
        (min(p), max(p))
        for p in zip(ends[: 2 * n_pairs : 2], ends[1 : 2 * n_pairs : 2], strict=True)
    )
    matching = complete(n, pairs)
    order = pad_order(column_order(vector_order(matching), 1), 16)
    assert len(order) % 16 == 0
    assert sorted(order[order != ZERO]) == list(range(n))
    beside = {tuple(pair) for pair in order.reshape(-1, 2).tolist()}
    assert all((i, j if j < n else ZERO) in beside for i, j in matching.pairs)
