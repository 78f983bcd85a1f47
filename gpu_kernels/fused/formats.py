"""Formats of what tensor cores multiply, and weights that are among their numbers.

FP16 has 11 bits and 5 for the exponent, BF16 8 and 8, TF32 11 and 8. Weights of TF32 are rounded to
those of FP16, which are among its numbers: `rounding` keeps their sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.rounding import round_weights
from tetris_sim.model.stencil import Stencil

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A format of the numbers that tensor cores multiply.

    Attributes:
        name: what it is called.
        bits: places of a number, the one in front of the point included.
        words: registers of a lane that a matrix of 16 x 8 takes.
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
    return without_bits(np.asarray(values, np.float32), 24 - format_.bits).astype(np.float64)


def without_bits(values: npt.NDArray[np.float32], dropped: int) -> npt.NDArray[np.float32]:
    """The lowest `dropped` bits rounded away. A carry into the exponent is the right result, up to
    infinity.
    """
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(dropped)) & np.uint32(1)
    half = np.uint32((1 << (dropped - 1)) - 1)
    kept = ((bits + half + odd) & np.uint32(0xFFFFFFFF ^ ((1 << dropped) - 1))).view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), kept)


def operand_weights(stencil: Stencil, format_: Format) -> Stencil:
    """The stencil with weights that a format has, and a sum near theirs.

    In BF16 the point in the middle, if there is one, takes what rounding the others has lost, and
    is rounded last.
    """
    if format_ is not BFLOAT16:
        return round_weights(stencil)
    near = dict(zip(stencil.offsets, map(float, rounded(stencil.weights, format_)), strict=True))
    middle = (0,) * stencil.ndim
    if middle in near:
        others = math.fsum(weight for offset, weight in near.items() if offset != middle)
        near[middle] = float(rounded(math.fsum(stencil.weights) - others, format_))
    return Stencil(stencil.offsets, tuple(near[offset] for offset in stencil.offsets))
