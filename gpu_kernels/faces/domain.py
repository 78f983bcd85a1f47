"""What kernels are told about faces: `struct Domain` of domain.cuh as a NumPy array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris_sim.axes import LAST
from tetris_sim.boundary import SIDES, Reflection, Side
from tetris_sim.gpu_kernels.common.layout import ends_of
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

    domain = np.zeros(1, dtype=kind)
    domain["low"], domain["high"], domain["period"] = ends_of(problem, slab)

    for axis, radius in enumerate(problem.stencil.radii):
        three = LAST[problem.grid.ndim][axis]
        for number, side in enumerate(SIDES):
            if problem.boundary.periodic(axis) or slab.halo[axis][number]:
                continue
            pairs = _reflections(problem, axis, side, depth * radius)
            for ghost, (a, b) in enumerate(pairs):
                domain["a"][0, three, number, ghost], domain["b"][0, three, number, ghost] = a, b
    return domain


def _reflections(problem: Problem, axis: int, side: Side, width: int) -> tuple[Reflection, ...]:
    """As of `Boundary`; of a rule those that last, and any of one that does not: it is told by the
    body.
    """
    if problem.conduction is None:
        return problem.boundary.reflections(
            axis, side, spacing=problem.grid.spacing[axis], width=width
        )
    return (problem.ruled_face(axis, side).lasting or (0.0, 0.0),) * width
