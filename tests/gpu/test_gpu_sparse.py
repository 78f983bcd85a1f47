"""Without a GPU: the sparse kernel compiles, uses sparse tensor cores, spills nothing, and agrees with plain NumPy.

As in test_gpu_emulated_fused.py, around what a kernel may depend on lie NaNs and what it must not write must stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cases import CUSTOM, stencil_of
from emulation import COMPILER, NO_COMPILER
from test_gpu_compiles import ARCHITECTURES, REGISTERS, disassembled, shared_limit
from test_gpu_emulated_fused import Memory, Triple, few_points, launch, scaled, several_tiles, three

from tetris_sim.catalogue import STENCIL_NAMES
from tetris_sim.gpu_kernels.build import compile_source
from tetris_sim.gpu_kernels.sparse.kernel import sparse_kernel, sparse_parameters, sparse_refusal
from tetris_sim.gpu_kernels.sparse.rounding import round_weights
from tetris_sim.stencil import Stencil

FLOAT16 = np.dtype(np.float16)
UNTOUCHED = -7.25  # what no kernel computes: results are below 2
EPS = 2.0**-11  # half a place of FP16
Array = npt.NDArray[Any]
emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


class HalfMemory(Memory):
    """With a number that FP16 has where nothing is written."""

    def _array(self, value: float) -> Array:
        return super()._array(value if np.isnan(value) else UNTOUCHED)


def weighted(name: str) -> Stencil:
    """Random weights of which the magnitudes add up to 1."""
    stencil, rng = stencil_of(name), np.random.default_rng(1)
    weights = rng.uniform(0.2, 1.0, stencil.n_points) * rng.choice([-1.0, 1.0], stencil.n_points, p=[0.2, 0.8])
    return Stencil(stencil.offsets, tuple(weights / np.abs(weights).sum()))


def applied(state: Array, fused: Stencil) -> Array:
    """The fused stencil with weights of FP16, otherwise in double precision."""
    u, radii = state.astype(np.float64), three(fused.radii, 0)
    shape = [n - 2 * r for n, r in zip(u.shape, radii, strict=True)]
    result = np.zeros(shape)
    for offset, weight in round_weights(fused).terms.items():
        shifts = [o + r for o, r in zip(three(offset, 0), radii, strict=True)]
        result += weight * u[tuple(slice(s, s + n) for s, n in zip(shifts, shape, strict=True))]
    return result


def agrees(stencil: Stencil, parameters: Mapping[str, int]) -> None:
    kernel = sparse_kernel(stencil, FLOAT16, parameters)
    fused, radii = stencil.power(kernel.depth), three(stencil.radii, 0)
    counts = several_tiles(kernel, radii)
    cases: tuple[tuple[Triple, int, bool], ...] = (
        (counts, 0, False),
        (counts, 2, True),
        (few_points(kernel, radii), 0, True),
    )
    for points, margin, descending in cases:
        memory = HalfMemory(scaled(radii, kernel.depth), points, FLOAT16, margin)
        before = memory.src.copy()
        launch(kernel, memory, 900, descending)
        found = memory.points(memory.dst, memory.box)
        largest = float(np.abs(memory.state).max())
        # Products are exact in FP32; sums of p of them are rounded there, and the result once to FP16.
        atol = (EPS + 2 * fused.n_points * 2.0**-24) * largest
        np.testing.assert_allclose(found.astype(np.float64), applied(memory.state, fused), rtol=0, atol=atol)
        found[...] = UNTOUCHED
        assert np.all(memory.dst == FLOAT16.type(UNTOUCHED))
        np.testing.assert_array_equal(memory.src, before)


def small(parameters: Mapping[str, int]) -> dict[str, int]:
    """Fewer warps, which changes nothing but how much must be emulated."""
    return {**parameters, "warps": min(parameters["warps"], 2)}


@emulated
@pytest.mark.parametrize("name", [*STENCIL_NAMES, *CUSTOM])
def test_the_sparse_kernel_agrees_with_numpy_and_touches_nothing_else(name: str) -> None:
    stencil = weighted(name)
    if sparse_refusal(stencil, FLOAT16) is None:
        agrees(stencil, small(sparse_parameters(stencil, FLOAT16)[0]))


@emulated
@pytest.mark.parametrize("name", ["star-2d9p", "box-2d25p", "box-3d27p"])
def test_so_does_one_step_less(name: str) -> None:
    stencil = weighted(name)
    agrees(stencil, small(sparse_parameters(stencil, FLOAT16)[1]))


@emulated
@pytest.mark.full
@pytest.mark.parametrize("name", [*STENCIL_NAMES, *CUSTOM])
def test_so_does_every_proposal(name: str) -> None:
    stencil = weighted(name)
    for parameters in sparse_parameters(stencil, FLOAT16)[1:]:
        agrees(stencil, small(parameters))


@emulated
@pytest.mark.parametrize("radius", [9, 40])
def test_so_do_lines_of_any_radius(radius: int) -> None:
    """Random weights out to the ends, which powers of a stencil do not have."""
    weights = np.random.default_rng(6).uniform(-1.0, 1.0, 2 * radius + 1)
    stencil = Stencil(tuple((d,) for d in range(-radius, radius + 1)), tuple(weights / np.abs(weights).sum()))
    agrees(stencil, small(sparse_parameters(stencil, FLOAT16)[0]))


@emulated
@pytest.mark.parametrize("name", ["heat-1d", "box-2d9p", "star-2d13p", "heat-3d"])
def test_so_do_dense_tensor_cores_with_the_same_matrices(name: str) -> None:
    stencil = weighted(name)
    agrees(stencil, {**small(sparse_parameters(stencil, FLOAT16)[-1]), "steps_per_block": 1, "sparse": 0})


@emulated
@pytest.mark.parametrize("merged_x", [2, 4, 8, 16])
@pytest.mark.parametrize("name", ["box-2d9p", "star-2d9p"])
def test_so_does_the_papers_way_with_any_layout(name: str, merged_x: int) -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    stencil = weighted(name)
    first = {**small(sparse_parameters(stencil, FLOAT16)[0]), "merged_x": merged_x, "flight": 0, "units": 1}
    agrees(stencil, {**first, "steps_per_block": 1, "sparse": int(merged_x > 2)})


@emulated
def test_so_does_the_papers_way_for_three_steps_and_in_1d() -> None:
    pytest.importorskip("networkx", reason="the blossom algorithm is networkx's")
    for name in ("box-2d9p", "heat-1d"):
        stencil = weighted(name)
        parameters = small(sparse_parameters(stencil, FLOAT16)[0])
        agrees(stencil, {**parameters, "merged_x": 16, "flight": 0, "steps_per_block": 3})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["heat-1d", "heat-2d", "box-2d49p", "heat-3d"])
def test_it_compiles_to_sparse_products_and_spills_nothing(name: str, architecture: str) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = weighted(name)
    proposals = sparse_parameters(stencil, FLOAT16)
    for parameters in proposals if architecture == "sm_90" else proposals[:1]:
        kernel = sparse_kernel(stencil, FLOAT16, parameters)
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
    parameters = {**sparse_parameters(stencil, FLOAT16)[0], "steps_per_block": 1, "sparse": 0, "blocks": 1}
    kernel = sparse_kernel(stencil, FLOAT16, parameters)
    compiled = compile_source(kernel.source, kernel.defines, architecture)
    assert compiled.spilled == 0
    instructions = disassembled(compiled)
    assert "HMMA.16816" in instructions
    assert "HMMA.SP" not in instructions


def test_other_precisions_and_too_large_stencils_are_refused() -> None:
    stencil = stencil_of("heat-2d")
    assert sparse_refusal(stencil, FLOAT16) is None
    for dtype in ("float32", "float64"):
        refusal = sparse_refusal(stencil, dtype)
        assert refusal is not None
        assert dtype in refusal
        assert sparse_parameters(stencil, dtype) == ()
    large = Stencil(((0, 0), (0, 1)), (5e4, -2e4))
    assert "float16 holds" in str(sparse_refusal(large, FLOAT16))
    growing = Stencil(((0, 0), (0, 1)), (30.0, 10.0))
    assert sparse_parameters(growing, FLOAT16)[0]["steps_per_block"] == 2  # 40^2, but 40^3 is too much
    far = Stencil(((0, -8), (0, 0)), (0.5, 0.5))
    assert "radius 8" in str(sparse_refusal(far, FLOAT16))
