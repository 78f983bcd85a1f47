"""Moving bodies as equations: conduction, what motion carries, faces and sources as one right-hand
side of taps and coefficients.

With K the conductance of the face to a neighbour and F the heat capacity that crosses it, the heat
of a cell changes by

    sum of K (T_j - T)  -  sum of F T_face  +  what faces of the domain and sources give,

over its neighbours j. T_face is the mean of both sides, the upwind one, or the upwind one with a
limited slope. Faces of the domain exchange with their ghosts as those of a body at rest; what
enters the domain has the temperature of the face, what leaves it that of the cell, or with central
differences that of the face. All of this are numbers by cell and step, so every method of
equations, explicit or not, moves heat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

from tetris_sim.apps.domain import integration
from tetris_sim.apps.pde.fluxes import SLOPES
from tetris_sim.apps.time_functions import formula, substitute
from tetris_sim.config.sections.schema import TimeSection
from tetris_sim.errors import ConfigError
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES, Boundary, Face, Neumann, Periodic, Side
from tetris_sim.model.conduction import (
    MIRROR,
    Conduction,
    Numbers,
    Parameter,
    Rule,
)
from tetris_sim.model.equations import (
    Elliptic,
    Equations,
    Moving,
    Stage,
    Substeps,
    tap,
)
from tetris_sim.model.exchange import NOTHING_AROUND, Around, LumpSolution
from tetris_sim.model.formula import Constant, Node, Variable
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem, passage
from tetris_sim.model.slab import Ranges
from tetris_sim.model.stencil import star_mean
from tetris_sim.model.step_control import Signal

Advection = Literal["auto", "central", "upwind", "minmod", "van_leer", "superbee"]
OSCILLATES = 2.0  # cell Peclet number above which central differences may
# How many times shorter than with the first order a step has to be with limited slopes (`fluxes`).
_SHORTER = {"central": 0.0, "upwind": 1.0}
_MOST_CODES = 64  # of which a number that changes with time may have one each
_GIVEN = 1e-9  # by which a ghost that is given may follow its mirror point, per degree
_NEW, _RATE = "temperature_new", "temperature_rate"
_SEEN, _RADIATED = "temperature_seen", "radiated"
OfBox = Callable[[Ranges], Numbers]


@dataclass(frozen=True, eq=False)
class Carrying:
    """How much heat capacity moves, and how it is taken from cell to cell.

    Attributes:
        flows: see `Moving`.
        advection: how the temperature of a face follows from those of cells.
        peclet: the largest cell Peclet number, F / K of a face.
        dt_limit: largest stable time step [s].
        around: what else exchanges heat with cells.
    """

    flows: tuple[Numbers, ...]
    advection: str
    peclet: float
    dt_limit: float
    around: Around = NOTHING_AROUND

    @property
    def note(self) -> str:
        """Say what the cell Peclet number means for the answer."""
        said = f"what moves has a cell Peclet number of up to {self.peclet:.3g}, and is carried by "
        said += f"{self.advection} differences"
        if self.advection == "central" and self.peclet > OSCILLATES:
            return (
                f"{said}: above {OSCILLATES:g} these oscillate where temperatures are steep; take "
                "van_leer or finer cells"
            )
        if self.advection == "upwind":
            share = self.peclet / 2
            return f"{said}, which conduct up to {share:.3g} of the conductivity on top of it"
        return said


def carry(
    grid: Grid,
    body: Conduction,
    flows: tuple[Numbers, ...],
    wanted: Advection,
    still: float,
    around: Around,
) -> Carrying:
    """Choose how heat is carried, and find the largest stable step.

    With central differences a step is stable if it is so at rest, and if dt times the sum of
    F^2 / (K C) is at most 2 (A. C. Hindmarsh et al., Int. J. Numer. Methods Fluids 4 (1984) 853).

    Args:
        grid: where cells lie.
        body: at rest.
        flows: see `Moving`.
        wanted: the scheme; auto is central where that does not oscillate, else van_leer.
        still: the largest stable step at rest [s].
        around: what else exchanges heat with cells.
    """
    whole: Ranges = tuple((0, n) for n in grid.shape)
    ids = body.medium.ids(whole)
    # Of a cell: degrees per second that a heat of 1 changes it by.
    rates = body.rates(1.0, whole)
    # By cell: heat capacity that leaves per second, and Hindmarsh's F^2/(K C), summed over its
    # faces.
    peclet, leaving, steep = 0.0, np.zeros(grid.shape), np.zeros(grid.shape)
    for axis, flow in enumerate(flows):
        n = grid.shape[axis]
        low, high = np.take(flow, range(n), axis), np.take(flow, range(1, n + 1), axis)
        k = body.between(axis, whole, ids, ids)
        fastest = np.maximum(abs(low), abs(high))
        moved = fastest > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            peclet = max(peclet, float(np.where(moved, fastest / k, 0.0).max()))
            steep += np.where(moved, fastest**2 / (2 * k), 0.0) * rates
        leaving += (np.maximum(high, 0.0) - np.minimum(low, 0.0)) * rates

    advection = wanted
    if wanted == "auto":
        advection = "central" if peclet <= OSCILLATES else "van_leer"
    # The reciprocal of a step is a sum: conduction, what moves, and what surroundings take each
    # claim a share of it.
    most = _SHORTER.get(advection, 2.0) * float(leaving.max()) + 1 / still
    most = max(most, float(steep.max()) if advection == "central" else 0.0)
    most += sum(float((takes * rates).max()) for takes in around.takes)
    limit = 1 / most if most > 0 else math.inf
    return Carrying(flows, advection, peclet, limit, around)


def set_in_motion(rest: Problem, carrying: Carrying, time: TimeSection) -> Problem:
    """Return the problem of a body that moves.

    Args:
        rest: the body at rest.
        carrying: what moves.
        time: how steps are made.

    Raises:
        ConfigError: something enters the domain whose temperature is not given.
    """
    central = carrying.advection == "central"
    around = carrying.around
    if time.scheme == "steady" and around.network and around.network.changes:
        msg = (
            "model.lumps: powers or surroundings change with time, so nothing stays as it is; give "
            "numbers"
        )
        raise ConfigError(msg)
    if time.scheme == "steady" and around.streams and around.streams.changes:
        msg = (
            "model.streams: a flow changes with time, so nothing stays as it is; give a number, or "
            "take implicit steps"
        )
        raise ConfigError(msg)
    if time.solves and around.network:
        whole: Ranges = tuple((0, n) for n in rest.grid.shape)
        solution = LumpSolution(around.network, rest.body.rates(1.0, whole))
        around = replace(around, solution=solution)
    moving = Moving(rest.body, rest.boundary, carrying.flows, central, around)
    # From here on the body is a problem of equations, so every kernel of equations can advance it.
    made = _Terms(rest, moving)
    tree = made.right_side(carrying.advection)
    name, rates, before, apart = _NEW, None, list[Stage](), dict[str, Any]()
    if time.solves:
        name = _RATE
        rates = integration(time, rest.dtype, made.numbers, adaptive=time.is_adaptive)
    else:
        made.parameters.append(Parameter("dt", np.array([rest.dt])))
        if around.looked_at:
            # What surfaces see of each other, and streams take along, is looked at between stages.
            # A copy first: the exchange is looked at when all points of the state are there.
            before = [Stage({_SEEN: formula("u + 0", u=made.here)})]
            solve = Elliptic(
                {_RADIATED: _SEEN}, {}, lambda seen, _, __, span: [around.heat(seen[0], span)]
            )
            apart = {"elliptic": (solve,), "substeps": made.one_step}
            tree = formula("t + r*q", t=tree, r=made.rate, q=made.array(_RADIATED, made.nothing))
        tree = formula("u + dt*r", u=made.here, dt=Variable("dt"), r=tree)

    # Faces of the domain are part of the right-hand side: nothing flows to ghosts.
    mirrors = Boundary(tuple((_mirror(low), _mirror(high)) for low, high in rest.boundary.faces))
    field_name = rest.variables[0].name
    equations = Equations(
        (field_name,),
        (*before, Stage({name: tree})),
        {field_name: name},
        {field_name: mirrors},
        tuple(made.parameters),
        made.coefficients,
        frozenset(made.outside),
        rates=rates,
        courses=tuple(it for it in (*made.parameters, *around.courses) if it.changes),
        **apart,
    )
    return replace(
        rest,
        stencil=star_mean(rest.grid.ndim, equations.radii),
        boundary=mirrors,
        conduction=None,
        equations=equations,
        moving=moving,
    )


def as_equations_at_rest(rest: Problem) -> Problem:
    """Write the explicit step of a body that does not move as one of equations.

    Args:
        rest: of a body without k(T) and melting.

    Raises:
        ConfigError: something in it changes with time in too many ways.
    """
    # A body whose heat capacity moves by nothing.
    shape = rest.grid.shape
    flows = tuple(
        np.zeros([n + (k == axis) for k, n in enumerate(shape)]) for axis in range(len(shape))
    )
    still = Carrying(flows, "central", 0.0, rest.dt_limit)
    return replace(set_in_motion(rest, still, TimeSection(steps=rest.steps)), moving=None)


def _mirror(face: Face) -> Face:
    return face if isinstance(face, Periodic) else Neumann()


@dataclass
class _Terms:
    """The parts of a right-hand side.

    Attributes:
        rest: the body at rest.
        moving: what moves in it.
        coefficients: by name.
        outside: names of those that are not mirrored.
        parameters: numbers by time.
    """

    rest: Problem
    moving: Moving
    coefficients: dict[str, OfBox] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    parameters: list[Parameter] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._centre = (0,) * self.rest.grid.ndim
        self.here = tap(self.rest.variables[0].name, self._centre)
        shape = self.rest.grid.shape
        self._whole: Ranges = tuple((0, n) for n in shape)
        # What faces and sources give at 0 degrees, and what they take per degree.
        self._heat, self._exchange = np.zeros(shape), np.zeros(shape)
        self.nothing, self.rate = np.zeros(shape), cast("Node", self.here)

    def numbers(self, moment: float) -> Numbers:
        """Return the parameters at a time [s]."""
        return np.array([float(it.during(moment, moment)[0]) for it in self.parameters])

    @property
    def one_step(self) -> Substeps:
        """A step of the given length, between whose stages something is looked at."""

        def numbers(begin: float, length: float, found: Any) -> Numbers:
            del found  # no numbers of the whole grid are made
            return np.array([it.during(begin, begin + length)[0] for it in self.parameters])

        return Substeps({}, 1, 1.0, self.rest.dt, numbers)

    def right_side(self, advection: str) -> Node:
        """Return dT/dt as a formula."""
        grid, body = self.rest.grid, self.rest.body
        total: Node = Constant(0.0)
        for axis in range(grid.ndim):
            total = formula("t + f", t=total, f=self._conducted(axis))
            if self.moving.flows[axis].any():
                total = formula("t - f", t=total, f=self._carried(axis, advection))
            for side in () if self.rest.boundary.periodic(axis) else SIDES:
                total = self._with_face(total, axis, side)
        total = self._with_lumps(self._with_sources(total))

        h, d = self.array("heat", self._heat), self.array("exchange", self._exchange)
        total = formula("t + (h - d*u)", t=total, h=h, d=d, u=self.here)
        self.rate = self._coefficient("rate", lambda box: body.rates(1.0, box))
        return formula("r*t", r=self.rate, t=total)

    def _coefficient(self, name: str, values: OfBox) -> Node:
        self.coefficients[name] = values
        return tap(name, self._centre)

    def array(self, name: str, values: Numbers) -> Node:
        """Return a coefficient of the numbers of all cells."""
        return self._coefficient(name, lambda box: values[tuple(slice(*it) for it in box)])

    def _at(self, name: str, axis: int, shift: int) -> Node:
        offset = [shift if k == axis else 0 for k in range(self.rest.grid.ndim)]
        return tap(name, offset)

    def _beside(self, axis: int, shift: int) -> Node:
        return self._at(self.rest.variables[0].name, axis, shift)

    def _conducted(self, axis: int) -> Node:
        """Heat that flows from both neighbours along an axis."""
        rest, name = self.rest, f"k{axis}"

        def between(box: Ranges) -> Numbers:
            low, high = box[axis]
            # Conductance of the upper face of each cell; the lower face is that of the neighbour,
            # so both cells agree on it.
            up = (*box[:axis], (low + 1, high + 1), *box[axis + 1 :])
            return rest.body.between(axis, box, rest.padded_ids(box), rest.padded_ids(up))

        self._coefficient(name, between)
        parts = {"a": self._beside(axis, -1), "b": self.here, "c": self._beside(axis, 1)}
        below, above = self._at(name, axis, -1), self._at(name, axis, 0)
        return formula("above*(c - b) - below*(b - a)", above=above, below=below, **parts)

    def _carried(self, axis: int, advection: str) -> Node:
        """Heat that leaves through both faces along an axis with what moves."""
        name, flow = f"f{axis}", self.moving.flows[axis]
        n, periodic = self.rest.grid.shape[axis], self.rest.boundary.periodic(axis)

        def crossing(box: Ranges) -> Numbers:
            index = np.arange(*box[axis]) + 1
            index = (index - 1) % n + 1 if periodic else index
            # Through faces of the domain flows what `_with_face` says.
            inner = (index > 0) & (index < n) if not periodic else np.ones(len(index), np.bool_)
            others = tuple(
                np.arange(low, high) if k == axis else np.clip(np.arange(low, high), 0, size - 1)
                for k, ((low, high), size) in enumerate(zip(box, self.rest.grid.shape, strict=True))
            )
            places = [np.clip(index, 0, n) if k == axis else it for k, it in enumerate(others)]
            shape = [-1 if k == axis else 1 for k in range(flow.ndim)]
            return np.asarray(flow[np.ix_(*places)] * inner.reshape(shape))

        self._coefficient(name, crossing)
        self.outside.add(name)
        faces = [self._face_value(axis, shift, name, advection) for shift in (0, -1)]
        above, below = (self._at(name, axis, shift) for shift in (0, -1))
        return formula("above*a - below*b", above=above, below=below, a=faces[0], b=faces[1])

    def _face_value(self, axis: int, shift: int, name: str, advection: str) -> Node:
        """Temperature of the face above the neighbour at a shift."""
        # Left and right of the face; `f` is positive where what moves goes to the right.
        parts = {"l": self._beside(axis, shift), "r": self._beside(axis, shift + 1)}
        parts["f"] = self._at(name, axis, shift)
        if advection == "upwind":
            return formula("where(f > 0, l, r)", **parts)
        if advection == "central":
            return formula("l + w*(r - l)", w=self._middle(axis, shift), **parts)
        # Limited slope of the upstream cell: ratio of the difference behind it and across the face.
        before, after = self._beside(axis, shift - 1), self._beside(axis, shift + 2)
        slope = formula(
            SLOPES[advection],
            a=formula("where(f > 0, l - x, y - r)", x=before, y=after, **parts),
            b=formula("r - l", l=parts["l"], r=parts["r"]),
        )
        return formula("where(f > 0, l + s/2, r - s/2)", s=slope, **parts)

    def _middle(self, axis: int, shift: int) -> Node:
        """How far the upper face of a cell lies on the way to the next centre."""
        grid, name = self.rest.grid, f"w{axis}"
        if not grid.is_graded:
            return Constant(0.5)
        widths = grid.widths(axis)
        # Linear between two centres of cells of different widths.
        shares = widths / (widths + np.roll(widths, -1))

        def share(box: Ranges) -> Numbers:
            along = shares[slice(*box[axis])]
            shape = [-1 if k == axis else 1 for k in range(grid.ndim)]
            return np.broadcast_to(along.reshape(shape), [b - a for a, b in box])

        self._coefficient(name, share)
        return self._at(name, axis, shift)

    def _plane(self, axis: int, side: Side) -> Ranges:
        n = self.rest.grid.shape[axis]
        edge = (0, 1) if side == "low" else (n - 1, n)
        return (*self._whole[:axis], edge, *self._whole[axis + 1 :])

    def _with_face(self, total: Node, axis: int, side: Side) -> Node:
        """Add what comes in through a face of the domain."""
        rest, moving = self.rest, self.moving
        face, plane = rest.ruled_face(axis, side), self._plane(axis, side)
        here = tuple(slice(*span) for span in plane)
        medium = rest.body.medium
        ids = medium.ids(plane)
        low, high = plane[axis]
        down = int(side == "low")
        faces = (*plane[:axis], (low - down, high - down), *plane[axis + 1 :])
        k = np.broadcast_to(passage(rest, axis, faces, ids, ids, side).between, ids.shape)
        entering = moving.entering(axis, side, plane)
        codes = face.codes(plane, ids, medium.n_ids)
        self._refuse_unknown(axis, side, plane, entering)

        if face.is_affine and not face.rule.changes:
            given = {it.name: np.asarray(it.values) for it in face.rule.parameters}
            a, b = (
                it[codes] if it.size > 1 else np.broadcast_to(it[0], codes.shape)
                for it in (given["a"], given["b"])
            )
            # All of it is linear in the temperature of the cell: what is at 0 degrees, and at 1.
            nothing, one = np.zeros(ids.shape), np.ones(ids.shape)
            heat = k * a + moving.carried(entering, nothing, a)
            self._heat[here] += heat
            self._exchange[here] += heat - k * (a + b - 1) - moving.carried(entering, one, a + b)
            return total

        def planar(values: Numbers) -> Numbers:
            whole = np.zeros(rest.grid.shape)
            whole[here] = values
            return whole

        name = f"{'-+'[1 - down]}{axis}".replace("-", "low").replace("+", "high")
        spread = planar(codes.astype(np.float64)).astype(np.int64)
        ghost = self._inlined(face.rule, name, spread, np.unique(codes))
        parts = {"g": ghost, "u": self.here, "k": self.array(f"k_{name}", planar(k))}
        term = formula("k*(g - u)", **parts)
        if entering.any():
            arriving = self.array(f"in_{name}", planar(np.maximum(entering, 0.0)))
            gone = self.array(f"out_{name}", planar(np.minimum(entering, 0.0)))
            leaving = formula("(g + u)/2" if moving.central else "u", g=ghost, u=self.here)
            more = formula("i*(g + u)/2 + o*l", i=arriving, o=gone, l=leaving, g=ghost, u=self.here)
            term = formula("a + b", a=term, b=more)
        # Elsewhere the formula of a face need have no value.
        return formula("t + (term if k != 0 else 0)", t=total, term=term, k=parts["k"])

    def _refuse_unknown(self, axis: int, side: Side, plane: Ranges, entering: Numbers) -> None:
        """Raise where material enters whose temperature follows from that of the body."""
        rest = self.rest
        ids = rest.body.medium.ids(plane)
        ghosts = [
            reference.ruled_ghosts(
                rest, axis, side, 0, box=plane, ids=ids, inside={MIRROR: np.full(ids.shape, at)}
            )
            for at in (0.0, 1.0)
        ]

        # A given temperature lies on the face, or on the ghost, whatever the mirror point has.
        if ((ghosts[1] - ghosts[0] > _GIVEN) & (entering > 0)).any():
            name = rest.grid.axis_names[axis] + "-+"[SIDES.index(side)]
            msg = (
                f"boundaries: material moves in through {name}, and its temperature has to be "
                "given; let the face be dirichlet there"
            )
            raise ConfigError(msg)

    def _with_lumps(self, total: Node) -> Node:
        """Add what lumps and inlets of streams give, whose mean temperatures over a step are known
        when it begins, and what cells are given.
        """
        around, streams = self.moving.around, self.moving.around.streams
        if around.heated is not None:
            self._heat += around.heated.heat
        giving = [(it.gives, it.mean) for it in around.known]
        self._exchange += sum(it.takes for it in around.lumps)
        if streams:
            self._exchange += streams.takes
        # Where flows change, or lumps are solved for, what lumps give by way of streams is looked
        # at with the rest of what streams do.
        if streams and not streams.changes:
            known = [*streams.given, *(mean for mean, _ in streams.passed)]
            counted = len(streams.given) if around.solution else len(known)
            giving += [*zip(streams.gives((0.0, 0.0)), known, strict=True)][:counted]

        for number, (heat, mean) in enumerate(giving):
            name = f"lump{number}"
            gives = self.array(f"g_{name}", heat)
            if isinstance(mean, Signal):
                self.parameters.append(Parameter(name, _decided(mean)))
            else:
                self.parameters.append(replace(mean, name=name))
            total = formula("t + g*w", t=total, g=gives, w=Variable(name))
        return total

    def _with_sources(self, total: Node) -> Node:
        """Add what sources give to each cell."""
        body = self.rest.body
        rule, ids = body.source, body.medium.ids(self._whole).astype(np.int64)
        if rule is None:
            return total
        volume = body.coefficients
        cells = np.ones(ids.shape) if volume is None else volume.volume(self._whole)
        if rule.program.tree == Variable("q") and not rule.changes:
            self._heat += np.asarray(rule.parameters[0].values)[ids] * cells
            return total
        strength = self._inlined(rule, "source", ids, np.arange(body.medium.n_ids))
        return formula("t + v*s", t=total, v=self.array("volume", cells), s=strength)

    def _inlined(self, rule: Rule, name: str, codes: Any, occurring: Any) -> Node:
        """Return the program of a rule with numbers by cell for those by code."""
        values: dict[str, Node] = {MIRROR: self.here}
        for it in rule.parameters:
            own = f"{name}_{it.name}"
            first = it.during(0.0, 0.0)
            if not callable(it.values):
                flat = np.asarray(it.values, np.float64)
                several = flat.size > 1
                values[it.name] = self.array(own, flat[codes]) if several else Constant(flat[0])
                continue
            if first.size == 1:
                self.parameters.append(Parameter(own, it.values, it.knots))
                values[it.name] = Variable(own)
                continue
            if len(occurring) > _MOST_CODES:
                msg = (
                    f"model: {it.name} of {name} changes with time in {len(occurring)} ways, and "
                    f"of a moving body {_MOST_CODES} are the most; take fewer patches or materials"
                )
                raise ConfigError(msg)

            # One number of time for each code, where that is.
            total: Node = Constant(0.0)
            for code in occurring:
                here = self.array(f"{own}_at_{code}", (codes == code).astype(np.float64))
                column = _column(it, int(code))
                self.parameters.append(Parameter(f"{own}_{code}", column, it.knots))
                total = formula("t + x*w", t=total, x=Variable(f"{own}_{code}"), w=here)
            values[it.name] = total
        return substitute(rule.program.tree, values)


def _decided(signal: Signal) -> Callable[[Numbers], Numbers]:
    return lambda times: signal.at(times)[:, None]


def _column(parameter: Parameter, code: int) -> Callable[[Numbers], Numbers]:
    values = parameter.values
    assert callable(values)
    return lambda times: np.asarray(values(times))[:, code : code + 1]
