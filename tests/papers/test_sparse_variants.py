"""Kernels of `sparse.cu` that no run asks for: they agree with plain NumPy and compile to the products
that they stand for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest

from tests.gpu.test_gpu_compiles import ARCHITECTURES, disassembled
from tests.gpu.test_gpu_sparse import agrees
from tests.papers.sparstencil.variants import variant_kernel
from tests.support.emulator.half_emulation import HALF, Array, compare, emulated, small, weighted
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.fused.kernel import FORMATS, TFLOAT32, Format, operand_weights, rounded
from tetris_sim.gpu_kernels.tensor_cores.sparse import sparse_parameters
from tetris_sim.model.stencil import Stencil


@emulated
@pytest.mark.parametrize("name", ["heat-1d", "box-2d9p", "star-2d13p", "heat-3d"])
def test_so_do_dense_tensor_cores_with_the_same_matrices(name: str) -> None:
    stencil = weighted(name)
    agrees(
        stencil,
        {**small(sparse_parameters(stencil, HALF)[-1]), "steps_per_block": 1, "sparse": 0},
        make=variant_kernel,
    )


@emulated
@pytest.mark.parametrize("merged_x", [2, 4, 8, 16])
@pytest.mark.parametrize("name", ["box-2d9p", "star-2d9p"])
def test_so_does_the_papers_way_with_any_layout(name: str, merged_x: int) -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    stencil = weighted(name)
    first = {
        **small(sparse_parameters(stencil, HALF)[0]),
        "merged_x": merged_x,
        "flight": 0,
        "units": 1,
    }
    agrees(
        stencil, {**first, "steps_per_block": 1, "sparse": int(merged_x > 2)}, make=variant_kernel
    )


@emulated
def test_so_does_the_papers_way_for_three_steps_and_in_1d() -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    for name in ("box-2d9p", "heat-1d"):
        stencil = weighted(name)
        parameters = small(sparse_parameters(stencil, HALF)[0])
        agrees(
            stencil,
            {**parameters, "merged_x": 16, "flight": 0, "steps_per_block": 3},
            make=variant_kernel,
        )


def in_format(stencil: Stencil, number: int) -> dict[str, int]:
    """One step, or more where they are likely to fit into registers."""
    first = sparse_parameters(stencil, HALF)[-1]
    return {**small(first), "steps_per_block": 2, "format": number, "units": 1, "blocks": 1}


def agrees_in_format(stencil: Stencil, parameters: Mapping[str, int]) -> None:
    format_ = FORMATS[parameters["format"]]
    kernel = variant_kernel(stencil, np.float32, parameters)
    fused = operand_weights(stencil.power(kernel.depth), format_)
    # The state may be rounded otherwise where it lies between two numbers: TF32 goes away from
    # zero.
    allowed = format_.eps * 2.0**-8 + (2 * fused.n_points + 1) * 2.0**-24
    operand = partial(rounded_to, format_)
    compare(kernel, stencil, fused, allowed, dtype=np.dtype(np.float32), operand=operand)


def rounded_to(format_: Format, state: Array) -> Array:
    """What the tensor cores are given."""
    if format_ is not TFLOAT32:
        return rounded(state, format_)
    bits = np.ascontiguousarray(state, np.float32).view(np.uint32)
    return (bits + np.uint32(1 << 12) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


@emulated
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", ["heat-1d", "box-2d9p", "star-2d13p", "heat-3d"])
def test_so_do_bf16_and_tf32_made_of_float32(name: str, number: int) -> None:
    stencil = weighted(name)
    parameters = in_format(stencil, number)
    for sparse in (1, 0):
        agrees_in_format(stencil, {**parameters, "steps_per_block": 1 + sparse, "sparse": sparse})


@emulated
@pytest.mark.parametrize("number", [1, 2])
def test_so_do_they_in_the_papers_way(number: int) -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    for name, merged_x in itertools.product(("box-2d9p", "star-2d9p"), (4, 16)):
        stencil = weighted(name)
        agrees_in_format(stencil, {**in_format(stencil, number), "merged_x": merged_x, "flight": 0})


@emulated
@pytest.mark.parametrize("merged_x", [2, 4, 8, 16])
@pytest.mark.parametrize("name", ["heat-2d", "box-2d9p", "star-2d13p", "box-2d49p"])
def test_so_do_dense_products_of_fp64_with_any_layout(name: str, merged_x: int) -> None:
    stencil = weighted(name)
    for flight in (0, 1):
        parameters = morphed(merged_x, steps=1 + (stencil.radius < 3))
        kernel = variant_kernel(stencil, np.float64, small({**parameters, "flight": flight}))
        fused = stencil.power(kernel.depth)
        compare(kernel, stencil, fused, fused.n_points * 2.0**-52, dtype=np.dtype(np.float64))


def morphed(merged_x: int, *, steps: int) -> dict[str, int]:
    """Parameters of an FP64 kernel."""
    shape = {
        "steps_per_block": steps,
        "merged_x": merged_x,
        "warps": 4,
        "blocks": 1,
        "units": 1,
        "steps": 2,
    }
    return {**shape, "stages": 2, "sparse": 0, "format": 3}


def test_a_format_is_made_of_numbers_that_have_as_many_bits() -> None:
    stencil = weighted("box-2d9p")
    for number, dtype in ((0, "float32"), (1, "float16"), (2, "float64"), (3, "float32")):
        with pytest.raises(ValueError, match=dtype):
            variant_kernel(stencil, dtype, in_format(stencil, number))
    with pytest.raises(ValueError, match="sparse is 1, in 2D"):
        variant_kernel(stencil, "float64", in_format(stencil, 3))
    with pytest.raises(ValueError, match="sparse is 0, in 3D"):
        variant_kernel(weighted("heat-3d"), "float64", morphed(4, steps=1))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("number", "word", "sparse"),
    [(1, "BF16", 1), (1, "BF16", 0), (2, "TF32", 1), (2, "TF32", 0), (3, "DMMA", 0)],
)
def test_other_formats_compile_to_products_of_theirs(
    number: int, word: str, sparse: int, architecture: str
) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = weighted("box-2d9p")
    if number == 3:
        kernel = variant_kernel(stencil, np.float64, morphed(2, steps=3))
    else:
        kernel = variant_kernel(
            stencil, np.float32, {**in_format(stencil, number), "sparse": sparse, "warps": 4}
        )
    compiled = compile_source(kernel.source, kernel.defines, architecture)
    assert compiled.spilled == 0
    instructions = [line for line in disassembled(compiled).splitlines() if "MMA" in line]
    assert instructions
    assert all(word in line for line in instructions)
    assert all(("HMMA.SP" in line) == bool(sparse) for line in instructions)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["heat-1d", "box-2d49p", "heat-3d"])
def test_the_dense_variant_compiles_to_dense_products(name: str, architecture: str) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = weighted(name)
    parameters = {
        **sparse_parameters(stencil, HALF)[0],
        "steps_per_block": 1,
        "sparse": 0,
        "blocks": 1,
    }
    kernel = variant_kernel(stencil, HALF, parameters)
    compiled = compile_source(kernel.source, kernel.defines, architecture)
    assert compiled.spilled == 0
    instructions = disassembled(compiled)
    assert "HMMA.16816" in instructions
    assert "HMMA.SP" not in instructions
