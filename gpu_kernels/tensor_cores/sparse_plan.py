"""Operands of `sparse.cu`: the products of a patch, compressed 2:4 and laid out as registers of the
lanes, and a table of the points that they multiply.

`sparse.unit_plan` makes the plans of runs: rows of points that are multiplied as they arrive.
Benchmarks make others, of whole patches as in the paper and in FP64 (tests/papers/sparstencil).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# 2:4 compression (SparStencil, equation 2): of each four elements of a row two are kept, together
# with their positions.
#
# For TF32 the hardware keeps one of each two instead. Rows with fewer non-zeros in a group keep
# zeros. Positions ascend within a group: PTX calls that ordered metadata, and Hopper is only fast
# with it.

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Compressed:
    """A matrix of which half of the elements are kept.

    Attributes:
        values: kept elements, (rows, columns / 2).
        positions: their positions within their groups, (rows, columns / 2).
        group: elements of a group, of which half are kept: 4 or 2.
    """

    values: Array
    positions: npt.NDArray[np.int64]
    group: int


def is_structured(matrix: npt.NDArray[np.generic], group: int = 4) -> bool:
    """Whether at most half of the elements in each group of a row are non-zero, and groups fill the
    rows.
    """
    rows, columns = matrix.shape
    if columns % group:
        return False
    return bool((np.count_nonzero(matrix.reshape(rows, -1, group), axis=-1) <= group // 2).all())


def compress(matrix: Array, group: int = 4) -> Compressed:
    """Compress a matrix to half of its elements.

    Raises:
        ValueError: more than half of some group is non-zero.
    """
    if not is_structured(matrix, group):
        msg = (
            f"a group of {group} elements has more than {group // 2} non-zeros, or a row is no "
            "multiple of it"
        )
        raise ValueError(msg)

    # Take the first choice of positions that covers all non-zeros; surplus positions hold zeros.
    groups = matrix.reshape(len(matrix), -1, group)
    choices = np.array(list(itertools.combinations(range(group), group // 2)))
    outside = np.ones((len(choices), group), bool)
    np.put_along_axis(outside, choices, False, axis=1)

    fits = ~((groups != 0)[:, :, None, :] & outside).any(axis=-1)
    positions = choices[fits.argmax(axis=-1)]
    values = np.take_along_axis(groups, positions, axis=-1)
    return Compressed(values.reshape(len(matrix), -1), positions.reshape(len(matrix), -1), group)


# Fragments: the compressed matrix and its metadata in the registers of
# `mma.sp.sync.aligned.m16n8k*` (PTX ISA, "Matrix fragments for multiply-accumulate operation with
# sparse matrix A").
#
# Lane 4 g + t of a warp holds of the compressed A (16 rows, half of the depth) what it would hold
# of a dense matrix of that size: of rows g and g + 8 columns 2 t and 2 t + 1 of each eight (f16,
# bf16: two per register) or column t of each four (tf32).
#
# Metadata are 16 bits for four groups of a row: two bits for the position of each kept element, in
# order; for tf32 four bits, 0b0100 for the first of two and 0b1110 for the second. One word has row
# g in its lower half and row g + 8 in its upper. Lane t = 0 of a quad holds the first four groups
# and, if there are eight, lane 1 the others; the *selector* of the instruction moves that to the
# next lanes, so one register serves four or two products.

Words = npt.NDArray[np.uint32]
ROWS, LANES = 16, 32
_TF32_CODE = np.array([0b0100, 0b1110])


@dataclass(frozen=True)
class SparseMma:
    """One of the shapes of `mma.sp`.

    Attributes:
        kind: number format: f16, bf16 or tf32.
        depth: k, columns of A before compression.
    """

    kind: str
    depth: int

    def __post_init__(self) -> None:
        if (self.kind, self.depth) not in {("f16", 16), ("f16", 32), ("bf16", 16), ("bf16", 32)} | {
            ("tf32", 8),
            ("tf32", 16),
        }:
            msg = f"there is no sparse product of {self.kind} and depth {self.depth}"
            raise ValueError(msg)

    @property
    def group(self) -> int:
        """Elements of a group, of which half are kept."""
        return 2 if self.kind == "tf32" else 4

    @property
    def registers(self) -> int:
        """Registers of a lane that hold its part of A."""
        # Half of A is kept; two 16-bit numbers or one of TF32 fit into a register.
        return ROWS * self.depth // 2 // LANES // (1 if self.kind == "tf32" else 2)

    @property
    def threads(self) -> int:
        """Threads of a quad that hold metadata."""
        return self.depth // self.group // 4

    @property
    def selectors(self) -> int:
        """Products whose metadata share a register."""
        return 4 // self.threads


def value_registers(values: Array, instruction: SparseMma) -> Words:
    """The registers of A, (32 lanes, registers), with its values rounded to the format.

    Args:
        values: kept values, (16, depth / 2).
        instruction: the instruction that multiplies them.
    """
    bits = _to_bits(values, instruction.kind)
    if instruction.kind == "tf32":
        words = bits.reshape(2, 8, -1, 4)  # half, g, column / 4, t
    else:
        pairs = bits.reshape(2, 8, -1, 4, 2)
        words = pairs[..., 0] | pairs[..., 1] << np.uint32(16)
    return np.ascontiguousarray(words.transpose(1, 3, 2, 0).reshape(LANES, instruction.registers))


def metadata_register(products: list[npt.NDArray[np.int64]], instruction: SparseMma) -> Words:
    """The metadata of one or several products, by selector, (32 lanes,).

    Args:
        products: (16, depth / 2) positions of each product; at most `instruction.selectors`.
        instruction: the instruction that reads them.
    """
    lanes = np.zeros((8, 4), np.uint32)
    for selector, positions in enumerate(products):
        first = selector * instruction.threads
        lanes[:, first : first + instruction.threads] = _metadata_words(positions, instruction)
    return lanes.reshape(LANES)


def _metadata_words(positions: npt.NDArray[np.int64], instruction: SparseMma) -> Words:
    """The metadata of one product, (8 quads, threads)."""
    tf32 = instruction.kind == "tf32"
    codes = _TF32_CODE[positions] if tf32 else positions
    bits = 4 if tf32 else 2
    fields = codes.reshape(2, 8, instruction.threads, 16 // bits)
    halves = (fields << np.arange(0, 16, bits)).sum(axis=-1)
    words: Words = (halves[0] | halves[1] << 16).astype(np.uint32)
    return words


def _to_bits(values: Array, kind: str) -> Words:
    """The bits of values rounded to a format, to nearest with ties to even (tf32: away from zero,
    as `cvt.rna` does).
    """
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits: Words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if kind == "tf32":
        return (bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    # BF16 is the upper half of a float.
    return (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)


DEPTHS = {"f16": 32, "bf16": 32, "tf32": 32, "f64": 8}
"""Columns of A that are multiplied together for each format: one instruction, for TF32 two."""

INSTRUCTIONS = {
    "f16": SparseMma("f16", 32),
    "bf16": SparseMma("bf16", 32),
    "tf32": SparseMma("tf32", 16),
}
"""The sparse instruction for each format."""

_PAIRED = ("f16", "bf16")  # two numbers per register


@dataclass(frozen=True)
class SparsePlan:
    """The products of a patch.

    Attributes:
        merged: (r2, r1), results of a patch along y and x.
        lead: points of a patch before its first result.
        width: points of a row of a patch.
        rows: rows of the grid that the table covers, in a unit and behind it.
        flight: units of the streamed axis that a result depends on.
        vector: neighbouring points that are loaded at once.
        kind: number format of the products, one of `DEPTHS`.
        matrices: A'', (flight, products per unit, 16, depth): rows in the order of `row_order`.
        places: positions of each product's columns in a unit, (products per unit, depth, 2): row
            and point; columns of zeros have the first position of a patch.
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
        """Products of a unit for each of the results in flight that depend on it."""
        return int(self.matrices.shape[1])

    @property
    def n_products(self) -> int:
        """Products for the 128 results of eight patches."""
        return self.flight * self.products


