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
from tetris_sim.gpu_kernels.sparse.crush import Layout, crush_weights
from tetris_sim.gpu_kernels.sparse.fragments import (
    LANES,
    ROWS,
    Instruction,
    Words,
    metadata_register,
    value_registers,
)
from tetris_sim.gpu_kernels.sparse.matching import Matching
from tetris_sim.gpu_kernels.sparse.permutation import (
    ZERO,
    Order,
    column_order,
    permute_columns,
    vector_order,
)
from tetris_sim.gpu_kernels.sparse.pipeline import transform
from tetris_sim.gpu_kernels.stencil2row import dense
from tetris_sim.stencil import Stencil

DEPTHS = {"f16": 32, "bf16": 32, "tf32": 32, "f64": 8}
"""Columns of A that are multiplied together, by format: an instruction, for TF32 two."""

_INSTRUCTIONS = {"f16": Instruction("f16", 32), "bf16": Instruction("bf16", 32), "tf32": Instruction("tf32", 16)}
_PAIRED = ("f16", "bf16")  # two numbers in a register
_QUAD = 4  # lanes that hold a column of B


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
        kind: format of what is multiplied, of `DEPTHS`.
        matrices: A'', (flight, products per unit, 16, depth): rows in the order of `row_order`.
        places: of the columns of each product in a unit, (products per unit, depth, 2): row and point; columns of zeros
            have the first place of a patch.
    """

    merged: tuple[int, int]
    lead: int
    width: int
    rows: int
    flight: int
    vector: int
    kind: str
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


def row_order(r1: int, kind: str = "f16") -> list[int]:
    """Which result each row of A is.

    Of FP16 a lane gets results 8 h + 2 t and the next one of a patch (`sparse.cu`: store_halves). With 16 results along
    x these are made to be four neighbours, which it writes at once.
    """
    if r1 < ROWS or kind != "f16":
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


def slot_columns(kind: str) -> npt.NDArray[np.int64]:
    """Which column of A, and row of B, is which of the slots of a lane of a quad, (4, depth / 4).

    >>> slot_columns("f16")[1].tolist(), slot_columns("f64").tolist()
    ([2, 3, 10, 11, 18, 19, 26, 27], [[0, 4], [1, 5], [2, 6], [3, 7]])
    """
    columns = np.arange(DEPTHS[kind])
    if kind in _PAIRED:
        return columns.reshape(-1, 4, 2).transpose(1, 0, 2).reshape(4, -1)
    return columns.reshape(-1, 4).T


def unit_plan(fused: Stencil, r1: int, kind: str = "f16") -> Plan:
    """The plan with results in flight.

    Args:
        fused: the stencil that is applied at once; of two axes in FP64.
        r1: results of a patch along x: 8 or 16; in FP64 also 2 or 4.
        kind: format.
    """
    if kind == "f64":
        return _dense_unit_plan(fused, (ROWS // r1, r1))
    box = box_of(fused)
    radius_y, radius_x = (n // 2 for n in box.shape[1:])
    r2, width = ROWS // r1, unit_width(radius_x, r1)
    lead, vector = (width - r1) // 2, 8 if r1 == ROWS else 4
    slots = -(-(2 * radius_y + r2) // r2)
    crushed = np.stack([[_unit_matrix(plane, s, (r2, r1), width) for s in range(slots)] for plane in box])
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
    return Plan((r2, r1), lead, width, slots * r2 if fused.ndim == 3 else r2, len(parts), vector, kind, parts, places)


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


def _in_slots(order: Order, kind: str) -> Order:
    """Columns that are in the order of pairs so that each vector is again with one lane, in its slots.

    The two vectors of a pair are with neighbouring lanes, so for TF32 column k of one is the partner of column k of the
    other; half a row apart, no result has both.
    """
    found = order.reshape(-1, DEPTHS[kind]).copy()
    found[:, slot_columns(kind)] = found[:, slot_columns("f16")]
    return found.reshape(-1)


def patch_plan(fused: Stencil, merged: tuple[int, int], kind: str = "f16") -> Plan:
    """The paper's plan, of a 1D or 2D stencil: a patch is one unit, and points are matched one by one.

    FP64 has no sparse products, so its columns stay where they are (section 4.7 of the paper).

    Args:
        fused: the stencil that is applied at once.
        merged: (r2, r1), 16 results.
        kind: format.
    """
    whole = Stencil.from_terms({(0,) * (2 - fused.ndim) + offset: w for offset, w in fused.terms.items()})
    depth = DEPTHS[kind]
    if kind == "f64":
        return _dense_patch_plan(whole, merged)
    transformed = transform(whole, merged, depth=depth, group=_INSTRUCTIONS[kind].group)
    rows, width = transformed.layout.patch
    first = np.where(transformed.order == ZERO, 0, transformed.order)
    places = np.stack(np.divmod(first, width), axis=-1).reshape(-1, depth, 2)
    matrix = decompress(transformed.weights)[row_order(merged[1], kind)]
    parts = matrix.reshape(ROWS, -1, depth).transpose(1, 0, 2)[None]
    return Plan(merged, whole.radii[1], width, rows, 1, 1, kind, parts, places)


def _dense_patch_plan(stencil: Stencil, merged: tuple[int, int]) -> Plan:
    """The paper's plan in FP64."""
    weights = dense(stencil)
    layout, crushed = Layout(weights.shape, merged), crush_weights(weights, merged)
    rows, width = layout.patch
    padded = np.pad(crushed.reshape(1, ROWS, rows, width), ((0, 0), (0, 0), (0, 0), (0, -width % _QUAD)))
    return _dense_plan(padded, merged, stencil.radii[1], rows)


