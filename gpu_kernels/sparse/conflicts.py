"""The conflict graph (SparStencil, definitions 1 to 3): which columns may share a pair.

If no row has non-zeros in both columns of a pair, a row has at most one non-zero per pair, and two
pairs make a group of four with at most two. Graphs are symmetric boolean matrices; columns of
zeros, which the augmented graph has behind the others, are in conflict with none.

2:4 is weaker than two such pairs: both non-zeros may stand in one pair. `vector_graph` uses that.
Its nodes are runs of neighbouring columns, which a thread can load at once; two of them are
interleaved two columns at a time, and conflict only if some row then has three non-zeros in a group
of four.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Graph = npt.NDArray[np.bool_]
Pairs = Sequence[tuple[int, int]]


def conflict_graph(matrix: npt.NDArray[np.generic]) -> Graph:
    """Definition 1: columns i and j conflict if some row is non-zero in both, (columns, columns).

    >>> conflict_graph(np.array([[1, 1, 0, 0], [0, 1, 1, 0]])).astype(int)
    array([[0, 1, 0, 0],
           [1, 0, 1, 0],
           [0, 1, 0, 0],
           [0, 0, 0, 0]])
    """
    pattern = (np.asarray(matrix) != 0).astype(np.int64)
    graph: Graph = (pattern.T @ pattern) > 0
    np.fill_diagonal(graph, False)
    return graph


def vector_graph(matrix: npt.NDArray[np.generic], vector: int) -> Graph:
    """The same for vectors of neighbouring columns, (columns / vector, columns / vector).

    Args:
        matrix: (rows, columns), columns a multiple of `vector`.
        vector: columns of a vector: 1, which is `conflict_graph`, or an even number.
    """
    if vector == 1:
        return conflict_graph(matrix)
    rows, columns = matrix.shape
    if vector % 2 or columns % vector:
        msg = (
            f"vectors have 1 or an even number of columns and fill the matrix, got {vector} for "
            f"{columns} columns"
        )
        raise ValueError(msg)
    pattern = (np.asarray(matrix) != 0).reshape(rows, columns // vector, vector // 2, 2)
    count = pattern.sum(axis=-1)  # of each two columns
    graph: Graph = (count[:, :, None] + count[:, None, :] > 2).any(axis=(0, 3))
    np.fill_diagonal(graph, False)
    return graph


def augment(graph: Graph, zero_columns: int) -> Graph:
    """Definition 2: the graph with columns of zeros behind the others."""
    return np.pad(graph, (0, zero_columns))


def is_valid(pairs: Pairs, graph: Graph, zero_columns: int) -> bool:
    """Definition 3: every column of the matrix is in exactly one pair, and no pair conflicts.

    Args:
        pairs: of columns; from `len(graph)` on they are columns of zeros.
        graph: of the matrix, without those.
        zero_columns: how many there are.
    """
    whole = augment(graph, zero_columns)
    ends = [end for pair in pairs for end in pair]
    covered = len(set(ends)) == len(ends) and set(range(len(graph))) <= set(ends) <= set(
        range(len(whole))
    )
    return covered and not any(whole[i, j] for i, j in pairs)
