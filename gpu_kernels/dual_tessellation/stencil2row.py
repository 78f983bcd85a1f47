"""The box around a stencil, as the kernels of products have it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris_sim.stencil import Stencil

Array = npt.NDArray[np.float64]


def dense(stencil: Stencil) -> Array:
    """The weights of the whole box around a stencil, (2 r0 + 1, [2 r1 + 1, [2 r2 + 1]]).

    >>> dense(Stencil(((-1,), (1,)), (0.25, 0.75)))
    array([0.25, 0.  , 0.75])
    """
    box = np.zeros([2 * r + 1 for r in stencil.radii])
    for offset, weight in stencil.terms.items():
        box[tuple(o + r for o, r in zip(offset, stencil.radii, strict=True))] = weight
    return box