def row_order(r1: int, kind: str = "f16") -> list[int]:
    """The result that each row of A belongs to.

    In FP16 a lane receives results 8 h + 2 t and 8 h + 2 t + 1 of a patch (`sparse.cu`:
    store_halves). With 16 results along x the order makes these four neighbours, which the lane
    writes at once.
    """
    if r1 < ROWS or kind != "f16":
        return list(range(ROWS))
    return [4 * t + 2 * h + e for h, t, e in itertools.product(range(2), range(4), range(2))]


def slot_columns(kind: str) -> npt.NDArray[np.int64]:
    """The columns of A, and rows of B, in the slots of each lane of a quad, (4, depth / 4).

    >>> slot_columns("f16")[1].tolist(), slot_columns("f64").tolist()
    ([2, 3, 10, 11, 18, 19, 26, 27], [[0, 4], [1, 5], [2, 6], [3, 7]])
    """
    columns = np.arange(DEPTHS[kind])
    if kind in _PAIRED:
        return columns.reshape(-1, 4, 2).transpose(1, 0, 2).reshape(4, -1)
    return columns.reshape(-1, 4).T


def fragments(plan: SparsePlan) -> tuple[Words, Words]:
    """The words of A, (flight * products, parts of 16 bytes, 32 lanes, 4), and the metadata of two
    instructions each, (n, 32).
    """
    instruction, depth = INSTRUCTIONS[plan.kind], DEPTHS[plan.kind]
    kept = [
        [compress(a, instruction.group) for a in columns_of(product, instruction.depth)]
        for product in plan.matrices.reshape(-1, ROWS, depth)
    ]
    words = np.stack(
        [
            np.concatenate([value_registers(a.values, instruction) for a in parts], axis=1)
            for parts in kept
        ]
    )

    # One register holds the metadata of as many products as there are selectors.
    positions = [a.positions for parts in kept for a in parts]
    together = [
        positions[i : i + instruction.selectors]
        for i in range(0, len(positions), instruction.selectors)
    ]
    metadata = np.stack([metadata_register(products, instruction) for products in together])
    return in_parts(words), metadata


def columns_of(matrix: Array, n: int) -> list[Array]:
    """A matrix cut into parts of `n` columns."""
    return [matrix[:, first : first + n] for first in range(0, matrix.shape[1], n)]


def in_parts(words: Words) -> Words:
    """The words of each lane, (n, 32, words), in the order in which the kernel loads them: (n,
    parts, 32, 4).
    """
    return np.ascontiguousarray(words.reshape(*words.shape[:2], -1, 4).transpose(0, 2, 1, 3))


def lookup_table(plan: SparsePlan, pitch: int, shift: int) -> npt.NDArray[np.int32]:
    """The offsets in shared memory at which the four threads of a quad find the points of a
    fragment, (products, 4, slots / vector).

    Args:
        plan: plan of the products.
        pitch: points of shared memory from row to row.
        shift: points in a row of shared memory before the first patch.

    A vector fills consecutive slots, so only its first point is in the table.
    """
    at = plan.places[..., 0] * pitch + plan.places[..., 1] + shift
    by_lane = at[:, slot_columns(plan.kind)].reshape(len(at), 4, -1, plan.vector)
    return by_lane[..., 0].astype(np.int32)
