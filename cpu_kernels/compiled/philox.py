"""Random numbers of NumPy's Philox generator, made and scaled in one pass.

Idea    Philox4x64-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011): ten
        rounds of two wide products turn a counter and a key into four words. NumPy's `Philox`
        begins with counter 1, and its raw output is fixed by its compatibility promise. Word after
        word becomes a double in [0, 1) of its upper 53 bits, then a value between two others, by
        the operations that `apps/initial.py` writes down.
Test    tests/kernels/test_philox.py
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core.types import float64, uint64, void
from numba.extending import intrinsic

from tetris_sim.cpu_kernels.compiled.intrinsics import njit

_MULTIPLIERS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ROUNDS = 10
_SHIFT, _UNIT = np.uint64(11), 2.0**-53


@intrinsic
def _upper_half(context, a, b):
    """The upper 64 bits of the product of two words."""

    def generate(context, builder, signature, arguments):
        wide = ir.IntType(128)
        first, second = (builder.zext(it, wide) for it in arguments)
        product = builder.lshr(builder.mul(first, second), ir.Constant(wide, 64))
        return builder.trunc(product, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@njit(
    void(uint64, uint64, float64, float64, float64[::1]),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def fill(first_key, second_key, low, high, values):
    """Fill an array with the first numbers of a stream, between `low` and `high`."""
    for group in range((values.size + 3) // 4):
        a, b = np.uint64(group + 1), np.uint64(0)
        c, d = np.uint64(0), np.uint64(0)
        key, other = first_key, second_key
        for turn in range(_ROUNDS):
            if turn:
                # Both products use the words of the round before, so all four results are assigned
                # at once.
                key, other = key + _WEYL[0], other + _WEYL[1]
            upper, lower = _upper_half(_MULTIPLIERS[0], a), _MULTIPLIERS[0] * a
            above, below = _upper_half(_MULTIPLIERS[1], c), _MULTIPLIERS[1] * c
            a, b, c, d = above ^ b ^ key, below, upper ^ d ^ other, lower

        for place, word in enumerate((a, b, c, d)):
            if 4 * group + place < values.size:
                # The upper 53 bits fill the significand of a double exactly.
                unit = np.float64(np.int64(word >> _SHIFT)) * _UNIT
                values[4 * group + place] = (1 - unit) * low + unit * high


def random_values(
    stream: np.random.Philox, count: int, low: float, high: float
) -> npt.NDArray[np.float64]:
    """The first `count` numbers of a stream, between `low` and `high`."""
    values = np.empty(count)
    first, second = stream.state["state"]["key"]
    fill(first, second, low, high, values)
    return values
