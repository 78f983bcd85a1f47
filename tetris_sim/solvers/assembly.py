"""Assembly: coefficients of the linear system of a body at any point and time, made where they are
used, in parts.

A part is some planes across the first axis: on the host few enough to stay in a cache, so that
threads assemble them in parallel; to a GPU only ids are sent, and conductances are looked up there.
Parts depend on the grid alone, so every coefficient and every sum is bitwise reproducible
(docs/decisions/0043).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.conduction import (
    AFFINE,
    CONDUCTIVITY,
    MIRROR,
    TEMPERATURE,
    Conduction,
    Curve,
    Enthalpy,
    Ids,
    Numbers,
    Rule,
    RuledFace,
)
from tetris_sim.model.formula import Node, Variable, evaluate, walk
from tetris_sim.model.problem import Problem, passage
from tetris_sim.model.radiation import RadiatedFlow, radiated
from tetris_sim.model.reference import Seen, follow, potentials
from tetris_sim.model.slab import Ranges
from tetris_sim.model.step_control import bends, mean

Values = Any  # arrays of NumPy or CuPy
Work = Callable[[int], None]
# Points of a part: one that fits into a core's cache, and one that fills a GPU.
_PART = 1 << 16  # points, on the host
_PART_OF_GPU = 1 << 24


def one_by_one(n: int, work: Work) -> None:
    """Call work(0) to work(n - 1), one after the other."""
    for number in range(n):
        work(number)


@dataclass(frozen=True)
class Where:
    """The array module of a linear system, and the workers that assemble it.

    Attributes:
        xp: NumPy, or a module like it.
        share: calls a function with the numbers of all parts, in any order.
    """

    xp: Any = np
    share: Callable[[int, Work], None] = one_by_one

    def parts(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Split a grid into parts: planes across the first axis, (first, last + 1)."""
        most = _PART if self.xp is np else _PART_OF_GPU
        planes = max(1, most // math.prod(shape[1:]))
        return [(at, min(at + planes, shape[0])) for at in range(0, shape[0], planes)]

    def each(self, shape: Sequence[int], work: Callable[[int, int], None]) -> None:
        """Call a function with the planes of all parts."""
        parts = self.parts(shape)
        self.share(len(parts), lambda number: work(*parts[number]))

    def sum(self, shape: Sequence[int], of: Callable[[slice], Values]) -> float:
        """Sum the values of a function of planes; bitwise identical for any number of threads."""
        parts = self.parts(shape)
        sums = [0.0] * len(parts)

        # Every part has its own slot, so the order in which threads finish does not matter.
        def work(number: int) -> None:
            sums[number] = float(of(slice(*parts[number])).sum())

        self.share(len(parts), work)
        return math.fsum(sums)

    def norm(self, shape: Sequence[int], of: Callable[[slice], Values]) -> float:
        """Return the root of the sum of squares of the values of a function of planes."""

        def squares(planes: slice) -> Values:
            values = of(planes)
            return values * values

        return math.sqrt(self.sum(shape, squares))

    def host(self, values: Values) -> Any:
        """Return an array in host memory."""
        return values if isinstance(values, np.ndarray) else values.get()


HERE = Where()  # on the host, by one thread


def is_plain(problem: Problem) -> bool:
    """Whether no cell is held and none stores enthalpy, as far as known without visiting cells."""
    conduction = problem.conduction
    return conduction is None or (
        conduction.enthalpy is None and not np.isinf(conduction.medium.capacity).any()
    )


def conductances(problem: Problem, conduction: Conduction, where: Where) -> list[Values]:
    """Return K by axis between a cell and the next one, 0 where the grid ends; not for
    enthalpies.
    """
    shape, xp, medium = problem.grid.shape, where.xp, conduction.medium
    found = [xp.empty(shape) if n > 1 else xp.zeros(shape) for n in shape]
    # Flat tables, indexed by id * n_ids + id of the neighbour.
    tables = [xp.asarray(table.reshape(-1)) for table in medium.conductance]

    def look_up(axis: int, ids: Values, beside: Values) -> Values:
        return tables[axis].take(ids.astype(np.intp) * medium.n_ids + beside)

    def work(first: int, last: int) -> None:
        box = ((first, last), *((0, n) for n in shape[1:]))
        long = [axis for axis, n in enumerate(shape) if n > 1]
        # Conductances of a plane lead upwards, so a part never writes outside its own planes.
        if conduction.coefficients is not None:
            for axis in long:
                found[axis][first:last] = xp.asarray(conduction.coefficients.conductance(axis, box))
            return
        if medium.n_ids == 1:
            for axis in long:
                found[axis][first:last] = float(medium.conductance[axis][0, 0])
            return

        # Across the first axis, the last plane of a part needs the first plane of the next part, or
        # of the grid where it is periodic.
        ids = xp.asarray(medium.ids(box))
        for axis in long:
            if axis > 0:
                found[axis][first:last] = look_up(axis, ids, xp.roll(ids, -1, axis))
                continue
            beyond = last % shape[0]
            following = xp.asarray(medium.ids(((beyond, beyond + 1), *box[1:])))
            found[axis][first : last - 1] = look_up(axis, ids[:-1], ids[1:])
            found[axis][last - 1 : last] = look_up(axis, ids[-1:], following)

    where.each(shape, work)

    # `roll` and the ring above connect both ends of every axis; cut those that are not periodic.
    for axis, k in enumerate(found):
        if not problem.boundary.periodic(axis):
            k[(slice(None),) * axis + (slice(-1, None),)] = 0.0
    return found


# What is given over time enters a linear system as its mean over spans of time. A rule that is
# linear in its parameters reads their means; of any other one, values at the points of a quadrature
# are averaged.

Spans = tuple[tuple[float, float, float], ...]  # weight, begin and end [s]; weights add up to 1
_OFF = 1e-6  # of the largest value in a span: the error of a mean over places
_PARTS = 2  # panels of a span


def rules_of(problem: Problem) -> list[Rule]:
    """Return the rules of the faces and of the source of a problem."""
    faces = [face for pair in problem.boundary.faces for face in pair]
    source = None if problem.conduction is None else problem.conduction.source
    rules = [face.rule for face in faces if isinstance(face, RuledFace)]
    return rules if source is None else [*rules, source]


def instant(time: float) -> Spans:
    """Return a time [s] as spans."""
    return ((1.0, time, time),)


def averaged(
    rule: Rule,
    when: Spans,
    at: Callable[[tuple[float, float]], Values],
    many: Callable[[Values], Values] | None = None,
) -> Values:
    """Return the weighted mean over spans of what a rule gives.

    Args:
        rule: whose parameters may change with time.
        when: the spans.
        at: from a begin and an end [s] to an array on the host, made of the rule with the means of
            its parameters.
        many: the same at many instants (n,) [s] at once, which become the first axis.
    """
    if not rule.changes:
        return at(when[0][1:])
    linear = rule.program == AFFINE or isinstance(rule.program.tree, Variable)
    knots = knots_of(rule)

    def over(begin: float, end: float) -> Values:
        if linear or begin == end:
            return at((begin, end))
        span = np.array([begin]), np.array([end])
        return mean(many or instants, *span, knots, parts=_PARTS, bound=_OFF)[0]

    def instants(times: Numbers) -> Numbers:
        return np.stack([at((time, time)) for time in times.tolist()])

    return sum(weight * over(begin, end) for weight, begin, end in when)


def knots_of(rule: Rule) -> Numbers:
    """Return the times at which parameters of a rule are known to bend or jump [s]."""
    known = (it.knots for it in rule.parameters if it.changes and it.knots is not None)
    return np.unique(np.concatenate([np.empty(0), *known]))


def bends_of(rule: Rule, begin: float, end: float) -> Numbers:
    """Return the times inside a span at which what a rule gives bends or jumps, whatever the place;
    see `bends`.
    """
    given = {it.name: it for it in rule.parameters}
    found, seen = [knots_of(rule)], set[int]()

    def search(tree: Node) -> None:
        names = {part.name for part in walk(tree) if isinstance(part, Variable)}
        if id(tree) in seen or not any(given[it].changes for it in names & given.keys()):
            return
        seen.add(id(tree))
        # The largest parts of the formula that are functions of time alone.
        if names <= given.keys():
            found.append(bends(lambda times: values(tree, names, times), begin, end, found[0]))
            return
        for part in getattr(tree, "arguments", ()) or getattr(tree, "operands", ()):
            search(part)

    def values(tree: Node, names: set[str], times: Numbers) -> Numbers:
        rows = {name: given[name].values for name in names}
        seen = {name: it(times) if callable(it) else it[None] for name, it in rows.items()}
        with np.errstate(all="ignore"):
            return np.asarray(evaluate(tree, seen), np.float64)

    search(rule.program.tree)
    inside = np.unique(np.concatenate(found))
    return inside[(inside > begin) & (inside < end)]


def by_temperature(source: Rule) -> bool:
    """Whether a source depends on the temperature of what it heats."""
    return source.program.reads(MIRROR, TEMPERATURE)


def add_heated(
    to: Values,
    source: Rule,
    problem: Problem,
    where: Where,
    when: Spans,
    temperature: Numbers | None = None,
) -> None:
    """Add the heat source of cells over some spans, per volume, or in total with coefficients; it
    may depend on the temperature of all cells.
    """
    conduction = problem.body
    shape, xp, medium = problem.grid.shape, where.xp, conduction.medium

    # A source that does not read coordinates has one value per id, evaluated once.
    by_id = not (by_temperature(source) or source.program.reads(*problem.grid.axis_names))
    table = np.zeros(0)
    if by_id:  # a number for each id
        codes = np.arange(medium.n_ids)
        place = ((0, 1),) * len(shape)
        found = averaged(
            source, when, lambda span: follow(source, problem, 0, place, codes, {}, span)
        )
        table = xp.asarray(np.broadcast_to(found, codes.shape).astype(np.float64))

    def work(first: int, last: int) -> None:
        box: Ranges = ((first, last), *((0, n) for n in shape[1:]))
        ids = medium.ids(box)
        if by_id:
            heat = table.take(xp.asarray(ids).astype(np.intp))
        else:
            codes = ids.astype(np.int64)
            seen: Seen = {}
            if temperature is not None:
                seen = dict.fromkeys((MIRROR, TEMPERATURE), temperature[first:last])
            heat = xp.asarray(
                averaged(
                    source, when, lambda span: follow(source, problem, 0, box, codes, seen, span)
                )
            )

        if conduction.coefficients is not None:
            heat = heat * xp.asarray(conduction.coefficients.volume(box))
        to[first:last] += heat

    where.each(shape, work)


# Enthalpies in a linear system: the driving quantity of the heat flow, and the heat that a cell
# stores when it rises.
#
# The state is the enthalpy H (`conduction.py`). The system is linear in the driving quantity. This
# is the potential phi if all of a body is of one material: between its cells a steady state is then
# linear for any k(T) (G. Kirchhoff's transform). Otherwise it is the temperature, with the
# conductances that give the current flows, each the mean of k between two temperatures.

_CLOSE = 1e-7  # of the largest temperature: of closer ones the mean conductivity counts
_STIFF = 1e6  # times what flows per degree is what a cell stores whose temperature stands still
_NUDGE = 0.01  # degrees by which a temperature is moved to see what follows
_FLAT = 1e-9  # how far a slope may be off by rounding
_HALVINGS = 200  # of an interval: more than doubles have
_MELTED = 1e-9  # of all temperatures: a rise that melts what melts


@dataclass(frozen=True, eq=False)
class Contents:
    """The enthalpies of a body, for its linear systems.

    Attributes:
        conduction: its step.
        enthalpy: material laws.
        ids: of all cells.
        drive: the curve of the driving quantity: potential or temperature.
        has_one: whether all cells that are not held are of one material, and `drive` the potential.
        problem: whose they are.
        volumes: what the state of each cell counts by: as much as it holds where cells differ [m^3]
            or are cut, else 1.
    """

    conduction: Conduction
    enthalpy: Enthalpy
    ids: Ids
    drive: Curve
    has_one: bool
    problem: Problem
    volumes: Numbers

    @property
    def is_symmetric(self) -> bool:
        """Whether what flows grows by the same on both sides of every face."""
        return self.has_one and not self.enthalpy.radiates

    def driving(self, state: Numbers) -> Numbers:
        """Return the driving quantity of a state."""
        return np.asarray(self.enthalpy.of(self.drive, state, self.ids))

    def state(self, driving: Numbers) -> Numbers:
        """Return the state of a driving quantity; a cell just at its melting point is solid."""
        return self.enthalpy.where(self.drive, driving, self.ids)

    def stored(self, state: Numbers, most: Numbers) -> Numbers:
        """Return the rise of the state per unit of the driving quantity.

        Args:
            state: of all cells.
            most: by how much it would rise if no heat flowed off; where the temperature is constant
                (melting), a large multiple of this is returned instead of infinity.
        """
        slope = self.enthalpy.slope(self.drive, state, self.ids)
        stiff = _STIFF * most
        moves = slope * stiff > 1
        return np.where(moves, 1 / np.where(moves, slope, 1.0), stiff)

    def limited(self, state: Numbers, wanted: Numbers) -> Numbers:
        """Limit a new state: a cell that would cross its melting interval stops at the end of it,
        since the linearization says nothing about its temperature beyond.
        """
        # Pieces at constant temperature, in which some material melts.
        still = self.enthalpy.temperature.slopes == 0
        found = wanted
        for piece in np.flatnonzero((still & np.isfinite(self.enthalpy.knots)).any(axis=0)):
            ends = self.enthalpy.knots[:, piece : piece + 2]
            begin, end = (np.where(still[:, piece], it, np.nan)[self.ids] for it in ends.T)
            found = np.where((state < end) & (found > end), end, found)
            # Melting stops at the upper end, freezing at the lower one.
            found = np.where((state > begin) & (found < begin), begin, found)
        return found

    def conductance(self, axis: int, state: Numbers) -> Numbers:
        """Return K by the driving quantity between cells and the next ones along an axis; that of
        the last cell leads to the first.
        """
        ids, beside = self.ids, np.roll(self.ids, -1, axis)
        # Conductance of cells of one material by potential; it counts only where the materials
        # agree.
        whole = tuple((0, n) for n in ids.shape)
        between = passage(self.problem, axis, whole, ids, beside, "high")
        by_potential = between.between
        alike = self.enthalpy.kinds[ids] == self.enthalpy.kinds[beside]
        if self.has_one:
            return np.where(alike, by_potential, 0.0)

        # Driven by temperature: within a material, K times the mean of k between both temperatures
        # gives exactly the flow by potential. For nearly equal temperatures the quotient would
        # cancel, and lies between the slopes of their pieces, which are one where the piece is.
        here = potentials(self.conduction, state, ids)
        k, t, phi = (here[name] for name in (CONDUCTIVITY, TEMPERATURE, MIRROR))
        steep = self._steepness(state, k)
        next_k, next_t, next_phi, next_steep = (np.roll(it, -1, axis) for it in (k, t, phi, steep))
        rise, close = next_t - t, _CLOSE * abs(t).max()
        mean = np.divide(next_phi - phi, rise, out=steep.copy(), where=rise != 0)
        between_both = np.clip(mean, np.minimum(steep, next_steep), np.maximum(steep, next_steep))
        mean = np.where(abs(rise) > close, mean, between_both)

        own, other, contact, *_ = between.series
        through = own / k + other / next_k + contact
        return np.asarray(np.where(alike, by_potential * mean, 1 / through))

    def _steepness(self, state: Numbers, k: Numbers) -> Numbers:
        """Return d phi / d T of the pieces of a state, of conductivities k; k where T stands."""
        it, ids = self.enthalpy, self.ids
        slopes = (it.slope(curve, state, ids) for curve in (it.potential, it.temperature))
        by_heat, warms = slopes
        return np.divide(by_heat, warms, out=k.copy(), where=warms > 0)

    def slopes(self, axis: int, state: Numbers) -> tuple[Numbers, Numbers]:
        """Return by how much less flows into cells from the next ones along an axis per unit of
        their own state, and by how much more per unit of that of the next ones; 0 where the grid
        ends.

        Where resistances of half cells, c / k, are in series, less flows by the flow itself times
        what they grow by.
        """
        it, ids, beside = self.enthalpy, self.ids, np.roll(self.ids, -1, axis)
        whole = tuple((0, n) for n in ids.shape)
        between = passage(self.problem, axis, whole, ids, beside, "high")
        here = potentials(self.conduction, state, ids)
        k, t = here[CONDUCTIVITY], here[TEMPERATURE]
        curves = it.potential, it.temperature, it.conductivity
        steep, warms, varies = (it.slope(curve, state, ids) for curve in curves)

        # Between different materials half cells and contacts are in series.
        own, other, contact, *_ = between.series
        g = 1 / (own / k + other / np.roll(k, -1, axis) + contact)
        flow, cooling, warming = g * (np.roll(t, -1, axis) - t), g, g
        if it.radiates:
            at, _, radiates = self.radiated(axis, state)
            given = radiates.flow, radiates.cooling, radiates.warming
            parts = [np.array(it) for it in (flow, cooling, warming)]
            for values, more in zip(parts, given, strict=True):
                values.reshape(-1)[at] = more
            flow, cooling, warming = parts
        # A warmer half cell that conducts more resists less: that of 1/k is -k'/k^2.
        varies = varies / (k * k)
        cooling = cooling * (warms - flow * own * varies)
        warming = warming * np.roll(warms, -1, axis) + warming * flow * other * np.roll(
            varies, -1, axis
        )

        # Within a material the flow is a difference of potentials, whatever k does.
        alike = it.kinds[ids] == it.kinds[beside]
        found = (
            np.where(alike, between.between * steep, cooling),
            np.where(alike, between.between * np.roll(steep, -1, axis), warming),
        )
        if not self.problem.boundary.periodic(axis):
            for values in found:
                values[(slice(None),) * axis + (-1,)] = 0.0
        return found

    def rounded(self, curve: Curve, state: Numbers, ids: Ids) -> Numbers:
        """Return what half a unit in the last place of 1 makes of a curve at some states: the
        roundings of the state, of its distance from a knot times a slope, and of their sum.
        """
        it = self.enthalpy
        begins = it.of(Curve(curve.begins, 0 * curve.slopes), state, ids)
        value, slope = it.of(curve, state, ids), it.slope(curve, state, ids)
        return np.asarray(abs(slope * state) + 2 * abs(value - begins) + abs(value))

    def radiated(
        self, axis: int, state: Numbers
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], RadiatedFlow]:
        """Return flat indices of the cells that radiate to the next ones along an axis, those of
        the next ones, and what flows into the first.
        """
        ids, whole = self.ids, tuple((0, n) for n in self.ids.shape)
        beside = np.roll(ids, -1, axis)
        *series, radiance = passage(self.problem, axis, whole, ids, beside, "high").series
        at = np.broadcast_to(radiance > 0, ids.shape).copy()
        if not self.problem.boundary.periodic(axis):
            at[(slice(None),) * axis + (-1,)] = False

        here = np.flatnonzero(at)
        there = np.roll(np.arange(ids.size).reshape(ids.shape), -1, axis).reshape(-1)[here]
        sides = [
            potentials(self.conduction, state.reshape(-1)[it], ids.reshape(-1)[it])
            for it in (here, there)
        ]
        own, other, contact, e = (np.broadcast_to(it, at.shape)[at] for it in (*series, radiance))
        temperatures = [it[TEMPERATURE] for it in sides]
        halves = own / sides[0][CONDUCTIVITY], other / sides[1][CONDUCTIVITY]
        with np.errstate(divide="ignore"):
            flow = radiated(temperatures[0], temperatures[1], halves[0], halves[1], contact, e)
        return here, there, flow

    def tangent(
        self, k: Numbers, ghosts: Callable[[Seen], Numbers], state: Numbers, ids: Ids
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return the tangent (d, f) of the flow through a face: f - d times the driving quantity;
        and what d is where more flows in as cells warm, whose conductivity grows, and d is 0.

        Args:
            k: conductances by potential.
            ghosts: from `potentials` of the mirror points to potentials beyond the face.
            state: of the mirror points.
            ids: of the mirror points.
        """
        # A central difference; the state is moved by its temperature, since the
        # enthalpy may jump where the material melts.
        it, sides = self.enthalpy, []
        here = potentials(self.conduction, state, ids)
        for degrees in (_NUDGE, -_NUDGE):
            moved = it.where(it.temperature, here[TEMPERATURE] + degrees, ids)
            seen = potentials(self.conduction, moved, ids)
            flow = k * (ghosts(seen) - seen[MIRROR])
            sides.append((it.of(self.drive, moved, ids), seen[MIRROR], flow))
        width, rise, more = (up - down for up, down in zip(*sides, strict=True))
        d = -more / width

        # A slope within rounding error of 0 is 0: an insulated face must not look like a weak
        # exchange.
        least = _FLAT * k * rise / width
        exact, d = np.where(abs(d) > least, d, 0.0), np.where(d > least, d, 0.0)
        return d, k * (ghosts(here) - here[MIRROR]) + d * it.of(self.drive, state, ids), exact

    def heat(self, state: Numbers, part: tuple[Numbers, ...]) -> float:
        """Return the heat of a part, per unit of `volumes`: the sum of its states times these."""
        return float((np.broadcast_to(self.volumes, state.shape) * state)[part].sum())

    def warmed(
        self, driving: Numbers, part: tuple[Numbers, ...], heat: float
    ) -> tuple[Numbers, Numbers]:
        """Shift the driving quantity of a part by a constant until the part holds a given heat, and
        return it with the state; cells that melt there take up the rest.

        Args:
            driving: of all cells.
            part: indices of its cells.
            heat: the sum of its states, times `volumes`.

        Returns:
            (driving quantity of the cells of the part, their state).
        """
        it, ids, here = self.enthalpy, self.ids[part], driving[part]
        volumes = np.broadcast_to(self.volumes, self.ids.shape)[part]

        def state(more: float) -> Numbers:
            return it.where(self.drive, here + more, ids)

        # The heat is a monotonic function of the shift: bracket it, then bisect to the last bit.
        reach = 1.0 + float(abs(here).max())
        low, high = -reach, reach
        while (volumes * state(low)).sum() > heat:
            low *= 2
        while (volumes * state(high)).sum() < heat:
            high *= 2
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (middle, high) if (volumes * state(middle)).sum() <= heat else (low, middle)

        # At the melting point, the enthalpy is not determined by the temperature: all melting cells
        # get the same fraction of their latent heat.
        solid, molten = state(low), state(high + _MELTED * reach)
        left, room = heat - (volumes * solid).sum(), (volumes * (molten - solid)).sum()
        return here + low, solid + (molten - solid) * (left / room if room > 0 else 0.0)


def contents_of(problem: Problem, ids: Ids) -> Contents | None:
    """Return the enthalpies of a problem, if these are its state.

    Args:
        problem: whose state.
        ids: of all its points.
    """
    conduction = problem.conduction
    if conduction is None or (it := conduction.enthalpy) is None:
        return None

    # The potential drives heat if all cells that can warm are of one material, and no finite
    # contact joins them to held cells.
    held = np.isinf(conduction.medium.capacity)
    present = np.bincount(ids.reshape(-1), minlength=len(held)) > 0
    own, given = (np.flatnonzero(present & mask) for mask in (~held, held))
    meets = np.isfinite(it.contact) | (it.radiance > 0)
    joined = meets[:, own][:, :, given].any()
    has_one = len(set(it.kinds[own])) == 1 and not joined
    drive, volumes = it.potential if has_one else it.temperature, conduction.medium.capacity[ids]
    if conduction.coefficients:
        volumes = conduction.coefficients.capacity(tuple((0, n) for n in ids.shape))
    volumes = np.where(np.isinf(volumes), 1.0, volumes)  # held cells have no balance
    return Contents(conduction, it, ids, drive, has_one, problem, volumes)
