"""FusedMethod: a method made of kernels that fuse several steps, one family per number of axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tetris_sim.gpu_kernels.boundary.domain import are_in_range, course_terms
from tetris_sim.gpu_kernels.boundary.extents import has_frame
from tetris_sim.gpu_kernels.common.body import body_bytes
from tetris_sim.gpu_kernels.common.given import given_bytes
from tetris_sim.gpu_kernels.common.layout import pitch_slab
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.model.homogeneous import one_stencil
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.plane_stack import in_planes
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import Pass

Explanation = Callable[[Problem, Parameters, float, KnownGpu], str | None]


@dataclass(frozen=True)
class Special:
    """Kernels for problems that are not a single stencil: with conduction or with equations.

    Attributes:
        kernel: makes the kernel for a problem and parameters.
        parameters: candidates for the tuner, the best guess first.
        refusal: why a problem is refused, as a sentence; None if it is not.
        memory: bytes that a slab takes besides the state and the data of the body or equations.
    """

    kernel: Callable[[Problem, Parameters], FusedKernel]
    parameters: Callable[[Problem], tuple[Parameters, ...]]
    refusal: Callable[[Problem], str | None]
    memory: Callable[[Problem, Slab, Parameters], int]


@dataclass(frozen=True)
class Family:
    """Kernels for one number of axes.

    Attributes:
        kernel: makes the kernel for a stencil, dtype and parameters.
        parameters: candidates for the tuner, the best guess first.
        refusal: why a stencil and dtype are refused, as a sentence; None if they are not.
    """

    kernel: Callable[[Stencil, np.dtype[Any], Parameters], FusedKernel]
    parameters: Callable[[Stencil, np.dtype[Any]], tuple[Parameters, ...]]
    refusal: Callable[[Stencil, np.dtype[Any]], str | None]


@dataclass(frozen=True)
class FusedMethod:
    """Fused kernels away from faces, boundary strips along the faces, and single sweeps for the
    remaining steps.

    Attributes:
        name: name of the method.
        families: kernels by number of axes.
        device: kind of device that it runs on.
        explanation: makes a remark on a measured rate, with the arguments of `explain`; None for no
            remarks.
        exact: whether results are bitwise identical to those of all exact methods; composed
            stencils round differently.
        planes: kernels of two axes that advance one plane per block along z, for stencils of three
            axes that do not couple planes, if there are any.
        conducting: kernels for heterogeneous bodies, if there are any.
        solving: kernels for problems with equations, if there are any.
    """

    name: str
    families: Mapping[int, Family] = field(hash=False)
    explanation: Explanation | None = None
    device: Literal["gpu"] = "gpu"
    exact: bool = False
    planes: Family | None = field(default=None, hash=False)
    conducting: Special | None = field(default=None, hash=False)
    solving: Special | None = field(default=None, hash=False)

    def refusal(self, problem: Problem) -> str | None:
        """Refuse what the kernels refuse, and problems of which even the smallest tile of a
        boundary strip does not fit into shared memory.
        """
        refusal = self._refusal_of_kernels(problem)
        # Candidates whose boundary strips do not fit have been dropped.
        if refusal is None and not self._proposals(problem):
            return "the points that its steps reach along a face do not fit into shared memory"
        return refusal

    def _refusal_of_kernels(self, problem: Problem) -> str | None:
        if (special := self._special(problem)) is not None:
            return special.refusal(problem)
        if one_stencil(problem) is None:
            return problem.why_not_one_stencil
        if problem.grid.ndim not in self.families:
            return f"it has no kernels for {problem.grid.ndim} axes"
        family, stencil = self._family(problem)
        return family.refusal(stencil, np.dtype(problem.dtype))

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """Candidate parameters of the kernels, the best guess first."""
        return self._proposals(problem)

    def fixed_at_compile(self, parameter: str) -> bool:
        """Always true: parameters are macros of a kernel's source."""
        return True

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """A remark on a measured rate, if the kernel family has one."""
        if self.explanation is None or gpu is None:
            return None
        return self.explanation(problem, parameters, rate, gpu)

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Two pitched copies of the state, and what the kernels read besides [bytes]."""
        layout = pitch_slab(problem, slab, self.depth(problem, parameters))
        n_bytes = 2 * layout.n_bytes + body_bytes(problem, layout) + given_bytes(problem, layout)
        if (special := self._special(problem)) is None:
            return n_bytes
        return n_bytes + special.memory(problem, slab, self._complete(problem, parameters))

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile and allocate two copies of the slab; `device` is a `GpuDevice`."""
        from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper

        return GpuStepper(problem, slab, device, self.passes(problem, slab, parameters))

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """The fused kernel where it fits; the same with boundary strips along time-dependent faces,
        for launches whose expansions are not accurate; and single sweeps.
        """
        from tetris_sim.gpu_kernels.steppers.passes import Fused, single_step

        kernel = self.kernel(problem, parameters)
        # Longest first, as `DeviceState.next_way` expects.
        ways = [Fused(kernel)] if are_in_range(problem, kernel.depth) else []
        if course_terms(problem, kernel.depth):
            ways.append(Fused(kernel, by_course=False))
        return [*(way for way in ways if way.fits(problem, slab)), single_step(problem)]

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """Steps that the kernel fuses, a parameter of every family."""
        return self._complete(problem, parameters)[STEPS_PER_BLOCK]

    def kernel(self, problem: Problem, parameters: Parameters) -> FusedKernel:
        """The kernel for a problem; parameters that are missing are those of the best guess."""
        complete = self._complete(problem, parameters)
        if (special := self._special(problem)) is not None:
            return special.kernel(problem, complete)
        family, stencil = self._family(problem)
        return family.kernel(stencil, np.dtype(problem.dtype), complete)

    def _family(self, problem: Problem) -> tuple[Family, Stencil]:
        """The kernels for a stencil, and the stencil that they are made for: for stacked planes,
        that of a single plane.
        """
        stencil = one_stencil(problem)
        assert stencil is not None
        # A 3D stencil without offsets along z is a stack of independent planes.
        if stencil.ndim == 3 and stencil.radii[0] == 0 and self.planes is not None:
            return self.planes, in_planes(stencil)
        return self.families[stencil.ndim], stencil

    def _special(self, problem: Problem) -> Special | None:
        if problem.equations is not None:
            return self.solving
        # A homogeneous body without sources is a stencil (decision 0053).
        return self.conducting if one_stencil(problem) is None else None

    def _complete(self, problem: Problem, parameters: Parameters) -> Parameters:
        return {**self._proposals(problem)[0], **parameters}

    def _proposals(self, problem: Problem) -> tuple[Parameters, ...]:
        if (special := self._special(problem)) is not None:
            proposed = special.parameters(problem)
        else:
            proposed = _proposed(*self._family(problem), np.dtype(problem.dtype))
        return tuple(
            parameters for parameters in proposed if has_frame(problem, parameters[STEPS_PER_BLOCK])
        )


@functools.lru_cache(maxsize=64)
def _proposed(family: Family, stencil: Stencil, dtype: np.dtype[Any]) -> tuple[Parameters, ...]:
    """The candidates of a family, cached: composing the steps takes a tenth of a second for some
    stencils.
    """
    return family.parameters(stencil, dtype)
