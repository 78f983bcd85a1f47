"""How a stencil becomes the matrices of `sparse.cu`, and where each row of the other operand lies in shared memory.

The paper makes a patch one product: all points that 16 results depend on (`patch_plan`). Here a patch can be cut into
units, rows of points that are multiplied when they arrive, for all results that depend on them (`unit_plan`):

    unit     r2 rows of `width` points; r1 r2 = 16 results of a patch depend on several of them
    flight   how many, along the axis that is streamed: y in 2D, z in 3D; none in 1D
    vectors  neighbouring points that a thread loads at once: the columns of a unit are matched by vectors, half a row
             apart, which leaves no column without a partner (`conflicts.vector_graph`)

A row of a unit has 2 r1 points, of which a result needs 2 rx + 1: r1 = 8 does for a radius of 3, 16 for 7, and wider
rows (1D) for more. Half is kept, so 2 rx + 1 of r1 products per row are not with zeros: all but one at those radii.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.sparse.compression import Array, compress, decompress
from tetris_sim.gpu_kernels.sparse.conflicts import is_valid, vector_graph
from tetris_sim.gpu_kernels.sparse.fragments import ROWS, Instruction, Words, metadata_register, value_registers
from tetris_sim.gpu_kernels.sparse.matching import Matching
from tetris_sim.gpu_kernels.sparse.permutation import ZERO, Order, column_order, permute_columns, vector_order
from tetris_sim.gpu_kernels.sparse.pipeline import transform
from tetris_sim.gpu_kernels.stencil2row import dense
from tetris_sim.stencil import Stencil

DEPTH = 32
MMA = Instruction("f16", DEPTH)


@dataclass(frozen=True)
class Plan:
    """The products of a patch.

    Attributes:
        merged: (r2, r1), results of a patch along y and x.
        lead: points of a patch in front of its first result.
        width: points of a row of a patch.
        rows: of the grid in a unit and behind it that the table reaches.
        flight: units of the streamed axis that a result depends on.
        vector: neighbouring points that are loaded at once.
        matrices: A'', (flight, products per unit, 16, 32): rows in the order of `row_order`.
        places: of the columns of each product in a unit, (products per unit, 32, 2): row and point; columns of zeros
            have the first place of a patch.
    """

    merged: tuple[int, int]
    lead: int
    width: int
    rows: int
    flight: int
    vector: int
    matrices: Array
    places: npt.NDArray[np.int64]

    @property
    def products(self) -> int:
        """That a unit takes for each of the results that depend on it."""
        return int(self.matrices.shape[1])

    @property
    def n_products(self) -> int:
        """That the 128 results of eight patches take."""
        return self.flight * self.products


def row_order(r1: int) -> list[int]:
    """Which result each row of A is.

    A lane gets results 8 h + 2 t and the next one of a patch (`sparse.cu`: store). With 16 results along x these are
    made to be four neighbours, which it writes at once.
    """
    if r1 < ROWS:
        return list(range(ROWS))
    return [4 * t + 2 * h + e for h, t, e in itertools.product(range(2), range(4), range(2))]


def box_of(stencil: Stencil) -> Array:
    """The weights of the box around a stencil as 3D, (2 rz + 1, 2 ry + 1, 2 rx + 1)."""
    weights = dense(stencil)
    return weights.reshape((1,) * (3 - weights.ndim) + weights.shape)


def unit_width(radius: int, r1: int) -> int:
    """Points of a row of a unit: vectors half of it apart never have three of four columns of one result.

    >>> [unit_width(radius, 16) for radius in (1, 7, 8, 63)], unit_width(3, 8)
    ([32, 32, 64, 256], 16)
    """
    step = 2 * r1
    return -(-4 * (radius + 1) // step) * step


def unit_plan(fused: Stencil, r1: int) -> Plan:
    """The plan with results in flight.

    Args:
        fused: the stencil that is applied at once.
        r1: results of a patch along x: 8 or 16.
    """
    box = box_of(fused)
    radius_y, radius_x = (n // 2 for n in box.shape[1:])
    r2, width = ROWS // r1, unit_width(radius_x, r1)
    lead, vector = (width - r1) // 2, 8 if r1 == ROWS else 4
    slots = -(-(2 * radius_y + r2) // r2)
    crushed = np.stack([[_unit_matrix(plane, s, (r2, r1), width) for s in range(slots)] for plane in box])
    order = _unit_order(crushed, width, vector)
    matrices = np.stack([[permute_columns(a, order) for a in plane] for plane in crushed])
    matrices = matrices[:, :, row_order(r1)]
    # (planes, slots, 16, products of a unit, 32): in 2D slots are in flight, in 3D planes are.
    parts = matrices.reshape(*matrices.shape[:3], -1, DEPTH).transpose(0, 1, 3, 2, 4)
    places = np.stack(np.divmod(order, width), axis=-1).reshape(-1, DEPTH, 2)
    if fused.ndim == 3:
        down = np.array([r2, 0])
        places = np.concatenate([places + s * down for s in range(slots)])
        parts = parts.reshape(len(box), -1, ROWS, DEPTH)
    else:
        parts = parts[0]
    return Plan((r2, r1), lead, width, slots * r2 if fused.ndim == 3 else r2, len(parts), vector, parts, places)


def _unit_matrix(plane: Array, slot: int, merged: tuple[int, int], width: int) -> Array:
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


def patch_plan(fused: Stencil, merged: tuple[int, int]) -> Plan:
    """The paper's plan, of a 1D or 2D stencil: a patch is one unit, and points are matched one by one.

    Args:
        fused: the stencil that is applied at once.
        merged: (r2, r1), 16 results.
    """
    whole = Stencil.from_terms({(0,) * (2 - fused.ndim) + offset: w for offset, w in fused.terms.items()})
    transformed = transform(whole, merged, depth=DEPTH)
    matrix = decompress(transformed.weights)[row_order(merged[1])]
    rows, width = transformed.layout.patch
    first = np.where(transformed.order == ZERO, 0, transformed.order)
    places = np.stack(np.divmod(first, width), axis=-1).reshape(-1, DEPTH, 2)
    parts = matrix.reshape(ROWS, -1, DEPTH).transpose(1, 0, 2)[None]
    return Plan(merged, whole.radii[1], width, rows, 1, 1, parts, places)


def fragments(plan: Plan, *, sparse: bool) -> tuple[Words, Words]:
    """Registers of A by [flight][product], (fragments, 32 lanes, 4), and metadata of two products each, (n, 32).

    Without `sparse` two dense fragments of depth 16 for every product, and metadata that nobody reads.
    """
    flat = plan.matrices.reshape(-1, ROWS, DEPTH)
    if not sparse:
        halves = flat.reshape(len(flat), ROWS, 2, DEPTH // 2).transpose(0, 2, 1, 3).reshape(-1, ROWS, DEPTH // 2)
        return np.stack([value_registers(a, MMA) for a in halves]), np.zeros((-(-len(flat) // 2), 32), np.uint32)
    kept = [compress(a) for a in flat]
    pairs = [kept[i : i + MMA.selectors] for i in range(0, len(kept), MMA.selectors)]
    metadata = [metadata_register([product.positions for product in pair], MMA) for pair in pairs]
    return np.stack([value_registers(product.values, MMA) for product in kept]), np.stack(metadata)


def lookup_table(plan: Plan, pitch: int, shift: int) -> npt.NDArray[np.int32]:
    """Where the four threads of a quad find the points of a fragment, (products, 4, 8 / vector).

    Args:
        plan: of the products.
        pitch: points of shared memory from row to row.
        shift: points in a row of shared memory before the first patch.

    Lane t holds rows 8 i + 2 t and the next one of B in register i: a vector fills registers one after the other.
    """
    at = plan.places[..., 0] * pitch + plan.places[..., 1] + shift
    by_thread = at.reshape(-1, 4, 4, 2).transpose(0, 2, 1, 3).reshape(len(at), 4, -1, plan.vector)
    return by_thread[..., 0].astype(np.int32)
