"""Passes: what advances a state on the GPU by one launch or a few, from one array into the other.

`Sweep` makes one step (`plain.cu`) after the ghosts that it reads (`ghosts.cu`), `ConductionSweep`
one of a body (`conduction.cu`, `ruled_ghosts.cu`), `StagedSweep` one by equations, stage by stage
(`stage.cu`). `Fused` makes several (`fused_pass.py`).
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
# Planes that a thread of a staged sweep passes, in slabs of many points. The wave equation of order
# 4 on 1024^3 points: 88 G points and steps a second instead of 60 (H200, float64, 2026-11-22).
_PLANES = 16
_MANY_POINTS = 1 << 22
_MOST_BLOCKS = 65535  # along y and z; threads of plain.cu go on where a grid has more


class Pass(Protocol):
    """One way to advance.

    Attributes:
        depth: steps that it makes.
        ghosts: steps for which it wants ghosts that last (`pitch_slab`).
        by_course: whether it needs `BoundaryExpansions` that are right.
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
    """A method of GPUs: what makes passes for a state, whoever holds its arrays."""

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """Steps of the pass that makes the most."""

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """Ways to advance a slab, the one that makes the most steps first, a single step last."""


class DeviceState:
    """The two arrays of a slab. `now` holds the state at `step`, `then` takes the next one."""

    def __init__(
        self,
        problem: Problem,
        slab: Slab,
        layout: PitchedField,
        device: GpuDevice,
        arrays: list[Any],
        depth: int = 1,
    ) -> None:
        """Take what is needed beside the arrays.

        Args:
            problem: what is advanced.
            slab: which part of it.
            layout: of the arrays.
            device: the GPU.
            arrays: two.
            depth: steps for which ghosts that last are filled at once, as of `pitch_slab`.
        """
        self.problem, self.slab, self.layout, self.device = problem, slab, layout, device
        self._arrays = arrays
        self.turn, self.step = 0, 0
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
        # of the next launch's first step in the numbers of rules, and of the launch in courses
        self.row = self.launch = 0

    @property
    def now(self) -> Any:
        """The array with the state."""
        return self._arrays[self.turn]

    @property
    def then(self) -> Any:
        """The other one."""
        return self._arrays[1 - self.turn]

    def fields(self) -> list[tuple[Any, Any]]:
        """The first owned point of each field, in both arrays."""
        starts = [
            field * self.layout.field_pitch + self.layout.origin
            for field in range(self.layout.n_fields)
        ]
        return [(self.now[start:], self.then[start:]) for start in starts]

    @property
    def coming(self) -> RuleNumbers | None:
        """Numbers of the steps that come, if steps have any."""
        source = self.given if self.body is None else self.body
        return None if source is None else source.numbers

    def parts(self) -> list[tuple[Any, Any]]:
        """What several steps are made of at a time: each field by itself, by equations all of them,
        told by the first one.
        """
        return self.fields() if self.given is None else self.fields()[:1]

    def array_of(self, name: str) -> Any:
        """The first owned point of what equations call a name, during a step."""
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
        """What a step is made with: the weights; of a body `struct Body` and the row of the next
        launch's first step; of equations `struct Constants`, `struct Given` and that row.
        """
        if self.given is not None:
            return self.constants, self.given.argument(), np.int32(self.row)
        if self.body is None:
            return (self.weights,)
        return self.body.argument(), np.int32(self.row)

    def follow_courses(self, depth: int) -> None:
        """Take what passes of so many steps need of faces that change with time."""
        if self.problem.conduction is not None and course_terms(self.problem, depth):
            self.courses = BoundaryExpansions(self.problem, self.device, depth)

    def place(self, slab: Slab) -> None:
        """Let the arrays be another slab of the same shape, with neighbours on the same sides."""
        for source in (self.body, self.given):
            if source is not None and slab != self.slab:
                source.place(slab)
        self.slab = slab

    def swap(self) -> None:
        """Let the other array be the state."""
        self.turn = 1 - self.turn

    def turns(self) -> Iterator[int]:
        """Let each array be the state for a while."""
        for _ in self._arrays:
            yield self.turn
            self.swap()

    def next_way(self, passes: list[Pass], steps: int) -> Pass:
        """The first of some passes that makes no more steps and may be made now."""
        return next(way for way in passes if way.depth <= steps and self._may(way))

    def _may(self, way: Pass) -> bool:
        return not way.by_course or self.courses is None or self.courses.are_right(self.step)

    def advance(self, way: Pass, extent: Extent) -> None:
        """One pass."""
        if self.courses is not None and way.by_course:
            self.launch = self.courses.row(self.step)
        if self.coming is not None and way.by_rules:
            self.row = self.coming.row(self.step, way.depth)
        way.launch(extent)
        self.step += way.depth
        self.swap()

    def close(self) -> None:
        """Forget the arrays."""
        self._arrays = []


