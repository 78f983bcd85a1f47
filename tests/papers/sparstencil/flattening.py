"""Stencil flattening (SparStencil, section 3.1, figure 2): a stencil as a vector times a matrix.

The weights of the box around a stencil become one row, the *kernel vector*; the points under the
box, at each of its places, become a column of the *input matrix*. Every point of the grid then
stands in as many columns as there are weights. Figure 3 names these duplicates: in submatrix i (all
points of row i of the box) the next column repeats all but one point of this one (equation 3); from
one row of results to the next submatrices repeat (equation 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tetris_sim.model.stencil import Stencil

Array = npt.NDArray[np.float64]


def kernel_vector(stencil: Stencil) -> Array:
    """The weights of the box around a stencil, (1, product of its widths).

    >>> kernel_vector(Stencil(((-1,), (1,)), (0.25, 0.75)))
    array([[0.25, 0.  , 0.75]])
    """
    return stencil.dense().reshape(1, -1)


def input_matrix(u: npt.NDArray[np.generic], widths: Sequence[int]) -> npt.NDArray[np.generic]:
    """The points under a box at each of its places, (product of widths, places).

    Args:
        u: a grid of as many axes.
        widths: of the box.
    """
    windows = np.lib.stride_tricks.sliding_window_view(u, tuple(widths))
    return windows.reshape(-1, math.prod(widths)).T


def apply_flattened(u: Array, stencil: Stencil) -> Array:
    """The stencil at all points that have all neighbours, as the product of its flattened forms.

    Args:
        u: (n0, [n1, [n2]]).
        stencil: of as many axes.
    """
    widths = [2 * radius + 1 for radius in stencil.radii]
    shape = [n - width + 1 for n, width in zip(u.shape, widths, strict=True)]
    product: Array = kernel_vector(stencil) @ np.asarray(input_matrix(u, widths), np.float64)
    return product.reshape(shape)
