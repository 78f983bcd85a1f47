"""Ready: a thread team that waits for its next block in compiled code, halos and edges included.

Made for a slab next to a GPU, whose blocks take few milliseconds: waking every thread through
Python, and copying planes with a single thread, would take as long as the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import Layout, allocate_aligned, pad
from tetris_sim.cpu_kernels.common.stepper import CpuStepper, ThreadTeam
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.method import EdgePlanes, LastingPlanes
from tetris_sim.model.problem import InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.support import usable_cores

Array = npt.NDArray[Any]
Part = tuple[Array, int]  # planes outside, (n_fields, planes, rows, points); first element inside

# About a millisecond of spinning before a thread sleeps, if no other thread needs its core.
_SPINS, _FEW_SPINS = 20_000, 200


@dataclass(frozen=True)
class TimeLoop:
    """A compiled time loop, `compiled(thread, threads, u, v, *before, steps, *after)`.

    Attributes:
        advance: calls it with the arguments of `advance` in `sweep.py`.
        compiled: the loop.
        arguments: of what `CpuStepper` hands over and the barrier, what comes before the number of
            steps and what after it.
    """

    advance: Callable[..., None]
    compiled: Callable[..., None]
    arguments: Callable[[tuple[Any, ...], Array], tuple[tuple[Any, ...], tuple[Any, ...]]]


@dataclass(frozen=True)
class Shape:
    """Shape and strides of the state.

    Attributes:
        n_fields: number of fields.
        pitches: elements from field to field, plane to plane, row to row.
        lanes: elements of a vector.
        vectors: vectors of a row.
        stride: vectors from lane to lane.
    """

    n_fields: int
    pitches: tuple[int, int, int]
    lanes: int
    vectors: int
    stride: int


class Ready:
    """The time loop of one stepper, served by a team that stays in compiled code.

    Args:
        team: the threads, which can do nothing else from `begin` to `end`.
        loop: what advances.
        shape: of the state.
        dtype: of its elements.
        barrier: of the loop.
    """

    def __init__(
        self, team: ThreadTeam, loop: TimeLoop, shape: Shape, dtype: np.dtype[Any], barrier: Array
    ) -> None:
        from tetris_sim.cpu_kernels.compiled import ready
        from tetris_sim.cpu_kernels.compiled.generate import copied_module, splice

        part = (
            f"REAL, LANES = types.{dtype.name}, {shape.lanes}\n"
            f"from {loop.compiled.__module__} import advance\n\n\n"
        )
        self._compiled, self._columns = splice("compiled/ready.py", part), ready
        self._outside = copied_module("compiled/ready.py")
        self._team, self._loop, self._barrier = team, loop, barrier
        # Layout of this array: see `shape` in `compiled/ready.py`.
        numbers = (shape.n_fields, *shape.pitches, shape.vectors, shape.stride)
        self._shape = np.array(numbers, dtype=np.int64)
        # Long enough for the element numbers in `compiled/ready.py`, which lie on separate cache
        # lines; two rows of trips for halos and two for edges.
        self._control, self._trips = np.zeros(96, dtype=np.int64), np.zeros((4, 7), dtype=np.int64)
        spins = _SPINS if team.size < len(usable_cores()) else _FEW_SPINS
        # With as many threads as cores, long spinning would take cores from other work.
        self._control[ready.SPINS], self._control[ready.PATIENCE] = spins, _FEW_SPINS
        self._task = 0
        self._kept: Any = None  # what the task under way reads and writes
        self.begun = False

    def begin(self, state: tuple[Array, Array], operands: tuple[Any, ...]) -> None:
        """Send the team into compiled code, where it waits for tasks.

        Args:
            state: the two arrays.
            operands: as of `CpuStepper`.
        """
        from numba import typeof

        before, after = self._loop.arguments(operands, self._barrier)
        around = (self._control, self._trips, self._shape, self._task)
        rest = (state, before, self._barrier, after)
        serve, size = self._compiled.serve, self._team.size
        # Compile here: an error raised inside one thread would leave the others waiting for it.
        serve.compile(tuple(typeof(it) for it in (0, size, *around, *rest)))
        self._team.start(lambda thread: serve(thread, size, *around, *rest))
        self.begun = True

    def give(
        self, steps: int, turn: int, flips: int, coming: Sequence[Part], leaving: Sequence[Part]
    ) -> None:
        """Assign a task to the team, which must have finished the last one.

        Args:
            steps: of the block; 0 to copy planes only.
            turn: which of the two arrays is the state.
            flips: 1 if the other one is afterwards.
            coming: halos, at most two.
            leaving: edges, at most two.
        """
        columns, control = self._columns, self._control
        # Rows 0 and 1 of `trips` are halos, rows 2 and 3 edges.
        for first, parts in ((0, coming), (2, leaving)):
            for k, (planes, element) in enumerate(parts):
                strides = [pitch // planes.itemsize for pitch in planes.strides[:3]]
                self._trips[first + k] = (
                    *(planes.ctypes.data, *strides, element),
                    *planes.shape[1:3],
                )
        control[columns.STEPS], control[columns.TURN], control[columns.FLIPS] = steps, turn, flips
        control[columns.COMING], control[columns.LEAVING] = len(coming), len(leaving)
        # The compiled side knows addresses only, so references keep the memory alive until `wait`.
        self._kept = coming, leaving
        self._task = self._outside.start(control)

    def wait(self) -> None:
        """Return when the team has finished the task."""
        if self._kept is not None:
            self._outside.await_end(self._control, self._task)
            self._kept = None

    def end(self) -> None:
        """Call the team back from compiled code."""
        if self.begun:
            self.wait()
            # A negative number of steps tells the threads to return to Python.
            self.give(-1, 0, 0, (), ())
            self.wait()
            self._team.wait()
            self.begun = False


# ReadyStepper: a `CpuStepper` whose team stays in compiled code between blocks.
#
# Halos are only recorded when they arrive, and copied by all threads when the next block begins;
# edges have been copied when a block ends. Any other request calls the team back first.

_COPIES = 2  # of an edge: a neighbour may still read the one before


def make_stepper(
    problem: Problem,
    slab: Slab,
    team: ThreadTeam,
    loop: TimeLoop,
    layout: Layout | None = None,
    passes: Callable[[int], int] = int,
) -> CpuStepper:
    """Make a stepper whose team stays in compiled code if the team wants that and the slab permits
    it, else an ordinary one.

    Args:
        problem: what to advance.
        slab: which part of it.
        team: the threads.
        loop: the compiled time loop.
        layout: as for `CpuStepper`.
        passes: as for `CpuStepper`.
    """
    layout = pad(problem, slab) if layout is None else layout
    if team.stays_ready and _can_stay(problem, slab, layout):
        return ReadyStepper(problem, slab, team, loop, layout, passes)

    return CpuStepper(problem, slab, team, loop.advance, layout, passes)


def _can_stay(problem: Problem, slab: Slab, layout: Layout) -> bool:
    """Whether halos and edges are whole rows of numbers that need no conversion."""
    along_first = not any(any(widths) for widths in slab.halo[1:]) and any(slab.halo[0])
    return along_first and problem.grid.ndim > 1 and problem.dtype == problem.arithmetic


class ReadyStepper(CpuStepper):
    """Stepper of a team that stays in compiled code; the Protocol `Stepper` defines the calls.
    Edges may be read until the state has advanced twice more.

    Args:
        problem: what to advance.
        slab: which part of it, with halos along its first axis only.
        team: the threads.
        loop: the compiled time loop.
        layout: how points lie in memory.
        passes: as for `CpuStepper`.
    """

    copies_in_blocks = True

    def __init__(
        self,
        problem: Problem,
        slab: Slab,
        team: ThreadTeam,
        loop: TimeLoop,
        layout: Layout,
        passes: Callable[[int], int],
    ) -> None:
        super().__init__(problem, slab, team, loop.advance, layout, passes)
        # A layout that is not lifted is one of a single lane.
        lanes = getattr(layout, "lanes", 1)
        row = int(layout.count[2])
        shape = Shape(
            layout.n_fields,
            (layout.field_pitch, layout.pitch[0], layout.pitch[1]),
            lanes,
            row,
            getattr(layout, "stride", row),
        )

        self._ready = Ready(team, loop, shape, self._dtype, self._barrier)
        self._first = self._current  # of the arrays, for the team
        self._coming: dict[Side, npt.NDArray[Any]] = {}  # halos that are not in the state yet
        self._left: dict[Side, LastingPlanes] = {}  # edges of the state as it is
        self._memory: dict[Side, list[LastingPlanes]] = {
            side: [self._planes(side) for _ in range(_COPIES)]
            for number, side in enumerate(SIDES)
            if slab.halo[0][number]
        }

    def _planes(self, side: Side) -> LastingPlanes:
        ranges = self.slab.edge_ranges(0, SIDES.index(side))
        shape = (self._layout.n_fields, *(stop - start for start, stop in ranges))
        n_bytes = int(np.prod(shape)) * self._dtype.itemsize
        return LastingPlanes(allocate_aligned(n_bytes, self._dtype, 0).reshape(shape))

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Load the owned points."""
        super().load(initial, step)
        self._left = {}

    def _advance_block(self, steps: int) -> None:
        if self._begun is not None:  # in parts
            self._left = {}
            super()._advance_block(steps)
            return
        # The two arrays swap once per pass, so the parity says which one holds the result.
        odd = self._passes(steps) % 2
        self._give(steps, odd, edges=True)
        self._step += steps
        if odd:
            self._current, self._next = self._next, self._current

    def _give(self, steps: int, odd: int, *, edges: bool = False) -> None:
        """Assign a task: take halos in, advance, and copy the edges if they are wanted."""
        self._ready.wait()
        # The compiled loop keeps both arrays in one order; `turn` says which of them is current.
        if not self._ready.begun:
            self._team.wait()
            self._first = self._current
            self._ready.begin(
                (self._current, self._next), self._operands(steps, self._geometry.axes)
            )

        coming = [self._part(self._coming[side], side, halo=True) for side in self._coming]
        self._coming = {}
        leaving: list[Part] = []
        if edges:
            # Buffers take turns, because a neighbour may still read the previous edge.
            self._left = {side: copies[0] for side, copies in self._memory.items()}
            for copies in self._memory.values():
                copies.append(copies.pop(0))
            leaving = [self._part(it.memory, side, halo=False) for side, it in self._left.items()]
        self._ready.give(steps, int(self._current is not self._first), odd, coming, leaving)

    def _part(self, planes: npt.NDArray[Any], side: Side, *, halo: bool) -> Part:
        """Three-dimensional planes, and the element of the state at which they begin."""
        number = SIDES.index(side)
        ranges: Ranges = (self.slab.halo_ranges if halo else self.slab.edge_ranges)(0, number)
        starts = on_three([start for start, _ in ranges], 0, OUTER)
        layout = self._layout
        first = sum((layout.first[axis] + starts[axis]) * layout.pitch[axis] for axis in range(3))
        # A missing middle axis counts as one row.
        if self._problem.grid.ndim == 2:
            planes = planes[:, :, None, :]
        return planes, int(first)

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """The owned planes that the neighbour on `side` needs."""
        if axis != 0:
            return super().edge(axis, side)
        # The state was loaded or advanced in parts, so its edges have not been copied yet.
        if side not in self._left:
            self._give(0, 0, edges=True)
        self._ready.wait()
        # Each copy is handed out once: afterwards the neighbour owns it.
        return self._left.pop(side)

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Record the planes beyond `side`; the caller must not change them until the next block has
        finished.
        """
        if axis != 0 or self._begun is not None:
            super().set_halo(axis, side, planes)
            return
        # The compiled copy requires adjacent elements along rows.
        values = np.asarray(planes, self._dtype)
        along = values.strides[-1] == values.itemsize
        self._coming[side] = values if along else np.ascontiguousarray(values)

    def wait(self) -> None:
        """Return when the team has finished and halos are in the state."""
        if self._coming:
            self._give(0, 0)
        self._ready.wait()
        if not self._ready.begun:
            super().wait()

    def _rest(self) -> None:
        if self._coming:
            self._give(0, 0)
        self._ready.end()
        super()._rest()
