"""ReadyStepper: a `CpuStepper` whose team stays in compiled code between blocks (`ready.py`).

Halos are only remembered when they come, and copied by all threads when the next block begins;
edges are there when a block has ended. Whatever else is asked of the stepper calls the team back
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import Layout, allocate_aligned, pad
from tetris_sim.cpu_kernels.common.ready import Part, Ready, Shape, TimeLoop
from tetris_sim.cpu_kernels.common.stepper import CpuStepper
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.method import EdgePlanes, LastingPlanes
from tetris_sim.model.problem import InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab

_COPIES = 2  # of an edge: a neighbour may still read the one before


def make_stepper(
    problem: Problem,
    slab: Slab,
    team: ThreadTeam,
    loop: TimeLoop,
    layout: Layout | None = None,
    passes: Callable[[int], int] = int,
) -> CpuStepper:
    """A stepper that stays ready if the team wants that and it can, else one that does not.

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
    """Whether halos and edges are whole rows, of the numbers that are outside."""
    along_first = not any(any(widths) for widths in slab.halo[1:]) and any(slab.halo[0])
    return along_first and problem.grid.ndim > 1 and problem.dtype == problem.arithmetic


class ReadyStepper(CpuStepper):
    """See the Protocol `Stepper` for what the calls mean; edges may be read until the state has
    advanced twice more.

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
        """Take the owned points."""
        super().load(initial, step)
        self._left = {}

    def _advance_block(self, steps: int) -> None:
        if self._begun is not None:  # in parts
            self._left = {}
            super()._advance_block(steps)
            return
        odd = self._passes(steps) % 2
        self._give(steps, odd, edges=True)
        self._step += steps
        if odd:
            self._current, self._next = self._next, self._current

    def _give(self, steps: int, odd: int, *, edges: bool = False) -> None:
        """Let the team take halos in, advance, and copy edges if they are wanted."""
        self._ready.wait()
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
            self._left = {side: copies[0] for side, copies in self._memory.items()}
            for copies in self._memory.values():
                copies.append(copies.pop(0))
            leaving = [self._part(it.memory, side, halo=False) for side, it in self._left.items()]
        self._ready.give(steps, int(self._current is not self._first), odd, coming, leaving)

    def _part(self, planes: npt.NDArray[Any], side: Side, *, halo: bool) -> Part:
        """Planes of three axes, and the first element of their place in the state."""
        number = SIDES.index(side)
        ranges: Ranges = (self.slab.halo_ranges if halo else self.slab.edge_ranges)(0, number)
        starts = on_three([start for start, _ in ranges], 0, OUTER)
        layout = self._layout
        first = sum((layout.first[axis] + starts[axis]) * layout.pitch[axis] for axis in range(3))
        if self._problem.grid.ndim == 2:
            planes = planes[:, :, None, :]
        return planes, int(first)

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """The owned planes that the neighbour on `side` needs."""
        if axis != 0:
            return super().edge(axis, side)
        if side not in self._left:
            self._give(0, 0, edges=True)
        self._ready.wait()
        return self._left.pop(side)

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Remember the planes beyond `side`, which must be left alone until the next block is
        done.
        """
        if axis != 0 or self._begun is not None:
            super().set_halo(axis, side, planes)
            return
        values = np.asarray(planes, self._dtype)
        along = values.strides[-1] == values.itemsize
        self._coming[side] = values if along else np.ascontiguousarray(values)

    def wait(self) -> None:
        """Return when the team is done, and halos are in the state."""
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
