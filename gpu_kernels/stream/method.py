"""The method `gpu.stream`: its kernel families for stencils, bodies and equations."""

from __future__ import annotations

import numpy as np

from tetris_sim.gpu_kernels.common.layout import REAL
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod, Special
from tetris_sim.gpu_kernels.stream.conducting import CONDUCTING
from tetris_sim.gpu_kernels.stream.equations_1d import (
    equations_1d_kernel,
    equations_1d_parameters,
    equations_1d_refusal,
)
from tetris_sim.gpu_kernels.stream.equations_2d import (
    equations_2d_kernel,
    equations_2d_parameters,
    equations_2d_refusal,
)
from tetris_sim.gpu_kernels.stream.equations_3d import (
    equations_3d_kernel,
    equations_3d_parameters,
    equations_3d_refusal,
)
from tetris_sim.gpu_kernels.stream.kernel_1d import (
    stream_1d_kernel,
    stream_1d_parameters,
    stream_1d_refusal,
)
from tetris_sim.gpu_kernels.stream.kernel_2d import (
    stream_2d_kernel,
    stream_2d_parameters,
    stream_2d_refusal,
    stream_planes_parameters,
)
from tetris_sim.gpu_kernels.stream.kernel_3d import (
    stream_3d_kernel,
    stream_3d_parameters,
    stream_3d_refusal,
)
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

# Kernels for equations, by number of axes.

_KERNELS = {1: equations_1d_kernel, 2: equations_2d_kernel, 3: equations_3d_kernel}
_PARAMETERS = {1: equations_1d_parameters, 2: equations_2d_parameters, 3: equations_3d_parameters}
_REFUSALS = {1: equations_1d_refusal, 2: equations_2d_refusal, 3: equations_3d_refusal}


def _kernel(problem: Problem, parameters: Parameters) -> FusedKernel:
    return _KERNELS[problem.grid.ndim](problem, parameters)


def _parameters(problem: Problem) -> tuple[Parameters, ...]:
    return _PARAMETERS[problem.grid.ndim](problem)


def _refusal(problem: Problem) -> str | None:
    if np.dtype(problem.dtype).name not in REAL:
        return f"the type is {problem.dtype}, and only {' and '.join(REAL)} are compiled"

    if (why_not := problem.why_not_substeps) is not None:
        return why_not
    return _REFUSALS[problem.grid.ndim](problem)


def _nothing(problem: Problem, slab: Slab, parameters: Parameters) -> int:
    return 0


# Kernels for equations need no memory besides the step inputs.
SOLVING = Special(_kernel, _parameters, _refusal, _nothing)


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
