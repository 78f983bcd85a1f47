"""What compressed matrices, registers and metadata hold, read back: the inverse of what
gpu_kernels/sparse makes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import (
    ROWS,
    Array,
    Compressed,
    SparseMma,
    Words,
)


def decompress(compressed: Compressed) -> Array:
    """The whole matrix."""
    rows, kept = compressed.values.shape
    half = compressed.group // 2
    matrix = np.zeros((rows, kept // half, compressed.group))
    at = compressed.positions.reshape(rows, -1, half)
    np.put_along_axis(matrix, at, compressed.values.reshape(at.shape), axis=-1)
    return matrix.reshape(rows, -1)


def multiply(compressed: Compressed, b: Array) -> Array:
    """The product with B as the hardware forms it: each kept value times the row of B that its
    position selects.
    """
    kept = np.arange(compressed.values.shape[1]) // (compressed.group // 2) * compressed.group
    product: Array = np.einsum("rs,rsn->rn", compressed.values, b[kept + compressed.positions])
    return product


def values_of(registers: Words, instruction: SparseMma) -> Array:
    """The compressed values that registers hold, (16, depth / 2)."""
    words = registers.reshape(8, 4, -1, 2).transpose(3, 0, 2, 1)
    if instruction.kind == "tf32":
        return _from_bits(words, "tf32").reshape(ROWS, -1)
    bits = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
    return _from_bits(bits, instruction.kind).reshape(ROWS, -1)


def positions_of(register: Words, selector: int, instruction: SparseMma) -> npt.NDArray[np.int64]:
    """The positions that a product with this selector reads, (16, depth / 2)."""
    first = selector * instruction.threads
    words = register.reshape(8, 4)[:, first : first + instruction.threads].astype(np.int64)
    halves = np.stack([words & 0xFFFF, words >> 16])  # half, g, thread
    bits = 4 if instruction.kind == "tf32" else 2
    fields = halves[..., None] >> np.arange(0, 16, bits) & (1 << bits) - 1
    if instruction.kind == "tf32":
        fields = fields >> 3
    return fields.reshape(ROWS, -1)


def compressed_of(
    registers: Words, metadata: Words, selector: int, instruction: SparseMma
) -> Compressed:
    """What a warp multiplies that holds these registers."""
    positions = positions_of(metadata, selector, instruction)
    return Compressed(values_of(registers, instruction), positions, instruction.group)


def _from_bits(bits: Words, kind: str) -> Array:
    if kind == "f16":
        return np.ascontiguousarray(bits.astype(np.uint16)).view(np.float16).astype(np.float64)
    shifted = bits << np.uint32(16) if kind == "bf16" else bits
    return np.ascontiguousarray(shifted.astype(np.uint32)).view(np.float32).astype(np.float64)
