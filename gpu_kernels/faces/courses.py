"""Courses: what faces that change with time add to ghosts that last for a block of steps, for the
blocks that come, in the memory of a GPU (`ghosts.cu`).
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.rule_numbers import PASSES
from tetris_sim.model.conduction import Parameter
from tetris_sim.model.deep_ghosts import Course, has_course, make_course, next_weight
from tetris_sim.model.grid import LAST
from tetris_sim.model.homogeneous import FaceCourse, face_course
from tetris_sim.model.problem import Problem

_UPLOADS = 2  # that may be under way
_IN_RANGE = 2.0**-40  # of the largest number: terms are at most as large as what faces give
Place = tuple[int, int]  # axis of the problem, side


def course_terms(problem: Problem, depth: int) -> int:
    """Numbers that a launch is told of each face; 0 where no face has a course."""
    return next((made.fit.shape[0] for _, made in _courses(problem, depth).values()), 0)


def are_in_range(problem: Problem, depth: int) -> bool:
    """Whether the type of the problem holds what ghosts of so many steps are made with."""
    most = _IN_RANGE * float(np.finfo(problem.arithmetic).max)
    return all(np.abs(made.parts).max() < most for _, made in _courses(problem, depth).values())


class Courses:
    """A window of launches that moves on; launches are told which of them is theirs.

    Attributes:
        depth: steps of a launch.
    """

    def __init__(self, problem: Problem, device: GpuDevice, depth: int) -> None:
        """Take memory for the numbers of so many launches as are recorded at once."""
        self.depth = depth
        self._problem, self._device = problem, device
        self._courses = _courses(problem, depth)
        n_terms = course_terms(problem, depth)
        self._first, self._right = -sys.maxsize, np.zeros(PASSES, np.bool_)
        self._under_way: deque[tuple[Any, Any]] = deque()

        parts = np.zeros((3, 2, depth, n_terms), problem.arithmetic)
        for (axis, side), (_, made) in self._courses.items():
            parts[LAST[problem.grid.ndim][axis], side] = made.parts
        with device.use() as cupy:
            self._parts = cupy.asarray(parts)
            self._there = cupy.zeros((PASSES, 3, 2, n_terms), problem.arithmetic)

    def are_right(self, step: int, launches: int = 1) -> bool:
        """Whether launches from a step on may fill ghosts that last."""
        row = self.row(step, launches)
        return bool(self._right[row : row + launches].all())

    def row(self, step: int, launches: int = 1) -> int:
        """The number of the launch at a step, of which the window holds some."""
        row, beside = divmod(step - self._first, self.depth)
        if beside or not 0 <= row <= PASSES - launches:
            self._begin_at(step)
            return 0
        return row

    def argument(self, row: int) -> tuple[Any, ...]:
        """The last arguments of `ghosts.cu` for a launch."""
        return self._parts, self._there, np.int32(row)

    def _begin_at(self, step: int) -> None:
        """Let the window begin at a step, for all that is launched from now on."""
        problem, steps = self._problem, PASSES * self.depth
        times = problem.time(step) + np.arange(steps) * problem.dt
        terms = np.zeros(self._there.shape, problem.arithmetic)
        self._right = np.ones(PASSES, np.bool_)
        for (axis, side), (given, made) in self._courses.items():
            a = _values(given.a, times).reshape(PASSES, self.depth)
            found = made.terms(a)
            self._right &= made.right(a, found)
            terms[:, LAST[problem.grid.ndim][axis], side] = found
        self._first = step

        while len(self._under_way) >= _UPLOADS:
            _, done = self._under_way.popleft()
            if done is not None:
                done.synchronize()
        here, held = self._device.bring(terms)
        with self._device.use():
            self._there[...] = here
        self._under_way.append((held, self._device.stream.record()))


def _values(a: Parameter, times: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Numbers of a face at some times. All at once, not as `Parameter.rows` gives them, which takes
    longer than the steps of a line: a rounding more or less is as near.
    """
    values = np.asarray(a.values(times) if callable(a.values) else a.values, np.float64)
    return np.array(np.broadcast_to(values.reshape(-1, 1)[:, 0], times.shape))


def _courses(problem: Problem, depth: int) -> dict[Place, tuple[FaceCourse, Course]]:
    """Those of all faces that have one."""
    found: dict[Place, tuple[FaceCourse, Course]] = {}
    for axis, side in itertools.product(range(problem.grid.ndim), (0, 1)):
        if problem.boundary.periodic(axis) or not has_course(problem, axis, side):
            continue
        given = face_course(problem.boundary.faces[axis][side])
        assert given is not None
        found[axis, side] = given, make_course(next_weight(problem, axis), given.b, depth)
    return found
