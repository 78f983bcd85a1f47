"""The heat balance of every cell at a time as a linear system in temperatures, A u = f. Where the
state is an enthalpy, u is the driving quantity (`assembly.py`).

The flow into a cell is f - A u = q + sum of K (u_j - u) over its neighbours, those beyond faces of
the domain being ghosts. A ghost g(u) that depends on its mirror point is replaced by its tangent
there, g + g' (u' - u): exact for faces that are affine, Newton's method for others. Cells whose
state is held are no unknowns: flows to them are part of d and f of their neighbours.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.conduction import MIRROR, Conduction, Ids, Numbers, Rule, RuledFace
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import Seen, follow
from tetris_sim.model.slab import Ranges
from tetris_sim.solvers.assembly import (
    HERE,
    Contents,
    Spans,
    Values,
    Where,
    add_heated,
    averaged,
    bends_of,
    by_temperature,
    conductances,
    contents_of,
    instant,
    rules_of,
)
from tetris_sim.solvers.multigrid import Operator, Rings, Widths
from tetris_sim.solvers.surface_flows import SurfaceFlows, plane

# Slopes and distances, in degrees, of the test whether a face is linear.
_FLAT = 1e-10  # how far a slope may be off by rounding
_NEAR = 1e-3  # degrees, for the slope of what heats
_FAR = 100.0  # degrees away from where it is, a straight line is as steep
_UNEVEN = 1.0  # of the smallest width of an axis: by how much widths differ where it is graded
# Of the largest weight: by how much weights that should be equal may differ, what rounding leaves.
_EVEN, _ROUNDED = 1e-9, 1e-14


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """The linear system of all cells, per volume or, with coefficients, in total (`conduction.py`).

    Attributes:
        conductance: K between a cell and the next one by axis, that of the last leading to the
            first, 0 where no heat flows; each of the shape of the grid.
        exchange: d, heat flow per degree to prescribed temperatures.
        heat: f, heat flow in at 0 degrees.
        stores: makes `capacity` on demand.
        any_held: whether the state of any cell is held.
        is_linear: whether the system is the same for every state.
        contents: enthalpies of a body whose state they are.
        state: that it is linearized at, with enthalpies.
        widths: of cells by axis, where an axis is graded, or rings where there are some.
        surfaces: the parts of d and f that lead out of the body.
        frozen: d and f as if sources stayed as they are at the state, where they depend on it.
        where: location of the arrays; those of a GPU belong to bodies without held cells or
            enthalpies.
    """

    conductance: tuple[Numbers, ...]
    exchange: Numbers
    heat: Numbers
    stores: Callable[[], Numbers]
    any_held: bool
    is_linear: bool
    contents: Contents | None = None
    state: Numbers | None = None
    widths: Widths = ()
    surfaces: SurfaceFlows | None = None
    where: Where = HERE
    frozen: tuple[Numbers, Numbers] | None = None

    @functools.cached_property
    def capacity(self) -> Numbers:
        """Heat capacity of a cell per unit of its state, of the shape of the grid, on the host: rho
        c, or 1 for enthalpies; infinite where the state is held.
        """
        return self.stores()

    @property
    def given(self) -> tuple[Numbers, Numbers]:
        """Return d and f without what sources give more as cells warm."""
        return (self.exchange, self.heat) if self.frozen is None else self.frozen

    @property
    def wide(self) -> Widths:
        """Cell widths along the three axes of `operator`; empty if no axis is graded."""
        if isinstance(self.widths, Rings):
            return self.widths
        return on_three(self.widths, np.ones(1), OUTER) if self.widths else ()

    @property
    def held(self) -> npt.NDArray[np.bool_]:
        """Mask of the cells whose state is held."""
        if not self.any_held:
            return np.broadcast_to(np.zeros(1, np.bool_), self.heat.shape)  # takes no memory
        return np.isinf(self.capacity)

    @property
    def whole(self) -> Numbers:
        """Heat flow out of a cell that is a degree warmer than everything around it."""
        found: Numbers = self.exchange.copy()
        for axis, k in enumerate(self.conductance):
            found += k + np.roll(k, 1, axis)
        return found

    def driving(self, state: Numbers) -> Numbers:
        """Return the driving quantity: the state itself, unless it is an enthalpy."""
        return state if self.contents is None else self.contents.driving(state)

    def flows(self, u: Numbers) -> Numbers:
        """Return the heat flow into cells at a state: f - A u."""
        found: Numbers = self.heat - self.exchange * u
        for axis, k in enumerate(self.conductance):
            if k.shape[axis] == 1:
                continue

            # Each face is visited once: its flow enters one cell and leaves the next, so heat is
            # conserved to rounding.
            flow = np.roll(u, -1, axis)
            flow -= u
            flow *= k
            found += flow - np.roll(flow, 1, axis)
        return found

    def operator(self, more: Numbers | float | None = None) -> Operator:
        """Return A for a solver, with an addition to its diagonal: three axes, in `OUTER` order.
        Without an addition, the arrays are those of the system itself, not copies.
        """
        xp, shape = self.where.xp, on_three(self.heat.shape, 1, OUTER)
        # Zeros stand for a missing axis; if none is missing, the placeholder is not used.
        none = xp.zeros(self.heat.shape) if len(self.conductance) < len(shape) else self.heat
        parts = on_three(self.conductance, none, OUTER)
        diagonal = self.exchange
        if more is not None:
            diagonal = diagonal + xp.asarray(np.where(self.held, 0.0, more))
        return tuple(xp.ascontiguousarray(it).reshape(shape) for it in (*parts, diagonal))


def why_not(problem: Problem) -> str | None:
    """Say why the balance of a problem cannot be solved, as a sentence; None if it can."""
    if problem.equations is not None:
        return "it solves heat balances, and these are equations of another kind"

    if problem.conduction is None:
        # The stencil must be a symmetric star of radius 1 whose weights do not add up to more than
        # 1.
        reach = max(sum(map(abs, offset)) for offset in problem.stencil.offsets)
        terms = problem.stencil.terms
        largest = max(map(abs, terms.values()))
        uneven = any(
            abs(terms.get(tuple(-c for c in offset), 0.0) - weight) > _EVEN * largest
            for offset, weight in terms.items()
        )
        if reach > 1 or uneven or 1 - math.fsum(terms.values()) < -_EVEN * largest:
            return (
                "it solves balances between each point and the next ones along the axes, with "
                "equal weights on both sides that add up to 1 or less; this stencil is another one"
            )
    return None


def balance(problem: Problem, time: float, state: Numbers) -> LinearSystem:
    """Return the linear system of all cells; see `LinearSystems`."""
    return LinearSystems(problem).at(instant(time), state)


class LinearSystems:
    """The linear systems of a problem at all times and states; shared coefficients are made once.

    Args:
        problem: see `why_not`.
        where: requested location of the arrays; bodies with held cells or enthalpies use the host.

    Raises:
        UnsupportedError: the problem has no such balance.
    """

    def __init__(self, problem: Problem, where: Where = HERE) -> None:
        if (refusal := why_not(problem)) is not None:
            raise UnsupportedError(refusal[0].upper() + refusal[1:] + ".")
        self._problem, self._where = replace(problem, dtype=np.dtype(np.float64)), where
        self._same: LinearSystem | None = None
        self._parts: _Parts | None = None

    def bends(self, begin: float, end: float) -> list[float]:
        """Return the times inside a span at which faces or sources bend or jump, ascending [s]."""
        rules = [rule for rule in rules_of(self._problem) if rule.changes]
        found = [bends_of(rule, begin, end) for rule in rules]
        return [float(time) for time in np.unique(np.concatenate([np.empty(0), *found]))]

    def at(self, when: Spans, state: Numbers) -> LinearSystem:
        """Return the linear system over some spans of time, or at an instant, and at a state.

        Args:
            when: over which faces and sources are averaged.
            state: (n0, ...), the point of linearization, and the values of held cells.
        """
        if self._same is not None:
            return self._same
        problem = self._problem
        if problem.conduction is None:
            self._same = _of_stencil(problem, self._where)
            return self._same
        if self._parts is None:
            self._parts = _Parts(problem, problem.conduction, self._where)
        found = self._parts.at(when, state)
        # A linear, constant system never changes again.
        if found.is_linear and not self._parts.changes:
            self._same = found
        return found


def _of_stencil(problem: Problem, where: Where) -> LinearSystem:
    """Set up the system of a stencil: K and d in 1/s, and rho c = 1."""
    grid, xp = problem.grid, where.xp
    conductance, d, f = [], xp.zeros(grid.shape), xp.zeros(grid.shape)
    faces: dict[tuple[int, Side], tuple[Values, Values]] = {}
    weights = problem.stencil.weights
    # Weights that add up to less than 1 act like an exchange with 0 degrees.
    lost = 1 - math.fsum(weights)  # of a state that is the same everywhere, in a step

    d += lost / problem.dt if lost > _ROUNDED * max(map(abs, weights)) else 0.0
    for axis, n in enumerate(grid.shape):
        offset = tuple(int(k == axis) for k in range(grid.ndim))
        rate = problem.stencil.terms.get(offset, 0.0) / problem.dt
        between = xp.empty(grid.shape)
        between[...] = rate

        if not problem.boundary.periodic(axis):
            plane(between, axis, n - 1)[...] = 0.0
            for side in SIDES:
                ((a, b),) = problem.boundary.reflections(
                    axis, side, spacing=grid.spacing[axis], width=1
                )
                outermost = 0 if side == "low" else n - 1
                # Ghost a + b u: K (ghost - u) = K a - K (1 - b) u.
                faces[axis, side] = np.array(rate * (1 - b)), np.array(rate * a)
                for values, part in zip((d, f), faces[axis, side], strict=True):
                    plane(values, axis, outermost)[...] += float(part)
        conductance.append(between if n > 1 else xp.zeros(grid.shape))
    return LinearSystem(
        *(tuple(conductance), d, f, lambda: np.ones(grid.shape), False),
        is_linear=True,
        surfaces=SurfaceFlows(faces),
        where=where,
    )


class _Parts:
    """The coefficients from which the linear systems of a body are assembled.

    Attributes:
        changes: whether some of them depend on time, or on the state of held cells.
    """

    def __init__(self, problem: Problem, conduction: Conduction, where: Where) -> None:
        self._problem, self._conduction = problem, conduction
        shape = problem.grid.shape
        self._whole: Ranges = tuple((0, n) for n in shape)
        self._contents = None
        if conduction.enthalpy is not None:
            self._contents = contents_of(problem, conduction.medium.ids(self._whole))

        # The cells decide, not the list of ids: a held id may have no cell, and coefficients can
        # hold cells by themselves.
        self._any_held = bool(np.isinf(conduction.medium.capacity).any())
        if self._any_held or conduction.coefficients is not None:
            self._held = np.isinf(self._capacity)
            self._any_held = bool(self._held.any())
        source = conduction.source
        self._reacts = source is not None and by_temperature(source)
        plain = self._contents is None and not self._any_held and not self._reacts
        self._where = where if plain else replace(where, xp=np)
        xp = self._where.xp
        # Widths matter to the multigrid hierarchy only if they differ much.
        widths = tuple(problem.grid.widths(axis) for axis in range(len(shape)))
        uneven = [np.ptp(it) > _UNEVEN * it.min() for it in widths]
        self._widths: Widths = widths if any(uneven) else ()
        # Rings take a graded r for what it is; along other axes thin planes go first.
        if "theta" in (names := problem.grid.axis_names) and not any(uneven[:-1]):
            self._widths = Rings(OUTER[len(shape)][names.index("theta")])
        self._curved: set[tuple[int, Side]] = set()  # faces that are not linear
        self._given: tuple[Spans, Values] | None = None  # by the source
        self._faces: dict[tuple[int, Side], tuple[Values, Values]] = {}  # d and f of each
        self._links: dict[tuple[int, Side], tuple[Values, Values]] = {}  # of those of enthalpies
        self._steady: float | None = None  # what a constant source gives in all

        # Faces and sources that never change are assembled once; `at` adds the others.
        faces = [
            (axis, side, problem.ruled_face(axis, side))
            for axis in range(len(shape))
            if not problem.boundary.periodic(axis)
            for side in SIDES
        ]
        self.changes = self._any_held or any(rule.changes for rule in rules_of(problem))
        # Tangents of enthalpies change with the state, but for a face that lets nothing pass.
        self._linear = True
        still = [
            face.is_affine
            and not face.rule.changes
            and (self._contents is None or _is_insulated(face))
            for *_, face in faces
        ]
        self._moving = [face for face, stays in zip(faces, still, strict=True) if not stays]

        # d and f of everything that is the same at all times and states.
        self._d, self._f = xp.zeros(shape), xp.zeros(shape)
        self._lasts = source is None or not (source.changes or self._reacts)
        if source is not None and self._lasts:
            self._f += self._heated(source, instant(0.0), None)
            self._steady = float(self._f.sum())
            self._given = None
        nothing = np.broadcast_to(np.zeros(1), shape)
        for axis, side, face in (it for it, stays in zip(faces, still, strict=True) if stays):
            self._add_face(self._d, self._f, (axis, side, face), nothing, instant(0.0))
        between = [] if self._contents else conductances(problem, conduction, self._where)
        self._joined = [self._cut(axis, k) for axis, k in enumerate(between)]

    @functools.cached_property
    def _capacity(self) -> Numbers:
        conduction = self._conduction
        if conduction.coefficients is not None:
            return conduction.coefficients.capacity(self._whole)
        if conduction.medium.n_ids == 1:
            return np.broadcast_to(conduction.medium.capacity, self._problem.grid.shape)
        return np.asarray(conduction.medium.capacity[conduction.medium.ids(self._whole)])

    def at(self, when: Spans, state: Numbers) -> LinearSystem:
        """Assemble the system over some spans of time and at a state."""
        self._linear = (self._contents is None or self._contents.has_one) and not self._reacts
        d, f = self._d, self._f
        # The constant parts must not be overwritten.
        radiates = self._contents is not None and self._contents.enthalpy.radiates
        if self._moving or self._any_held or not self._lasts or radiates:
            d, f = d.copy(), f.copy()
        heat = None
        if (source := self._conduction.source) is not None and not self._lasts:
            heat = self._heated(source, when, self._temperature(state) if self._reacts else None)
            f += heat
        for face in self._moving:
            self._add_face(d, f, face, state, when)

        joined = self._joined
        if self._contents is not None:
            between = [self._conductance(self._contents, axis, state) for axis in range(state.ndim)]
            for axis in range(state.ndim) if radiates else ():
                self._add_radiated((between[axis], d, f), self._contents, axis, state)
            joined = [self._cut(axis, k) for axis, k in enumerate(between)]
        # Flows to held cells: K (T_held - u) adds K to d and K T_held to f.
        if self._any_held:
            drive = state if self._contents is None else self._contents.driving(state)
            for axis, (_, ways) in enumerate(joined):
                for k, theirs in ways:
                    d += k
                    f += k * np.where(k > 0, np.roll(drive, theirs, axis), 0.0)
            d[self._held] = 0.0
            f[self._held] = 0.0
        conductance = tuple(k for k, _ in joined)
        frozen = None
        if source is not None and self._reacts:
            # The tangent of what they give: where it grows, cells hold on to less heat.
            frozen = d, f
            drive = state if self._contents is None else self._contents.driving(state)
            more = self._more(source, when, state)
            d, f = d - more, f - more * drive
        surfaces = SurfaceFlows(
            dict(self._faces),
            [(axis, *way) for axis, (_, ways) in enumerate(joined) for way in ways],
            heat,
            self._steady,
            lambda: self._ids,
            self._links,
        )
        return LinearSystem(
            *(conductance, d, f, lambda: self._capacity, self._any_held, self._linear),
            *(
                self._contents,
                state if self._contents else None,
                self._widths,
                surfaces,
                self._where,
                frozen,
            ),
        )

    @functools.cached_property
    def _ids(self) -> Ids:
        return self._conduction.medium.ids(self._whole)

    def _temperature(self, state: Numbers) -> Numbers:
        it = self._conduction.enthalpy
        return state if it is None else np.asarray(it.of(it.temperature, state, self._ids))

    def _more(self, source: Rule, when: Spans, state: Numbers) -> Numbers:
        """Return by how much more a source gives per unit of the driving quantity."""
        here = self._temperature(state)
        sides = (self._heated(source, when, here + side * _NEAR) for side in (1, -1))
        up, down = sides
        more = (up - down) / (2 * _NEAR)
        if (it := self._contents) is None or it.drive is it.enthalpy.temperature:
            return np.asarray(more)
        steep, warms = (
            it.enthalpy.slope(curve, state, it.ids)
            for curve in (it.enthalpy.potential, it.enthalpy.temperature)
        )
        by_drive = np.divide(more * warms, steep, out=np.zeros(more.shape), where=steep > 0)
        return np.asarray(by_drive)

    def _heated(self, source: Rule, when: Spans, temperature: Numbers | None) -> Values:
        """Return what a source gives over some spans, made once for all states where it does not
        depend on these.
        """
        if self._given is None or self._given[0] != when or temperature is not None:
            heat = self._where.xp.zeros(self._problem.grid.shape)
            add_heated(heat, source, self._problem, self._where, when, temperature)
            if self._any_held:
                heat[self._held] = 0.0  # what stores nothing takes up nothing
            self._given = when, heat
        return self._given[1]

    def _conductance(self, contents: Contents, axis: int, state: Numbers) -> Numbers:
        """Return K along an axis, where it depends on the state."""
        n = self._problem.grid.shape[axis]
        if n == 1:
            return np.zeros(self._problem.grid.shape)
        between = contents.conductance(axis, state)
        if not self._problem.boundary.periodic(axis):
            plane(between, axis, n - 1)[...] = 0.0
        return np.asarray(between)

    def _add_radiated(
        self, to: tuple[Numbers, ...], contents: Contents, axis: int, state: Numbers
    ) -> None:
        """Put the flows between surfaces that radiate into K, d and f, in place: towards held
        cells with their tangents, else with one slope for both sides.
        """
        k, d, f = (it.reshape(-1) for it in to)
        here, there, flow = contents.radiated(axis, state)
        drive = contents.driving(state).reshape(-1)
        rise = drive[there] - drive[here]

        # A system with different slopes would not be symmetric: f has what is left of the flow.
        held = self._held.reshape(-1) if self._any_held else np.zeros(drive.shape, np.bool_)
        free = ~(held[here] | held[there])
        k[here[free]] = flow.conductance[free]
        rest = (flow.flow - flow.conductance * rise)[free]
        np.add.at(f, here[free], rest)
        np.subtract.at(f, there[free], rest)

        # K (T_held - u) alone gives the flow, d and f the rest of its tangent.
        secant = np.divide(flow.flow, rise, out=flow.cooling.copy(), where=rise != 0)
        k[here[~free]] = secant[~free]
        for own, other, slope in ((here, there, flow.cooling), (there, here, flow.warming)):
            only = ~held[own] & held[other]
            more = (slope - secant)[only]
            np.add.at(d, own[only], more)
            np.add.at(f, own[only], more * drive[own[only]])

    def _cut(self, axis: int, between: Numbers) -> tuple[Numbers, list[tuple[Numbers, int]]]:
        """Split K at held cells: (K between unknowns, [(K towards held cells, shift to them)])."""
        if not self._any_held:
            return between, []
        held, beyond = self._held, np.roll(self._held, -1, axis)
        # `up` leads from an unknown to a held cell above it, `down` to one below it.
        up = np.where(~held & beyond, between, 0.0)
        down = np.roll(np.where(held & ~beyond, between, 0.0), 1, axis)
        return np.where(held | beyond, 0.0, between), [(up, -1), (down, 1)]

    def _add_face(
        self, d: Values, f: Values, which: tuple[int, Side, RuledFace], state: Values, when: Spans
    ) -> None:
        """Add d and f of the ghosts beyond a face, in place."""
        axis, side, face = which
        n = self._problem.grid.shape[axis]
        at = 0 if side == "low" else n - 1

        # The conductance between the outermost point and its ghost: of the id with itself, or of
        # the face below plane 0 or above plane n - 1.
        box = (*self._whole[:axis], (at, at + 1), *self._whole[axis + 1 :])
        ids = self._conduction.medium.ids(box)
        if (coefficients := self._conduction.coefficients) is None:
            k = self._conduction.medium.conductance[axis][ids, ids]
        else:
            beyond = -1 if side == "low" else n - 1
            span = (*self._whole[:axis], (beyond, beyond + 1), *self._whole[axis + 1 :])
            k = coefficients.conductance(axis, span)

        # Tangent of the flow: k (ghost + slope (u - here) - u).
        here = self._where.host(plane(state, axis, at))

        # Evaluating a rule costs as much for many instants as for one where the face is small.
        def tangent(span: tuple[float, float] | Numbers) -> Numbers:
            ghosts = self._ghosts(face, box, ids, span)
            axis = 1 if isinstance(span, np.ndarray) else 0
            if self._contents is not None:
                self._linear = self._linear and face.is_affine
                found = self._contents.tangent(k, partial(ghosts, face.rule), here, ids)
                return np.stack(found, axis)
            ghost, slope = self._tangent(which, ghosts, here)
            return np.stack([k * (1 - slope), k * (ghost - slope * here)], axis)

        more = averaged(face.rule, when, tangent, tangent)
        if self._any_held:
            more = np.where(plane(self._held, axis, at), 0.0, more)
        self._faces[axis, side] = more[0], more[1]
        if self._contents is not None:
            self._links[axis, side] = k, more[2]
        for values, its in zip((d, f), more[:2], strict=True):
            plane(values, axis, at)[...] += self._where.xp.asarray(its)

    def _ghosts(
        self, face: RuledFace, box: Ranges, ids: Ids, span: tuple[float, float] | Numbers
    ) -> Callable[[Rule, Seen], Numbers]:
        """Return the ghosts of a rule over a span as a function of `potentials` of the mirror
        points.
        """
        codes = face.codes(box, ids, self._conduction.medium.n_ids)

        def ghosts(rule: Rule, seen: Seen) -> Numbers:
            found = follow(rule, self._problem, 0, box, codes, seen, span)
            many = (len(span),) if isinstance(span, np.ndarray) else ()
            return np.asarray(np.broadcast_to(found, (*many, *ids.shape)))

        return ghosts

    def _tangent(
        self,
        which: tuple[int, Side, RuledFace],
        ghosts: Callable[[Rule, Seen], Numbers],
        here: Numbers,
    ) -> tuple[Numbers, Numbers]:
        """Return the ghosts of the mirror points and their slopes."""
        axis, side, face = which
        if face.is_affine:
            # Exactly b, from a run with a = 0 and mirror points 1: where b is 1, no rounding may be
            # left of d.
            parameters = tuple(
                replace(it, values=np.zeros(1)) if it.name == "a" else it
                for it in face.rule.parameters
            )
            growing = replace(face.rule, parameters=parameters)
            ones = {MIRROR: np.ones(here.shape)}
            return ghosts(face.rule, {MIRROR: here}), ghosts(growing, ones)

        def at(degrees: float) -> Numbers:
            return ghosts(face.rule, {MIRROR: here + degrees})

        def slope(more: float) -> Numbers:
            return at(more + 0.5) - at(more - 0.5)

        # A slope that is the same far away means a linear face. A curved one is remembered, since
        # it may look linear at another state.
        steep = slope(0.0)
        if (axis, side) not in self._curved and (abs(slope(_FAR) - steep) >= _FLAT).any():
            self._curved.add((axis, side))
        self._linear = self._linear and (axis, side) not in self._curved
        return at(0.0), np.where(abs(steep - 1) < _FLAT, 1.0, steep)


def _is_insulated(face: RuledFace) -> bool:
    """Whether the ghosts of an affine face that does not change are their mirror points."""
    given = {it.name: np.asarray(it.values) for it in face.rule.parameters}
    return bool((given["a"] == 0).all() and (given["b"] == 1).all())


def norm(values: Numbers) -> float:
    """Return the root of the sum of squares; without BLAS, whose threads are not those of a run."""
    return math.sqrt(float(np.square(values).sum()))
