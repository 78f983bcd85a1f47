"""gpu.sparse: fused steps as one sparse matrix product per patch, with FP16 in memory and sums in
FP32.

Several steps are composed into one stencil (`Stencil.power`), which `sparse.cu` applies once.
`sparse_plan.py` lays out its operands. This module has the conflict graph of a matrix, the
permutation of its columns, the division of a patch into units, and the kernel.

`sparse.cu` can do more than runs use: `plan_kernel` also takes plans of other formats and of whole
patches, which benchmarks and tests make (tests/papers/sparstencil/variants.py).

Parameters:
    steps_per_block: steps composed into one stencil.
    merged_x: results of a patch along x: 2, 4, 8 or 16.
    warps, blocks: warps per block of threads, and the smallest number of blocks per multiprocessor
        (limits registers).
    units: units that a warp multiplies side by side.
    steps: steps of the stream per stage of shared memory; one in 3D.
    stages: stages in shared memory; all but one are being prefetched. Two are a double buffer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import (
    FLOAT16,
    FusedKernel,
    SharedTile,
    StreamedAxis,
    blocks_beside,
    braces,
    half_refusal,
    operand_weights,
    refuse_bad_rounding,
    round_up,
    rounds_well,
)
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import (
    DEPTHS,
    ROWS,
    Array,
    SparsePlan,
    Words,
    fragments,
    lookup_table,
    row_order,
    slot_columns,
)
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.stencil import Stencil

# The conflict graph (SparStencil, definitions 1 to 3): which columns may form a pair.
#
# If no row has non-zeros in both columns of a pair, a row has at most one non-zero per pair, and
# two pairs make a group of four with at most two. Graphs are symmetric boolean matrices; columns of
# zeros, which the augmented graph appends, conflict with none.
#
# 2:4 sparsity requires less than two such pairs: both non-zeros may lie in one pair. `vector_graph`
# uses that. Its nodes are runs of neighbouring columns, which a thread can load at once; two of
# them are interleaved two columns at a time, and conflict only if some row then has three non-zeros
# in a group of four.

Graph = npt.NDArray[np.bool_]
Pairs = Sequence[tuple[int, int]]


def conflict_graph(matrix: npt.NDArray[np.generic]) -> Graph:
    """Definition 1: columns i and j conflict if some row is non-zero in both, (columns, columns).

    >>> conflict_graph(np.array([[1, 1, 0, 0], [0, 1, 1, 0]])).astype(int)
    array([[0, 1, 0, 0],
           [1, 0, 1, 0],
           [0, 1, 0, 0],
           [0, 0, 0, 0]])
    """
    pattern = (np.asarray(matrix) != 0).astype(np.int64)
    graph: Graph = (pattern.T @ pattern) > 0
    np.fill_diagonal(graph, False)
    return graph


def vector_graph(matrix: npt.NDArray[np.generic], vector: int) -> Graph:
    """The conflict graph of vectors of neighbouring columns, (columns / vector, columns / vector).

    Args:
        matrix: (rows, columns), columns a multiple of `vector`.
        vector: columns of a vector: 1, which is `conflict_graph`, or an even number.

    Raises:
        ValueError: vectors of that length do not fill the matrix.
    """
    if vector == 1:
        return conflict_graph(matrix)
    rows, columns = matrix.shape
    if vector % 2 or columns % vector:
        msg = (
            f"vectors have 1 or an even number of columns and fill the matrix, got {vector} for "
            f"{columns} columns"
        )
        raise ValueError(msg)
    # Interleaving puts two columns of each vector into a group of four: more than two non-zeros
    # together are a conflict.

    pattern = (np.asarray(matrix) != 0).reshape(rows, columns // vector, vector // 2, 2)
    count = pattern.sum(axis=-1)  # of each two columns
    graph: Graph = (count[:, :, None] + count[:, None, :] > 2).any(axis=(0, 3))
    np.fill_diagonal(graph, False)
    return graph


def augment(graph: Graph, zero_columns: int) -> Graph:
    """Definition 2: the graph with columns of zeros appended."""
    return np.pad(graph, (0, zero_columns))


def is_valid(pairs: Pairs, graph: Graph, zero_columns: int) -> bool:
    """Definition 3: every column of the matrix is in exactly one pair, and no pair conflicts.

    Args:
        pairs: pairs of columns; those from `len(graph)` on are columns of zeros.
        graph: conflict graph of the matrix without columns of zeros.
        zero_columns: number of columns of zeros.
    """
    whole = augment(graph, zero_columns)
    ends = [end for pair in pairs for end in pair]
    covered = len(set(ends)) == len(ends) and set(range(len(graph))) <= set(ends) <= set(
        range(len(whole))
    )
    return covered and not any(whole[i, j] for i, j in pairs)


# The permutation-invariant transformation (SparStencil, equation 5): pairs of columns become
# neighbours.
#
# Columns of A' and rows of B' in the same order give the same product, also with columns of zeros
# in between. The order puts the two columns of a pair side by side, and two pairs into each group
# of four.
#
# Vectors (`vector_graph`) are interleaved two columns at a time, those of two pairs at once: this
# is the order in which the four threads of a quad, with one vector each, hold the other operand of
# a product (`fragments`).

Order = npt.NDArray[np.int64]
ZERO = -1  # in an order: a column of zeros


@dataclass(frozen=True)
class Matching:
    """A matching of columns into pairs.

    Attributes:
        n_columns: columns of the matrix; columns of zeros are numbered from here on.
        pairs: (first, second), in order of the first.
    """

    n_columns: int
    pairs: tuple[tuple[int, int], ...]

    @cached_property
    def zero_columns(self) -> int:
        """The number p of columns of zeros."""
        return 2 * len(self.pairs) - self.n_columns


def vector_order(matching: Matching) -> Order:
    """The vectors of all pairs, one pair after the other, padded to an even number of pairs; `ZERO`
    stands for a vector of zeros.
    """
    order = [end if end < matching.n_columns else ZERO for pair in matching.pairs for end in pair]
    return np.array(order + [ZERO] * (-len(order) % 4), np.int64)


def column_order(vectors: Order, vector: int) -> Order:
    """Columns in the order of the transformed matrix.

    Args:
        vectors: vectors in the order of `vector_order`, `ZERO` for vectors of zeros.
        vector: columns per vector.

    >>> column_order(np.array([0, 2, 1, 3]), 1).tolist()
    [0, 2, 1, 3]
    >>> column_order(np.array([0, 2, 1, 3]), 4).tolist()
    [0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15]
    """
    first = np.where(vectors == ZERO, ZERO, vectors * vector)
    columns = np.where(vectors[:, None] == ZERO, ZERO, first[:, None] + np.arange(vector))
    if vector == 1:
        return columns.reshape(-1)
    return columns.reshape(-1, 4, vector // 2, 2).transpose(0, 2, 1, 3).reshape(-1)


def permute_columns(matrix: npt.NDArray[np.float64], order: Order) -> npt.NDArray[np.float64]:
    """A'': the columns of A' in the given order, with columns of zeros at `ZERO`."""
    return np.where(order == ZERO, 0.0, matrix[:, order])


