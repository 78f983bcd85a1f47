"""Without a GPU: the sparse kernel compiles, uses sparse tensor cores, spills nothing, and agrees with plain NumPy.

As in test_gpu_emulated_fused.py, around what a kernel may depend on lie NaNs and what it must not write must stay.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from cases import CUSTOM, stencil_of
from half_emulation import EPS, HALF, compare, emulated, small, weighted
from test_gpu_compiles import ARCHITECTURES, REGISTERS, disassembled, shared_limit

from tetris_sim.catalogue import STENCIL_NAMES
from tetris_sim.gpu_kernels.build import compile_source
from tetris_sim.gpu_kernels.sparse.kernel import sparse_kernel, sparse_parameters, sparse_refusal
from tetris_sim.gpu_kernels.sparse.rounding import round_weights
from tetris_sim.stencil import Stencil


def agrees(stencil: Stencil, parameters: Mapping[str, int]) -> None:
    kernel = sparse_kernel(stencil, HALF, parameters)
    fused = round_weights(stencil.power(kernel.depth))
    # Products are exact in FP32; sums of p of them are rounded there, and the result once to FP16.
    compare(kernel, stencil, fused, EPS + 2 * fused.n_points * 2.0**-24)


@emulated
@pytest.mark.parametrize("name", [*STENCIL_NAMES, *CUSTOM])
def test_the_sparse_kernel_agrees_with_numpy_and_touches_nothing_else(name: str) -> None:
    stencil = weighted(name)
    if sparse_refusal(stencil, HALF) is None:
        agrees(stencil, small(sparse_parameters(stencil, HALF)[0]))


@emulated
@pytest.mark.parametrize("name", ["star-2d9p", "box-2d25p", "box-3d27p"])
def test_so_does_one_step_less(name: str) -> None:
    stencil = weighted(name)
    agrees(stencil, small(sparse_parameters(stencil, HALF)[1]))


@emulated
@pytest.mark.full
@pytest.mark.parametrize("name", [*STENCIL_NAMES, *CUSTOM])
def test_so_does_every_proposal(name: str) -> None:
    stencil = weighted(name)
    for parameters in sparse_parameters(stencil, HALF)[1:]:
        agrees(stencil, small(parameters))


@emulated
@pytest.mark.parametrize("radius", [9, 40])
def test_so_do_lines_of_any_radius(radius: int) -> None:
    """Random weights out to the ends, which powers of a stencil do not have."""
    weights = np.random.default_rng(6).uniform(-1.0, 1.0, 2 * radius + 1)
    stencil = Stencil(tuple((d,) for d in range(-radius, radius + 1)), tuple(weights / np.abs(weights).sum()))
    agrees(stencil, small(sparse_parameters(stencil, HALF)[0]))


@emulated
@pytest.mark.parametrize("name", ["heat-1d", "box-2d9p", "star-2d13p", "heat-3d"])
def test_so_do_dense_tensor_cores_with_the_same_matrices(name: str) -> None:
    stencil = weighted(name)
    agrees(stencil, {**small(sparse_parameters(stencil, HALF)[-1]), "steps_per_block": 1, "sparse": 0})


@emulated
@pytest.mark.parametrize("merged_x", [2, 4, 8, 16])
@pytest.mark.parametrize("name", ["box-2d9p", "star-2d9p"])
def test_so_does_the_papers_way_with_any_layout(name: str, merged_x: int) -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    stencil = weighted(name)
    first = {**small(sparse_parameters(stencil, HALF)[0]), "merged_x": merged_x, "flight": 0, "units": 1}
    agrees(stencil, {**first, "steps_per_block": 1, "sparse": int(merged_x > 2)})


@emulated
def test_so_does_the_papers_way_for_three_steps_and_in_1d() -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    for name in ("box-2d9p", "heat-1d"):
        stencil = weighted(name)
        parameters = small(sparse_parameters(stencil, HALF)[0])
        agrees(stencil, {**parameters, "merged_x": 16, "flight": 0, "steps_per_block": 3})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["heat-1d", "heat-2d", "box-2d49p", "heat-3d"])
def test_it_compiles_to_sparse_products_and_spills_nothing(name: str, architecture: str) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = weighted(name)
    proposals = sparse_parameters(stencil, HALF)
    for parameters in proposals if architecture == "sm_90" else proposals[:1]:
        kernel = sparse_kernel(stencil, HALF, parameters)
        assert kernel.shared_bytes <= shared_limit(architecture)
        compiled = compile_source(kernel.source, kernel.defines, architecture)
        assert compiled.spilled == 0
        assert compiled.registers[kernel.entry] * kernel.threads * parameters["blocks"] <= REGISTERS
    assert "HMMA.SP" in disassembled(compiled)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["heat-1d", "box-2d49p", "heat-3d"])
def test_the_dense_variant_compiles_to_dense_products(name: str, architecture: str) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = weighted(name)
    parameters = {**sparse_parameters(stencil, HALF)[0], "steps_per_block": 1, "sparse": 0, "blocks": 1}
    kernel = sparse_kernel(stencil, HALF, parameters)
    compiled = compile_source(kernel.source, kernel.defines, architecture)
    assert compiled.spilled == 0
    instructions = disassembled(compiled)
    assert "HMMA.16816" in instructions
    assert "HMMA.SP" not in instructions


def test_other_precisions_and_too_large_stencils_are_refused() -> None:
    stencil = stencil_of("heat-2d")
    assert sparse_refusal(stencil, HALF) is None
    for dtype in ("float32", "float64"):
        refusal = sparse_refusal(stencil, dtype)
        assert refusal is not None
        assert dtype in refusal
        assert sparse_parameters(stencil, dtype) == ()
    large = Stencil(((0, 0), (0, 1)), (5e4, -2e4))
    assert "float16 holds" in str(sparse_refusal(large, HALF))
    growing = Stencil(((0, 0), (0, 1)), (30.0, 10.0))
    assert sparse_parameters(growing, HALF)[0]["steps_per_block"] == 2  # 40^2, but 40^3 is too much
    far = Stencil(((0, -8), (0, 0)), (0.5, 0.5))
    assert "radius 8" in str(sparse_refusal(far, HALF))
