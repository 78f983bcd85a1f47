"""The balance of heat of every cell at a time, linear in temperatures: A u = f. Where the state is
heat content, u is what drives heat (`contents.py`).

What flows into a cell is f - A u = q + sum of K (u_j - u) over its neighbours, those beyond faces
of the domain being ghosts. A ghost g(u) that depends on its mirror point stands as its tangent
there, g + g' (u' - u): exact for faces that are affine, Newton's method for others. Cells whose
state is held are no unknowns: what flows to them is part of d and f of their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.axes import OUTER, on_three
from tetris_sim.boundary import SIDES, Side
from tetris_sim.conduction import MIRROR, Conduction, Ids, Numbers, Rule, RuledFace
from tetris_sim.errors import UnsupportedError
from tetris_sim.problem import Problem
from tetris_sim.reference import Seen, follow
from tetris_sim.slab import Ranges
from tetris_sim.solvers.contents import Contents, contents_of
from tetris_sim.solvers.hierarchy import Operator

_FLAT = 1e-10  # how far a slope may be off by rounding
_FAR = 100.0  # degrees away from where it is, a straight line is as steep
_EVEN = 1e-9  # of the largest weight: by how much weights that should be equal may differ


@dataclass(frozen=True, eq=False)
class Balance:
    """The balance of all cells, by volume or as it is (`conduction.py`).

    Attributes:
        conductance: K between a cell and the next one by axis, that of the last leading to the
            first, 0 where no heat flows; each of the shape of the grid.
        exchange: d, what flows out per degree to where temperatures are given.
        heat: f, what flows in at 0 degrees.
        capacity: what a cell stores by its state, of the shape of the grid: rho c, or 1 if that is
            heat content; infinite where the state is held.
        is_linear: whether it is the same for every state.
        contents: of a body whose state is heat content.
    """

    conductance: tuple[Numbers, ...]
    exchange: Numbers
    heat: Numbers
    capacity: Numbers
    is_linear: bool
    contents: Contents | None = None

    @property
    def held(self) -> npt.NDArray[np.bool_]:
        """Where the state is no unknown."""
        return np.isinf(self.capacity)

    @property
    def whole(self) -> Numbers:
        """What flows out of a cell that is a degree warmer than all around it."""
        found: Numbers = self.exchange.copy()
        for axis, k in enumerate(self.conductance):
            found += k + np.roll(k, 1, axis)
        return found

    def driving(self, state: Numbers) -> Numbers:
        """What drives heat: the state itself, if it is not heat content."""
        return state if self.contents is None else self.contents.driving(state)

    def flows(self, u: Numbers) -> Numbers:
        """What flows into cells at a state: f - A u."""
        found: Numbers = self.heat - self.exchange * u
        for axis, k in enumerate(self.conductance):
            flow = k * (np.roll(u, -1, axis) - u)
            found += flow - np.roll(flow, 1, axis)
        return found

    def operator(self, more: Numbers | float = 0.0) -> Operator:
        """A for a solver, with more on its diagonal: three axes, in `OUTER` order."""
        shape = on_three(self.heat.shape, 1, OUTER)
        parts = on_three(self.conductance, np.zeros(self.heat.shape), OUTER)
        diagonal = self.exchange + np.where(self.held, 0.0, more)
        return tuple(np.ascontiguousarray(it).reshape(shape) for it in (*parts, diagonal))


def why_not(problem: Problem) -> str | None:
    """Why the balance of a problem cannot be solved, as a sentence; None if it can."""
    if problem.equations is not None:
        return "it solves heat balances, and these are equations of another kind"
    if problem.conduction is None:
        reach = max(sum(map(abs, offset)) for offset in problem.stencil.offsets)
        terms = problem.stencil.terms
        largest = max(map(abs, terms.values()))
        uneven = any(
            abs(terms.get(tuple(-c for c in offset), 0.0) - weight) > _EVEN * largest
            for offset, weight in terms.items()
        )
        if reach > 1 or uneven or abs(sum(terms.values()) - 1) > _EVEN:
            return (
                "it solves balances between each point and the next ones along the axes, with "
                "equal weights on both sides that add up to 1; this stencil is another one"
            )
    return None


def balance(problem: Problem, time: float, state: Numbers) -> Balance:
    """The balance of all cells.

    Args:
        problem: see `why_not`.
        time: for what changes [s].
        state: (n0, ...), where what is not linear takes its tangents, and what held cells have.

    Raises:
        UnsupportedError: the problem has no such balance.
    """
    if (refusal := why_not(problem)) is not None:
        raise UnsupportedError(refusal[0].upper() + refusal[1:] + ".")
    problem = replace(problem, start=(0, time), dtype=np.dtype(np.float64))
    if problem.conduction is None:
        return _of_stencil(problem)
    return _Maker(problem, problem.conduction, state).make()


def _of_stencil(problem: Problem) -> Balance:
    """With K and d in 1/s, and rho c 1."""
    grid = problem.grid
    conductance, d, f = [], np.zeros(grid.shape), np.zeros(grid.shape)
    for axis, n in enumerate(grid.shape):
        offset = tuple(int(k == axis) for k in range(grid.ndim))
        rate = problem.stencil.terms.get(offset, 0.0) / problem.dt
        between = np.full(grid.shape, rate)
        if not problem.boundary.periodic(axis):
            _plane(between, axis, n - 1)[...] = 0.0
            for side in SIDES:
                ((a, b),) = problem.boundary.reflections(
                    axis, side, spacing=grid.spacing[axis], width=1
                )
                outermost = 0 if side == "low" else n - 1
                _plane(d, axis, outermost)[...] += rate * (1 - b)
                _plane(f, axis, outermost)[...] += rate * a
        conductance.append(between if n > 1 else np.zeros(grid.shape))
    return Balance(tuple(conductance), d, f, np.ones(grid.shape), is_linear=True)


class _Maker:
    """Puts the balance of a body together."""

    def __init__(self, problem: Problem, conduction: Conduction, state: Numbers) -> None:
        self._problem, self._conduction, self._state = problem, conduction, state
        shape = problem.grid.shape
        self._whole: Ranges = tuple((0, n) for n in shape)
        self._ids = conduction.medium.ids(self._whole)
        self._d, self._f = np.zeros(shape), np.zeros(shape)
        self._contents = contents_of(problem, self._ids)
        self._drive = state if self._contents is None else self._contents.driving(state)
        self._linear = self._contents is None or self._contents.has_one

    def make(self) -> Balance:
        medium, coefficients = self._conduction.medium, self._conduction.coefficients
        if (source := self._conduction.source) is not None:
            codes = self._ids.astype(np.int64)
            self._f += follow(source, self._problem, 0, self._whole, codes, {})
            if coefficients is not None:
                self._f *= coefficients.volume(self._whole)
        capacity = (
            medium.capacity[self._ids]
            if coefficients is None
            else coefficients.capacity(self._whole)
        )

        held = np.isinf(capacity)
        conductance = tuple(self._along(axis, held) for axis in range(self._ids.ndim))
        self._d[held] = 0.0
        self._f[held] = 0.0
        return Balance(conductance, self._d, self._f, capacity, self._linear, self._contents)

    def _along(self, axis: int, held: npt.NDArray[np.bool_]) -> Numbers:
        """K along an axis, and d and f of what lies beyond its faces and of held cells."""
        n = self._problem.grid.shape[axis]
        if self._contents is not None:
            between = self._contents.conductance(axis, self._state)
        elif self._conduction.coefficients is None:
            table = self._conduction.medium.conductance[axis]
            between = table[self._ids, np.roll(self._ids, -1, axis)]
        else:
            between = np.array(self._conduction.coefficients.conductance(axis, self._whole))

        if not self._problem.boundary.periodic(axis):
            for side in SIDES:
                self._face(axis, side)
            _plane(between, axis, n - 1)[...] = 0.0
        if n == 1:
            return np.zeros_like(between)
        if not held.any():
            return np.asarray(between)

        beyond = np.roll(held, -1, axis)
        for mine, theirs, shift in ((~held & beyond, -1, 0), (held & ~beyond, 1, 1)):
            k = np.where(mine, between, 0.0)
            k, other = np.roll(k, shift, axis), np.roll(self._drive, theirs, axis)
            self._d += k
            self._f += k * np.where(k > 0, other, 0.0)
        return np.where(held | beyond, 0.0, between)

    def _face(self, axis: int, side: Side) -> None:
        """D and f of the ghosts beyond a face."""
        n = self._problem.grid.shape[axis]
        at = 0 if side == "low" else n - 1
        box = (*self._whole[:axis], (at, at + 1), *self._whole[axis + 1 :])
        ids = np.take(self._ids, [at], axis)
        if (coefficients := self._conduction.coefficients) is None:
            k = self._conduction.medium.conductance[axis][ids, ids]
        else:
            beyond = -1 if side == "low" else n - 1
            span = (*self._whole[:axis], (beyond, beyond + 1), *self._whole[axis + 1 :])
            k = coefficients.conductance(axis, span)

        here = np.take(self._state, [at], axis)
        face = self._problem.ruled_face(axis, side)
        ghosts = self._ghosts(face, box, ids)
        if self._contents is not None:
            d, f = self._contents.tangent(k, partial(ghosts, face.rule), here, ids)
            self._linear = self._linear and face.is_affine
        else:
            ghost, slope = self._tangent(face, ghosts, here)
            d, f = k * (1 - slope), k * (ghost - slope * here)
        _plane(self._d, axis, at)[...] += d
        _plane(self._f, axis, at)[...] += f

    def _ghosts(self, face: RuledFace, box: Ranges, ids: Ids) -> Callable[[Rule, Seen], Numbers]:
        """Ghosts by a rule, from what is seen of the mirror points."""
        codes = face.codes(box, ids, self._conduction.medium.n_ids)

        def ghosts(rule: Rule, seen: Seen) -> Numbers:
            found = follow(rule, self._problem, 0, box, codes, seen)
            return np.asarray(np.broadcast_to(found, ids.shape))

        return ghosts

    def _tangent(
        self, face: RuledFace, ghosts: Callable[[Rule, Seen], Numbers], here: Numbers
    ) -> tuple[Numbers, Numbers]:
        """The ghosts of mirror points, and how they grow with them."""
        if face.is_affine:
            # Exactly b: where it is 1 nothing may be left of d.
            parameters = tuple(
                replace(it, values=np.zeros(1)) if it.name == "a" else it
                for it in face.rule.parameters
            )
            steep = replace(face.rule, parameters=parameters)
            ones = {MIRROR: np.ones(here.shape)}
            return ghosts(face.rule, {MIRROR: here}), ghosts(steep, ones)

        def at(degrees: float) -> Numbers:
            return ghosts(face.rule, {MIRROR: here + degrees})

        slope, far = (at(more + 0.5) - at(more - 0.5) for more in (0.0, _FAR))
        self._linear = self._linear and bool((abs(far - slope) < _FLAT).all())
        return at(0.0), np.where(abs(slope - 1) < _FLAT, 1.0, slope)


def _plane(values: Numbers, axis: int, at: int) -> Any:
    """One plane across an axis, to be changed."""
    return values[(slice(None),) * axis + (slice(at, at + 1),)]
