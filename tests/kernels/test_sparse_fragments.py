"""2:4 compression, and its registers as PTX describes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.papers.sparstencil.reading import (
    compressed_of,
    decompress,
    multiply,
    positions_of,
    values_of,
)
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import (
    SparseMma,
    compress,
    is_structured,
    metadata_register,
    value_registers,
)

INSTRUCTIONS = [
    SparseMma(kind, depth)
    for kind, depths in (("f16", (16, 32)), ("bf16", (16, 32)), ("tf32", (8, 16)))
    for depth in depths
]
ORDERED = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110}


def structured(seed: int, columns: int, group: int, rows: int = 16) -> npt.NDArray[np.float64]:
    """Small integers, which every format holds; up to half of each group."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-8, 9, (rows, columns // group, group)).astype(np.float64)
    outside = (
        rng.permuted(np.tile(np.arange(group), (rows, columns // group, 1)), axis=-1) >= group // 2
    )
    matrix[outside] = 0
    return matrix.reshape(rows, columns)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), group=st.sampled_from((2, 4)))
def test_a_compressed_matrix_is_the_matrix_and_multiplies_like_it(seed: int, group: int) -> None:
    matrix = structured(seed, 24, group, rows=5)
    compressed = compress(matrix, group)
    assert compressed.values.shape == (5, 12)
    np.testing.assert_array_equal(decompress(compressed), matrix)
    b = np.random.default_rng(seed).integers(-9, 9, (24, 3)).astype(np.float64)
    np.testing.assert_array_equal(multiply(compressed, b), matrix @ b)
    at = compressed.positions.reshape(5, -1, group // 2)
    assert (np.diff(at, axis=-1) > 0).all()


def test_what_has_three_of_four_is_refused() -> None:
    assert is_structured(np.array([[1.0, 1, 0, 0, 0, 0, 1, 1]]))
    assert not is_structured(np.array([[1.0, 1, 0, 1]]))
    assert not is_structured(np.zeros((1, 6)))
    with pytest.raises(ValueError, match="more than 2 non-zeros"):
        compress(np.array([[1.0, 1, 0, 1]]))
    with pytest.raises(ValueError, match="more than 1 non-zeros"):
        compress(np.array([[1.0, 1, 0, 1]]), group=2)


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=str)
def test_registers_and_metadata_give_the_matrix_back_for_every_selector(
    instruction: SparseMma,
) -> None:
    products = [
        compress(structured(s, instruction.depth, instruction.group), instruction.group)
        for s in range(4)
    ]
    products = products[: instruction.selectors]
    metadata = metadata_register([product.positions for product in products], instruction)
    for selector, product in enumerate(products):
        registers = value_registers(product.values, instruction)
        assert registers.shape == (32, instruction.registers)
        found = compressed_of(registers, metadata, selector, instruction)
        np.testing.assert_array_equal(decompress(found), decompress(product))


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=str)
def test_metadata_are_ordered(instruction: SparseMma) -> None:
    product = compress(structured(9, instruction.depth, instruction.group), instruction.group)
    word = metadata_register([product.positions] * instruction.selectors, instruction)
    nibbles = {int(w) >> shift & 15 for w in word for shift in range(0, 32, 4)}
    assert nibbles <= ({0b0100, 0b1110} if instruction.kind == "tf32" else ORDERED)


def test_a_lane_holds_what_the_isa_says() -> None:
    """m16n8k32, f16: lane 4 g + t has rows g and g + 8, stored columns 2 t, 2 t + 1 and 8 more."""
    f16 = SparseMma("f16", 32)
    values = np.arange(256.0).reshape(16, 16)
    registers = value_registers(values, f16)
    for lane in (0, 6, 31):
        g, t = divmod(lane, 4)
        expected = [
            values[row, column : column + 2] for column in (2 * t, 2 * t + 8) for row in (g, g + 8)
        ]
        halves = registers[lane].astype(np.uint32).view(np.uint16).view(np.float16)
        np.testing.assert_array_equal(halves, np.concatenate(expected))
    np.testing.assert_array_equal(values_of(registers, f16), values)
    tf32 = SparseMma("tf32", 16)
    words = value_registers(np.arange(128.0).reshape(16, 8), tf32)
    np.testing.assert_array_equal(words.view(np.float32)[4 * 3 + 2], [26, 90, 30, 94])


def test_the_lanes_of_a_selector_hold_the_metadata_of_eight_groups() -> None:
    f16 = SparseMma("f16", 32)
    assert (f16.threads, f16.selectors, f16.registers) == (2, 2, 4)
    positions = np.tile([0, 1], (16, 8))
    positions[3, 0:2] = [2, 3]  # row 3, group 0
    positions[11, 8:10] = [1, 3]  # row 11, group 4
    word = metadata_register([np.tile([0, 1], (16, 8)), positions], f16).reshape(8, 4)
    assert word[3, 2] == 0x4444444E
    assert word[3, 3] == 0x444D4444
    assert (np.delete(word, 3, axis=0) == 0x44444444).all()
    np.testing.assert_array_equal(positions_of(word.reshape(32), 1, f16), positions)
    for depth, threads in ((8, 1), (16, 2)):
        assert SparseMma("tf32", depth).threads == threads


def test_values_are_rounded_to_the_format() -> None:
    values = np.full((16, 8), 1 + 2.0**-9)
    for kind, expected in (("f16", 1 + 2.0**-9), ("bf16", 1.0)):
        instruction = SparseMma(kind, 16)
        np.testing.assert_array_equal(
            values_of(value_registers(values, instruction), instruction), expected
        )
    tf32 = SparseMma("tf32", 16)
    third = values_of(value_registers(np.full((16, 8), 1 / 3), tf32), tf32)
    np.testing.assert_allclose(third, 1 / 3, rtol=2.0**-11)
    assert (third * 2**12 % 1 == 0).all()


@pytest.mark.parametrize(("kind", "depth"), [("f16", 8), ("tf32", 32), ("f64", 4)])
def test_other_shapes_do_not_exist(kind: str, depth: int) -> None:
    with pytest.raises(ValueError, match="no sparse product"):
        SparseMma(kind, depth)
