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

from tetris_sim.model.conduction import Conduction, Rule
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import follow
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
