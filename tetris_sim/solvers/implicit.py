"""Implicit time steps: TR-BDF2, second order and L-stable, for steps of any length.

With C du/dt = f - A u, a step uses the trapezoidal rule to t + g dt, and from there the
second-order backward difference formula through all three states to t + dt, g = 2 - sqrt(2), for
which both solve with C / (a dt) + A, a = 1 - 1 / sqrt(2) (R. E. Bank et al., IEEE Trans. Electron
Devices 32 (1985) 1992; M. E. Hosea, L. F. Shampine, Appl. Numer. Math. 20 (1996) 21):

    (C / (a dt) + A) u_g = C / (a dt) u + (f - A u)(t) + f_g
    (C / (a dt) + A) u_1 = C / (a dt) (u_g / (g (2 - g)) - u (1 - g)^2 / (g (2 - g))) + f_1

Faces and sources are evaluated at the times of the three states. Where faces are not linear, or the
state is an enthalpy, the balance is linearized about the last iterate until it holds.

The error of a step is its difference from the embedded formula of third order (`error`, with w =
sqrt(2) / 4); solved with the same operator, the estimate is right for stiff parts too.
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

# Constants g, a and w of the formulas above.
_G = 2 - math.sqrt(2)
_A = 1 - 1 / math.sqrt(2)
_W = math.sqrt(2) / 4
_NOW = 1 / (_G * (2 - _G))  # weight of the state in between; that of the first one is 1 - it
_LIMIT = 1000  # iterations of a solution
_OUTER = 50  # linearisations of a balance
_ROUGHLY = 1e-2  # how well an error has to be known


@dataclass(frozen=True)
class TimeSpan:
    """A step in time: begin, end and length [s]."""

    begin: float
    end: float
    dt: float


@dataclass(frozen=True, eq=False)
class ImplicitStep:
    """A completed step.

    Attributes:
        state: at its end, (n0, ...).
        storage: C / (a dt) of the formulas above, 0 in held cells.
        flows: heat flows into cells at its three times.
    """

    state: Numbers
    storage: Numbers
    flows: tuple[Numbers, Numbers, Numbers]


@dataclass
class ImplicitSteps:
    """Advances a state by implicit steps.

    Attributes:
        problem: see `balance.why_not`.
        solver: solves the linear systems.
        tolerance: of the remaining imbalance, as for a steady state.
        solutions: number of systems solved so far.
        iterations: of conjugate gradients, in total.
        kept: preconditioner of earlier solutions.
        heard: interruption request; see `conjugate_gradients`, which then raises LeftOffError.
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
        # Systems are assembled on the host; a near device, if any, lends its threads.
        near = self.solver.near
        self._balances = LinearSystems(
            self.problem, HERE if near is None else Where(share=near.share)
        )

    def advance(self, u: Numbers, step: int) -> Numbers:
        """Make step number `step`, and return the state after it, (n0, ...).

        Args:
            u: the state before it.
            step: number of steps before it.

        Raises:
            NumericsError: the tolerance was not reached.
        """
        begin, end = self.problem.time(step), self.problem.time(step + 1)
        first = self.balance(begin, u)
        drive = first.driving(u)
        # The imbalance of a constant state is part of the scale, so that the zero of the
        # temperature scale does not count.
        scale = max(unbalanced(first, best_constant(first)), unbalanced(first, drive))
        span = TimeSpan(begin, end, self.problem.dt)
        return self.make(first, u, span, self.tolerance * scale).state

    def make(self, first: LinearSystem, u: Numbers, span: TimeSpan, least: float) -> ImplicitStep:
        """Make one step.

        Args:
            first: the linear system at its begin.
            u: the state there.
            span: its begin, end and length.
            least: norm of the imbalance that may remain.

        Raises:
            NumericsError: a balance does not hold.
        """
        # Held cells store nothing here: they are not unknowns.
        storage = np.where(first.held, 0.0, first.capacity) / (_A * span.dt)
        flows = first.flows(first.driving(u))
        # Stage 1, trapezoidal rule: both ends contribute their flows, hence `u` and its flows.
        given = storage * u + flows
        middle = self._solve(span.begin + _G * span.dt, u, storage, given, least)
        # The flows at t + g dt follow from the stage equation, without another evaluation.
        flows_then = storage * middle - given
        # Stage 2, BDF2 through the states at t and t + g dt.
        given = storage * (_NOW * middle + (1 - _NOW) * u)
        state = self._solve(span.end, middle, storage, given, least)
        return ImplicitStep(state, storage, (flows, flows_then, storage * state - given))

    def error(self, made: ImplicitStep, end: float) -> Numbers:
        """Estimate the difference of a step from the embedded formula of third order, (n0, ...).

        Args:
            made: the step.
            end: time at which it ended [s].
        """
        # Filtering the difference through the operator keeps the estimate small for stiff
        # components.
        first, middle, last = made.flows
        heat = ((4 * _W - 1) * first - middle + 2 * _A * last) / (3 * _A)
        size = norm(heat)
        balance, zero = self.balance(end, made.state), np.zeros_like(heat)
        return self._rise(balance, made.state, made.storage, (zero, heat), _ROUGHLY * size)

    def balance(self, time: float, u: Numbers) -> LinearSystem:
        """Return the linear system at a time and state."""
        # The end of a step is the begin of the next one, so the last system is kept, identified by
        # its time and the array of its state.
        if self._last is None or self._last[0] != time or self._last[1] is not u:
            self._last = (time, u, self._balances.at(time, u))
        return self._last[2]

    def _solve(
        self, time: float, guess: Numbers, storage: Numbers, given: Numbers, least: float
    ) -> Numbers:
        """Solve for the state at a time in which each cell stores the flows into it plus
        `given`.
        """
        # Newton's method; a linear system takes one solution and one check.
        u = guess
        for _ in range(_OUTER):
            made = self.balance(time, u)
            drive = made.driving(u)
            left = given - storage * u + made.flows(drive)
            # No solution can be better than the rounding of its own terms.
            least = max(least, rounding_of(made, drive, storage * u))
            if norm(left) <= least:
                return u

            # Without enthalpies solve for the state itself; with them, for its rise, which is then
            # limited to the melting interval.
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
        """Return the change of the state when cells take up some heat.

        Args:
            made: the linear system.
            u: the state of its linearization.
            storage: heat stored per unit of the state.
            sought: initial guess of the driving quantity, and the heat.
            tolerance: of the remaining imbalance.
        """
        # The system is solved for the driving quantity; `slope` is the rise of the state per unit
        # of it.
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


