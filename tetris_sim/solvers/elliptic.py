"""Elliptic constraints: fields p with 0 = F(p, u) at every moment, F linear in p.

A guess p is corrected: with r = F(p, u) and J = dF/dp, the solution is p - J^-1 r, whatever the
guess is. So faces that are given values, and everything else that does not depend on p, are in r,
which stages compute as they compute right-hand sides; only J is inverted here.

Where J has constant numbers and faces mirror fields, transforms make it diagonal
(`exponential.py`). Elsewhere its sparse matrix is factorised, or for many unknowns GMRES iterates
with an incomplete factorisation; once, or at every moment if J depends on u.

Networks of resistors are such a problem without stages: the potentials of electric currents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.equations import Equations, as_tap
from tetris_sim.model.formula import Variable, walk
from tetris_sim.model.linearisation import FaceError, gradients, split
from tetris_sim.model.problem import Problem
from tetris_sim.model.streams import Places
from tetris_sim.solvers.newton import Systems
from tetris_sim.solvers.spectral.exponential import (
    Matrix,
    Modes,
    apply_each,
    linear_matrix,
    product,
)

_SINGULAR = 1e-12  # of the largest eigenvalue: one that is 0 but for rounding
_EPS = float(np.finfo(np.float64).eps)
_UNITS = 64.0  # in the last place of all that is added up: what a sum of 0 may be off
_LEFT = 1e-11  # of a residual: what GMRES may leave
_FACTORISED = {1: 1 << 24, 2: 300_000, 3: 30_000}  # unknowns of a matrix, by the number of axes
_FILL, _DROP, _RESTART, _CYCLES = 20.0, 1e-5, 60, 50


class HostTransforms:
    """NumPy and scipy.fft in one thread: the same bits on every rank."""

    xp: Any = np
    types = frozenset({1, 2, 3, 4})
    options: Mapping[str, Any] = {}

    def __init__(self) -> None:
        import scipy.fft

        self.fft: Any = scipy.fft


class PseudoInverses:
    """1 / L where L is not 0, and 0 elsewhere: the solution without the waves that F lacks."""

    def of_numbers(self, values: Any) -> tuple[Any]:
        """Return them."""
        zero = np.abs(values) <= _SINGULAR * np.abs(values).max()
        return (np.where(zero, 0.0, 1 / np.where(zero, 1.0, values)),)

    def of_blocks(self, values: Any) -> tuple[Any]:
        """Return them."""
        return (np.linalg.pinv(values, rcond=_SINGULAR),)


class Constraints:
    """Solves the constraints of a problem for their fields.

    Args:
        problem: by right-hand sides, in float64; those of the unknowns are F, others do not count.
        unknowns: names of the fields p.

    Attributes:
        reads: the other fields that J depends on.
        by_waves: whether transforms solve them.

    Raises:
        ValueError: F is not linear in p, or its coefficients change with time, as a sentence.
    """

    def __init__(self, problem: Problem, unknowns: Sequence[str]) -> None:
        self._problem, self._unknowns = problem, tuple(unknowns)
        self._numbers = [problem.system.fields.index(name) for name in unknowns]
        self._largest, self._eps = 1.0, 0.0
        self.reads = self._find_reads(problem.system)
        self._invert: Callable[[Numbers], Numbers] | None = None
        self.by_waves = not self.reads and self._diagonalise()
        self._systems = None if self.by_waves else Systems(problem, None)

    def _find_reads(self, equations: Equations) -> tuple[str, ...]:
        """Return the other fields in the derivatives of F by p; raise where p is one of them."""
        unknown, given = {*self._unknowns}, {*equations.fields} - {*self._unknowns}
        moving = {it.name for it in equations.parameters if it.changes}
        slopes_of_all = [gradients(stage.programs) for stage in equations.stages]
        reads = False

        for stage, rows in zip(equations.stages, slopes_of_all, strict=True):
            for name, slopes in zip(stage.formulas, rows, strict=True):
                taps = {text: as_tap(text) for text in slopes}
                mine = [text for text, it in taps.items() if it is not None and it[0] in unknown]
                names = {
                    v.name for text in mine for v in walk(slopes[text]) if isinstance(v, Variable)
                }
                read = {it[0] for it in map(as_tap, names) if it is not None}
                if read & unknown:
                    msg = "it is not linear in the field that it gives"
                    raise ValueError(msg)
                if names & moving:
                    msg = "what multiplies the field that it gives may not change with time"
                    raise ValueError(msg)
                reads = reads or bool(read & given)
                # Names between depend on what they were made of.
                if mine:
                    unknown.add(name)
                elif any(it is not None and it[0] in given for it in taps.values()):
                    given.add(name)

        for name in self._unknowns:
            if equations.results[name] not in unknown:
                msg = f"it does not contain {name}"
                raise ValueError(msg)
        others = [name for name in equations.fields if name not in self._unknowns]
        return tuple(others) if reads else ()

    def _diagonalise(self) -> bool:
        """Find J as numbers per wave; return whether there are such numbers."""
        problem, mine = self._problem, self._numbers
        try:
            splitting = split(problem)
        except FaceError:
            return False
        if self._has_rest(splitting.rest):
            return False
        arrays: Any = HostTransforms()
        every = Modes(problem.grid.shape, [*splitting.ends.values()], arrays)
        whole = linear_matrix(splitting, every)
        place = {number: k for k, number in enumerate(mine)}
        # Of all fields only what the unknowns do to one another is inverted.
        matrix: Matrix = {
            (place[row], place[column]): values
            for (row, column), values in whole.items()
            if row in place and column in place
        }
        functions: Any = PseudoInverses()
        inverse = apply_each(matrix, len(mine), np, functions)[0]

        # A field of ones has the coefficient of a mean of 1, whatever transforms are scaled by.
        own = Modes(problem.grid.shape, [splitting.ends[name] for name in self._unknowns], arrays)
        unit = float(np.abs(own.forward(np.ones((len(mine), *problem.grid.shape)))).max())
        self._largest = max(float(np.abs(values).max()) for values in matrix.values())

        def invert(r: Numbers) -> Numbers:
            waves = own.forward(np.array(r))
            found = np.stack(product(inverse, waves))
            # Of waves that J turns into 0 there must be nothing in r.
            left = waves - np.stack(product(matrix, found))
            self._refuse_left(float(np.abs(left).max()) / unit)
            return np.asarray(own.backward(found))

        self._invert = invert
        return True

    def _has_rest(self, rest: Equations) -> bool:
        unknown = {*self._unknowns}
        for stage in rest.stages:
            for name, slopes in zip(stage.formulas, gradients(stage.programs), strict=True):
                if any(it is not None and it[0] in unknown for it in map(as_tap, slopes)):
                    unknown.add(name)
        return any(rest.results[name] in unknown for name in self._unknowns)

    def solve(
        self, residuals: Sequence[Numbers], state: Mapping[str, Numbers], eps: float
    ) -> list[Numbers]:
        """Return J^-1 r for each unknown, what is to be subtracted from the guess.

        Args:
            residuals: r of the unknowns, in their order, on the whole grid.
            state: the guesses, and the fields of `reads`, by name.
            eps: of the type in which r was computed.

        Raises:
            NumericsError: there is no solution, or it is not found.
        """
        r = np.stack([np.asarray(it, np.float64) for it in residuals])
        if not np.isfinite(r).all():
            return [np.full_like(it, np.nan) for it in r]  # the run ends by itself
        # Sums of large numbers that cancel are 0 but for the rounding of what was added.
        guess = max(float(np.abs(state[name]).max()) for name in self._unknowns)
        invert = self._invert or self._by_matrix(state)
        self._eps = _UNITS * eps * (self._largest * guess + float(np.abs(r).max()))
        return [*invert(r)]

    def _refuse_left(self, mean: float) -> None:
        if mean > self._eps:
            names = ", ".join(self._unknowns)
            msg = (
                f"0 = ... of {names} has no solution: its faces give {names} no value, so the mean "
                f"of the formula has to be 0, and it is {mean:.3g}; subtract a mean, as in "
                "f - mean(f), or let a face have a value"
            )
            raise NumericsError(msg)

    def _by_matrix(self, state: Mapping[str, Numbers]) -> Callable[[Numbers], Numbers]:
        """Return what inverts the sparse matrix of J; kept, unless that depends on fields."""
        from scipy.sparse import bmat, csr_matrix

        assert self._systems is not None
        grid, fields = self._problem.grid, self._problem.system.fields
        empty = np.zeros(grid.shape)
        u = np.stack([np.asarray(state.get(name, empty), np.float64) for name in fields])
        # Unknown number point * n_fields + field, of which those of p are kept.
        jacobian, each = self._systems.jacobian(u, 0.0), np.arange(grid.n_points)[:, None]
        rows = (each * len(fields) + np.array(self._numbers)).reshape(-1)
        matrix = jacobian[rows][:, rows].tocsc()
        self._largest = float(abs(matrix).sum(axis=1).max())
        if not np.isfinite(self._largest):
            msg = "the coefficients of 0 = ... are no finite numbers"
            raise NumericsError(msg)

        several, ones = len(self._numbers), np.ones((matrix.shape[0], 1))
        volumes = ones if grid.is_even else self._volumes(several)
        singular = float(np.abs(matrix @ ones).max()) <= _SINGULAR * self._largest
        if singular:
            # The mean of the correction is 0, and what is left of r a constant.
            matrix = bmat([[matrix, csr_matrix(ones)], [csr_matrix(volumes.T), None]], format="csc")
        solve = self._factorised(matrix, singular=singular)

        def invert(r: Numbers) -> Numbers:
            points = np.moveaxis(r, 0, -1).reshape(-1)
            found = solve(np.append(points, 0.0) if singular else points)
            if singular:
                # Factors round by what they find.
                rounded = _UNITS * _EPS * self._largest * float(np.abs(found[:-1]).max())
                self._refuse_left(abs(float(found[-1])) - rounded)
                found = found[:-1]
            return np.moveaxis(found.reshape(*grid.shape, several), -1, 0)

        # Of constant coefficients one factorisation serves the whole run.
        if not self.reads:
            self._invert = invert
        return invert

    def _volumes(self, several: int) -> Numbers:
        """What cells count in a mean, by their mean volume, (points * fields, 1)."""
        grid = self._problem.grid
        volumes = grid.volumes([(0, n) for n in grid.shape]) / grid.cell_volume
        return np.repeat(volumes.reshape(-1, 1), several, axis=0)

    def _factorised(self, matrix: Any, *, singular: bool) -> Callable[[Numbers], Numbers]:
        from scipy.sparse.linalg import LinearOperator, gmres, spilu, splu

        names = ", ".join(self._unknowns)
        few = matrix.shape[0] <= _FACTORISED[self._problem.grid.ndim]
        # An incomplete factorisation of a bordered matrix is a poor preconditioner.
        if not few and singular:
            msg = (
                f"0 = ... of {names} has faces that give no value and numbers that vary in space, "
                f"which is solved for up to {_FACTORISED[self._problem.grid.ndim]:,} points; let "
                "a face have a value, or take a smaller grid"
            )
            raise NumericsError(msg)
        try:
            if few:
                whole: Callable[[Numbers], Numbers] = splu(matrix).solve
                return whole
            near = spilu(matrix, drop_tol=_DROP, fill_factor=_FILL)
        except RuntimeError as error:
            msg = f"0 = ... of {names} has no single solution: its matrix is singular"
            raise NumericsError(msg) from error
        inverse = LinearOperator(matrix.shape, near.solve)

        def iterate(b: Numbers) -> Numbers:
            found, failed = gmres(
                matrix, b, M=inverse, rtol=_LEFT, restart=_RESTART, maxiter=_CYCLES
            )
            if failed:
                msg = f"0 = ... of {names}: GMRES leaves more than {_LEFT:g} of the residual"
                raise NumericsError(msg)
            return np.asarray(found)

        return iterate


# Networks of resistors.

_SOLVED = {1: 1 << 24, 2: 400_000, 3: 40_000}  # unknowns by factors, by the number of axes
_REMAINS = 1e-12  # of the right-hand side: what iterations may leave


@dataclass(frozen=True, eq=False)
class ResistorState:
    """Potentials with what they were found by.

    Attributes:
        own: resistances of the first sides of pairs [Ohm].
        other: of the second sides.
        potential: of the unknowns; NaN where none is known [V].
        flow: from the first to the second sides [A].
        into: currents into unknowns [A].
        heat: of unknowns: each side of a pair gets what its own resistance takes [W].
        inverse: potentials of the free unknowns by the currents into them.
    """

    own: Numbers
    other: Numbers
    potential: Numbers
    flow: Numbers
    into: Numbers
    heat: Numbers
    inverse: Callable[[Numbers], Numbers]


class ResistorNetwork:
    """Potentials between which currents flow through pairs of resistances in series.

    Args:
        a: numbers of the unknowns on the first sides of pairs.
        b: on the second sides.
        held: potentials that are given, by number [V].
        drive: currents into unknowns from elsewhere [A].
        ndim: of the grid that they lie on.

    Attributes:
        apart: numbers of the unknowns that no way leads to from one that is held.
    """

    def __init__(
        self, a: Places, b: Places, held: Mapping[int, float], drive: Numbers, ndim: int
    ) -> None:
        from scipy.sparse import coo_matrix, csgraph

        self.a, self.b, self._held, self._drive, self._ndim = a, b, held, drive, ndim
        size = len(drive)
        links = coo_matrix((np.ones(len(a)), (a, b)), (size, size))
        _, part = csgraph.connected_components(links, directed=False)
        open_ = np.isin(part, part[[*held]])
        self.apart = np.flatnonzero(~open_)
        open_[[*held]] = False
        self._free = np.flatnonzero(open_)
        # Where the matrix of the free unknowns has entries, by pair.
        place = np.full(size, -1)
        place[self._free] = np.arange(len(self._free))
        pairs = np.flatnonzero((place[a] >= 0) & (place[b] >= 0))
        self._pattern = place[a[pairs]], place[b[pairs]], pairs
        self._last: ResistorState | None = None

    def _sums(self, of_a: Numbers, of_b: Numbers) -> Numbers:
        n = len(self._drive)
        found = np.bincount(self.a, of_a, n) + np.bincount(self.b, of_b, n)
        return np.asarray(found, np.float64)

    def at(self, own: Numbers, other: Numbers) -> ResistorState:
        """Return the potentials with resistances of both sides of pairs [Ohm].

        Raises:
            NumericsError: they are not found.
        """
        # A heat, its slopes and what is said of it are asked for one after the other.
        last = self._last
        if last and np.array_equal(last.own, own) and np.array_equal(last.other, other):
            return last
        a, b, g, p = self.a, self.b, 1 / (own + other), np.zeros(len(self._drive))
        p[[*self._held]] = [*self._held.values()]
        inverse = self._inverse(g)
        p[self._free] = inverse((self._drive + self._sums(g * p[b], g * p[a]))[self._free])
        flow = g * (p[a] - p[b])
        heat, into = self._sums(flow**2 * own, flow**2 * other), self._sums(-flow, flow)
        p[self.apart] = np.nan
        self._last = ResistorState(own, other, p, flow, into, heat, inverse)
        return self._last

    def _inverse(self, g: Numbers) -> Callable[[Numbers], Numbers]:
        """Return what solves for the free potentials with conductances of pairs."""
        from scipy.sparse import csc_matrix
        from scipy.sparse.linalg import LinearOperator, cg, spilu, splu

        # Scaled to a diagonal of 1, so that conductances may differ by many orders.
        n, (rows, columns, pairs) = len(self._free), self._pattern
        scale, diagonal = 1 / np.sqrt(self._sums(g, g)[self._free]), np.arange(n)
        beside = -g[pairs] * scale[rows] * scale[columns]
        places = [np.concatenate(it) for it in ((rows, columns), (columns, rows))]
        places = [np.append(it, diagonal) for it in places]
        entries = np.concatenate([beside, beside, np.ones(n)])
        matrix = csc_matrix((entries, tuple(places)), (n, n))
        if n <= _SOLVED[self._ndim]:
            factors = splu(matrix)

            def direct(given: Numbers) -> Numbers:
                right = scale * given
                found = factors.solve(right)
                # Once more for what the factors left.
                return np.asarray(scale * (found + factors.solve(right - matrix @ found)))

            return direct
        near = LinearOperator((n, n), spilu(matrix, drop_tol=1e-4, fill_factor=8).solve)

        def iterated(given: Numbers) -> Numbers:
            found, failed = cg(matrix, scale * given, rtol=_REMAINS, M=near, maxiter=5000)
            if failed:
                msg = "conjugate gradients do not find the potential; take fewer cells"
                raise NumericsError(msg)
            return np.asarray(scale * found)

        return iterated

    def heated(self, at: ResistorState, own: Numbers, other: Numbers) -> Numbers:
        """Return how the heat of unknowns changes with small changes of both resistances [W]."""
        g, p = 1 / (at.own + at.other), np.zeros(len(self._drive))
        forced = g * at.flow * (own + other)
        p[self._free] = at.inverse(self._sums(forced, -forced)[self._free])
        twice = 2 * at.flow * (g * (p[self.a] - p[self.b]) - forced)
        squares = at.flow**2
        return self._sums(twice * at.own + squares * own, twice * at.other + squares * other)
