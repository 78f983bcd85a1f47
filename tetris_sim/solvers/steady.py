"""Steady states: as much heat flows into every cell as out of it.

Faces that radiate make the balance non-linear: it is then linearized about the last iterate and
solved again, each time only as accurately as the linearization deserves (inexact Newton), until the
balance itself holds. The remaining imbalance is measured relative to that of the initial guess, or
of the best constant temperature if that is larger, so the zero of the scale does not count.

A part of the body that exchanges heat with no prescribed temperature conserves its heat: its mean
remains that of the initial state. If it has a source, it has no steady state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.problem import Field, Problem
from tetris_sim.solvers import tangent
from tetris_sim.solvers.assembly import HERE, Where, instant, rules_of
from tetris_sim.solvers.balance import LinearSystem, LinearSystems, norm, why_not
from tetris_sim.solvers.krylov import SMALL, Arithmetic, Heard, LeftOffError, matrix_of, nobody
from tetris_sim.solvers.newton import SolveFailedError, Systems, right_sides, solution_of
from tetris_sim.solvers.solver import Solver, settle

# Anderson acceleration of the fixed-point iteration that solves again with the coefficients of the
# last answer.
#
# It takes the combination of the last guesses and answers with the smallest change (D. G. Anderson,
# J. ACM 12 (1965) 547; H. F. Walker, P. Ni, SIAM J. Numer. Anal. 49 (2011) 1715).

_REMEMBERED = 5


@dataclass
class Mixture:
    """History of guesses and answers for Anderson acceleration."""

    _guesses: list[Numbers] = field(default_factory=list)
    _answers: list[Numbers] = field(default_factory=list)

    def better(self, guess: Numbers, answer: Numbers) -> Numbers:
        """Return the next guess.

        Args:
            guess: the last guess.
            answer: the result of the fixed-point iteration for it.
        """
        self._guesses.append(guess)
        self._answers.append(answer)
        del self._guesses[: -_REMEMBERED - 1], self._answers[: -_REMEMBERED - 1]

        if len(self._guesses) == 1:
            return answer
        pairs = zip(self._guesses, self._answers, strict=True)
        changes = [(there - here).reshape(-1) for here, there in pairs]
        # Differences to the newest change: the weights of all guesses then sum to 1 by
        # construction.
        steps = np.stack([it - changes[-1] for it in changes[:-1]], axis=1)
        weights = np.linalg.lstsq(steps, -changes[-1], rcond=1e-10)[0]
        pulls = (w * (it - answer) for w, it in zip(weights, self._answers[:-1], strict=True))
        return np.asarray(answer + sum(pulls))


_LIMIT = 1000  # iterations
_OUTER = 50  # linearisations
_FORCING = 1e-3  # how much better a linearised balance is solved than the last one was
GROWS = (
    "what the sources give grows faster with temperature than the body can lose it (thermal "
    "runaway); let them give less, cool the body better"
)
_RUNAWAY = (
    f"no steady state was found: {GROWS} or begin nearer to a state that lasts, or compute it over "
    "time (time.scheme: implicit)"
)
_ROUNDING = 1e-9  # of all heat: by how much heats that cancel may differ


@dataclass(frozen=True)
class Steady:
    """A steady state.

    Attributes:
        state: (n0, ...), float64.
        iterations: of conjugate gradients, in total.
        solutions: of linear systems, one if the balance is linear.
        residual: norm of the remaining imbalance, relative as described at the top of this module.
        notes: remarks for the user, sentences.
    """

    state: Numbers
    iterations: int
    solutions: int
    residual: float
    notes: tuple[str, ...] = ()


def changes(problem: Problem) -> bool:
    """Whether faces or sources depend on time."""
    return any(rule.changes for rule in rules_of(problem))


def why_not_steady(problem: Problem) -> str | None:
    """Say why no steady state of a problem can be found, as a sentence; None if one can."""
    if changes(problem):
        return "faces or sources change with time, so nothing stays as it is; give numbers"
    return why_not(problem)


def solve_steady(
    problem: Problem,
    state: Field,
    solver: Solver,
    *,
    tolerance: float,
    time: float = 0.0,
    heard: Heard = nobody,
) -> Steady:
    """Find the steady state.

    Args:
        problem: see `balance.why_not`; its initial state and steps are not used.
        state: (n0, ...): initial guess; it determines the heat of insulated parts, and the state of
            held cells.
        solver: solves the linear systems.
        tolerance: of the remaining imbalance.
        time: at which faces and sources are evaluated [s].
        heard: see `conjugate_gradients`.

    Raises:
        ConfigError: there is no steady state.
        LeftOffError: the solution was interrupted.
        NumericsError: the tolerance was not reached.
        UnsupportedError: the problem has no such balance.
    """
    initial = np.asarray(state, np.float64)
    near = solver.near
    balances = LinearSystems(problem, where_of(near))
    made = balances.at(instant(time), initial)

    u, alone, mixture = made.driving(initial), _alone(problem, made), Mixture()
    if made.where.xp is not np:
        u = made.where.xp.asarray(u)
    left = remaining(made, u, near)
    scale = max(remaining(made, best_degrees(made), near), left)
    iterations, solutions = 0, 0

    # Newton's method with inexact solutions; a linear balance takes one.
    for _ in range(_OUTER):
        least = max(tolerance * scale, rounding_of(made, u))
        if left <= least:
            break
        aim = least / 2 if made.is_linear else max(least / 2, _FORCING * left)
        try:
            found, solved = settle(
                made,
                u,
                solver,
                tolerance=aim / scale,
                scale=scale,
                limit=_LIMIT - iterations,
                heard=heard,
            )
        except NumericsError as error:
            raise (error if made.frozen is None else NumericsError(_RUNAWAY)) from error
        iterations, solutions = iterations + solved.iterations, solutions + 1
        # With enthalpies, insulated parts must hold their heat in every iterate, since their
        # conductances depend on the temperature.
        if (contents := made.contents) is not None:
            for part in alone:
                found[part], _ = contents.warmed(found, part, contents.heat(initial, part))
            found = found if made.is_linear else mixture.better(u, found)
        u = found
        # At the new iterate the conductances and tangents are different ones.
        made = made if made.is_linear else balances.at(instant(time), _state(made, u))
        left = remaining(made, u, near)
    else:
        if made.frozen is not None:
            raise NumericsError(_RUNAWAY)
        msg = (
            f"after {_OUTER} linearisations the heat balance is off by {left / scale:.3g} of what "
            f"it was, and {tolerance:.3g} was wanted; begin nearer to the answer, or take a larger "
            "tolerance"
        )
        raise NumericsError(msg)
    if not _lasts(made):
        raise NumericsError(_RUNAWAY)

    # Insulated parts are determined up to a constant: shift them to the heat of the initial state.
    answer = made.where.host(_state(made, u))
    answer = answer.copy() if alone else answer
    for part in alone:
        if made.contents is not None:
            heat = made.contents.heat(initial, part)
            _, answer[part] = made.contents.warmed(u, part, heat)
        else:
            weight = made.capacity[part]
            answer[part] += (weight * (initial[part] - answer[part])).sum() / weight.sum()
    which = (
        "the mean of its initial one." if made.contents is None else "the one that goes with it."
    )
    notes = (_KEPT + which,) if alone else ()
    return Steady(answer, iterations, solutions, left / scale if scale else 0.0, notes)


def _lasts(made: LinearSystem) -> bool:
    """Whether a state in balance comes back when it is disturbed, as far as that can be in doubt:
    where sources grow with temperature, and the system is small enough to be factorised.
    """
    if made.frozen is None or made.heat.size > SMALL:
        return True
    from scipy.sparse.linalg import splu

    # The matrix is symmetric, so that a disturbance cannot swing, only grow or shrink.
    matrix = matrix_of(made.operator())
    matrix.setdiag(matrix.diagonal() + (matrix.diagonal() == 0))  # of held cells
    # Without pivoting the signs of the pivots are those of the eigenvalues (Sylvester).
    factors = splu(
        matrix.tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return bool((factors.U.diagonal() > 0).all())


def _state(made: LinearSystem, u: Numbers) -> Numbers:
    """Return the state of a driving quantity."""
    return u if made.contents is None else made.contents.state(u)


_KEPT = "What is insulated on all sides keeps its heat: its steady temperature is "


def best_degrees(made: LinearSystem) -> float:
    """Return the uniform driving quantity whose heat flows sum to zero."""
    d, f = (float(it.sum()) for it in made.given)
    return f / d if d > 0 else 0.0


def best_constant(made: LinearSystem) -> Numbers:
    """Return the constant state whose heat flows sum to zero."""
    return np.full(made.heat.shape, best_degrees(made))


def rounding_of(made: LinearSystem, u: Numbers, stored: Numbers | None = None) -> float:
    """Bound the imbalance that rounding leaves, storage included."""
    if made.contents is not None:
        return tangent.rounding_of(made, u, np.zeros(1) if stored is None else stored)

    # Every term of a cell's balance is rounded by eps of its magnitude.
    def rounded(planes: slice) -> Numbers:
        whole = made.conductance[0][planes].copy()
        for k in made.conductance[1:]:
            whole += k[planes]
        # Every conductance occurs in the cells on both of its sides.
        whole *= 2
        whole += made.exchange[planes]
        whole *= abs(u[planes])
        if stored is not None:
            whole += abs(stored[planes])
        whole *= whole
        heat = made.heat[planes]
        whole += heat * heat
        return whole

    return float(np.finfo(np.float64).eps * math.sqrt(made.where.sum(u.shape, rounded)))


def where_of(near: Arithmetic | None) -> Where:
    """Return the location at which systems are assembled."""
    return HERE if near is None else Where(near.xp, near.share)


def unbalanced(made: LinearSystem, u: Numbers) -> float:
    """Return the norm of the heat flows into cells."""
    return norm(made.flows(u))


def remaining(made: LinearSystem, u: Numbers | float, near: Arithmetic | None) -> float:
    """Return the norm of the imbalance, computed where the system lies, of a state or of a uniform
    driving quantity.
    """
    shape, where = made.heat.shape, made.where
    if isinstance(u, float):  # nothing flows between cells
        return where.norm(shape, lambda it: made.heat[it] - made.exchange[it] * u)
    if near is None or where.xp is not near.xp:
        return unbalanced(made, u)
    operator = made.operator()
    whole = operator[-1].shape
    out = where.xp.empty(whole)
    near.residual(operator, made.heat.reshape(whole), u.reshape(whole), out)
    return where.norm(whole, lambda it: out[it])


def _alone(problem: Problem, made: LinearSystem) -> list[tuple[npt.NDArray[Any], ...]]:
    """Return the cells of each part of the body that exchanges heat with no prescribed temperature.

    Raises:
        ConfigError: such a part has a source.
    """
    # Without held cells the body counts as one part; with an exchange anywhere it is not insulated.
    if not made.any_held and float(made.given[0].sum()) > 0:
        return []
    labels = _parts(problem, made)
    n = int(labels.max()) + 1
    d, f = (made.where.host(it).reshape(-1) for it in made.given)

    # Sums per part: only parts without exchange are insulated, and label 0 is the held cells.
    exchange, heat, most = (np.bincount(labels.reshape(-1), values, n) for values in (d, f, abs(f)))
    insulated = [part for part in range(1, n) if not exchange[part] > 0]
    for part in insulated:
        # The source is compared with the sum of magnitudes: sources that cancel are allowed.
        if abs(heat[part]) > _ROUNDING * most[part]:
            place = np.argwhere(labels == part)[0]
            names = zip(problem.grid.axis_names, place, strict=True)
            at = ", ".join(
                f"{name} = {problem.grid.positions(axis, i):.4g} m"
                for axis, (name, i) in reversed(list(enumerate(names)))
            )
            msg = (
                f"time.scheme: steady: the part of the body around {at} is heated and exchanges "
                "heat with nothing of a given temperature, so it has no steady state; give one of "
                "its faces a temperature, convection or radiation, or compute it over time"
            )
            raise ConfigError(msg)
    return [np.nonzero(labels == part) for part in insulated]


def _parts(problem: Problem, made: LinearSystem) -> npt.NDArray[Any]:
    """Label the connected part of each cell, from 1; 0 where the state is held."""
    held = made.held
    if not held.any():
        return np.ones(held.shape, np.int32)
    from scipy import ndimage, sparse

    # Connected components without wrap-around; periodic axes then join pairs of labels.
    labels, n = ndimage.label(~held)
    pairs = []
    for axis in range(held.ndim):
        if problem.boundary.periodic(axis):
            low, high = np.take(labels, 0, axis), np.take(labels, -1, axis)
            both = (low > 0) & (high > 0)
            pairs.append(np.stack([low[both], high[both]]))
    if pairs:
        a, b = np.concatenate(pairs, axis=1)
        # The held cells are joined to nothing: they are node 0, so their component is 0, too.
        graph = sparse.coo_matrix((np.ones(len(a)), (a, b)), shape=(n + 1, n + 1))
        labels = sparse.csgraph.connected_components(graph, directed=False)[1][labels]
    return np.asarray(labels)


# Steady states of equations of any kind.

_FIRST = 0.1  # of the largest value: by how much the first step may change a state
_GROWS = 10.0  # most by which a step is longer than the one before
_SHRINKS, _LEAST_GROWTH = 0.1, 1.5
_SETTLED = 1e-8  # of the largest value: a last change of what radiates
_LONGEST = 1e15  # of the first step: nothing is steady that still changes after it
_MOST = 500  # steps
_LAST = 1e-13  # of the largest value: no change can be smaller


class SteadyState:
    """Finds steady states.

    Args:
        problem: by right-hand sides that do not change with time, in float64.
        arrays: compiles programs, and has transforms.

    Attributes:
        heard: interruption request.
        notes: remarks on the solution, sentences.
    """

    heard: Heard = staticmethod(nobody)

    def __init__(self, problem: Problem, arrays: Any) -> None:
        assert problem.rates is not None
        self._tolerance = problem.rates.tolerance
        self._f, self._systems = right_sides(problem, arrays), Systems(problem, arrays)
        self._radiates = bool(problem.moving and problem.moving.around.enclosures)
        self.notes: tuple[str, ...] = ()
        self._lumps = solution_of(problem)

    def _left(self, u: Any, x: Any) -> tuple[Any, float]:
        """Return how fast cells change beside lumps of some temperatures, and the norm of that and
        of what lumps get.
        """
        if self._lumps is None:
            f = self._f(u, 0.0)
            return f, float(np.linalg.norm(f))
        self._lumps.stage(0.0, x, 0.0)
        f = self._f(u, 0.0)
        return f, math.hypot(np.linalg.norm(f), self._lumps.unbalanced(u[0], x))

    def advance(self, u: Any, step: int) -> Any:
        """Return the steady state that a state leads to, (n_fields, n0, ...).

        Raises:
            LeftOffError: the run is to end.
            NumericsError: none is found.
        """
        del step  # a steady state is of no time
        lumps = self._lumps
        x = np.zeros(0) if lumps is None else lumps.network.initial
        f, size = self._left(u, x)
        begun = size
        largest = float(np.abs(f).max())
        tau = _FIRST * max(float(np.abs(u).max()), 1e-3) / largest if largest > 0 else 1.0
        # Beside what is conducted at first, radiation is small: temperatures have to stay too.
        first, moved = tau, math.inf if self._radiates else 0.0
        for number in range(_MOST):
            if self.heard():
                raise LeftOffError
            if tau > _LONGEST * first:
                break
            if size <= self._tolerance * begun and moved <= _SETTLED:
                self.notes = (
                    f"Steady state: {number} steps of Newton's method, the right-hand sides are "
                    f"{size / begun if begun else 0:.2g} of what they were.",
                )
                if lumps is not None:
                    lumps.keep(x, 0.0)
                return u
            try:
                # As fast as cells change once lumps have followed them.
                pull = f
                if lumps is not None:
                    lumps.stage(tau, x, 0.0)
                    pull = self._f(u, 0.0)
                new = u + self._systems.at(u, 0.0, tau)(tau * pull)
                y = x if lumps is None else lumps.temperatures(new[0])
                after, now = self._left(new, y)
            except SolveFailedError:
                now = math.inf
            if not now < 10 * size:
                tau *= _SHRINKS
                continue

            # As far as rounding lets it shrink; a shorter step would show nothing.
            change, largest = float(np.abs(new - u).max()), float(np.abs(u).max())
            still = tau >= first and change <= _LAST * largest
            moved = change / max(largest, 1e-300) if self._radiates else 0.0
            # In inverse proportion to what is left, and longer wherever that shrinks.
            ratio = size / now if now > 0 else _GROWS
            tau *= min(max(ratio, 1.0 if ratio < 1 else _LEAST_GROWTH), _GROWS)
            u, x, f, size = new, y, after, 0.0 if still else now

        msg = (
            f"time.scheme: steady: after {number} steps of Newton's method the state still moves: "
            f"right-hand sides are {size / begun:.2g} of what they were. Does the state swing for "
            "ever, or grow? Begin nearer to the steady state, or use scheme implicit"
        )
        raise NumericsError(msg)
