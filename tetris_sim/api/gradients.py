"""Gradients of what a run ends with, by numbers of its configuration and by its initial fields.

One run forwards and one backwards give the derivatives of one number J by everything at once, as
many points and constants there are; differences of runs would take one run for each of them. The
run backwards is made of transposed steps (`model/adjoint.py`), the last step first, and each needs
the state before its step. States are kept at a few steps and made again between them from the
nearest one, by the division that makes the fewest steps for what can be kept (A. Griewank, A.
Walther, Algorithm 799: Revolve, ACM Trans. Math. Softw. 26 (2000) 19). Steps that are linear need
none of that: they are transposed without the states.

Numbers of a configuration act on a step by its own numbers: parameters, coefficients, ghosts. How
these change with one of the configuration is found by differences of fourth order of them alone, of
configurations a thousandth apart; how J changes with these is exact.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.api.arrays import Steps, counted, steps_of
from tetris_sim.api.running import Arrays, Source, ask_for
from tetris_sim.apps.heat.moving import as_equations_at_rest
from tetris_sim.apps.pde.wholes import FinalNumber
from tetris_sim.config import Config, make_config
from tetris_sim.config.sections.schema import SPLIT, ComputeSection, Request
from tetris_sim.errors import ConfigError, NumericsError, TetrisError, UnsupportedError
from tetris_sim.model.adjoint import (
    Direction,
    Transposed,
    aligned,
    as_equations,
    split,
    transposed,
    why_not_transposed,
)
from tetris_sim.model.problem import Field, Problem, as_array
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.make import ProbeReading, as_data, name_probes, places_of, read_data
from tetris_sim.scheduler.machine.machine import available_memory
from tetris_sim.support.wording import listed, suggestion

Numbers = npt.NDArray[np.float64]
Functional = str | Callable[[dict[str, Numbers]], tuple[float, Mapping[str, npt.ArrayLike]]]
_APART = 1e-3  # of a number, or by itself where it is 0: how far other configurations are
# Differences of fourth order: how many of these, and weights. Where one side is refused, the other.
_CENTRAL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}
_FORWARD = {0: -25 / 12, 1: 4.0, 2: -3.0, 3: 4 / 3, 4: -1 / 4}
_BACKWARD = {-k: -weight for k, weight in _FORWARD.items()}
_SHARE = 4  # a part of the free memory is for states that are kept
# Seconds with NumPy of an operation of a step, and of one at a point; above so many in all, kernels
# are compiled, which takes about as long.
_CALL, _POINT, _WORTH = 5e-6, 4e-9, 4.0


@dataclass(frozen=True)
class Gradient:
    """A number J of a run and its derivatives.

    Attributes:
        value: J.
        by: its derivatives by name as asked for: a number, or an array of the grid's shape of an
            initial field, the derivative by the value of each point.
        residuals: by probe, computed minus measured values.
        steps: how many the run has.
        made: how many were made forwards, those that were made again counted too.
        kept: the most states that were kept at a time.
    """

    value: float
    by: Mapping[str, Any]
    residuals: Mapping[str, Numbers]
    steps: int
    made: int
    kept: int

    def __getitem__(self, name: str) -> Any:
        """The derivative by a name."""
        return self.by[name]


def gradient(
    config: Source,
    functional: Functional | None = None,
    wrt: str | Sequence[str] = (),
    *,
    data: Any = None,
    arrays: Mapping[str, npt.ArrayLike] | None = None,
    initial: Arrays | None = None,
    changes: Mapping[str, Any] | None = None,
    kept: int | None = None,
) -> Gradient:
    """Compute a number J of a run and its derivatives by numbers of the configuration and by
    initial fields, by one run forwards and one backwards.

    >>> import numpy as np
    >>> rod = {
    ...     "grid": {"shape": [32], "size": [1.0]},
    ...     "model": {
    ...         "type": "pde",
    ...         "constants": {"D": 0.1},
    ...         "fields": {"u": {
    ...             "equation": "D*laplace(u) - u**3",
    ...             "initial": {"type": "expression", "expression": "cos(pi*x)"},
    ...         }},
    ...     },
    ...     "boundaries": {"x": {"type": "neumann"}},
    ...     "time": {"t_end": 0.5},
    ... }
    >>> found = gradient(rod, "integral(u**2)", wrt=["D", "u"])
    >>> round(found.value, 4), round(found["D"], 3), found["u"].shape
    (0.1261, -1.089, (32,))

    Args:
        config: what to run, in explicit steps of a given length; it is computed in float64.
        functional: J of the fields at the end: a formula of integrals and means of formulas of
            fields, coordinates and `arrays`, "integral((u - target)**2)"; or a function that takes
            the fields by name, arrays of the grid's shape, and returns J and its derivatives by
            the values of each field, by name.
        wrt: by what to differentiate: names of fields for their initial values ("temperature" for
            heat), names of constants of equations, and any other keys of numbers, as after --set:
            "boundaries.x-.h", "materials.tim.conductivity".
        data: measured values, a CSV file or by probe, as of `fit`; the sum of the squares of what
            the probes of `output.probes` are off by is added to J. Probes are linear between steps;
            a probe is of the first field, "NAME.FIELD" of another one.
        arrays: more names for the functional, arrays of the grid's shape.
        initial: the state to begin with, as of `run`.
        changes: other values by key, as of `run`.
        kept: how many states may be kept at a time, 1 or more; as many as a quarter of the free
            memory holds if not given. The answer does not depend on it.

    Raises:
        ConfigError: a name or the functional is wrong, or J is not differentiable by a number.
        UnsupportedError: the run is not of explicit steps of a given length, or of something else
            that has no transposed step.
        NumericsError: the state stops being finite.
    """
    # Half of the digits would be lost in differences of numbers and in long sums.
    exact = {**(changes or {}), "compute.precision": "float64"}
    asked = ask_for(config, None, initial, exact, results_stay=False)
    problem, posed = _build(asked.config)
    names = [wrt] if isinstance(wrt, str) else [*wrt]
    fields = [it.name for it in problem.variables]
    keys = {name: _key(asked.config, name) for name in names if name not in fields}
    if functional is None and data is None:
        msg = "give a functional, data of probes, or both"
        raise ConfigError(msg)
    beside = {name: _beside(asked.config, problem, name, key) for name, key in keys.items()}
    posed, ways = _directions(posed, beside)
    run = {name: [it for it, _ in every] for name, (every, _) in beside.items()}
    goal = _Goal(
        problem,
        _functional(problem, functional, arrays or {}),
        _probes(asked.config, problem, data, run),
        {name: weights for name, (_, weights) in beside.items()},
    )
    back = _transpose(posed, [*ways.values()])
    compute = asked.config.compute
    with contextlib.ExitStack() as stack:
        small = _is_small(posed, back, compute)
        forwards = stack.enter_context(steps_of(problem, compute, small=small))
        backwards = stack.enter_context(steps_of(back.problem, compute, small=small))
        room = available_memory()[0] // _SHARE // max(1, problem.state_bytes)
        most = max(2, room) if kept is None else counted("kept", kept, 1)
        made = _Reversal(back, goal, forwards, backwards, most)
        value = made.run()

    # By a number: through the steps, through the state at the begin, and through the probes.
    first = {name: made.bars[fields.index(name)] for name in names if name in fields}
    sums = {
        name: math.fsum([*made.sums[k].ravel(), *(made.bars * way.initial()).ravel()])
        + goal.slope_by(name)
        for k, (name, way) in enumerate(ways.items())
    }
    found = {name: first[name] if name in first else sums[name] for name in names}
    if not all(np.isfinite(it).all() for it in (value, *found.values())):
        msg = (
            "the derivatives are not finite: the functional or an equation has none at some value "
            "that it takes, as sqrt(u) at 0"
        )
        raise NumericsError(msg)
    residuals = goal.residuals()
    return Gradient(value, found, residuals, problem.steps, made.made, made.most_kept)


# What is differentiated: a problem, and others whose numbers are a little different.


def _build(config: Config, dt: float | None = None) -> tuple[Problem, Problem]:
    """The problem of a configuration as it is advanced, and as one of equations.

    Raises:
        UnsupportedError: it has no transposed steps.
    """
    time = config.time
    why_not: str | None = None
    if time.scheme in ("spectral", "auto", "implicit", "steady", *SPLIT):
        why_not = f"time.scheme is {time.scheme}"
    elif time.until is not None:
        why_not = "time.until may end the run at another step; give t_end alone"
    problem = config.build(dt=dt) if why_not is None else None
    if problem is not None:
        why_not = why_not_transposed(problem)
    if problem is None or why_not is not None:
        msg = f"gradients are of explicit steps of a given length, and {why_not}"
        raise UnsupportedError(msg)
    posed = as_equations_at_rest(problem) if problem.conduction else as_equations(problem)
    return problem, posed


def _key(config: Config, name: str) -> str:
    """The whole key of a number of the configuration."""
    # Constants are known by their names alone, as in formulas.
    constants = getattr(config.model, "constants", {})
    if name in constants:
        return f"model.constants.{name}"
    first = name.split(".")[0]
    key = name if first in ("model", *Request.model_fields) else f"model.{name}"
    if first in ("grid", "time", "compute", "output", "checkpoint", "run", "control", "schema"):
        msg = f"wrt: {name} is no number of the model, of faces or of the initial state"
        raise ConfigError(msg)
    value: Any = config.resolved()
    for part in key.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            known = [*constants, *(value if isinstance(value, dict) else ())]
            msg = f"wrt: there is no {name}{suggestion(part, known)}; known are {listed(known)}"
            raise ConfigError(msg)

    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"wrt: {name} is {value!r}; derivatives are by numbers"
        raise ConfigError(msg)
    return key


def _value(data: Any, key: str) -> Any:
    return functools.reduce(
        lambda it, part: it[int(part)] if isinstance(it, list) else it[part], key.split("."), data
    )


_Beside = tuple[list[tuple[Problem, Problem]], tuple[float, ...]]


def _directions(
    posed: Problem, beside: Mapping[str, _Beside]
) -> tuple[Problem, dict[str, Direction]]:
    """A problem by equations, and how it changes with numbers of its configuration, by name; all of
    the same stages.

    Raises:
        ConfigError: the steps of other configurations are others.
    """
    # All at once: each number in which any two differ becomes a parameter of every one.
    every = [posed, *(it for problems, _ in beside.values() for _, it in problems)]
    try:
        posed, *others = aligned(every)
    except ValueError as error:
        msg = (
            f"wrt: with {listed([*beside], 'or')} a little different a step is made of other "
            f"formulas ({error}), so there is no derivative; is it a whole exponent, or a choice?"
        )
        raise ConfigError(msg) from error
    left = iter(others)
    return posed, {
        name: Direction(name, tuple(next(left) for _ in weights), weights)
        for name, (_, weights) in beside.items()
    }


def _beside(config: Config, problem: Problem, name: str, key: str) -> _Beside:
    """Problems of configurations in which a number is a little different, and their weights in a
    difference.

    Raises:
        ConfigError: these configurations are wrong.
    """
    data = config.resolved()
    here = float(_value(data, key))
    width = _APART * (abs(here) or 1.0)
    *parents, last = key.split(".")
    section = _value(data, ".".join(parents))
    # A step a little above the largest stable one is as good as one below for a derivative.
    if config.model.type == "pde":
        data["model"]["allow_growth"] = True

    # At the end of its range, as h = 0, a number can change in one direction only.
    refused: TetrisError | None = None
    for weights in (_CENTRAL, _FORWARD, _BACKWARD):
        problems = []
        try:
            for k in weights:
                value = here + k * width
                if isinstance(section, list):
                    section[int(last)] = value
                else:
                    section[last] = value
                problems.append(_build(make_config(data), problem.dt))
        except TetrisError as error:
            refused = refused or error
            continue
        return problems, tuple(weight / width for weight in weights.values())
    msg = f"wrt: {name} cannot be a little different: {refused}"
    raise ConfigError(msg)


def _transpose(posed: Problem, ways: Sequence[Direction]) -> Transposed:
    try:
        return transposed(posed, ways)
    except ValueError as error:
        msg = f"the grid is too small for a transposed step: {error}"
        raise ConfigError(msg) from error


def _is_small(posed: Problem, back: Transposed, compute: ComputeSection) -> bool:
    """Whether all of it takes less time with NumPy than kernels take to be compiled."""
    if compute.method != "auto":
        return False
    # Every step is made once or twice forwards, and once backwards.
    operations = 2 * posed.system.n_operations + back.problem.system.n_operations
    seconds = operations * (_CALL + _POINT * posed.grid.n_points)
    return posed.steps * seconds < _WORTH


# The number that is differentiated.


@dataclass(frozen=True, eq=False)
class _Probe:
    """A probe with what was measured.

    Attributes:
        reading: what it reads.
        beside: the same of the problems of each direction.
        weights: of the values of the points around, by index.
        values: that were measured, (n,).
        first: the step at or before each of their times.
        shares: how far they are to the next step.
    """

    reading: ProbeReading
    beside: Mapping[str, Sequence[ProbeReading]]
    weights: Mapping[tuple[int, ...], float]
    values: Numbers
    first: npt.NDArray[np.int64]
    shares: Numbers

    def between(self, by_step: Mapping[int, float]) -> Numbers:
        """Numbers at the times of the data from those at the steps around them."""
        low = np.array([by_step[int(k)] for k in self.first])
        high = np.array([by_step.get(int(k) + 1, 0.0) for k in self.first])
        return np.where(self.shares > 0, low + self.shares * (high - low), low)


@dataclass
class _Goal:
    """J: what is made of the fields at the end, and of what probes are off by.

    Attributes:
        problem: as it is advanced.
        functional: of the final fields: its value and its derivatives, (n_fields, n0, ...).
        probes: with their data, by name.
        ways: weights of the problems beside this one, by direction.
        seen: by probe and step, what is read; by direction and probe, how that changes with it.
    """

    problem: Problem
    functional: Callable[[Field], tuple[float, Numbers]]
    probes: Mapping[str, _Probe]
    ways: Mapping[str, tuple[float, ...]]
    seen: dict[tuple[str, ...], dict[int, float]] = field(
        default_factory=lambda: collections.defaultdict(dict)
    )

    @property
    def steps(self) -> list[int]:
        """The steps at which probes are read, ascending."""
        found = {
            int(k) + after for it in self.probes.values() for k in it.first for after in (0, 1)
        }
        return sorted(k for k in found if k <= self.problem.steps)

    def look(self, state: Field, step: int) -> None:
        """Read the probes."""
        for name, it in self.probes.items():
            self.seen[(name,)][step] = it.reading.at(state, step)
            # A probe near a face reads what is given there too.
            for way, weights in self.ways.items():
                parts = zip(weights, it.beside[way], strict=True)
                slope = math.fsum(weight * one.at(state, step) for weight, one in parts)
                self.seen[way, name][step] = slope

    def residuals(self) -> dict[str, Numbers]:
        """Computed minus measured values by probe."""
        found = self.probes.items()
        return {name: it.between(self.seen[(name,)]) - it.values for name, it in found}

    def misfit(self) -> float:
        """The sum of the squares of what the probes are off by."""
        return math.fsum(float(off @ off) for off in self.residuals().values())

    def slope_by(self, way: str) -> float:
        """The derivative of the misfit by a direction, with the states as they are."""
        found = (
            2 * float(off @ self.probes[name].between(self.seen[way, name]))
            for name, off in self.residuals().items()
        )
        return math.fsum(found)

    def slopes(self, step: int) -> Mapping[tuple[int, ...], float]:
        """Derivatives of the misfit by values of the state at a step, by index."""
        found: dict[tuple[int, ...], float] = collections.defaultdict(float)
        for name, off in self.residuals().items():
            it = self.probes[name]
            # A measurement between two steps counts for both.
            shares = np.where(it.first == step, 1 - it.shares, 0.0)
            shares += np.where(it.first + 1 == step, it.shares, 0.0)
            slope = float(2 * shares @ off)
            for index, weight in it.weights.items():
                found[index] += slope * weight
        return found


def _functional(
    problem: Problem, functional: Functional | None, arrays: Mapping[str, npt.ArrayLike]
) -> Callable[[Field], tuple[float, Numbers]]:
    """The final number and its derivatives, of any state.

    Raises:
        ConfigError: the functional is wrong.
    """
    if functional is None:
        return lambda state: (0.0, np.zeros(state.shape))
    if callable(functional):
        return functools.partial(_called, functional, problem)
    known = {name: as_array(name, it).astype(np.float64) for name, it in arrays.items()}
    return FinalNumber(problem, functional, known)


def _probes(
    config: Config, problem: Problem, data: Any, beside: Mapping[str, Sequence[Problem]]
) -> dict[str, _Probe]:
    """The probes of which there are data.

    Raises:
        ConfigError: there is no such probe, or the run does not reach a time.
    """
    if data is None:
        return {}
    fields = [it.name for it in problem.variables]
    known, found = name_probes(config.output.probes), {}
    for name, rows in (as_data(data) if isinstance(data, Mapping) else read_data(data)).items():
        place, _, which = (name, "", "") if name in known else name.rpartition(".")
        if place not in known or (which and which not in fields):
            msg = f"data: {name!r} is no probe; name one so in output.probes"
            raise ConfigError(msg)

        # The same probe of every problem beside this one: faces may lie between its points.
        number = fields.index(which) if which else 0
        reading, *others = (
            ProbeReading(it, place, known[place], number)
            for it in (problem, *itertools.chain(*beside.values()))
        )
        left = iter(others)
        by_way = {way: [next(left) for _ in every] for way, every in beside.items()}
        first, shares = places_of(problem, name, rows[:, 0])
        found[name] = _Probe(reading, by_way, reading.weights(), rows[:, 1], first, shares)
    return found


def _called(
    functional: Callable[..., Any], problem: Problem, state: Field
) -> tuple[float, Numbers]:
    """The functional of a user's own function."""
    # It gets copies: what it changes must not change the run.
    names = [it.name for it in problem.variables]
    value, slopes = functional({name: np.array(it) for name, it in zip(names, state, strict=True)})
    found = np.zeros(state.shape)
    for name, it in slopes.items():
        if name not in names or np.shape(it) != problem.grid.shape:
            msg = (
                f"functional: the derivative by {name} is of shape {np.shape(it)}; fields are "
                f"{listed(names)}, of shape {problem.grid.shape}"
            )
            raise ConfigError(msg)
        found[names.index(name)] = it
    return float(value), found


