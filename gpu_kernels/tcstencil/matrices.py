"""Matrices of weights in the registers of `mma`, and the weights that they are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.formats import FLOAT16, TFLOAT32, Format, rounded
from tetris_sim.model.stencil import Stencil

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]


def without_zeros(stencil: Stencil) -> Stencil:
    """Without points whose weights have become zero: far from the middle those of many steps are
    below any FP16.

    >>> without_zeros(Stencil(((-1,), (0,), (1,)), (0.0, 1.0, 0.0))).offsets
    ((0,),)
    """
    terms = {offset: weight for offset, weight in stencil.terms.items() if weight != 0.0}
    return Stencil.from_terms(terms or {(0,) * stencil.ndim: 0.0})


def mirror_rows(stencil: Stencil) -> Stencil:
    """The stencil with the weights of its lower half along the first axis in the upper half, too.

    Rounding may move two weights by a place that are equal but not opposite. Where a kernel wants
    them equal, that is undone, and the sum is as much less exact.

    Raises:
        ValueError: they differ by more than roundings do.
    """
    terms = stencil.terms
    if any((-dy, *rest) not in terms for dy, *rest in terms):
        msg = "a row has points that the one at the same distance does not have"
        raise ValueError(msg)
    made = {(dy, *rest): terms[-abs(dy), *rest] for dy, *rest in terms}
    if any(
        abs(made[offset] - terms[offset]) > 4 * FLOAT16.eps * max(map(abs, terms.values()))
        for offset in terms
    ):
        msg = "rows at the same distance have different weights"
        raise ValueError(msg)
    return Stencil.from_terms(made)


def matrix_registers(matrices: Array, format_: Format, run: int) -> Words:
    """The registers of B, (n, 32 lanes, words), of matrices (n, 16, 8).

    The order of rows in a product is free as long as the columns of A have the same: lane 4 g + t
    holds of column g rows 2 t, 2 t + 1 and those 8 further on, or 4 t to 4 t + 3.

    Args:
        matrices: with numbers that the format has.
        format_: of the product.
        run: neighbouring rows that a lane holds: 2 or 4.

    Raises:
        ValueError: the format does not have one of the numbers.
    """
    if not np.array_equal(rounded(matrices, format_), matrices):
        msg = f"weights that are no numbers of {format_.name}"
        raise ValueError(msg)
    lanes = matrices.reshape(-1, 4 // run, 4, run, 8).transpose(0, 4, 2, 1, 3).reshape(-1, 32, 4)
    if format_ is TFLOAT32:
        return np.ascontiguousarray(lanes, np.float32).view(np.uint32)
    if format_ is FLOAT16:
        bits = lanes.astype(np.float16).view(np.uint16).astype(np.uint32)
    else:
        bits = np.ascontiguousarray(lanes, np.float32).view(np.uint32) >> np.uint32(16)
    return np.ascontiguousarray(bits[..., ::2] | bits[..., 1::2] << np.uint32(16))