class Sweep:
    """One step of every point, after the ghosts that it reads."""

    depth = ghosts = 1
    by_course, by_rules = False, True

    def prepare(self, state: DeviceState) -> None:
        """Compile."""
        self._state = state
        self._function = state.device.function("plain.cu", "sweep", term_defines(state.problem))
        self._ghosts = GhostFill(
            state.problem, state.slab, state.device, free_sides(state.slab), self.depth
        )
        self._ghosts.prepare(Extent(self.depth))

    def launch(self, extent: Extent) -> None:
        """Two launches per field."""
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
        """Compile."""
        self._state = state
        self._function = state.device.function(
            "conduction.cu", "conduct", body_defines(state.problem)
        )
        self._ghosts = RuledGhosts(state.problem, state.slab, state.device)
        self._ghosts.prepare(Extent(self.depth))

    def launch(self, extent: Extent) -> None:
        """Two launches per field."""
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
        """Compile."""
        self._state, problem = state, state.problem
        self.planes = 1 if state.layout.field_pitch < _MANY_POINTS else _PLANES
        self._stages: list[tuple[Any, tuple[int, ...], dict[str, NameGhosts]]] = []
        equations = equations_of(problem)
        readers = first_readers(equations)
        self._names = names_of(equations)
        defines = given_defines(problem)
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
        """A launch for stages that go together, and one for each name whose ghosts they are the
        first to read.
        """
        state, later = self._state, extent.later
        names = [state.array_of(name) for name in self._names]
        addresses = np.array([state.device.address(it) for it in names], np.uint64)
        for function, margin, ghosts in self._stages:
            for name, each in ghosts.items():
                each.fill(state.array_of(name), state.memory, later)
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
    return _SWEEP_BLOCK if state.layout.count[1] > 1 else _SWEEP_BLOCK_1D


def _sweep_grid(box: Box3, block: tuple[int, int, int]) -> tuple[int, int, int]:
    z, y, x = (high - low for low, high in box)
    return -(-x // block[0]), min(-(-y // block[1]), _MOST_BLOCKS), min(z, _MOST_BLOCKS)


# Fused: a pass of several steps: a fused kernel after the ghosts that last for all of them, and
# beside it the frame along the other faces (`frame.cu`).

# Tiles of a line that read ghosts are made beside the others if these ghosts are sums, which for
# 128 steps take a twentieth as long as 5000 tiles, and if the others are so many times as many as
# the GPU holds. Images are there at once: another stream costs a launch of 100 us eight of them.
_ROUNDS = 4


@dataclass(frozen=True)
class Launches:
    """What a pass launches for an extent.

    Attributes:
        inner: of the fused kernel, beside whatever else there is.
        ends: of the fused kernel, after the ghosts; empty if `inner` waits for these.
        frame: beside both.
        corners: after both.
    """

    inner: Launch
    ends: tuple[Launch, ...]
    frame: Tiles
    corners: Tiles


class Fused:
    """Several steps: a fused kernel, the ghosts that it reads, and the frame that it leaves."""

    def __init__(self, kernel: FusedKernel, *, by_course: bool = True) -> None:
        """Faces that have courses are advanced step by step if it is not made by these."""
        self.depth = self.ghosts = kernel.depth
        self.by_course, self._kernel = by_course, kernel
        self._launches: dict[tuple[Box3, int | None], tuple[Slab, Launches]] = {}

    @property
    def by_rules(self) -> bool:
        """Where what it launches follows rules."""
        frames = any(it.frame.count or it.corners.count for _, it in self._launches.values())
        return frames or self._kernel.beside is not None

    def fits(self, problem: Problem, slab: Slab) -> bool:
        """Whether the slab has points that no face concerns, and frame tiles fit into shared
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
        """Compile both, and find out what they write."""
        self._state, self._problem = state, self._as_advanced(state.problem)
        self._inner = CompiledKernel(self._kernel, state.device)
        self._frame = BoundaryStrip(self._problem, state.slab, state.device, self.depth)
        lasting = lasting_sides(self._problem, state.slab)
        self._ghosts = GhostFill(self._problem, state.slab, state.device, lasting, self.depth)
        if self.by_course:
            state.follow_courses(self.depth)
        # The frame of a line is a few blocks of threads that take long, others are many.
        line = self._problem.grid.ndim == 1
        self._beside = state.device.quick_stream if line else state.device.side_stream
        # what is told of the place of a slab
        self._moves = state.coming is not None or self._kernel.anchored
        self._launches_of(Extent(0))

    def _as_advanced(self, problem: Problem) -> Problem:
        return problem if self.by_course or problem.conduction is None else stepwise(problem)

    def launch(self, extent: Extent) -> None:
        """The frame, and ghosts with the points that read them if these are few, on streams of
        their own beside the fused kernel: each writes points that the other does not. Then what the
        fused kernel made wrong, where faces contradict each other.
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
        """What is launched for an extent."""
        state = self._state
        outer = extent.of(self._problem, state.slab)
        # By box, which without a halo is one for any number of steps: working it out takes
        # milliseconds.
        key = outer, extent.open_axis
        slab, found = self._launches.get(key, (None, None))
        if found is None or (self._moves and slab != state.slab):
            axis, frame = extent.open_axis, self._frame
            where = self._problem, state.slab, outer, self.depth, self._kernel.line
            inner = without_frame(*where, open_axis=axis)
            assert inner is not None  # `fits` said so for the smallest box
            self._ghosts.prepare(extent.read(self.depth))

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
        """(What a launch writes that reads no ghosts, the ends of a long line that do)."""
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
