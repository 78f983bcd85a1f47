"""Reduced-precision formats of tensor cores, and stencil weights that they represent.

Significands have 11 bits in FP16 and TF32 and 8 in BF16; exponents have 5 bits in FP16 and 8 in the
others. TF32 weights are rounded to FP16 numbers, which TF32 contains, so that `round_weights` keeps
their sum. The last part has what methods in FP16 refuse and how many blocks a multiprocessor holds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import StreamedAxis
from tetris_sim.model.stencil import Stencil

# FP16 weights with the sum of the original ones.  Rounded one by one, the weights of a fused
# stencil add up to 1 within 2e-4 (heat-3d, three steps), which would create or destroy that much
# heat with every launch. So the rounding error of a weight is passed on to the next smaller one,
# whose spacing is finer. Equal weights are rounded alike as long as the sum allows, opposite ones
# always, so a symmetric stencil stays symmetric. Off-centre weights that are smaller than the error
# of the centre change completely; `weight_error` measures that.


def round_weights(stencil: Stencil) -> Stencil:
    """The stencil with FP16 weights whose sum is as near to the original one as possible; zeros
    stay zeros.

    >>> mean = Stencil(((-1,), (0,), (1,)), (1 / 3, 1 / 3, 1 / 3))
    >>> left, centre, right = round_weights(mean).weights
    >>> left == right, left + centre + right
    (True, 1.0)
    """
    rounded = _round_alike(stencil)
    opposites = _opposites(stencil)

    while True:
        # One unit in the last place up or down, for opposite weights together: the move that brings
        # the sum nearest.
        lost = math.fsum(stencil.weights) - math.fsum(rounded)
        moved = [
            (abs(lost - len(pair) * step), pair, step)
            for pair in opposites
            for step in _steps(rounded[pair[0]])
        ]

        left, pair, step = min(moved, default=(math.inf, (), 0.0))
        if left >= abs(lost):
            return Stencil(stencil.offsets, tuple(rounded))

        for i in pair:
            rounded[i] += step


def weight_error(stencil: Stencil, rounded: Stencil) -> float:
    """The relative change of all weights by rounding, or of the off-centre ones if that is larger.

    >>> slow = Stencil(((-1,), (0,), (1,)), (1e-5, 1 - 2e-5, 1e-5))
    >>> weight_error(slow, round_weights(slow))
    1.0

    Args:
        stencil: the stencil with its original weights.
        rounded: the same points with rounded weights.
    """
    pairs = [
        (weight, new, any(offset))
        for offset, weight, new in zip(
            stencil.offsets, stencil.weights, rounded.weights, strict=True
        )
    ]
    errors = []
    # The centre may hide that its neighbours have lost their values.
    for some in (pairs, [pair for pair in pairs if pair[2]]):
        size = math.fsum(abs(weight) for weight, _, _ in some)
        change = math.fsum(abs(new - weight) for weight, new, _ in some)
        errors.append(change / size if size > 0 else 0.0)
    return max(errors)


def _round_alike(stencil: Stencil) -> list[float]:
    """Round from the largest to the smallest non-zero weight, each including the error of those
    before it.
    """

    def size(index: int) -> tuple[float, float]:
        # Equal up to the rounding errors of `Stencil.power`.
        weight = float(np.float32(stencil.weights[index]))
        return -abs(weight), weight

    rounded, lost = [0.0] * stencil.n_points, 0.0
    points = [i for i in range(stencil.n_points) if stencil.weights[i] != 0]
    for _, group in itertools.groupby(sorted(points, key=size), key=size):
        alike = list(group)
        for i in alike:
            rounded[i] = float(np.float16(stencil.weights[i] + lost / len(alike)))
        lost += math.fsum(stencil.weights[i] - rounded[i] for i in alike)
    return rounded


def _opposites(stencil: Stencil) -> list[tuple[int, ...]]:
    """Groups of points with the same weight on opposite sides, other points alone; points with zero
    weight are left out.
    """
    index = {offset: i for i, offset in enumerate(stencil.offsets) if stencil.weights[i] != 0}
    groups = set()
    for offset, i in index.items():
        j = index.get(tuple(-c for c in offset), i)
        alike = math.isclose(stencil.weights[i], stencil.weights[j], rel_tol=1e-6)
        groups.add(tuple(sorted({i, j})) if alike else (i,))
    return sorted(groups)


def _steps(weight: float) -> tuple[float, float]:
    """The distances to the FP16 numbers above and below."""
    here = np.float16(weight)
    up, down = (float(np.nextafter(here, np.float16(to))) for to in (np.inf, -np.inf))
    return up - weight, down - weight


Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A number format that tensor cores multiply.

    Attributes:
        name: name of the format.
        bits: bits of the significand, including the leading one.
        words: registers per lane that a 16 x 8 matrix takes.
    """

    name: str
    bits: int
    words: int

    @property
    def eps(self) -> float:
        """The largest relative error of rounding to nearest."""
        return 2.0**-self.bits


FLOAT16 = Format("FP16", 11, 2)
BFLOAT16 = Format("BF16", 8, 2)
TFLOAT32 = Format("TF32", 11, 4)
FORMATS = (FLOAT16, BFLOAT16, TFLOAT32)  # by their number in tcstencil.cu


