"""Stars as the authors make them, P S + S Q: the kernel tcstencil_star.cu, one step of a 2D star of
radius up to 4.

Parameters:
    steps_per_block: 1.
    star: 1, which tells it from the kernel of `kernel.py`.
    warps, blocks, stages: as there; three stages or more.
    units: tiles of 16 x 16 results that a warp makes side by side.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.formats import FLOAT16, operand_weights
from tetris_sim.gpu_kernels.fused.half import rounds_well
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, Stream, braces
from tetris_sim.gpu_kernels.tcstencil.matrices import Words, matrix_registers
from tetris_sim.model.stencil import Stencil

FARTHEST = 4  # windows of 16 points have 8 results
TILE = 16  # rows of results: those of a product of FP16
_LEAD = 8  # points in front of the first result: a vector of 16 bytes

Array = npt.NDArray[np.float64]


def suits(stencil: Stencil) -> bool:
    """Whether the kernel can make it: no point lies off both axes, and some beside the y axis."""
    if stencil.ndim != 2 or not 0 < stencil.radius <= FARTHEST or stencil.radii[1] == 0:
        return False
    return stencil.is_star


def star_parameters(stencil: Stencil) -> tuple[Mapping[str, int], ...]:
    """What may be tried."""
    shape = {"steps_per_block": 1, "star": 1, "warps": 4, "units": 4, "stages": 4, "blocks": 5}
    return (shape,) if suits(stencil) and rounds_well(stencil, 1) else ()


def star_bands(stencil: Stencil) -> tuple[Array, Array]:
    """P, (16, 24), over the rows from ry above the results on, and Q, (16, 8), over a window."""
    box, (ry, rx) = stencil.dense(), stencil.radii
    along_y, along_x = np.zeros((TILE, TILE + 8)), np.zeros((TILE, 8))
    for i in range(TILE):
        along_y[i, i : i + 2 * ry + 1] = box[:, rx]
    row = box[ry].copy()
    row[rx] = 0.0  # the point in the middle is in the column
    for n in range(8):
        along_x[FARTHEST - rx + n : FARTHEST + rx + n + 1, n] = row
    return along_y, along_x


def star_registers(along_y: Array, along_x: Array) -> Words:
    """`struct Weights` of tcstencil_star.cu, (8, 32): P as A of a product of depth 16 and one of 8,
    then Q as B.

    Lane 4 g + t holds of A rows g and g + 8, columns 2 t and 2 t + 1 of each eight.
    """
    bits = along_y.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits = bits.reshape(2, 8, 3, 4, 2)  # half, g, eight, t
    p = (bits[..., 0] | bits[..., 1] << np.uint32(16)).transpose(2, 0, 1, 3).reshape(6, 32)
    q = matrix_registers(along_x[None], FLOAT16, run=2)[0].T
    return np.ascontiguousarray(np.concatenate([p, q]))


def star_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel.

    Args:
        stencil: a star.
        dtype: float16.
        parameters: as above.

    Raises:
        ValueError: it cannot make this.
    """
    if not suits(stencil) or parameters["steps_per_block"] != 1 or np.dtype(dtype) != np.float16:
        msg = f"two products make one step of a 2D star of radius up to {FARTHEST}, in float16"
        raise ValueError(msg)

    warps, units, stages = parameters["warps"], parameters["units"], parameters["stages"]
    width = TILE * warps * units
    # 2 for windows; with another one, rows are an odd multiple of 16 bytes
    row_points = width + 3 * _LEAD
    numbers = star_registers(*star_bands(operand_weights(stencil, FLOAT16)))
    reach = (0, *stencil.radii)

    return FusedKernel(
        source="tcstencil_star.cu",
        entry="tcstencil_star",
        defines={
            "TS_REAL": "Half",
            "TS_RADIUS_Y": stencil.radii[0],
            "TS_WARPS": warps,
            "TS_MIN_BLOCKS": parameters["blocks"],
            "TS_UNITS": units,
            "TS_STAGES": stages,
            "TS_LEAD": _LEAD,
            "TS_ROW_POINTS": row_points,
            "TS_REACH": braces(reach),
        },
        depth=1,
        tile=(1, TILE, width),
        threads=32 * warps,
        shared_bytes=2 * stages * TILE * row_points,
        weights=numbers,
        stream=Stream(axis=1, repeated=2 * stencil.radii[0], unit=TILE),
        by_pointer=True,
    )
