"""The permutation invariant transformation (SparStencil, equation 5): pairs of columns become
neighbours.

Columns of A' and rows of B' in the same order give the same product, and so they do with columns of
zeros between them. The order puts the two columns of a pair side by side, and two pairs into each
group of four.

Vectors (see `conflicts.vector_graph`) are interleaved two columns at a time, those of two pairs at
once: that is the order in which the four threads of a quad, each with one vector, hold the other
operand of a product (`fragments`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Order = npt.NDArray[np.int64]
ZERO = -1  # in an order: a column of zeros


@dataclass(frozen=True)
class Matching:
    """Pairs of columns.

    Attributes:
        n_columns: of the matrix; columns of zeros are numbered from here on.
        pairs: (first, second), in order of the first.
    """

    n_columns: int
    pairs: tuple[tuple[int, int], ...]

    @cached_property
    def zero_columns(self) -> int:
        """p: how many columns of zeros there are."""
        return 2 * len(self.pairs) - self.n_columns


def vector_order(matching: Matching) -> Order:
    """The vectors of all pairs, one pair after the other, an even number of pairs; `ZERO` for
    vectors of zeros.
    """
    order = [end if end < matching.n_columns else ZERO for pair in matching.pairs for end in pair]
    return np.array(order + [ZERO] * (-len(order) % 4), np.int64)


def column_order(vectors: Order, vector: int) -> Order:
    """Columns in the order of the transformed matrix.

    Args:
        vectors: two pairs of them after each other, `ZERO` for vectors of zeros.
        vector: columns of each.

    >>> column_order(np.array([0, 2, 1, 3]), 1).tolist()
    [0, 2, 1, 3]
    >>> column_order(np.array([0, 2, 1, 3]), 4).tolist()
    [0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15]
    """
    first = np.where(vectors == ZERO, ZERO, vectors * vector)
    columns = np.where(vectors[:, None] == ZERO, ZERO, first[:, None] + np.arange(vector))
    if vector == 1:
        return columns.reshape(-1)
    return columns.reshape(-1, 4, vector // 2, 2).transpose(0, 2, 1, 3).reshape(-1)


def permute_columns(matrix: npt.NDArray[np.float64], order: Order) -> npt.NDArray[np.float64]:
    """A'': the columns of A' in order, with columns of zeros where the order has them."""
    return np.where(order == ZERO, 0.0, matrix[:, order])
