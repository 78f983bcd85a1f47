"""What kernels that multiply FP16 have in common: what the format holds, and what a multiprocessor
does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import Stream
from tetris_sim.gpu_kernels.fused.rounding import round_weights, weight_error
from tetris_sim.model.stencil import Stencil

LARGEST_WEIGHT = 60000.0  # after fusion, of 65504 that FP16 has
# of the weights of a launch; where none is too small beside another it is 1e-3 or less
_MOST_WEIGHT_ERROR = 0.01
_REGISTERS, _REGISTERS_OF_SM, _THREADS_OF_SM = 255, 65536, 2048  # of a thread, of a multiprocessor


@dataclass(frozen=True)
class Stage:
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
    stream: Stream


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
