"""Formats of the operands: how weights are rounded to them, and how matrices lie in the registers of `mma`.

FP16 has 11 bits and 5 for the exponent, BF16 8 and 8, TF32 11 and 8. Weights of TF32 are rounded to those of FP16,
which are among its numbers: `sparse.rounding` keeps their sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.sparse.rounding import round_weights
from tetris_sim.stencil import Stencil

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Format:
    """Of the numbers that tensor cores multiply.

    Attributes:
        name: of the format.
        bits: of a number without its exponent, the one in front of the point included.
        words: registers that a lane holds of a matrix of 16 x 8.
    """

    name: str
    bits: int
    words: int

    @property
    def eps(self) -> float:
        """How much rounding to nearest changes a number at most, relative to it."""
        return 2.0**-self.bits


FLOAT16 = Format("FP16", 11, 2)
BFLOAT16 = Format("BF16", 8, 2)
TFLOAT32 = Format("TF32", 11, 4)
FORMATS = (FLOAT16, BFLOAT16, TFLOAT32)  # by their number in tcstencil.cu


def rounded(values: npt.ArrayLike, format_: Format) -> Array:
    """Values to the nearest of a format, ties to even.

    >>> rounded([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8], BFLOAT16)
    array([1.      , 1.      , 1.015625])
    """
    if format_ is FLOAT16:
        return np.asarray(values).astype(np.float16).astype(np.float64)
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    dropped = 24 - format_.bits
    odd = bits >> np.uint64(dropped) & np.uint64(1)
    kept = (bits + odd + np.uint64((1 << (dropped - 1)) - 1)) >> np.uint64(dropped) << np.uint64(dropped)
    return kept.astype(np.uint32).view(np.float32).astype(np.float64)


def operand_weights(stencil: Stencil, format_: Format) -> Stencil:
    """The stencil with weights that a format has, and a sum near theirs.

    In BF16 the point in the middle, if there is one, takes what rounding the others has lost, and is rounded last.
    """
    if format_ is not BFLOAT16:
        return round_weights(stencil)
    near = dict(zip(stencil.offsets, map(float, rounded(stencil.weights, format_)), strict=True))
    middle = (0,) * stencil.ndim
    if middle in near:
        others = math.fsum(weight for offset, weight in near.items() if offset != middle)
        near[middle] = float(rounded(math.fsum(stencil.weights) - others, format_))
    return Stencil(stencil.offsets, tuple(near[offset] for offset in stencil.offsets))


def without_zeros(stencil: Stencil) -> Stencil:
    """Without points whose weights have become zero: far from the middle those of many steps are below any FP16.

    >>> without_zeros(Stencil(((-1,), (0,), (1,)), (0.0, 1.0, 0.0))).offsets
    ((0,),)
    """
    terms = {offset: weight for offset, weight in stencil.terms.items() if weight != 0.0}
    return Stencil.from_terms(terms or {(0,) * stencil.ndim: 0.0})


def mirror_rows(stencil: Stencil) -> Stencil:
    """The stencil with the weights of its lower half along the first axis in the upper half, too.

    Rounding may move two weights by a place that are equal but not opposite. Where a kernel wants them equal, that is
    undone, and the sum is as much less exact.

    Raises:
        ValueError: they differ by more than roundings do.
    """
    terms = stencil.terms
    if any((-dy, *rest) not in terms for dy, *rest in terms):
        msg = "a row has points that the one at the same distance does not have"
        raise ValueError(msg)
    made = {(dy, *rest): terms[-abs(dy), *rest] for dy, *rest in terms}
    if any(abs(made[offset] - terms[offset]) > 4 * FLOAT16.eps * max(map(abs, terms.values())) for offset in terms):
        msg = "rows at the same distance have different weights"
        raise ValueError(msg)
    return Stencil.from_terms(made)


def matrix_registers(matrices: Array, format_: Format, run: int) -> Words:
    """The registers of B, (n, 32 lanes, words), of matrices (n, 16, 8).

    The order of rows in a product is free as long as the columns of A have the same: lane 4 g + t holds of column g
    rows 2 t, 2 t + 1 and those 8 further on, or 4 t to 4 t + 3.

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
