"""Passes: what advances a state on the GPU by one launch or a few, from one array into the other.

`Sweep` makes one step (`plain.cu`) after the ghosts that it reads (`ghosts.cu`), `ConductionSweep`
one of a body (`conduction.cu`, `ruled_ghosts.cu`), `StagedSweep` one by equations, stage by stage
(`stage.cu`). `Fused` makes several (`fused_pass.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tetris_sim.gpu_kernels.common.body import Body, body_defines
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.given import (
    Given,
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
)
from tetris_sim.gpu_kernels.common.rule_numbers import RuleNumbers
from tetris_sim.gpu_kernels.common.terms import term_defines, term_weights
from tetris_sim.gpu_kernels.faces.boxes import owned_and
from tetris_sim.gpu_kernels.faces.courses import Courses, course_terms
from tetris_sim.gpu_kernels.faces.extents import Extent
from tetris_sim.gpu_kernels.faces.ghosts import Ghosts, NameGhosts, RuledGhosts
from tetris_sim.model.deep_ghosts import free_sides
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
        by_course: whether it needs `Courses` that are right.
    """

    depth: int
    ghosts: int
    by_course: bool

    @property
    def by_rules(self) -> bool:
        """Whether it reads the numbers of rules."""

    def prepare(self, state: State) -> None:
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


class State:
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
            self.body = Body(problem, slab, layout, device, depth)
        self.given = None
        if problem.equations is not None:
            self.given = Given(problem, slab, layout, device, depth)
            self.constants = by_value(constants_of(problem))
        self.courses: Courses | None = None
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
            self.courses = Courses(self.problem, self.device, depth)

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

    def prepare(self, state: State) -> None:
        """Compile."""
        self._state = state
        self._function = state.device.function("plain.cu", "sweep", term_defines(state.problem))
        self._ghosts = Ghosts(
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

    def prepare(self, state: State) -> None:
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

    def prepare(self, state: State) -> None:
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


def _block(state: State) -> tuple[int, int, int]:
    return _SWEEP_BLOCK if state.layout.count[1] > 1 else _SWEEP_BLOCK_1D


def _sweep_grid(box: Box3, block: tuple[int, int, int]) -> tuple[int, int, int]:
    z, y, x = (high - low for low, high in box)
    return -(-x // block[0]), min(-(-y // block[1]), _MOST_BLOCKS), min(z, _MOST_BLOCKS)
