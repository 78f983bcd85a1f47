"""Duplicates crush (SparStencil, section 3.1, figures 3 and 4): results share a column, weights
become stairs.

r1 neighbouring results along x and r2 along y (`merged`, array order: (..., r2, r1)) are made from
one column of the crushed input B', the points under all of their boxes, each once. The kernel
vector becomes a matrix A' with a row for each of these results; its row has the weights where the
box of that result lies in the common patch:

    A'[result j, point p] = weight[p - j]         m' = r1 r2 rows, k' = (k + r1 - 1)(k + r2 - 1)
    columns

Merging no results is plain flattening.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Layout:
    """How a stencil is morphed into matrices.

    Attributes:
        widths: of the box of weights along each axis: the paper's k.
        merged: results that share a column along each axis: (r1,), (r2, r1) or (r3, r2, r1).
    """

    widths: tuple[int, ...]
    merged: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.widths) != len(self.merged) or min(*self.widths, *self.merged) < 1:
            msg = (
                f"a layout has a positive width and number of results per axis, got {self.widths} "
                f"and {self.merged}"
            )
            raise ValueError(msg)

    @property
    def patch(self) -> tuple[int, ...]:
        """Points along each axis that the merged results depend on."""
        return tuple(width + n - 1 for width, n in zip(self.widths, self.merged, strict=True))

    @property
    def rows(self) -> int:
        """m': rows of A'.

        >>> Layout((7, 7), (4, 4)).rows
        16
        """
        return math.prod(self.merged)

    @property
    def columns(self) -> int:
        """k': columns of A' and rows of B'.

        >>> Layout((7, 7), (4, 4)).columns
        100
        """
        return math.prod(self.patch)

    def n_patches(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Patches along each axis of a grid with so many points; the last ones may be partly beyond
        it.
        """
        return tuple(
            -(-(n - width + 1) // merged)
            for n, width, merged in zip(shape, self.widths, self.merged, strict=True)
        )


def crush_weights(weights: Array, merged: Sequence[int]) -> Array:
    """A', (product of merged, product of the patch).

    Args:
        weights: of the box, (k0, [k1, [k2]]).
        merged: results that share a column, per axis.

    >>> crush_weights(np.array([1.0, 2.0, 3.0]), (2,))
    array([[1., 2., 3., 0.],
           [0., 1., 2., 3.]])
    """
    layout = Layout(weights.shape, tuple(merged))
    crushed = np.zeros((*layout.merged, *layout.patch))
    for result in np.ndindex(*layout.merged):
        box = tuple(
            slice(start, start + width) for start, width in zip(result, layout.widths, strict=True)
        )
        crushed[(*result, *box)] = weights
    return crushed.reshape(layout.rows, layout.columns)


def crush_input(u: npt.NDArray[np.generic], layout: Layout) -> npt.NDArray[np.generic]:
    """B', (product of the patch, patches): a column for each group of results that share it.

    Args:
        u: a grid of as many axes; what patches lack at its end are zeros.
        layout: of the matrices.
    """
    patches = layout.n_patches(u.shape)
    padded = [
        n * merged + width - 1
        for n, merged, width in zip(patches, layout.merged, layout.widths, strict=True)
    ]
    whole = np.pad(
        u, [(0, max(0, want - have)) for want, have in zip(padded, u.shape, strict=True)]
    )
    windows = np.lib.stride_tricks.sliding_window_view(whole, layout.patch)
    windows = windows[
        tuple(
            slice(None, n * merged, merged)
            for n, merged in zip(patches, layout.merged, strict=True)
        )
    ]
    return windows.reshape(math.prod(patches), layout.columns).T


def spread_results(results: Array, layout: Layout, shape: Sequence[int]) -> Array:
    """The product A' B' as a grid again.

    Args:
        results: (product of merged, patches).
        layout: of the matrices.
        shape: of the grid that was crushed.
    """
    ndim, patches = len(shape), layout.n_patches(shape)
    parts = results.reshape(*layout.merged, *patches)
    order = [
        axis for k in range(ndim) for axis in (ndim + k, k)
    ]  # patch, result, patch, result, ...
    sizes = [n * merged for n, merged in zip(patches, layout.merged, strict=True)]
    whole = parts.transpose(order).reshape(sizes)
    return whole[tuple(slice(n - width + 1) for n, width in zip(shape, layout.widths, strict=True))]
