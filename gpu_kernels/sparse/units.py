"""A patch in units: rows of points that are multiplied when they arrive, for all results that
depend on them.

The paper makes a patch one product: all points that 16 results depend on
(`tests/papers/sparstencil/patches.py`). Here it is cut:

    unit     r2 rows of `width` points; r1 r2 = 16 results of a patch depend on several of them
    flight   how many, along the axis that is streamed: y in 2D, z in 3D; none in 1D
    vectors  neighbouring points that a thread loads at once: the columns of a unit are matched by
             vectors, half a row apart, which leaves no column without a partner
             (`conflicts.vector_graph`)

A row of a unit has 2 r1 points, of which a result needs 2 rx + 1: r1 = 8 does for a radius of 3, 16
for 7, and wider rows (1D) for more. Half is kept, so 2 rx + 1 of r1 products per row are not with
zeros: all but one at those radii.
"""

from __future__ import annotations

import itertools

import numpy as np

from tetris_sim.gpu_kernels.sparse.compression import Array
from tetris_sim.gpu_kernels.sparse.conflicts import is_valid, vector_graph
from tetris_sim.gpu_kernels.sparse.fragments import ROWS
from tetris_sim.gpu_kernels.sparse.permutation import (
    Matching,
    Order,
    column_order,
    permute_columns,
    vector_order,
)
from tetris_sim.gpu_kernels.sparse.plan import DEPTHS, Plan, row_order, slot_columns
from tetris_sim.model.grid import on_three
from tetris_sim.model.stencil import Stencil


def box_of(stencil: Stencil) -> Array:
    """The weights of the box around a stencil as 3D, (2 rz + 1, 2 ry + 1, 2 rx + 1)."""
    weights = stencil.dense()
    return weights.reshape(on_three(weights.shape, 1))


def unit_width(radius: int, r1: int) -> int:
    """Points of a row of a unit: vectors half of it apart never have three of four columns of one
    result.

    >>> [unit_width(radius, 16) for radius in (1, 7, 8, 63)], unit_width(3, 8)
    ([32, 32, 64, 256], 16)
    """
    step = 2 * r1
    return -(-4 * (radius + 1) // step) * step


def unit_plan(fused: Stencil, r1: int, kind: str = "f16") -> Plan:
    """The plan with results in flight.

    Args:
        fused: the stencil that is applied at once.
        r1: results of a patch along x: 8 or 16.
        kind: format.
    """
    box = box_of(fused)
    radius_y, radius_x = (n // 2 for n in box.shape[1:])
    r2, width = ROWS // r1, unit_width(radius_x, r1)
    lead, vector = (width - r1) // 2, 8 if r1 == ROWS else 4
    slots = -(-(2 * radius_y + r2) // r2)

    crushed = np.stack(
        [[unit_matrix(plane, s, (r2, r1), width) for s in range(slots)] for plane in box]
    )
    order = _in_slots(_unit_order(crushed, width, vector), kind)
    matrices = np.stack([[permute_columns(a, order) for a in plane] for plane in crushed])
    matrices = matrices[:, :, row_order(r1, kind)]

    # (planes, slots, 16, products of a unit, 32): in 2D slots are in flight, in 3D planes are.
    depth = DEPTHS[kind]
    parts = matrices.reshape(*matrices.shape[:3], -1, depth).transpose(0, 1, 3, 2, 4)
    places = np.stack(np.divmod(order, width), axis=-1).reshape(-1, depth, 2)

    if fused.ndim == 3:
        down = np.array([r2, 0])
        places = np.concatenate([places + s * down for s in range(slots)])
        parts = parts.reshape(len(box), -1, ROWS, depth)
    else:
        parts = parts[0]

    return Plan(
        merged=(r2, r1),
        lead=lead,
        width=width,
        rows=slots * r2 if fused.ndim == 3 else r2,
        flight=len(parts),
        vector=vector,
        kind=kind,
        matrices=parts,
        places=places,
    )


def unit_matrix(plane: Array, slot: int, merged: tuple[int, int], width: int) -> Array:
    """A' of one unit of a patch, (16, r2 * width): `slot` units lie before it."""
    (r2, r1), (taps_y, taps_x) = merged, plane.shape
    lead = (width - r1) // 2
    matrix = np.zeros((r2, r1, r2, width))
    for j2, p2 in itertools.product(range(r2), range(r2)):
        dy = slot * r2 + p2 - j2
        if 0 <= dy < taps_y:
            for j1 in range(r1):
                first = lead + j1 - taps_x // 2
                matrix[j2, j1, p2, first : first + taps_x] = plane[dy]
    return matrix.reshape(ROWS, r2 * width)


def _unit_order(crushed: Array, width: int, vector: int) -> Order:
    """One order of columns for all units: vectors half a row apart are pairs in each of them."""
    stacked = crushed.reshape(-1, crushed.shape[-1])
    graph, half = vector_graph(stacked, vector), width // vector // 2
    pairs = tuple((i, i + half) for i in range(len(graph)) if i // half % 2 == 0)
    if not is_valid(pairs, graph, 0):
        msg = f"vectors of {vector} points half a row of {width} apart conflict"
        raise AssertionError(msg)
    return column_order(vector_order(Matching(len(graph), pairs)), vector)


def _in_slots(order: Order, kind: str) -> Order:
    """Columns that are in the order of pairs so that each vector is again with one lane, in its
    slots.

    The two vectors of a pair are with neighbouring lanes, so for TF32 column k of one is the
    partner of column k of the other; half a row apart, no result has both.
    """
    columns = order.reshape(-1, DEPTHS[kind]).copy()
    columns[:, slot_columns(kind)] = columns[:, slot_columns("f16")]
    return columns.reshape(-1)
