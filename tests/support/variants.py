"""Kernels that only benchmarks ask for, as methods, so that whole steps of them can be compared
with the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.papers.sparstencil.variants import variant_kernel
from tests.support.cases import make_problem, run
from tetris_sim.gpu_kernels.fused.kernel import BFLOAT16, TFLOAT32
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.gpu_kernels.tensor_cores.sparse import sparse_parameters
from tetris_sim.gpu_kernels.tensor_cores.tcstencil import tcstencil_kernel, tcstencil_parameters
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.stencil import Stencil

NAMES = ("heat-2d", "box-2d9p", "star-2d13p")


@dataclass(frozen=True)
class Variant:
    """One of them.

    Attributes:
        method: that advances with it.
        dtype: of the state.
        eps: by which it may be off after a launch, relative to the largest value; 0 for what the
            dtype allows.
    """

    method: FusedMethod
    dtype: str
    eps: float


def _sparse(**fixed: int) -> FusedMethod:
    def parameters(stencil: Stencil, dtype: np.dtype[Any]) -> tuple[Parameters, ...]:
        few = sparse_parameters(stencil, np.float16)[-1]
        shape = {
            "steps_per_block": max(1, 3 // stencil.radius),
            "units": 1,
            "blocks": 1,
            "warps": 2,
        }
        return ({**few, **shape, **fixed},)

    return _method(variant_kernel, parameters)


def _layouts(**fixed: int) -> FusedMethod:
    def parameters(stencil: Stencil, dtype: np.dtype[Any]) -> tuple[Parameters, ...]:
        shape = {
            "steps_per_block": max(1, 3 // stencil.radius),
            "merged_x": 2,
            "warps": 4,
            "blocks": 1,
            "units": 1,
        }
        return ({**shape, "steps": 2, "stages": 2, "sparse": 0, "format": 3, **fixed},)

    return _method(variant_kernel, parameters)


def _tcstencil(**fixed: int) -> FusedMethod:
    def parameters(stencil: Stencil, dtype: np.dtype[Any]) -> tuple[Parameters, ...]:
        few = tcstencil_parameters(stencil, np.float16)[0]
        return ({**few, "steps_per_block": max(1, 3 // stencil.radius), "blocks": 1, **fixed},)

    return _method(tcstencil_kernel, parameters)


def _method(
    kernel: Callable[..., Any], parameters: Callable[..., tuple[Parameters, ...]]
) -> FusedMethod:
    return FusedMethod("variant", {2: Family(kernel, parameters, lambda *_: None)})


VARIANTS = {
    "gpu.sparse, BF16": Variant(_sparse(format=1), "float32", BFLOAT16.eps),
    "gpu.sparse, BF16, dense": Variant(_sparse(format=1, sparse=0), "float32", BFLOAT16.eps),
    "gpu.sparse, TF32": Variant(_sparse(format=2), "float32", TFLOAT32.eps),
    "gpu.sparse, TF32, dense": Variant(_sparse(format=2, sparse=0), "float32", TFLOAT32.eps),
    "gpu.sparse, FP16, dense": Variant(_sparse(sparse=0), "float16", 0.0),
    "layouts in FP64": Variant(_layouts(), "float64", 0.0),
    "layouts in FP64, whole patches": Variant(_layouts(flight=0, merged_x=4), "float64", 0.0),
    "gpu.tcstencil, BF16": Variant(_tcstencil(format=1), "float32", BFLOAT16.eps),
    "gpu.tcstencil, TF32": Variant(_tcstencil(format=2), "float32", TFLOAT32.eps),
    "gpu.tcstencil, FP16 of float32": Variant(_tcstencil(), "float32", TFLOAT32.eps),
    "gpu.tcstencil, sums in FP16": Variant(_tcstencil(sums=16), "float16", 2.0**-8),
}


def with_parameters(parameters: Parameters) -> FusedMethod:
    """A kernel of `sparse.cu` and no other."""
    return _method(variant_kernel, lambda *_: (parameters,))


def agrees(
    variant: Variant, stencil: Stencil, boundary: Boundary, shape: tuple[int, ...], gpu: Any
) -> None:
    """Two launches, a block with a step left over, and the reference."""
    error, allowed = error_of(variant, stencil, boundary, shape, gpu)
    assert error <= allowed


def error_of(
    variant: Variant, stencil: Stencil, boundary: Boundary, shape: tuple[int, ...], gpu: Any
) -> tuple[float, float]:
    """(how far it is from the reference after two launches and a step, of which so much may be
    rounding).
    """
    problem, state = make_problem(stencil, boundary, dtype=variant.dtype, shape=shape)
    (parameters,) = variant.method.parameters(problem)
    blocks = (parameters[STEPS_PER_BLOCK], parameters[STEPS_PER_BLOCK] + 1)
    wanted = reference.advance(state, problem, sum(blocks))
    largest = max(reference.largest_magnitude(field, problem) for field in (state, wanted))
    # A launch rounds what it multiplies: the state by eps, and weights so that their errors add up
    # to at most 3 eps.
    allowed = reference.tolerance(problem, sum(blocks), largest) + 3 * 4 * variant.eps * largest
    found = run(variant.method, problem, parameters, gpu, blocks)
    return float(np.abs(found.astype(np.float64) - wanted).max()), allowed
