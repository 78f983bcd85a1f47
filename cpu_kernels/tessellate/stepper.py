"""The stepper of a body for `cpu.tessellate`, and the compiled loop of all its steppers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.common.rims import Axes
from tetris_sim.cpu_kernels.common.stepper import CpuStepper
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.compiled.generate import splice
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField
from tetris_sim.cpu_kernels.tessellate.operands import Operands
from tetris_sim.cpu_kernels.tessellate.records import make_body
from tetris_sim.cpu_kernels.tessellate.rules import code_ghosts
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_MOST_NUMBERS = 1 << 22  # in the tables of one block
_SIDE_BY_SIDE, _WITH_POTENTIALS = 8, 32


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


def side_by_side(problem: Problem) -> int:
    """Planes near a face that are computed together before their ghosts are filled: few, so that
    they are in the first-level cache still, but more where potentials of the planes around them are
    made anew.
    """
    if problem.conduction is not None and problem.conduction.enthalpy is not None:
        return _WITH_POTENTIALS
    return 1 if problem.grid.ndim == 3 else _SIDE_BY_SIDE


class ConductingStepper(CpuStepper):
    """A slab of a body: numbers of ghosts and sources are made for the steps of every block."""

    def __init__(
        self,
        problem: Problem,
        slab: Slab,
        team: ThreadTeam,
        plan: tuple[Any, ...],
        layout: LiftedField,
        together: tuple[int, int],
    ) -> None:
        """Take memory and look at the body.

        Args:
            problem: what to advance.
            slab: which part of it.
            team: the threads.
            plan: the first entries of `plan` in `tile_sweep.py`.
            layout: how points lie in memory.
            together: rows that are computed together, and planes near a face.
        """
        compiled = make_loop(problem, layout.lanes)
        jam, planes = together

        def advance(*arguments: Any) -> None:
            operands = self._operands_of_body
            rest = (self._ghosts.codes, operands.strides, operands.ghost, planes)
            compiled(*arguments, (*plan, *rest))

        super().__init__(problem, slab, team, advance, layout)
        self._ghosts = code_ghosts(problem, slab, layout)
        body = make_body(problem, slab, layout)
        self._operands_of_body = Operands(problem, slab, layout, body, self._ghosts, jam, team)

    @property
    def _longest(self) -> int:
        # What a halo is there for is advanced in one block.
        alone = all(halo == (0, 0) for halo in self.slab.halo)
        return max(1, _MOST_NUMBERS // self._operands_of_body.per_step) if alone else sys.maxsize

    def _operands(self, steps: int, axes: Axes) -> tuple[Any, ...]:
        layout, geometry = self._layout, self._geometry
        where = (layout.n_fields, layout.field_pitch, axes, geometry.links)
        return (*where, *self._operands_of_body.of_block(self._step, steps))
