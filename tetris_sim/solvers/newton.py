"""Equations of any kind, implicitly: TR-BDF2 steps and steady states by Newton's method.

With f(u, t) the right-hand sides and h the step, TR-BDF2 (see `implicit.py`) solves twice

    w - a h f(w, t') = c,                                       a = 1 - 1 / sqrt(2),

and a steady state is the end of steps (1 - tau J) d = tau f in a time that grows as f shrinks
(pseudo-transient continuation: C. T. Kelley, D. E. Keyes, SIAM J. Numer. Anal. 35 (1998) 508).

Systems 1 - tau J of few unknowns, and of lines, are factorised; J is exact (`linearisation.py`). Of
many, GMRES solves them with products J v of a compiled program, preconditioned by the mean of J in
transforms; where faces do not allow those, by an incomplete factorisation of the sparse matrix.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import NumericsError
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.equations import Offset, Rates, as_tap
from tetris_sim.model.exchange import NOTHING_AROUND, LumpSolution
from tetris_sim.model.formula import Node, evaluate_each
from tetris_sim.model.linearisation import (
    FaceError,
    Splitting,
    Taps,
    even_taps,
    face_ends,
    gradients,
    refuse_faces,
    tangent,
)
from tetris_sim.model.problem import Problem
from tetris_sim.model.radiation import Slopes
from tetris_sim.model.step_control import Counted
from tetris_sim.solvers.krylov import Heard, LeftOffError, nobody
from tetris_sim.solvers.spectral.exponential import (
    ArrayRates,
    Inverses,
    Modes,
    Tried,
    apply_each,
    linear_matrix,
    product,
)
from tetris_sim.solvers.surface_flows import joules_of

Solve = Callable[[Numbers], Numbers]  # of a system with a right-hand side, (n_fields, n0, ...)
_DIRECT = 20_000  # unknowns of a system that is factorised
_FILLS = 1e8  # entries of the product of what is looked at, about
_FORCING = 1e-3  # how much of a right-hand side GMRES may leave
_RESTART, _CYCLES = 40, 10  # of GMRES
_FILL, _DROP = 10.0, 1e-4  # of incomplete factorisations


class SolveFailedError(Exception):
    """Raised where a system or Newton's method does not converge, so the step is too long."""