# The units of a patch: rows of points that are multiplied when they arrive, for all results that
# depend on them.
#
# In the paper a patch is one product: all points that 16 results depend on
# (`tests/papers/sparstencil/patches.py`). Here it is divided:
#
#     unit     r2 rows of `width` points; r1 r2 = 16 results of a patch depend on several of them
#     flight   their number along the streamed axis: y in 2D, z in 3D; 1 in 1D
#     vectors  neighbouring points that a thread loads at once: the columns of a unit are matched by
#              vectors, half a row apart, which leaves no column without a partner
#              (`vector_graph`)
#
# A row of a unit has 2 r1 points, of which a result needs 2 rx + 1: r1 = 8 suffices for radius 3,
# 16 for 7, and wider rows (1D) for more. Half of the columns are kept, so 2 rx + 1 of r1 products
# per row are with non-zero weights: all but one at those radii.


def box_of(stencil: Stencil) -> Array:
    """The weights of the box around a stencil in three dimensions, (2 rz + 1, 2 ry + 1, 2
    rx + 1).
    """
    weights = stencil.dense()
    return weights.reshape(on_three(weights.shape, 1))


def unit_width(radius: int, r1: int) -> int:
    """Points of a row of a unit, wide enough that vectors half of it apart never put three columns
    of one result into a group of four.

    >>> [unit_width(radius, 16) for radius in (1, 7, 8, 63)], unit_width(3, 8)
    ([32, 32, 64, 256], 16)
    """
    step = 2 * r1
    return -(-4 * (radius + 1) // step) * step


def unit_plan(fused: Stencil, r1: int, kind: str = "f16") -> SparsePlan:
    """The plan of products with results in flight.

    Args:
        fused: the composed stencil.
        r1: results of a patch along x: 8 or 16.
        kind: number format, one of `KINDS`.
    """
    box = box_of(fused)
    radius_y, radius_x = (n // 2 for n in box.shape[1:])
    r2, width = ROWS // r1, unit_width(radius_x, r1)
    lead, vector = (width - r1) // 2, 8 if r1 == ROWS else 4
    slots = -(-(2 * radius_y + r2) // r2)

    crushed = np.stack(
        [[unit_matrix(plane, s, (r2, r1), width) for s in range(slots)] for plane in box]
    )

    # One order for all units: a thread loads the points of every unit in the same way.
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

    return SparsePlan(
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
    """A' of one unit of a patch, (16, r2 * width), with `slot` units before it."""
    (r2, r1), (taps_y, taps_x) = merged, plane.shape
    lead = (width - r1) // 2
    matrix = np.zeros((r2, r1, r2, width))
    for j2, p2 in itertools.product(range(r2), range(r2)):
        # Row of the stencil that leads from result row j2 to point row p2 of this unit.
        dy = slot * r2 + p2 - j2
        if 0 <= dy < taps_y:
            for j1 in range(r1):
                first = lead + j1 - taps_x // 2
                matrix[j2, j1, p2, first : first + taps_x] = plane[dy]
    return matrix.reshape(ROWS, r2 * width)


def _unit_order(crushed: Array, width: int, vector: int) -> Order:
    """An order of columns for all units: vectors half a row apart are pairs in each of them."""
    stacked = crushed.reshape(-1, crushed.shape[-1])
    graph, half = vector_graph(stacked, vector), width // vector // 2
    pairs = tuple((i, i + half) for i in range(len(graph)) if i // half % 2 == 0)
    if not is_valid(pairs, graph, 0):
        msg = f"vectors of {vector} points half a row of {width} apart conflict"
        raise AssertionError(msg)
    return column_order(vector_order(Matching(len(graph), pairs)), vector)


def _in_slots(order: Order, kind: str) -> Order:
    """Reorder columns, given in the order of pairs, so that each vector again lies with one lane,
    in its slots.

    The two vectors of a pair lie with neighbouring lanes, so for TF32 column k of one is the
    partner of column k of the other; since they are half a row apart, no result needs both.
    """
    columns = order.reshape(-1, DEPTHS[kind]).copy()
    columns[:, slot_columns(kind)] = columns[:, slot_columns("f16")]
    return columns.reshape(-1)


KINDS = ("f16", "bf16", "tf32", "f64")
"""Number formats in the order of their numbers in sparse.cu."""

MADE_OF = {"f16": "float16", "bf16": "float32", "tf32": "float32", "f64": "float64"}
"""The dtype of the state for each format."""

# FP16 as bits, since the kernel only moves them.
_STORED = {"float16": "unsigned short", "float32": "float", "float64": "double"}
# Largest radius after fusion: 2D and 3D keep the matrices of all units in registers.
_FARTHEST = {1: 63, 2: 7, 3: 3}
_REGISTERS = 200  # of 255, for matrices and results in flight
_OTHERS = 32  # registers for everything else; with fewer the compiler spills


def sparse_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernel refuses a stencil, as a sentence for the user; None if it does not."""
    return half_refusal(stencil, dtype, _steps_to_try, "the sparse matrices")


def sparse_parameters(stencil: Stencil, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Parameters worth trying, the best guess first: the deepest fusion, fewer steps, then other
    numbers of stages and warps.

    The order follows measurements on one H200 (10240 x 10240 points and comparable grids in 1D and
    3D, November 2026).
    """
    if sparse_refusal(stencil, dtype) is not None:
        return ()

    best, *fewer = (_shape(stencil, n) for n in _steps_to_try(stencil))
    other_warps = {**best, "warps": 12 - best["warps"]}
    if stencil.ndim == 2:
        other_warps |= {"units": 1, "stages": 3}
    shapes = (
        best,
        *fewer,
        {**best, "stages": 4},
        {**best, "stages": 3},
        {**best, "stages": 2},
        other_warps,
    )

    # Variations of the stages may coincide with the best guess.
    proposals: list[Mapping[str, int]] = []
    for shape in shapes:
        parameters = {**shape, "blocks": _blocks(stencil, shape)}
        if parameters not in proposals:
            proposals.append(parameters)
    return tuple(proposals)


def sparse_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel that applies `steps_per_block` steps at once.

    Args:
        stencil: stencil of one step.
        dtype: float16.
        parameters: one of `sparse_parameters`, or others as in the module's docstring.

    Raises:
        ValueError: the dtype is another one, or rounding to FP16 changes the weights too much.
    """
    refuse_other_dtype("f16", dtype)
    refuse_bad_rounding(stencil, parameters["steps_per_block"])
    fused = operand_weights(stencil.power(parameters["steps_per_block"]), FLOAT16)
    plan = unit_plan(fused, parameters["merged_x"])
    return plan_kernel(fused, plan, fragments(plan), parameters)


def refuse_other_dtype(kind: str, dtype: npt.DTypeLike) -> None:
    """Check that a state of this dtype can be multiplied in a format.

    Raises:
        ValueError: it cannot.
    """
    if np.dtype(dtype) != np.dtype(MADE_OF[kind]):
        msg = f"{kind} is not made of {np.dtype(dtype)}"
        raise ValueError(msg)


def _steps_to_try(stencil: Stencil) -> tuple[int, ...]:
    # Numbers of steps worth trying, the best guess first.
    farthest, radius = _FARTHEST[stencil.ndim], max(1, stencil.radius)
    if stencil.ndim == 1:
        # Half the reach takes half as many products.
        reaches = [(farthest + 1) // fewer - 1 for fewer in (1, 2, 4, 8)]
        fitting = tuple(dict.fromkeys(reach // radius for reach in reaches if reach >= radius))
    else:
        steps = range(farthest // radius, 0, -1)
        fitting = tuple(n for n in steps if _registers(stencil, _shape(stencil, n)) <= _REGISTERS)
    return tuple(n for n in fitting if rounds_well(stencil, n))


def _shape(stencil: Stencil, steps: int) -> dict[str, int]:
    # The parameters of the best guess for a number of steps.
    reach = [steps * radius for radius in stencil.radii]
    if stencil.ndim == 1:
        return {
            "steps_per_block": steps,
            "merged_x": 16,
            "warps": 4,
            "units": 2,
            "steps": 1,
            "stages": 3,
        }

    merged = 8 if reach[-1] <= 3 else 16
    chosen = {"steps_per_block": steps, "merged_x": merged}
    if stencil.ndim == 2:
        if max(reach) == _FARTHEST[2]:
            return chosen | {"warps": 8, "units": 2, "steps": 8, "stages": 2}
        return chosen | {
            "warps": 4,
            "units": 2 if merged == 8 else 1,
            "steps": 8 if merged == 16 else 4,
            "stages": 3,
        }

    return chosen | {"warps": 8, "units": 2 if reach[0] <= 2 else 1, "steps": 1, "stages": 4}


def _registers(stencil: Stencil, shape: Mapping[str, int]) -> int:
    """Registers per thread for matrices, metadata and results in flight."""
    flight, products = _sizes(stencil, shape)
    return (
        flight * products * 4 + (flight * products + 1) // 2 + shape["units"] * (flight + 1) * 4 + 4
    )


def _sizes(stencil: Stencil, shape: Mapping[str, int]) -> tuple[int, int]:
    """(flight, products) of the plan with these parameters, as `unit_plan` makes it."""
    r1 = shape["merged_x"]
    r2 = ROWS // r1
    reach = [shape["steps_per_block"] * radius for radius in stencil.radii]
    per_unit = r2 * unit_width(reach[-1], r1) // 32
    slots = -(-(2 * reach[-2] + r2) // r2) if stencil.ndim > 1 else 1
    return (slots, per_unit) if stencil.ndim < 3 else (2 * reach[0] + 1, slots * per_unit)


def _blocks(stencil: Stencil, shape: Mapping[str, int]) -> int:
    """Blocks that fit on a multiprocessor; with wide patches in 2D two are faster than more."""
    fitting = blocks_beside(32 * shape["warps"], _registers(stencil, shape) + _OTHERS)
    return min(2, fitting) if stencil.ndim == 2 and shape["merged_x"] == 16 else fitting


def _stage(plan: SparsePlan, parameters: Mapping[str, int], ndim: int, vector: int) -> SharedTile:
    # The tile that a block holds in shared memory, by number of axes.
    (r2, r1), warps, steps = plan.merged, parameters["warps"], parameters["steps"]
    results = parameters["units"] * 8 * r1 * {1: warps * steps, 2: warps, 3: 1}[ndim]
    lead = round_up(plan.lead, vector)

    height = {1: 1, 2: steps * r2, 3: warps * r2}[ndim]
    streams = {
        1: StreamedAxis(axis=2, repeated=0, unit=results),
        2: StreamedAxis(axis=1, repeated=(plan.flight - 1) * r2, unit=steps * r2),
        3: StreamedAxis(axis=0, repeated=plan.flight - 1, unit=1),
    }

    return SharedTile(
        lead=lead,
        row_points=lead + results + round_up(plan.width - r1 - plan.lead, vector),
        rows=height + plan.rows - r2,
        tile=(1, height, results),
        stream=streams[ndim],
    )


def plan_kernel(
    fused: Stencil,
    plan: SparsePlan,
    registers: tuple[Words, Words],
    parameters: Mapping[str, int],
    *,
    sparse: bool = True,
) -> FusedKernel:
    """The kernel that makes the products of a plan.

    Args:
        fused: the composed stencil.
        plan: plan of its products.
        registers: A and the metadata of all products.
        parameters: as in the module's docstring.
        sparse: whether sparse tensor cores multiply; otherwise dense ones do.
    """
    item = np.dtype(MADE_OF[plan.kind]).itemsize
    stage = _stage(plan, parameters, fused.ndim, 16 // item)
    a, metadata = registers
    table = lookup_table(plan, stage.row_points, stage.lead - plan.lead)

    # Linear tables need no look-up: each lane lies one point behind the previous one.
    firsts = table[:, 0]
    linear = np.array_equal(table, firsts[:, None] + np.arange(4)[:, None])

    numbers = np.concatenate([a.ravel(), metadata.ravel(), table.ravel().view(np.uint32)])
    reach = on_three(fused.radii, 0)
    return FusedKernel(
        source="sparse.cu",
        entry="sparse_stencil",
        defines={
            "TS_REAL": _STORED[MADE_OF[plan.kind]],
            "TS_FORMAT": KINDS.index(plan.kind),
            "TS_SPARSE": int(sparse),
            "TS_MERGED_X": plan.merged[1],
            "TS_FLIGHT": plan.flight,
            "TS_PRODUCTS": plan.products,
            "TS_VECTOR": plan.vector,
            "TS_LINEAR": int(linear),
            "TS_FIRSTS": braces(firsts) if linear else 0,
            "TS_AXIS": LAST[fused.ndim][0],
            "TS_WARPS": parameters["warps"],
            "TS_MIN_BLOCKS": parameters["blocks"],
            "TS_UNITS": parameters["units"],
            "TS_STEPS": parameters["steps"],
            "TS_STAGES": parameters["stages"],
            "TS_LEAD": stage.lead,
            "TS_ROW_POINTS": stage.row_points,
            "TS_ROWS": stage.rows,
            "TS_REACH": braces(reach),
        },
        depth=parameters["steps_per_block"],
        tile=stage.tile,
        threads=32 * parameters["warps"],
        shared_bytes=item * parameters["stages"] * stage.rows * stage.row_points + 4 * table.size,
        weights=numbers,
        stream=stage.stream,
        by_pointer=True,
    )


METHOD = FusedMethod(
    "gpu.sparse",
    dict.fromkeys((1, 2, 3), Family(sparse_kernel, sparse_parameters, sparse_refusal)),
)
