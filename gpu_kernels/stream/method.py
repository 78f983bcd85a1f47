"""The Method `gpu.stream`: a family of kernels for each number of axes, those of palettes and
those of equations.
"""

from __future__ import annotations

from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.gpu_kernels.stream.conducting import CONDUCTING
from tetris_sim.gpu_kernels.stream.equations import SOLVING
from tetris_sim.gpu_kernels.stream.kernel_1d import (
    stream_1d_kernel,
    stream_1d_parameters,
    stream_1d_refusal,
)
from tetris_sim.gpu_kernels.stream.kernel_2d import stream_2d_kernel, stream_2d_refusal
from tetris_sim.gpu_kernels.stream.kernel_3d import (
    stream_3d_kernel,
    stream_3d_parameters,
    stream_3d_refusal,
)
from tetris_sim.gpu_kernels.stream.tiles_2d import stream_2d_parameters, stream_planes_parameters

METHOD = FusedMethod(
    "gpu.stream",
    {
        1: Family(stream_1d_kernel, stream_1d_parameters, stream_1d_refusal),
        2: Family(stream_2d_kernel, stream_2d_parameters, stream_2d_refusal),
        3: Family(stream_3d_kernel, stream_3d_parameters, stream_3d_refusal),
    },
    planes=Family(stream_2d_kernel, stream_planes_parameters, stream_2d_refusal),
    conducting=CONDUCTING,
    solving=SOLVING,
)
