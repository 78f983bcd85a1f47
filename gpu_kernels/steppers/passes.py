"""Passes: ways to advance a state on the GPU from one array into the other, by one launch or a few.

`Sweep` makes one step of a stencil (`plain.cu`) after filling its ghosts (`ghosts.cu`),
`ConductionSweep` one of a body (`conduction.cu`, `ruled_ghosts.cu`), `StagedSweep` one of
equations, stage by stage (`stage.cu`). `Fused` makes several steps with a fused kernel.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tetris_sim.gpu_kernels.boundary.domain import BoundaryExpansions, course_terms
from tetris_sim.gpu_kernels.boundary.extents import Extent, owned_and
from tetris_sim.gpu_kernels.boundary.ghosts import GhostFill, NameGhosts, RuledGhosts
from tetris_sim.gpu_kernels.common.body import (
    DeviceBody,
    RuleNumbers,
    body_defines,
    conduction_of,
)
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.given import (
    DeviceStepInputs,
    constants_of,
    equations_of,
    first_readers,
    given_defines,
    joined_stages,
    names_of,
)
from tetris_sim.gpu_kernels.common.layout import (
    Box3,
    PitchedField,
    box_argument,
    by_value,
    memory_argument,
    term_defines,
    term_weights,
)
from tetris_sim.model.deep_ghosts import free_sides
from tetris_sim.model.lowering import is_steady, with_nothing_at_faces
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_SWEEP_BLOCK = (64, 4, 1)  # threads along x, y, z
_SWEEP_BLOCK_1D = (256, 1, 1)
# Planes per thread of a staged sweep in large slabs. The fourth-order wave equation on 1024^3
# points: 88 G point-steps a second instead of 60 (H200, float64, 2026-11-22).
_PLANES = 16
_MANY_POINTS = 1 << 22
# A sum of a source takes as many single steps as a launch makes: it is made where it serves so many
# launches.
_WORTH_IT = 4
_MOST_BLOCKS = 65535  # CUDA's limit along y and z; threads of plain.cu loop where a grid has more


class Pass(Protocol):
    """One way to advance a state.

    Attributes:
        depth: steps that it makes.
        ghosts: steps for which it needs lasting ghosts (`pitch_slab`).
        by_course: whether it relies on accurate `BoundaryExpansions`.
        by_sum: whether it adds a sum of the source, which must not change meanwhile.
    """

    depth: int
    ghosts: int
    by_course: bool
    by_sum: bool

    @property
    def by_rules(self) -> bool:
        """Whether it reads the numbers of rules."""

    def prepare(self, state: DeviceState) -> None:
        """Compile, and keep what the launches need."""

    def launch(self, extent: Extent) -> None:
        """Advance the points of an extent by `depth` steps."""


@runtime_checkable
class GpuMethod(Method, Protocol):
    """A method of GPUs: it makes passes for a state, whichever object holds the arrays."""

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """Steps of the longest pass."""

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """Ways to advance a slab, the longest pass first and a single step last."""


class DeviceState:
    """The two arrays of a slab: `now` holds the state at `step`, `then` receives the next one."""

    def __init__(
        self,
        problem: Problem,
        slab: Slab,
        layout: PitchedField,
        device: GpuDevice,
        arrays: list[Any],
        depth: int = 1,
    ) -> None:
        """Allocate what a pass needs besides the arrays.

        Args:
            problem: the problem to advance.
            slab: the part of it that is advanced.
            layout: layout of the arrays.
            device: the GPU.
            arrays: the two arrays.
            depth: steps for which lasting ghosts are filled at once, as in `pitch_slab`.
        """
        self.problem, self.slab, self.layout, self.device = problem, slab, layout, device
        self._arrays = arrays
        self.turn, self.step = 0, 0
        # Arguments that are the same for every launch.
        self.memory = memory_argument(*layout.pitches, layout.within)
        self.weights = by_value(term_weights(problem))

        self.body = None
        if problem.conduction is not None:
            self.body = DeviceBody(problem, slab, layout, device, depth)
        self.given = None
        if problem.equations is not None:
            self.given = DeviceStepInputs(problem, slab, layout, device, depth)
            self.constants = by_value(constants_of(problem))
        self.courses: BoundaryExpansions | None = None
        # Row of the next launch's first step in the numbers of rules, and row of the launch in the
        # boundary expansions.
        self.row = self.launch = 0
        self._sums: dict[int, SourceSum] = {}

    @property
    def now(self) -> Any:
        """The array that holds the state."""
        return self._arrays[self.turn]

    @property
    def then(self) -> Any:
        """The array that receives the next state."""
        return self._arrays[1 - self.turn]

    def fields(self) -> list[tuple[Any, Any]]:
        """Views of each field, from its first owned point on, in both arrays."""
        starts = [
            field * self.layout.field_pitch + self.layout.origin
            for field in range(self.layout.n_fields)
        ]
        return [(self.now[start:], self.then[start:]) for start in starts]

    @property
    def coming(self) -> RuleNumbers | None:
        """The numbers of coming steps, if the problem has rules or parameters."""
        source = self.given if self.body is None else self.body
        return None if source is None else source.numbers

    def parts(self) -> list[tuple[Any, Any]]:
        """The fields that a fused launch advances at a time: each one by itself; with equations all
        of them together, represented by the first.
        """
        return self.fields() if self.given is None else self.fields()[:1]

    def array_of(self, name: str) -> Any:
        """The array behind a name of the equations during a step, from its first owned point on."""
        given = self.given
        assert given is not None
        if name in given.coefficients:
            return given.coefficients[name][self.layout.origin :]
        equations = equations_of(self.problem)
        if name in equations.work:
            return given.work[equations.work[name]][self.layout.origin :]
        for field, (now, then) in zip(equations.fields, self.fields(), strict=True):
            if name == field:
                return now
            if name == equations.results[field]:
                return then
        msg = f"the equations have no name {name}"
        raise KeyError(msg)

    def numbers(self) -> tuple[Any, ...]:
        """The arguments of a step: the weights; for a body `struct Body` and the row of the next
        launch's first step; for equations `struct Constants`, `struct Given` and that row.
        """
        if self.given is not None:
            return self.constants, self.given.argument(), np.int32(self.row)
        if self.body is None:
            return (self.weights,)
        return self.body.argument(), np.int32(self.row)

    def follow_courses(self, depth: int) -> None:
        """Allocate the boundary expansions that passes of `depth` steps need."""
        if self.problem.conduction is not None and course_terms(self.problem, depth):
            self.courses = BoundaryExpansions(self.problem, self.device, depth)

    def place(self, slab: Slab) -> None:
        """Let the arrays stand for another slab of the same shape, with neighbours on the same
        sides.
        """
        for source in (self.body, self.given):
            if source is not None and slab != self.slab:
                source.place(slab)
        self.slab = slab

    def sum_of_source(self, steps: int) -> Any:
        """The sum that the source makes of zero in so many steps, from its first owned point on;
        made where there is none yet, or the slab has moved, or the source has changed.
        """
        if steps not in self._sums:
            self._sums[steps] = SourceSum(self, steps)
        return self._sums[steps].of(self)

    def may_add(self, steps: int, launches: int = 1) -> bool:
        """Whether a sum of the source stands for launches of so many steps from now on."""
        return steps not in self._sums or self._sums[steps].lasts(self, launches)

    def with_arrays(self, arrays: list[Any]) -> DeviceState:
        """The same slab in other arrays, the first of which holds its state."""
        other = copy.copy(self)
        other._arrays, other.turn = arrays, 0
        return other

    def swap(self) -> None:
        """Exchange the two arrays."""
        self.turn = 1 - self.turn

    def turns(self) -> Iterator[int]:
        """Let each array be the state in turn; ends with the original one."""
        for _ in self._arrays:
            yield self.turn
            self.swap()

    def next_way(self, passes: list[Pass], steps: int) -> Pass:
        """The first of some passes that makes at most `steps` steps and is usable now."""
        return next(way for way in passes if way.depth <= steps and self._may(way))

    def _may(self, way: Pass) -> bool:
        if way.by_sum and not self.may_add(way.depth):
            return False
        return not way.by_course or self.courses is None or self.courses.are_right(self.step)

    def advance(self, way: Pass, extent: Extent) -> None:
        """Launch one pass, and swap the arrays."""
        # Moving a window enqueues an upload, so it must precede the launches that read it.
        if self.courses is not None and way.by_course:
            self.launch = self.courses.row(self.step)
        if self.coming is not None and way.by_rules:
            self.row = self.coming.row(self.step, way.depth)
        way.launch(extent)
        self.step += way.depth
        self.swap()

    def close(self) -> None:
        """Drop the references to the arrays."""
        self._arrays = []
        self._sums.clear()


class Sweep:
    """One step of every point, after the ghosts that it reads."""

    depth = ghosts = 1
    by_course, by_sum, by_rules = False, False, True

    def prepare(self, state: DeviceState) -> None:
        """Compile the kernel and bring the boxes of ghosts to the GPU."""
        self._state = state
        self._function = state.device.function("plain.cu", "sweep", term_defines(state.problem))
        self._ghosts = GhostFill(
            state.problem, state.slab, state.device, free_sides(state.slab), self.depth
        )
        self._ghosts.prepare(Extent(self.depth))

    def launch(self, extent: Extent) -> None:
        """Fill the ghosts, then launch the step: two launches per field."""
        state, read = self._state, extent.read(self.depth)
        self._ghosts.fill([now for now, _ in state.fields()], state.memory, read)
        box = extent.of(state.problem, state.slab)
        for now, then in state.fields():
            arguments = (now, then, state.memory, box_argument(box), state.weights)
            self._function(_sweep_grid(box, _block(state)), _block(state), arguments)


class ConductionSweep:
    """One step of every point of a body, after the ghosts that it reads."""

    depth = ghosts = 1
    by_course, by_sum, by_rules = False, False, True

    def prepare(self, state: DeviceState) -> None:
        """Compile the kernel and bring the boxes of ghosts to the GPU."""
        self._state = state
        self._function = state.device.function(
            "conduction.cu", "conduct", body_defines(state.problem)
        )
        self._ghosts = RuledGhosts(state.problem, state.slab, state.device)
        self._ghosts.prepare(Extent(self.depth))

    def launch(self, extent: Extent) -> None:
        """Fill the ghosts, then launch the step: two launches per field."""
        state, read = self._state, extent.read(self.depth)
        for now, then in state.fields():
            self._ghosts.fill(now, state.memory, read, state.numbers())
            self._conduct(state, now, then, extent)

    def _conduct(self, state: DeviceState, now: Any, then: Any, extent: Extent) -> None:
        box = extent.of(state.problem, state.slab)
        arguments = (now, then, state.memory, box_argument(box), *state.numbers())
        self._function(_sweep_grid(box, _block(state)), _block(state), arguments)


class SourceSum(ConductionSweep):
    """The sum that a source makes of zero in some steps, S = sum of A^k b: a fused kernel that
    makes these steps without the source adds it to what it stores (docs/decisions/0053).

    The same steps at faces that only mirror make it, with sources and conductances of halos where
    they lie in the grid: so its bits do not depend on the division into slabs.
    """

    def __init__(self, state: DeviceState, steps: int) -> None:
        """Allocate an array like one of the state's, and compile."""
        self.prepare(state)
        source = conduction_of(state.problem).source
        assert source is not None
        self._steps, self._source = steps, source
        self._of: tuple[Slab, bytes] | None = None  # slab and numbers of the sum
        empty = with_nothing_at_faces(state.problem)
        self._mirrors = GhostFill(empty, state.slab, state.device, free_sides(state.slab), 1)
        elements = state.layout.n_bytes // state.layout.dtype.itemsize
        with state.device.use() as cupy:
            self._sum = cupy.zeros(elements, state.layout.dtype)

    def lasts(self, state: DeviceState, launches: int) -> bool:
        """Whether the source stays as it is for some launches, and long enough for a new sum to be
        worth making: that takes as long as single steps.
        """
        if not self._source.changes:
            return True
        is_made = self._of == (state.slab, self._numbers(state))
        if not is_made and launches > 1:  # recorded ones make none
            return False
        steps = launches * self._steps * (1 if is_made else _WORTH_IT)
        return is_steady(self._source, state.problem, state.step, steps)

    def of(self, state: DeviceState) -> Any:
        """The sum of the state's slab, from its first owned point on. Making it takes the array
        that receives the next state.
        """
        wanted = state.slab, self._numbers(state)
        # Chunks of a stream have no arrays before they come.
        if self._of != wanted and state.then is not None:
            self._make(state)
            self._of = wanted
        return self._sum[state.layout.origin :]

    def _numbers(self, state: DeviceState) -> bytes:
        """The numbers of the source that change, as they are now."""
        changing = (it for it in self._source.parameters if it.changes)
        return b"".join(it.rows(state.problem.time, state.step, 1).tobytes() for it in changing)

    def _make(self, state: DeviceState) -> None:
        # Two arrays alternate; the last of the steps writes the sum.
        arrays = [state.then, self._sum] if self._steps % 2 else [self._sum, state.then]
        with state.device.use():
            arrays[0].fill(0)
            # As far into halos as the fused kernel will write.
            reach = [
                width // radius
                for widths, radius in zip(state.slab.halo, state.problem.stencil.radii, strict=True)
                for width in widths
                if width and radius
            ]
            later = min(reach, default=0)

            made = state.with_arrays(arrays)
            for step in range(1, self._steps + 1):
                extent = Extent(max(0, later - step))
                for now, then in made.fields():
                    self._mirrors.fill([now], made.memory, extent.read(1))
                    self._conduct(made, now, then, extent)
                made.swap()


