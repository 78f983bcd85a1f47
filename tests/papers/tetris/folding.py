"""Tensor Trapezoid Folding in NumPy: what trapezoid.cu and trapezoid_1d.cu compute, without a GPU."""

from __future__ import annotations

import math

import numpy as np

from tetris_sim.gpu_kernels.tensor_cores.trapezoid import CHUNK, GROUP, Float64, Folding


def apply_folding(folding: Folding, u: Float64) -> Float64:
    """One application, on the points whose neighbours all lie in `u`.

    Args:
        folding: of a stencil.
        u: values, (z, y, x); in 1D (1, x, 1).

    Returns:
        The new values, smaller by the radius on each side of each axis.
    """
    nz, ny, nx = (n - 2 * radius for n, radius in zip(u.shape, folding.radii, strict=True))
    groups = math.ceil(ny / GROUP)
    rows = np.zeros((u.shape[0], GROUP * (groups - 1) + CHUNK * folding.chunks, u.shape[2]))
    # Below them zeros, which the band's zeros meet.
    rows[:, : u.shape[1]] = u[:, : rows.shape[1]]

    result = np.zeros((nz, GROUP * groups, nx))
    for group, chunk in np.ndindex(groups, folding.chunks):
        first = GROUP * group + CHUNK * chunk
        for dz, tap in np.ndindex(folding.weights.shape[:2]):
            if not is_met(folding, dz, tap, chunk):
                continue
            operand = _fold_row(folding, rows[dz : dz + nz, first : first + CHUNK], tap, nx)
            matrix = band(folding, dz, tap)[CHUNK * chunk : CHUNK * (chunk + 1)]
            product = np.einsum("zkx,kn->znx", operand, matrix)
            result[:, GROUP * group : GROUP * (group + 1)] += product
    return result[:, :ny]


def band(folding: Folding, dz: int, tap: int) -> Float64:
    """The banded matrix of one offset, (4 * chunks, 8): column n holds the weights from row n on.

    >>> from tetris_sim.gpu_kernels.tensor_cores.trapezoid import fold
    >>> from tetris_sim.model.stencil import Stencil
    >>> line = fold(Stencil(((-1,), (0,), (1,)), (1.0, 2.0, 3.0)))
    >>> band(line, 0, 0)[:4, :3]
    array([[1., 0., 0.],
           [2., 1., 0.],
           [3., 2., 1.],
           [0., 3., 2.]])
    """
    matrix = np.zeros((CHUNK * folding.chunks, GROUP))
    for n in range(GROUP):
        matrix[n : n + folding.weights.shape[2], n] = folding.weights[dz, tap]
    return matrix


def is_met(folding: Folding, dz: int, tap: int, chunk: int) -> bool:
    """Whether a chunk of rows meets this band at all; products that it does not meet are left
    out.
    """
    reach, first = int(folding.reaches[dz, tap]), CHUNK * chunk - folding.radii[1]
    return reach >= 0 and first + CHUNK - 1 >= -reach and first <= GROUP - 1 + reach


def n_products(folding: Folding) -> int:
    """Multiplications per point on tensor cores, those with zeros of a band included."""
    columns = np.ndindex(*folding.reaches.shape, folding.chunks)
    return CHUNK * sum(is_met(folding, *column) for column in columns)


def _fold_row(folding: Folding, rows: Float64, tap: int, nx: int) -> Float64:
    if not folding.mirrored:
        return rows[:, :, tap : tap + nx]
    low, high = folding.radii[2] - tap, folding.radii[2] + tap
    if tap == 0:
        return rows[:, :, low : low + nx]
    return rows[:, :, low : low + nx] + rows[:, :, high : high + nx]
