"""What a pair of floats is on the host (`pair.cuh`): states on their way to a GPU and back, and the
weights of kernels.

NumPy and CuPy have no type for it but complex64, of which the real part is hi and the imaginary
part lo: arrays of it have the size of float64, and nobody multiplies them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.problem import PAIR, Problem

BITS = 48  # of a pair; what a pair leaves of a number is a part in 2^49 of it


def in_pairs(problem: Problem) -> Problem:
    """A problem in float64 as kernels see it whose numbers are pairs; what is outside of them, as
    the initial field, stays as it is.
    """
    return replace(problem, dtype=PAIR)


def to_pairs(values: Any) -> Any:
    """float64 as pairs, on the device where they are.

    Numbers that `from_pairs` makes of whole pairs come back as the same pairs.
    """
    # Larger numbers than floats become infinite, as by a step; whoever looks for such finds them.
    with np.errstate(over="ignore", invalid="ignore"):
        high = values.astype(np.float32)
        rounded = high + (values - high).astype(np.float32).astype(np.float64)
        high = rounded.astype(np.float32)
        pairs = high.astype(PAIR)
        pairs.imag = (rounded - high).astype(np.float32)
    return pairs


def from_pairs(pairs: Any) -> Any:
    """Pairs as float64, on the device where they are."""
    with np.errstate(invalid="ignore"):
        return pairs.real.astype(np.float64) + pairs.imag


def stored_numbers(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Numbers as kernels read them that compute in a dtype.

    >>> stored_numbers([0.25, 1 + 2.0**-30], PAIR).imag.tolist() == [0.0, 2.0**-30]
    True
    """
    if np.dtype(dtype) != PAIR:
        return np.array(values, dtype=dtype)
    pairs: npt.NDArray[Any] = to_pairs(np.asarray(values, np.float64))
    return pairs


def exactly(number: Any) -> Fraction:
    """The value of a stored number."""
    if isinstance(number, np.complex64):
        return Fraction(float(number.real)) + Fraction(float(number.imag))
    return Fraction(float(number))


def stored_weights(
    weights: Sequence[float], dtype: npt.DTypeLike, counts: Sequence[int] | None = None
) -> npt.NDArray[Any]:
    """The weights of a sum, as `stored_numbers`; as pairs so that their sum is what that of the
    weights is to 48 bits.

    Otherwise what pairs leave of weights would change the mean of the field at every step in the
    same direction. Pairs of weights are multiples of the last place of the largest one, and the
    largest that is of one point takes what is left. `counts` says how many points share each
    weight; one each if it is not given.

    >>> sum(exactly(it) for it in stored_weights([0.1] * 8 + [0.2], PAIR)) == 1
    True
    """
    counts = counts or [1] * len(weights)
    alone = [k for k, count in enumerate(counts) if count == 1]
    if np.dtype(dtype) != PAIR or not any(weights) or not alone:
        return stored_numbers(weights, dtype)
    place = Fraction(2) ** (math.frexp(max(map(abs, weights)))[1] - BITS)
    multiples = [round(Fraction(weight) / place) for weight in weights]
    total = sum(count * Fraction(weight) for count, weight in zip(counts, weights, strict=True))
    found = sum(count * multiple for count, multiple in zip(counts, multiples, strict=True))
    multiples[max(alone, key=lambda k: abs(weights[k]))] += round(total / place) - found
    pairs = np.zeros(len(weights), PAIR)
    for k, multiple in enumerate(multiples):
        high = np.float32(float(multiple * place))
        pairs[k] = complex(high, float(multiple * place - Fraction(float(high))))
    return pairs
