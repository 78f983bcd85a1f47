"""Plans of FP64, which has no sparse tensor cores: the same layouts with dense products
(SparStencil, section 4.7).
"""

from __future__ import annotations

import numpy as np

from tests.papers.sparstencil.crush import Layout, crush_weights
from tests.papers.sparstencil.patches import in_2d
from tetris_sim.gpu_kernels.tensor_cores.sparse import box_of, unit_matrix
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import DEPTHS, ROWS, Array, SparsePlan
from tetris_sim.model.stencil import Stencil

_QUAD = 4  # lanes that hold a column of B


def dense_patch_plan(fused: Stencil, merged: tuple[int, int]) -> SparsePlan:
    """The paper's plan, as `patches.patch_plan`.

    Args:
        fused: the stencil that is applied at once, of one axis or two.
        merged: (r2, r1), 16 results.
    """
    stencil = in_2d(fused)
    weights = stencil.dense()
    layout, crushed = Layout(weights.shape, merged), crush_weights(weights, merged)
    rows, width = layout.patch
    padded = np.pad(
        crushed.reshape(1, ROWS, rows, width), ((0, 0), (0, 0), (0, 0), (0, -width % _QUAD))
    )
    return _dense_plan(padded, merged, stencil.radii[1], rows)


def dense_unit_plan(fused: Stencil, merged: tuple[int, int]) -> SparsePlan:
    """The plan with results in flight, as `units.unit_plan`.

    Args:
        fused: the stencil that is applied at once, of two axes.
        merged: (r2, r1), 16 results.
    """
    (plane,), (r2, r1) = box_of(fused), merged
    width = -(-(plane.shape[1] - 1 + r1) // _QUAD) * _QUAD
    slots = -(-(plane.shape[0] - 1 + r2) // r2)
    crushed = np.stack([unit_matrix(plane, s, merged, width) for s in range(slots)])
    return _dense_plan(crushed.reshape(slots, ROWS, r2, width), merged, (width - r1) // 2, r2)


def _dense_plan(crushed: Array, merged: tuple[int, int], lead: int, rows: int) -> SparsePlan:
    """Columns where they are: each lane of a quad has one of four neighbouring points, and needs no
    table to find it.

    Four columns of zeros beside each other, as stars have them, are left out.

    Args:
        crushed: A' of each unit of a patch, (flight, 16, rows, width), with columns of zeros where
            its rows are no multiple of four points.
        merged: (r2, r1).
        lead: points of a patch in front of its first result.
        rows: of the grid in a unit.
    """
    depth, width = DEPTHS["f64"], crushed.shape[-1]
    fours = crushed.reshape(len(crushed), ROWS, -1, _QUAD)
    needed = np.flatnonzero(fours.any(axis=(0, 1, 3)))
    matrix = fours[:, :, needed]
    if len(needed) % 2:  # once more, times zero: two make a product
        needed = np.append(needed, needed[0])
        matrix = np.pad(matrix, ((0, 0), (0, 0), (0, 1), (0, 0)))
    first = np.stack(np.divmod(needed * _QUAD, width), axis=-1)
    places = first[:, None] + np.stack([np.zeros(_QUAD, np.int64), np.arange(_QUAD)], axis=-1)
    parts = matrix.reshape(len(matrix), ROWS, -1, depth).transpose(0, 2, 1, 3)
    return SparsePlan(
        merged, lead, width, rows, len(parts), 1, "f64", parts, places.reshape(-1, depth, 2)
    )
