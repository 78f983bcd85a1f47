"""CpuStepper: one slab's state in host memory, advanced by a compiled time loop that all threads of
a team call.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import COUNT, FIRST, REACH, SHRINK, Layout, pad
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.method import Box, EdgePlanes
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab, slices

# Rims: a block of steps in two parts, the interior of a slab while halos are in transit, then the
# halo-dependent regions (rims).
#
# Idea: along the axis of the halos the interior is an upright trapezoid of `tiles.py`: it begins
# with all owned points and loses the radius per step at either end that has a halo. Next to it
# stands the rim, an inverted trapezoid: it begins in the halo and gains the radius per step on its
# inner side. Each reads what the other left behind: a plane that the interior has left after s
# steps lies in one of the two arrays at step s, in the other at step s - 1, and the rim takes both
# before it overwrites them. No point is computed twice, and every one by the same operations as in
# one part.
#
# Layout: both are rows of `axes` (`layout.py`) with other numbers: a compiled loop computes
# FIRST - left * SHRINK .. FIRST + COUNT + left * SHRINK when `left` steps are to come. So the
# interior ends `steps` radii away from the side, and the inner side of a rim has a negative SHRINK.
#
# Test: tests/kernels/test_rims.py

Axes = npt.NDArray[np.int64]  # as of `Geometry`


def begins_inside(problem: Problem, slab: Slab, axis: int, steps: int, threads: int) -> bool:
    """Whether a block of a slab can begin before the halos of an axis have arrived.

    Not along rows, whose units may be vectors, nor with equations, whose stages read values beyond
    the points of a step. The interior must be so long that the reads of a thread's part beyond its
    own ends reach no face.

    Args:
        problem: what is advanced.
        slab: a part of it.
        axis: whose halos are on their way.
        steps: of the block.
        threads: that share the work.
    """
    sides = sum(width > 0 for width in slab.halo[axis])
    width = steps * problem.stencil.radii[axis]
    inside = slab.shape[axis] - sides * width
    possible = problem.equations is None and axis < problem.grid.ndim - 1 and sides * width > 0
    # Each thread needs twice the width that a block reaches, so that parts do not interfere.
    return possible and inside >= 2 * width * threads


def inner_part(axes: Axes, padded: int, halo: tuple[int, int], steps: int) -> Axes:
    """The part of a slab that can advance by `steps` without the halos of an axis.

    Args:
        axes: of the slab.
        padded: the axis, of the three.
        halo: planes beyond (low, high) of it.
        steps: of the block.
    """
    low, high = (steps * int(axes[padded, REACH]) * (width > 0) for width in halo)
    inner = axes.copy()
    inner[padded, FIRST] += low
    inner[padded, COUNT] -= low + high
    return inner


def rims(axes: Axes, padded: int, halo: tuple[int, int], steps: int) -> list[Axes]:
    """The halo-dependent regions that `inner_part` leaves, one for each halo."""
    radius = int(axes[padded, REACH])
    found = []
    for side in (0, 1):
        if halo[side]:
            rim = axes.copy()
            # The high rim begins where the interior ends after the last step.
            rim[padded, FIRST] += side * (axes[padded, COUNT] - steps * radius)
            rim[padded, COUNT] = steps * radius
            # A negative shrink lets the inner side gain the radius with every step.
            rim[padded, SHRINK + 1 - side] = -radius
            found.append(rim)
    return found


# Points loaded at a time, so that no second copy of the slab exists.
_LOAD_POINTS = 1 << 20
_READ_POINTS = 1 << 16  # points copied or searched for NaN at a time: they stay in the L2 cache
_PAGE = 4096  # bytes
_HALF_PAGE = _PAGE // 2


class StepTables(Protocol):
    """Inputs of a step besides the state, some of which change from step to step."""

    @property
    def longest(self) -> int:
        """Steps that one block may have, so that tables stay small."""

    @property
    def arrays(self) -> Any:
        """Inputs that do not change."""

    def tables(self, step: int, steps: int) -> tuple[Any, ...]:
        """Inputs of a block of `steps` steps that begins at step `step`."""


class CpuStepper:
    """Stepper with two arrays of one layout that take turns; the Protocol `Stepper` defines the
    calls.
    """

    def __init__(
        self,
        problem: Problem,
        slab: Slab,
        team: ThreadTeam,
        advance: Callable[..., None],
        layout: Layout | None = None,
        passes: Callable[[int], int] = int,
        step_tables: StepTables | None = None,
    ) -> None:
        """Allocate memory.

        Args:
            problem: what to advance.
            slab: which part of it.
            team: the threads.
            advance: called by each of them with the arguments of `advance` in `sweep.py`.
            layout: how points lie in memory; `pad(problem, slab)` if not given.
            passes: how often the two arrays change places in so many steps; once per step if not
                given.
            step_tables: what `advance` needs besides; it is then called with the arguments of
                `advance` in `medium_sweep.py`, `arrays` and `tables` in place of theirs.
        """
        self.slab = slab
        self._layout = pad(problem, slab) if layout is None else layout
        self._team = team
        self._advance = advance
        self._passes = passes

        # Half a page apart, so that loads from one array do not wait for recent stores to the same
        # offset of the other.
        self._current, self._next = self._layout.allocate(), self._layout.allocate(_HALF_PAGE)
        self._geometry, self._step_tables = self._layout.geometry(problem, slab), step_tables
        self._dtype = np.dtype(
            problem.dtype
        )  # of what comes and goes; memory has that of the layout
        self._weights = np.array(problem.stencil.weights, dtype=problem.arithmetic)
        # Planning, which has no need of compiled code, imports this module too.
        from tetris_sim.cpu_kernels.compiled.barrier import new_barrier

        self._barrier, self._step = new_barrier(), 0
        self._radii = problem.stencil.radii
        self._problem = problem
        self._begun: tuple[int, int] | None = None  # steps and axis of `advance_inner`

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Load the owned points; each thread writes the planes that it will compute, so that their
        pages lie near it (first touch).
        """
        self._rest()
        self._step = step

        def fill(thread: int) -> None:
            for ranges in self._layout.batches(thread, self._team.size, _LOAD_POINTS):
                self._layout.write(self._current, ranges, initial(self.slab.part(ranges)))
            # A step fills the other array before it is read: it only needs its pages.
            part = self._team.split(self._next.size, thread)
            self._next[part.start : part.stop : _PAGE // self._next.itemsize] = 0

        self._team.run(fill)

    def advance_inner(self, steps: int, axis: int) -> None:
        """Begin a block with the points that no halo along `axis` reaches; see "Rims" above."""
        self.slab.refuse_short_halo(steps, self._radii)
        possible = begins_inside(self._problem, self.slab, axis, steps, self._team.size)
        # Not beginning early is always right: `advance` then does the whole block.
        if not possible or steps > self._longest:
            return
        padded, halo = self._layout.axis_of[axis], self.slab.halo[axis]
        inner = inner_part(self._geometry.axes, padded, halo, steps)
        self._rest()
        self._begun = steps, axis
        self._start(steps, self._operands(steps, inner))

    def advance(self, steps: int) -> None:
        """Advance by `steps`; returns at once, while the threads compute."""
        self.slab.refuse_short_halo(steps, self._radii)
        for first in range(0, steps, self._longest):
            self._advance_block(min(self._longest, steps - first))

    @property
    def _longest(self) -> int:
        """Steps that one block may have."""
        return sys.maxsize if self._step_tables is None else max(1, self._step_tables.longest)

    def _advance_block(self, steps: int) -> None:
        self._rest()
        # Rims share arrays of operands, so each must finish before the next one is described.
        *before, last = self._parts(steps)
        for part in before:
            self._start(steps, self._operands(steps, part))
            self._team.wait()  # operands are made anew in the same place
        self._start_block(steps, self._operands(steps, last))

    def _parts(self, steps: int) -> list[Axes]:
        """The parts of a block still to compute: the whole slab, or its rims after
        `advance_inner`.
        """
        begun, self._begun = self._begun, None
        if begun is None:
            return [self._geometry.axes]
        inner_steps, axis = begun
        assert inner_steps == steps
        padded, halo = self._layout.axis_of[axis], self.slab.halo[axis]
        return rims(self._geometry.axes, padded, halo, steps)

    def _start_block(self, steps: int, operands: tuple[Any, ...]) -> None:
        self._start(steps, operands)
        self._step += steps
        # An odd number of passes leaves the result in the other array.
        if self._passes(steps) % 2:
            self._current, self._next = self._next, self._current

    def _start(self, steps: int, operands: tuple[Any, ...]) -> None:
        state, team = (self._current, self._next), self._team
        rest = (*operands, steps, self._barrier)
        team.start(lambda thread: self._advance(thread, team.size, *state, *rest))

    def _operands(self, steps: int, axes: Axes) -> tuple[Any, ...]:
        """Arguments of `advance` between the two arrays and the number of steps, for the points
        described by `axes`.
        """
        layout, geometry = self._layout, self._geometry
        if self._step_tables is not None:
            return self._with_tables(self._step_tables.tables(self._step, steps), axes)
        numbers = (axes, geometry.links, geometry.faces, self._weights)
        return (layout.n_fields, layout.field_pitch, *numbers)

    def _with_tables(self, tables: tuple[Any, ...], axes: Axes) -> tuple[Any, ...]:
        assert self._step_tables is not None
        return (axes, self._step_tables.arrays, *tables)

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """The owned planes that the neighbour on `side` needs, a contiguous copy."""
        self._rest()
        planes = self._layout.read(self._current, self.slab.edge_ranges(axis, SIDES.index(side)))
        # A view would change with the next step; a layout that had to convert has copied already.
        view = np.may_share_memory(planes, self._current)
        return np.array(planes, dtype=self._dtype, order="C", copy=view or None)

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Store the planes beyond `side`; an interior block that has begun without them
        continues.
        """
        # The interior reads no halo, so writing one meanwhile is safe.
        if self._begun is None:
            self._rest()
        values = np.asarray(planes, self._dtype)
        self._layout.write(self._current, self.slab.halo_ranges(axis, SIDES.index(side)), values)

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box` (global indices)."""
        self._rest()
        wanted = self.slab.local(box)
        copy = np.empty(
            (self._layout.n_fields, *(high - low for low, high in wanted)), dtype=self._dtype
        )

        def fill(thread: int) -> None:
            for ranges in self._layout.batches(thread, self._team.size, _READ_POINTS):
                part = tuple(
                    (max(low, start), min(high, stop))
                    for (low, high), (start, stop) in zip(ranges, wanted, strict=True)
                )
                # A batch may lie outside the requested box.
                if all(low < high for low, high in part):
                    copy[slices(part, wanted)] = self._layout.read(self._current, part)

        self._team.run(fill)
        return copy

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite; None if all are
        finite.
        """
        self._rest()
        bad: list[tuple[int, ...]] = []
        lock = threading.Lock()

        def search(thread: int) -> None:
            for ranges in self._layout.batches(thread, self._team.size, _READ_POINTS):
                finite = np.isfinite(self._layout.read(self._current, ranges)).all(axis=0)
                if not finite.all():
                    where = np.unravel_index(int(np.argmin(finite)), finite.shape)
                    with lock:
                        bad.append(
                            tuple(low + int(i) for (low, _), i in zip(ranges, where, strict=True))
                        )

        # Threads finish in any order; the smallest index makes the report reproducible.
        self._team.run(search)
        return self.slab.around(min(bad)) if bad else None

    def wait(self) -> None:
        """Return when the threads have finished."""
        self._team.wait()

    def _rest(self) -> None:
        """Wait until the team is free for something else."""
        self._team.wait()

    def close(self) -> None:
        """Wait for the threads and release the memory."""
        self._rest()
        self._current = self._next = np.empty(0, dtype=self._weights.dtype)


# ThreadTeam: a fixed number of persistent threads that all call the same function.

Task = Callable[[int], None]  # called with the thread's number


@dataclass
class _Round:
    """A task of all threads.

    Waiting changes no counter: an interrupt (Ctrl-C) may come between any two operations of the
    caller, and the next call of `wait` must still know what is in progress.

    Attributes:
        task: what each thread calls.
        given: an item for each thread that was told.
        ended: an item for each that is done.
        failures: what they raised.
    """

    task: Task
    given: deque[None] = field(default_factory=deque)
    ended: deque[None] = field(default_factory=deque)
    failures: deque[BaseException] = field(default_factory=deque)


class ThreadTeam:
    """A team of `size` threads that wait for work, so that starting a task costs microseconds and
    leaves the caller free.

    The caller's own thread is not one of them: it must be free to receive signals while the team
    computes.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            msg = f"a team has at least one thread, got {size}"
            raise ValueError(msg)
        self.size = size
        # Whether steppers should keep the threads in compiled code between their blocks.
        self.stays_ready = False

        self._queues: list[SimpleQueue[_Round | None]] = [SimpleQueue() for _ in range(size)]
        self._round = _Round(lambda thread: None)
        self._ends: SimpleQueue[None] = SimpleQueue()  # wakes who waits: some thread is done
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"team-{number}", daemon=True)
            for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, task: Task) -> None:
        """Let every thread call `task(its number)`; return at once. Waits for an earlier task
        first.
        """
        self.wait()
        while not self._ends.empty():  # of those who were done before anybody waited
            self._ends.get()
        self._round = begun = _Round(task)
        # One call, which no interrupt divides: who is told is counted.
        begun.given.extend(map(SimpleQueue.put, self._queues, itertools.repeat(begun)))

    def wait(self) -> None:
        """Return when all threads have finished; raise what one of them raised."""
        # Items of `_ends` only wake the caller; the lengths of the two deques decide.
        while len(self._round.ended) < len(self._round.given):
            self._ends.get()
        # One failure is raised, and the others are dropped with it.
        if failures := self._round.failures:
            failure = failures[-1]
            failures.clear()
            raise failure

    def run(self, task: Task) -> None:
        """`start` and `wait`."""
        self.start(task)
        self.wait()

    def split(self, n: int, thread: int) -> range:
        """The part of range(n) that belongs to one thread."""
        return range(n * thread // self.size, n * (thread + 1) // self.size)

    def close(self) -> None:
        """End the threads."""
        self.wait()
        # None ends a thread's loop.
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, number: int) -> None:
        while (told := self._queues[number].get()) is not None:
            try:
                told.task(number)
            except BaseException as failure:  # noqa: BLE001  handed to the caller by wait()
                told.failures.append(failure)
            # Recorded before the wake-up, so that a woken caller always finds it.
            told.ended.append(None)
            self._ends.put(None)
