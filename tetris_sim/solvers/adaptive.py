"""Implicit steps as long as an error allows: TR-BDF2 with its embedded estimate of third order.

The error of a step is the largest difference of any cell, relative to the range of the state, that
of the constant state in balance included: so a body that is everywhere the same has a range too.
Where the state is heat content each material has its own. A step whose error is above the tolerance
is made again, shorter; the next length follows from the errors of the last two steps (`Controller`
of `tetris_sim/model/step_control.py`).

Each stretch, from one step that somebody wants to the next, begins anew: with the length that would
be right if all went on exponentially, so what is known of a run is its state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.problem import Problem
from tetris_sim.model.step_control import Controller, Counted
from tetris_sim.solvers.balance import Balance
from tetris_sim.solvers.gradients import Heard, LeftOffError, nobody
from tetris_sim.solvers.implicit import ImplicitSteps, Span
from tetris_sim.solvers.settle import Kept
from tetris_sim.solvers.solver import Solver
from tetris_sim.solvers.steady import best_constant

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

            found, error = self._try(first, u, Span(tried.time, tried.until, tried.length))
            if tried.accept(error):
                u = found
                first = self._steps.balance(tried.time, u)
            self.counted = tried.counted
        return u

    def _try(self, first: Balance, u: Numbers, span: Span) -> tuple[Numbers, float]:
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

    def _first(self, first: Balance, u: Numbers, longest: float) -> float:
        """The length of the first step [s]."""
        rates = first.flows(first.driving(u)) / first.capacity
        fastest = float((abs(rates) / self._scale(first, u)).max())
        wanted = (self.tolerance / _CONSTANT) ** (1 / _ORDER)
        return wanted / fastest if fastest * longest > wanted else longest

    def _scale(self, made: Balance, *states: Numbers) -> Numbers:
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
