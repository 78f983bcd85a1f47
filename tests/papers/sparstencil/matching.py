"""Pairs of columns (SparStencil, problem 1): algorithm 1 as it is published, and the largest
matching there is.

A column without a partner gets a column of zeros, so the fewest zero columns are those of the
largest matching of columns that do not conflict. Algorithm 1 finds a matching of a staircase in
linear time: whole blocks are matched a fixed number of blocks apart, and in every block that is
left over the columns are.

Theorem 2 calls that minimal. It is, where no block is left over, where there is one block only, and
where one is left over that has 2 k columns or more. Else columns of different blocks could be
paired: k = 3, r1 = 5, r2 = 2 leaves two blocks of seven columns, which get a zero column each, and
k = 3, r1 = 2, r2 = 5 one block of four, which gets two, though neither needs any. `pipeline.match`
takes it where it is as good as any matching can be, and the blossom algorithm (networkx) elsewhere.
"""

from __future__ import annotations

import numpy as np

from tetris_sim.gpu_kernels.tensor_cores.sparse import Graph, Matching


def hierarchical_matching(
    n_blocks: int, columns: int, k: int, block_k: int | None = None
) -> Matching:
    """Algorithm 1: blocks first, then the columns of blocks that are left over.

    Args:
        n_blocks: m = n / g of the paper: blocks of columns side by side.
        columns: g: in each block.
        k: width of the stairs in a block.
        block_k: width of the stairs of blocks, where it is another one.

    >>> hierarchical_matching(4, 7, 3).zero_columns
    2
    """
    matched_blocks, left = _match_apart(n_blocks, k if block_k is None else block_k)
    matched_columns, alone = _match_apart(columns, k)
    pairs = [(p * columns + t, q * columns + t) for p, q in matched_blocks for t in range(columns)]
    zero = n_blocks * columns
    for block in left:
        pairs += [(block * columns + u, block * columns + v) for u, v in matched_columns]
        for u in alone:
            pairs.append((block * columns + u, zero))
            zero += 1
    return Matching(n_blocks * columns, tuple(sorted(pairs)))


def _match_apart(n: int, k: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Lines 1 to 4 (and 5 to 13): pairs that are max(n // 2, k) apart, and what has no partner."""
    apart = max(n // 2, k)
    matched: set[int] = set()
    pairs = []
    for i in range(n):
        if i not in matched and i + apart < n:
            matched |= {i, i + apart}
            pairs.append((i, i + apart))
    return pairs, [i for i in range(n) if i not in matched]


def maximum_matching(graph: Graph) -> Matching:
    """A matching with the fewest zero columns, of any conflict graph: the blossom algorithm (J.
    Edmonds, 1965).
    """
    import networkx

    allowed = networkx.Graph()
    allowed.add_nodes_from(range(len(graph)))
    allowed.add_edges_from(map(tuple, np.argwhere(np.triu(~graph, 1)).tolist()))
    found = networkx.max_weight_matching(allowed, maxcardinality=True)
    return complete(len(graph), sorted((min(pair), max(pair)) for pair in found))


def complete(n_columns: int, pairs: list[tuple[int, int]]) -> Matching:
    """The matching with these pairs, in which every other column gets a column of zeros."""
    matched = {end for pair in pairs for end in pair}
    alone = [i for i in range(n_columns) if i not in matched]
    return Matching(
        n_columns, tuple(sorted([*pairs, *((u, n_columns + zero) for zero, u in enumerate(alone))]))
    )


def lower_bound(graph: Graph) -> int:
    """Zero columns that any matching needs: each two columns that conflict with all others, and an
    odd number of them.

    A column that conflicts with every other one has no partner; what is left over must be even.
    """
    n = len(graph)
    lonely = int((graph.sum(axis=1) == n - 1).sum())
    return lonely + (n - lonely) % 2
