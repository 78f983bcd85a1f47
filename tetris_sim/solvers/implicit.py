"""Implicit steps: TR-BDF2, of second order, stable and damping for steps of any length.

With C du/dt = f - A u, a step goes by the trapezoidal rule to t + g dt, and from there by the
backward difference formula of second order through all three states to t + dt, g = 2 - sqrt(2), for
which both solve with C / (a dt) + A, a = 1 - 1 / sqrt(2) (R. E. Bank et al., IEEE Trans. Electron
Devices 32 (1985) 1992; M. E. Hosea, L. F. Shampine, Appl. Numer. Math. 20 (1996) 21):

    (C / (a dt) + A) u_g = C / (a dt) u + (f - A u)(t) + f_g
    (C / (a dt) + A) u_1 = C / (a dt) (u_g / (g (2 - g)) - u (1 - g)^2 / (g (2 - g))) + f_1

Faces and sources count at the times of the three states. Where faces are not linear, or the state
is heat content, the balance is linearised about the last guess until it holds.

The embedded formula of third order differs from a step by what the last equation of `error` gives,
with w = sqrt(2) / 4; solved with the same operator, it is right for stiff parts too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.problem import Problem
from tetris_sim.model.step_control import Controller, Counted
from tetris_sim.solvers.assembly import HERE, Where
from tetris_sim.solvers.balance import LinearSystem, LinearSystems, norm
from tetris_sim.solvers.krylov import Heard, LeftOffError, nobody
from tetris_sim.solvers.solver import Kept, Solver, settle
from tetris_sim.solvers.steady import best_constant, rounding_of, unbalanced

_G = 2 - math.sqrt(2)
_A = 1 - 1 / math.sqrt(2)
_W = math.sqrt(2) / 4
_NOW = 1 / (_G * (2 - _G))  # weight of the state in between; that of the first one is 1 - it
_LIMIT = 1000  # iterations of a solution
_OUTER = 50  # linearisations of a balance
_ROUGHLY = 1e-2  # how well an error has to be known


@dataclass(frozen=True)
class TimeSpan:
    """A step in time: from when to when, and how long that is [s]."""

    begin: float
    end: float
    dt: float


@dataclass(frozen=True, eq=False)
class ImplicitStep:
    """A step that was made.

    Attributes:
        state: at its end, (n0, ...).
        storage: what cells stored per unit of the state.
        flows: what flowed into cells at its three times.
    """

    state: Numbers
    storage: Numbers
    flows: tuple[Numbers, Numbers, Numbers]


@dataclass
class ImplicitSteps:
    """Advances a state by implicit steps.

    Attributes:
        problem: see `balance.why_not`.
        solver: who solves linear systems.
        tolerance: of what is left of a balance, as of a steady state's.
        solutions: how many systems were solved.
        iterations: of conjugate gradients, in all.
        kept: of earlier solutions.
        heard: see `conjugate_gradients`, which raises LeftOffError when this is heard.
    """

    problem: Problem
    solver: Solver
    tolerance: float
    solutions: int = 0
    iterations: int = 0
    kept: Kept = field(default_factory=Kept)
    heard: Heard = nobody
    _last: tuple[float, Numbers, LinearSystem] | None = None  # a time, a state and their balance

    def __post_init__(self) -> None:
        near = self.solver.near
        self._balances = LinearSystems(
            self.problem, HERE if near is None else Where(share=near.share)
        )

    def advance(self, u: Numbers, step: int) -> Numbers:
        """The state after step number `step`, (n0, ...).

        Args:
            u: the state before it.
            step: steps that this has behind it.

        Raises:
            NumericsError: the tolerance was not reached.
        """
        begin, end = self.problem.time(step), self.problem.time(step + 1)
        first = self.balance(begin, u)
        drive = first.driving(u)
        scale = max(unbalanced(first, best_constant(first)), unbalanced(first, drive))
        span = TimeSpan(begin, end, self.problem.dt)
        return self.make(first, u, span, self.tolerance * scale).state

    def make(self, first: LinearSystem, u: Numbers, span: TimeSpan, least: float) -> ImplicitStep:
        """One step.

        Args:
            first: the balance at its begin.
            u: the state there.
            span: from when to when.
            least: norm of what may be left of balances.

        Raises:
            NumericsError: a balance does not hold.
        """
        storage = np.where(first.held, 0.0, first.capacity) / (_A * span.dt)
        flows = first.flows(first.driving(u))
        given = storage * u + flows
        middle = self._solve(span.begin + _G * span.dt, u, storage, given, least)
        flows_then = storage * middle - given
        given = storage * (_NOW * middle + (1 - _NOW) * u)
        state = self._solve(span.end, middle, storage, given, least)
        return ImplicitStep(state, storage, (flows, flows_then, storage * state - given))

    def error(self, made: ImplicitStep, end: float) -> Numbers:
        """How far a step is from the formula of third order, (n0, ...).

        Args:
            made: the step.
            end: when it ended [s].
        """
        first, middle, last = made.flows
        heat = ((4 * _W - 1) * first - middle + 2 * _A * last) / (3 * _A)
        size = norm(heat)
        balance, zero = self.balance(end, made.state), np.zeros_like(heat)
        return self._rise(balance, made.state, made.storage, (zero, heat), _ROUGHLY * size)

    def balance(self, time: float, u: Numbers) -> LinearSystem:
        """The balance at a time and state."""
        if self._last is None or self._last[0] != time or self._last[1] is not u:
            self._last = (time, u, self._balances.at(time, u))
        return self._last[2]

    def _solve(
        self, time: float, guess: Numbers, storage: Numbers, given: Numbers, least: float
    ) -> Numbers:
        """The state at a time in which each cell stores what flows in, and what is given."""
        u = guess
        for _ in range(_OUTER):
            made = self.balance(time, u)
            drive = made.driving(u)
            left = given - storage * u + made.flows(drive)
            least = max(least, rounding_of(made, drive, storage * u))
            if norm(left) <= least:
                return u
            if made.contents is None:
                heat = made.heat + given
                u = self._settle(made, (u, heat), storage, least / 2)
            else:
                rise = self._rise(made, u, storage, (np.zeros_like(u), left), least / 2)
                u = made.contents.limited(u, u + rise)
        msg = (
            f"at {time:g} s the heat balance does not hold after {_OUTER} linearisations; take a "
            "shorter time.dt, or a larger time.tolerance"
        )
        raise NumericsError(msg)

    def _rise(
        self,
        made: LinearSystem,
        u: Numbers,
        storage: Numbers,
        sought: tuple[Numbers, Numbers],
        tolerance: float,
    ) -> Numbers:
        """How the state changes where cells store some heat.

        Args:
            made: the balance.
            u: the state about which it is.
            storage: what cells store per unit of the state.
            sought: a guess of what drives heat then, and the heat.
            tolerance: of what is left.
        """
        slope: Numbers = np.ones(1)
        if made.contents is not None:
            most = made.whole / np.where(storage > 0, storage, 1.0)
            slope = made.contents.stored(u, most)
        return slope * self._settle(made, sought, storage * slope, tolerance)

    def _settle(
        self,
        made: LinearSystem,
        sought: tuple[Numbers, Numbers],
        storage: Numbers,
        tolerance: float,
    ) -> Numbers:
        guess, heat = sought
        found, solved = settle(
            made,
            guess,
            self.solver,
            tolerance=tolerance,
            scale=1.0,
            limit=_LIMIT,
            storage=storage,
            heat=heat,
            kept=self.kept,
            heard=self.heard,
        )
        self.solutions += 1
        self.iterations += solved.iterations
        return found


# Implicit steps as long as an error allows: TR-BDF2 with its embedded estimate of third order.
#
# The error of a step is the largest difference of any cell, relative to the range of the state,
# that of the constant state in balance included: so a body that is everywhere the same has a range
# too. Where the state is heat content each material has its own. A step whose error is above the
# tolerance is made again, shorter; the next length follows from the errors of the last two steps
# (`Controller` of `tetris_sim/model/step_control.py`).
#
# Each stretch, from one step that somebody wants to the next, begins anew: with the length that
# would be right if all went on exponentially, so what is known of a run is its state.

_CONSTANT = 0.04  # of (dt d/dt)^3, the error of a step
_ORDER = 3  # power of a step's length with which its error shrinks
_WELL_BELOW = 1e-2  # of the tolerance: what is left of balances may be worth


def expected_steps(seconds: float, shortest: float, tolerance: float, stretches: int) -> int:
    """About how many steps it takes: after a jump of temperature, heat goes on as the root of time,
    so steps grow with time.

    Args:
        seconds: of the whole run [s].
        shortest: a time in which the fastest cell follows [s].
        tolerance: of a step's error.
        stretches: how often the state is wanted.
    """
    grows: float = (tolerance / _CONSTANT) ** (1 / _ORDER)
    return math.ceil(math.log1p(seconds / shortest) / grows) + 2 * stretches


@dataclass
class AdaptiveSteps:
    """Advances a state by steps of any length.

    Attributes:
        problem: see `balance.why_not`; its dt does not count.
        solver: who solves linear systems.
        tolerance: of a step's error.
        counted: all steps so far.
        heard: as of `ImplicitSteps`.
    """

    problem: Problem
    solver: Solver
    tolerance: float
    counted: Counted = field(default_factory=Counted)
    heard: Heard = nobody

    def __post_init__(self) -> None:
        self._steps = ImplicitSteps(self.problem, self.solver, self.tolerance, heard=self._is_heard)

    def _is_heard(self) -> bool:
        return self.heard()

    @property
    def iterations(self) -> int:
        """Of conjugate gradients, in all."""
        return self._steps.iterations

    def advance(self, u: Numbers, begin: float, end: float) -> Numbers:
        """The state at another time, (n0, ...).

        Args:
            u: the state.
            begin: its time [s].
            end: the other one [s].

        Raises:
            LeftOffError: this was heard.
            NumericsError: no step is short enough.
        """
        self._steps.kept = Kept(loose=True)
        first = self._steps.balance(begin, u)
        tried = Controller(begin, end, self._first(first, u, end - begin), _ORDER, self.counted)

        while not tried.ended:
            if self.heard():
                raise LeftOffError
            if tried.stuck:
                msg = (
                    f"at {tried.time:g} s a step of {tried.length:.3g} s is still too long for an "
                    f"error of {self.tolerance:g}; take a larger time.tolerance"
                )
                raise NumericsError(msg)

            found, error = self._try(first, u, TimeSpan(tried.time, tried.until, tried.length))
            if tried.accept(error):
                u = found
                first = self._steps.balance(tried.time, u)
            self.counted = tried.counted
        return u

    def _try(self, first: LinearSystem, u: Numbers, span: TimeSpan) -> tuple[Numbers, float]:
        """(the state after a step, its error by the tolerance)."""
        scale = self._scale(first, u)
        storage = np.where(first.held, np.inf, first.capacity / span.dt)
        worth = float((storage * scale).min()) * np.sqrt(u.size)
        try:
            made = self._steps.make(first, u, span, _WELL_BELOW * self.tolerance * worth)
            error = self._steps.error(made, span.end)
        except NumericsError:
            return u, np.inf
        scale = np.maximum(scale, self._scale(first, made.state, u))
        parts = np.where(first.held, 0.0, abs(error) / (self.tolerance * scale))
        return made.state, float(parts.max())

    def _first(self, first: LinearSystem, u: Numbers, longest: float) -> float:
        """The length of the first step [s]."""
        rates = first.flows(first.driving(u)) / first.capacity
        fastest = float((abs(rates) / self._scale(first, u)).max())
        wanted = (self.tolerance / _CONSTANT) ** (1 / _ORDER)
        return wanted / fastest if fastest * longest > wanted else longest

    def _scale(self, made: LinearSystem, *states: Numbers) -> Numbers:
        """The range of states that belongs to each cell, (n0, ...) or (1, ...)."""
        constant = best_constant(made)
        if made.contents is not None:
            constant = made.contents.state(constant)
        states = (*states, constant)
        if made.contents is None:
            own = ~made.held
            whole = max(it[own].max() for it in states) - min(it[own].min() for it in states)
            return np.full((1,) * constant.ndim, max(whole, np.finfo(float).tiny))

        kinds = made.contents.enthalpy.kinds[made.contents.ids]
        found = np.ones(constant.shape)
        for kind in np.unique(kinds):
            here = kinds == kind
            whole = max(it[here].max() for it in states) - min(it[here].min() for it in states)
            found[here] = max(whole, np.finfo(float).tiny)
        return found
