"""gpu.stream in 2D: tiles that stay in registers are streamed down the rows, several steps per
launch (`stream_2d.cu`).

This module decides which sums the kernel makes (`Scheme`) and what its weights are; `tiles_2d.py`
how large tiles are. Levels are carried divided by one of the weights to the power of the level, so
that the first term of a point's sum costs nothing; what is stored is multiplied by that power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.pairs import stored_numbers, stored_weights
from tetris_sim.gpu_kernels.common.terms import REAL
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.stream.kernel_1d import scale_back
from tetris_sim.gpu_kernels.stream.tiles_2d import (
    SECTOR,
    Tile,
    farthest,
    is_mirrored,
    stream_2d_parameters,
)
from tetris_sim.model.problem import PAIR
from tetris_sim.model.stencil import Stencil

# of the weight that levels are divided by, and its inverse
_SAFE_POWER = {"float64": 1e100, "float32": 1e20, PAIR.name: 1e15}


class Scheme(IntEnum):
    """How the sum of a point is made (`stream_2d_rows.cuh`)."""

    TAPS = 0
    MIRRORED = 1
    DIAMOND = 2


@dataclass(frozen=True)
class Arrangement:
    """The weights as the kernel wants them.

    Attributes:
        scheme: how the sum is made.
        unit: whether levels are carried divided by the weight of the chain's first term, which then
            is 1.
        weights: factors of the scheme; the last one is that of what is stored.
        counts: points of the stencil that share each of the others.
    """

    scheme: Scheme
    unit: bool
    weights: tuple[float, ...]
    counts: tuple[int, ...]

    def stored(self, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """The weights as numbers of the kernel."""
        if self.unit:
            return stored_numbers(self.weights, kind)
        weights = stored_weights(self.weights[:-1], kind, self.counts)
        return np.append(weights, stored_numbers(self.weights[-1:], kind))


_FAR_FOR_SUMS = 3  # points that a stencil reaches whose warps hand on sums


def stream_2d_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernel cannot have this stencil, as a sentence for the user."""
    if stencil.ndim != 2:
        return f"the stencil has {stencil.ndim} axes, and this kernel streams tiles of two"
    if np.dtype(dtype).name not in REAL:
        return f"the type is {np.dtype(dtype).name}, and only {' and '.join(REAL)} are compiled"
    if not stream_2d_parameters(stencil, dtype):
        return (
            f"the stencil reads {stencil.radius} points far, and patches in registers reach at "
            f"most {farthest()}"
        )
    return None


