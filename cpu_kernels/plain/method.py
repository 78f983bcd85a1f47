"""cpu.plain: one parallel sweep per step. The fallback that never refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tetris_sim.cpu_kernels.common.caches import why_not_equations
from tetris_sim.cpu_kernels.common.layout import pad
from tetris_sim.cpu_kernels.common.medium import ConductionData, conduction_bytes
from tetris_sim.cpu_kernels.equations.steppers import Sweeps, layout_of, work_bytes
from tetris_sim.model.method import Parameters, WithoutParameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab


@dataclass(frozen=True)
class CpuPlainMethod(WithoutParameters):
    """Read the whole slab and write the whole slab, once per step."""

    name: str = "cpu.plain"
    device: Literal["cpu"] = "cpu"
    exact: bool = True

    def refusal(self, problem: Problem) -> str | None:
        """Never refuses; equations come in float64 or float32 only."""
        return why_not_equations(problem)

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Two padded copies of the state, and what the points are made of."""
        if problem.equations is not None:
            return 2 * layout_of(problem, slab).n_bytes + work_bytes(problem, slab)
        layout = pad(problem, slab)
        state = 2 * layout.n_bytes
        return state if problem.conduction is None else state + conduction_bytes(problem, layout)

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile the time loop and take two padded copies of the slab; `device` is a
        `ThreadTeam`.
        """
        # Numba takes 0.4 s to import, and planning or reading a file does not need it.
        from tetris_sim.cpu_kernels.common.ready import TimeLoop, make_stepper
        from tetris_sim.cpu_kernels.common.stepper import CpuStepper
        from tetris_sim.cpu_kernels.compiled.conduction import make_conduct
        from tetris_sim.cpu_kernels.compiled.generate import make_advance
        from tetris_sim.cpu_kernels.equations.steppers import CpuSubstepStepper

        if problem.equations is not None:
            layout = layout_of(problem, slab)
            sweeps = Sweeps(problem, slab, layout, device.size)
            if problem.equations.substeps is not None:
                return CpuSubstepStepper(problem, slab, device, sweeps, layout)
            return CpuStepper(problem, slab, device, sweeps, layout, step_tables=sweeps)
        if problem.conduction is None:
            advance = make_advance(problem.stencil.offsets, np.dtype(problem.dtype))
            loop = TimeLoop(advance, advance, lambda numbers, barrier: (numbers, (barrier,)))
            return make_stepper(problem, slab, device, loop)
        data = ConductionData(problem, slab, pad(problem, slab))
        return CpuStepper(problem, slab, device, make_conduct(problem), step_tables=data)
