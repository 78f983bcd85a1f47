"""Planes: grids of two axes as the planes of one of three, along whose first axis nothing is read.

Methods advance them together, every point by the same chain as alone.
"""

from __future__ import annotations

from tetris_sim.stencil import Stencil


def stacked(stencil: Stencil) -> Stencil:
    """The same at every plane of one more axis.

    >>> stacked(Stencil(((-1,), (1,)), (0.25, 0.75)))
    Stencil(offsets=((0, -1), (0, 1)), weights=(0.25, 0.75))
    """
    return Stencil(tuple((0, *offset) for offset in stencil.offsets), stencil.weights)


def in_planes(stencil: Stencil) -> Stencil:
    """The same within one plane.

    >>> in_planes(Stencil(((0, -1), (0, 1)), (0.25, 0.75)))
    Stencil(offsets=((-1,), (1,)), weights=(0.25, 0.75))

    Raises:
        ValueError: it reads other planes.
    """
    if stencil.radii[0] != 0:
        msg = f"the stencil reads {stencil.radii[0]} planes far"
        raise ValueError(msg)
    return Stencil(tuple(offset[1:] for offset in stencil.offsets), stencil.weights)
