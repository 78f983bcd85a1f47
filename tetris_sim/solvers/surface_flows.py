"""Flows into a body from elsewhere: through faces, from cells that are held, from sources.

These are the parts of a linear system that an audit asks for, in the system's own units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.conduction import Ids, Numbers
from tetris_sim.model.problem import Problem
from tetris_sim.solvers.assembly import Values


@dataclass(frozen=True, eq=False)
class SurfaceFlows:
    """The flows into the cells that are not held from elsewhere, in the units of a linear system.

    Attributes:
        faces: by axis and side, d and f of the outermost plane of cells.
        ways: by axis, conductances to held cells and the shift that leads there.
        heat: what sources give to each cell; None without sources, and where `given` says it.
        given: the sum of the same.
        ids: of all cells; asked for if there are ways to held cells.
        links: by axis and side, with enthalpies, conductances by potential to the points beyond a
            face, and d where it may be negative, as far as cells conduct more when they warm.
    """

    faces: Mapping[tuple[int, Side], tuple[Values, Values]]
    ways: Sequence[tuple[int, Numbers, int]] = ()
    heat: Values | None = None
    given: float | None = None
    ids: Callable[[], Ids] | None = None
    links: Mapping[tuple[int, Side], tuple[Values, Values]] = field(default_factory=dict)

    def flows(self, problem: Problem, drive: Numbers) -> dict[str, float]:
        """Return the sums of flows into the cells: of the faces "x-", ..., of each held id "#3",
        and of "sources".

        Args:
            problem: whose cells.
            drive: driving quantity of all cells, at the point of linearization.
        """
        found: dict[str, float] = {}
        for (axis, side), (d, f) in self.faces.items():
            here = plane(drive, axis, 0 if side == "low" else drive.shape[axis] - 1)
            name = face_name(problem, axis, side)
            found[name] = float((f - d * here).sum())

        for axis, k, shift in self.ways:
            assert self.ids is not None
            # Only cells beside held ones, which are few.
            at = k > 0
            theirs = np.roll(drive, shift, axis)[at], np.roll(self.ids(), shift, axis)[at]
            by_id = np.bincount(theirs[1], k[at] * (theirs[0] - drive[at]))
            for number in np.unique(theirs[1]):
                name = held_name(int(number))
                found[name] = found.get(name, 0.0) + float(by_id[number])
        if self.given is not None:
            found[SOURCES] = self.given
        elif self.heat is not None:
            found[SOURCES] = float(self.heat.sum())
        return found


SOURCES = "sources"


def joules_of(problem: Problem) -> float:
    """Return what a flow of a linear system is in watts: such a flow is per volume, or in total
    with coefficients per cell.
    """
    cell = problem.grid.cell_volume
    if not problem.conduction:
        return problem.variables[0].total.density * cell
    return 1.0 if problem.conduction.coefficients else cell


def face_name(problem: Problem, axis: int, side: Side) -> str:
    """Return the name of a face, "x-"."""
    return problem.grid.axis_names[axis] + "-+"[SIDES.index(side)]


def held_name(number: int) -> str:
    """Return the name of the cells of a held id, as of a surface."""
    return f"#{number}"


def plane(values: Any, axis: int, at: int) -> Any:
    """Return one plane across an axis, as a view to be changed."""
    return values[(slice(None),) * axis + (slice(at, at + 1),)]
