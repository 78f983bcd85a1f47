"""What the balance of a body has at every point and time, made where it is used, in parts.

A part is some planes across the first axis: few enough on the host to stay in a cache, so that
threads make them side by side; on a GPU only ids are sent there, and conductances looked up. Parts
depend on the grid alone, and so does every bit of what is made, and of sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.model.conduction import (
    CONDUCTIVITY,
    MIRROR,
    TEMPERATURE,
    Conduction,
    Curve,
    Enthalpy,
    Ids,
    Numbers,
    Rule,
)
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import Seen, follow, potentials
from tetris_sim.model.slab import Ranges

Values = Any  # arrays of NumPy or CuPy
Work = Callable[[int], None]
_PART = 1 << 16  # points, on the host
_PART_OF_GPU = 1 << 24


def one_by_one(n: int, work: Work) -> None:
    """Call work(0) to work(n - 1)."""
    for number in range(n):
        work(number)


@dataclass(frozen=True)
class Where:
    """Where arrays are, and who works on them.

    Attributes:
        xp: NumPy, or a module like it.
        share: calls a function with the numbers of all parts, in any order.
    """

    xp: Any = np
    share: Callable[[int, Work], None] = one_by_one

    def parts(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Planes across the first axis, (first, last + 1)."""
        most = _PART if self.xp is np else _PART_OF_GPU
        planes = max(1, most // math.prod(shape[1:]))
        return [(at, min(at + planes, shape[0])) for at in range(0, shape[0], planes)]

    def each(self, shape: Sequence[int], work: Callable[[int, int], None]) -> None:
        """Call a function with the planes of all parts."""
        parts = self.parts(shape)
        self.share(len(parts), lambda number: work(*parts[number]))

    def sum(self, shape: Sequence[int], of: Callable[[slice], Values]) -> float:
        """The sum of what a function gives for planes, the same bits for any number of threads."""
        parts = self.parts(shape)
        sums = [0.0] * len(parts)

        def work(number: int) -> None:
            sums[number] = float(of(slice(*parts[number])).sum())

        self.share(len(parts), work)
        return math.fsum(sums)

    def norm(self, shape: Sequence[int], of: Callable[[slice], Values]) -> float:
        """The root of the sum of squares of what a function gives for planes."""

        def squares(planes: slice) -> Values:
            values = of(planes)
            return values * values

        return math.sqrt(self.sum(shape, squares))

    def host(self, values: Values) -> Any:
        """An array of the host."""
        return values if isinstance(values, np.ndarray) else values.get()


HERE = Where()  # on the host, by one thread


def is_plain(problem: Problem) -> bool:
    """Whether it is known without its cells that none is held and none holds heat content."""
    conduction = problem.conduction
    return conduction is None or (
        conduction.enthalpy is None and not np.isinf(conduction.medium.capacity).any()
    )


def conductances(problem: Problem, conduction: Conduction, where: Where) -> list[Values]:
    """K by axis between a cell and the next one, 0 where the grid ends; not of heat contents."""
    shape, xp, medium = problem.grid.shape, where.xp, conduction.medium
    found = [xp.empty(shape) if n > 1 else xp.zeros(shape) for n in shape]
    tables = [xp.asarray(table.reshape(-1)) for table in medium.conductance]

    def look_up(axis: int, ids: Values, beside: Values) -> Values:
        return tables[axis].take(ids.astype(np.intp) * medium.n_ids + beside)

    def work(first: int, last: int) -> None:
        box = ((first, last), *((0, n) for n in shape[1:]))
        long = [axis for axis, n in enumerate(shape) if n > 1]
        if conduction.coefficients is not None:
            for axis in long:
                found[axis][first:last] = xp.asarray(conduction.coefficients.conductance(axis, box))
            return
        if medium.n_ids == 1:
            for axis in long:
                found[axis][first:last] = float(medium.conductance[axis][0, 0])
            return

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
    for axis, k in enumerate(found):
        if not problem.boundary.periodic(axis):
            k[(slice(None),) * axis + (slice(-1, None),)] = 0.0
    return found


def add_heated(
    to: Values, source: Rule, problem: Problem, conduction: Conduction, where: Where
) -> None:
    """Add what heats cells, by volume or as it is."""
    shape, xp, medium = problem.grid.shape, where.xp, conduction.medium
    by_id = set(problem.grid.axis_names).isdisjoint(source.program.inputs)
    table = np.zeros(0)
    if by_id:  # a number for each id
        codes = np.arange(medium.n_ids)
        found = follow(source, problem, 0, ((0, 1),) * len(shape), codes, {})
        table = xp.asarray(np.broadcast_to(found, codes.shape).astype(np.float64))

    def work(first: int, last: int) -> None:
        box: Ranges = ((first, last), *((0, n) for n in shape[1:]))
        ids = medium.ids(box)
        if by_id:
            heat = table.take(xp.asarray(ids).astype(np.intp))
        else:
            heat = xp.asarray(follow(source, problem, 0, box, ids.astype(np.int64), {}))
        if conduction.coefficients is not None:
            heat = heat * xp.asarray(conduction.coefficients.volume(box))
        to[first:last] += heat

    where.each(shape, work)


# Heat contents in a balance: what drives heat, and what a cell stores when that rises.
#
# The state is the heat content H (`enthalpy.py`). A balance is linear in what drives the heat: the
# potential phi, where all of a body is of one material, so that between its cells a steady state is
# linear for any k(T) (G. Kirchhoff's transform); else the temperature, with the conductances that
# give the flows of now, each the mean of k between two temperatures.

_CLOSE = 1e-7  # of the largest temperature: of closer ones the mean conductivity counts
_STIFF = 1e6  # times what flows per degree is what a cell stores whose temperature stands still
_NUDGE = 0.5  # degrees by which a temperature is moved to see what follows
_FLAT = 1e-10  # how far a slope may be off by rounding
_HALVINGS = 200  # of an interval: more than doubles have
_MELTED = 1e-9  # of all temperatures: a rise that melts what melts


@dataclass(frozen=True, eq=False)
class Contents:
    """The heat contents of a body.

    Attributes:
        conduction: its step.
        enthalpy: the curves.
        ids: of all cells.
        drive: the curve of what drives heat.
        has_one: whether all that can warm is of one material, and `drive` the potential.
    """

    conduction: Conduction
    enthalpy: Enthalpy
    ids: Ids
    drive: Curve
    has_one: bool

    def driving(self, state: Numbers) -> Numbers:
        """What drives heat in cells of a state."""
        return np.asarray(self.enthalpy.of(self.drive, state, self.ids))

    def state(self, driving: Numbers) -> Numbers:
        """The state of cells; what melts at just this temperature is solid."""
        return self.enthalpy.where(self.drive, driving, self.ids)

    def stored(self, state: Numbers, most: Numbers) -> Numbers:
        """How much the state rises with what drives heat.

        Args:
            state: of all cells.
            most: by how much it would rise if nothing flowed off; where a temperature stands still
                a large multiple of this is the answer.
        """
        slope = self.enthalpy.slope(self.drive, state, self.ids)
        stiff = _STIFF * most
        moves = slope * stiff > 1
        return np.where(moves, 1 / np.where(moves, slope, 1.0), stiff)

    def limited(self, state: Numbers, wanted: Numbers) -> Numbers:
        """Another state, but what would melt or freeze in passing is just molten or frozen: as long
        as it melts nothing can be said of its temperature after that.
        """
        still = self.enthalpy.temperature.slopes == 0
        found = wanted
        for piece in np.flatnonzero((still & np.isfinite(self.enthalpy.knots)).any(axis=0)):
            ends = self.enthalpy.knots[:, piece : piece + 2]
            begin, end = (np.where(still[:, piece], it, np.nan)[self.ids] for it in ends.T)
            found = np.where((state < end) & (found > end), end, found)
            found = np.where((state > begin) & (found < begin), begin, found)
        return found

    def conductance(self, axis: int, state: Numbers) -> Numbers:
        """K by what drives heat between cells and the next ones along an axis, that of the last
        leading to the first.
        """
        ids, beside = self.ids, np.roll(self.ids, -1, axis)
        by_potential = self.conduction.medium.conductance[axis][ids, beside]
        alike = self.enthalpy.kinds[ids] == self.enthalpy.kinds[beside]
        if self.has_one:
            return np.where(alike, by_potential, 0.0)

        here = potentials(self.conduction, state, ids)
        k, t, phi = (here[name] for name in (CONDUCTIVITY, TEMPERATURE, MIRROR))
        next_k, next_t, next_phi = (np.roll(it, -1, axis) for it in (k, t, phi))
        rise, close = next_t - t, _CLOSE * abs(t).max()
        apart = abs(rise) > close
        mean = np.where(apart, (next_phi - phi) / np.where(apart, rise, 1.0), (k + next_k) / 2)

        half, contact = self.enthalpy.half[axis], self.enthalpy.contact[axis]
        through = half[ids] / k + half[beside] / next_k + contact[ids, beside]
        return np.asarray(np.where(alike, by_potential * mean, 1 / through))

    def tangent(
        self, k: Numbers, ghosts: Callable[[Seen], Numbers], state: Numbers, ids: Ids
    ) -> tuple[Numbers, Numbers]:
        """(d, f) of what flows in through a face, f - d times what drives heat.

        Args:
            k: conductances by potential.
            ghosts: the potentials beyond the face, by what is seen of the mirror points.
            state: of these.
            ids: of these.
        """
        it, sides = self.enthalpy, []
        here = potentials(self.conduction, state, ids)
        for degrees in (_NUDGE, -_NUDGE):
            moved = it.where(it.temperature, here[TEMPERATURE] + degrees, ids)
            seen = potentials(self.conduction, moved, ids)
            flow = k * (ghosts(seen) - seen[MIRROR])
            sides.append((it.of(self.drive, moved, ids), seen[MIRROR], flow))
        width, rise, more = (up - down for up, down in zip(*sides, strict=True))
        d = -more / width
        d = np.where(d > _FLAT * k * rise / width, d, 0.0)
        return d, k * (ghosts(here) - here[MIRROR]) + d * it.of(self.drive, state, ids)

    def warmed(
        self, driving: Numbers, part: tuple[Numbers, ...], heat: float
    ) -> tuple[Numbers, Numbers]:
        """What drives heat in a part of the body, all of it moved alike until the part holds some
        heat, and the state; what melts there takes up the rest.

        Args:
            driving: of all cells.
            part: indices of its cells.
            heat: the sum of its states.
        """
        it, ids, here = self.enthalpy, self.ids[part], driving[part]

        def state(more: float) -> Numbers:
            return it.where(self.drive, here + more, ids)

        reach = 1.0 + float(abs(here).max())
        low, high = -reach, reach
        while state(low).sum() > heat:
            low *= 2
        while state(high).sum() < heat:
            high *= 2
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (middle, high) if state(middle).sum() <= heat else (low, middle)

        solid, molten = state(low), state(high + _MELTED * reach)
        left, room = heat - solid.sum(), (molten - solid).sum()
        return here + low, solid + (molten - solid) * (left / room if room > 0 else 0.0)


def contents_of(problem: Problem, ids: Ids) -> Contents | None:
    """The heat contents of a problem, if these are its state.

    Args:
        problem: whose state.
        ids: of all its points.
    """
    conduction = problem.conduction
    if conduction is None or (it := conduction.enthalpy) is None:
        return None
    held = np.isinf(conduction.medium.capacity)
    present = np.bincount(ids.reshape(-1), minlength=len(held)) > 0
    own, given = (np.flatnonzero(present & mask) for mask in (~held, held))
    joined = np.isfinite(it.contact[:, own][:, :, given]).any()
    has_one = len(set(it.kinds[own])) == 1 and not joined
    return Contents(conduction, it, ids, it.potential if has_one else it.temperature, has_one)