def stream_2d_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel for a stencil with certain parameters (`Tile`).

    Raises:
        ValueError: the stencil does not fit into such a tile, or the tile not into shared memory.
    """
    kind = np.dtype(dtype)
    tile = Tile(**parameters)
    if not tile.fits(stencil.radii, kind.itemsize):
        msg = (
            f"stencils of radii {stencil.radii} do not fit into {tile}: take more rows and "
            "columns, or fewer steps"
        )
        raise ValueError(msg)

    arrangement = arrange(stencil, tile.steps_per_block, kind.name)
    reach_y, reach_x = stencil.radii
    return FusedKernel(
        source="stream_2d.cu",
        entry="stream_2d",
        defines=_defines(stencil, kind, tile, arrangement),
        depth=tile.steps_per_block,
        tile=(1, tile.height(), tile.written(reach_x, kind.itemsize)),
        threads=32 * tile.warps,
        shared_bytes=tile.shared_bytes(reach_y, kind.itemsize),
        weights=arrangement.stored(kind),
        stream=tile.stream(reach_y, _hands_on_sums(stencil, arrangement, kind)),
        line=SECTOR,
        anchored=True,
    )


def _defines(
    stencil: Stencil, kind: np.dtype[Any], tile: Tile, arrangement: Arrangement
) -> dict[str, str | int]:
    reach_y, reach_x = stencil.radii
    return {
        "TS_REAL": REAL[kind.name],
        "TS_DEPTH": tile.steps_per_block,
        "TS_COLUMNS": tile.columns,
        "TS_ROWS": tile.rows,
        "TS_WARPS": tile.warps,
        "TS_BLOCKS": tile.blocks,
        "TS_EDGES": tile.edges,
        "TS_INTERLEAVED": tile.interleaved,
        "TS_WRITTEN": tile.written(reach_x, kind.itemsize),
        "TS_MARGIN": tile.margin(reach_x, kind.itemsize),
        "TS_REACH_X": reach_x,
        "TS_REACH_Y": reach_y,
        "TS_ROW_TAPS": ",".join(f"{mask}u" for mask in _row_taps(stencil)),
        "TS_SCHEME": int(arrangement.scheme),
        "TS_UNIT": int(arrangement.unit),
        "TS_N_WEIGHTS": len(arrangement.weights),
        "TS_SUMS": int(_hands_on_sums(stencil, arrangement, kind)),
    }


def _hands_on_sums(stencil: Stencil, arrangement: Arrangement, kind: np.dtype[Any]) -> bool:
    """Whether warps hand on sums of rows, not rows of which the next one makes the same sums again
    (`stream_2d_sums.cuh`). Of stencils that reach further the sums of two patches would not fit
    into registers; of pairs sums are not settled between two warps.
    """
    fits = stencil.radius <= _FAR_FOR_SUMS and kind != PAIR
    return arrangement.scheme == Scheme.MIRRORED and fits


def _row_taps(stencil: Stencil) -> list[int]:
    """Taps of the rows dy = -reach .. reach: bit dx + reach for each."""
    reach_y, reach_x = stencil.radii
    masks = [0] * (2 * reach_y + 1)
    for dy, dx in stencil.offsets:
        masks[dy + reach_y] |= 1 << (dx + reach_x)
    return masks


def arrange(stencil: Stencil, steps: int, dtype: str) -> Arrangement:
    """Choose the cheapest scheme that the weights allow, and divide by the weight of the chain's
    first term.
    """
    terms = stencil.terms
    reach_y, reach_x = stencil.radii

    # Neighbours are added as they are: one multiplication for all four.
    if _is_diamond(stencil) and _is_safe(terms[0, 1], steps, dtype):
        neighbour = terms[0, 1]
        back = _back((terms[0, 0], neighbour), neighbour, (1, 4), steps=steps, dtype=dtype)
        return Arrangement(
            Scheme.DIAMOND, unit=True, weights=(terms[0, 0] / neighbour, back), counts=(1,)
        )

    if is_mirrored(stencil):
        first = terms[reach_y, reach_x]
        chain = [terms[dy, dx] for dy in range(reach_y + 1) for dx in range(reach_x + 1)]
        counts = [
            2 ** (bool(dy) + bool(dx)) for dy in range(reach_y + 1) for dx in range(reach_x + 1)
        ]
        return _divided(Scheme.MIRRORED, chain, counts, first, steps=steps, dtype=dtype)

    first = terms[min(terms, key=lambda offset: (-offset[0], offset[1]))]
    window = [
        (dy, dx) for dy in range(-reach_y, reach_y + 1) for dx in range(-reach_x, reach_x + 1)
    ]
    chain = [terms.get(offset, 0.0) for offset in window]
    return _divided(Scheme.TAPS, chain, [1] * len(chain), first, steps=steps, dtype=dtype)


def _divided(
    scheme: Scheme, chain: list[float], counts: list[int], first: float, *, steps: int, dtype: str
) -> Arrangement:
    if not _is_safe(first, steps, dtype):
        return Arrangement(scheme, unit=False, weights=(*chain, 1.0), counts=tuple(counts))
    back = _back(chain, first, counts, steps=steps, dtype=dtype)
    weights = (*(weight / first for weight in chain), back)
    return Arrangement(scheme, unit=True, weights=weights, counts=tuple(counts))


def _back(
    weights: Sequence[float], first: float, counts: Sequence[int], *, steps: int, dtype: str
) -> float:
    """What brings the last level back to scale: of pairs, whose quotients are rounded sooner, with
    the mean that the field has.
    """
    if dtype != PAIR.name:
        return float(first**steps)
    quotients = stored_numbers([weight / first for weight in weights], dtype)
    return scale_back(weights, quotients, first, steps=steps, counts=counts)


def _is_safe(weight: float, steps: int, dtype: str) -> bool:
    """Whether levels divided by powers of the weight neither overflow nor lose digits to
    underflow.
    """
    return weight != 0 and abs(math.log(abs(weight))) * steps < math.log(_SAFE_POWER[dtype])


def _is_diamond(stencil: Stencil) -> bool:
    """Whether the stencil is the 5-point star with four equal neighbours."""
    weights = {weight for offset, weight in stencil.terms.items() if offset != (0, 0)}
    return set(stencil.offsets) == {(-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)} and len(weights) == 1
