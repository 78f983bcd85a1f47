"""stencil2row and dual tessellation in NumPy: what the kernels dual_tessellation*.cu compute, to be
read and believed.

ConvStencil (Chen et al., PPoPP 2024, sections 3.2 to 3.4 and 4) writes a stencil as products of
matrices. For a kernel n points wide, the columns of the grid are taken in groups of n + 1 results:

    matrix A, row g:  columns (n+1) g     ... (n+1) g + n - 1   of every row of the grid, one after
    the other matrix B, row g:  columns (n+1) g + n ... (n+1) g + 2n - 1

Result j of group g needs the last n - j of the former and the first j of the latter, so a lower
triangular matrix of weights makes one half of it from A (a *vitrolite*), an upper triangular one
the other half from B, and their sum is the result (the *tessellation*).

One column of n + 1 belongs to no group of A, another to none of B. *Dirty bits*: every row of the
grid gets a place of padding in either matrix and those points are written there, so no point has to
be asked whether it is needed. The padding lies in front in A and behind in B; then B is A one row
further on (`matrices`), and the CUDA kernels keep one.

Nothing here is fast.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tetris_sim.model.stencil import Stencil

Array = npt.NDArray[np.float64]
Table = npt.NDArray[np.int64]


def lookup_tables(columns: int, width: int) -> tuple[Table, Table]:
    """Where each column of the grid goes in matrices A and B: equations 5 and 6 with a place for
    dirty bits.

    Args:
        columns: of the grid.
        width: n, of the kernel.

    Returns:
        For A and for B (columns, 2): the group, and the place 0 ... n within it. In A place 0 is
        padding and the paper's place is one less; in B place n is padding. Groups before the first
        are negative.

    >>> a, b = lookup_tables(8, 3)
    >>> a.tolist()
    [[0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [1, 2], [1, 3], [2, 0]]
    >>> b.tolist()
    [[-1, 1], [-1, 2], [-1, 3], [0, 0], [0, 1], [0, 2], [0, 3], [1, 0]]
    """
    column = np.arange(columns)
    a = np.stack(np.divmod(column + 1, width + 1), axis=1)
    b = np.stack(np.divmod(column - width, width + 1), axis=1)
    return a, b


def stencil2row(u: Array, width: int) -> tuple[Array, Array]:
    """Matrices A and B of a grid, padding included.

    Args:
        u: (rows, columns).
        width: n, of the kernel.

    Returns:
        Both (groups, rows, n + 1): the paper's rows, with the n places of a row of the grid and its
        padding apart.
    """
    rows, columns = u.shape
    matrices = []
    for table in lookup_tables(columns, width):
        matrix = np.zeros((n_groups(columns, width), rows, width + 1))
        for column, (group, place) in enumerate(table):
            if 0 <= group < len(matrix):
                matrix[group, :, place] = u[:, column]
        matrices.append(matrix)
    return matrices[0], matrices[1]


def n_groups(columns: int, width: int) -> int:
    """Groups of n + 1 results in a row of the grid: equation 7, where the last one may be only
    partly used.
    """
    return math.ceil((columns - width + 1) / (width + 1))


def weight_matrices(kernel: Array) -> tuple[Array, Array]:
    """Weight matrices A (lower triangles) and B (upper triangles) of a kernel.

    Args:
        kernel: (rows, n), the weights of the stencil; n is odd.

    Returns:
        Both (rows, n + 1, n + 1): for each row of the kernel, places of A or B by results. Padding
        has weight 0.

    >>> a, b = weight_matrices(np.array([[1.0, 2.0, 3.0]]))
    >>> a[0]
    array([[0., 0., 0., 0.],
           [1., 0., 0., 0.],
           [2., 1., 0., 0.],
           [3., 2., 1., 0.]])
    >>> b[0]
    array([[0., 3., 2., 1.],
           [0., 0., 3., 2.],
           [0., 0., 0., 3.],
           [0., 0., 0., 0.]])
    """
    rows, width = kernel.shape
    a, b = np.zeros((2, rows, width + 1, width + 1))
    for result in range(width + 1):
        for tap in range(width):
            column = result + tap  # counted from the first of the group
            if column < width:
                a[:, column + 1, result] = kernel[:, tap]
            else:
                b[:, column - width, result] = kernel[:, tap]
    return a, b


def dual_tessellation(u: Array, kernel: Array) -> Array:
    """Apply a 2D stencil to all points that have all neighbours.

    Args:
        u: (rows, columns).
        kernel: (p, n) weights, both odd; `kernel[p // 2, n // 2]` is the weight of the point
            itself.

    Returns:
        (rows - p + 1, columns - n + 1).
    """
    taps, width = kernel.shape
    rows, columns = len(u) - taps + 1, u.shape[1] - width + 1
    matrix_a, matrix_b = stencil2row(u, width)
    weights_a, weights_b = (weights.reshape(-1, width + 1) for weights in weight_matrices(kernel))
    result = np.empty((rows, len(matrix_a) * (width + 1)))
    for row in range(rows):
        # A tile: what a row of results reads. The next one begins n (here n + 1, for the padding)
        # places further on.
        tile_a = matrix_a[:, row : row + taps].reshape(len(matrix_a), -1)
        tile_b = matrix_b[:, row : row + taps].reshape(len(matrix_b), -1)
        vitrolite_a = tile_a @ weights_a
        vitrolite_b = tile_b @ weights_b
        result[row] = (vitrolite_a + vitrolite_b).reshape(-1)
    return result[:, :columns]


def apply(u: Array, stencil: Stencil) -> Array:
    """Apply a stencil of one to three axes to all points that have all neighbours.

    A 1D stencil is a 2D stencil of one row (section 4.1), a 3D one a sum of 2D ones, one for each
    plane (section 4.2).

    Args:
        u: (n0, [n1, [n2]]).
        stencil: of as many axes.

    Returns:
        As `u`, smaller by the radius at either end of each axis.
    """
    kernel = stencil.dense()
    kernel = kernel.reshape((1,) * (3 - kernel.ndim) + kernel.shape)
    grid = u.reshape((1,) * (3 - u.ndim) + u.shape)
    planes = [
        sum(
            (dual_tessellation(grid[z + p], plane) for p, plane in enumerate(kernel)),
            start=np.zeros(()),
        )
        for z in range(len(grid) - len(kernel) + 1)
    ]
    return np.stack(planes).reshape(
        [n - 2 * r for n, r in zip(u.shape, stencil.radii, strict=True)]
    )
