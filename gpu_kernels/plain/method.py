"""gpu.plain: one sweep per launch. The method that never refuses what fits into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tetris_sim.gpu_kernels.common.body import body_bytes
from tetris_sim.gpu_kernels.common.given import given_bytes
from tetris_sim.gpu_kernels.common.layout import pitch_slab
from tetris_sim.model.method import Parameters, WithoutParameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import Pass

# weights and offsets that fit into 32 KB of arguments and 64 KB of constant memory
_MOST_TERMS = 3000


@dataclass(frozen=True)
class PlainMethod(WithoutParameters):
    """Read the whole slab and write the whole slab, once per step."""

    name: str = "gpu.plain"
    device: Literal["gpu"] = "gpu"
    exact: bool = True

    def refusal(self, problem: Problem) -> str | None:
        """Refuses stencils of thousands of points, and equations in short numbers."""
        if problem.equations is not None:
            if problem.dtype == np.float16:
                return "equations are computed in float64 or float32, and the type is float16"
            return None
        if problem.stencil.n_points > _MOST_TERMS:
            return (
                f"the stencil has {problem.stencil.n_points} points, and {_MOST_TERMS} fit into a "
                "kernel's arguments"
            )
        return None

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Two pitched copies of the state, and what a body or equations have beside it."""
        layout = pitch_slab(problem, slab)
        return 2 * layout.n_bytes + body_bytes(problem, layout) + given_bytes(problem, layout)

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile and take two copies of the slab; `device` is a `GpuDevice`."""
        from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper
        from tetris_sim.gpu_kernels.steppers.substeps import SubstepStepper

        make = GpuStepper if problem.substeps is None else SubstepStepper
        return make(problem, slab, device, self.passes(problem, slab, parameters))

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """One step."""
        return 1

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """Single sweeps."""
        from tetris_sim.gpu_kernels.steppers.passes import single_step

        return [single_step(problem)]
