"""Substeps on a GPU: passes of one step of any length, which can be taken back, and how large their
errors are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.given import equations_of
from tetris_sim.gpu_kernels.faces.extents import Extent
from tetris_sim.gpu_kernels.steppers.passes import Pass
from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab


class SubstepStepper(GpuStepper):
    """A stepper of single passes that also makes substeps; see the Protocol `Substepper`."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, passes: list[Pass]) -> None:
        super().__init__(problem, slab, device, passes)
        equations, given = equations_of(problem), self._state.given
        assert equations.substeps is not None
        assert given is not None
        names = equations.substeps.errors
        self._given, self._one = given, replace(self._layout, n_fields=1)
        self._errors = [given.work[equations.work[names[field]]] for field in equations.fields]

    def substep(self, time: float, length: float) -> None:
        """Launch one; returns before it is done."""
        self.slab.refuse_short_halo(1, self._problem.stencil.radii)
        with self._device.use():
            self._given.hold(time, length)
            self._state.row = 0
            self._passes[-1].launch(Extent(0))
            self._state.step += 1
            self._state.swap()

    def undo(self) -> None:
        """Let the state be what it was before the last substep."""
        self._state.swap()
        self._state.step -= 1

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of each field and of its error, (2, n_fields)."""
        own = self.slab.local()
        with self._device.use():
            values = self._layout.view(self._state.now, own)
            errors = [self._one.view(flat, own)[0] for flat in self._errors]
            return np.array([[_largest(it) for it in fields] for fields in ([*values], errors)])


def _largest(values: Any) -> float:
    """The largest magnitude; no number if one of the values is none."""
    return max(float(values.max()), -float(values.min()))
