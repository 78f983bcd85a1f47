"""Pairs of floats on the host (`pair.cuh`): conversion of states that travel to a GPU and back, and
kernel weights as pairs.

A pair is an unevaluated sum hi + lo of two floats. NumPy and CuPy have no such type, so complex64
carries it, hi as the real part and lo as the imaginary part: its arrays have the size of float64,
and arithmetic on them is never used.
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

BITS = 48  # precision of a pair: it rounds a number by at most one part in 2^49


def in_pairs(problem: Problem) -> Problem:
    """A float64 problem as kernels that compute in pairs see it; everything outside kernels, such
    as the initial field, stays as it is.
    """
    return replace(problem, dtype=PAIR)


def to_pairs(values: Any) -> Any:
    """Convert float64 to pairs, on the device where the values are.

    Values that `from_pairs` made of normalized pairs come back as the same pairs.
    """
    # Values beyond the range of float become infinite, as in a step; the check for non-finite
    # values finds them.
    with np.errstate(over="ignore", invalid="ignore"):
        high = values.astype(np.float32)
        # Rounding the sum and splitting it once more makes hi the nearest float of the pair's
        # value.
        rounded = high + (values - high).astype(np.float32).astype(np.float64)
        high = rounded.astype(np.float32)
        pairs = high.astype(PAIR)
        pairs.imag = (rounded - high).astype(np.float32)
    return pairs


def from_pairs(pairs: Any) -> Any:
    """Convert pairs to float64, on the device where they are."""
    with np.errstate(invalid="ignore"):
        return pairs.real.astype(np.float64) + pairs.imag


def stored_numbers(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Numbers in the form in which kernels that compute in `dtype` read them.

    >>> stored_numbers([0.25, 1 + 2.0**-30], PAIR).imag.tolist() == [0.0, 2.0**-30]
    True
    """
    if np.dtype(dtype) != PAIR:
        return np.array(values, dtype=dtype)
    pairs: npt.NDArray[Any] = to_pairs(np.asarray(values, np.float64))
    return pairs


def exactly(number: Any) -> Fraction:
    """The exact value of a stored number."""
    if isinstance(number, np.complex64):
        return Fraction(float(number.real)) + Fraction(float(number.imag))
    return Fraction(float(number))


def stored_weights(
    weights: Sequence[float], dtype: npt.DTypeLike, counts: Sequence[int] | None = None
) -> npt.NDArray[Any]:
    """The weights of a sum, stored as by `stored_numbers`; as pairs, they add up to the sum of the
    given weights to 48 bits.

    Otherwise the rounding of the weights would shift the mean of the field in the same direction at
    every step. The pairs are multiples of the last place of the largest weight, and the largest
    weight that belongs to a single point absorbs the remainder. `counts` says how many points share
    each weight; one each by default.

    >>> sum(exactly(it) for it in stored_weights([0.1] * 8 + [0.2], PAIR)) == 1
    True
    """
    counts = counts or [1] * len(weights)
    alone = [k for k, count in enumerate(counts) if count == 1]
    if np.dtype(dtype) != PAIR or not any(weights) or not alone:
        return stored_numbers(weights, dtype)

    # The unit in the last place of a 48-bit significand, in exact arithmetic.
    place = Fraction(2) ** (math.frexp(max(map(abs, weights)))[1] - BITS)
    multiples = [round(Fraction(weight) / place) for weight in weights]
    total = sum(count * Fraction(weight) for count, weight in zip(counts, weights, strict=True))
    found = sum(count * multiple for count, multiple in zip(counts, multiples, strict=True))
    multiples[max(alone, key=lambda k: abs(weights[k]))] += round(total / place) - found

    # A multiple has 48 bits, so hi takes the upper ones and the rest is exact in lo.
    pairs = np.zeros(len(weights), PAIR)
    for k, multiple in enumerate(multiples):
        high = np.float32(float(multiple * place))
        pairs[k] = complex(high, float(multiple * place - Fraction(float(high))))
    return pairs