class StagedSweep:
    """One step by equations: all stages at every point, after the ghosts that they read."""

    depth = ghosts = 1
    by_course, by_sum, by_rules = False, False, True

    def prepare(self, state: DeviceState) -> None:
        """Compile the stages and bring the boxes of ghosts to the GPU."""
        self._state, problem = state, state.problem
        self.planes = 1 if state.layout.field_pitch < _MANY_POINTS else _PLANES
        self._stages: list[tuple[Any, tuple[int, ...], dict[str, NameGhosts]]] = []
        self._begins: list[int] = []  # first stage of each group
        equations = equations_of(problem)
        readers = first_readers(equations)
        self._names = names_of(equations)
        defines = given_defines(problem)

        # One kernel per group of stages; the ghosts of a name are filled before the first group
        # that reads them.
        for group in joined_stages(equations):
            ghosts = {
                name: NameGhosts(problem, state.slab, state.device, name)
                for name, first in readers
                if first in group
            }
            for each in ghosts.values():
                each.prepare(0)
            function = state.device.function(
                "stage.cu", "stages", {**defines, "TS_FIRST": group.start, "TS_LAST": group[-1]}
            )
            self._stages.append((function, equations.margins[group.start], ghosts))
            self._begins.append(group.start)

    def launch(self, extent: Extent) -> None:
        """Launch all stages."""
        self.launch_stages(extent, (0, sys.maxsize))

    def launch_stages(self, extent: Extent, part: tuple[int, int]) -> None:
        """Launch each group of the stages (start, stop), after the ghosts of the names that it is
        the first to read.
        """
        state, later = self._state, extent.later
        names = [state.array_of(name) for name in self._names]
        addresses = np.array([state.device.address(it) for it in names], np.uint64)

        for begin, (function, margin, ghosts) in zip(self._begins, self._stages, strict=True):
            if not part[0] <= begin < part[1]:
                continue
            for name, each in ghosts.items():
                each.fill(state.array_of(name), state.memory, later)
            # Stages compute points around those of the extent, as far as later stages and steps
            # read.
            radii = state.problem.stencil.radii
            around = [more + later * radius for more, radius in zip(margin, radii, strict=True)]
            box = owned_and(state.slab, around)
            arguments = (
                *(by_value(addresses), state.memory, box_argument(box)),
                *state.numbers(),
            )
            x, y, z = _sweep_grid(box, _block(state))
            function((x, y, -(-z // self.planes)), _block(state), arguments)


def single_step(problem: Problem) -> Pass:
    """The pass that makes one step of any problem."""
    if problem.equations is not None:
        return StagedSweep()
    return Sweep() if problem.conduction is None else ConductionSweep()


def _block(state: DeviceState) -> tuple[int, int, int]:
    # Threads of a block along x, y, z; a 1D slab has no rows to share.
    return _SWEEP_BLOCK if state.layout.count[1] > 1 else _SWEEP_BLOCK_1D


def _sweep_grid(box: Box3, block: tuple[int, int, int]) -> tuple[int, int, int]:
    # Blocks along x, y, z for a box.
    z, y, x = (high - low for low, high in box)
    return -(-x // block[0]), min(-(-y // block[1]), _MOST_BLOCKS), min(z, _MOST_BLOCKS)
