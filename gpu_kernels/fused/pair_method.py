"""Methods `gpu.stream_pairs` and `gpu.plain_pairs`: the kernels of `gpu.stream` and `gpu.plain`
with pairs of floats for numbers.

They exist for `compute.precision: float32x2` only, beside the methods in float64: a tuner takes
what is faster. Outside of them all is float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tetris_sim.gpu_kernels.common.pairs import in_pairs
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.gpu_kernels.plain.method import PlainMethod
from tetris_sim.gpu_kernels.stream.method import METHOD as STREAM
from tetris_sim.model.method import KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import Pass


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
    inner: FusedMethod | PlainMethod
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
        from tetris_sim.gpu_kernels.steppers.pair_stepper import PairStepper

        return PairStepper(problem, slab, device, self.passes(problem, slab, parameters))

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """Steps that a kernel makes at once."""
        return self.inner.depth(in_pairs(problem), parameters)

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """The passes of that method, for a state in pairs."""
        return self.inner.passes(in_pairs(problem), slab, parameters)


METHODS = (
    PairMethod("gpu.stream_pairs", STREAM),
    PairMethod("gpu.plain_pairs", PlainMethod()),
)
