"""Ghosts as links between padded indices along one axis: which ghost mirrors which point."""

from __future__ import annotations

import math

from tetris_sim.model.boundary import SIDES, Reflection
from tetris_sim.model.problem import Problem

Links = list[
    tuple[tuple[int, int], Reflection]
]  # ((ghost, source), (a, b)): the ghost takes a + b * source
COPY: Reflection = (-0.0, 1.0)  # adding -0.0 leaves every bit as it is
RULED: Reflection = (math.nan, math.nan)  # no two numbers, but what a program computes


def face_links(problem: Problem, axis: int, side: int, owned: tuple[int, int], width: int) -> Links:
    """The ghost planes beyond one side that has no neighbour.

    Args:
        problem: gives the face.
        axis: of the problem.
        side: 0 for low, 1 for high.
        owned: padded index of the first and of the last plane.
        width: how many ghosts a ring gets; a reflecting face gets as many as the radius.
    """
    first, last = owned
    n = last - first + 1

    # Around a ring narrower than the halo the source index wraps more than once, hence the modulus.
    if problem.boundary.periodic(axis):
        if side == 0:
            return [((first - 1 - j, last - j % n), COPY) for j in range(width)]
        return [((last + 1 + j, first + j % n), COPY) for j in range(width)]

    # Ghost j mirrors the j-th owned plane from the face; with conduction its value follows from the
    # program of a rule, for which `RULED` stands.
    radius = problem.stencil.radii[axis]
    pairs = (RULED,) * radius
    if problem.conduction is None:
        pairs = problem.boundary.reflections(
            axis, SIDES[side], spacing=problem.grid.spacing[axis], width=radius
        )
    if side == 0:
        return [((first - 1 - j, first + j), pair) for j, pair in enumerate(pairs)]
    return [((last + 1 + j, last - j), pair) for j, pair in enumerate(pairs)]
