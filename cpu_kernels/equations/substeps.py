"""Substeps on the CPU: sweeps of any length, which can be taken back, and how large their errors
are.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import PaddedField
from tetris_sim.cpu_kernels.common.stepper import CpuStepper
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.equations.plain import Sweeps
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Array = npt.NDArray[Any]
_READ_POINTS = 1 << 16  # points that are looked at together: they stay in the L2 cache


class SubstepStepper(CpuStepper):
    """A stepper of sweeps that also makes substeps; see the Protocol `Substepper`."""

    def __init__(
        self, problem: Problem, slab: Slab, team: ThreadTeam, sweeps: Sweeps, layout: PaddedField
    ) -> None:
        super().__init__(problem, slab, team, sweeps, layout, step_tables=sweeps)
        assert problem.equations is not None
        assert problem.equations.substeps is not None
        names = problem.equations.substeps.errors
        self._errors = [sweeps.work_of(names[field]) for field in problem.equations.fields]
        self._sweeps, self._one = sweeps, PaddedField(**{**vars(layout), "n_fields": 1})

    def substep(self, time: float, length: float) -> None:
        """Make one; returns at once."""
        self.slab.refuse_short_halo(1, self._radii)
        self._team.wait()
        tables = self._sweeps.substep(time, length)
        self._start_block(1, self._with_tables(tables, self._geometry.axes))

    def undo(self) -> None:
        """Let the state be what it was before the last substep."""
        self._team.wait()
        self._current, self._next = self._next, self._current
        self._step -= 1

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of each field and of its error, (2, n_fields)."""
        self._team.wait()
        if self.slab.n_points <= _READ_POINTS:
            return self._look(0, 1)  # sooner done than handed over
        lock, found = threading.Lock(), np.zeros((2, len(self._errors)))

        def look(thread: int) -> None:
            seen = self._look(thread, self._team.size)
            with lock:
                np.maximum(found, seen, out=found)

        self._team.run(look)
        return found

    def _look(self, part: int, parts: int) -> npt.NDArray[np.float64]:
        found = np.zeros((2, len(self._errors)))
        for ranges in self._layout.batches(part, parts, _READ_POINTS):
            values = [*self._layout.read(self._current, ranges)]
            errors = [self._one.read(flat, ranges)[0] for flat in self._errors]
            for row, fields in zip(found, (values, errors), strict=True):
                row[:] = np.maximum(row, [max(it.max(), -it.min()) for it in fields])
        return found