def _dense_unit_plan(fused: Stencil, merged: tuple[int, int]) -> Plan:
    """The plan of FP64 with results in flight, in 2D."""
    (plane,), (r2, r1) = box_of(fused), merged
    width = -(-(plane.shape[1] - 1 + r1) // _QUAD) * _QUAD
    slots = -(-(plane.shape[0] - 1 + r2) // r2)
    crushed = np.stack([_unit_matrix(plane, s, merged, width) for s in range(slots)])
    return _dense_plan(crushed.reshape(slots, ROWS, r2, width), merged, (width - r1) // 2, r2)


def _dense_plan(crushed: Array, merged: tuple[int, int], lead: int, rows: int) -> Plan:
    """Columns where they are: each lane of a quad has one of four neighbouring points, and needs no table to find it.

    Four columns of zeros beside each other, as stars have them, are left out.

    Args:
        crushed: A' of each unit of a patch, (flight, 16, rows, width), with columns of zeros where its rows are no
            multiple of four points.
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
    return Plan(merged, lead, width, rows, len(parts), 1, "f64", parts, places.reshape(-1, depth, 2))


def fragments(plan: Plan, *, sparse: bool) -> tuple[Words, Words]:
    """Words of A, (flight * products, parts of 16 bytes, 32 lanes, 4), and metadata of two instructions each, (n, 32).

    Without `sparse` the matrices have all their zeros, and there are metadata that nobody reads.
    """
    flat = plan.matrices.reshape(-1, ROWS, DEPTHS[plan.kind])
    if plan.kind == "f64":
        words = np.ascontiguousarray(flat.reshape(-1, 2, 8, 2, 4).transpose(0, 2, 4, 3, 1)).view(np.uint32)
        return _in_parts(words.reshape(len(flat), LANES, -1)), np.zeros((1, LANES), np.uint32)
    instruction = _INSTRUCTIONS[plan.kind]
    if not sparse:
        pieces = [_columns(a, instruction.depth // 2) for a in flat]
        words = np.stack([np.concatenate([value_registers(a, instruction) for a in each], axis=1) for each in pieces])
        return _in_parts(words), np.zeros((1, LANES), np.uint32)
    kept = [[compress(a, instruction.group) for a in _columns(product, instruction.depth)] for product in flat]
    words = np.stack([np.concatenate([value_registers(a.values, instruction) for a in each], axis=1) for each in kept])
    positions = [a.positions for each in kept for a in each]
    together = [positions[i : i + instruction.selectors] for i in range(0, len(positions), instruction.selectors)]
    return _in_parts(words), np.stack([metadata_register(each, instruction) for each in together])


def _columns(matrix: Array, n: int) -> list[Array]:
    """Pieces of so many columns."""
    return [matrix[:, first : first + n] for first in range(0, matrix.shape[1], n)]


def _in_parts(words: Words) -> Words:
    """Words of each lane, (n, 32, words), as the kernel loads them: (n, parts, 32, 4)."""
    return np.ascontiguousarray(words.reshape(*words.shape[:2], -1, 4).transpose(0, 2, 1, 3))


def lookup_table(plan: Plan, pitch: int, shift: int) -> npt.NDArray[np.int32]:
    """Where the four threads of a quad find the points of a fragment, (products, 4, slots / vector).

    Args:
        plan: of the products.
        pitch: points of shared memory from row to row.
        shift: points in a row of shared memory before the first patch.

    A vector fills slots one after the other.
    """
    at = plan.places[..., 0] * pitch + plan.places[..., 1] + shift
    by_lane = at[:, slot_columns(plan.kind)].reshape(len(at), 4, -1, plan.vector)
    return by_lane[..., 0].astype(np.int32)
