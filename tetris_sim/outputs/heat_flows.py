"""Heat flows through the faces of a body, and the power of its sources.

Powers are those of the step that begins at the record, as the methods compute it, or of implicit
steps those of the record: through the face of a cell flows K (ghost - mirror). They are per metre
of depth in 2D and per square metre in 1D.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES, Neumann, Side
from tetris_sim.model.conduction import MIRROR, Numbers, Rule, RuledFace
from tetris_sim.model.exchange import NOTHING_AROUND, Around
from tetris_sim.model.formula import evaluate
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Problem
from tetris_sim.model.streams import Span, warmth
from tetris_sim.outputs.materials import BodyMaterials, plane_blocks
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.regions import blocks, exact_sum
from tetris_sim.solvers.assembly import by_temperature
from tetris_sim.solvers.surface_flows import joules_of

_INSULATED = (0.0, 1.0)  # the ghost as offset and factor of its mirror point, without any flow
_CHUNK = 4096  # steps whose powers are computed together


@dataclass(frozen=True)
class Opening:
    """A face through which heat can flow.

    Attributes:
        axis: its axis, array order.
        side: low or high.
        name: its name for users, "x-".
    """

    axis: int
    side: Side
    name: str


def has_heat(problem: Problem) -> bool:
    """Whether the first variable that users see is a temperature with a known energy, so that heat
    flows are known.
    """
    if problem.conduction is not None:
        return True
    return (
        problem.equations is None
        and problem.n_fields == 1
        and problem.variables[0].total.name == "heat"
    )


def heat_column(problem: Problem) -> tuple[str, str]:
    """Name and unit of the heat in a body."""
    total = problem.variables[0].total
    if total.unit.startswith("J"):
        return total.name, total.unit
    # Without a single heat capacity the integral of the temperature is no energy.
    return "heat", ("J/m^2", "J/m", "J")[problem.grid.ndim - 1]


def power_unit(problem: Problem) -> str:
    """The unit of heat flows: that of the heat with watts for joules."""
    return heat_column(problem)[1].replace("J", "W", 1)


def openings(problem: Problem) -> Iterator[Opening]:
    """The faces that are neither periodic nor insulated, or that something moves through,
    those along x first.
    """
    for axis in reversed(range(problem.grid.ndim)):
        if problem.boundary.periodic(axis):
            continue
        for side, sign, face in zip(SIDES, "-+", problem.boundary.faces[axis], strict=True):
            # Insulated: ghosts equal their mirror points at all times.
            insulated = (
                face.lasting == _INSULATED
                if isinstance(face, RuledFace)
                else isinstance(face, Neumann) and face.flux == 0
            )
            plane = tuple((0, n) for n in problem.grid.shape)
            passed = problem.moving and problem.moving.entering(axis, side, plane).any()
            if passed or not insulated:
                yield Opening(axis, side, problem.grid.axis_names[axis] + sign)


def _around(problem: Problem) -> Around:
    return NOTHING_AROUND if problem.moving is None else problem.moving.around


def givers_of(problem: Problem) -> tuple[str, ...]:
    """Return the names of what gives heat to cells of a body by itself."""
    return _around(problem).givers


def given_by(problem: Problem, state: Numbers, span: Span) -> dict[str, float]:
    """Return what each of them gives to a state over a span of time [W]."""
    joules = joules_of(problem)
    found = _around(problem).given(state, span)
    return {name: heat * joules for name, heat in found.items()}


def beside(problem: Problem) -> tuple[tuple[str, str], ...]:
    """Return what is said beside a body, with units: temperatures of lumps and at the ends of
    streams, voltages and currents of electrodes.
    """
    around, unit = _around(problem), problem.variables[0].unit
    streams = around.streams.each if around.streams else ()
    names = (*(it.name for it in around.lumps), *(f"{it.name} outlet" for it in streams))
    ends = around.currents.columns if around.currents else ()
    return (*((name, unit) for name in names), *ends)


def said_beside(problem: Problem, state: Numbers | None, time: float) -> list[float]:
    """Return these numbers beside a state, which lumps do not need."""
    around = _around(problem)
    found = [warmth(it.now, (time, time)) for it in around.lumps]
    if around.streams and state is not None:
        found += around.streams.outlets(state, time).values()
    if around.currents and state is not None:
        found += around.currents.said(state, time)
    return found


def flow_through(opening: Opening, snapshot: Snapshot, *, now: bool = False) -> float:
    """Heat flow into the body through a face, during the step that begins or `now`; only the points
    next to the face are read.
    """
    problem, axis = snapshot.problem.at_rest, opening.axis
    index = 0 if opening.side == "low" else -1
    return math.fsum(
        exact_sum(_flows(problem, opening, box, snapshot, now=now))
        for box in plane_blocks(problem.grid.shape, axis, index)
    )


def _flows(
    problem: Problem, opening: Opening, box: Box, snapshot: Snapshot, *, now: bool
) -> Numbers:
    axis, side = opening.axis, opening.side
    # The stored state, in the arithmetic of the kernels: flows are those of the step itself.
    mirrors = snapshot.hidden(box)[0].astype(problem.arithmetic)
    # Uniform body: the flow into a cell is its conductance times (ghost - cell).
    if problem.conduction is None:
        ((a, b),) = problem.boundary.reflections(
            axis, side, spacing=problem.grid.spacing[axis], width=1
        )
        gaps = a + (b - 1) * mirrors.astype(np.float64)
        return np.asarray(constant_conductance(problem, axis) * gaps)

    body = BodyMaterials(problem)
    ids = body.ids(box)
    inside = reference.potentials(body.conduction, mirrors, ids)
    span = (problem.time(snapshot.step),) * 2 if now else None
    ghosts = reference.ruled_ghosts(
        problem, axis, side, snapshot.step, box=box, ids=ids, inside=inside, span=span
    )
    # The low face of the domain is the upper face of the (absent) cells below it.
    shift = 1 if side == "low" else 0
    (low, high) = box[axis]
    faces = (*box[:axis], (low - shift, high - shift), *box[axis + 1 :])
    beyond = {**inside, MIRROR: ghosts.astype(problem.arithmetic)}
    flows = body.flow(axis, faces, (inside, ids), (beyond, ids))
    if (moving := problem.moving) is not None:
        entering = moving.entering(axis, side, box) * joules_of(problem)
        flows = flows + moving.carried(entering, mirrors, ghosts)
    # A held cell stores nothing, so the flow into it is left out.
    return np.where(body.capacity(box, ids) > 0, flows, 0.0)


def constant_conductance(problem: Problem, axis: int) -> float:
    """Conductance of the face of a cell in a uniform body [W/K].

    The second moment of a step's weights is 2 diffusivity dt; that times rho c gives the
    conductivity. The flow is that between the two points next to the face, exact for stencils of
    radius 1 and of second order for wider ones.
    """
    stencil = problem.stencil
    moment = math.fsum(
        weight * offset[axis] ** 2
        for weight, offset in zip(stencil.weights, stencil.offsets, strict=True)
    )
    rate = moment / 2 / problem.dt  # diffusivity / spacing^2
    return rate * problem.variables[0].total.density * problem.grid.cell_volume


class Sources:
    """Power and heat of the sources of a body.

    Args:
        rule: the rule of the source.
        body: the body.
        implicit: whether steps are implicit, and may be as long as the run.
    """

    def __init__(self, rule: Rule, body: BodyMaterials, *, implicit: bool = False) -> None:
        self._rule, self._body, self._implicit = rule, body, implicit
        has_places = rule.program.reads(*body.problem.grid.axis_names)
        self._reacts = by_temperature(rule)
        # Without coordinates the power is a number per id, and many steps are cheap to sum.
        self._volumes = None if has_places or self._reacts else _volumes(body)
        self._steady: float | None = None

    @property
    def adds_up(self) -> bool:
        """Whether the heat of many steps is known exactly."""
        return self._volumes is not None or not (self._rule.changes or self._reacts)

    def power(self, snapshot: Snapshot) -> float:
        """Total power of the step that begins with a state, or of implicit steps at its beginning
        [W].
        """
        if self._volumes is not None:
            return self._known(snapshot.step, self._volumes)
        if self._rule.changes or self._reacts:
            return self._integral(snapshot)
        # Constant in time: integrated over the body once.
        if self._steady is None:
            self._steady = self._integral(snapshot)
        return self._steady

    def _known(self, step: int, volumes: Numbers) -> float:
        if self._implicit:
            time = self._body.problem.time(step)
            return float(self._power((time, time), volumes))
        return float(self._powers(step, 1, volumes)[0])

    def heat(self, first: int, last: int) -> float:
        """Heat from one step to another [J]; only where `adds_up`."""
        dt = self._body.problem.dt
        if self._volumes is None:
            assert self._steady is not None, "records ask for their power before"
            return (last - first) * self._steady * dt
        if not self._rule.changes:
            return (last - first) * self._known(first, self._volumes) * dt
        if self._implicit:
            times = [self._body.problem.time(step) for step in range(first, last + 1)]
            spans = itertools.pairwise(times)
            return math.fsum((b - a) * self._power((a, b), self._volumes) for a, b in spans)

        # In chunks of steps, which bounds the memory for their powers.
        powers = [
            exact_sum(self._powers(begin, min(_CHUNK, last - begin), self._volumes))
            for begin in range(first, last, _CHUNK)
        ]
        return math.fsum(powers) * dt

    def _power(self, span: tuple[float, float], volumes: Numbers) -> float:
        """The mean total power over a span [s], or at an instant."""
        problem = self._body.problem
        seen = {it.name: it.during(*span) for it in self._rule.parameters}
        with np.errstate(all="ignore"):  # both sides of a condition are computed
            power = np.asarray(evaluate(self._rule.program.tree, seen), problem.arithmetic)
        return float(np.broadcast_to(power, volumes.shape) @ volumes)

    def _powers(self, first: int, steps: int, volumes: Numbers) -> Numbers:
        problem = self._body.problem
        rows = {it.name: it.rows(problem.time, first, steps) for it in self._rule.parameters}
        with np.errstate(all="ignore"):  # both sides of a condition are computed
            power = np.asarray(evaluate(self._rule.program.tree, rows), problem.arithmetic)
        # (steps, ids) times the volume of each id: the total power of every step.
        return np.asarray(np.broadcast_to(power, (steps, len(volumes))) @ volumes)

    def _integral(self, snapshot: Snapshot) -> float:
        body, problem = self._body, self._body.problem
        sums = []
        for box in blocks(problem.grid.shape, 8):
            ids = body.ids(box)
            seen: reference.Seen = {}
            if self._reacts:
                state = snapshot.hidden(box)[0].astype(problem.arithmetic)
                seen = reference.potentials(body.conduction, state, ids)
            codes = ids.astype(np.int64)
            power = reference.follow(self._rule, problem, snapshot.step, box, codes, seen)
            gained = np.where(body.capacity(box, ids) > 0, power * body.volume(box), 0.0)
            sums.append(exact_sum(gained.astype(np.float64)))
        return math.fsum(sums)


def _volumes(body: BodyMaterials) -> Numbers:
    """Volume of the points of each id whose state is not held [m^3], (n_ids,)."""
    volumes = np.zeros(body.conduction.medium.n_ids)
    for box in blocks(body.problem.grid.shape, 8):
        ids = body.ids(box)
        # Without coefficients all cells have one volume, so counting ids suffices.
        if body.conduction.coefficients is None:
            volumes += np.bincount(ids.ravel(), minlength=len(volumes)) * body.volume(box)
        else:
            of_cells = np.where(body.capacity(box, ids) > 0, body.volume(box), 0.0)
            volumes += np.bincount(ids.ravel(), of_cells.ravel(), minlength=len(volumes))
    # Infinite heat capacity marks ids whose state is held.
    return np.where(np.isinf(body.conduction.medium.capacity), 0.0, volumes)
