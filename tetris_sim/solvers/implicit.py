"""Implicit time steps: TR-BDF2, second order and L-stable, for steps of any length.

With C du/dt = f - A u, a step uses the trapezoidal rule to t + g dt, and from there the
second-order backward difference formula through all three states to t + dt, g = 2 - sqrt(2), for
which both solve with C / (a dt) + A, a = 1 - 1 / sqrt(2) (R. E. Bank et al., IEEE Trans. Electron
Devices 32 (1985) 1992; M. E. Hosea, L. F. Shampine, Appl. Numer. Math. 20 (1996) 21):

    (C / (a dt) + A) u_g = C / (a dt) u + (f - A u)(t) + f_g
    (C / (a dt) + A) u_1 = C / (a dt) (u_g / (g (2 - g)) - u (1 - g)^2 / (g (2 - g))) + f_1

Faces and sources enter by their means (`step_control.py`): twice that of the first stage for f(t) +
f_g, and for f_1 what makes the step take up its own mean; if they grow linearly, these are the
values at the three times. Steps end where something bends or jumps, but for parts of a step that
would be shorter than a sixteenth of it. Where faces are not linear, or the state is an enthalpy,
the balance is linearized about the last iterate until it holds.

The error of a step is its difference from the embedded formula of third order (`error`, with w =
sqrt(2) / 4) at the three times; solved with the same operator, it is right for stiff parts too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.problem import Problem
from tetris_sim.model.step_control import Controller, Counted
from tetris_sim.solvers import tangent
from tetris_sim.solvers.assembly import HERE, Spans, Where, instant
from tetris_sim.solvers.balance import LinearSystem, LinearSystems, norm
from tetris_sim.solvers.krylov import Heard, LeftOffError, nobody
from tetris_sim.solvers.solver import Kept, Solver, settle
from tetris_sim.solvers.steady import GROWS, best_constant, changes, rounding_of, unbalanced
from tetris_sim.solvers.surface_flows import joules_of

# Constants g, a and w of the formulas above.
_G = 2 - math.sqrt(2)
_A = 1 - 1 / math.sqrt(2)
_W = math.sqrt(2) / 4
_NOW = 1 / (_G * (2 - _G))  # weight of the state in between; that of the first one is 1 - it
_ALWAYS = instant(0.0)  # of what does not change
_LIMIT = 1000  # iterations of a solution
_OUTER = 50  # linearisations of a balance
_HALVINGS = 4  # of a step whose balance does not hold
_SHARES = 1.0, 0.5, 0.25, 0.125, 0.0625  # of a rise that Newton's method may go
_DESCENT = 1e-4  # of what is left of a balance: by how much a rise makes it less, at least
_FORCING = 1e-3  # how much better a linearised balance is solved than the last one was
_ROUGHLY = 1e-2  # how well an error has to be known
_SHORTEST = 1 / 16  # of a step: parts that it is cut into
_INSIDE = 1e-9  # of a step: how far from its ends their values are read
_NEGATIVE = 1e-9  # of all that flows per degree: what is less than 0 by rounding


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
        states: at its begin, in between and at its end, (n0, ...).
        storage: C / (a dt) of the formulas above, 0 in held cells.
        flows: heat flows into cells at its three times, by the means of its stages.
        stages: the spans of both stages.
        systems: linearized at its three states, by the means of its stages.
    """

    states: tuple[Numbers, Numbers, Numbers]
    storage: Numbers
    flows: tuple[Numbers, Numbers, Numbers]
    stages: tuple[Spans, Spans]
    systems: tuple[LinearSystem, LinearSystem, LinearSystem]

    @property
    def state(self) -> Numbers:
        """The state at its end."""
        return self.states[-1]


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
        moved: heat that came in through each surface and from sources in all steps so far, by the
            names of `SurfaceFlows.flows` [J]; the same numbers that the steps were made of.
        heard: interruption request; see `conjugate_gradients`, which then raises LeftOffError.
    """

    problem: Problem
    solver: Solver
    tolerance: float
    solutions: int = 0
    iterations: int = 0
    kept: Kept = field(default_factory=Kept)
    moved: dict[str, float] = field(default_factory=dict)
    heard: Heard = nobody
    _factors: tangent.Factors = field(default_factory=tangent.Factors)
    _last: tuple[Spans, Numbers, LinearSystem] | None = None  # spans, a state and their balance

    def __post_init__(self) -> None:
        # Systems are assembled on the host; a near device, if any, lends its threads.
        near = self.solver.near
        self._balances = LinearSystems(
            self.problem, HERE if near is None else Where(share=near.share)
        )
        self._changes, self._kept_of_parts = changes(self.problem), Kept(loose=True)

    def advance(self, u: Numbers, step: int) -> Numbers:
        """Make step number `step`, and return the state after it, (n0, ...).

        Args:
            u: the state before it.
            step: number of steps before it.

        Raises:
            NumericsError: the tolerance was not reached.
        """
        begin, end = self.problem.time(step), self.problem.time(step + 1)
        edges = [begin, *self.bends(begin, end, _SHORTEST * (end - begin)), end]
        whole, kept = len(edges) == 2, self.kept
        # Parts differ in length, so that of one serves for another one only roughly.
        self.kept = kept if whole else self._kept_of_parts
        try:
            for low, high in itertools.pairwise(edges):
                span = TimeSpan(low, high, self.problem.dt if whole else high - low)
                u = self._advance_in_parts(u, span, _HALVINGS)
        finally:
            self.kept = kept
        return u

    def _advance_in_parts(self, u: Numbers, span: TimeSpan, halvings: int) -> Numbers:
        """Make a step, or where its balance does not hold, both halves of it."""
        kept = self.kept
        try:
            return self._advance(u, span)
        except NumericsError as error:
            made = self.balance(self.at(span.begin), u)
            if halvings == 0 and made.frozen is not None:
                msg = f"at {span.begin:g} s no step is short enough: {GROWS} or end before"
                raise NumericsError(msg) from error
            if halvings == 0 or made.is_linear:
                raise

        # Newton's method begins nearer to the answer of a shorter step.
        middle = (span.begin + span.end) / 2
        self.kept = self._kept_of_parts
        try:
            for low, high in ((span.begin, middle), (middle, span.end)):
                u = self._advance_in_parts(u, TimeSpan(low, high, span.dt / 2), halvings - 1)
        finally:
            self.kept = kept
        return u

    def _advance(self, u: Numbers, span: TimeSpan) -> Numbers:
        stages = self.stages(u, span)
        # The imbalance of a constant state is part of the scale, so that the zero of the
        # temperature scale does not count.
        scale = 0.0
        for when in dict.fromkeys(stages):
            made = self.balance(when, u)
            drive = made.driving(u)
            scale = max(scale, unbalanced(made, best_constant(made)), unbalanced(made, drive))
        step = self.make(u, span, stages, self.tolerance * scale)
        self.add_up(step, span)
        return step.state

    def add_up(self, made: ImplicitStep, span: TimeSpan) -> None:
        """Add what a step has moved to `moved`."""
        # C (u_1 - u) = dt (w (F + F_g) + a F_1) is what both stages add up to.
        joules = joules_of(self.problem) * span.dt
        weights = _W * joules, _W * joules, _A * joules
        parts = zip(weights, made.systems, made.states, strict=True)
        for weight, system, state in parts:
            assert system.surfaces is not None
            flows = system.surfaces.flows(self.problem, system.driving(state))
            for name, flow in flows.items():
                moved = self.moved.get(name, 0.0) + weight * flow
                self.moved[name] = moved

    def bends(self, begin: float, end: float, shortest: float) -> list[float]:
        """Return the times inside a span at which steps end, ascending, at least `shortest` apart
        and from its ends [s].
        """
        found, last = list[float](), begin
        for time in self._balances.bends(begin, end) if self._changes else ():
            if time - last >= shortest and end - time >= shortest:
                found.append(time)
                last = time
        return found

    def stages(self, u: Numbers, span: TimeSpan) -> tuple[Spans, Spans]:
        """Return the spans over which both stages of a step from a state average what changes."""
        if not self._changes:
            return _ALWAYS, _ALWAYS
        between = span.begin + _G * span.dt
        # Half of the heat of stage 1 counts at either of its ends; with f_1 stage 2 makes up for
        # what is left of the mean over the step: 2 w F_1 + a f_1 = g F_1 + (1 - g) F_2.
        first: Spans = ((1.0, span.begin, between),)
        second: Spans = (
            ((_G - 2 * _W) / _A, span.begin, between),
            ((1 - _G) / _A, between, span.end),
        )

        # An exchange that grows or falls within the step must not become a negative one: then the
        # mean over the step counts in both stages.
        made = self.balance(second, u)
        if float(made.given[0].min()) < -_NEGATIVE * float(made.whole.max()):
            first = second = ((1.0, span.begin, span.end),)
        return first, second

    def make(
        self, u: Numbers, span: TimeSpan, stages: tuple[Spans, Spans], least: float
    ) -> ImplicitStep:
        """Make one step.

        Args:
            u: the state at its begin.
            span: its begin, end and length.
            stages: as `stages` returns them.
            least: norm of the imbalance that may remain.

        Raises:
            NumericsError: a balance does not hold.
        """
        self._factors = tangent.Factors()  # none of an earlier step, so that a run can go on
        first = self.balance(stages[0], u)
        # Held cells store nothing here: they are not unknowns.
        storage = np.where(first.held, 0.0, first.capacity) / (_A * span.dt)
        flows = first.flows(first.driving(u))
        # Stage 1, trapezoidal rule: both ends contribute their flows, hence `u` and its flows.
        given = storage * u + flows
        middle = self._solve((span.end, stages[0]), u, storage, given, least)

        second = self.balance(stages[0], middle)
        # The flows at t + g dt follow from the stage equation, without another evaluation.
        flows_then = storage * middle - given
        # Stage 2, BDF2 through the states at t and t + g dt.
        given = storage * (_NOW * middle + (1 - _NOW) * u)
        state = self._solve((span.end, stages[1]), middle, storage, given, least)
        all_flows = flows, flows_then, storage * state - given
        systems = first, second, self.balance(stages[1], state)
        return ImplicitStep((u, middle, state), storage, all_flows, stages, systems)

    def error(self, made: ImplicitStep, span: TimeSpan) -> Numbers:
        """Estimate the difference of a step from the embedded formula of third order, (n0, ...).

        Args:
            made: the step.
            span: its begin, end and length.
        """
        # Filtering the difference through the operator keeps the estimate small for stiff
        # components.
        first, middle, last = made.flows
        heat = ((4 * _W - 1) * first - middle + 2 * _A * last) / (3 * _A)
        if self._changes:
            # The formula of third order takes values at the three times instead of means.
            # Its ends may lie on jumps, of which the step sees one side.
            inside = _INSIDE * span.dt
            times = span.begin + inside, span.begin + _G * span.dt, span.end - inside
            spans = made.stages[0], *made.stages
            weights = (1 - _W) / 3, (1 + 3 * _W) / 3, _A / 3
            for weight, time, when, u in zip(weights, times, spans, made.states, strict=True):
                over, then = (self.balance(it, u) for it in (when, instant(time)))
                drive = over.driving(u)
                heat += weight / _A * (over.flows(drive) - then.flows(drive))
        size = norm(heat)
        balance, zero = self.balance(self.at(span.end), made.state), np.zeros_like(heat)
        return self._rise(balance, made.state, made.storage, (zero, heat), _ROUGHLY * size)

    def rise(self, u: Numbers, edges: Sequence[float]) -> float:
        """Return by how much any cell would rise between the first and the last of some times [s]
        if its state did not change the flows; 0 where nothing changes with time.
        """
        if not self._changes:
            return 0.0
        whole = edges[-1] - edges[0]
        spans = tuple(((high - low) / whole, low, high) for low, high in itertools.pairwise(edges))
        made = self.balance(spans, u)
        return float(abs(made.flows(made.driving(u)) / made.capacity).max()) * whole

    def at(self, time: float) -> Spans:
        """Return a time as the spans of a balance."""
        return instant(time) if self._changes else _ALWAYS

    def balance(self, when: Spans, u: Numbers) -> LinearSystem:
        """Return the linear system over some spans and at a state."""
        # The end of a step is the begin of the next one, so the last system is kept, identified by
        # its spans and the array of its state.
        if self._last is None or self._last[0] != when or self._last[1] is not u:
            self._last = (when, u, self._balances.at(when, u))
        return self._last[2]

    def _solve(
        self, at: tuple[float, Spans], u: Numbers, storage: Numbers, given: Numbers, least: float
    ) -> Numbers:
        """Solve for the state in which each cell stores the flows into it plus `given`.

        Args:
            at: time for messages [s], and the spans over which faces and sources are averaged.
            u: to begin with.
            storage: heat stored per unit of the state.
            given: more heat.
            least: norm of the imbalance that may remain.
        """
        # Newton's method; a linear system takes one solution and one check.
        time, when = at
        made, left = self._left(when, u, storage, given)
        for _ in range(_OUTER):
            # No solution can be better than the rounding of its own terms.
            least = max(least, rounding_of(made, made.driving(u), storage * u))
            if norm(left) <= least:
                return u

            # Without enthalpies solve for the state itself; with them, for its rise, which is then
            # limited to the melting interval.
            if made.contents is None:
                heat = made.heat + given
                u = self._settle(made, (u, heat), storage, least / 2)
                made, left = self._left(when, u, storage, given)
                continue
            for rise, share in self._rises(made, u, storage, left, least / 2):
                tried = made.contents.limited(u, u + rise)
                then, rest = self._left(when, tried, storage, given)
                if norm(rest) <= (1 - _DESCENT * share) * norm(left):
                    break
            u, made, left = tried, then, rest

        msg = (
            f"at {time:g} s the heat balance does not hold after {_OUTER} linearisations; take a "
            "shorter time.dt, or a larger time.tolerance"
        )
        raise NumericsError(msg)

    def _left(
        self, when: Spans, u: Numbers, storage: Numbers, given: Numbers
    ) -> tuple[LinearSystem, Numbers]:
        """Return the linear system at a state, and what is left of its balance."""
        made = self.balance(when, u)
        return made, given - storage * u + made.flows(made.driving(u))

    def _rises(
        self, made: LinearSystem, u: Numbers, storage: Numbers, left: Numbers, least: float
    ) -> Iterator[tuple[Numbers, float]]:
        """Yield rises of the state that may take up what is left of a balance, the best one first,
        and the shares of what is left that they would take up; see `_solve`.
        """
        assert made.contents is not None
        nothing = np.zeros_like(u)
        if not made.contents.is_symmetric:
            self.solutions += 1

            def roughly(heat: Numbers, part: float) -> Numbers:
                return self._rise(made, u, storage, (nothing, heat), part * norm(heat))

            wanted = max(least, _FORCING * norm(left))
            rise = tangent.solve(made, storage, left, wanted, (self._factors, roughly))
            # Curves bend, so that a rise may lead too far.
            for share in _SHARES:
                yield share * rise, share
        # At a bend none of these may be better: then conductances are taken as they are.
        yield self._rise(made, u, storage, (nothing, left), least), 0.0

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
        # The system is solved for the driving quantity; the state rises by `slope` per unit of it.
        slope: Numbers = np.ones(1)
        if made.contents is not None:
            most = made.whole / np.where(storage > 0, storage, 1.0)
            slope = made.contents.stored(u, most)
        return slope * self._settle(made, sought, storage * slope, tolerance)

    def _settle(
        self, made: LinearSystem, sought: tuple[Numbers, Numbers], storage: Numbers, aim: float
    ) -> Numbers:
        guess, heat = sought
        found, solved = settle(
            made,
            guess,
            self.solver,
            tolerance=aim,
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
_HARDLY = 1e-9  # of the rise in an interval: of a range, so that it is never next to nothing
_CLOSEST = 1e-9  # of an interval: times between which there is a step


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
    _least: float = 0.0  # range of a state

    def __post_init__(self) -> None:
        # Through a method, because `heard` may be replaced later.
        self._steps = ImplicitSteps(self.problem, self.solver, self.tolerance, heard=self._is_heard)

    def _is_heard(self) -> bool:
        return self.heard()

    @property
    def moved(self) -> dict[str, float]:
        """As of `ImplicitSteps`."""
        return self._steps.moved

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
        edges = [begin, *self._steps.bends(begin, end, _CLOSEST * (end - begin)), end]
        self._least = self._steps.rise(u, edges) * _HARDLY
        for low, high in itertools.pairwise(edges):
            u = self._advance(u, low, high)
        return u

    def _advance(self, u: Numbers, begin: float, end: float) -> Numbers:
        """Advance the state over a span in which nothing bends or jumps."""
        first = self._steps.balance(self._steps.at(begin), u)
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

            span = TimeSpan(tried.time, tried.until, tried.length)
            made, error = self._try(first, u, span)
            if tried.accept(error):
                if made is not None:
                    self._steps.add_up(made, span)
                    u = made.state
                first = self._steps.balance(self._steps.at(tried.time), u)
            self.counted = tried.counted
        return u

    def _try(
        self, first: LinearSystem, u: Numbers, span: TimeSpan
    ) -> tuple[ImplicitStep | None, float]:
        """Try a step: (the step unless it failed, its error relative to the tolerance)."""
        # A small part of the tolerated error, in the cell that stores least, is what imbalances may
        # be worth.
        scale = self._scale(first, u)
        storage = np.where(first.held, np.inf, first.capacity / span.dt)
        worth = float((storage * scale).min()) * np.sqrt(u.size)
        try:
            stages = self._steps.stages(u, span)
            made = self._steps.make(u, span, stages, _WELL_BELOW * self.tolerance * worth)
            error = self._steps.error(made, span)
        # A step that cannot be solved counts as one with an infinite error, and is made shorter.
        except NumericsError:
            return None, np.inf

        # The range may grow during the step; held cells have no error.
        scale = np.maximum(scale, self._scale(first, made.state, u))
        parts = np.where(first.held, 0.0, abs(error) / (self.tolerance * scale))
        return made, float(parts.max())

    def _first(self, first: LinearSystem, u: Numbers, longest: float) -> float:
        """Return the length of the first step [s]: as if the fastest cell went on exponentially."""
        rates = first.flows(first.driving(u)) / first.capacity
        # dt / time constant = (tolerance / c)^(1/3) makes the error of an exponential the
        # tolerance.
        with np.errstate(over="ignore"):
            fastest = float((abs(rates) / self._scale(first, u)).max())
        if math.isinf(fastest):
            return longest  # nothing is known yet of what the body comes to
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
            return np.full((1,) * constant.ndim, max(whole, self._least, np.finfo(float).tiny))

        # With enthalpies each material has its own range.
        kinds = made.contents.enthalpy.kinds[made.contents.ids]
        found = np.ones(constant.shape)
        for kind in np.unique(kinds):
            here = kinds == kind
            whole = max(it[here].max() for it in states) - min(it[here].min() for it in states)
            found[here] = max(whole, self._least, np.finfo(float).tiny)
        return found
