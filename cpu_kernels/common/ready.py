"""Ready: a team that waits for its next block in compiled code, halos and edges included.

For a slab beside a GPU, whose blocks take few milliseconds: what Python spends on each thread of a
team, and one thread on the copies of planes, would take as long as the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.blocking import usable_cores
from tetris_sim.cpu_kernels.common.threads import ThreadTeam

Array = npt.NDArray[Any]
Part = tuple[Array, int]  # planes outside, (n_fields, planes, rows, points); first element inside

# About a millisecond of waiting before a thread sleeps, where it keeps nobody from a core.
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
    """How points lie in the state.

    Attributes:
        n_fields: number of fields.
        pitches: elements from field to field, plane to plane, row to row.
        lanes: elements of a vector.
        vectors: of a row.
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
        numbers = (shape.n_fields, *shape.pitches, shape.vectors, shape.stride)
        self._shape = np.array(numbers, dtype=np.int64)
        self._control, self._trips = np.zeros(96, dtype=np.int64), np.zeros((4, 7), dtype=np.int64)
        spins = _SPINS if team.size < usable_cores() else _FEW_SPINS
        self._control[ready.SPINS], self._control[ready.PATIENCE] = spins, _FEW_SPINS
        self._task = 0
        self._kept: Any = None  # what the task under way reads and writes
        self.begun = False

    def begin(self, state: tuple[Array, Array], operands: tuple[Any, ...]) -> None:
        """Let the team wait for tasks.

        Args:
            state: the two arrays.
            operands: as of `CpuStepper`.
        """
        from numba import typeof

        before, after = self._loop.arguments(operands, self._barrier)
        around = (self._control, self._trips, self._shape, self._task)
        rest = (state, before, self._barrier, after)
        serve, size = self._compiled.serve, self._team.size
        # Here, since nobody would hear of a thread that fails while others wait for it.
        serve.compile(tuple(typeof(it) for it in (0, size, *around, *rest)))
        self._team.start(lambda thread: serve(thread, size, *around, *rest))
        self.begun = True

    def give(
        self, steps: int, turn: int, flips: int, coming: Sequence[Part], leaving: Sequence[Part]
    ) -> None:
        """Give a task to the team, which must be done with the last one.

        Args:
            steps: of the block; 0 to copy planes only.
            turn: which of the two arrays is the state.
            flips: 1 if the other one is afterwards.
            coming: halos, at most two.
            leaving: edges, at most two.
        """
        columns, control = self._columns, self._control
        for first, parts in ((0, coming), (2, leaving)):
            for k, (planes, element) in enumerate(parts):
                strides = [pitch // planes.itemsize for pitch in planes.strides[:3]]
                self._trips[first + k] = (
                    *(planes.ctypes.data, *strides, element),
                    *planes.shape[1:3],
                )
        control[columns.STEPS], control[columns.TURN], control[columns.FLIPS] = steps, turn, flips
        control[columns.COMING], control[columns.LEAVING] = len(coming), len(leaving)
        self._kept = coming, leaving
        self._task = self._outside.start(control)

    def wait(self) -> None:
        """Return when the team is done with the task."""
        if self._kept is not None:
            self._outside.await_end(self._control, self._task)
            self._kept = None

    def end(self) -> None:
        """Let the team do other things."""
        if self.begun:
            self.wait()
            self.give(-1, 0, 0, (), ())
            self.wait()
            self._team.wait()
            self.begun = False
