"""Without a GPU: the kernel of TCStencil compiles, uses tensor cores, spills nothing, and agrees
with plain NumPy.

As in emulator/launching.py, around what a kernel may depend on lie NaNs and what it must not
write must stay.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_compiles import REGISTERS, disassembled, shared_limit
from tests.support.cases import CUSTOM, stencil_of
from tests.support.emulator.half_emulation import HALF, compare, emulated, small, weighted
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.fused.kernel import FLOAT16, FORMATS, operand_weights, rounded
from tetris_sim.gpu_kernels.tensor_cores.tcstencil import (
    tcstencil_kernel,
    tcstencil_parameters,
    tcstencil_refusal,
)
from tetris_sim.gpu_kernels.tensor_cores.tcstencil_windows import mirror_rows
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES

COMPILED = ("heat-1d", "star-1d5p", "heat-2d", "box-2d25p", "box-2d49p", "heat-3d")


def agrees(stencil: Stencil, parameters: Mapping[str, int], dtype: np.dtype[Any] = HALF) -> None:
    kernel = tcstencil_kernel(stencil, dtype, parameters)
    format_ = FORMATS[parameters.get("format", 0)]
    fused = operand_weights(stencil.power(kernel.depth), format_)
    fused = mirror_rows(fused) if parameters.get("mirrored", 0) else fused
    operand = functools.partial(rounded, format_=format_)
    compare(kernel, stencil, fused, allowed(fused, parameters, dtype), dtype=dtype, operand=operand)


def allowed(fused: Stencil, parameters: Mapping[str, int], dtype: np.dtype[Any]) -> float:
    """Products are exact in FP32; sums of p of them are rounded to 24 bits or 11, and the result
    once to the dtype.
    """
    sum_eps = FLOAT16.eps if parameters.get("sums", 32) == 16 else 2.0**-24
    return FLOAT16.eps * (dtype == HALF) + 2 * fused.n_points * sum_eps


@emulated
@pytest.mark.parametrize("name", [*STENCIL_NAMES, *CUSTOM])
def test_the_kernel_agrees_with_numpy_and_touches_nothing_else(name: str) -> None:
    stencil = weighted(name)
    if tcstencil_refusal(stencil, HALF) is None:
        agrees(stencil, small(tcstencil_parameters(stencil, HALF)[0]))


@emulated
@pytest.mark.parametrize("name", ["heat-1d", "star-2d9p", "box-2d25p", "heat-3d", "box-3d27p"])
def test_so_does_one_step(name: str) -> None:
    stencil = weighted(name)
    agrees(stencil, {**small(tcstencil_parameters(stencil, HALF)[0]), "steps_per_block": 1})


@emulated
@pytest.mark.parametrize("ndim", [2, 3])
def test_so_do_rows_of_zeros_between_others(ndim: int) -> None:
    """No product belongs to them, but the results in flight must move on."""
    distances = (-3, -1, 2)
    stencil = Stencil(tuple((d, *[0] * (ndim - 1)) for d in distances), (0.5, 0.25, 0.25))
    agrees(stencil, {**small(tcstencil_parameters(stencil, HALF)[0]), "steps_per_block": 1})


@emulated
def test_weights_that_fp16_does_not_hold_take_no_products() -> None:
    """8 steps of heat reach 8 points, with weights down to 1e-8 there."""
    stencil = Stencil(((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)), (0.6, 0.1, 0.1, 0.1, 0.1))
    parameters = {**small(tcstencil_parameters(stencil, HALF)[0]), "steps_per_block": 8}
    assert int(tcstencil_kernel(stencil, HALF, parameters).defines["TS_FLIGHT"]) < 17
    agrees(stencil, parameters)


@emulated
@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("name", ["heat-2d", "star-2d9p", "star-2d13p"])
def test_so_do_two_bands_of_a_star(name: str, units: int) -> None:
    stencil = weighted(name)
    parameters = {**small(tcstencil_parameters(stencil, HALF)[-1]), "units": units}
    assert parameters["star"] == 1
    agrees(stencil, parameters)


@emulated
@pytest.mark.full
@pytest.mark.parametrize("name", [*STENCIL_NAMES, *CUSTOM])
def test_so_does_every_proposal(name: str) -> None:
    stencil = weighted(name)
    for parameters in tcstencil_parameters(stencil, HALF)[1:]:
        agrees(stencil, small(parameters))


@emulated
@pytest.mark.parametrize("radius", [9, 40])
def test_so_do_lines_of_any_radius(radius: int) -> None:
    """Random weights out to the ends, which powers of a stencil do not have."""
    weights = np.random.default_rng(6).uniform(-1.0, 1.0, 2 * radius + 1)
    stencil = Stencil(
        tuple((d,) for d in range(-radius, radius + 1)), tuple(weights / np.abs(weights).sum())
    )
    agrees(stencil, {**small(tcstencil_parameters(stencil, HALF)[-1]), "steps_per_block": 1})


@emulated
@pytest.mark.parametrize("name", ["box-2d25p", "heat-2d", "heat-1d", "heat-3d"])
def test_so_do_sums_in_fp16(name: str) -> None:
    stencil = weighted(name)
    agrees(stencil, {**small(tcstencil_parameters(stencil, HALF)[0]), "sums": 16})


@emulated
@pytest.mark.parametrize("format_", range(len(FORMATS)))
@pytest.mark.parametrize("name", ["box-2d25p", "heat-1d", "heat-3d"])
def test_so_do_all_formats_made_of_float32(name: str, format_: int) -> None:
    stencil = weighted(name)
    parameters = {**small(tcstencil_parameters(stencil, HALF)[0]), "format": format_}
    agrees(stencil, parameters, np.dtype(np.float32))


def mirrored(name: str) -> Stencil:
    """The same weights above and below."""
    terms = weighted(name).terms
    return Stencil.from_terms({(dy, dx): (terms[dy, dx] + terms[-dy, dx]) / 2 for dy, dx in terms})


@emulated
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", ["heat-2d", "star-2d9p", "box-2d25p", "box-2d49p"])
def test_so_do_rows_that_share_their_product(name: str, steps: int) -> None:
    stencil = mirrored(name)
    agrees(
        stencil,
        {**small(tcstencil_parameters(stencil, HALF)[0]), "steps_per_block": steps, "mirrored": 1},
    )


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        *((name, "sm_90") for name in COMPILED),
        ("heat-1d", "sm_80"),
        ("box-2d49p", "sm_80"),
        *(
            pytest.param(name, "sm_80", marks=pytest.mark.full)
            for name in COMPILED
            if name not in ("heat-1d", "box-2d49p")
        ),
    ],
)
def test_it_compiles_to_products_and_spills_nothing(name: str, architecture: str) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = weighted(name)
    proposals = tcstencil_parameters(stencil, HALF)
    for parameters in proposals if architecture == "sm_90" else proposals[:1]:
        kernel = tcstencil_kernel(stencil, HALF, parameters)
        assert kernel.shared_bytes <= shared_limit(architecture)
        compiled = compile_source(kernel.source, kernel.defines, architecture)
        assert compiled.spilled == 0
        assert compiled.registers[kernel.entry] * kernel.threads * parameters["blocks"] <= REGISTERS
    assert "HMMA.16816.F32" in disassembled(compiled)


@pytest.mark.parametrize("architecture", ["sm_90", pytest.param("sm_80", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("variant", "dtype", "instruction"),
    [
        ({"sums": 16}, "float16", "HMMA.16816.F16"),
        ({"mirrored": 1}, "float16", "HMMA.16816.F32"),
        ({"star": 1, "steps_per_block": 1, "stages": 4}, "float16", "HMMA.1688.F32"),
        ({"format": 0}, "float32", "HMMA.16816.F32"),
        ({"format": 1}, "float32", "HMMA.16816.F32.BF16"),
        ({"format": 2, "warps": 4, "steps": 4, "stages": 3}, "float32", "HMMA.1688.F32.TF32"),
    ],
)
def test_so_do_its_variants(
    variant: dict[str, int], dtype: str, instruction: str, architecture: str
) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = mirrored("star-2d9p" if "star" in variant else "box-2d25p")
    parameters = {
        **tcstencil_parameters(stencil, HALF)[0],
        "steps_per_block": 2,
        **variant,
        "blocks": 1,
    }
    kernel = tcstencil_kernel(stencil, dtype, parameters)
    compiled = compile_source(kernel.source, kernel.defines, architecture)
    assert compiled.spilled == 0
    assert instruction in disassembled(compiled)


def test_other_precisions_and_too_large_stencils_are_refused() -> None:
    stencil = stencil_of("heat-2d")
    assert tcstencil_refusal(stencil, HALF) is None
    for dtype in ("float32", "float64"):
        refusal = tcstencil_refusal(stencil, dtype)
        assert refusal is not None
        assert dtype in refusal
        assert tcstencil_parameters(stencil, dtype) == ()
    large = Stencil(((0, 0), (0, 1)), (5e4, -2e4))
    assert "float16 holds" in str(tcstencil_refusal(large, HALF))
    growing = Stencil(((0, 0), (0, 1)), (30.0, 10.0))
    assert {p["steps_per_block"] for p in tcstencil_parameters(growing, HALF)} == {
        1,
        2,
    }  # 40^2, but 40^3 is too much
    far = Stencil(((0, -13), (0, 0)), (0.5, 0.5))
    assert "radius 13" in str(tcstencil_refusal(far, HALF))


def test_parameters_that_contradict_are_errors() -> None:
    stencil = weighted("box-2d9p")
    parameters = tcstencil_parameters(stencil, HALF)[0]
    with pytest.raises(ValueError, match="TF32 is not made of float16"):
        tcstencil_kernel(stencil, HALF, {**parameters, "format": 2})
    with pytest.raises(ValueError, match="one step of a 2D star"):
        tcstencil_kernel(stencil, HALF, {**parameters, "star": 1, "steps_per_block": 1})
    with pytest.raises(ValueError, match="different weights"):
        tcstencil_kernel(stencil, HALF, {**parameters, "steps_per_block": 2, "mirrored": 1})
    line = weighted("heat-1d")
    with pytest.raises(ValueError, match="not in 1D"):
        tcstencil_kernel(line, HALF, {**tcstencil_parameters(line, HALF)[0], "mirrored": 1})


@emulated
def test_so_do_rows_of_which_all_weights_vanish_in_fp16() -> None:
    """The tips of many steps of a heat equation, 0.1^8: their results wait for the next row as they
    are.
    """
    heat = Stencil(
        stencil_of("heat-2d").offsets,
        tuple(0.6 if not any(o) else 0.1 for o in stencil_of("heat-2d").offsets),
    )
    fused = operand_weights(heat.power(8), FORMATS[0])
    tip = dict(zip(fused.offsets, fused.weights, strict=True)).get((8, 0), 0.0)
    assert tip == 0.0
    agrees(
        heat, {"steps_per_block": 8, "warps": 2, "units": 1, "steps": 4, "stages": 3, "blocks": 2}
    )
