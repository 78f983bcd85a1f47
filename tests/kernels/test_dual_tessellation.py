"""What `gpu.dual_tessellation` refuses, and that its kernels compile in every shape."""

from __future__ import annotations

import itertools

import pytest

from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.tensor_cores.dual_tessellation import (
    dual_tessellation_kernel,
    dual_tessellation_parameters,
    dual_tessellation_refusal,
)
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil


@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_float32_is_refused_and_float64_is_not(name: str) -> None:
    stencil = named_stencil(name).stencil
    assert dual_tessellation_refusal(stencil, "float64") is None
    refusal = dual_tessellation_refusal(stencil, "float32")
    assert refusal is not None
    assert "float64" in refusal
    assert dual_tessellation_parameters(stencil, "float32") == ()


def test_a_stencil_that_registers_cannot_hold_is_refused() -> None:
    assert dual_tessellation_refusal(Stencil(((0, -9), (0, 0)), (0.5, 0.5)), "float64") is not None


@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_first_proposal_compiles_without_spilling(name: str) -> None:
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs CuPy's compiler")
    stencil = named_stencil(name).stencil
    parameters = dual_tessellation_parameters(stencil, "float64")[0]
    kernel = dual_tessellation_kernel(stencil, "float64", parameters)
    assert compile_source(kernel.source, kernel.defines, "sm_90").spilled == 0
    assert kernel.shared_bytes <= 227 * 1024


@pytest.mark.parametrize("name", ["heat-1d", "box-2d9p", "heat-3d"])
def test_every_variant_of_figure_6_compiles(name: str) -> None:
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs CuPy's compiler")
    stencil = named_stencil(name).stencil
    parameters = dual_tessellation_parameters(stencil, "float64")[0]
    for tensor, padding, dirty_bits in itertools.product((0, 1), repeat=3):
        switches = {"tensor": tensor, "padding": padding, "dirty_bits": dirty_bits}
        kernel = dual_tessellation_kernel(stencil, "float64", {**parameters, **switches})
        assert compile_source(kernel.source, kernel.defines, "sm_80").cubin
