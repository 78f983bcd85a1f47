"""RuleNumbers: what rules are given in the steps that come, in the memory of a GPU."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.conduction import Rule
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import to_device
from tetris_sim.problem import Problem

# Passes whose numbers are brought at once; an even number, so that after them the arrays of a state
# are back in their places.
PASSES = 32
_UPLOADS = 2  # that may be under way


class RuleNumbers:
    """A window of steps that moves on; launches are told which of its rows is theirs.

    What does not change with time is brought once.

    Attributes:
        there: the numbers, on the GPU.
        places: `struct Place` of all parameters of all rules (`rules.cuh`), on the GPU.
        first_places: number of the first of these of each rule.
    """

    def __init__(
        self, rules: Sequence[Rule], problem: Problem, device: GpuDevice, steps: int
    ) -> None:
        """Take memory for the numbers of so many steps."""
        self._rules, self._problem, self._device, self._steps = rules, problem, device, steps
        self._changes = any(rule.changes for rule in rules)
        self._first = 0
        self._under_way: deque[tuple[Any, Any]] = deque()

        numbers, places = self._tabulate(0)
        with device.use() as cupy:
            self.there = cupy.asarray(numbers)
        self.places = to_device(device, places)
        counts = [max(1, len(rule.parameters)) for rule in rules]
        self.first_places = [sum(counts[:k]) for k in range(len(counts))]

    def row(self, step: int, steps: int) -> int:
        """The row of a step, when those of the `steps` from it on are there."""
        if not self._changes:
            return 0
        if not self._first <= step <= self._first + self._steps - steps:
            self.begin_at(step)
        return step - self._first

    def begin_at(self, step: int) -> None:
        """Let the window begin at a step, for all that is launched from now on."""
        if not self._changes:
            return

        self._bring(self._tabulate(step)[0])
        self._first = step

    def hold(self, values: npt.NDArray[np.float64]) -> None:
        """Let every row have the same numbers, one of each parameter, for all that is launched from
        now on.
        """
        rows = np.append(np.repeat(values, self._steps), 0.0)
        self._bring(rows.astype(self._problem.arithmetic))
        self._first = -sys.maxsize  # of no steps

    def _bring(self, numbers: npt.NDArray[Any]) -> None:
        while len(self._under_way) >= _UPLOADS:
            _, done = self._under_way.popleft()
            if done is not None:
                done.synchronize()
        here, held = self._device.bring(numbers)
        with self._device.use():
            self.there[...] = here
            self._under_way.append((held, self._device.stream.record()))

    def _tabulate(self, step: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """(numbers of all rules from a step on, their places)."""
        problem = self._problem
        tables = [
            rule.tabulate(problem.time, step, self._steps, problem.arithmetic)
            for rule in self._rules
        ]
        begin, places = 0, [np.zeros((0, 3), np.int64)]
        for table in tables:
            places.append(table.places + np.array([begin, 0, 0]))
            begin += table.numbers.size
        nothing = np.zeros(1, problem.arithmetic)
        return (
            np.concatenate([*(table.numbers for table in tables), nothing]),
            np.concatenate(places).astype(np.int32),
        )
