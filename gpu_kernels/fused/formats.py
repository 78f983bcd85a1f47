"""Formats of what tensor cores multiply, and weights that are among their numbers.

FP16 has 11 bits and 5 for the exponent, BF16 8 and 8, TF32 11 and 8. Weights of TF32 are rounded to
those of FP16, which are among its numbers: `rounding` keeps their sum.
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

# Weights in FP16 whose sum is that of the weights.
#
# Rounded one by one, the weights of a fused stencil add up to 1 give or take 2e-4 (heat-3d, three
# steps), which would make or destroy that much heat with every launch. So what a weight loses is
# given to the next smaller one, whose places are finer. Equal weights are rounded alike as long as
# the sum allows; opposite ones are in any case, so a symmetric stencil stays symmetric. Weights
# beside the middle that are smaller than what it loses become others by that: `weight_error` says
# by how much.


def round_weights(stencil: Stencil) -> Stencil:
    """The stencil with weights that FP16 has, and a sum as near theirs as it can be; zeros stay
    zeros.

    >>> mean = Stencil(((-1,), (0,), (1,)), (1 / 3, 1 / 3, 1 / 3))
    >>> left, centre, right = round_weights(mean).weights
    >>> left == right, left + centre + right
    (True, 1.0)
    """
    rounded = _round_alike(stencil)
    opposites = _opposites(stencil)

    while True:
        # One place up or down for opposite weights: what brings the sum nearest.
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
    """What rounding changes of all weights together, relative to them, or of those beside the
    middle, if that is more.

    >>> slow = Stencil(((-1,), (0,), (1,)), (1e-5, 1 - 2e-5, 1e-5))
    >>> weight_error(slow, round_weights(slow))
    1.0

    Args:
        stencil: with its weights.
        rounded: the same points with others.
    """
    pairs = [
        (weight, new, any(offset))
        for offset, weight, new in zip(
            stencil.offsets, stencil.weights, rounded.weights, strict=True
        )
    ]
    errors = []
    for some in (pairs, [pair for pair in pairs if pair[2]]):
        size = math.fsum(abs(weight) for weight, _, _ in some)
        change = math.fsum(abs(new - weight) for weight, new, _ in some)
        errors.append(change / size if size > 0 else 0.0)
    return max(errors)


def _round_alike(stencil: Stencil) -> list[float]:
    """From the largest to the smallest but zeros, each with what those before it lost."""

    def size(index: int) -> tuple[float, float]:
        # Equal but for the roundings of `Stencil.power`.
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
    """Points with the same weight on opposite sides; others alone; without those whose weight is
    zero.
    """
    index = {offset: i for i, offset in enumerate(stencil.offsets) if stencil.weights[i] != 0}
    groups = set()
    for offset, i in index.items():
        j = index.get(tuple(-c for c in offset), i)
        alike = math.isclose(stencil.weights[i], stencil.weights[j], rel_tol=1e-6)
        groups.add(tuple(sorted({i, j})) if alike else (i,))
    return sorted(groups)


def _steps(weight: float) -> tuple[float, float]:
    """To the numbers of FP16 above and below."""
    here = np.float16(weight)
    up, down = (float(np.nextafter(here, np.float16(to))) for to in (np.inf, -np.inf))
    return up - weight, down - weight


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


# What kernels that multiply FP16 have in common: what the format holds, and what a multiprocessor
# does.

LARGEST_WEIGHT = 60000.0  # after fusion, of 65504 that FP16 has
# of the weights of a launch; where none is too small beside another it is 1e-3 or less
_MOST_WEIGHT_ERROR = 0.01
_REGISTERS, _REGISTERS_OF_SM, _THREADS_OF_SM = 255, 65536, 2048  # of a thread, of a multiprocessor


@dataclass(frozen=True)
class SharedTile:
    """What lies in shared memory at a time.

    Attributes:
        lead: points in front of the first result, a multiple of 16 bytes.
        row_points: points of a row.
        rows: rows of the grid.
        tile: results of a stage along each axis.
        stream: how blocks of threads share the axis along which stages follow each other.
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
    """Why such a kernel cannot do it, as a sentence for the user; None if it can.

    Args:
        stencil: of one step.
        dtype: of the state.
        steps: how many can be made at once; none if the stencil is too large.
        matrices: what is kept in registers, which is why.
    """
    if np.dtype(dtype) != np.float16:
        return (
            f"its tensor cores multiply float16, and would round {np.dtype(dtype)} to as many bits"
        )

    # What the weights forbid, they forbid for any number of steps.
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
    """What no weight of n steps exceeds, to the power of n."""
    return sum(map(abs, stencil.weights))


def rounds_well(stencil: Stencil, steps: int) -> bool:
    """Whether the weights of so many steps at once are, in FP16, still those of the stencil."""
    return (
        growth(stencil) <= LARGEST_WEIGHT ** (1 / steps)  # its power may exceed any number
        and _error_of_rounding(stencil, steps) <= _MOST_WEIGHT_ERROR
    )


def refuse_bad_rounding(stencil: Stencil, steps: int) -> None:
    """Raise if they are not.

    Raises:
        ValueError: with what rounding would change.
    """
    if not rounds_well(stencil, steps):
        msg = f"rounded to float16, the weights of a launch of {steps} would be others"
        raise ValueError(msg)


@functools.lru_cache(maxsize=1024)
def _error_of_rounding(stencil: Stencil, steps: int) -> float:
    fused = stencil.power(steps)
    return weight_error(fused, round_weights(fused))


def blocks_beside(threads: int, registers: int) -> int:
    """Blocks of so many threads, with so many registers each, that a multiprocessor holds at a
    time.

    >>> blocks_beside(128, 160), blocks_beside(256, 500), blocks_beside(64, 20)
    (3, 1, 32)
    """
    return max(
        1,
        min(_THREADS_OF_SM // threads, _REGISTERS_OF_SM // (threads * min(_REGISTERS, registers))),
    )