# Adaptive implicit steps: TR-BDF2 with its embedded error estimate of third order.
#
# The error of a step is the largest difference of any cell, relative to the range of the state. The
# range includes the constant state in balance, so a uniform body has one too. Where the state is an
# enthalpy each material has its own range. A step whose error is above the tolerance is repeated
# with a shorter length; the next length follows from the errors of the last two steps (`Controller`
# of `tetris_sim/model/step_control.py`).
#
# Each output interval begins anew, with the length that would be right if all cells went on
# exponentially, so the state is all that a continued run needs.

_CONSTANT = 0.04  # of (dt d/dt)^3, the error of a step
_ORDER = 3  # power of a step's length with which its error shrinks
_WELL_BELOW = 1e-2  # of the tolerance: what is left of balances may be worth


def expected_steps(seconds: float, shortest: float, tolerance: float, stretches: int) -> int:
    """Estimate the number of steps of a run: after a discontinuity of temperature, heat spreads as
    the root of time, so steps grow in proportion to time.

    Args:
        seconds: of the whole run [s].
        shortest: time constant of the fastest cell [s].
        tolerance: of a step's error.
        stretches: number of output intervals.
    """
    # With an error c (dt / t)^3, each step may grow time by the same factor.
    grows: float = (tolerance / _CONSTANT) ** (1 / _ORDER)
    # Two more per output interval, which begins anew and cuts its last steps short.
    return math.ceil(math.log1p(seconds / shortest) / grows) + 2 * stretches


