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
from tetris_sim.solvers.assembly import HERE, Where
from tetris_sim.solvers.balance import Balance, Balances, norm
from tetris_sim.solvers.gradients import Heard, nobody
from tetris_sim.solvers.settle import Kept, settle
from tetris_sim.solvers.solver import Solver
from tetris_sim.solvers.steady import best_constant, rounding_of, unbalanced

_G = 2 - math.sqrt(2)
_A = 1 - 1 / math.sqrt(2)
_W = math.sqrt(2) / 4
_NOW = 1 / (_G * (2 - _G))  # weight of the state in between; that of the first one is 1 - it
_LIMIT = 1000  # iterations of a solution
_OUTER = 50  # linearisations of a balance
_ROUGHLY = 1e-2  # how well an error has to be known


@dataclass(frozen=True)
class Span:
    """A step in time: from when to when, and how long that is [s]."""

    begin: float
    end: float
    dt: float


@dataclass(frozen=True, eq=False)
class Made:
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
    _last: tuple[float, Numbers, Balance] | None = None  # a time, a state and their balance

    def __post_init__(self) -> None:
        near = self.solver.near
        self._balances = Balances(self.problem, HERE if near is None else Where(share=near.share))

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
        span = Span(begin, end, self.problem.dt)
        return self.make(first, u, span, self.tolerance * scale).state

    def make(self, first: Balance, u: Numbers, span: Span, least: float) -> Made:
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
        return Made(state, storage, (flows, flows_then, storage * state - given))

    def error(self, made: Made, end: float) -> Numbers:
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

    def balance(self, time: float, u: Numbers) -> Balance:
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
        made: Balance,
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
        self, made: Balance, sought: tuple[Numbers, Numbers], storage: Numbers, tolerance: float
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
