"""CUDA: how a GPU streams through a slab."""

from __future__ import annotations

from tetris_sim.gpu_kernels.dual_tessellation.kernel import (
    dual_tessellation_kernel,
    dual_tessellation_parameters,
    dual_tessellation_refusal,
)
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.gpu_kernels.plain.method import PlainMethod
from tetris_sim.gpu_kernels.sparse.kernel import sparse_kernel, sparse_parameters, sparse_refusal
from tetris_sim.gpu_kernels.stream.kernel_1d import (
    stream_1d_kernel,
    stream_1d_parameters,
    stream_1d_refusal,
)
from tetris_sim.gpu_kernels.stream.kernel_2d import (
    stream_2d_kernel,
    stream_2d_parameters,
    stream_2d_refusal,
)
from tetris_sim.gpu_kernels.stream.kernel_3d import (
    stream_3d_kernel,
    stream_3d_parameters,
    stream_3d_refusal,
)
from tetris_sim.gpu_kernels.tcstencil.kernel import (
    tcstencil_kernel,
    tcstencil_parameters,
    tcstencil_refusal,
)
from tetris_sim.gpu_kernels.trapezoid.kernel import (
    trapezoid_kernel,
    trapezoid_parameters,
    trapezoid_refusal,
)
from tetris_sim.method import Method

_TRAPEZOID = Family(trapezoid_kernel, trapezoid_parameters, trapezoid_refusal)
_DUAL_TESSELLATION = Family(
    dual_tessellation_kernel, dual_tessellation_parameters, dual_tessellation_refusal
)
_TCSTENCIL = Family(tcstencil_kernel, tcstencil_parameters, tcstencil_refusal)
_SPARSE = Family(sparse_kernel, sparse_parameters, sparse_refusal)

METHODS: tuple[Method, ...] = (
    FusedMethod(
        "gpu.stream",
        {
            1: Family(stream_1d_kernel, stream_1d_parameters, stream_1d_refusal),
            2: Family(stream_2d_kernel, stream_2d_parameters, stream_2d_refusal),
            3: Family(stream_3d_kernel, stream_3d_parameters, stream_3d_refusal),
        },
    ),
    FusedMethod("gpu.trapezoid", dict.fromkeys((1, 2, 3), _TRAPEZOID)),
    FusedMethod("gpu.dual_tessellation", dict.fromkeys((1, 2, 3), _DUAL_TESSELLATION)),
    FusedMethod("gpu.tcstencil", dict.fromkeys((1, 2, 3), _TCSTENCIL)),
    FusedMethod("gpu.sparse", dict.fromkeys((1, 2, 3), _SPARSE)),
    PlainMethod(),
)
"""The GPU methods, best guess first; the last one compiles quickly and never refuses what fits into
memory.
"""
