"""What kernels are told about faces: `struct Domain` of domain.cuh as a NumPy array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris_sim.axes import LAST
from tetris_sim.boundary import SIDES
from tetris_sim.gpu_kernels.common.layout import FAR
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab


def domain_argument(problem: Problem, slab: Slab, depth: int = 1) -> npt.NDArray[np.void]:
    """`struct Domain`, with ghosts as deep as `depth` steps reach."""
    dtype, reach = problem.arithmetic, max(1, depth * problem.stencil.radius)
    kind = np.dtype(
        [
            *[("low", np.int32, 3), ("high", np.int32, 3), ("period", np.int32, 3)],
            *[("a", dtype, (3, 2, reach)), ("b", dtype, (3, 2, reach))],
        ],
        align=True,
    )

    # Until something else is said, an axis ends far away.
    domain = np.zeros(1, dtype=kind)
    domain["low"], domain["high"] = -FAR, FAR

    for axis, (n, radius) in enumerate(zip(slab.shape, problem.stencil.radii, strict=True)):
        three = LAST[problem.grid.ndim][axis]
        if problem.boundary.periodic(axis):
            domain["period"][0, three] = n if slab.halo[axis] == (0, 0) else 0
            continue

        for number, side in enumerate(SIDES):
            if slab.halo[axis][number]:
                continue
            domain["low" if side == "low" else "high"][0, three] = 0 if side == "low" else n
            pairs = problem.boundary.reflections(
                axis, side, spacing=problem.grid.spacing[axis], width=depth * radius
            )
            for ghost, (a, b) in enumerate(pairs):
                domain["a"][0, three, number, ghost], domain["b"][0, three, number, ghost] = a, b
    return domain
