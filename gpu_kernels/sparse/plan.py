"""What `sparse.cu` is handed: the products of a patch, as registers of the lanes and a table of
places.

`units` makes the plan that a run has: rows of points that are multiplied as they arrive. Benchmarks
make others, of whole patches as in the paper and in FP64 (tests/papers/sparstencil).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.sparse.compression import Array, compress
from tetris_sim.gpu_kernels.sparse.fragments import (
    ROWS,
    Instruction,
    Words,
    metadata_register,
    value_registers,
)

DEPTHS = {"f16": 32, "bf16": 32, "tf32": 32, "f64": 8}
"""Columns of A that are multiplied together, by format: an instruction, for TF32 two."""

INSTRUCTIONS = {
    "f16": Instruction("f16", 32),
    "bf16": Instruction("bf16", 32),
    "tf32": Instruction("tf32", 16),
}
"""Of sparse products, by format."""

_PAIRED = ("f16", "bf16")  # two numbers in a register


@dataclass(frozen=True)
class Plan:
    """The products of a patch.

    Attributes:
        merged: (r2, r1), results of a patch along y and x.
        lead: points of a patch in front of its first result.
        width: points of a row of a patch.
        rows: rows of the grid that the table reaches, in a unit and behind it.
        flight: units of the streamed axis that a result depends on.
        vector: neighbouring points that are loaded at once.
        kind: format of what is multiplied, one of `DEPTHS`.
        matrices: A'', (flight, products per unit, 16, depth): rows in the order of `row_order`.
        places: where the columns of each product lie in a unit, (products per unit, depth, 2): row
            and point; columns of zeros have the first place of a patch.
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
        """Products that a unit takes for each of the results that depend on it."""
        return int(self.matrices.shape[1])

    @property
    def n_products(self) -> int:
        """Products that the 128 results of eight patches take."""
        return self.flight * self.products


def row_order(r1: int, kind: str = "f16") -> list[int]:
    """Which result each row of A is.

    Of FP16 a lane gets results 8 h + 2 t and the next one of a patch (`sparse.cu`: store_halves).
    With 16 results along x these are made to be four neighbours, which it writes at once.
    """
    if r1 < ROWS or kind != "f16":
        return list(range(ROWS))
    return [4 * t + 2 * h + e for h, t, e in itertools.product(range(2), range(4), range(2))]


def slot_columns(kind: str) -> npt.NDArray[np.int64]:
    """Which column of A, and row of B, is which of the slots of a lane of a quad, (4, depth / 4).

    >>> slot_columns("f16")[1].tolist(), slot_columns("f64").tolist()
    ([2, 3, 10, 11, 18, 19, 26, 27], [[0, 4], [1, 5], [2, 6], [3, 7]])
    """
    columns = np.arange(DEPTHS[kind])
    if kind in _PAIRED:
        return columns.reshape(-1, 4, 2).transpose(1, 0, 2).reshape(4, -1)
    return columns.reshape(-1, 4).T


def fragments(plan: Plan) -> tuple[Words, Words]:
    """Words of A, (flight * products, parts of 16 bytes, 32 lanes, 4), and metadata of two
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
    """A matrix cut into so many columns each."""
    return [matrix[:, first : first + n] for first in range(0, matrix.shape[1], n)]


def in_parts(words: Words) -> Words:
    """Words of each lane, (n, 32, words), as the kernel loads them: (n, parts, 32, 4)."""
    return np.ascontiguousarray(words.reshape(*words.shape[:2], -1, 4).transpose(0, 2, 1, 3))


def lookup_table(plan: Plan, pitch: int, shift: int) -> npt.NDArray[np.int32]:
    """Where the four threads of a quad find the points of a fragment, (products, 4, slots /
    vector).

    Args:
        plan: of the products.
        pitch: points of shared memory from row to row.
        shift: points in a row of shared memory before the first patch.

    A vector fills slots one after the other.
    """
    at = plan.places[..., 0] * pitch + plan.places[..., 1] + shift
    by_lane = at[:, slot_columns(plan.kind)].reshape(len(at), 4, -1, plan.vector)
    return by_lane[..., 0].astype(np.int32)
