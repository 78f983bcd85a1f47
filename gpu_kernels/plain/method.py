"""gpu.plain: one sweep per launch. It accepts nearly everything that fits into memory.

`GpuSubstepStepper` adds substeps of adaptive length to it, and `PairMethod` pairs of floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.boundary.extents import Extent
from tetris_sim.gpu_kernels.common.body import body_bytes
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.given import equations_of, given_bytes
from tetris_sim.gpu_kernels.common.layout import from_pairs, in_pairs, pitch_slab, to_pairs
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.gpu_kernels.steppers.passes import Pass, StagedSweep
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes, take_planes
from tetris_sim.gpu_kernels.steppers.stepper import Arrival, GpuStepper
from tetris_sim.gpu_kernels.stream.method import METHOD as STREAM
from tetris_sim.model.boundary import Side
from tetris_sim.model.equations import at_step, digit_sums
from tetris_sim.model.method import (
    NOTHING,
    Box,
    EdgePlanes,
    Fetch,
    KnownGpu,
    Parameters,
    WithoutParameters,
)
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import Pass

# Substeps on a GPU: single steps of any length that can be undone, with their error estimates.


class GpuSubstepStepper(GpuStepper):
    """A stepper of single passes that also makes substeps; see the Protocol `Substepper`."""

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, passes: list[Pass]) -> None:
        super().__init__(problem, slab, device, passes)
        equations, given = equations_of(problem), self._state.given
        assert equations.substeps is not None
        assert given is not None
        # Error estimates are work arrays of the equations, one per field.
        names = equations.substeps.errors
        self._given, self._one = given, replace(self._layout, n_fields=1)
        known = [names[field] for field in equations.fields if field in names]
        self._errors = [given.work[equations.work[name]] for name in known]

    def substep(
        self, time: float, length: float, part: int = 0, found: Mapping[str, float] = NOTHING
    ) -> None:
        """Launch a part of a substep; returns before it is done."""
        self.slab.refuse_short_halo(1, self._problem.stencil.radii)
        parts, stages = equations_of(self._problem).parts, self._passes[-1]
        assert isinstance(stages, StagedSweep)
        with self._device.use():
            if part == 0:
                for name, of_box in equations_of(self._problem).noises.items():
                    drawn = at_step(of_box, self._state.step, self._problem.start)
                    self._given.give(name, drawn)
            self._given.hold(time, length, found)

            # Every row holds the numbers of this substep.
            self._state.row = 0
            stages.launch_stages(Extent(0), parts[part])
            if part + 1 == len(parts):
                self._state.step += 1
                self._state.swap()

    def extremes(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Largest and minus the smallest value of some arrays, (2, n_names)."""
        with self._device.use():
            views = [self._view(name) for name in names]
            ends = [(float(it.max()), -float(it.min())) for it in views]
            return np.array(ends).reshape(-1, 2).T

    def digits(self, name: str, exponent: int) -> tuple[int, ...]:
        """The sum of an array by digits."""
        with self._device.use():
            values = self._view(name)
            # Some planes at a time: digits need memory, and few enough may be added up.
            planes = max(1, _ADDED // max(1, values[0].size))
            sums = [
                digit_sums(values[first : first + planes], exponent)
                for first in range(0, len(values), planes)
            ]
        return tuple(map(sum, zip(*sums, strict=True)))

    def whole(self, name: str) -> Field:
        """The owned points of an array, in host memory."""
        with self._device.use() as cupy:
            return np.asarray(cupy.asnumpy(self._view(name)))

    def give(self, name: str, values: Field) -> None:
        """Set a coefficient, given on the whole grid."""
        self._given.give(name, lambda box: values[tuple(slice(*span) for span in box)])

    def _view(self, name: str) -> Any:
        """The owned points of a name that lives within a step."""
        flat = self._given.work[equations_of(self._problem).work[name]]
        return self._one.view(flat, self.slab.local())[0]

    def undo(self) -> None:
        """Restore the state before the last substep, which the other array still holds."""
        self._state.swap()
        self._state.step -= 1

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of each field and of its error, (2, n_fields)."""
        own = self.slab.local()
        with self._device.use():
            values = self._layout.view(self._state.now, own)
            errors = [self._one.view(flat, own)[0] for flat in self._errors]
            return np.array([[_largest(it) for it in fields] for fields in ([*values], errors)])


_ADDED = 1 << 24  # numbers whose digits are added up at a time


def _largest(values: Any) -> float:
    """The largest magnitude; NaN if one of the values is NaN."""
    return max(float(values.max()), -float(values.min()))


# Weights and offsets must fit into 32 KB of arguments and 64 KB of constant memory.
_MOST_TERMS = 3000


@dataclass(frozen=True)
class GpuPlainMethod(WithoutParameters):
    """The method that reads and writes the whole slab once per step."""

    name: str = "gpu.plain"
    device: Literal["gpu"] = "gpu"
    exact: bool = True

    def refusal(self, problem: Problem) -> str | None:
        """Refuse stencils of thousands of points, and equations in float16."""
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
        """Two pitched copies of the state, and the data of a body or of equations [bytes]."""
        layout = pitch_slab(problem, slab)
        return 2 * layout.n_bytes + body_bytes(problem, layout) + given_bytes(problem, layout)

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile and allocate two copies of the slab; `device` is a `GpuDevice`."""
        from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper

        # Only problems with adaptive steps pay for error arrays.
        make = GpuStepper if problem.substeps is None else GpuSubstepStepper
        return make(problem, slab, device, self.passes(problem, slab, parameters))

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """One step."""
        return 1

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """Single sweeps."""
        from tetris_sim.gpu_kernels.steppers.passes import single_step

        return [single_step(problem)]


# The methods `gpu.stream_pairs` and `gpu.plain_pairs`: the kernels of `gpu.stream` and `gpu.plain`
# with pairs of floats as numbers in GPU memory, and float64 outside. They serve
# `compute.precision: float32x2` only, next to the methods in float64; autotuning chooses the
# fastest.


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


PAIRED = (
    PairMethod("gpu.stream_pairs", STREAM),
    PairMethod("gpu.plain_pairs", GpuPlainMethod()),
)
