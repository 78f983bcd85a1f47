"""Passes: ways to advance a state on the GPU from one array into the other, by one launch or a few.

`Sweep` makes one step of a stencil (`plain.cu`) after filling its ghosts (`ghosts.cu`),
`ConductionSweep` one of a body (`conduction.cu`, `ruled_ghosts.cu`), `StagedSweep` one of
equations, stage by stage (`stage.cu`). `Fused` makes several steps with a fused kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tetris_sim.gpu_kernels.boundary.domain import BoundaryExpansions, course_terms
from tetris_sim.gpu_kernels.boundary.extents import Extent, has_frame, owned_and, without_frame
from tetris_sim.gpu_kernels.boundary.frame import BoundaryStrip, Tiles
from tetris_sim.gpu_kernels.boundary.ghosts import GhostFill, NameGhosts, RuledGhosts
from tetris_sim.gpu_kernels.common.body import DeviceBody, RuleNumbers, body_defines
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
from tetris_sim.gpu_kernels.fused.kernel import CompiledKernel, FusedKernel, Launch
from tetris_sim.model.deep_ghosts import free_sides, lasting_sides
from tetris_sim.model.homogeneous import stepwise
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_SWEEP_BLOCK = (64, 4, 1)  # threads along x, y, z
_SWEEP_BLOCK_1D = (256, 1, 1)
# Planes per thread of a staged sweep in large slabs. The fourth-order wave equation on 1024^3
# points: 88 G point-steps a second instead of 60 (H200, float64, 2026-11-22).
_PLANES = 16
_MANY_POINTS = 1 << 22
_MOST_BLOCKS = 65535  # CUDA's limit along y and z; threads of plain.cu loop where a grid has more


class Pass(Protocol):
    """One way to advance a state.

    Attributes:
        depth: steps that it makes.
        ghosts: steps for which it needs lasting ghosts (`pitch_slab`).
        by_course: whether it relies on accurate `BoundaryExpansions`.
    """

    depth: int
    ghosts: int
    by_course: bool

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


class Sweep:
    """One step of every point, after the ghosts that it reads."""

    depth = ghosts = 1
    by_course, by_rules = False, True

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
    by_course, by_rules = False, True

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
        box = extent.of(state.problem, state.slab)
        for now, then in state.fields():
            self._ghosts.fill(now, state.memory, read, state.numbers())
            arguments = (now, then, state.memory, box_argument(box), *state.numbers())
            self._function(_sweep_grid(box, _block(state)), _block(state), arguments)


class StagedSweep:
    """One step by equations: all stages at every point, after the ghosts that they read."""

    depth = ghosts = 1
    by_course, by_rules = False, True

    def prepare(self, state: DeviceState) -> None:
        """Compile the stages and bring the boxes of ghosts to the GPU."""
        self._state, problem = state, state.problem
        self.planes = 1 if state.layout.field_pitch < _MANY_POINTS else _PLANES
        self._stages: list[tuple[Any, tuple[int, ...], dict[str, NameGhosts]]] = []
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

    def launch(self, extent: Extent) -> None:
        """Launch each group of stages, after the ghosts of the names that it is the first
        to read.
        """
        state, later = self._state, extent.later
        names = [state.array_of(name) for name in self._names]
        addresses = np.array([state.device.address(it) for it in names], np.uint64)

        for function, margin, ghosts in self._stages:
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
        self._launches: dict[tuple[Box3, int | None], tuple[Slab, Launches]] = {}

    @property
    def by_rules(self) -> bool:
        """Whether it reads the numbers of rules: where boundary strips or corners follow them, or
        the kernel does.
        """
        frames = any(it.frame.count or it.corners.count for _, it in self._launches.values())
        return frames or self._kernel.beside is not None

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
        row = () if self._kernel.beside is None else (np.int32(state.row),)
        for now, then in state.parts():
            self._inner.launch(now, then, state.memory, launch, row)

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
