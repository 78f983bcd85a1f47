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

from tetris_sim.gpu_kernels.sparse.compression import Array

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


def _metadata_words(positions: npt.NDArray[np.int64], instruction: Instruction) -> Words:
    """(8 quads, threads)."""
    tf32 = instruction.kind == "tf32"
    codes = _TF32_CODE[positions] if tf32 else positions
    bits = 4 if tf32 else 2
    fields = codes.reshape(2, 8, instruction.threads, 16 // bits)
    halves = (fields << np.arange(0, 16, bits)).sum(axis=-1)
    words: Words = (halves[0] | halves[1] << 16).astype(np.uint32)
    return words


def _to_bits(values: Array, kind: str) -> Words:
    """To the nearest number of the format, ties to even (tf32: away from zero, as `cvt.rna`)."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits: Words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if kind == "tf32":
        return (bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    return (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
