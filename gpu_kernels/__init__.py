"""CUDA kernels and the Python that compiles, tunes and launches them on one GPU.

Methods live in `plain`, `stream`, `resident` and `tensor_cores` (trapezoid folding, dual
tessellation, TCStencil, sparse tensor cores); `solve` has the linear solvers and spectral
propagation. The CUDA sources lie beside their Python. The methods share `steppers`, which hold a
slab's state and advance it by passes; `fused`, the description of a kernel that makes several time
steps per launch; `boundary`, the treatment of the domain's faces; and `common`, the compiler, the
device and the memory layout. Begin with `steppers/passes.py`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import GpuMethod

    METHODS: tuple[GpuMethod, ...]
    """The GPU methods, the best guess first. The last one compiles quickly and accepts every
    problem that fits into memory.
    """


@functools.cache
def _methods() -> tuple[GpuMethod, ...]:
    # The methods in the order in which they are tried; imported on the first call.
    # Imported here and not above: each of these modules loads a whole kernel family.
    from tetris_sim.gpu_kernels.plain.method import PAIRED, GpuPlainMethod
    from tetris_sim.gpu_kernels.resident.method import ResidentMethod
    from tetris_sim.gpu_kernels.stream.method import METHOD as STREAM
    from tetris_sim.gpu_kernels.tensor_cores.dual_tessellation import METHOD as DUAL_TESSELLATION
    from tetris_sim.gpu_kernels.tensor_cores.sparse import METHOD as SPARSE
    from tetris_sim.gpu_kernels.tensor_cores.tcstencil import METHOD as TCSTENCIL
    from tetris_sim.gpu_kernels.tensor_cores.trapezoid import METHOD as TRAPEZOID

    return (
        STREAM,
        ResidentMethod(),
        TRAPEZOID,
        DUAL_TESSELLATION,
        TCSTENCIL,
        SPARSE,
        *PAIRED,
        GpuPlainMethod(),
    )


def __getattr__(name: str) -> Any:
    # Loaded on first access: a run on CPUs may take less time than these imports.
    if name == "METHODS":
        return _methods()
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
