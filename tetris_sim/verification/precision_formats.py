"""Number formats of tensor cores, emulated: float32 rounded to TF32, bfloat16 and float16."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.formats import without_bits
from tetris_sim.model.problem import Field
from tetris_sim.model.stencil import Stencil


@dataclass(frozen=True)
class NumberFormat:
    """A binary floating-point format.

    Attributes:
        name: as it is called.
        digits: binary digits of the significand, the leading one included.
        stored: whether the state itself is kept in it; if not, only what enters a product is
            rounded to it.
    """

    name: str
    digits: int
    stored: bool = True

    def spacing(self, value: float) -> float:
        """Distance of neighbouring numbers at `value`, which is of normal size.

        >>> FLOAT16.spacing(100.0)
        0.0625
        """
        return math.ldexp(1.0, math.frexp(value)[1] - self.digits)

    def rounded(self, values: Field) -> npt.NDArray[np.float32]:
        """float32 values rounded to the format, to nearest, ties to even, as float32."""
        if self == FLOAT16:
            with np.errstate(over="ignore"):  # beyond 65504 is infinity, as in the hardware
                return values.astype(np.float16).astype(np.float32)
        return without_bits(np.asarray(values, dtype=np.float32), 24 - self.digits)


FLOAT64 = NumberFormat("float64", 53)
FLOAT32 = NumberFormat("float32", 24)
TF32 = NumberFormat("tf32", 11, stored=False)
BFLOAT16 = NumberFormat("bfloat16", 8)
FLOAT16 = NumberFormat("float16", 11)
EMULATED = (TF32, BFLOAT16, FLOAT16)


def rounded_stencil(stencil: Stencil, form: NumberFormat, *, balanced: bool) -> Stencil:
    """The stencil with weights of the format.

    Weights that are rounded one by one no longer sum to what they should: every step then
    multiplies the whole field.

    Args:
        stencil: with a weight at the point itself if `balanced`.
        form: of the weights.
        balanced: whether the point itself gets the weight that keeps the sum, rounded once too.
    """

    def as_format(weight: float) -> float:
        return float(form.rounded(np.array([weight], dtype=np.float32))[0])

    terms = {offset: as_format(weight) for offset, weight in stencil.terms.items()}
    if balanced:
        centre = (0,) * stencil.ndim
        others = math.fsum(weight for offset, weight in terms.items() if offset != centre)
        terms[centre] = as_format(math.fsum(stencil.weights) - others)
    return Stencil.from_terms(terms)


def sum_less_one(stencil: Stencil, dtype: np.dtype[Any] | None = None) -> float:
    """By how much the weights, rounded to `dtype` one by one, sum to more than 1."""
    weights = np.array(stencil.weights, dtype=dtype or np.float64)
    return math.fsum([*map(float, weights), -1.0])
