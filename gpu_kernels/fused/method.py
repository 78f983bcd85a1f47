"""FusedMethod: a method made of kernels that fuse several steps, one family per number of axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tetris_sim.gpu_kernels.boundary.domain import are_in_range, course_terms
from tetris_sim.gpu_kernels.boundary.extents import Extent, has_frame, without_frame
from tetris_sim.gpu_kernels.boundary.ghosts import BoundaryStrip, GhostFill, Tiles
from tetris_sim.gpu_kernels.common.body import body_bytes
from tetris_sim.gpu_kernels.common.given import (
    given_bytes,
)
from tetris_sim.gpu_kernels.common.layout import (
    Box3,
    pitch_slab,
)
from tetris_sim.gpu_kernels.fused.kernel import CompiledKernel, FusedKernel, Launch
from tetris_sim.gpu_kernels.steppers.passes import DeviceState, Pass, single_step
from tetris_sim.model.deep_ghosts import lasting_sides
from tetris_sim.model.lowering import (
    in_planes,
    one_stencil,
    sourceless,
    stands_still,
    stepwise,
)
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil

Explanation = Callable[[Problem, Parameters, float, KnownGpu], str | None]


# A fused pass makes several steps: a fused kernel after the ghosts that last for all of them, and
# concurrently the boundary strips along the other faces (`frame.cu`).

# In 1D, tiles that read ghosts run concurrently with the others if these ghosts are sums (for 128
# steps they take a twentieth of the time of 5000 tiles) and if there are `_ROUNDS` times as many
# other tiles as the GPU holds. Ghosts that are images take no time; a second stream would cost 8 us
# of a launch of 100 us.
_ROUNDS = 4


@dataclass(frozen=True)
class Launches:
    """The launches of a fused pass for one extent.

    Attributes:
        inner: the fused kernel, concurrent with the rest.
        ends: the fused kernel where it needs the ghosts; empty if `inner` waits for these.
        frame: the boundary strips, concurrent with both.
        corners: the points where faces contradict each other, after both.
    """

    inner: Launch
    ends: tuple[Launch, ...]
    frame: Tiles
    corners: Tiles


class Fused:
    """A pass of several steps: a fused kernel, the ghosts that it reads, and the boundary strips
    that it leaves.
    """

    def __init__(self, kernel: FusedKernel, *, by_course: bool = True) -> None:
        """Take a kernel. Without `by_course`, faces that depend on time are advanced step
        by step.
        """
        self.depth = self.ghosts = kernel.depth
        self.by_course, self._kernel = by_course, kernel
        self.by_sum = kernel.sums
        self._launches: dict[tuple[Box3, int | None], tuple[Slab, Launches]] = {}

    @property
    def by_rules(self) -> bool:
        """Whether it reads the numbers of rules: where boundary strips or corners follow them, or
        the kernel does.
        """
        frames = any(it.frame.count or it.corners.count for _, it in self._launches.values())
        return frames or self._kernel.beside is not None or self.by_sum

    def fits(self, problem: Problem, slab: Slab) -> bool:
        """Whether the slab has points that no face affects, and strip tiles fit into shared
        memory.
        """
        problem = self._as_advanced(problem)
        box = Extent(0).of(problem, slab)
        long_enough = all(
            n >= self.depth * r for n, r in zip(slab.shape, problem.stencil.radii, strict=True)
        )
        return (
            long_enough
            and without_frame(problem, slab, box, self.depth, self._kernel.line) is not None
            and has_frame(problem, self.depth)
        )

    def prepare(self, state: DeviceState) -> None:
        """Compile the kernels and work out what they write."""
        self._state, self._problem = state, self._as_advanced(state.problem)
        self._inner = CompiledKernel(self._kernel, state.device)
        self._frame = BoundaryStrip(self._problem, state.slab, state.device, self.depth)
        lasting = lasting_sides(self._problem, state.slab)
        self._ghosts = GhostFill(self._problem, state.slab, state.device, lasting, self.depth)
        if self.by_course:
            state.follow_courses(self.depth)
        if self.by_sum:
            state.sum_of_source(self.depth)

        # A strip in 1D is a few long-running blocks, which must start early; in 2D and 3D it is
        # many.
        line = self._problem.grid.ndim == 1
        self._beside = state.device.quick_stream if line else state.device.side_stream
        # Whether launches depend on where in the grid the slab lies.
        self._moves = state.coming is not None or self._kernel.anchored
        self._launches_of(Extent(0))

    def _as_advanced(self, problem: Problem) -> Problem:
        # The problem as the boundary strips see it.
        return problem if self.by_course or problem.conduction is None else stepwise(problem)

    def launch(self, extent: Extent) -> None:
        """Launch the boundary strips, and the ghosts with the few points that read them, on streams
        of their own beside the fused kernel; their points are disjoint. Then repair the points
        where faces contradict each other, which the fused kernel got wrong.
        """
        state = self._state
        launches = self._launches_of(extent)
        # Made before any of the launches: it takes the array that they write.
        self._more = () if self._kernel.beside is None else (np.int32(state.row),)
        if self.by_sum:
            self._more += (state.sum_of_source(self.depth),)
        main, device = state.device.stream, state.device
        others = [self._beside] if launches.frame.count else []
        others += [device.quick_stream] if launches.ends else []

        for other in others:
            other.wait_event(main.record())
        if launches.frame.count:
            with self._beside:
                self._launch_frame(launches.frame)

        if launches.ends:
            with device.quick_stream:
                self._fill(extent)
                for each in launches.ends:
                    self._launch_inner(each)
        else:
            self._fill(extent)
        self._launch_inner(launches.inner)

        self._launch_frame(launches.corners)
        for other in others:
            main.wait_event(other.record())

    def _fill(self, extent: Extent) -> None:
        state = self._state
        courses = ()
        if self.by_course and state.courses is not None:
            courses = state.courses.argument(state.launch)
        fields = [now for now, _ in state.fields()]
        self._ghosts.fill(fields, state.memory, extent.read(self.depth), courses)

    def _launch_inner(self, launch: Launch) -> None:
        state = self._state
        for now, then in state.parts():
            self._inner.launch(now, then, state.memory, launch, self._more)

    def _launch_frame(self, tiles: Tiles) -> None:
        state = self._state
        for now, then in state.parts() if tiles.count else ():
            self._frame.launch(now, then, state.memory, tiles, state.numbers())

    def _launches_of(self, extent: Extent) -> Launches:
        """The launches for an extent, cached by its box."""
        state = self._state
        outer = extent.of(self._problem, state.slab)
        # Without a halo the box is the same for any number of steps, and working it out takes
        # milliseconds.
        key = outer, extent.open_axis
        slab, found = self._launches.get(key, (None, None))
        if found is None or (self._moves and slab != state.slab):
            axis, frame = extent.open_axis, self._frame
            where = self._problem, state.slab, outer, self.depth, self._kernel.line
            inner = without_frame(*where, open_axis=axis)
            assert inner is not None  # `fits` said so for the smallest box
            self._ghosts.prepare(extent.read(self.depth))

            # Strips and corners do not depend on where the slab lies, so they survive a move.
            if found is None:
                tiles = frame.tiles(outer, inner), frame.corners(inner, open_axis=axis)
            else:
                tiles = found.frame, found.corners
            most, ends = self._divided(inner)
            cuts = tuple(self._inner.cut(box, state) for box in ends)
            found = Launches(self._inner.cut(most, state), cuts, *tiles)
            self._launches[key] = state.slab, found
        return found

    def _divided(self, box: Box3) -> tuple[Box3, tuple[Box3, ...]]:
        """Split the box of a 1D kernel: (the part that reads no ghosts, the ends that do). In all
        other cases the whole box and no ends.
        """
        kernel, (low, high) = self._kernel, box[2]
        tile, reach = kernel.tile[2], self.depth * self._problem.stencil.radii[-1]
        n_tiles = (high - low - reach) // tile
        if (
            self._problem.grid.ndim > 1
            or not self._ghosts.deep
            or kernel.beside is not None
            or tile < reach
            or n_tiles < _ROUNDS * self._inner.slots
        ):
            return box, ()

        first, last = low + tile, low + n_tiles * tile
        parts = [(box[0], box[1], span) for span in ((first, last), (low, first), (last, high))]
        return parts[0], tuple(parts[1:])


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
        summing: kernels of `families` that add what a static source of a body makes in their steps,
            by number of axes.
    """

    name: str
    families: Mapping[int, Family] = field(hash=False)
    explanation: Explanation | None = None
    device: Literal["gpu"] = "gpu"
    exact: bool = False
    planes: Family | None = field(default=None, hash=False)
    conducting: Special | None = field(default=None, hash=False)
    solving: Special | None = field(default=None, hash=False)
    summing: Mapping[int, Family] = field(default_factory=dict, hash=False)

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
        if one_stencil(self._advanced(problem)) is None:
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
        """Two pitched copies of the state, the sum of a static source, and what the kernels read
        besides [bytes].
        """
        layout = pitch_slab(problem, slab, self.depth(problem, parameters))
        n_bytes = 2 * layout.n_bytes + body_bytes(problem, layout) + given_bytes(problem, layout)
        if self._advanced(problem) is not problem:
            n_bytes += layout.n_bytes
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
        bare = self._advanced(problem)
        stencil = one_stencil(bare)
        assert stencil is not None
        if bare is not problem:
            return self.summing[stencil.ndim], stencil
        # A 3D stencil without offsets along z is a stack of independent planes.
        if stencil.ndim == 3 and stencil.radii[0] == 0 and self.planes is not None:
            return self.planes, in_planes(stencil)
        return self.families[stencil.ndim], stencil

    def _advanced(self, problem: Problem) -> Problem:
        """The problem whose steps the kernels make: without a source that they add as a sum."""
        return sourceless(problem) if self.summing and stands_still(problem) else problem

    def _special(self, problem: Problem) -> Special | None:
        if problem.equations is not None:
            return self.solving
        # A homogeneous body is a stencil (decision 0053).
        return self.conducting if one_stencil(self._advanced(problem)) is None else None

    def _complete(self, problem: Problem, parameters: Parameters) -> Parameters:
        # The rest of a proposal that agrees with what is given, if there is one: a checkpoint of an
        # older version lacks parameters that were added since.
        proposals = self._proposals(problem)
        same = (it for it in proposals if parameters.items() <= it.items())
        return {**next(same, proposals[0]), **parameters}

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
