"""Without a GPU: the sparse kernel compiles, uses sparse tensor cores, spills nothing, and agrees
with plain NumPy.

As in emulator/launching.py, around what a kernel may depend on lie NaNs and what it must not
write must stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_compiles import ARCHITECTURES, REGISTERS, disassembled, shared_limit
from tests.support.cases import CUSTOM, stencil_of
from tests.support.emulator.half_emulation import EPS, HALF, compare, emulated, small, weighted
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.fused.kernel import round_weights
from tetris_sim.gpu_kernels.tensor_cores.sparse import (
    sparse_kernel,
    sparse_parameters,
    sparse_refusal,
)
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES


def agrees(stencil: Stencil, parameters: Mapping[str, int], make: Any = sparse_kernel) -> None:
    kernel = make(stencil, HALF, parameters)
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
    stencil = Stencil(
        tuple((d,) for d in range(-radius, radius + 1)), tuple(weights / np.abs(weights).sum())
    )
    agrees(stencil, small(sparse_parameters(stencil, HALF)[0]))


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
