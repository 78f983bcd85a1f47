"""Implicit steps: TR-BDF2, of second order, stable and damping for steps of any length.

With C du/dt = f - A u, a step goes by the trapezoidal rule to t + g dt, and from there by the
backward difference formula of second order through all three states to t + dt, g = 2 - sqrt(2), for
which both solve with C / (a dt) + A, a = 1 - 1 / sqrt(2) (R. E. Bank et al., IEEE Trans. Electron
Devices 32 (1985) 1992; M. E. Hosea, L. F. Shampine, Appl. Numer. Math. 20 (1996) 21):

    (C / (a dt) + A) u_g = C / (a dt) u + (f - A u)(t) + f_g
    (C / (a dt) + A) u_1 = C / (a dt) (u_g / (g (2 - g)) - u (1 - g)^2 / (g (2 - g))) + f_1

Faces and sources count at the times of the three states. Where faces are not linear the balance is
linearised about the last guess until it holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from tetris_sim.conduction import Numbers
from tetris_sim.errors import NumericsError
from tetris_sim.problem import Problem
from tetris_sim.solvers.balance import Balance, balance
from tetris_sim.solvers.gradients import Arithmetic
from tetris_sim.solvers.settle import Kept, settle
from tetris_sim.solvers.steady import best_constant, changes, rounding_of, unbalanced

_G = 2 - math.sqrt(2)
_A = 1 - 1 / math.sqrt(2)
_NOW = 1 / (_G * (2 - _G))  # weight of the state in between; that of the first one is 1 - it
_LIMIT = 1000  # iterations of a solution
_OUTER = 50  # linearisations of a balance


@dataclass
class ImplicitSteps:
    """Advances a state by implicit steps.

    Attributes:
        problem: see `balance.why_not`.
        arithmetic: of the device.
        tolerance: of what is left of a balance, as of a steady state's.
        solutions: how many systems were solved.
        iterations: of conjugate gradients, in all.
    """

    problem: Problem
    arithmetic: Arithmetic
    tolerance: float
    solutions: int = 0
    iterations: int = 0
    _kept: Kept = field(default_factory=Kept)
    _same: Balance | None = None  # that of all times and states, if there is one

    def advance(self, u: Numbers, step: int) -> Numbers:
        """The state after step number `step`, (n0, ...).

        Args:
            u: the state before it.
            step: steps that this has behind it.

        Raises:
            NumericsError: the tolerance was not reached.
        """
        dt = self.problem.dt
        begin, end = self.problem.time(step), self.problem.time(step + 1)
        first = self._balance(begin, u)
        storage = np.where(first.held, 0.0, first.capacity) / (_A * dt)
        drive = first.driving(u)
        scale = max(unbalanced(first, best_constant(first)), unbalanced(first, drive))

        given = storage * u + first.flows(drive)
        middle = self._solve(begin + _G * dt, u, storage, given, scale)
        given = storage * (_NOW * middle + (1 - _NOW) * u)
        return self._solve(end, middle, storage, given, scale)

    def _balance(self, time: float, u: Numbers) -> Balance:
        if self._same is not None:
            return self._same
        made = balance(self.problem, time, u)
        if made.is_linear and not changes(self.problem):
            self._same = made
        return made

    def _solve(
        self, time: float, guess: Numbers, storage: Numbers, given: Numbers, scale: float
    ) -> Numbers:
        """The state at a time in which each cell stores what flows in, and what is given."""
        u = guess
        for _ in range(_OUTER):
            made = self._balance(time, u)
            drive = made.driving(u)
            left = given - storage * u + made.flows(drive)
            least = max(self.tolerance * scale, rounding_of(made, drive, storage * u))
            if float(np.linalg.norm(left.reshape(-1))) <= least:
                return u
            u = self._closer(made, u, storage, (given, left), least / 2)
        msg = (
            f"at {time:g} s the heat balance does not hold after {_OUTER} linearisations; take a "
            "shorter time.dt, or a larger time.tolerance"
        )
        raise NumericsError(msg)

    def _closer(
        self,
        made: Balance,
        u: Numbers,
        storage: Numbers,
        heats: tuple[Numbers, Numbers],
        tolerance: float,
    ) -> Numbers:
        """The state in which a balance holds as it is linearised.

        Args:
            made: the balance.
            u: the state about which it is.
            storage: what cells store per unit of the state.
            heats: what is given to cells, and what of this they do not store.
            tolerance: of what is left.
        """
        given, left = heats
        guess, heat, slope = u, made.heat + given, np.ones(1)
        if made.contents is not None:
            # What warms by v stores `slope` v.
            most = made.whole / np.where(storage > 0, storage, 1.0)
            guess, heat, slope = np.zeros_like(u), left, made.contents.stored(u, most)
        found, solved = settle(
            made,
            guess,
            self.arithmetic,
            tolerance=tolerance,
            scale=1.0,
            limit=_LIMIT,
            storage=storage * slope,
            heat=heat,
            kept=self._kept,
        )
        self.solutions += 1
        self.iterations += solved.iterations
        return found if made.contents is None else made.contents.limited(u, u + slope * found)
