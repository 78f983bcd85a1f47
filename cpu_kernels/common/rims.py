"""Rims: a block of steps in two parts, the inside of a slab while halos are on their way, and then
what they reach.

Idea    Along the axis of the halos the inside is an upright trapezoid of `tiles.py`: it begins with
        all owned points and loses the radius a step at either end that has a halo. What stands
        beside it is the rim, an inverted one: it begins in the halo and gains the radius a step on
        its inner side. Each reads of the other what that one left behind: a plane that the inside
        has left after s steps lies in one of the two arrays at step s, in the other at step s - 1,
        and the rim takes both before it writes over them. No point is computed twice, and every
        one by the same operations as in one part.
Layout  Both are rows of `axes` (`geometry.py`) with other numbers: a compiled loop computes
        FIRST - left * SHRINK .. FIRST + COUNT + left * SHRINK when `left` steps are to come. So the
        inside ends `steps` radii away from the side, and the inner side of a rim has a SHRINK below
        0.
Test    tests/kernels/test_rims.py
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.columns import COUNT, FIRST, REACH, SHRINK
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Axes = npt.NDArray[np.int64]  # as of `Geometry`


def begins_inside(problem: Problem, slab: Slab, axis: int, steps: int, threads: int) -> bool:
    """Whether a block of a slab can begin before the halos of an axis are there.

    Not along rows, whose units may be vectors, nor with equations, whose stages read what others
    leave beyond the points of a step. The inside must be so long that what the part of a thread
    reads beyond its own ends reaches no face.

    Args:
        problem: what is advanced.
        slab: a part of it.
        axis: whose halos are on their way.
        steps: of the block.
        threads: that share the work.
    """
    sides = sum(width > 0 for width in slab.halo[axis])
    width = steps * problem.stencil.radii[axis]
    inside = slab.shape[axis] - sides * width
    possible = problem.equations is None and axis < problem.grid.ndim - 1 and sides * width > 0
    return possible and inside >= 2 * width * threads


def inner_part(axes: Axes, padded: int, halo: tuple[int, int], steps: int) -> Axes:
    """What can be advanced by `steps` without the halos of an axis.

    Args:
        axes: of the slab.
        padded: the axis, of the three.
        halo: planes beyond (low, high) of it.
        steps: of the block.
    """
    low, high = (steps * int(axes[padded, REACH]) * (width > 0) for width in halo)
    inner = axes.copy()
    inner[padded, FIRST] += low
    inner[padded, COUNT] -= low + high
    return inner


def rims(axes: Axes, padded: int, halo: tuple[int, int], steps: int) -> list[Axes]:
    """What `inner_part` leaves, one for each halo."""
    radius = int(axes[padded, REACH])
    found = []
    for side in (0, 1):
        if halo[side]:
            rim = axes.copy()
            rim[padded, FIRST] += side * (axes[padded, COUNT] - steps * radius)
            rim[padded, COUNT] = steps * radius
            rim[padded, SHRINK + 1 - side] = -radius
            found.append(rim)
    return found