def rounded(values: npt.ArrayLike, format_: Format) -> Array:
    """Values rounded to the nearest number of a format, ties to even.

    >>> rounded([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8], BFLOAT16)
    array([1.      , 1.      , 1.015625])
    """
    if format_ is FLOAT16:
        return np.asarray(values).astype(np.float16).astype(np.float64)
    return without_bits(np.asarray(values, np.float32), 24 - format_.bits).astype(np.float64)


def without_bits(values: npt.NDArray[np.float32], dropped: int) -> npt.NDArray[np.float32]:
    """Values with the lowest `dropped` bits rounded away, ties to even."""
    # A carry into the exponent gives the right result, up to infinity.
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(dropped)) & np.uint32(1)
    half = np.uint32((1 << (dropped - 1)) - 1)
    kept = ((bits + half + odd) & np.uint32(0xFFFFFFFF ^ ((1 << dropped) - 1))).view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), kept)


def operand_weights(stencil: Stencil, format_: Format) -> Stencil:
    """The stencil with weights that a format represents, and nearly the same sum.

    In BF16 the centre, if the stencil has one, absorbs the rounding errors of the others and is
    rounded last.
    """
    if format_ is not BFLOAT16:
        return round_weights(stencil)
    near = dict(zip(stencil.offsets, map(float, rounded(stencil.weights, format_)), strict=True))
    middle = (0,) * stencil.ndim
    if middle in near:
        others = math.fsum(weight for offset, weight in near.items() if offset != middle)
        near[middle] = float(rounded(math.fsum(stencil.weights) - others, format_))
    return Stencil(stencil.offsets, tuple(near[offset] for offset in stencil.offsets))


# Limits that all kernels in FP16 share: the range of the format and the registers of a
# multiprocessor.

LARGEST_WEIGHT = 60000.0  # after fusion; the largest number of FP16 is 65504
# Largest `weight_error` of a launch; where no weight is tiny beside another it is below 1e-3.
_MOST_WEIGHT_ERROR = 0.01
_REGISTERS, _REGISTERS_OF_SM, _THREADS_OF_SM = 255, 65536, 2048  # per thread, per multiprocessor


@dataclass(frozen=True)
class SharedTile:
    """The tile that a block holds in shared memory at a time.

    Attributes:
        lead: points in front of the first result, a multiple of 16 bytes.
        row_points: points of a row.
        rows: rows of the grid.
        tile: results of a stage along each axis.
        stream: how blocks of threads share the axis along which they stream.
    """

    lead: int
    row_points: int
    rows: int
    tile: tuple[int, int, int]
    stream: StreamedAxis


def half_refusal(
    stencil: Stencil,
    dtype: npt.DTypeLike,
    steps: Callable[[Stencil], tuple[int, ...]],
    matrices: str,
) -> str | None:
    """Why a kernel in FP16 refuses a stencil, as a sentence for the user; None if it does not.

    Args:
        stencil: stencil of one step.
        dtype: type of the state.
        steps: gives the numbers of steps that can be fused; none if the stencil is too large.
        matrices: name of what registers hold, for the sentence.
    """
    if np.dtype(dtype) != np.float16:
        return (
            f"its tensor cores multiply float16, and would round {np.dtype(dtype)} to as many bits"
        )

    # A growth that one step forbids is forbidden for any number of steps.
    if growth(stencil) > LARGEST_WEIGHT:
        return f"its weights add up to {growth(stencil):g}, more than float16 holds"
    if not steps(stencil) and not rounds_well(stencil, 1):
        error = _error_of_rounding(stencil, 1)
        return (
            f"rounded to float16, its weights would change by {error:.1%}: some are very small "
            "beside others"
        )

    if not steps(stencil):
        return (
            f"{matrices} of a step are kept in registers: {stencil.n_points} points of radius "
            f"{stencil.radius} in {stencil.ndim}D are too many"
        )
    return None


def growth(stencil: Stencil) -> float:
    """The sum of the weights' magnitudes: no weight of n fused steps exceeds its n-th power."""
    return sum(map(abs, stencil.weights))


def rounds_well(stencil: Stencil, steps: int) -> bool:
    """Whether the weights of `steps` fused steps keep their values when rounded to FP16."""
    return (
        growth(stencil) <= LARGEST_WEIGHT ** (1 / steps)  # the power itself might overflow
        and _error_of_rounding(stencil, steps) <= _MOST_WEIGHT_ERROR
    )


def refuse_bad_rounding(stencil: Stencil, steps: int) -> None:
    """Check that weights keep their values when rounded to FP16.

    Raises:
        ValueError: rounding would change them too much.
    """
    if not rounds_well(stencil, steps):
        msg = f"rounded to float16, the weights of a launch of {steps} would be others"
        raise ValueError(msg)


@functools.lru_cache(maxsize=1024)
def _error_of_rounding(stencil: Stencil, steps: int) -> float:
    fused = stencil.power(steps)
    return weight_error(fused, round_weights(fused))


def blocks_beside(threads: int, registers: int) -> int:
    """Blocks of `threads` threads with `registers` registers each that a multiprocessor holds at a
    time.

    >>> blocks_beside(128, 160), blocks_beside(256, 500), blocks_beside(64, 20)
    (3, 1, 32)
    """
    return max(
        1,
        min(_THREADS_OF_SM // threads, _REGISTERS_OF_SM // (threads * min(_REGISTERS, registers))),
    )