class Systems:
    """The systems 1 - tau J of a problem.

    Args:
        problem: by right-hand sides, in float64.
        arrays: compiles programs, and has transforms.
    """

    def __init__(self, problem: Problem, arrays: Any) -> None:
        self._problem, self._equations, self._arrays = problem, problem.system, arrays
        self._evaluated = ArrayRates(problem)

        # Coefficients do not change with the state.
        self._slopes = [
            [
                {
                    read: node
                    for text, node in slopes.items()
                    if (read := as_tap(text)) is not None
                    and read[0] not in (self._equations.coefficients or {})
                }
                for slopes in gradients(stage.programs)
            ]
            for stage in self._equations.stages
        ]
        self.iterations = 0

    def at(self, u: Numbers, time: float, tau: float) -> Solve:
        """Return what solves (1 - tau J) x = b, with J at a state and a time [s].

        Raises:
            SolveFailedError: the matrix is singular, or not finite.
        """
        moving = self._problem.moving
        more = moving.around.slopes(u[0], time) if moving else None
        few = u.size <= _DIRECT or self._problem.grid.ndim == 1
        # What many cells do to many others fills a matrix.
        few = few and (more is None or more.left.nnz * more.right.nnz <= _FILLS)
        if not few and not more:
            with contextlib.suppress(FaceError):
                return self._by_waves(u, time, tau)
        return self._by_matrix(self.jacobian(u, time), tau, u.shape, more, few=few)

    def _by_matrix(
        self, jacobian: Any, tau: float, shape: tuple[int, ...], more: Slopes | None, *, few: bool
    ) -> Solve:
        """Solve by factors of a sparse matrix, exact ones of few unknowns."""
        from scipy.sparse import diags, identity
        from scipy.sparse.linalg import LinearOperator, spilu, splu

        one = identity(jacobian.shape[0], format="csc")
        matrix = (one - tau * (jacobian + more.matrix if more and few else jacobian)).tocsc()
        if not np.isfinite(matrix.data).all():
            raise SolveFailedError
        # Of what surfaces of voids do to each other only what each does to itself is factorised.
        near = (matrix - tau * diags(more.own)).tocsc() if more and not few else matrix
        try:
            factors = splu(near) if few else spilu(near, drop_tol=_DROP, fill_factor=_FILL)
        except RuntimeError as error:
            raise SolveFailedError from error
        acts = more.acts if more and few else None
        if few and acts is None:
            return lambda b: _by_field(factors.solve(_by_point(b)), shape)
        inverse, whole = LinearOperator(matrix.shape, factors.solve), matrix
        if more:
            beside = acts or more.along
            whole = LinearOperator(matrix.shape, lambda v: matrix @ v - tau * beside(v))
        return lambda b: _by_field(self._gmres(whole, _by_point(b), inverse), shape)

    def _by_waves(self, u: Numbers, time: float, tau: float) -> Solve:
        from scipy.sparse.linalg import LinearOperator

        modes, splitting = self._means(u, time)
        xp = self._arrays.xp
        inverse = apply_each(linear_matrix(splitting, modes), len(u), xp, Inverses(tau, xp))[0]
        direction, size = self._direction, u.size

        # One compiled program makes f(u) and J v; f(u) is thrown away.
        def forward(v: Numbers) -> Numbers:
            both = np.concatenate([u, v.reshape(u.shape)])
            return np.asarray(v.reshape(-1) - tau * direction(both, time)[len(u) :].reshape(-1))

        def backward(v: Numbers) -> Numbers:
            waves = modes.forward(np.array(v.reshape(u.shape)))
            return np.asarray(modes.backward(np.stack(product(inverse, waves))).reshape(-1))

        matrix = LinearOperator((size, size), forward, dtype=np.float64)
        near = LinearOperator((size, size), backward, dtype=np.float64)
        return lambda b: self._gmres(matrix, b.reshape(-1), near).reshape(u.shape)

    def _gmres(self, matrix: Any, b: Numbers, near: Any) -> Numbers:
        from scipy.sparse.linalg import gmres

        def count(_: Any) -> None:
            self.iterations += 1

        # Newton's method corrects what a solution leaves, so it need not be exact.
        options: dict[str, Any] = {"restart": _RESTART, "maxiter": _CYCLES}
        found, failed = gmres(
            matrix, b, M=near, rtol=_FORCING, callback=count, callback_type="pr_norm", **options
        )
        if failed or not np.isfinite(found).all():
            raise SolveFailedError
        return np.asarray(found)

    @functools.cached_property
    def _direction(self) -> Callable[[Numbers, float], Numbers]:
        """A compiled program of f(u) and J v."""
        made = tangent(self._equations)
        names = {
            name: it
            for name, it in zip(self._equations.fields, self._problem.variables, strict=True)
        }
        variables = tuple(
            replace(names[name.removesuffix(".d")], name=name) for name in made.fields
        )
        twice = replace(self._problem, equations=made, variables=variables)
        rates: Callable[[Numbers, float], Numbers] = self._arrays.rates(twice)
        return rates

    def _means(self, u: Numbers, time: float) -> tuple[Modes, Splitting]:
        """Return J with the means of its entries over all points, as taps of waves.

        Raises:
            FaceError: faces do not allow transforms.
        """
        equations, problem = self._equations, self._problem
        ends = {name: face_ends(problem, name) for name in equations.fields}
        weights: dict[str, Taps] = {}
        for name, slopes, values in self._evaluate(u, time):
            field = next((f for f, new in equations.results.items() if new == name), None)
            basis = face_ends(problem, name) if field is None else ends[field]
            weights[name] = {}
            for read in dict.fromkeys(key[0] for key in slopes):
                own = {
                    key: float(np.mean(value))
                    for key, value in zip(slopes, values, strict=True)
                    if key[0] == read
                }
                refuse_faces(problem, read, own)
                if face_ends(problem, read) == basis and any(own.values()):
                    weights[name] |= even_taps(own, basis)

        # Whatever the means leave out, GMRES finds.
        modes = Modes(problem.grid.shape, [*ends.values()], self._arrays)
        return modes, Splitting(weights, equations.results, equations, ends)

    def _evaluate(
        self, u: Numbers, time: float
    ) -> list[tuple[str, Mapping[tuple[str, Offset], Node], list[Any]]]:
        """Return the derivatives of every name by its taps at a state; where one is no number, as
        beside the root of 0, it is 0.
        """
        found: list[tuple[str, Mapping[tuple[str, Offset], Node], list[Any]]] = []
        for (stage, seen), rows in zip(
            self._evaluated.stages(u, time, {}), self._slopes, strict=True
        ):
            with np.errstate(all="ignore"):
                for name, slopes in zip(stage.formulas, rows, strict=True):
                    values = evaluate_each([*slopes.values()], seen)
                    found.append((name, slopes, [np.nan_to_num(it) for it in values]))
        return found

    def jacobian(self, u: Numbers, time: float) -> Any:
        """Return J as a sparse matrix; unknown number point * n_fields + field."""
        from scipy.sparse import coo_matrix, csr_matrix

        fields, n = self._equations.fields, math.prod(u.shape[1:])
        rows: dict[str, dict[int, Any]] = {}
        for name, slopes, values in self._evaluate(u, time):
            rows[name] = {}
            for (read, offset), value in zip(slopes, values, strict=True):
                places, factors = self._shift(read, offset)
                entries = np.broadcast_to(value, u.shape[1:]).reshape(-1) * factors
                shift = csr_matrix((entries, places, np.arange(n + 1)), shape=(n, n))
                # Of a name between, the rows of all points that it was computed at.
                inner = {fields.index(read): None} if read in fields else rows[read]
                for column, block in inner.items():
                    part = shift if block is None else shift @ block
                    before = rows[name].get(column)
                    rows[name][column] = part if before is None else before + part

        numbers, pairs = list[Any](), list[Any]()
        for row, name in enumerate(fields):
            for column, block in rows[self._equations.results[name]].items():
                own = block.tocoo()
                numbers.append(own.data)
                pairs.append((own.row * len(fields) + row, own.col * len(fields) + column))
        size = n * len(fields)
        if not numbers:
            return coo_matrix((size, size)).tocsr()
        where = tuple(np.concatenate(it) for it in zip(*pairs, strict=True))
        return coo_matrix((np.concatenate(numbers), where), shape=(size, size)).tocsr()

    @functools.cache  # noqa: B019 - one object per run
    def _shift(self, name: str, offset: Offset) -> tuple[npt.NDArray[np.int64], Numbers]:
        """Return for all points the point that a tap reads, and by how much it counts: that which
        a ghost mirrors, and b.
        """
        grid, boundary = self._problem.grid, self._equations.boundaries.get(name)
        where, factor = np.zeros((1,) * grid.ndim, np.int64), np.ones((1,) * grid.ndim)
        for axis, (shift, n) in enumerate(zip(offset, grid.shape, strict=True)):
            along, weights = np.arange(n) + shift, np.ones(n)
            if shift and self._problem.boundary.periodic(axis):
                along %= n
            elif shift:
                assert boundary is not None
                side = SIDES[0] if shift < 0 else SIDES[1]
                pairs = boundary.reflections(
                    axis, side, spacing=grid.spacing[axis], width=abs(shift)
                )
                beyond = (along < 0) | (along >= n)
                number = np.where(shift < 0, -along, along - n + 1)[beyond] - 1
                weights[beyond] = np.array([b for _, b in pairs])[number]
                along[beyond] = number if shift < 0 else n - 1 - number

            # Flat numbers of points, in array order.
            shape = [-1 if k == axis else 1 for k in range(grid.ndim)]
            where, factor = where * n + along.reshape(shape), factor * weights.reshape(shape)
        return where.reshape(-1), np.broadcast_to(factor, grid.shape).reshape(-1)


