"""Where is a value not finite? Looked for by a kernel of our own (`finite.cu`): with what CuPy has
for that the first look of a first run took 3.2 to 3.6 s, and 0.15 s when it was compiled (1024^3
points, one H200, float64, 2026-11-23).
"""

from __future__ import annotations

import math

import numpy as np

from tetris_sim.gpu_kernels.common.layout import box_argument
from tetris_sim.gpu_kernels.common.terms import STORED
from tetris_sim.gpu_kernels.steppers.passes import State
from tetris_sim.model.grid import on_three

_THREADS, _MOST_ROWS, _MOST_PLANES = 256, 1024, 64  # blocks of a launch, which go on


def first_nonfinite(state: State) -> tuple[int, ...] | None:
    """The first owned point that is not finite in some field, counted in the slab; None if all are.

    Waits for what the GPU was told before.
    """
    device, shape = state.device, state.slab.shape
    z, y, x = on_three(shape, 1)
    grid = (-(-x // _THREADS), min(y, _MOST_ROWS), min(z, _MOST_PLANES))
    defines = {"TS_REAL": STORED[state.layout.dtype.name]}

    n_points = math.prod(shape)
    with device.use() as cupy:
        function = device.function("finite.cu", "first_nonfinite", defines)
        first = cupy.asarray(np.array([n_points], np.uint64))
        box = box_argument(((0, z), (0, y), (0, x)))
        for now, _ in state.fields():
            function(grid, (_THREADS, 1, 1), (now, state.memory, box, first))
        number = int(device.fetch(first)[0])
    if number == n_points:
        return None
    return tuple(int(at) for at in np.unravel_index(number, shape))