@dataclass
class AdaptiveSteps:
    """Advances a state by adaptive implicit steps.

    Attributes:
        problem: see `balance.why_not`; its dt is not used.
        solver: solves the linear systems.
        tolerance: of a step's error.
        counted: all steps so far.
        heard: interruption request, as in `ImplicitSteps`.
    """

    problem: Problem
    solver: Solver
    tolerance: float
    counted: Counted = field(default_factory=Counted)
    heard: Heard = nobody

    def __post_init__(self) -> None:
        # Through a method, because `heard` may be replaced later.
        self._steps = ImplicitSteps(self.problem, self.solver, self.tolerance, heard=self._is_heard)

    def _is_heard(self) -> bool:
        return self.heard()

    @property
    def iterations(self) -> int:
        """Iterations of conjugate gradients, in total."""
        return self._steps.iterations

    def advance(self, u: Numbers, begin: float, end: float) -> Numbers:
        """Advance the state from one time to another, (n0, ...).

        Args:
            u: the state.
            begin: its time [s].
            end: time of the result [s].

        Raises:
            LeftOffError: the solution was interrupted.
            NumericsError: no step is short enough.
        """
        # Nothing is carried over from the previous output interval, so a continued run takes the
        # same steps.
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
        """Try a step: (the state after it, its error relative to the tolerance)."""
        # A small part of the tolerated error, in the cell that stores least, is what imbalances may
        # be worth.
        scale = self._scale(first, u)
        storage = np.where(first.held, np.inf, first.capacity / span.dt)
        worth = float((storage * scale).min()) * np.sqrt(u.size)
        try:
            made = self._steps.make(first, u, span, _WELL_BELOW * self.tolerance * worth)
            error = self._steps.error(made, span.end)
        # A step that cannot be solved counts as one with an infinite error, and is made shorter.
        except NumericsError:
            return u, np.inf

        # The range may grow during the step; held cells have no error.
        scale = np.maximum(scale, self._scale(first, made.state, u))
        parts = np.where(first.held, 0.0, abs(error) / (self.tolerance * scale))
        return made.state, float(parts.max())

    def _first(self, first: LinearSystem, u: Numbers, longest: float) -> float:
        """Return the length of the first step [s]: as if the fastest cell went on exponentially."""
        rates = first.flows(first.driving(u)) / first.capacity
        # dt / time constant = (tolerance / c)^(1/3) makes the error of an exponential the
        # tolerance.
        fastest = float((abs(rates) / self._scale(first, u)).max())
        wanted = (self.tolerance / _CONSTANT) ** (1 / _ORDER)
        return wanted / fastest if fastest * longest > wanted else longest

    def _scale(self, made: LinearSystem, *states: Numbers) -> Numbers:
        """Return the range of states that each cell's error is relative to, (n0, ...) or (1,
        ...).
        """
        # The constant state in balance belongs to the range, so a uniform body has one too.
        constant = best_constant(made)
        if made.contents is not None:
            constant = made.contents.state(constant)
        states = (*states, constant)
        if made.contents is None:
            own = ~made.held
            whole = max(it[own].max() for it in states) - min(it[own].min() for it in states)
            return np.full((1,) * constant.ndim, max(whole, np.finfo(float).tiny))

        # With enthalpies each material has its own range.
        kinds = made.contents.enthalpy.kinds[made.contents.ids]
        found = np.ones(constant.shape)
        for kind in np.unique(kinds):
            here = kinds == kind
            whole = max(it[here].max() for it in states) - min(it[here].min() for it in states)
            found[here] = max(whole, np.finfo(float).tiny)
        return found
