"""The methods `gpu.stream_pairs` and `gpu.plain_pairs`: the kernels of `gpu.stream` and `gpu.plain`
with pairs of floats as numbers.

They serve `compute.precision: float32x2` only, next to the methods in float64; autotuning chooses
the fastest. Outside of them everything is float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import from_pairs, in_pairs, to_pairs
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

# A stepper whose numbers are pairs of floats in GPU memory and float64 outside.


class PairStepper(GpuStepper):
    """A `GpuStepper` of pairs with a float64 interface. Conversion loses only the bits of the
    initial field that pairs cannot hold.
    """

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, passes: list[Pass]) -> None:
        """Allocate the state for a float64 problem."""
        super().__init__(in_pairs(problem), slab, device, passes)

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Write the owned points of the initial field."""
        # A random field is thereby an ordinary function, made on the host.
        super().load(lambda slab: to_pairs(initial(slab)), step)

    def edge(self, axis: int, side: Side) -> GpuPlanes:
        """The owned planes that the neighbour on `side` needs, in float64."""
        planes = super().edge(axis, side)
        with self._device.use():
            return GpuPlanes(self._device, from_pairs(planes.memory), planes.form)

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Copy planes into the halo beyond `side`; returns before they are there."""
        with self._device.use():
            values, held = take_planes(self._device, planes)
            pairs = to_pairs(values)
            super().set_halo(axis, side, GpuPlanes(self._device, pairs))
            # Also keeps the source and the pairs alive until they have been copied.
            self._arriving[-1] = Arrival((held, pairs), self._arriving[-1].taken)

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box` (global indices)."""
        return from_pairs(super().interior(box))  # type: ignore[no-any-return]

    def kept(self) -> Fetch | None:
        """Take a snapshot of the owned points on the GPU."""
        fetch = super().kept()
        return None if fetch is None else lambda: from_pairs(fetch())


@dataclass(frozen=True)
class PairMethod:
    """A GPU method that computes in pairs of floats with the kernels of another one.

    Attributes:
        name: name of the method.
        inner: the method whose kernels it uses.
        device: kind of device that it runs on.
        exact: False, since results are not bitwise identical to any method in float64.
        epsilon: error bound of an operation, relative to the largest of its terms.
    """

    name: str
    inner: FusedMethod | GpuPlainMethod
    device: Literal["gpu"] = "gpu"
    exact: bool = False
    epsilon: float = 2.0**-47

    def refusal(self, problem: Problem) -> str | None:
        """Refuse problems in another precision, problems that are not a single stencil, and what
        the kernels refuse.
        """
        if not problem.pairs:
            return "pairs of float32 are for compute.precision: float32x2"
        if (why_not := problem.why_not_one_stencil) is not None:
            return f"in pairs of float32 {why_not}; it is computed in float64"
        return self.inner.refusal(in_pairs(problem))

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """Candidate parameters of the inner method."""
        return self.inner.parameters(in_pairs(problem))

    def fixed_at_compile(self, parameter: str) -> bool:
        """Whether a parameter of the inner method is a macro."""
        return self.inner.fixed_at_compile(parameter)

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """A remark on the precision of pairs."""
        return "numbers are pairs of float32, which have 48 bits of the 53 of float64"

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Bytes of the slab: a pair takes as much as a float64."""
        return self.inner.memory(in_pairs(problem), slab, parameters)

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile and allocate two copies of the slab; `device` is a `GpuDevice`."""
        return PairStepper(problem, slab, device, self.passes(problem, slab, parameters))

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """Steps that a kernel fuses."""
        return self.inner.depth(in_pairs(problem), parameters)

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """The passes of the inner method, for a state in pairs."""
        return self.inner.passes(in_pairs(problem), slab, parameters)


METHODS = (
    PairMethod("gpu.stream_pairs", STREAM),
    PairMethod("gpu.plain_pairs", GpuPlainMethod()),
)
