"""PairStepper: a slab whose numbers are pairs of floats in GPU memory, and float64 outside."""

from __future__ import annotations

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.pairs import from_pairs, in_pairs, to_pairs
from tetris_sim.gpu_kernels.steppers.passes import Pass
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes, take_planes
from tetris_sim.gpu_kernels.steppers.stepper import Arrival, GpuStepper
from tetris_sim.model.boundary import Side
from tetris_sim.model.method import Box, EdgePlanes, Fetch
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab


class PairStepper(GpuStepper):
    """A `GpuStepper` of pairs for those who know float64 only; on the way nothing is lost but what
    pairs do not hold of the initial field.
    """

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, passes: list[Pass]) -> None:
        """Take memory for a problem in float64."""
        super().__init__(in_pairs(problem), slab, device, passes)

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take the owned points."""
        super().load(lambda slab: to_pairs(initial(slab)), step)

    def edge(self, axis: int, side: Side) -> GpuPlanes:
        """The owned planes that the neighbour on `side` needs, as float64."""
        planes = super().edge(axis, side)
        with self._device.use():
            return GpuPlanes(self._device, from_pairs(planes.memory), planes.form)

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Take the planes beyond `side`; returns before they are there."""
        with self._device.use():
            values, held = take_planes(self._device, planes)
            pairs = to_pairs(values)
            super().set_halo(axis, side, GpuPlanes(self._device, pairs))
            self._arriving[-1] = Arrival((held, pairs), self._arriving[-1].taken)

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box` (global indices)."""
        return from_pairs(super().interior(box))  # type: ignore[no-any-return]

    def kept(self) -> Fetch | None:
        """Keep a copy of the owned points on the GPU."""
        fetch = super().kept()
        return None if fetch is None else lambda: from_pairs(fetch())
