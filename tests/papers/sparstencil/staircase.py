"""The k-staircase property (SparStencil, definition 4 and theorem 1): which columns of a crushed
matrix keep apart.

A matrix is a k-staircase if row r has its non-zeros in columns r to r + k - 1. The paper prints r
<= c < r + k - 1, which are only k - 1 of them. A crushed matrix is one on two levels (figure 5):
its blocks, one per row of results and row of points, are the stairs of the box along y, and each
block that is not zero has the stairs along x.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tests.papers.sparstencil.crush import Layout

Pattern = npt.NDArray[np.bool_]


def is_staircase(pattern: Pattern, k: int) -> bool:
    """Definition 4, corrected: element (r, c) is non-zero exactly where r <= c < r + k.

    >>> is_staircase(np.array([[1, 1, 0], [0, 1, 1]], bool), 2)
    True
    """
    rows, columns = np.indices(pattern.shape)
    return bool(np.array_equal(pattern, (rows <= columns) & (columns < rows + k)))


def blocks(pattern: Pattern, layout: Layout) -> npt.NDArray[np.bool_]:
    """A pattern of the crushed matrix by blocks of the last axis, (rows of results, r1, rows of
    points, k + r1 - 1).
    """
    return pattern.reshape(
        -1, layout.merged[-1], layout.columns // layout.patch[-1], layout.patch[-1]
    )


def is_self_similar(pattern: Pattern, layout: Layout) -> bool:
    """Whether a 1D or 2D pattern is a staircase of blocks, and each block that is not zero a
    staircase (figure 5a).
    """
    if len(layout.merged) > 2:
        return False
    split = blocks(pattern, layout)
    present: Pattern = np.any(split, axis=(1, 3))
    height = layout.widths[-2] if len(layout.widths) == 2 else 1
    return is_staircase(present, height) and all(
        is_staircase(split[i, :, j], layout.widths[-1]) for i, j in np.argwhere(present)
    )
