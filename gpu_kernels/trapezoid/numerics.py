"""Tensor Trapezoid Folding: a stencil as the matrices of trapezoid.cu and trapezoid_1d.cu.

Eight points in a row along one axis depend on 8 + 2 * radius by a banded matrix, whose columns are
the weights, each shifted down by one (papers/004, section 3.2: a stair tetromino). One such matrix
belongs to every offset across that axis; the products of all of them with the shifted rows,
accumulated, are the stencil (the plane tetrominoes). tests/papers/tetris/folding.py applies them in
NumPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tetris_sim.model.grid import on_three
from tetris_sim.model.stencil import Stencil

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
