"""The paper's plan: a patch is one unit, and its points are matched one by one."""

from __future__ import annotations

import numpy as np

from tests.papers.sparstencil.pipeline import transform
from tests.papers.sparstencil.reading import decompress
from tetris_sim.gpu_kernels.tensor_cores.sparse import ZERO
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import (
    DEPTHS,
    INSTRUCTIONS,
    ROWS,
    SparsePlan,
    row_order,
)
from tetris_sim.model.stencil import Stencil


def patch_plan(fused: Stencil, merged: tuple[int, int], kind: str = "f16") -> SparsePlan:
    """The plan of a 1D or 2D stencil.

    Args:
        fused: the stencil that is applied at once.
        merged: (r2, r1), 16 results.
        kind: format.
    """
    whole, depth = in_2d(fused), DEPTHS[kind]
    transformed = transform(whole, merged, depth=depth, group=INSTRUCTIONS[kind].group)
    rows, width = transformed.layout.patch
    first = np.where(transformed.order == ZERO, 0, transformed.order)
    places = np.stack(np.divmod(first, width), axis=-1).reshape(-1, depth, 2)
    matrix = decompress(transformed.weights)[row_order(merged[1], kind)]
    parts = matrix.reshape(ROWS, -1, depth).transpose(1, 0, 2)[None]
    return SparsePlan(merged, whole.radii[1], width, rows, 1, 1, kind, parts, places)


def in_2d(stencil: Stencil) -> Stencil:
    """A stencil of one axis or two as one of two."""
    return Stencil.from_terms(
        {(0,) * (2 - stencil.ndim) + offset: w for offset, w in stencil.terms.items()}
    )