# Backwards: from the last step to the first.


class _Reversal:
    """Goes to the end and back again, with states kept on the way.

    Attributes:
        bars: derivatives of J by the state at the step it has come to, (n_fields, n0, ...).
        sums: derivatives by numbers of the configuration so far, by point, (n, n0, ...).
        made: steps that were made forwards.
        most_kept: states that were kept at a time.
    """

    def __init__(
        self, back: Transposed, goal: _Goal, forwards: Steps, backwards: Steps, kept: int
    ) -> None:
        self._back, self._goal, self._kept = back, goal, kept
        self._forwards, self._backwards = forwards, backwards
        self._looks, self._seen_until = goal.steps, -1
        self.made = self.most_kept = 0
        self.bars: Field = np.empty(0)
        self.sums: Field = self.bars

    def run(self) -> float:
        """Find J, and the derivatives by the initial state and by numbers."""
        problem = self._goal.problem
        state: Field = np.array(problem.initial(Slab.whole(problem.grid)), np.float64)
        void = problem.voids(tuple((0, n) for n in problem.grid.shape))
        if void is not None:
            state[:, void] = 0.0

        kept, end, value = [(0, state)], problem.steps, 0.0
        # Steps that read no state need none that was kept.
        if not self._back.reads:
            value = self._begin(self._go(state, 0, end))
            while end:
                first = max([0, *(k for k in self._looks if k < end)])
                first = end - 1 if self._back.changes else first
                self._turn(state, first, end - first)
                end = first
            self.most_kept = 1
            return value

        while end > 0:
            step, state = kept[-1]
            self.most_kept = max(self.most_kept, len(kept))
            if step < end - 1 and len(kept) < self._kept:
                count = split(end - step, self._kept - len(kept) + 1)
                kept.append((step + count, self._go(state, step, count)))
                continue
            # No room is left, or this is the state that the last step needs.
            before = self._go(state, step, end - 1 - step)
            if end == problem.steps:
                value = self._begin(self._go(before, end - 1, 1))
            self._turn(before, end - 1, 1)
            end -= 1
            if step == end:
                kept.pop()
        return value if problem.steps else self._begin(self._go(state, 0, 0))

    def _go(self, state: Field, first: int, count: int) -> Field:
        """Steps forwards; probes are read on the first visit of a step only."""
        # The way to the end goes over every step once, whatever is kept.
        last = first + count
        stops = [k for k in self._looks if max(first - 1, self._seen_until) < k <= last]
        for stop in [*stops, last]:
            state, first = self._forwards.advance(state, first, stop - first), stop
            if stop in stops:
                self._goal.look(state, stop)
        self.made += count
        self._seen_until = max(self._seen_until, last)
        return state

    def _begin(self, state: Field) -> float:
        """Find J at the end, and what derivatives begin with."""
        # Probes may be read at the last step too.
        value, self.bars = self._goal.functional(state)
        self.sums = np.zeros((len(self._back.problem.variables), *state.shape[1:]))
        self.sums = self.sums[len(self._back.reads) + self._back.n_fields :]
        self._add(self._goal.problem.steps)
        return value + self._goal.misfit()

    def _turn(self, state: Field, first: int, count: int) -> None:
        """Steps backwards, from the last of some to the first."""
        # Fields of the transposed problem: the state that it reads, derivatives, sums.
        reads = len(self._back.reads)
        begun = np.concatenate([state[[*self._back.reads]], self.bars, self.sums])
        found = self._backwards.advance(begun, first, count)
        self.bars = found[reads : reads + self._back.n_fields]
        self.sums = found[reads + self._back.n_fields :]
        self._add(first)

    def _add(self, step: int) -> None:
        """Add what probes give that are read at a step."""
        if step in self._looks:
            for index, slope in self._goal.slopes(step).items():
                self.bars[index] += slope
