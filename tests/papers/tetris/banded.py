"""Products with banded matrices, without folding and pipelining: rungs of the breakdown of
`gpu.trapezoid`.

No method: nothing but the benchmark uses it (`banded.cu`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.tensor_cores.trapezoid import CHUNK, GROUP
from tetris_sim.model.grid import on_three
from tetris_sim.model.stencil import Stencil

_WARPS, _STRIPS = 8, 4
_BANKS = 16  # of 8 bytes


def banded_kernel(
    stencil: Stencil, steps: int, *, shared: bool, swizzled: bool = False
) -> FusedKernel:
    """How to compile and launch it; float64.

    Args:
        stencil: of one step.
        steps: that are composed into one stencil.
        shared: whether operands come from shared memory, else from global memory.
        swizzled: whether they lie there so that no two lanes meet in a bank.
    """
    composed = stencil.power(steps)
    line = stencil.ndim == 1
    weights = composed.dense().reshape(on_three([2 * r + 1 for r in composed.radii], 1))
    rz, ry, rx = (n // 2 for n in weights.shape)
    bands = weights if line else weights.transpose(0, 2, 1)  # the axis of the band last
    chunks = -(-(GROUP + bands.shape[-1] - 1) // CHUNK)
    width = _WARPS * _STRIPS * 16 * GROUP if line else _STRIPS * 16
    height = 1 if line else _WARPS * GROUP
    columns = width - GROUP + CHUNK * chunks if line else width + 2 * rx
    rows = 1 if line else height - GROUP + CHUNK * chunks
    points = bands[..., 0].size * (CHUNK * chunks + GROUP)
    if shared:
        points += (2 * rz + 1) * rows * (-(-columns // _BANKS) * _BANKS)
    return FusedKernel(
        source=str(Path(__file__).with_suffix(".cu")),
        entry="banded",
        defines={
            "TS_REAL": "double",
            "TS_RADIUS_Z": rz,
            "TS_RADIUS_Y": ry,
            "TS_RADIUS_X": rx,
            "TS_LINE": int(line),
            "TS_SHARED": int(shared),
            "TS_SWIZZLED": int(swizzled),
        },
        depth=steps,
        tile=(1, height, width),
        threads=32 * _WARPS,
        shared_bytes=8 * points,
        weights=np.ascontiguousarray(bands).reshape(-1),
    )
