"""TCStencil's tiles in NumPy: a tile of 16 x 16 points times banded parameter matrices, as the
paper has it.

A parameter matrix holds a column of the stencil's weights in each of its rows, shifted by one from
row to row. Times the tile, it makes of every point what the column makes of the points above and
below, and the stencil is the sum of these products, each shifted along x by the offset of its
column (Algorithm 1 of the appendix: `soutput1` to `soutput3` are the products, added in shared
memory). How many there are:

    star      2: the column in the middle, and the row in the middle as a band on the other side of
    the tile mirrored  r + 1: columns at the same distance have the same weights, so their product
    is made once and added twice any       2 r + 1

Results are the 16 - 2 r points along each axis that depend on the tile only: tiles overlap. This is
for 2D; `windows.py` is for any number of axes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.model.stencil import Stencil

TILE = 16  # points along each axis: the shape of WMMA's product of FP16

Array = npt.NDArray[np.float64]
Way = Literal["star", "mirrored", "any"]


def parameter_matrix(weights: Array) -> Array:
    """The band of a column of weights, (16, 16): row i has them around column i, as far as there
    are columns.

    >>> parameter_matrix(np.array([1.0, 2.0, 3.0]))[:3, :4]
    array([[2., 3., 0., 0.],
           [1., 2., 3., 0.],
           [0., 1., 2., 3.]])

    Args:
        weights: of offsets -r to r.
    """
    radius = len(weights) // 2
    matrix = np.zeros((TILE, TILE))
    for distance, weight in enumerate(weights, start=-radius):
        matrix += weight * np.eye(TILE, k=distance)
    return matrix


def way_of(stencil: Stencil) -> Way:
    """Which of the three ways makes fewest products of a 2D stencil."""
    box = stencil.dense()
    mirrored = np.array_equal(box, box[:, ::-1])
    if stencil.is_star and not (mirrored and stencil.radii[1] == 0):
        return "star"
    return "mirrored" if mirrored else "any"


def n_products(stencil: Stencil) -> int:
    """Products of 16 x 16 x 16 for one tile.

    >>> from tetris_sim.model.stencils.catalogue import named_stencil
    >>> names = ("heat-2d", "star-2d9p", "box-2d9p", "box-2d25p")
    >>> [n_products(named_stencil(name).stencil) for name in names]
    [2, 2, 2, 3]
    """
    radius = stencil.radii[1]
    return {"star": 2, "mirrored": radius + 1, "any": 2 * radius + 1}[way_of(stencil)]


def results_per_tile(radii: tuple[int, ...]) -> tuple[int, int]:
    """Points along each axis that depend on one tile only."""
    return TILE - 2 * radii[0], TILE - 2 * radii[1]


def apply_to_tile(tile: Array, stencil: Stencil, way: Way) -> Array:
    """What a tile makes, (16 - 2 ry, 16 - 2 rx).

    Args:
        tile: (16, 16).
        stencil: of two axes.
        way: the stencil must be one of its kind.
    """
    box, (ry, rx) = stencil.dense(), stencil.radii
    inside = slice(ry, TILE - ry)
    if way == "star":
        row = box[ry].copy()
        row[rx] = 0.0  # the point in the middle is in the column
        return (parameter_matrix(box[:, rx]) @ tile + tile @ parameter_matrix(row).T)[
            inside, rx : TILE - rx
        ]
    result = np.zeros(results_per_tile(stencil.radii))
    for column in range(rx + 1 if way == "mirrored" else 2 * rx + 1):
        product = (parameter_matrix(box[:, column]) @ tile)[inside]  # soutput of the paper
        for shift in {column, 2 * rx - column} if way == "mirrored" else {column}:
            result += product[:, shift : shift + result.shape[1]]
    return result


def apply_by_tiles(u: Array, stencil: Stencil, way: Way) -> Array:
    """One application to all points whose neighbours lie in `u`, tile by tile.

    Args:
        u: values, (y, x).
        stencil: of two axes.
        way: the stencil must be one of its kind.

    Returns:
        The new values, smaller by the radius on each side of each axis.
    """
    ny, nx = (n - 2 * radius for n, radius in zip(u.shape, stencil.radii, strict=True))
    height, width = results_per_tile(stencil.radii)
    result = np.zeros((ny, nx))
    for y in range(0, ny, height):
        for x in range(0, nx, width):
            tile = np.zeros((TILE, TILE))  # beyond the grid zeros
            part = u[y : y + TILE, x : x + TILE]
            tile[: part.shape[0], : part.shape[1]] = part
            made = apply_to_tile(tile, stencil, way)
            result[y : y + height, x : x + width] = made[: ny - y, : nx - x]
    return result
