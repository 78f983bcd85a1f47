"""SparStencil's transformation as a whole: from a stencil to a compressed matrix and the order of
its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.papers.sparstencil import matching
from tests.papers.sparstencil.crush import Layout, crush_input, crush_weights, spread_results
from tests.papers.sparstencil.matching import hierarchical_matching, maximum_matching
from tests.papers.sparstencil.reading import multiply
from tests.papers.sparstencil.staircase import is_self_similar
from tetris_sim.gpu_kernels.tensor_cores.sparse import (
    ZERO,
    Matching,
    Order,
    column_order,
    conflict_graph,
    permute_columns,
    vector_order,
)
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import Array, Compressed, compress
from tetris_sim.model.stencil import Stencil


@dataclass(frozen=True)
class Matched:
    """How the columns of a crushed matrix were paired.

    Attributes:
        published: by algorithm 1; None where the matrix is no staircase.
        chosen: with the fewest zero columns.
    """

    published: Matching | None
    chosen: Matching

    def counts(self) -> str:
        """Both numbers of zero columns, as a sentence."""
        by = "no staircase" if self.published is None else str(self.published.zero_columns)
        return f"zero columns: {by} by algorithm 1, {self.chosen.zero_columns} at least"


@dataclass(frozen=True)
class Transformed:
    """A stencil as `mma.sp` multiplies it.

    Attributes:
        layout: of the crushed matrices.
        matched: the pairs of columns.
        order: of the columns of A' and the rows of B', zeros included, a multiple of `depth`.
        weights: A'' with one half of it kept, (m', len(order) / 2).
    """

    layout: Layout
    matched: Matched
    order: Order
    weights: Compressed


def match(crushed: Array, layout: Layout) -> Matched:
    """Pair the columns of A': by algorithm 1 where it is minimal, else by the blossom algorithm."""
    graph = conflict_graph(crushed)
    published = None
    if is_self_similar(crushed != 0, layout):
        blocks = layout.columns // layout.patch[-1]
        height = layout.widths[-2] if len(layout.widths) == 2 else 1
        published = hierarchical_matching(blocks, layout.patch[-1], layout.widths[-1], height)
        if published.zero_columns == matching.lower_bound(graph):
            return Matched(published, published)
    return Matched(published, maximum_matching(graph))


def transform(
    stencil: Stencil, merged: Sequence[int], *, depth: int = 32, group: int = 4
) -> Transformed:
    """All steps after each other.

    Args:
        stencil: of one to three axes.
        merged: results that share a column along each axis: (r1,), (r2, r1) or (r3, r2, r1).
        depth: of the matrix instruction, in columns before compression.
        group: 4, or 2 for TF32.
    """
    weights = stencil.dense()
    layout = Layout(weights.shape, tuple(merged))
    crushed = crush_weights(weights, merged)
    matched = match(crushed, layout)
    order = pad_order(column_order(vector_order(matched.chosen), 1), depth)
    return Transformed(layout, matched, order, compress(permute_columns(crushed, order), group))


def pad_order(order: Order, depth: int) -> Order:
    """The order with columns of zeros up to a multiple of the depth of a product."""
    return np.append(order, np.full(-len(order) % depth, ZERO))


def permute_rows(matrix: npt.NDArray[np.float64], order: Order) -> npt.NDArray[np.float64]:
    """B'': the rows of B' in the same order."""
    return np.where((order == ZERO)[:, None], 0.0, matrix[order])


def apply_transformed(u: Array, transformed: Transformed) -> Array:
    """The stencil at all points that have all neighbours, as the sparse product.

    Args:
        u: a grid of as many axes.
        transformed: the stencil.
    """
    crushed = np.asarray(crush_input(u, transformed.layout), np.float64)
    results = multiply(transformed.weights, permute_rows(crushed, transformed.order))
    return spread_results(results, transformed.layout, u.shape)
