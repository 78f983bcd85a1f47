"""How much heat flows through the faces of a body, and how much do its sources give?

Powers are those of the step that begins at that moment, as methods compute it: through the face of
a cell flows K (ghost - mirror). They are per metre of depth in 2D and per square metre in 1D.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES, Neumann, Side
from tetris_sim.model.conduction import MIRROR, Numbers, Rule, RuledFace
from tetris_sim.model.formula import evaluate
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.materials import BodyMaterials, plane_blocks
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.regions import blocks, exact_sum

_INSULATED = (0.0, 1.0)  # what a ghost is of its mirror point where nothing flows
_CHUNK = 4096  # steps whose powers are computed together


@dataclass(frozen=True)
class Opening:
    """A face through which heat can flow.

    Attributes:
        axis: which axis, array order.
        side: which of its two faces.
        name: for people, "x-".
    """

    axis: int
    side: Side
    name: str


def has_heat(problem: Problem) -> bool:
    """Whether what people see first is a temperature that stands for an energy, so that flows are
    known.
    """
    if problem.conduction is not None:
        return True
    return (
        problem.equations is None
        and problem.n_fields == 1
        and problem.variables[0].total.name == "heat"
    )


def heat_column(problem: Problem) -> tuple[str, str]:
    """Name and unit of the heat that a body holds."""
    total = problem.variables[0].total
    if total.unit.startswith("J"):
        return total.name, total.unit
    # There is no one heat capacity, which would make an energy of the integral.
    return "heat", ("J/m^2", "J/m", "J")[problem.grid.ndim - 1]


def power_unit(problem: Problem) -> str:
    """The unit of flows of heat: that of the heat with watts for joules."""
    return heat_column(problem)[1].replace("J", "W", 1)


def openings(problem: Problem) -> Iterator[Opening]:
    """The faces that are neither periodic nor insulated, along x first."""
    for axis in reversed(range(problem.grid.ndim)):
        if problem.boundary.periodic(axis):
            continue
        for side, sign, face in zip(SIDES, "-+", problem.boundary.faces[axis], strict=True):
            insulated = (
                face.lasting == _INSULATED
                if isinstance(face, RuledFace)
                else isinstance(face, Neumann) and face.flux == 0
            )
            if not insulated:
                yield Opening(axis, side, problem.grid.axis_names[axis] + sign)


def flow_through(opening: Opening, snapshot: Snapshot) -> float:
    """Heat that flows into the body through a face; only the points beside it are read."""
    problem, axis = snapshot.problem, opening.axis
    index = 0 if opening.side == "low" else -1
    return math.fsum(
        exact_sum(_flows(problem, opening, box, snapshot))
        for box in plane_blocks(problem.grid.shape, axis, index)
    )


def _flows(problem: Problem, opening: Opening, box: Box, snapshot: Snapshot) -> Numbers:
    axis, side = opening.axis, opening.side
    mirrors = snapshot.hidden(box)[0].astype(problem.arithmetic)
    if problem.conduction is None:
        ((a, b),) = problem.boundary.reflections(
            axis, side, spacing=problem.grid.spacing[axis], width=1
        )
        gaps = a + (b - 1) * mirrors.astype(np.float64)
        return np.asarray(constant_conductance(problem, axis) * gaps)

    body = BodyMaterials(problem)
    ids = body.ids(box)
    inside = reference.potentials(body.conduction, mirrors, ids)
    ghosts = reference.ruled_ghosts(
        problem, axis, side, snapshot.step, box=box, ids=ids, inside=inside
    )
    # The low face of the domain is the upper one of the cells below it.
    shift = 1 if side == "low" else 0
    (low, high) = box[axis]
    faces = (*box[:axis], (low - shift, high - shift), *box[axis + 1 :])
    beyond = {**inside, MIRROR: ghosts.astype(problem.arithmetic)}
    flows = body.flow(axis, faces, (inside, ids), (beyond, ids))
    return np.where(body.capacity(box, ids) > 0, flows, 0.0)


def constant_conductance(problem: Problem, axis: int) -> float:
    """Of the face of a cell of a body that is the same everywhere [W/K].

    The second moment of a step's weights is 2 diffusivity dt, that times rho c the conductivity.
    The flow is that of the two points beside the face, as a stencil of radius 1 makes it; for wider
    ones it is one of second order.
    """
    stencil = problem.stencil
    moment = math.fsum(
        weight * offset[axis] ** 2
        for weight, offset in zip(stencil.weights, stencil.offsets, strict=True)
    )
    rate = moment / 2 / problem.dt  # diffusivity / spacing^2
    return rate * problem.variables[0].total.density * problem.grid.cell_volume


class Sources:
    """What the sources of a body give.

    Args:
        rule: what heats it.
        body: the body.
    """

    def __init__(self, rule: Rule, body: BodyMaterials) -> None:
        self._rule, self._body = rule, body
        has_places = not set(body.problem.grid.axis_names).isdisjoint(rule.program.inputs)
        # Without coordinates a source is a number per id, and any number of steps cheap to add up.
        self._volumes = None if has_places else _volumes(body)
        self._steady: float | None = None

    @property
    def adds_up(self) -> bool:
        """Whether the heat of many steps is known exactly."""
        return self._volumes is not None or not self._rule.changes

    def power(self, step: int) -> float:
        """At a step [W]."""
        if self._volumes is not None:
            return float(self._powers(step, 1, self._volumes)[0])
        if self._rule.changes:
            return self._integral(step)
        if self._steady is None:
            self._steady = self._integral(0)
        return self._steady

    def heat(self, first: int, last: int) -> float:
        """Given from one step to another [J], where it adds up."""
        dt = self._body.problem.dt
        if self._volumes is None or not self._rule.changes:
            return (last - first) * self.power(first) * dt
        powers = [
            exact_sum(self._powers(begin, min(_CHUNK, last - begin), self._volumes))
            for begin in range(first, last, _CHUNK)
        ]
        return math.fsum(powers) * dt

    def _powers(self, first: int, steps: int, volumes: Numbers) -> Numbers:
        problem = self._body.problem
        rows = {it.name: it.rows(problem.time, first, steps) for it in self._rule.parameters}
        with np.errstate(all="ignore"):  # both sides of a condition are computed
            power = np.asarray(evaluate(self._rule.program.tree, rows), problem.arithmetic)
        return np.asarray(np.broadcast_to(power, (steps, len(volumes))) @ volumes)

    def _integral(self, step: int) -> float:
        body, problem = self._body, self._body.problem
        sums = []
        for box in blocks(problem.grid.shape, 8):
            ids = body.ids(box)
            power = reference.follow(self._rule, problem, step, box, ids.astype(np.int64), {})
            gained = np.where(body.capacity(box, ids) > 0, power * body.volume(box), 0.0)
            sums.append(exact_sum(gained.astype(np.float64)))
        return math.fsum(sums)


def _volumes(body: BodyMaterials) -> Numbers:
    """Of the points of each id whose state is not held [m^3], (n_ids,)."""
    volumes = np.zeros(body.conduction.medium.n_ids)
    for box in blocks(body.problem.grid.shape, 8):
        ids = body.ids(box)
        if body.conduction.coefficients is None:
            volumes += np.bincount(ids.ravel(), minlength=len(volumes)) * body.volume(box)
        else:
            of_cells = np.where(body.capacity(box, ids) > 0, body.volume(box), 0.0)
            volumes += np.bincount(ids.ravel(), of_cells.ravel(), minlength=len(volumes))
    return np.where(np.isinf(body.conduction.medium.capacity), 0.0, volumes)
