"""Tensor Trapezoid Folding in NumPy: what trapezoid.cu and trapezoid_1d.cu compute, without a GPU.

Eight points in a row along one axis depend on 8 + 2 * radius by a banded matrix, whose columns are
the weights, each shifted down by one (papers/004, section 3.2: a stair tetromino). One such matrix
belongs to every offset across that axis; the products of all of them with the shifted rows,
accumulated, are the stencil (the plane tetrominoes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tetris_sim.axes import on_three
from tetris_sim.stencil import Stencil

GROUP = 8  # points that one product updates: columns of B in mma.m16n8k4
CHUNK = 4  # points that one product reads: rows of B

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Folding:
    """A stencil as banded matrices along one axis: y, in 1D x.

    Attributes:
        weights: their matrix [dz][tap][dy], where tap is dx counted from the lowest, or from 0 if
            the stencil is mirrored. In 1D [0][0][dx].
        mirrored: whether offsets dx and -dx have the same weights, so that their points are added
            before they are multiplied.
    """

    weights: Float64
    mirrored: bool

    @cached_property
    def radii(self) -> tuple[int, int, int]:
        """How far it reaches along z, the folded axis, and x."""
        n_z, n_taps, n_along = self.weights.shape
        return n_z // 2, n_along // 2, n_taps - 1 if self.mirrored else n_taps // 2

    @cached_property
    def chunks(self) -> int:
        """Chunks of four rows that a group of eight depends on."""
        return math.ceil((GROUP + 2 * self.radii[1]) / CHUNK)

    @cached_property
    def reaches(self) -> npt.NDArray[np.int64]:
        """How far the weights of [dz][tap] that are not zero reach along the folded axis; -1 where
        all are zero.
        """
        distance = np.abs(np.arange(self.weights.shape[2]) - self.radii[1])
        reaches: npt.NDArray[np.int64] = np.where(self.weights != 0, distance, -1).max(axis=2)
        return reaches

    def band(self, dz: int, tap: int) -> Float64:
        """The banded matrix of one offset, (4 * chunks, 8): column n holds the weights from row n
        on.

        >>> line = fold(Stencil(((-1,), (0,), (1,)), (1.0, 2.0, 3.0)))
        >>> line.band(0, 0)[:4, :3]
        array([[1., 0., 0.],
               [2., 1., 0.],
               [3., 2., 1.],
               [0., 3., 2.]])
        """
        matrix = np.zeros((CHUNK * self.chunks, GROUP))
        for n in range(GROUP):
            matrix[n : n + self.weights.shape[2], n] = self.weights[dz, tap]
        return matrix

    def is_met(self, dz: int, tap: int, chunk: int) -> bool:
        """Whether a chunk of rows meets this band at all; products that it does not meet are left
        out.
        """
        reach, first = int(self.reaches[dz, tap]), CHUNK * chunk - self.radii[1]
        return reach >= 0 and first + CHUNK - 1 >= -reach and first <= GROUP - 1 + reach

    @cached_property
    def products(self) -> int:
        """Multiplications per point on tensor cores, those with zeros of a band included."""
        n_z, n_taps = self.reaches.shape
        return CHUNK * sum(self.is_met(*column) for column in np.ndindex(n_z, n_taps, self.chunks))

    def apply(self, u: Float64) -> Float64:
        """One application, on the points whose neighbours all lie in `u`.

        Args:
            u: values, (z, y, x); in 1D (1, x, 1).

        Returns:
            The new values, smaller by the radius on each side of each axis.
        """
        nz, ny, nx = (n - 2 * radius for n, radius in zip(u.shape, self.radii, strict=True))
        groups = math.ceil(ny / GROUP)
        rows = np.zeros((u.shape[0], GROUP * (groups - 1) + CHUNK * self.chunks, u.shape[2]))
        # Below them zeros, which the band's zeros meet.
        rows[:, : u.shape[1]] = u[:, : rows.shape[1]]

        result = np.zeros((nz, GROUP * groups, nx))
        for group, chunk in np.ndindex(groups, self.chunks):
            first = GROUP * group + CHUNK * chunk
            for dz, tap in np.ndindex(self.weights.shape[:2]):
                if not self.is_met(dz, tap, chunk):
                    continue
                operand = self._fold_row(rows[dz : dz + nz, first : first + CHUNK], tap, nx)
                matrix = self.band(dz, tap)[CHUNK * chunk : CHUNK * (chunk + 1)]
                result[:, GROUP * group : GROUP * (group + 1)] += np.einsum(
                    "zkx,kn->znx", operand, matrix
                )
        return result[:, :ny]

    def _fold_row(self, rows: Float64, tap: int, nx: int) -> Float64:
        if not self.mirrored:
            return rows[:, :, tap : tap + nx]
        low, high = self.radii[2] - tap, self.radii[2] + tap
        if tap == 0:
            return rows[:, :, low : low + nx]
        return rows[:, :, low : low + nx] + rows[:, :, high : high + nx]


def fold(stencil: Stencil) -> Folding:
    """Fold a stencil along y, in 1D along x."""
    radii = on_three(stencil.radii, 0)
    dense = stencil.dense().reshape([2 * radius + 1 for radius in radii])  # [dz][dy][dx]
    if stencil.ndim == 1:
        return Folding(dense, mirrored=False)
    across = np.ascontiguousarray(dense.transpose(0, 2, 1))
    mirrored = radii[2] > 0 and np.array_equal(across, across[:, ::-1])
    return Folding(
        np.ascontiguousarray(across[:, radii[2] :]) if mirrored else across, mirrored=bool(mirrored)
    )
