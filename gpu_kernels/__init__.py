"""CUDA: how a GPU streams through a slab.

A method is a room: `plain`, `stream`, `resident`, `trapezoid`, `dual_tessellation`, `tcstencil`,
`sparse`, with its sources beside its Python. What they share has rooms of its own:
`steppers` hold a slab's state and advance it by passes, `fused` is what a kernel of several steps
must say of itself, `faces` is what happens where the grid ends, `common` the compiler, the device
and the layout.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import GpuMethod

    METHODS: tuple[GpuMethod, ...]
    """The GPU methods, best guess first; the last one compiles quickly and never refuses what fits
    into memory.
    """


@functools.cache
def _methods() -> tuple[GpuMethod, ...]:
    from tetris_sim.gpu_kernels.fused.pairs import METHODS as PAIRS
    from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
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
        *PAIRS,
        GpuPlainMethod(),
    )


def __getattr__(name: str) -> Any:
    # Not imported for a run on CPUs, whose steps may take less time than that.
    if name == "METHODS":
        return _methods()
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
