"""The stepper of a body for `cpu.tessellate`, and the compiled loop of all its steppers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.common.stepper import CpuStepper
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.compiled.generate import splice
from tetris_sim.cpu_kernels.tessellate.conducting import OPERANDS
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField
from tetris_sim.cpu_kernels.tessellate.records import make_body, operands_of
from tetris_sim.cpu_kernels.tessellate.rules import code_ghosts, ghost_numbers, source_numbers
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

_MOST_NUMBERS = 1 << 22  # in the tables of one block


def make_loop(problem: Problem, lanes: int) -> Callable[..., None]:
    """The compiled `advance` of `tile_sweep.py`.

    Args:
        problem: gives the dtype, and whether there are rules.
        lanes: elements of a vector, 1 if rows are not lifted.
    """
    real, ruled = np.dtype(problem.dtype).name, problem.conduction is not None
    weight = "int64" if ruled else real
    constants = f"REAL, LANES, WEIGHT, RULED = types.{real}, {lanes}, types.{weight}, {ruled}\n"
    return splice("tessellate/tile_sweep.py", constants).advance  # type: ignore[no-any-return]


class ConductingStepper(CpuStepper):
    """A slab of a body: numbers of ghosts and sources are made for the steps of every block."""

    def __init__(
        self,
        problem: Problem,
        slab: Slab,
        team: ThreadTeam,
        plan: tuple[Any, ...],
        layout: LiftedField,
    ) -> None:
        """Take memory and look at the body.

        Args:
            problem: what to advance.
            slab: which part of it.
            team: the threads.
            plan: the first entries of `plan` in `tile_sweep.py`.
            layout: how points lie in memory.
        """
        compiled = make_loop(problem, layout.lanes)

        def advance(*arguments: Any) -> None:
            compiled(*arguments, (*plan, self._ghosts.codes, self._strides))

        super().__init__(problem, slab, team, advance, layout)
        self._problem = problem
        self._body = make_body(problem, slab, layout)
        self._ghosts = code_ghosts(problem, slab, layout)
        self._strides = (0, 0)
        self._longest = max(1, _MOST_NUMBERS // self._numbers_per_step())

    def advance(self, steps: int) -> None:
        """Advance by `steps`; returns when the last block of them has begun."""
        self.slab.refuse_short_halo(steps, self._radii)
        # What a halo is there for is advanced in one block.
        cut = all(halo == (0, 0) for halo in self.slab.halo)
        longest = self._longest if cut else max(1, steps)
        for first in range(0, steps, longest):
            self._advance_block(min(longest, steps - first))

    def _numbers_per_step(self) -> int:
        """How many numbers change with every step, one if none does."""
        conduction, found = self._problem.conduction, 1
        assert conduction is not None
        if any(rule.changes for rule, _ in self._ghosts.faces):
            found += ghost_numbers(self._problem, self._ghosts, 0, 1).size
        if conduction.source is not None and conduction.source.changes:
            found += conduction.medium.n_ids + len(OPERANDS)
        return found

    def _operands(self, steps: int) -> tuple[Any, ...]:
        # Ghosts are filled for the step behind the last one, too.
        faces = ghost_numbers(self._problem, self._ghosts, self._step, steps + 1)
        self._source = source_numbers(self._problem, self._step, steps)
        operands = operands_of(self._body, self._source)
        self._strides = (
            operands.shape[1] if len(operands) > 1 else 0,
            faces[0].size if len(faces) > 1 else 0,
        )
        layout, geometry = self._layout, self._geometry
        where = (layout.n_fields, layout.field_pitch, geometry.axes, geometry.links)
        return (*where, faces, operands.reshape(-1))
