"""Methods `gpu.stream_pairs` and `gpu.plain_pairs`: the kernels of `gpu.stream` and `gpu.plain`
with pairs of floats for numbers.

They exist for `compute.precision: float32x2` only, beside the methods in float64: a tuner takes
what is faster. Outside of them all is float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.pairs import from_pairs, in_pairs, to_pairs
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.steppers.passes import Pass
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes, take_planes
from tetris_sim.gpu_kernels.steppers.stepper import Arrival, GpuStepper
from tetris_sim.gpu_kernels.stream.method import METHOD as STREAM
from tetris_sim.model.boundary import Side
from tetris_sim.model.method import Box, EdgePlanes, Fetch, KnownGpu, Parameters
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import Pass

# PairStepper: a slab whose numbers are pairs of floats in GPU memory, and float64 outside.


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


@dataclass(frozen=True)
class PairMethod:
    """A method of GPUs with other numbers.

    Attributes:
        name: what it is called.
        inner: the method whose kernels it has.
        device: kind of device that it runs on.
        exact: its bits are those of no method in float64.
        epsilon: by which an operation may be off, relative to the largest of its terms.
    """

    name: str
    inner: FusedMethod | GpuPlainMethod
    device: Literal["gpu"] = "gpu"
    exact: bool = False
    epsilon: float = 2.0**-47

    def refusal(self, problem: Problem) -> str | None:
        """What is not asked for in pairs, what is not one stencil, and what the kernels refuse."""
        if not problem.pairs:
            return "pairs of float32 are for compute.precision: float32x2"
        if (why_not := problem.why_not_one_stencil) is not None:
            return f"in pairs of float32 {why_not}; it is computed in float64"
        return self.inner.refusal(in_pairs(problem))

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """Those of the method whose kernels it has."""
        return self.inner.parameters(in_pairs(problem))

    def fixed_at_compile(self, parameter: str) -> bool:
        """As of that method."""
        return self.inner.fixed_at_compile(parameter)

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """What the numbers are."""
        return "numbers are pairs of float32, which have 48 bits of the 53 of float64"

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """A pair takes as much as a float64."""
        return self.inner.memory(in_pairs(problem), slab, parameters)

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile and take two copies of the slab; `device` is a `GpuDevice`."""
        return PairStepper(problem, slab, device, self.passes(problem, slab, parameters))

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """Steps that a kernel makes at once."""
        return self.inner.depth(in_pairs(problem), parameters)

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """The passes of that method, for a state in pairs."""
        return self.inner.passes(in_pairs(problem), slab, parameters)


METHODS = (
    PairMethod("gpu.stream_pairs", STREAM),
    PairMethod("gpu.plain_pairs", GpuPlainMethod()),
)
