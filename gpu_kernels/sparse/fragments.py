"""Fragments: the compressed matrix and its metadata in the registers of
`mma.sp.sync.aligned.m16n8k*`.

PTX ISA, "Matrix fragments for multiply-accumulate operation with sparse matrix A". Lane 4 g + t of
a warp holds of the compressed A (16 rows, half of the depth) what it would hold of a dense one of
that size: of rows g and g + 8 columns 2 t and 2 t + 1 of each eight (f16, bf16: two in a register)
or column t of each four (tf32).

Metadata are 16 bits for four groups of a row: two bits for the position of each kept element, in
order; for tf32 four, 0b0100 for the first of two and 0b1110 for the second. One word has row g in
its lower half and row g + 8 in its upper. Lane t = 0 of a quad holds the first four groups and, if
there are eight, lane 1 the others; the *selector* of the instruction moves that to the next lanes,
so one register serves four or two products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.sparse.compression import Array, Compressed

Words = npt.NDArray[np.uint32]
ROWS, LANES = 16, 32
_TF32_CODE = np.array([0b0100, 0b1110])


@dataclass(frozen=True)
class Instruction:
    """One of the shapes of `mma.sp`.

    Attributes:
        kind: f16, bf16 or tf32.
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
        """Elements of which half are kept."""
        return 2 if self.kind == "tf32" else 4

    @property
    def registers(self) -> int:
        """That a lane holds of A."""
        return ROWS * self.depth // 2 // LANES // (1 if self.kind == "tf32" else 2)

    @property
    def threads(self) -> int:
        """Of a quad that hold metadata."""
        return self.depth // self.group // 4

    @property
    def selectors(self) -> int:
        """Products whose metadata share a register."""
        return 4 // self.threads


def value_registers(values: Array, instruction: Instruction) -> Words:
    """The registers of A, (32 lanes, registers), with its values rounded to the format.

    Args:
        values: (16, depth / 2).
        instruction: that is to multiply them.
    """
    bits = _to_bits(values, instruction.kind)
    if instruction.kind == "tf32":
        words = bits.reshape(2, 8, -1, 4)  # half, g, column / 4, t
    else:
        pairs = bits.reshape(2, 8, -1, 4, 2)
        words = pairs[..., 0] | pairs[..., 1] << np.uint32(16)
    return np.ascontiguousarray(words.transpose(1, 3, 2, 0).reshape(LANES, instruction.registers))


def values_of(registers: Words, instruction: Instruction) -> Array:
    """The compressed values that registers hold, (16, depth / 2)."""
    words = registers.reshape(8, 4, -1, 2).transpose(3, 0, 2, 1)
    if instruction.kind == "tf32":
        return _from_bits(words, "tf32").reshape(ROWS, -1)
    bits = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
    return _from_bits(bits, instruction.kind).reshape(ROWS, -1)


def metadata_register(products: list[npt.NDArray[np.int64]], instruction: Instruction) -> Words:
    """The metadata of one product or several, by selector, (32 lanes,).

    Args:
        products: positions of each, (16, depth / 2); as many as `instruction.selectors` or fewer.
        instruction: that is to read them.
    """
    lanes = np.zeros((8, 4), np.uint32)
    for selector, positions in enumerate(products):
        first = selector * instruction.threads
        lanes[:, first : first + instruction.threads] = _metadata_words(positions, instruction)
    return lanes.reshape(LANES)


def positions_of(register: Words, selector: int, instruction: Instruction) -> npt.NDArray[np.int64]:
    """The positions that a product with this selector reads, (16, depth / 2)."""
    first = selector * instruction.threads
    words = register.reshape(8, 4)[:, first : first + instruction.threads].astype(np.int64)
    halves = np.stack([words & 0xFFFF, words >> 16])  # half, g, thread
    bits = 4 if instruction.kind == "tf32" else 2
    fields = halves[..., None] >> np.arange(0, 16, bits) & (1 << bits) - 1
    if instruction.kind == "tf32":
        fields = fields >> 3
    return fields.reshape(ROWS, -1)


def _metadata_words(positions: npt.NDArray[np.int64], instruction: Instruction) -> Words:
    """(8 quads, threads)."""
    tf32 = instruction.kind == "tf32"
    codes = _TF32_CODE[positions] if tf32 else positions
    bits = 4 if tf32 else 2
    fields = codes.reshape(2, 8, instruction.threads, 16 // bits)
    halves = (fields << np.arange(0, 16, bits)).sum(axis=-1)
    words: Words = (halves[0] | halves[1] << 16).astype(np.uint32)
    return words


def compressed_of(
    registers: Words, metadata: Words, selector: int, instruction: Instruction
) -> Compressed:
    """What a warp multiplies that holds these registers."""
    positions = positions_of(metadata, selector, instruction)
    return Compressed(values_of(registers, instruction), positions, instruction.group)


def _to_bits(values: Array, kind: str) -> Words:
    """To the nearest number of the format, ties to even (tf32: away from zero, as `cvt.rna`)."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits: Words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if kind == "tf32":
        return (bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    return (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)


def _from_bits(bits: Words, kind: str) -> Array:
    if kind == "f16":
        return np.ascontiguousarray(bits.astype(np.uint16)).view(np.float16).astype(np.float64)
    shifted = bits << np.uint32(16) if kind == "bf16" else bits
    return np.ascontiguousarray(shifted.astype(np.uint32)).view(np.float32).astype(np.float64)