def solution_of(problem: Problem) -> LumpSolution | None:
    """Return the lumps that are solved for together with a body."""
    return problem.moving.around.solution if problem.moving else None


def right_sides(problem: Problem, arrays: Any) -> Callable[[Numbers, float], Numbers]:
    """Compile right-hand sides, with what is looked at beside them."""
    rates: Callable[[Numbers, float], Numbers] = arrays.rates(problem)
    return problem.moving.around.added_to(rates) if problem.moving else rates


def _by_point(values: Numbers) -> Numbers:
    return np.ascontiguousarray(np.moveaxis(values, 0, -1)).reshape(-1)


def _by_field(values: Numbers, shape: tuple[int, ...]) -> Numbers:
    return np.ascontiguousarray(np.moveaxis(values.reshape(*shape[1:], shape[0]), -1, 0))


# Substeps of a step of the run.

_SAFETY = 0.9
_DEEPEST = 40  # halvings of a step: a substep that is shorter leads nowhere
_UNSEEN = 1e-6  # of the largest field: magnitude from which on a field that began as 0 counts
_MOST_GROWTH = 10.0  # of a field in a substep, as far as its errors are relative to it
_MOST_AT_ONCE = 3  # halvings after a substep that was rejected


@dataclass
class DividedSteps:
    """Advances a state from one step of a run to the next.

    Attributes:
        problem: by right-hand sides.
        scheme: for substeps, with the calls of `SplitScheme`.
        xp: array library.
        counted: substeps so far.
        heard: interruption request.
        moved: heat that lumps, streams and their like gave in all steps so far, by name [J].
    """

    problem: Problem
    scheme: Any
    xp: Any
    counted: Counted = field(default_factory=Counted)
    heard: Heard = nobody
    moved: dict[str, float] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on substeps."""
        return (str(self.counted),) if self.rates.adaptive else ()

    @property
    def rates(self) -> Rates:
        """How right-hand sides are integrated."""
        assert self.problem.rates is not None
        return self.problem.rates

    def advance(self, u: Any, step: int) -> Any:
        """Make step number `step` of a state (n_fields, n0, ...), float64, and return the next.

        Raises:
            LeftOffError: the run is to end.
            NumericsError: no substep is short enough.
        """
        span, dt = (self.problem.time(step), self.problem.time(step + 1)), self.problem.dt
        for begin, end in self.problem.system.stretches(*span):
            if self.heard():
                raise LeftOffError
            # The length of a step is known better than the difference of its times.
            u = self._advance(u, begin, end, dt if (begin, end) == span else end - begin)
        return u

    def _advance(self, u: Any, begin: float, end: float, whole: float) -> Any:
        """Advance over a stretch of a given length in which nothing bends or jumps."""
        now, place, level = self.scheme.begin(u, begin), 0, 0
        if not self.rates.adaptive:
            made = self.scheme.advance(now, begin, whole, judged=False)
            self._count(made)
            return self._kept(made, end)
        # Places are counted in the shortest substeps, so that those of a length lie side by side.
        largest = self._sizes(now.u, now.lumps)
        # What a field that begins as 0 grows from has no size of its own: that of others counts.
        floors = [_UNSEEN * max(largest) if it == 0 else 0.0 for it in largest]
        while place < 1 << _DEEPEST:
            if self.heard():
                raise LeftOffError
            if level > _DEEPEST:
                self._refuse(begin + (end - begin) * (place / (1 << _DEEPEST)))
            length = whole / (1 << level)
            time = begin + whole * (place / (1 << _DEEPEST))
            tried = self.scheme.advance(now, time, length, judged=True)
            error = self._judge(list(map(max, largest, floors)), tried)
            factor = _SAFETY * error ** (-1 / self.scheme.order) if error > 0 else math.inf
            if error > 1:
                level += min(max(1, math.ceil(-math.log2(max(factor, 1e-3)))), _MOST_AT_ONCE)
                self.counted = replace(self.counted, rejected=self.counted.rejected + 1)
                continue

            now, place = tried, place + (1 << (_DEEPEST - level))
            self._count(tried)
            largest = self._sizes(tried.u, tried.lumps)
            self.counted = replace(
                self.counted,
                made=self.counted.made + 1,
                shortest=min(self.counted.shortest, length),
                longest=max(self.counted.longest, length),
            )
            # Twice as long, where two of this length would end.
            if level and factor >= 2 and place % (1 << (_DEEPEST - level + 1)) == 0:
                level -= 1
        return self._kept(now, end)

    def _count(self, made: Tried) -> None:
        for name, heat in (made.moved or {}).items():
            self.moved[name] = self.moved.get(name, 0.0) + heat

    def _kept(self, made: Tried, end: float) -> Any:
        """The state of a step; lumps keep their temperatures by themselves."""
        solution = solution_of(self.problem)
        if solution is not None:
            solution.keep(made.lumps.now, end)
        return made.u

    def _sizes(self, values: Any, lumps: Any = None, which: str = "now") -> list[float]:
        found = [float(self.xp.abs(it).max()) for it in values]
        return found if lumps is None else [*found, float(np.abs(getattr(lumps, which)).max())]

    def _judge(self, largest: Sequence[float], tried: Tried) -> float:
        """Return the error of a substep relative to what is tolerated."""
        sizes = self._sizes(tried.u, tried.lumps)
        errors = self._sizes(tried.error, tried.lumps, "error")
        if not np.isfinite([*sizes, *errors]).all():
            return math.inf
        worst = 0.0
        for before, after, error in zip(largest, sizes, errors, strict=True):
            # Of what blows up in a substep, any error would be small beside it.
            least = min(after, _MOST_GROWTH * before) if before > 0 else after
            scale = self.rates.tolerance * max(before, least)
            if error > 0:
                worst = max(worst, error / scale if scale > 0 else math.inf)
        return worst

    def _refuse(self, time: float) -> None:
        msg = (
            f"no substep is short enough at t = {time:.10g} s: the last one that was tried still "
            "has an error above time.tolerance. Do the fields grow without end there, or jump? Or "
            "take a larger time.tolerance, if it is near rounding."
        )
        raise NumericsError(msg)


# TR-BDF2.

_G, _A, _W = 2 - math.sqrt(2), 1 - 1 / math.sqrt(2), math.sqrt(2) / 4
_NOW = 1 / (_G * (2 - _G))  # weight of the state in between; that of the first one is 1 - it
_ITERATIONS = 12  # of Newton's method for a stage
_SLOW = 0.3  # of the change before: a change that shrinks less wants the matrix of now
_WELL_BELOW = 1e-2  # of the tolerated error of a step: changes of Newton's method that are left
_ROUNDING = 1e-13  # of the largest value: no change can be smaller


@dataclass(frozen=True, eq=False)
class _Lumps:
    """Temperatures of lumps after a substep, their rates and an estimate of their errors."""

    now: Numbers
    slope: Numbers
    error: Numbers


class TrBdf2:
    """Substeps by TR-BDF2; see `SplitScheme` for the calls.

    Args:
        problem: by right-hand sides, in float64.
        arrays: compiles programs, and has transforms.
    """

    order = 3

    def __init__(self, problem: Problem, arrays: Any) -> None:
        assert problem.rates is not None
        self._rates: Rates = problem.rates
        self._f, self._systems = right_sides(problem, arrays), Systems(problem, arrays)
        self._solve: tuple[float, Solve] | None = None
        self.solutions, self._lumps = 0, solution_of(problem)
        self._around = problem.moving.around if problem.moving else NOTHING_AROUND
        self._joules = joules_of(problem.at_rest) if self._around.givers else 0.0

    def begin(self, u: Any, time: float) -> Tried:
        """Take a state; nothing of earlier steps is kept, so a continued run makes the same."""
        self._solve, lumps = None, None
        if self._lumps is not None:
            here = self._lumps.at(time)
            self._lumps.stage(0.0, here, time)
            lumps = _Lumps(here, self._lumps.slope(u[0], here), np.zeros_like(here))
        powers = self._powers(u, time, lumps)
        return Tried(u, u, slope=self._f(u, time), lumps=lumps, powers=powers)

    def _powers(self, u: Any, time: float, lumps: _Lumps | None) -> dict[str, float]:
        """Return the power of each giver of heat, beside a state at a moment [W]."""
        if not self._around.givers:
            return {}
        warm = None if lumps is None else lumps.now.tolist()
        found = self._around.given(u[0], (time, time), warm)
        return {name: heat * self._joules for name, heat in found.items()}

    def advance(self, before: Tried, time: float, step: float, *, judged: bool) -> Tried:
        """Try a substep; one that cannot be solved has an infinite error.

        Raises:
            NumericsError: it cannot be solved, and its length is given.
        """
        try:
            return self._advance(before, time, step, judged=judged)
        except SolveFailedError as error:
            self._solve = None
            if judged:
                return replace(before, error=np.full_like(before.u, np.inf))
            msg = (
                f"at {time:g} s Newton's method does not converge for a step of {step:g} s; take a "
                "shorter time.dt, or leave it out and give time.tolerance"
            )
            raise NumericsError(msg) from error

    def _advance(self, before: Tried, time: float, step: float, *, judged: bool) -> Tried:
        u, slope, tau = before.u, before.slope, _A * step
        x, lumps, between = before.lumps, self._lumps, None
        given = u + tau * slope
        if lumps is not None:
            begun = x.now + tau * x.slope
            lumps.stage(tau, begun, time + _G * step)
        middle = self._newton(u + _G * step * slope, u, given, time + _G * step, tau)
        slope_then = (middle - given) / tau
        if lumps is not None:
            then = lumps.temperatures(middle[0])
            x_slope_then = (then - begun) / tau
            between = _Lumps(then, x_slope_then, x.error)
            begun = _NOW * then + (1 - _NOW) * x.now
            lumps.stage(tau, begun, time + step)

        powers_then = self._powers(middle, time + _G * step, between)
        given = _NOW * middle + (1 - _NOW) * u
        new = self._newton(middle, u, given, time + step, tau)
        last, after = (new - given) / tau, None
        if lumps is not None:
            there = lumps.temperatures(new[0])
            x_last = (there - begun) / tau
            lost = step / 3 * ((4 * _W - 1) * x.slope - x_slope_then + 2 * _A * x_last)
            after = _Lumps(there, x_last, lumps.damped(lost))
        made = Tried(new, new, None, last, after, self._powers(new, time + step, after))
        # By the weights of the three states, with which the substep itself is made.
        heats = {
            name: step * (_W * (before.powers[name] + powers_then[name]) + _A * power)
            for name, power in made.powers.items()
        }
        made = replace(made, moved=heats)
        if not judged:
            return made
        difference = step / 3 * ((4 * _W - 1) * slope - slope_then + 2 * _A * last)
        # Solved once more, the estimate is right for stiff parts too.
        error = self._system(new, time + step, tau)(difference)
        return replace(made, error=error)

    def _system(self, u: Any, time: float, tau: float) -> Solve:
        if self._solve is None or self._solve[0] != tau:
            self._solve = tau, self._systems.at(u, time, tau)
        return self._solve[1]

    def _newton(self, guess: Any, u: Any, given: Any, time: float, tau: float) -> Any:
        """Solve w - tau f(w, time) = given."""
        # An explicit guess of a stiff part may be anywhere: the state itself is near enough then.
        scale = np.maximum(_sizes(u), _sizes(given))
        far = _sizes(guess - u) > scale
        w = np.where(far, u, guess)
        aim = self._rates.tolerance * (_WELL_BELOW if self._rates.adaptive else 1.0)
        least = np.maximum(aim, _ROUNDING)
        last = math.inf

        for _ in range(_ITERATIONS):
            left = given - w + tau * self._f(w, time)
            if not np.isfinite(left).all():
                raise SolveFailedError
            change = self._system(w, time, tau)(left)
            self.solutions += 1
            w = w + change
            size = float((_sizes(change) / np.where(scale > 0, scale, 1.0)).max())
            # What is left after a change that shrank by some factor shrinks by it again; the first
            # change says nothing about that.
            shrinks = size / last if math.isfinite(last) else 1.0
            if size <= least or (shrinks < 1 and size * shrinks <= least * (1 - shrinks)):
                return w
            if size > _SLOW * last:
                self._solve = None
            last = size
        raise SolveFailedError


def _sizes(values: Any) -> Any:
    """The largest magnitude of each field, shaped to broadcast."""
    return np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True)


def newton_steps(problem: Problem, arrays: Any) -> DividedSteps:
    """Return what advances a state by TR-BDF2 steps."""
    return DividedSteps(problem, TrBdf2(problem, arrays), np)
